//! Comparison of all that clients of the stores were told with what etcd executed.

use crate::etcd::model::{State, Version};
use insula_api::{ObjectKey, Revision};
use insula_store::{CommitError, Guard, Txn, Write, slot};
use std::collections::{BTreeMap, BTreeSet};

/// Prefix of all keys of the stores.
pub(crate) const PREFIX: &str = "/insula";

/// A transaction that a client sent. Its number is the mark in each object that it puts.
pub(crate) struct Attempt {
    pub(crate) txn: Txn,
    /// Revisions of etcd when the transaction was handed over, and when its outcome was known.
    pub(crate) window: (Revision, Revision),
    /// Nothing if the server crashed before it told.
    pub(crate) outcome: Option<Result<Revision, CommitError>>,
}

/// An object as a store showed it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shown {
    pub(crate) key: ObjectKey,
    pub(crate) revision: Revision,
    /// The revision of its creation.
    pub(crate) created: Revision,
    pub(crate) mark: u64,
}

/// A snapshot of everything.
pub(crate) struct Seen {
    pub(crate) server: usize,
    pub(crate) revision: Revision,
    /// The latest revision that any client knew of before.
    pub(crate) known: Revision,
    pub(crate) objects: Vec<Shown>,
}

/// Changes that a watch showed, from one revision to another.
#[derive(Default)]
pub(crate) struct Watched {
    pub(crate) server: usize,
    pub(crate) after: Revision,
    pub(crate) upto: Revision,
    /// Each with its mark, which a deletion has not.
    pub(crate) changes: Vec<(Revision, ObjectKey, Option<u64>)>,
}

/// Everything that clients were told.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) seen: Vec<Seen>,
    pub(crate) watched: Vec<Watched>,
    /// The latest revision that was acknowledged.
    pub(crate) known: Revision,
}

/// One write of an object, as etcd executed it. Nothing is a deletion.
type Written = (Revision, Option<u64>);

/// Everything that etcd executed, by object.
pub(crate) struct Executed {
    objects: BTreeMap<ObjectKey, Vec<Written>>,
    /// The revision at which the slots began.
    slotted: Option<Revision>,
}

/// Returns the number that a transaction left in an object of any form.
pub(crate) fn mark_in(value: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(value);
    let (_, mark) = text.split_once("\"mark\":\"")?;
    mark.split_once('"')?.0.parse().ok()
}

fn revision(version: &Version) -> Revision {
    Revision(version.modified.unsigned_abs())
}

impl Executed {
    /// Reads what became of some objects: of each the key in its slot, or the one of the earlier
    /// layout as long as that counts.
    pub(crate) fn read(state: &State, keys: &BTreeSet<ObjectKey>) -> Executed {
        let slotted = state.keys.get(format!("{PREFIX}/slotted").as_bytes());
        let slotted = slotted.and_then(|versions| versions.first()).map(revision);
        let objects = keys.iter().map(|key| {
            let in_slot = [
                format!("{PREFIX}/slots/{:04x}/", slot(&key.cluster)).as_bytes(),
                &*key.encode(),
            ]
            .concat();
            let earlier = [format!("{PREFIX}/objects/").as_bytes(), &*key.encode()].concat();
            let versions = [&in_slot, &earlier].map(|there| state.keys.get(there).into_iter().flatten());
            let revisions: BTreeSet<i64> = versions.into_iter().flatten().map(|version| version.modified).collect();
            let mut written: Vec<Written> = Vec::new();
            for at in revisions {
                let present = |there: &[u8]| state.version(there, at).filter(|version| version.value.is_some());
                let counts = |version: &&Version| slotted.is_none_or(|slotted| revision(version) <= slotted);
                let found = present(&in_slot).or_else(|| present(&earlier).filter(counts));
                let now = match found {
                    Some(version) => (revision(version), version.value.as_deref().and_then(mark_in)),
                    None => (Revision(at.unsigned_abs()), None),
                };
                let is_absent = |last: Option<&Written>| last.is_none_or(|(_, mark)| mark.is_none());
                if written.last() != Some(&now) && !(now.1.is_none() && is_absent(written.last())) {
                    written.push(now);
                }
            }
            (key.clone(), written)
        });
        Executed {
            objects: objects.collect(),
            slotted,
        }
    }

