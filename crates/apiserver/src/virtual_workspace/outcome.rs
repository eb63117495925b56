//! Outcomes of a question to a virtual workspace: a refusal, or the resource that it serves.

use crate::reply::Reply;
use insula_access::view::ViewScope;
use insula_api::ClusterName;
use insula_auth::{Attributes, UserInfo, forbidden_message};
use insula_catalog::{Error, Named, Served};
use std::borrow::Cow;

/// The refusal of a virtual workspace.
#[derive(Debug, Clone)]
pub(crate) enum Refusal {
    /// There is no such virtual workspace.
    Absent,
    /// The virtual workspace does not show the object: 404, whether it exists or not.
    Hidden,
    /// The virtual workspace does not serve the verb: 405.
    Unsupported,
    /// The request is not allowed; the reason tells nothing of the cluster.
    Denied(Cow<'static, str>),
}

impl Refusal {
    /// The reason, for logs.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Refusal::Absent => "there is no such virtual workspace",
            Refusal::Hidden => "the virtual workspace does not show this object",
            Refusal::Unsupported => "the virtual workspace does not serve this verb",
            Refusal::Denied(reason) => reason,
        }
    }

    /// The answer to the client.
    pub(crate) fn reply(&self, user: &UserInfo, attributes: &Attributes) -> Reply {
        let reason = match self {
            Refusal::Absent => return Reply::NotFoundPage,
            Refusal::Unsupported => return Reply::error(&Error::MethodNotAllowed),
            Refusal::Hidden => {
                return Reply::error(&Error::NotFound {
                    resource: Named {
                        group: attributes.group.as_str().into(),
                        resource: attributes.resource.as_str().into(),
                    },
                    name: attributes.name.clone(),
                });
            }
            Refusal::Denied(reason) => reason,
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
