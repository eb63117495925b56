//! Watch: an optional initial snapshot, then changes from a cursor. Selectors turn changes into the
//! events of the watcher.

use super::{
    read::served_since,
    select::{Extent, Selectors, States, check_fields, for_each_selected, looks_inside, selects, selects_metadata},
};
use crate::{built_in_rbac, calls, deps::Deps, representation::prefetch};
use futures_util::future::{BoxFuture, Either, select};
use insula_access::{
    EventKind, Target,
    view::{Sighted, ViewScope},
};
use insula_api::{ClusterName, FieldSelector, LabelSelector, Object, ObjectKey, Revision};
use insula_catalog::{Error, Result, ids};
use insula_store::{Change, Cursor, Entry, Gone, Pinned, Snapshot};
use std::{borrow::Cow, collections::VecDeque, ops::ControlFlow, pin::pin, sync::Arc};

/// Maximum events in one batch of the initial state.
const INITIAL_CHUNK: usize = 500;
/// Maximum bytes of objects in one batch of the initial state, rounded up to a whole object.
const INITIAL_BYTES: usize = 1 << 20;

/// The options of a watch.
#[derive(Debug, Clone, Default)]
pub struct WatchOptions {
    /// Labels that must match.
    pub labels: LabelSelector,
    /// Fields that must match.
    pub fields: FieldSelector,
}

impl WatchOptions {
    fn selectors(&self) -> Selectors<'_> {
        Selectors {
            labels: &self.labels,
            fields: &self.fields,
        }
    }
}

/// An event. A deleted object is shown as it last matched, at the revision of the change.
#[derive(Debug, Clone)]
pub struct Event {
    /// The kind of the change.
    pub kind: EventKind,
    /// The object at the event's revision.
    pub entry: Entry,
}

/// A running watch.
pub struct Watch {
    /// The target of the watch.
    pub target: Target,
    options: WatchOptions,
    initial: Initial,
    /// Changes of objects.
    objects: ChangeBuffer,
    /// Changes of bindings that show and hide watched objects.
    sighted: Option<(Sighted, ChangeBuffer)>,
    /// The latest revision at the start of a watch from an older one, until the watch has reached
    /// it. Objects that are hidden at this revision are not shown in earlier events either.
    resumed: Option<Revision>,
    /// Pulled changes that have not become events yet, and the position of the watch before them.
    /// They remain here while a webhook converts them.
    unseen: (Vec<Arc<Change>>, Revision),
}

/// The rest of the initial state. It holds only keys, so that a slow client keeps no object in
/// memory.
struct Initial {
    keys: VecDeque<ObjectKey>,
    /// Objects that are not stored.
    built_in: Vec<Entry>,
    /// The state's revision.
    revision: Revision,
}

impl Initial {
    /// Returns the next batch of the initial state. An object that changed since can be read while
    /// the history holds the state's revision.
    fn next(&mut self, deps: &Deps) -> Result<Vec<Event>> {
        let (state, latest) = (deps.store.at_revision(self.revision), deps.store.latest());
        let (kind, built_in) = (EventKind::Added, self.built_in.drain(..));
        let mut events: Vec<Event> = built_in.map(|entry| Event { kind, entry }).collect();
        let mut bytes = 0;
        while events.len() < INITIAL_CHUNK && bytes < INITIAL_BYTES {
            let Some(key) = self.keys.front() else { break };
            // Where history was cut, the state may lack an object that it had.
            let then = state.as_ref().ok().and_then(|state| state.get(key));
            let entry = then.or_else(|| latest.get(key).filter(|entry| entry.revision <= self.revision));
            let Some(entry) = entry else {
                if !events.is_empty() {
                    break;
                }
                let (asked, oldest) = (self.revision, latest.revision());
                return Err(gone(state.err().unwrap_or(Gone::Compacted { asked, oldest })));
            };
            bytes += entry.object.size();
            events.push(Event {
                kind: EventKind::Added,
                entry,
            });
            self.keys.pop_front();
        }
        Ok(events)
    }
}

/// A buffer of pulled changes in one scope: at most one pull.
struct ChangeBuffer {
    cursor: Cursor,
    held: VecDeque<Arc<Change>>,
}

impl ChangeBuffer {
    fn new(cursor: Cursor) -> Self {
        let held = VecDeque::new();
        ChangeBuffer { cursor, held }
    }

    /// Pulls if nothing is held.
    fn fill(&mut self) -> std::result::Result<(), Gone> {
        if self.held.is_empty() {
            self.held = self.cursor.try_next()?.into();
        }
        Ok(())
    }

    /// Waits for changes if nothing is held.
    async fn wait(&mut self) -> std::result::Result<(), Gone> {
        if self.held.is_empty() {
            self.held = self.cursor.next().await?.into();
        }
        Ok(())
    }

    /// Removes and returns the buffered changes up to a revision.
    fn take(&mut self, until: Revision) -> impl Iterator<Item = Arc<Change>> {
        let ripe = self.held.partition_point(|change| change.revision <= until);
        self.held.drain(..ripe)
    }

