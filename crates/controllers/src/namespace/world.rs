//! World of the Namespace reconciler.

use crate::content::{Content, Sweep, sweep};
use insula_api::{Json, ObjectKey, Timestamp};
use insula_catalog::ScopeKind;
use insula_registry::Deps;
use insula_store::{Entry, Snapshot};

/// World of a namespace.
pub(crate) struct World {
    /// The Namespace, if it exists.
    pub(crate) namespace: Option<(Entry, Json)>,
    /// Its content, while it is being deleted.
    pub(crate) content: Sweep,
    pub(crate) now: Timestamp,
}

pub(super) fn observe(registry: &Deps, key: &ObjectKey, snapshot: &Snapshot) -> World {
    let now = registry.clock.now();
    let entry = snapshot.get(key);
    let content = match &entry {
        Some(entry) if entry.object.meta.is_deleting() => {
            let served = registry.catalog.served(snapshot, &key.cluster);
            let namespaced = served
                .iter()
                .filter(|s| s.api.scope == ScopeKind::Namespaced && s.alias.is_none());
            let contents: Vec<Content> = namespaced.map(Content::for_api).collect();
            sweep(snapshot, &contents, &key.cluster, Some(&key.name), now)
        }
        _ => Sweep::default(),
    };
    let namespace = entry.map(|entry| {
        let value = entry.object.body_value();
        (entry, value)
    });
    World {
        namespace,
        content,
        now,
    }
}
