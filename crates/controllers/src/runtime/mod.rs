//! What every reconciler shares: wake on changes, one key never twice at once, many keys at once,
//! commit the plan, retry conflicts on a fresh snapshot, back off on errors.
//!
//! There is no informer: the store's state in memory is the cache, and its cursors are the events.
//! Nothing here spawns; the server spawns the futures that [`crate::Controllers::tasks`] gives.
//!
//! Several servers on one store all run all reconcilers. Guards make the double work harmless:
//! whoever commits second conflicts, looks again and finds nothing left to do. Electing one of them
//! is a matter of cost, not of correctness.

mod queue;
mod runner;

#[cfg(test)]
mod tests;

use futures_util::future::BoxFuture;
use insula_api::{ResourceId, Scope};
use insula_registry::Plan;
use insula_store::{Change, Snapshot};
use std::{fmt::Debug, hash::Hash, sync::Arc};

pub(crate) use runner::run;

/// Waits so many seconds. Handed in, because only the server knows a clock.
pub type Sleep = Arc<dyn Fn(u64) -> BoxFuture<'static, ()> + Send + Sync>;

/// A loop that brings what is to what should be, one key at a time.
pub(crate) trait Reconciler: Send + Sync + 'static {
    /// What is reconciled as one.
    type Key: Clone + Eq + Hash + Debug + Send + Sync + 'static;
    /// Everything that the decision may look at, read at one revision; time and randomness
    /// included.
    type World: Send;

    /// For logs.
    fn name(&self) -> &'static str;

    /// The resources whose changes, in every cluster, may give it work.
    fn watches(&self) -> Vec<ResourceId>;

    /// Whose changes may give it work, where that is more than a list of resources.
    fn scopes(&self) -> Vec<Scope> {
        self.watches().into_iter().map(Scope::everywhere).collect()
    }

    /// Forgets indexes: the loop starts (over), and notices every existing object next.
    fn restart(&self) {}

    /// Returns the keys that a change concerns. Existing objects come as creations when the loop
    /// starts. An index that maps changes to keys is kept up to date here.
    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<Self::Key>;

    /// Seconds to wait between a change and the look at its keys.
    fn settle(&self) -> u64 {
        0
    }

    /// Reads the world.
    fn observe(&self, key: &Self::Key, snapshot: &Snapshot) -> Self::World;

    /// Pure. Asked again with what it wrote, it returns an empty plan.
    fn decide(&self, world: &Self::World) -> Plan;
}
