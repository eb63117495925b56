//! Deletion of the content of a cluster, a namespace or a resource: in batches, and waiting for
//! finalizers.

use crate::write::removal;
use insula_api::{ClusterName, ResourceId, Resources, Scope, Timestamp};
use insula_catalog::{Served, Strategy};
use insula_registry::Intent;
use insula_store::Snapshot;
use std::{collections::BTreeMap, ops::ControlFlow};

/// Writes in one transaction.
pub(crate) const BATCH_MAX: usize = 100;

/// Resource whose objects are to be deleted.
#[derive(Clone)]
pub(crate) struct Content {
    pub(crate) resource: ResourceId,
    pub(crate) strategy: Option<&'static dyn Strategy>,
}

impl Content {
    /// Returns the content of a tenant's API: only finalizers hold its objects.
    pub(crate) fn custom(resource: ResourceId) -> Self {
        Content {
            resource,
            strategy: None,
        }
    }

    pub(crate) fn for_api(served: &Served) -> Self {
        let strategy = (served.origin == insula_catalog::Origin::System).then(|| served.api.strategy);
        Content {
            resource: served.resource_id(),
            strategy,
        }
    }
}

/// Result of a walk over content: deletions to write next, and objects that are held.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// At most [`BATCH_MAX`].
    pub(crate) intents: Vec<Intent>,
    /// Further objects did not fit.
    pub(crate) more: bool,
    /// Number of objects that finalizers hold, by `resource.group`.
    pub(crate) remaining: BTreeMap<String, usize>,
    /// Number of objects by finalizer.
    pub(crate) finalizers: BTreeMap<String, usize>,
}

impl Sweep {
    /// Returns true if there are no objects.
    pub(crate) fn is_clean(&self) -> bool {
        self.intents.is_empty() && !self.more && self.remaining.is_empty()
    }

    /// Returns true if there are no objects once the intents are committed.
    pub(crate) fn will_be_clean(&self) -> bool {
        !self.more && self.remaining.is_empty() && self.intents.iter().all(|i| matches!(i, Intent::Delete(_)))
    }

    /// Describes the objects: `secrets. has 1 resource instances, widgets.example.io has 3 resource
    /// instances`.
    pub(crate) fn describe_remaining(&self) -> String {
        let parts = self
            .remaining
            .iter()
            .map(|(what, n)| format!("{what} has {n} resource instances"));
        parts.collect::<Vec<_>>().join(", ")
    }

    /// Describes the finalizers: `example.io/hold in 1 resource instances`.
    pub(crate) fn describe_finalizers(&self) -> String {
        let parts = self
            .finalizers
            .iter()
            .map(|(what, n)| format!("{what} in {n} resource instances"));
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// Walks the resources in their order.
pub(crate) fn sweep(
    snapshot: &Snapshot,
    contents: &[Content],
    cluster: &ClusterName,
    namespace: Option<&str>,
    now: Timestamp,
) -> Sweep {
    let mut sweep = Sweep::default();
    for content in contents {
        let scope = Scope {
            resources: Resources::One(content.resource.clone()),
            cluster: Some(cluster.clone()),
            namespace: namespace.map(Into::into),
        };
        snapshot.for_each(&scope, |entry| {
            if sweep.intents.len() == BATCH_MAX {
                sweep.more = true;
                return ControlFlow::Break(());
            }
            match removal(entry, content.strategy, now) {
                Some(intent) => sweep.intents.push(intent),
                None => {
                    let ResourceId { group, resource, .. } = &content.resource;
                    *sweep.remaining.entry(format!("{resource}.{group}")).or_default() += 1;
                    for finalizer in &entry.object.meta.finalizers {
                        *sweep.finalizers.entry(finalizer.to_string()).or_default() += 1;
                    }
                }
            }
            ControlFlow::Continue(())
        });
        if sweep.more {
            break;
        }
    }
    sweep
}