    /// Returns the last write of an object up to a revision, if the object is there.
    fn as_of(&self, key: &ObjectKey, at: Revision) -> Option<(Revision, u64)> {
        let written = self.objects.get(key)?;
        let (revision, mark) = written.iter().rev().find(|(revision, _)| *revision <= at)?;
        Some((*revision, (*mark)?))
    }

    /// Returns the revision at which the object that is there was created. One that moves to its
    /// slot is no new one.
    fn created(&self, key: &ObjectKey, at: Revision) -> Option<Revision> {
        let written = self
            .objects
            .get(key)?
            .iter()
            .rev()
            .skip_while(|(revision, _)| *revision > at);
        written
            .take_while(|(_, mark)| mark.is_some())
            .last()
            .map(|(revision, _)| *revision)
    }

    fn holds(&self, guard: &Guard, at: Revision) -> bool {
        let found = self.as_of(guard.key(), at).map(|(revision, _)| revision);
        match guard {
            Guard::Absent(_) => found.is_none(),
            Guard::At(_, revision) => found == Some(*revision),
            Guard::Exists(_) => found.is_some(),
        }
    }

    fn all_hold(&self, txn: &Txn, at: Revision) -> bool {
        txn.guards.iter().all(|guard| self.holds(guard, at))
    }

    /// Checks that each mark was written at one revision, and moved at most once.
    fn revisions_of_marks(&self) -> Result<BTreeMap<u64, Revision>, String> {
        let mut revisions = BTreeMap::new();
        for (key, written) in &self.objects {
            let mut last = None;
            for (revision, mark) in written {
                let moved = last == Some(*mark) && self.slotted.is_some_and(|slotted| *revision > slotted);
                last = Some(*mark);
                let Some(mark) = mark.filter(|_| !moved) else { continue };
                let first = *revisions.entry(mark).or_insert(*revision);
                if first != *revision {
                    return Err(format!("{mark} was written at {first}, and at {revision} to {key:?}"));
                }
            }
        }
        Ok(revisions)
    }

    /// Returns the changes of all objects in a range of revisions.
    fn changes(&self, after: Revision, upto: Revision) -> Vec<(Revision, ObjectKey, Option<u64>)> {
        let all = self.objects.iter();
        let changes = all.flat_map(|(key, written)| written.iter().map(|(at, mark)| (*at, key.clone(), *mark)));
        let mut changes: Vec<_> = changes.filter(|(at, ..)| *at > after && *at <= upto).collect();
        changes.sort();
        changes
    }
}

impl History {
    /// Returns the keys that any transaction names.
    pub(crate) fn keys(&self) -> BTreeSet<ObjectKey> {
        let writes = self.attempts.iter().flat_map(|attempt| &attempt.txn.writes);
        writes.map(|write| write.key().clone()).collect()
    }

    /// Checks everything that clients were told.
    pub(crate) fn check(&self, executed: &Executed) -> Result<(), String> {
        let revisions = executed.revisions_of_marks()?;
        for (mark, attempt) in self.attempts.iter().enumerate() {
            let happened = revisions.get(&(mark as u64)).copied();
            attempt
                .check(happened, executed)
                .map_err(|why| format!("transaction {mark}: {why}"))?;
        }
        for seen in &self.seen {
            seen.check(executed)?;
        }
        self.watched.iter().try_for_each(|watched| watched.check(executed))
    }
}

impl Attempt {
    fn check(&self, happened: Option<Revision>, executed: &Executed) -> Result<(), String> {
        let puts = self.txn.writes.iter().any(|write| matches!(write, Write::Put(..)));
        if let Some(revision) = happened {
            self.check_whole(revision, executed)?;
        }
        match &self.outcome {
            Some(Ok(revision)) if puts && happened != Some(*revision) => Err(format!(
                "it was acknowledged at {revision}, and happened at {happened:?}"
            )),
            Some(Ok(revision)) if !puts => self.check_deleted(*revision, executed),
            Some(Ok(_) | Err(CommitError::Unknown(_))) | None => Ok(()),
            Some(Err(CommitError::Conflict { .. })) if !self.could_conflict(executed) => {
                Err(format!("no guard failed between {:?}, and it was refused", self.window))
            }
            Some(Err(error)) => match happened {
                Some(revision) => Err(format!("it happened at {revision}, and its client was told: {error}")),
                None => Ok(()),
            },
        }
    }

