//! Watch: a snapshot first if asked for, then a cursor that pulls. Selectors turn changes into what the watcher sees.

use super::read::{check_fields, selects};
use crate::{
    Error, Registry, Result, Target,
    webhook::{learn, looks_inside},
};
use insula_api::{FieldSelector, LabelSelector, Object, ObjectKey, Revision};
use insula_store::{Change, Cursor, Entry, Gone, Snapshot};
use std::{collections::VecDeque, ops::ControlFlow, sync::Arc};

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
    /// Changes that came, and where the cursor stood before: a webhook is being asked what they look like.
    unseen: (Vec<Arc<Change>>, Revision),
}

impl Registry {
    /// Watches from the state of a snapshot on: first every object of it, then what changes after it.
    pub fn watch_with_state(&self, snapshot: &Snapshot, target: Target, options: WatchOptions) -> Result<Watch> {
        check_fields(&target, &options.fields)?;
        let cursor = self.cursor(&target, snapshot.revision())?;
        let (mut initial, mut failed) = (VecDeque::new(), None);
        snapshot.for_each(&target.scope(), |entry| {
            match selects(&target, &options.labels, &options.fields, entry) {
                Ok(true) => initial.push_back(entry.clone()),
                Ok(false) => {}
                Err(error) => {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        if let Some(error) = failed {
            return Err(error);
        }
        Ok(Watch {
            target,
            options,
            initial,
            unseen: (Vec::new(), cursor.position()),
            cursor,
        })
    }

    /// Watches what changes after a revision.
    pub fn watch_after(&self, after: Revision, target: Target, options: WatchOptions) -> Result<Watch> {
        check_fields(&target, &options.fields)?;
        let since = self.served_since(&target);
        if after < since {
            let (asked, oldest) = (after, since);
            return Err(gone(Gone::Compacted { asked, oldest }));
        }
        let cursor = self.cursor(&target, after)?;
        Ok(Watch {
            target,
            options,
            initial: VecDeque::new(),
            unseen: (Vec::new(), cursor.position()),
            cursor,
        })
    }

    /// When the resource's name was claimed in the cluster. What another resource of that name held before is none of its
    /// history; kube-apiserver's, too, begins with the definition.
    fn served_since(&self, target: &Target) -> Revision {
        let claim = target.served.guard.as_ref();
        claim
            .and_then(|(claim, _)| self.store.latest().get(claim))
            .map_or(Revision(0), |claim| claim.created)
    }

    fn cursor(&self, target: &Target, after: Revision) -> Result<Cursor> {
        self.store.watch(target.scope(), after).map_err(gone)
    }
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
    pub async fn next(&mut self) -> Result<Vec<Event>> {
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
            let before = self.cursor.position();
            self.unseen = (self.cursor.next().await.map_err(gone)?, before);
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
        changes
            .iter()
            .filter_map(|change| self.see(change).transpose())
            .collect()
    }

    /// Everything at or before this revision was handed out: a bookmark.
    pub fn position(&self) -> Revision {
        match self.unseen.0.is_empty() {
            true => self.cursor.position(),
            false => self.unseen.1,
        }
    }

    fn see(&self, change: &Change) -> Result<Option<Event>> {
        let seen = |object: &Arc<Object>, revision: Revision| {
            let entry = entry(&change.key, object, revision);
            let WatchOptions { labels, fields } = &self.options;
            let matches = selects(&self.target, labels, fields, &entry)?;
            Ok::<_, Error>(matches.then_some(entry))
        };
        let old = match &change.old {
            Some(old) => seen(&old.object, old.revision)?,
            None => None,
        };
        let new = match &change.new {
            Some(new) => seen(new, change.revision)?,
            None => None,
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
