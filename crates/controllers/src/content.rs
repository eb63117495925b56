//! Removing what is in a cluster, a namespace or a resource: in batches, and waiting for
//! finalizers.

use crate::write::removal;
use insula_api::{ClusterName, ResourceId, Scope, Timestamp};
use insula_registry::{Intent, Served, Strategy};
use insula_store::Snapshot;
use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc};

/// Writes in one transaction.
pub(crate) const BATCH_MAX: usize = 100;

/// A resource to be emptied.
#[derive(Clone)]
pub(crate) struct Content {
    pub(crate) resource: ResourceId,
    pub(crate) strategy: Option<Arc<dyn Strategy>>,
}

impl Content {
    /// Objects of a tenant's API: only finalizers hold them.
    pub(crate) fn custom(resource: ResourceId) -> Self {
        Content {
            resource,
            strategy: None,
        }
    }

    pub(crate) fn of(served: &Served) -> Self {
        let strategy = (served.origin == insula_registry::Origin::System).then(|| served.api.strategy.clone());
        Content {
            resource: served.resource_id(),
            strategy,
        }
    }
}

/// What is there, and what to do about it next.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// At most [`BATCH_MAX`].
    pub(crate) intents: Vec<Intent>,
    /// There is more than fits.
    pub(crate) more: bool,
    /// Objects that something holds, by `resource.group`.
    pub(crate) remaining: BTreeMap<String, usize>,
    /// The finalizers that hold them.
    pub(crate) finalizers: BTreeMap<String, usize>,
}

impl Sweep {
    /// Whether nothing is left, not even something to remove.
    pub(crate) fn is_clean(&self) -> bool {
        self.intents.is_empty() && !self.more && self.remaining.is_empty()
    }

    /// Whether nothing is left once the intents have happened.
    pub(crate) fn will_be_clean(&self) -> bool {
        !self.more && self.remaining.is_empty() && self.intents.iter().all(|i| matches!(i, Intent::Delete(_)))
    }

    /// `secrets. has 1 resource instances, widgets.example.io has 3 resource instances`.
    pub(crate) fn remaining_words(&self) -> String {
        let words = self
            .remaining
            .iter()
            .map(|(what, n)| format!("{what} has {n} resource instances"));
        words.collect::<Vec<_>>().join(", ")
    }

    /// `example.io/hold in 1 resource instances`.
    pub(crate) fn finalizer_words(&self) -> String {
        let words = self
            .finalizers
            .iter()
            .map(|(what, n)| format!("{what} in {n} resource instances"));
        words.collect::<Vec<_>>().join(", ")
    }
}

/// Looks through the resources in their order.
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
            resource: Some(content.resource.clone()),
            cluster: Some(cluster.clone()),
            namespace: namespace.map(Into::into),
        };
        snapshot.for_each(&scope, |entry| {
            if sweep.intents.len() == BATCH_MAX {
                sweep.more = true;
                return ControlFlow::Break(());
            }
            match removal(entry, content.strategy.as_deref(), now) {
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
