//! Identity of the state in etcd: a later response must continue what this process has applied.
//!
//! An etcd that was restored from a snapshot has the same endpoints, and often the same cluster id,
//! but fewer revisions or others under the same numbers. A server that mixes the two states
//! acknowledges writes that are lost. So a violation ends the store for good.

use crate::status::Status;
use etcd_client::ResponseHeader;
use insula_api::Revision;
use insula_store::Mvcc;
use std::sync::Arc;

/// The cluster that was loaded, and how far it has been applied.
pub(crate) struct Origin {
    pub(crate) cluster: u64,
    pub(crate) mvcc: Arc<Mvcc>,
    pub(crate) status: Arc<Status>,
}

/// Outcome of a comparison with etcd.
pub(crate) enum Verdict {
    /// The applied state is part of etcd's history.
    Continues,
    /// The revision to compare was compacted: only a new load tells.
    Compacted,
    /// The store has ended for this reason.
    Other(String),
}

impl Origin {
    /// Returns the revision that every later linearizable response has at least.
    pub(crate) fn known(&self) -> Revision {
        self.mvcc.applied()
    }

    /// Checks the header of a linearizable response to a request that was sent when `known` was
    /// applied. Returns its revision.
    pub(crate) fn check(&self, header: Option<&ResponseHeader>, known: Revision) -> Result<Revision, String> {
        let Some(header) = header else {
            return Err("etcd sent a response without a header".into());
        };
        let revision = Revision(header.revision().unsigned_abs());
        if header.cluster_id() != self.cluster {
            let (got, had) = (header.cluster_id(), self.cluster);
            return Err(self.fail(&format!("its cluster id is {got:x}, it was {had:x}")));
        }
        if revision < known {
            return Err(self.fail(&format!("it is at revision {revision}, it was at {known}")));
        }
        Ok(revision)
    }

    /// Ends the store, and returns the reason.
    pub(crate) fn fail(&self, evidence: &str) -> String {
        let reason = format!("etcd was replaced or rolled back: {evidence}; restart to read it anew");
        self.status.fail(reason.clone());
        reason
    }
}
