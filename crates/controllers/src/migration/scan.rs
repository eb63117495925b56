//! Scan of all objects of a resource: the next batch, and counts of the others.

use super::pace::Pace;
use insula_api::{ClusterName, Object, Scope};
use insula_catalog::Served;
use insula_registry::{Deps, Intent, homes, migrate};
use insula_store::{Entry, Snapshot};
use std::{ops::ControlFlow, sync::Arc};

/// Objects in one transaction, which has room for guards and the status beside them.
const BATCH_MAX: usize = 100;
/// Bytes of objects in one transaction.
const BATCH_BYTES_MAX: usize = 512 << 10;

/// Result of a scan.
#[derive(Default)]
pub(super) struct Scan {
    /// Objects to write next, in their new form.
    pub(super) batch: Vec<(Entry, Arc<Object>)>,
    /// Events about values of these objects that gave way to others.
    pub(super) events: Vec<Intent>,
    /// Number of further outdated objects.
    pub(super) later: usize,
    /// Number of objects that cannot be written in the storage version.
    pub(super) stuck: usize,
    /// Error of the first of them.
    pub(super) why: String,
    /// Number of all objects.
    pub(super) total: usize,
}

impl Scan {
    /// Returns true if every object is up to date.
    pub(super) fn is_done(&self) -> bool {
        self.batch.is_empty() && self.later == 0 && self.stuck == 0
    }

    /// Returns true if nothing more can be done.
    pub(super) fn is_over(&self) -> bool {
        self.batch.is_empty() && self.later == 0
    }

    /// Returns the number of up-to-date objects once the batch is written.
    pub(super) fn written(&self) -> usize {
        self.total - self.later - self.stuck
    }
}

/// Walks all objects of a resource: comparing the versions of an object is cheap beside writing it.
pub(super) fn scan(deps: &Deps, pace: &Pace, served: &Served, cluster: &ClusterName, snapshot: &Snapshot) -> Scan {
    let now = deps.clock.now();
    let allowed = pace.take(BATCH_MAX, now);
    let (mut scan, mut bytes) = (Scan::default(), 0);
    snapshot.for_each(&Scope::cluster(served.resource_id(), cluster.clone()), |entry| {
        scan.total += 1;
        if migrate::is_current(served, entry) {
            return ControlFlow::Continue(());
        }
        if scan.batch.len() + scan.events.len() >= allowed || bytes >= BATCH_BYTES_MAX {
            scan.later += 1;
            return ControlFlow::Continue(());
        }
        match migrate::migrated(served, entry) {
            Ok(Some(object)) => {
                bytes += object.size();
                scan.events.extend(homes::event(deps, served, entry));
                scan.batch.push((entry.clone(), Arc::new(object)));
            }
            Ok(None) => {}
            Err(error) => {
                if scan.stuck == 0 {
                    scan.why = error.to_string();
                }
                scan.stuck += 1;
            }
        }
        ControlFlow::Continue(())
    });
    pace.give_back(allowed - scan.batch.len(), now);
    scan
}
