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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestKind {
    /// The verb; `None` for requests that are not about objects.
    pub verb: Option<Verb>,
    /// Origin of the resource.
    pub class: ResourceClass,
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
