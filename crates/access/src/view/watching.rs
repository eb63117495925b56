//! Effects of binding changes on a watch: accepting a claim shows objects, rejecting it hides them.
//! So does binding another schema.

use crate::{
    Target,
    view::{By, ViaExport, ViewScope},
};
use insula_api::{ClusterName, Object, Resources, Revision, Scope};
use insula_catalog::{
    exports::{Grant, offer::Binding, schemas_of},
    ids,
};
use insula_store::{Change, Cursor, Entry, Gone, Snapshot, Store};
use std::{ops::ControlFlow, sync::Arc};

/// Kind of a watch event, as the watcher sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It appeared, or began to match.
    Added,
    /// It changed.
    Modified,
    /// It went, or ceased to match.
    Deleted,
}

type Turned = Vec<(EventKind, Entry)>;

/// The bindings whose changes matter to a watch.
pub struct Sighted {
    by: By,
}

impl Sighted {
    /// The bindings, and a cursor on their changes. Nothing where objects come and go by themselves
    /// alone: from within, in an export's own API, and of bindings.
    pub fn after_revision(
        store: &dyn Store,
        target: &Target,
        after: Revision,
    ) -> Result<Option<(Sighted, Cursor)>, Gone> {
        let (by, cluster) = match &target.view_scope {
            ViewScope::Within | ViewScope::For(_) => return Ok(None),
            ViewScope::ViaExport(through) => (By::Provider(through.clone()), Some(target.cluster.clone())),
            ViewScope::AllClusters(across) => (across.by.clone(), None),
        };
        let cluster: Option<ClusterName> = match &by {
            By::Everybody => return Ok(None),
            By::Provider(through) => {
                let is_own = through.export.owns(&store.latest(), &target.served);
                if is_own || target.served.resource_id() == ids::apibindings() {
                    return Ok(None);
                }
                cluster
            }
            By::Consumer(consumer) => Some(consumer.clone()),
        };
        let scope = Scope {
            resources: Resources::One(ids::apibindings()),
            cluster,
            namespace: None,
        };
        let cursor = store.watch(scope, after)?;
        Ok(Some((Sighted { by }, cursor)))
    }

    /// The objects that a binding's change shows or hides. One that is shown has the revision it
    /// has, for who changes it.
    pub fn turned(&self, target: &Target, change: &Change, then: &Snapshot) -> Turned {
        let turned = match &self.by {
            By::Everybody => Turned::new(),
            By::Provider(through) => claims_turned(through, target, change, then),
            By::Consumer(_) => schemas_turned(change, then),
        };
        let seen = |(kind, entry): (EventKind, Entry)| match kind {
            EventKind::Deleted => (
                kind,
                Entry {
                    revision: change.revision,
                    ..entry
                },
            ),
            EventKind::Added | EventKind::Modified => (kind, entry),
        };
        turned.into_iter().map(seen).collect()
    }
}

fn claims_turned(through: &ViaExport, target: &Target, change: &Change, then: &Snapshot) -> Turned {
    let export = &through.export;
    let Some(spec) = export.spec(then) else {
        return Turned::new();
    };
    let right = |object: &Arc<Object>, revision: Revision| -> Option<Grant> {
        let binding = object.parsed(Binding::read);
        let entry = Entry {
            key: change.key.clone(),
            object: object.clone(),
            revision,
            created: revision,
        };
        let right = match export.is_bound_by(&binding) {
            true => export.right_by((then, &spec.offer), &entry, &binding, target.access_request(through))?,
            false => return None,
        };
        let is_meant = *right.identity("") == *target.served.identity;
        (is_meant && through.is_left(&right, then, &change.key.cluster)).then_some(right)
    };
    let old = change.old.as_ref().and_then(|old| right(&old.object, old.revision));
    let new = change.new.as_ref().and_then(|new| right(new, change.revision));
    let same = match (&old, &new) {
        (Some(old), Some(new)) => old.is_as_wide_as(new),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    let mut turned = Turned::new();
    if same {
        return turned;
    }
    let scope = Scope {
        cluster: Some(change.key.cluster.clone()),
        namespace: target.namespace.clone(),
        resources: Resources::One(target.served.resource_id()),
    };
    let covers = |right: &Option<Grant>, object: &Object| right.as_ref().is_some_and(|right| right.covers(object));
    then.for_each(&scope, |entry| {
        match (covers(&old, &entry.object), covers(&new, &entry.object)) {
            (false, true) => turned.push((EventKind::Added, entry.clone())),
            (true, false) => turned.push((EventKind::Deleted, entry.clone())),
            (true, true) | (false, false) => {}
        }
        ControlFlow::Continue(())
    });
    turned
}

fn schemas_turned(change: &Change, then: &Snapshot) -> Turned {
    let old = change
        .old
        .as_ref()
        .map(|old| schemas_of(&old.object))
        .unwrap_or_default();
    let new = change.new.as_ref().map(|new| schemas_of(new)).unwrap_or_default();
    let gone = old.difference(&new).map(|key| (EventKind::Deleted, key));
    let come = new.difference(&old).map(|key| (EventKind::Added, key));
    gone.chain(come)
        .filter_map(|(kind, key)| Some((kind, then.get(key)?)))
        .collect()
}
