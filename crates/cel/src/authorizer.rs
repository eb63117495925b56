//! Authorization checks that expressions make, and the caller who decides them.

use std::fmt;
use std::rc::Rc;

/// Decides authorization checks for the user of the admitted request.
pub trait Authorize: fmt::Debug {
    /// Decides one check. Called once for every `check` evaluated.
    fn check(&self, check: &AuthorizerCheck<'_>) -> AuthorizerDecision;
}

/// An authorization check.
#[derive(Debug, Clone, Copy)]
pub struct AuthorizerCheck<'a> {
    /// Namespace and name of the service account to check; `None` for the user of the request.
    pub service_account: Option<(&'a str, &'a str)>,
    /// The verb: `get`, `create` …
    pub verb: &'a str,
    /// Object of the check.
    pub target: CheckTarget<'a>,
}

/// Object of a check: a path or a resource.
#[derive(Debug, Clone, Copy)]
pub enum CheckTarget<'a> {
    /// A non-resource path of the server: `/healthz`.
    Path(&'a str),
    /// Objects of a resource.
    Resource(&'a ResourceCheck),
}

/// Attributes of a check on resources. Unset attributes are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceCheck {
    /// API group.
    pub group: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Subresource: `status`, `scale` …
    pub subresource: String,
    /// Namespace; empty for cluster-scoped resources.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Field selector as written. One that does not parse counts as none.
    pub field_selector: String,
    /// Label selector as written. One that does not parse counts as none.
    pub label_selector: String,
}

/// Decision on a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthorizerDecision {
    /// True if the request is allowed; false also for no opinion.
    pub allowed: bool,
    /// Reason for the decision.
    pub reason: String,
    /// Error while deciding.
    pub error: Option<String>,
}

/// The authorizer and the subject of a check.
#[derive(Debug, Clone)]
pub(crate) struct Subject<'v> {
    pub(crate) authorizer: &'v dyn Authorize,
    pub(crate) service_account: Option<(Rc<str>, Rc<str>)>,
}

/// A decision as a value.
pub(crate) type Decision = AuthorizerDecision;
