//! Outcomes of a question to a virtual workspace: a refusal, or the resource that it serves.

use crate::Refusal;
use insula_access::view::ViewScope;
use insula_api::ClusterName;
use insula_auth::{Attributes, UserInfo, forbidden_message};
use insula_catalog::{Error, Named, Served};
use std::borrow::Cow;

/// The refusal of a virtual workspace.
#[derive(Debug, Clone)]
pub(crate) enum NotShown {
    /// There is no such virtual workspace.
    Absent,
    /// The virtual workspace does not show the object, whether it exists or not.
    Hidden,
    /// The virtual workspace does not serve the verb.
    Unsupported,
    /// The request is not allowed; the reason tells nothing of the cluster.
    Denied(Cow<'static, str>),
}

impl NotShown {
    /// The reason, for logs.
    pub(crate) fn reason(&self) -> &str {
        match self {
            NotShown::Absent => "there is no such virtual workspace",
            NotShown::Hidden => "the virtual workspace does not show this object",
            NotShown::Unsupported => "the virtual workspace does not serve this verb",
            NotShown::Denied(reason) => reason,
        }
    }

    /// The answer to the client.
    pub(crate) fn refusal(&self, user: &UserInfo, attributes: &Attributes) -> Refusal {
        let reason = match self {
            NotShown::Absent => return Refusal::NotServed,
            NotShown::Unsupported => return Refusal::from(Error::MethodNotAllowed),
            NotShown::Hidden => {
                return Refusal::from(Error::NotFound {
                    resource: Named {
                        group: attributes.group.as_str().into(),
                        resource: attributes.resource.as_str().into(),
                    },
                    name: attributes.name.clone(),
                });
            }
            NotShown::Denied(reason) => reason,
        };
        let message = forbidden_message(user, attributes);
        let message = match message.strip_suffix("access denied") {
            Some(message) => format!("{message}{reason}"),
            None => message,
        };
        Refusal::forbidden(message, attributes)
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
