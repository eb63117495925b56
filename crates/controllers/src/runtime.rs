//! Runtime of the reconcilers: wakes on changes, works on many keys at once but never twice on the
//! same one, commits plans, retries conflicts on a fresh snapshot and backs off on errors.
//!
//! There is no informer: the store's state in memory is the cache, and its cursors are the events.
//! Nothing here spawns; the server spawns the futures that [`crate::Controllers::tasks`] gives.
//!
//! Several servers on one store all run all reconcilers, each for the clusters that fall to it; a
//! key of another server is looked at some 15 seconds late, when there is mostly nothing left to
//! do. That saves work and decides nothing: guards make double work harmless, for the second commit
//! conflicts, and its server observes again and finds nothing to do.

mod measures;
mod queue;
mod runner;

#[cfg(test)]
mod tests;

use futures_util::future::BoxFuture;
use insula_api::{ResourceId, Scope};
use insula_registry::Plan;
use insula_store::{Change, Snapshot};
pub(crate) use runner::Key;
use std::sync::Arc;

pub use measures::QueueMeasures;
pub(crate) use runner::run;

/// Timer in seconds. The server passes it in, because only the server has a clock.
pub type Sleep = Arc<dyn Fn(u64) -> BoxFuture<'static, ()> + Send + Sync>;

/// Decisions that bring the observed state to the desired state, one key at a time.
pub(crate) trait Reconciler: Send + Sync + 'static {
    /// Unit of reconciliation, usually the key of one object.
    type Key: Key;
    /// Everything that a decision looks at, read at one revision, with time and randomness.
    type World: Send;

    /// Returns the name for logs.
    fn name(&self) -> &'static str;

    /// Returns the resources whose changes, in every cluster, may require work.
    fn watches(&self) -> Vec<ResourceId>;

    /// Returns the scopes whose changes may require work, if that is more than a list of resources.
    fn scopes(&self) -> Vec<Scope> {
        self.watches().into_iter().map(Scope::everywhere).collect()
    }

    /// Forgets indexes: the loop starts (over), and notices every existing object next.
    fn restart(&self) {}

    /// Returns the keys that a change concerns. Existing objects come as creations when the loop
    /// starts. An index that maps changes to keys is kept up to date here.
    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<Self::Key>;

    /// Returns the seconds between a change and the reconciliation of its keys.
    fn settle(&self) -> u64 {
        0
    }

    /// Reads the world of a key from a snapshot.
    fn observe(&self, key: &Self::Key, snapshot: &Snapshot) -> Self::World;

    /// Decides what to write. Pure: in the world that its plan leads to, the plan is empty.
    fn decide(&self, world: &Self::World) -> Plan;
}
