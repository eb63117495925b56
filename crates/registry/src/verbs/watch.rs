//! Watch: a snapshot first if asked for, then a cursor that pulls. Selectors turn changes into what the watcher sees.

use super::read::{check_fields, selects, served_since};
use crate::{
    Error, Registry, Result, Target, ids,
    view::{Sight, Sighted},
    webhook::{learn, looks_inside},
};
use futures_util::future::{Either, select};
use insula_api::{ClusterName, FieldSelector, LabelSelector, Object, ObjectKey, ResourceId, Revision};
use insula_store::{Change, Cursor, Entry, Gone, Snapshot};
use std::{collections::VecDeque, ops::ControlFlow, pin::pin, sync::Arc};

/// Events handed out together while the initial state is sent.
const INITIAL_CHUNK: usize = 500;

/// What a watch is asked for.
#[derive(Debug, Clone, Default)]
pub struct WatchOptions {
    /// Labels that must match.
    pub labels: LabelSelector,
    /// Fields that must match.
    pub fields: FieldSelector,
}

/// What happened to an object, as the watcher sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It appeared, or began to match.
    Added,
    /// It changed.
    Modified,
    /// It went, or ceased to match.
    Deleted,
}

/// An event. A deleted object is shown as it last matched, at the revision of the change.
#[derive(Debug, Clone)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The object at the event's revision.
    pub entry: Entry,
}

/// A running watch.
pub struct Watch {
    /// What is watched.
    pub target: Target,
    options: WatchOptions,
    initial: VecDeque<Entry>,
    cursor: Cursor,
    /// Bindings that show and hide what is watched.
    sighted: Option<Sighted>,
    /// The revision at which a view's watch began, until it has come there from an older one. What may not be seen then is
    /// not shown of its past.
    resumed: Option<Revision>,
    /// Changes of objects that came before changes of bindings did that are older.
    held: Vec<Arc<Change>>,
    /// Changes that came, and where the cursor stood before: a webhook is being asked what they look like.
    unseen: (Vec<Arc<Change>>, Revision),
}

impl Registry {
    /// Watches from the state of a snapshot on: first every object of it, then what changes after it.
    pub fn watch_with_state(&self, snapshot: &Snapshot, target: Target, options: WatchOptions) -> Result<Watch> {
        check_fields(&target, &options.fields)?;
        let mut watch = self.begin(snapshot.revision(), target, options)?;
        let Watch { target, options, .. } = &watch;
        let (mut initial, mut failed) = (VecDeque::new(), None);
        let mut looking = target.looking(&self.catalog, snapshot);
        for scope in target.ranges(snapshot) {
            snapshot.for_each(&scope, |entry| {
                if !looking.sees_entry(entry) {
                    return ControlFlow::Continue(());
                }
                match selects(target, &options.labels, &options.fields, entry) {
                    Ok(true) => initial.push_back(entry.clone()),
                    Ok(false) => {}
                    Err(error) => {
                        failed = Some(error);
                        return ControlFlow::Break(());
                    }
                }
                ControlFlow::Continue(())
            });
        }
        if let Some(error) = failed {
            return Err(error);
        }
        watch.initial = initial;
        Ok(watch)
    }

    /// Watches what changes after a revision.
    pub fn watch_after(&self, after: Revision, target: Target, options: WatchOptions) -> Result<Watch> {
        check_fields(&target, &options.fields)?;
        let now = self.store.latest();
        let since = served_since(&now, &target);
        if after < since {
            let (asked, oldest) = (after, since);
            return Err(gone(Gone::Compacted { asked, oldest }));
        }
        let mut watch = self.begin(after.max(life_before(&now, &target)), target, options)?;
        let is_view = !matches!(watch.target.sight, Sight::Within | Sight::For(_));
        watch.resumed = (is_view && after < now.revision()).then(|| now.revision());
        Ok(watch)
    }

    fn begin(&self, after: Revision, target: Target, options: WatchOptions) -> Result<Watch> {
        let cursor = self.store.watch(target.scope(), after).map_err(gone)?;
        Ok(Watch {
            options,
            initial: VecDeque::new(),
            unseen: (Vec::new(), cursor.position()),
            sighted: Sighted::of(self, &target, after).map_err(gone)?,
            resumed: None,
            held: Vec::new(),
            cursor,
            target,
        })
    }

