//! Permits of requests that wait for extension servers, of each workspace and of all.

use dashmap::DashMap;
use insula_api::ClusterName;
use insula_edge::guard::Limit;
use std::sync::{Arc, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Streams for each request that a workspace may have. Controllers watch each of their kinds, and a
/// stream costs a socket, not a share of the server's requests.
const STREAMS_PER_REQUEST: usize = 4;

/// Permits of all workspaces.
pub(crate) struct Permits {
    per_workspace: usize,
    all: Share,
    /// Shares of workspaces that have permits.
    workspaces: DashMap<ClusterName, Weak<Share>>,
}

struct Share {
    requests: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

/// A permit for one request, until the last byte of its answer.
pub(crate) struct Permit {
    _all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
    _share: Arc<Share>,
}

/// Kinds of proxied requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Answered within the time of a request.
    Request,
    /// A watch, or an upgraded connection.
    Stream,
}

impl Share {
    fn new(requests: usize) -> Self {
        Share {
            requests: Arc::new(Semaphore::new(requests)),
            streams: Arc::new(Semaphore::new(requests * STREAMS_PER_REQUEST)),
        }
    }

    fn take(&self, kind: Kind) -> Option<OwnedSemaphorePermit> {
        let semaphore = match kind {
            Kind::Request => &self.requests,
            Kind::Stream => &self.streams,
        };
        Arc::clone(semaphore).try_acquire_owned().ok()
    }
}

impl Permits {
    pub(crate) fn new(per_workspace: usize, total: usize) -> Self {
        Permits {
            per_workspace,
            all: Share::new(total),
            workspaces: DashMap::new(),
        }
    }

    /// Takes a permit for a request of a workspace.
    ///
    /// # Errors
    /// 429: the workspace or the server has as many as it may have.
    pub(crate) fn take(&self, cluster: &ClusterName, kind: Kind) -> Result<Permit, Limit> {
        let share = self.share(cluster);
        let (factor, things) = match kind {
            Kind::Request => (1, "requests"),
            Kind::Stream => (STREAMS_PER_REQUEST, "streams"),
        };
        let own = share.take(kind).ok_or_else(|| {
            let most = self.per_workspace * factor;
            refused(&format!(
                "the workspace has {most} {things} open at extension servers, and may have no more \
                 (webhooks.proxiedRequestsPerWorkspace)"
            ))
        })?;
        let all = self.all.take(kind).ok_or_else(|| {
            refused(&format!(
                "the server has as many {things} open at extension servers as it may"
            ))
        })?;
        Ok(Permit {
            _all: all,
            _own: own,
            _share: share,
        })
    }

    fn share(&self, cluster: &ClusterName) -> Arc<Share> {
        if let Some(known) = self.workspaces.get(cluster).and_then(|known| known.upgrade()) {
            return known;
        }
        self.workspaces.retain(|_, share| share.strong_count() > 0);
        let mut entry = self.workspaces.entry(cluster.clone()).or_default();
        if let Some(known) = entry.upgrade() {
            return known;
        }
        let fresh = Arc::new(Share::new(self.per_workspace));
        *entry = Arc::downgrade(&fresh);
        fresh
    }
}

fn refused(why: &str) -> Limit {
    Limit(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspaces_have_permits_of_their_own_and_streams_beside_requests() {
        let permits = Permits::new(1, 2);
        let (a, b) = (ClusterName::parse("a").unwrap(), ClusterName::parse("b").unwrap());
        let Ok(first) = permits.take(&a, Kind::Request) else {
            panic!("is free")
        };
        assert!(permits.take(&a, Kind::Request).is_err());
        let streams: Vec<_> = (0..4).filter_map(|_| permits.take(&a, Kind::Stream).ok()).collect();
        assert_eq!(streams.len(), 4);
        assert!(permits.take(&a, Kind::Stream).is_err());
        let Ok(_second) = permits.take(&b, Kind::Request) else {
            panic!("is free")
        };
        let c = ClusterName::parse("c").unwrap();
        assert!(permits.take(&c, Kind::Request).is_err(), "the server has two");
        drop(first);
        assert!(permits.take(&a, Kind::Request).is_ok());
    }
}