    /// Returns the revision up to which all changes were taken.
    fn position(&self) -> Revision {
        match self.held.front() {
            Some(next) => Revision(next.revision.0.saturating_sub(1)),
            None => self.cursor.position(),
        }
    }
}

/// Starts a watch with the state of a snapshot: first all of its objects, then the changes
/// after it.
///
/// # Errors
/// A field selector is not supported, the revision is compacted, or an object cannot be
/// converted for a field selector.
pub fn watch_with_state<'a>(
    deps: &'a Deps,
    snapshot: &'a Snapshot,
    target: &'a Target,
    options: WatchOptions,
) -> BoxFuture<'a, Result<Watch>> {
    Box::pin(async move {
        check_fields(target, &options.fields)?;
        let mut watch = begin(deps, snapshot.revision(), target, options)?;
        let Watch { target, options, .. } = &watch;
        let mut keys = VecDeque::new();
        let states = States {
            now: snapshot,
            read: snapshot,
        };
        let extent = Extent {
            after: None,
            wanted: usize::MAX,
        };
        for_each_selected(deps, states, target, options.selectors(), extent, |entry| {
            keys.push_back(entry.key.clone());
            ControlFlow::Continue(())
        })
        .await?;
        let built_in = built_in_rbac::all(snapshot, target).into_iter();
        let built_in = built_in
            .filter(|entry| selects_metadata(target, options.selectors(), entry))
            .collect();
        watch.initial.built_in = built_in;
        watch.initial.keys = keys;
        Ok(watch)
    })
}

/// Starts a watch of the changes after a revision.
///
/// # Errors
/// A field selector is not supported, or the revision is compacted (410), older than the
/// resource's definition (410) or in the future.
pub fn watch_after(deps: &Deps, after: Revision, target: &Target, options: WatchOptions) -> Result<Watch> {
    check_fields(target, &options.fields)?;
    let now = deps.store.latest();
    let since = served_since(&now, target);
    if after < since {
        let (asked, oldest) = (after, since);
        return Err(gone(Gone::Compacted { asked, oldest }));
    }
    let mut watch = begin(deps, after.max(life_before(&now, target)), target, options)?;
    let is_view = !matches!(watch.target.view_scope, ViewScope::Within | ViewScope::For(_));
    watch.resumed = (is_view && after < now.revision()).then(|| now.revision());
    Ok(watch)
}

fn begin(deps: &Deps, after: Revision, target: &Target, mut options: WatchOptions) -> Result<Watch> {
    if let Cow::Owned(labels) = target.stored_selector(&options.labels) {
        options.labels = labels;
    }
    let target = calls::attach_shared(deps, target).into_owned();
    let cursor = deps.store.watch(target.scope(), after).map_err(gone)?;
    let sighted = Sighted::after_revision(&*deps.store, &target, after).map_err(gone)?;
    Ok(Watch {
        options,
        initial: Initial {
            keys: VecDeque::new(),
            built_in: Vec::new(),
            revision: after,
        },
        unseen: (Vec::new(), cursor.position()),
        sighted: sighted.map(|(sighted, cursor)| (sighted, ChangeBuffer::new(cursor))),
        resumed: None,
        objects: ChangeBuffer::new(cursor),
        target,
    })
}

/// Returns the snapshot at a revision.
fn just_after(deps: &Deps, target: &Target, revision: Revision) -> Result<Snapshot> {
    let state = deps.store.at_revision(revision).map_err(gone)?;
    Ok(state.charged_to(&target.served.meter))
}

/// Returns the last revision before the cluster was created. Changes of an earlier cluster of the
/// same name belong to that cluster.
fn life_before(now: &Pinned, target: &Target) -> Revision {
    let is_first = target.is_across() || target.cluster == ClusterName::root() || target.cluster.is_system();
    let logical = (!is_first).then(|| now.get(&ids::logical_cluster(&target.cluster)));
    let made = logical.flatten().map_or(0, |logical| logical.created.0);
    Revision(made.saturating_sub(1))
}

