//! Outcomes of a question to a virtual workspace: a refusal, or the resource that it serves.

use crate::reply::Reply;
use insula_access::view::ViewScope;
use insula_api::ClusterName;
use insula_auth::{Attributes, UserInfo, forbidden_message};
use insula_catalog::Served;
use std::borrow::Cow;

/// The refusal of a virtual workspace.
#[derive(Debug, Clone)]
pub(crate) enum Refusal {
    /// There is no such virtual workspace.
    Absent,
    /// The request is not allowed; the reason tells nothing of the cluster.
    Denied(Cow<'static, str>),
}

impl Refusal {
    /// The reason, for logs.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Refusal::Absent => "there is no such virtual workspace",
            Refusal::Denied(reason) => reason,
        }
    }

    /// The answer to the client.
    pub(crate) fn reply(&self, user: &UserInfo, attributes: &Attributes) -> Reply {
        let Refusal::Denied(reason) = self else {
            return Reply::NotFoundPage;
        };
        let message = forbidden_message(user, attributes);
        let message = match message.strip_suffix("access denied") {
            Some(message) => format!("{message}{reason}"),
            None => message,
        };
        Reply::forbidden(&message, attributes)
    }
}

/// The resource that a request for objects is about.
pub(crate) struct ResolvedResource {
    /// The cluster. A request across clusters has that of the virtual workspace's owner.
    pub(crate) cluster: ClusterName,
    /// The API.
    pub(crate) served: Served,
    /// The objects that the request sees.
    pub(crate) view_scope: ViewScope,
}