    /// How everything was just after a change.
    fn just_after(&self, revision: Revision) -> Snapshot {
        self.store.at(revision).unwrap_or_else(|_| self.store.latest())
    }
}

/// The last revision before the cluster was made. A cluster of the same name that was there before is another one: its
/// changes are none of this one's.
fn life_before(now: &Snapshot, target: &Target) -> Revision {
    let is_first = target.is_across() || target.cluster == ClusterName::root() || target.cluster.is_system();
    let logical = (!is_first).then(|| now.get(&ids::logical_cluster(&target.cluster)));
    let made = logical.flatten().map_or(0, |logical| logical.created.0);
    Revision(made.saturating_sub(1))
}

/// A revision that is gone, in Kubernetes' words.
pub fn gone(gone: Gone) -> Error {
    match gone {
        Gone::Compacted { asked, oldest } => Error::Expired {
            message: format!("too old resource version: {asked} ({oldest})"),
            next: None,
        },
        Gone::Future { asked, latest } => Error::RevisionTooLarge {
            wanted: asked,
            current: latest,
        },
    }
}

impl Watch {
    /// Whether the initial state has been handed out.
    pub fn is_live(&self) -> bool {
        self.initial.is_empty()
    }

    /// The next events. While the initial state lasts it answers at once; afterwards it waits. Empty when changes came
    /// that this watcher does not see. Cancelling loses nothing.
    pub async fn next(&mut self, registry: &Registry) -> Result<Vec<Event>> {
        if !self.initial.is_empty() {
            let count = self.initial.len().min(INITIAL_CHUNK);
            let added = self.initial.drain(..count);
            return Ok(added
                .map(|entry| Event {
                    kind: EventKind::Added,
                    entry,
                })
                .collect());
        }
        if self.unseen.0.is_empty() {
            let before = self.position();
            self.unseen = (self.pull().await.map_err(gone)?, before);
        }
        if looks_inside(&self.options.fields) {
            let sides = self.unseen.0.iter().flat_map(|change| {
                let old = change
                    .old
                    .as_ref()
                    .map(|old| entry(&change.key, &old.object, old.revision));
                let new = change.new.as_ref().map(|new| entry(&change.key, new, change.revision));
                old.into_iter().chain(new)
            });
            let sides: Vec<Entry> = sides.collect();
            learn(&self.target, sides.iter()).await;
        }
        let changes = std::mem::take(&mut self.unseen.0);
        let events = self.see(registry, &changes)?;
        self.check_past(registry, &events)?;
        Ok(events)
    }

    /// Refuses to show what happened before the watch began to an object that may not be seen any more: 410, upon which
    /// clients list what they may see.
    fn check_past(&mut self, registry: &Registry, events: &[Event]) -> Result<()> {
        let Some(began) = self.resumed else {
            return Ok(());
        };
        let now = registry.just_after(began);
        let mut looking = self.target.looking(&registry.catalog, &now);
        let is_past = |event: &&Event| event.entry.revision <= began;
        let hidden = events
            .iter()
            .filter(is_past)
            .find(|event| !looking.still_sees(&event.entry.key, &event.entry.object));
        if let Some(event) = hidden {
            let (asked, oldest) = (event.entry.revision, now.revision());
            return Err(gone(Gone::Compacted { asked, oldest }));
        }
        if self.position() >= began {
            self.resumed = None;
        }
        Ok(())
    }

    /// Changes in the order in which they happened. Those of bindings come between those of objects: a client that goes on
    /// from the last event has missed none before it.
    async fn pull(&mut self) -> std::result::Result<Vec<Arc<Change>>, Gone> {
        let Some(sighted) = &mut self.sighted else {
            return self.cursor.next().await;
        };
        let mut turns = Vec::new();
        if self.held.is_empty() {
            match select(pin!(self.cursor.next()), pin!(sighted.cursor.next())).await {
                Either::Left((changes, _)) => self.held = changes?,
                Either::Right((changes, _)) => turns = changes?,
            }
        }
        // Bindings are looked at behind the objects and once more in front of them: up to the last of both nothing is missing.
        drain(&mut sighted.cursor, &mut turns, None)?;
        let last = |changes: &[Arc<Change>]| changes.last().map(|change| change.revision);
        let until = last(&self.held).max(last(&turns));
        drain(&mut self.cursor, &mut self.held, until)?;
        let ripe = self.held.partition_point(|change| Some(change.revision) <= until);
        let mut changes: Vec<Arc<Change>> = self.held.drain(..ripe).collect();
        changes.extend(turns);
        changes.sort_by_key(|change| change.revision);
        Ok(changes)
    }