/// Converts an unavailable revision to the error of Kubernetes.
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
    /// Returns true once the initial state was handed out.
    pub fn is_live(&self) -> bool {
        self.initial.keys.is_empty() && self.initial.built_in.is_empty()
    }

    /// Returns the next events. During the initial state it returns at once, and later it waits.
    /// The result is empty if this watcher sees none of the changes. Cancellation loses no event.
    ///
    /// # Errors
    /// The revision is compacted (410), the past of an object is no longer visible (410), or an
    /// object cannot be converted for a field selector.
    pub async fn next(&mut self, deps: &Deps) -> Result<Vec<Event>> {
        if !self.is_live() {
            return self.initial.next(deps);
        }
        if self.unseen.0.is_empty() {
            let before = self.position();
            self.resumed = self.resumed.filter(|began| before < *began);
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
            let selectors = self.options.selectors();
            let sides: Vec<Entry> = sides
                .filter(|side| selects_metadata(&self.target, selectors, side))
                .collect();
            prefetch(&self.target, sides.iter()).await;
        }
        let changes = std::mem::take(&mut self.unseen.0);
        self.see(deps, &changes)
    }

    /// Refuses events from before the watch began if their object is no longer visible. The client
    /// gets 410 and lists again.
    fn check_past(&self, deps: &Deps, began: Revision, events: &[Event]) -> Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        // A held snapshot would keep history alive for a client that does not read.
        let now = just_after(deps, &self.target, began)?;
        let mut looking = self.target.looking(&deps.catalog, &now);
        let hidden = events
            .iter()
            .find(|event| !looking.still_sees(&event.entry.key, &event.entry.object));
        now.check_reads().map_err(gone)?;
        match hidden {
            Some(event) => {
                let (asked, oldest) = (event.entry.revision, began);
                Err(gone(Gone::Compacted { asked, oldest }))
            }
            None => Ok(()),
        }
    }

    /// Returns changes in the order of their revisions. Changes of bindings are merged with those
    /// of objects, so that a client that resumes after the last event misses none.
    async fn pull(&mut self) -> std::result::Result<Vec<Arc<Change>>, Gone> {
        let Some((_, bindings)) = &mut self.sighted else {
            return self.objects.cursor.next().await;
        };
        let objects = &mut self.objects;
        loop {
            objects.fill()?;
            bindings.fill()?;
            // Both scopes are complete up to this revision, even if one lags behind.
            let until = objects.cursor.reached().min(bindings.cursor.reached());
            let mut changes: Vec<Arc<Change>> = objects.take(until).chain(bindings.take(until)).collect();
            if !changes.is_empty() {
                changes.sort_by_key(|change| change.revision);
                return Ok(changes);
            }
            if objects.held.is_empty() && bindings.held.is_empty() {
                match select(pin!(objects.wait()), pin!(bindings.wait())).await {
                    Either::Left((waited, _)) | Either::Right((waited, _)) => waited?,
                }
            }
        }
    }

    /// Returns the revision up to which all events were handed out, for bookmarks.
    pub fn position(&self) -> Revision {
        if !self.unseen.0.is_empty() {
            return self.unseen.1;
        }
        let objects = self.objects.position();
        let bindings = self.sighted.as_ref().map(|(_, bindings)| bindings.position());
        bindings.map_or(objects, |bindings| bindings.min(objects))
    }

    fn see(&self, deps: &Deps, changes: &[Arc<Change>]) -> Result<Vec<Event>> {
        if matches!(self.target.view_scope, ViewScope::Within) {
            let all = |_: &Object| true;
            let events = changes
                .iter()
                .filter_map(|change| self.see_change(change, all, all).transpose());
            return events.collect();
        }
        // Visibility is decided at the state of the change, because a workspace may be deleted
        // together with its objects.
        let mut events = Vec::new();
        for together in changes.chunk_by(|a, b| a.revision == b.revision) {
            let (revision, first) = (together[0].revision, events.len());
            let before = just_after(deps, &self.target, Revision(revision.0.saturating_sub(1)))?;
            let then = just_after(deps, &self.target, revision)?;
            let mut saw = self.target.looking(&deps.catalog, &before);
            let mut sees = self.target.looking(&deps.catalog, &then);
            for change in together {
                if self.objects.cursor.scope().resources.contains(&change.key.resource) {
                    let (old, new) = (
                        |old: &Object| saw.sees(&change.key, old),
                        |new: &Object| sees.sees(&change.key, new),
                    );
                    events.extend(self.see_change(change, old, new)?);
                } else if let Some((sighted, _)) = &self.sighted {
                    for (kind, entry) in sighted.turned(&self.target, change, &then) {
                        if selects(&self.target, self.options.selectors(), &entry)? {
                            events.push(Event { kind, entry });
                        }
                    }
                }
            }
            // The revision of the change counts, because a new binding may show objects older than
            // the watch.
            before.check_reads().and_then(|()| then.check_reads()).map_err(gone)?;
            // A walk that ended early shows a part: the watch ends, and misses nothing silently.
            self.target.served.meter.check()?;
            if let Some(began) = self.resumed.filter(|began| revision <= *began) {
                self.check_past(deps, began, &events[first..])?;
            }
        }
        Ok(events)
    }

    fn see_change(
        &self,
        change: &Change,
        saw: impl FnOnce(&Object) -> bool,
        sees: impl FnOnce(&Object) -> bool,
    ) -> Result<Option<Event>> {
        let selectors = self.options.selectors();
        let selected = |object: &Arc<Object>, revision: Revision| {
            let entry = entry(&change.key, object, revision);
            let matches = selects(&self.target, selectors, &entry)?;
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

fn entry(key: &ObjectKey, object: &Arc<Object>, revision: Revision) -> Entry {
    Entry {
        key: key.clone(),
        object: object.clone(),
        revision,
        created: revision,
    }
}