    /// Checks that all writes happened at one revision, and that the guards held there.
    fn check_whole(&self, at: Revision, executed: &Executed) -> Result<(), String> {
        for write in &self.txn.writes {
            let found = executed.as_of(write.key(), at).map(|(revision, _)| revision);
            let is_right = match write {
                Write::Put(..) => found == Some(at),
                Write::Delete(_) => found.is_none(),
            };
            if !is_right {
                return Err(format!(
                    "it happened in part at {at}: {:?} is of {found:?}",
                    write.key()
                ));
            }
        }
        match executed.all_hold(&self.txn, Revision(at.0 - 1)) {
            true => Ok(()),
            false => Err(format!("it happened at {at}, where a guard does not hold")),
        }
    }

    /// Checks a transaction that only deletes. One that finds nothing takes no revision.
    fn check_deleted(&self, at: Revision, executed: &Executed) -> Result<(), String> {
        let left = self
            .txn
            .writes
            .iter()
            .find(|write| executed.as_of(write.key(), at).is_some());
        if let Some(left) = left {
            return Err(format!(
                "{:?} is there at {at}, and its deletion was acknowledged",
                left.key()
            ));
        }
        let held = [Revision(at.0 - 1), at]
            .into_iter()
            .any(|at| executed.all_hold(&self.txn, at));
        match held {
            true => Ok(()),
            false => Err(format!("it was acknowledged at {at}, where a guard does not hold")),
        }
    }

    fn could_conflict(&self, executed: &Executed) -> bool {
        let (Revision(from), Revision(upto)) = self.window;
        (from..=upto).any(|at| !executed.all_hold(&self.txn, Revision(at)))
    }
}

impl Seen {
    fn check(&self, executed: &Executed) -> Result<(), String> {
        let (server, at) = (self.server, self.revision);
        if at < self.known {
            return Err(format!(
                "server {server} showed {at}, and {} was acknowledged before",
                self.known
            ));
        }
        let keys = executed.objects.keys();
        let expected = keys.filter_map(|key| {
            let (revision, mark) = executed.as_of(key, at)?;
            Some(Shown {
                key: key.clone(),
                revision,
                created: executed.created(key, at)?,
                mark,
            })
        });
        let expected: Vec<Shown> = expected.collect();
        let differs =
            |(shown, expected): (&Shown, &Shown)| (shown != expected).then(|| format!("{shown:?} for {expected:?}"));
        let first = self.objects.iter().zip(&expected).find_map(differs);
        match first {
            Some(first) => Err(format!("server {server} showed at {at} {first}")),
            None if self.objects.len() != expected.len() => Err(format!(
                "server {server} showed {} objects at {at}, and there are {}",
                self.objects.len(),
                expected.len()
            )),
            None => Ok(()),
        }
    }
}

impl Watched {
    fn check(&self, executed: &Executed) -> Result<(), String> {
        let expected = executed.changes(self.after, self.upto);
        let (server, after, upto) = (self.server, self.after, self.upto);
        let begin = || format!("a watch of server {server} from {after} to {upto}");
        if !self.changes.is_sorted_by_key(|(at, ..)| *at) {
            return Err(format!("{} is not in order", begin()));
        }
        let mut changes = self.changes.clone();
        changes.sort();
        let differs = |(shown, expected): (&_, &_)| (shown != expected).then(|| format!("{shown:?} for {expected:?}"));
        match changes.iter().zip(&expected).find_map(differs) {
            Some(first) => Err(format!("{} showed {first}", begin())),
            None if changes.len() != expected.len() => Err(format!(
                "{} showed {} changes of {}",
                begin(),
                changes.len(),
                expected.len()
            )),
            None => Ok(()),
        }
    }
}
