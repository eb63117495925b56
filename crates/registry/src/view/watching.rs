//! What a change of a binding shows and hides of a claimed resource: to accept a claim makes objects appear, to reject it
//! makes them go, for those who watch as for those who list.

use super::{Sight, Through, offer::Binding, right::Right};
use crate::{EventKind, Registry, Target, ids};
use insula_api::{Object, Revision, Scope};
use insula_store::{Change, Cursor, Entry, Gone, Snapshot};
use std::{ops::ControlFlow, sync::Arc};

/// The bindings whose changes matter to a watch.
pub(crate) struct Sighted {
    /// Changes of bindings.
    pub(crate) cursor: Cursor,
    through: Through,
}

impl Sighted {
    /// Nothing where objects come and go by themselves alone: from within, in an export's own API, and of bindings.
    pub(crate) fn of(registry: &Registry, target: &Target, after: Revision) -> Result<Option<Sighted>, Gone> {
        let (through, cluster) = match &target.sight {
            Sight::Within => return Ok(None),
            Sight::Through(through) => (through, Some(target.cluster.clone())),
            Sight::Across(across) => match &across.by {
                Some(through) => (through, None),
                None => return Ok(None),
            },
        };
        let is_own = through.export.owns(&registry.store.latest(), &target.served);
        if is_own || target.served.resource_id() == ids::apibindings() {
            return Ok(None);
        }
        let scope = Scope {
            resource: Some(ids::apibindings()),
            cluster,
            namespace: None,
        };
        Ok(Some(Sighted {
            cursor: registry.store.watch(scope, after)?,
            through: through.clone(),
        }))
    }

    /// The objects that a binding's change shows or hides. One that is shown has the revision it has, for who changes it.
    pub(crate) fn turned(&self, target: &Target, change: &Change, then: &Snapshot) -> Vec<(EventKind, Entry)> {
        let export = &self.through.export;
        let Some(said) = export.said(then) else {
            return Vec::new();
        };
        let right = |object: &Arc<Object>, revision: Revision| -> Option<Right> {
            let binding = object.view(Binding::read);
            let entry = Entry {
                key: change.key.clone(),
                object: object.clone(),
                revision,
                created: revision,
            };
            let right = match export.is_bound_by(&binding) {
                true => export.right_by(&said.offer, &entry, &binding, target.wish(&self.through))?,
                false => return None,
            };
            (*right.identity("") == *target.served.identity).then_some(right)
        };
        let old = change.old.as_ref().and_then(|old| right(&old.object, old.revision));
        let new = change.new.as_ref().and_then(|new| right(new, change.revision));
        let same = match (&old, &new) {
            (Some(old), Some(new)) => old.is_as_wide_as(new),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        let mut turned = Vec::new();
        if same {
            return turned;
        }
        let scope = Scope {
            cluster: Some(change.key.cluster.clone()),
            namespace: target.namespace.clone(),
            resource: Some(target.served.resource_id()),
        };
        let covers = |right: &Option<Right>, object: &Object| right.as_ref().is_some_and(|right| right.covers(object));
        then.for_each(&scope, |entry| {
            match (covers(&old, &entry.object), covers(&new, &entry.object)) {
                (false, true) => turned.push((EventKind::Added, entry.clone())),
                (true, false) => turned.push((
                    EventKind::Deleted,
                    Entry {
                        revision: change.revision,
                        ..entry.clone()
                    },
                )),
                (true, true) | (false, false) => {}
            }
            ControlFlow::Continue(())
        });
        turned
    }
}
