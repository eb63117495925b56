//! The first stage of a [`Call`]: the state that it sees, and the cluster that it names.

use crate::{
    Refusal,
    call::{Call, ReadAt, Sender},
    impersonation,
    scope::{Scope, ScopePath},
    unlocated,
};
use insula_api::{ClusterName, ClusterPath, Revision};
use insula_auth::{Attributes, GROUP_AUTHENTICATED, audit::Record};
use insula_catalog::{
    Error,
    locate::{self, LogicalClusterView, NotLocated},
};
use insula_registry::{Deps, verbs::Token};
use insula_store::{Gone, Pinned, Snapshot, SnapshotError};
use std::{sync::Arc, time::Duration};

/// Time that a read waits for a revision that this server has not seen yet (kube-apiserver's watch
/// cache: 3 s).
const REVISION_WAIT: Duration = Duration::from_secs(3);

/// A request whose cluster exists.
pub struct Located {
    pub(crate) sender: Sender,
    pub(crate) scope: Scope,
    /// The request's attributes, with the cluster.
    pub(crate) attributes: Attributes,
}

/// The server that a request leads to.
pub enum Destination {
    /// This server.
    Here(Box<Located>),
    /// Another server.
    Mounted(Box<Mounted>),
}

/// A request for a workspace whose content is on another server.
pub struct Mounted {
    /// The sender.
    pub sender: Sender,
    /// Address of the content.
    pub url: Arc<str>,
    /// The workspace.
    pub path: ClusterPath,
}

/// Finds the cluster of a request, and the state that it sees.
///
/// # Errors
/// The refusal of a revision that cannot be read, and of a workspace that cannot be entered.
pub async fn locate(registry: &Deps, mut sender: Sender, call: Call, record: &Record) -> Result<Destination, Refusal> {
    let at = call.at;
    let read = snapshot(registry, at, call.token.as_deref())
        .await?
        .charged_to(&call.meter);
    // Rights that were taken away do not come back with an old revision.
    let snapshot = match at {
        ReadAt::Exactly(_) => snapshot(registry, ReadAt::Latest, None).await?.charged_to(&call.meter),
        ReadAt::Latest | ReadAt::Any | ReadAt::NotOlderThan(_) => read.clone(),
    };
    let (cluster, logical_cluster) = match find_cluster(&call, &snapshot, &sender, record)? {
        FoundCluster::Here(cluster, view) => (cluster, view),
        FoundCluster::Mounted { url, path } => {
            return Ok(Destination::Mounted(Box::new(Mounted { sender, url, path })));
        }
    };
    let (path, view) = match call.scope {
        ScopePath::Outside | ScopePath::Everywhere => (None, None),
        ScopePath::Cluster(path) => (Some(path), None),
        ScopePath::View { workspace, .. } => (None, Some(workspace)),
    };
    record.located(cluster.as_ref(), path.as_ref());
    let scope = Scope {
        snapshot,
        read,
        cluster,
        logical_cluster,
        path,
        view,
        meter: call.meter,
    };
    let home = match &scope.view {
        Some(view) => view.home(),
        None => scope.cluster.as_ref(),
    };
    if let (Some(_), Some(cluster)) = (&sender.impersonator, home) {
        impersonation::confine(&mut sender.user, cluster);
    }
    let attributes = Attributes {
        cluster: scope.cluster.clone(),
        ..call.attributes
    };
    Ok(Destination::Here(Box::new(Located {
        sender,
        scope,
        attributes,
    })))
}

/// The cluster that a path leads to.
enum FoundCluster {
    /// A cluster of this server with its LogicalCluster; `None` outside of any and for the
    /// wildcard.
    Here(Option<ClusterName>, Option<Arc<LogicalClusterView>>),
    /// A mount: its content is on another server.
    Mounted { url: Arc<str>, path: ClusterPath },
}

/// Finds the cluster of a request. Virtual workspaces do not check that theirs exists: they tell it
/// to those alone whom the cluster lets in.
fn find_cluster(call: &Call, snapshot: &Snapshot, sender: &Sender, record: &Record) -> Result<FoundCluster, Refusal> {
    let refused = |why: &NotLocated| {
        record.refused(why);
        unlocated::refusal(call, snapshot, sender, why)
    };
    let path = match &call.scope {
        ScopePath::Cluster(path) => path,
        ScopePath::View { cluster, .. } => {
            if let Some(cluster) = cluster
                .as_ref()
                .filter(|cluster| locate::awaits_deletion(snapshot, cluster))
            {
                return Err(refused(&NotLocated::UnknownCluster(cluster.clone())));
            }
            let view = cluster
                .as_ref()
                .and_then(|cluster| locate::logical_cluster(snapshot, cluster));
            return Ok(FoundCluster::Here(cluster.clone(), view));
        }
        ScopePath::Outside | ScopePath::Everywhere => return Ok(FoundCluster::Here(None, None)),
    };
    let is_itself = sender.impersonator.is_none() && sender.user.is_in(GROUP_AUTHENTICATED);
    match locate::locate_view(snapshot, path) {
        // Impersonation ends where a workspace is on another server, which takes no more than
        // names.
        Err(NotLocated::Mounted { url }) if is_itself => Ok(FoundCluster::Mounted {
            url,
            path: path.clone(),
        }),
        _ if unlocated::is_health(call) && !path.split_first().0.is_system() => Ok(FoundCluster::Here(None, None)),
        Ok((cluster, view)) => Ok(FoundCluster::Here(Some(cluster), view)),
        Err(NotLocated::UnknownCluster(cluster)) if unlocated::shows_as_empty(call, path, sender) => {
            Ok(FoundCluster::Here(Some(cluster), None))
        }
        Err(why) => Err(refused(&why)),
    }
}

/// Returns the state at which a read looks; `token` is that of the page that it goes on from.
///
/// # Errors
/// A revision that is compacted, one that this server has not seen, and a store
/// that does not answer.
pub async fn snapshot(registry: &Deps, at: ReadAt, token: Option<&str>) -> Result<Pinned, Refusal> {
    let store = &registry.store;
    let failed = |error: SnapshotError| Refusal::Verb(Error::Unavailable(error.to_string()));
    match at {
        ReadAt::Any => Ok(store.latest()),
        ReadAt::Latest => store.snapshot(Revision(0)).await.map_err(failed),
        ReadAt::NotOlderThan(revision) => match tokio::time::timeout(REVISION_WAIT, store.snapshot(revision)).await {
            Ok(found) => found.map_err(failed),
            Err(_) => {
                let current = store.latest().revision();
                Err(Refusal::Verb(Error::RevisionTooLarge {
                    wanted: revision,
                    current,
                }))
            }
        },
        ReadAt::Exactly(revision) => store.at_revision(revision).map_err(|gone| match gone {
            Gone::Compacted { .. } => Refusal::from(Token::expired(token)),
            Gone::Future { asked, latest } => Refusal::Verb(Error::RevisionTooLarge {
                wanted: asked,
                current: latest,
            }),
        }),
    }
}
