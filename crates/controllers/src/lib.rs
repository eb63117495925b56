//! Controllers: the loops that make workspaces ready, give exports identities, serve the APIs of
//! bindings, and delete the content of deleted objects.
//!
//! Each reconciler has a folder: `world.rs` reads one snapshot, `decide.rs` is pure, and
//! [`runtime`] commits the plan as one transaction under guards. So the bundles of a binding, its
//! routes of resource names and its status appear at one revision.

mod account;
mod account_token;
mod aggregation;
mod apibinding;
mod apiconversion;
mod apiexport;
mod bindrequest;
mod bootstrap;
mod bundle;
mod content;
mod crd;
mod event;
mod extension;
mod garbage;
mod loaded;
mod logicalcluster;
mod maintain;
mod migration;
mod mount;
mod namespace;
mod partition;
mod plan_yaml;
mod policy;
mod quota;
mod recompute;
mod rollout;
mod rollout_status;
mod rollout_steps;
pub mod runtime;
mod thirdparty;
mod usage;
mod workspace;
mod workspacetype;
mod write;

#[cfg(test)]
mod testing;

pub use bootstrap::{BootstrapError, bootstrap};
pub use runtime::{QueueMeasures, Sleep};

use futures_util::future::{BoxFuture, join_all};
use insula_registry::Deps;
use std::sync::Arc;

/// The endless loop of one reconciler, for the server to spawn. Dropping it loses nothing: the next
/// run begins with every existing object.
pub struct Task {
    /// Its queue, with the name of the reconciler.
    pub queue: Arc<QueueMeasures>,
    /// The loop.
    pub run: BoxFuture<'static, ()>,
}

/// All reconcilers of one registry.
pub struct Controllers {
    registry: Arc<Deps>,
}

impl Controllers {
    /// Creates the reconcilers of a registry.
    pub fn new(registry: Arc<Deps>) -> Self {
        Controllers { registry }
    }

    /// Returns the loop of each reconciler.
    pub fn tasks(self, sleep: Sleep) -> Vec<Task> {
        use runtime::run;
        let Controllers { registry } = self;
        macro_rules! task {
            ($name:literal, $reconciler:expr) => {{
                let queue = Arc::new(QueueMeasures::new($name));
                let reconciler = Arc::new($reconciler(registry.clone()));
                Task {
                    queue: queue.clone(),
                    run: run(registry.clone(), reconciler, queue, sleep.clone()),
                }
            }};
        }
        vec![
            task!("workspace", workspace::Workspaces::new),
            task!("logicalcluster", logicalcluster::LogicalClusters::new),
            task!("mount", mount::Mounts::new),
            task!("maintenance", maintain::Maintenance::new),
            task!("workspacetype", workspacetype::WorkspaceTypes::new),
            task!("apiexport", apiexport::ApiExports::new),
            task!("endpointslice", apiexport::EndpointSlices::new),
            task!("apiconversion", apiconversion::ApiConversions::new),
            task!("apibinding", apibinding::ApiBindings::new),
            task!("bindrequest", bindrequest::BindRequests::new),
            task!("rollout", rollout_status::RolloutStatus::new),
            task!("bundle", bundle::Bundles::new),
            task!("crd", crd::Definitions::new),
            task!("thirdparty", thirdparty::Registrations::new),
            task!("migration", migration::Migrations::new),
            task!("recompute", recompute::Recomputations::new),
            task!("namespace", namespace::Namespaces::new),
            task!("account", account::Accounts::new),
            task!("account-token", account_token::AccountTokens::new),
            task!("partition", partition::PartitionSets::new),
            task!("aggregation", aggregation::Aggregation::new),
            task!("policy", policy::Policies::new),
            task!("quota", quota::Quotas::new),
            task!("event", event::Events::new),
            task!("extension", extension::ExtensionTrusts::new),
            task!("usage", usage::Usages::new),
            task!("garbage", garbage::Garbage::new),
        ]
    }

    /// Runs all of them as one future.
    pub async fn run(self, sleep: impl Fn(u64) -> BoxFuture<'static, ()> + Send + Sync + 'static) {
        let tasks = self.tasks(Arc::new(sleep));
        join_all(tasks.into_iter().map(|task| task.run)).await;
    }
}
