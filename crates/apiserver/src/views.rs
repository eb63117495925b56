//! Virtual workspaces: what somebody may see of clusters that they are not in. They are doors like any other: the request
//! passes all stages, and only the question that lets it in is another one, asked where those who look are at home.

use crate::{path::Virtual, reply::Reply, stage::Place};
use insula_api::ClusterName;
use insula_auth::{Attributes, UserInfo};

/// What a request looks through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum View {
    /// An export: what its consumers let its provider see.
    Export {
        /// Where it is.
        cluster: ClusterName,
        /// Its name.
        name: String,
    },
    /// None that is served.
    Unknown,
}

impl View {
    /// The view that a path names.
    pub(crate) fn of(workspace: &Virtual) -> View {
        match workspace {
            Virtual::ApiExport { cluster, name } => View::Export {
                cluster: cluster.clone(),
                name: name.clone(),
            },
            Virtual::Initializing(_) | Virtual::Terminating(_) | Virtual::ApiResourceSchemas { .. } => View::Unknown,
        }
    }

    /// The cluster in which those who look are somebody.
    pub(crate) fn home(&self) -> Option<&ClusterName> {
        match self {
            View::Export { cluster, .. } => Some(cluster),
            View::Unknown => None,
        }
    }

    /// What the chain is asked before anybody may look; nothing where there is no such view.
    pub(crate) fn question(&self, asked: &Attributes) -> Option<Attributes> {
        match self {
            View::Export { cluster, name } => Some(Attributes {
                verb: asked.verb.clone(),
                group: "apis.kcp.io".into(),
                resource: "apiexports".into(),
                subresource: "content".into(),
                name: name.clone(),
                cluster: Some(cluster.clone()),
                is_resource_request: true,
                ..Attributes::default()
            }),
            View::Unknown => None,
        }
    }

    /// Whether the cluster lets those who look do what they ask for.
    pub(crate) fn lets(&self, _place: &Place, _user: &UserInfo, _asked: &Attributes) -> Result<(), Reply> {
        match self {
            View::Export { .. } | View::Unknown => Err(Reply::NotFoundPage),
        }
    }
}
