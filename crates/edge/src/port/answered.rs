//! An answer with the facts about it that HTTP does not tell.

use crate::guard::limits::Held;
use axum::body::Body;
use http::Response;
use insula_api::Verb;

/// An answer with the facts about it that its head and its body do not tell.
#[derive(Default)]
pub struct Answered {
    /// The answer for the client.
    pub response: Response<Body>,
    /// Labels of the request.
    pub kind: RequestKind,
    /// Permits that are held until the last byte is sent.
    pub held: Option<Held>,
}

impl From<Response<Body>> for Answered {
    fn from(response: Response<Body>) -> Self {
        Answered {
            response,
            ..Answered::default()
        }
    }
}

/// Labels of a request in metrics, known once its resource is resolved.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestKind {
    /// The verb; `None` for requests that are not about objects.
    pub verb: Option<Verb>,
    /// Origin of the resource.
    pub class: ResourceClass,
    /// The resource; `None` for requests that are about no resource that this server serves.
    pub resource: Option<Box<RequestedResource>>,
}

/// Resource of a request, as Kubernetes' metrics name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedResource {
    /// API group; empty for the core group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Plural name, without an exporter's identity.
    pub resource: String,
    /// A subresource that the resource has, or the empty text.
    pub subresource: String,
    /// The objects that the request is about.
    pub scope: RequestScope,
    /// True for a patch that is a configuration of server-side apply.
    pub applies: bool,
    /// The parameters `dryRun`.
    pub dry_run: DryRun,
}

/// Objects that a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestScope {
    /// One object, by its name or by its creation.
    Resource,
    /// The objects of a namespace.
    Namespace,
    /// The objects of a workspace.
    Cluster,
}

/// The parameters `dryRun` of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DryRun {
    /// The request has none.
    Absent,
    /// `All`.
    All,
    /// A value that does not exist.
    Invalid,
}

/// Origin of a request's resource. A closed set: it labels metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResourceClass {
    /// Discovery, OpenAPI, or nothing that is served.
    #[default]
    NonResource,
    /// A built-in kind.
    System,
    /// Bound from an export.
    Bound,
    /// Defined in the cluster by a CustomResourceDefinition.
    Local,
    /// Served by an extension server.
    Aggregated,
    /// A gRPC call, which has no resource.
    Call,
    /// A gRPC call of a method that no service has.
    UnknownCall,
}

impl ResourceClass {
    /// Returns the name in traces.
    pub fn name(self) -> &'static str {
        match self {
            ResourceClass::NonResource => "nonresource",
            ResourceClass::System => "system",
            ResourceClass::Bound => "bound",
            ResourceClass::Local => "local",
            ResourceClass::Aggregated => "aggregated",
            ResourceClass::Call | ResourceClass::UnknownCall => "grpc",
        }
    }
}