    /// Everything at or before this revision was handed out: a bookmark.
    pub fn position(&self) -> Revision {
        if !self.unseen.0.is_empty() {
            return self.unseen.1;
        }
        let objects = match self.held.first() {
            Some(next) => Revision(next.revision.0.saturating_sub(1)),
            None => self.cursor.position(),
        };
        let bindings = self.sighted.as_ref().map(|sighted| sighted.cursor.position());
        bindings.map_or(objects, |bindings| bindings.min(objects))
    }

    fn see(&self, registry: &Registry, changes: &[Arc<Change>]) -> Result<Vec<Event>> {
        if matches!(self.target.sight, Sight::Within) {
            let all = |_: &Object| true;
            let events = changes
                .iter()
                .filter_map(|change| self.see_change(change, all, all).transpose());
            return events.collect();
        }
        // Who may see an object is decided in the state that it was part of: a workspace may go with all that is in it.
        let mut events = Vec::new();
        for together in changes.chunk_by(|a, b| a.revision == b.revision) {
            let revision = together[0].revision;
            let before = registry.just_after(Revision(revision.0.saturating_sub(1)));
            let then = registry.just_after(revision);
            let mut saw = self.target.looking(&registry.catalog, &before);
            let mut sees = self.target.looking(&registry.catalog, &then);
            for change in together {
                if change.key.resource == self.cursor_resource() {
                    let (old, new) = (
                        |old: &Object| saw.sees(&change.key, old),
                        |new: &Object| sees.sees(&change.key, new),
                    );
                    events.extend(self.see_change(change, old, new)?);
                } else if let Some(sighted) = &self.sighted {
                    for (kind, entry) in sighted.turned(&self.target, change, &then) {
                        let WatchOptions { labels, fields } = &self.options;
                        if selects(&self.target, labels, fields, &entry)? {
                            events.push(Event { kind, entry });
                        }
                    }
                }
            }
        }
        Ok(events)
    }

    fn cursor_resource(&self) -> ResourceId {
        self.target.served.resource_id()
    }

    fn see_change(
        &self,
        change: &Change,
        saw: impl FnOnce(&Object) -> bool,
        sees: impl FnOnce(&Object) -> bool,
    ) -> Result<Option<Event>> {
        let WatchOptions { labels, fields } = &self.options;
        let selected = |object: &Arc<Object>, revision: Revision| {
            let entry = entry(&change.key, object, revision);
            let matches = selects(&self.target, labels, fields, &entry)?;
            Ok::<_, Error>(matches.then_some(entry))
        };
        let old = match &change.old {
            Some(old) if saw(&old.object) => selected(&old.object, old.revision)?,
            _ => None,
        };
        let new = match &change.new {
            Some(new) if sees(new) => selected(new, change.revision)?,
            _ => None,
        };
        let (kind, shown) = match (old, new) {
            (None, Some(new)) => (EventKind::Added, new),
            (Some(_), Some(new)) => (EventKind::Modified, new),
            (Some(old), None) => (EventKind::Deleted, old),
            (None, None) => return Ok(None),
        };
        Ok(Some(Event {
            kind,
            entry: entry(&change.key, &shown.object, change.revision),
        }))
    }
}

/// Takes what a cursor has, at least up to a revision if there is one to reach.
fn drain(cursor: &mut Cursor, into: &mut Vec<Arc<Change>>, until: Option<Revision>) -> std::result::Result<(), Gone> {
    loop {
        let more = cursor.try_next()?;
        let Some(last) = more.last().map(|change| change.revision) else {
            return Ok(());
        };
        into.extend(more);
        if until.is_some_and(|until| last >= until) {
            return Ok(());
        }
    }
}

fn entry(key: &ObjectKey, object: &Arc<Object>, revision: Revision) -> Entry {
    Entry {
        key: key.clone(),
        object: object.clone(),
        revision,
        created: revision,
    }
}
