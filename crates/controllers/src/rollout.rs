//! Rollout gate: a dry run of a new generation of schema and rules on the stored objects of a
//! tenant before the generation serves that tenant, or on those of all tenants where the export
//! wants one outcome for all. While one object could not be read in a served version, the previous
//! generation stays in service.
//!
//! A dry run proceeds in slices of [`SLICE`] objects, one slice a reconciliation, so that other
//! keys are not delayed. Its result is kept for the tenants that follow: for each of them the gate
//! tries only the objects that were written since. An object that is written between the last slice
//! and the commit that changes the route may still not fit. Then reads of that one object fail, and
//! it can be deleted.
//!
//! A definition without rules is tried in the same slices, for what its new versions do not show.

use insula_access::WorkspaceNames;
use insula_admission::publication::NewVersions;
use insula_api::{ClusterName, Condition, Json, ObjectKey, Revision, Scope, Timestamp, condition, set_condition};
use insula_auth::UserInfo;
use insula_catalog::Api;
use insula_meter::Meter;
use insula_store::{Entry, Snapshot};
use std::{
    collections::{BTreeMap, HashMap},
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Objects in a slice.
const SLICE: usize = 1000;
/// Seconds for which a dry run without failures is valid, and for which an unfinished one can be
/// continued: the tenants of an API change over one after another.
const VALID_SECONDS: i64 = 60;
/// Dry runs that are remembered.
const RUNS_MAX: usize = 1024;
/// Workspaces that a message names.
const NAMED_MAX: usize = 5;
/// Seconds until a blocked change is tried again: an object may have been corrected.
pub(crate) const AGAIN_SECONDS: u64 = 10;

/// Result of a dry run.
#[derive(Debug, Clone, Default)]
pub(crate) enum Verdict {
    /// All objects fit, or there is nothing to try.
    #[default]
    Open,
    /// The dry run is not finished.
    Trying,
    /// Some objects could not be read.
    Blocked(Arc<Failure>),
}

/// Objects that a generation does not fit.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Failure {
    counts: BTreeMap<ClusterName, usize>,
    first: Option<(ObjectKey, Revision)>,
    why: String,
    /// End of the verdict, where more than the first object decides.
    until: Option<Timestamp>,
    /// Message for the provider of the API: workspaces, counts and the first object.
    pub(crate) provider_message: String,
}

/// State of a dry run.
enum Run {
    /// Unfinished: the last object tried, the failures so far, the time of the last slice, and the
    /// revision at the beginning.
    Unfinished(ObjectKey, Box<Failure>, Timestamp, Revision),
    /// Unfinished, for the new versions of a definition: the last object examined, what was found,
    /// and the time of the last slice.
    Examining(ObjectKey, Box<NewVersions>, Timestamp),
    /// Finished without a failure: the time, and the revision at which everything fitted.
    Passed(Timestamp, Revision),
    /// Finished with failures.
    Failed(Arc<Failure>),
}

/// A new generation, and the objects that it is tried on.
pub(crate) struct Trial<'a> {
    pub(crate) api: &'a Api,
    /// All objects that it may come to serve.
    pub(crate) scope: Scope,
    /// Those of them that it serves with the next commit.
    pub(crate) next: Scope,
}

/// Fingerprint of the generation, and prefix of the objects.
type RunKey = (u64, Vec<u8>);

/// Dry runs of one reconciler.
#[derive(Default)]
pub(crate) struct Gate(Mutex<HashMap<RunKey, Run>>);

impl Gate {
    /// Begins or continues a dry run, by one slice.
    pub(crate) fn attempt(&self, trial: &Trial<'_>, snapshot: &Snapshot, now: Timestamp) -> Verdict {
        let key = (trial.api.fingerprint, trial.scope.prefix());
        self.resume(key, |known| advance(trial, snapshot, now, known))
    }

    /// Begins or continues, by one slice, to look for what new versions of a definition do not show
    /// of its objects. `generation` names both states of it and what is accepted.
    pub(crate) fn examine(
        &self,
        (generation, scope): (u64, &Scope),
        begin: impl FnOnce() -> Option<NewVersions>,
        snapshot: &Snapshot,
        now: Timestamp,
    ) -> Verdict {
        let examined = |known| match known {
            Some(Run::Failed(failure)) if failure.stands(snapshot) && failure.is_valid(now) => {
                (Run::Failed(failure.clone()), Verdict::Blocked(failure))
            }
            Some(Run::Examining(after, versions, when)) if now.since(when) <= VALID_SECONDS => {
                examine((scope, snapshot), now, (Some(after), versions))
            }
            // One that passed passes at once: its versions are served then.
            _ => match begin() {
                Some(versions) => examine((scope, snapshot), now, (None, versions.into())),
                None => (Run::Passed(now, snapshot.revision()), Verdict::Open),
            },
        };
        self.resume((generation, scope.prefix()), examined)
    }

    /// Takes a dry run out, lets `advance` continue it, and puts it back. The gate is not locked
    /// meanwhile: a slice is long, and the runs of other resources are independent of it.
    fn resume(&self, key: RunKey, advance: impl FnOnce(Option<Run>) -> (Run, Verdict)) -> Verdict {
        let known = self.runs().remove(&key);
        let (run, verdict) = advance(known);
        let mut runs = self.runs();
        if runs.len() > RUNS_MAX {
            runs.clear();
        }
        match (runs.get(&key), &run) {
            // Another reconciliation began the same dry run meanwhile, and is ahead.
            (Some(Run::Passed(..) | Run::Failed(_)), Run::Unfinished(..) | Run::Examining(..)) => {}
            (Some(Run::Unfinished(ahead, ..)), Run::Unfinished(after, ..)) if ahead > after => {}
            (Some(Run::Examining(ahead, ..)), Run::Examining(after, ..)) if ahead > after => {}
            _ => drop(runs.insert(key, run)),
        }
        verdict
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<RunKey, Run>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Continues a dry run from its known state, or begins a new one.
fn advance(trial: &Trial<'_>, snapshot: &Snapshot, now: Timestamp, known: Option<Run>) -> (Run, Verdict) {
    let Trial { api, scope, next } = trial;
    let (after, failure, since) = match known {
        Some(Run::Passed(when, at)) if now.since(when) <= VALID_SECONDS => {
            let mut failure = Box::default();
            step_since(api, next, snapshot, at, &mut failure);
            return outcome(failure, when, at);
        }
        Some(Run::Failed(failure)) if failure.stands(snapshot) => {
            return (Run::Failed(failure.clone()), Verdict::Blocked(failure));
        }
        Some(Run::Unfinished(after, failure, when, since)) if now.since(when) <= VALID_SECONDS => {
            (Some(after), failure, since)
        }
        _ => (None, Box::default(), snapshot.revision()),
    };
    match step(api, scope, snapshot, after, failure) {
        (Some(after), failure) => (Run::Unfinished(after, failure, now, since), Verdict::Trying),
        (None, mut failure) => {
            // Objects that were written into slices that had been tried already.
            if failure.counts.is_empty() && since < snapshot.revision() {
                step_since(api, scope, snapshot, since, &mut failure);
            }
            outcome(failure, now, snapshot.revision())
        }
    }
}

/// Examines the next slice of a definition's objects.
fn examine(
    (scope, snapshot): (&Scope, &Snapshot),
    now: Timestamp,
    (after, mut versions): (Option<ObjectKey>, Box<NewVersions>),
) -> (Run, Verdict) {
    // The names are those of the definition's own workspace.
    let names = WorkspaceNames::new(snapshot, &UserInfo::default());
    if let Some(last) = versions.examine_slice((&names, snapshot), scope, after.as_ref()) {
        return (Run::Examining(last, versions, now), Verdict::Trying);
    }
    let Some(effect) = versions.open() else {
        return (Run::Passed(now, snapshot.revision()), Verdict::Open);
    };
    let failure = Arc::new(Failure {
        counts: BTreeMap::new(),
        first: versions.first().cloned(),
        why: effect.to_string(),
        // Another object can take the number of them below the one that is accepted.
        until: versions.is_counted().then_some(Timestamp(now.0 + VALID_SECONDS)),
        provider_message: format!("{}: {effect}", effect.waits()),
    });
    (Run::Failed(failure.clone()), Verdict::Blocked(failure))
}

fn outcome(mut failure: Box<Failure>, when: Timestamp, at: Revision) -> (Run, Verdict) {
    if failure.counts.is_empty() {
        return (Run::Passed(when, at), Verdict::Open);
    }
    failure.write_message();
    let failure: Arc<Failure> = failure.into();
    (Run::Failed(failure.clone()), Verdict::Blocked(failure))
}

/// Tries the objects that were written after a revision. Skipping the others is cheap.
fn step_since(api: &Api, scope: &Scope, snapshot: &Snapshot, since: Revision, failure: &mut Failure) {
    snapshot.for_each(scope, |entry| {
        if entry.revision > since
            && let Err(why) = api.reads(&entry.object, &Meter::unbounded())
        {
            failure.add(entry, why.to_string());
        }
        ControlFlow::Continue(())
    });
}

/// Tries the next slice. Returns the last object tried if there are more.
fn step(
    api: &Api,
    scope: &Scope,
    snapshot: &Snapshot,
    after: Option<ObjectKey>,
    mut failure: Box<Failure>,
) -> (Option<ObjectKey>, Box<Failure>) {
    let (mut tried, mut last) = (0, None);
    snapshot.for_each_after(scope, after.as_ref(), |entry| {
        if tried == SLICE {
            return ControlFlow::Break(());
        }
        tried += 1;
        if let Err(why) = api.reads(&entry.object, &Meter::unbounded()) {
            failure.add(entry, why.to_string());
        }
        last = Some(entry.key.clone());
        ControlFlow::Continue(())
    });
    (last.filter(|_| tried == SLICE), failure)
}

impl Failure {
    fn add(&mut self, entry: &Entry, why: String) {
        if self.first.is_none() {
            self.first = Some((entry.key.clone(), entry.revision));
            self.why = why;
        }
        *self.counts.entry(entry.key.cluster.clone()).or_default() += 1;
    }

    /// Returns true while the first object that failed is unchanged.
    fn stands(&self, snapshot: &Snapshot) -> bool {
        let still = |(key, revision): &(ObjectKey, Revision)| {
            snapshot.get(key).is_some_and(|entry| entry.revision == *revision)
        };
        self.first.as_ref().is_some_and(still)
    }

    /// Returns true before the end of the verdict.
    fn is_valid(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| until.since(now) > 0)
    }

    /// Writes the message for the provider, who may not enter the workspaces of tenants: it names
    /// their logical clusters.
    fn write_message(&mut self) {
        let total: usize = self.counts.values().sum();
        let mut named: Vec<String> = self
            .counts
            .iter()
            .take(NAMED_MAX)
            .map(|(cluster, count)| format!("{cluster}: {count}"))
            .collect();
        if self.counts.len() > NAMED_MAX {
            named.push("…".to_owned());
        }
        let first = self.first.as_ref().map(|(key, _)| key);
        let place = first.map_or(String::new(), |key| {
            let namespace = if key.namespace.is_empty() {
                String::new()
            } else {
                format!("{}/", key.namespace)
            };
            format!("{namespace}{} in {}", key.name, key.cluster)
        });
        self.provider_message = format!(
            "{total} stored objects could not be read ({}), e.g. {place}: {}; what was served before is served on",
            named.join(", "),
            self.why
        );
    }

    /// Returns the message for a tenant, without the names of other tenants.
    pub(crate) fn tenant_message(&self, tenant: &ClusterName) -> String {
        let own = self.counts.get(tenant).copied().unwrap_or_default();
        let first = self.first.as_ref().filter(|(key, _)| key.cluster == *tenant);
        let what = match (own, first) {
            (0, _) => OF_OTHERS.to_owned(),
            (own, None) => format!("{own} stored objects of this workspace could not be read"),
            (own, Some((key, _))) => {
                format!(
                    "{own} stored objects of this workspace could not be read, e.g. {}: {}",
                    key.name, self.why
                )
            }
        };
        format!("{what}; what was served before is served on")
    }
}

/// Message for a tenant whose own objects do not hold the rollout. Its end is told of every tenant.
pub(crate) const OF_OTHERS: &str = "stored objects of other workspaces could not be read";

/// Why what was served before is served on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hold {
    /// Reason of the condition.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Hold {
    /// Returns the hold for stored objects that could not be read.
    pub(crate) fn of_objects(message: String) -> Self {
        Hold {
            reason: "StoredObjectsNotConvertible",
            message,
        }
    }
}

/// Returns the provider's message of the first verdict that blocks.
pub(crate) fn blocked_message<'a>(verdicts: impl IntoIterator<Item = &'a Verdict>) -> Option<String> {
    verdicts.into_iter().find_map(|verdict| match verdict {
        Verdict::Blocked(failure) => Some(failure.provider_message.clone()),
        Verdict::Open | Verdict::Trying => None,
    })
}

/// Returns true for an object whose last rollout was blocked.
pub(crate) fn is_blocked(value: &Json) -> bool {
    condition(value, ROLLED_OUT).is_some_and(|condition| condition["status"] != "True")
}

/// Condition of exports and definitions; only on those whose rollout was blocked once, and on
/// exports that say how to roll out: kcp's have no such condition.
const ROLLED_OUT: &str = "RolledOut";

/// Writes the condition `RolledOut`: false while held, true afterwards, absent if it never was.
pub(crate) fn set_rolled_out(value: &mut Json, hold: Option<Hold>, now: Timestamp) {
    if hold.is_some() || has_rolled_out(value) {
        show_rolled_out(value, hold, now);
    }
}

/// Returns true for an object that has the condition `RolledOut`.
pub(crate) fn has_rolled_out(value: &Json) -> bool {
    condition(value, ROLLED_OUT).is_some()
}

/// Writes the condition `RolledOut`: false while something holds the rollout, true when it is
/// complete.
pub(crate) fn show_rolled_out(value: &mut Json, hold: Option<Hold>, now: Timestamp) {
    let outcome = match hold {
        Some(hold) => Condition::fails(ROLLED_OUT, hold.reason, hold.message),
        None => Condition::holds(ROLLED_OUT),
    };
    let is_definition = value["kind"] == "CustomResourceDefinition";
    let outcome = if is_definition { outcome.severity("") } else { outcome };
    let outcome = outcome.observed(value);
    set_condition(value, &outcome, now);
}

#[cfg(test)]
mod tests {
    use super::{Gate, Run, Timestamp, Verdict};
    use insula_api::{ClusterName, ObjectKey, ResourceId, Revision};

    fn after(name: &str) -> Run {
        let key = ObjectKey::cluster_scoped(ResourceId::local("g", "r"), ClusterName::root(), name);
        Run::Unfinished(key, Box::default(), Timestamp(0), Revision(1))
    }

    #[test]
    fn a_dry_run_locks_nobody_out() {
        let gate = Gate::default();
        gate.resume((1, Vec::new()), |_| {
            assert!(gate.0.try_lock().is_ok(), "the gate is free while a slice is tried");
            gate.resume((2, Vec::new()), |_| (after("a"), Verdict::Trying));
            (after("a"), Verdict::Trying)
        });
        assert_eq!(gate.runs().len(), 2);
    }

    #[test]
    fn of_two_equal_dry_runs_the_one_ahead_is_kept() {
        let gate = Gate::default();
        let key = || (1, Vec::new());
        gate.resume(key(), |_| {
            gate.resume(key(), |_| (after("b"), Verdict::Trying));
            (after("a"), Verdict::Trying)
        });
        assert!(matches!(gate.runs().get(&key()), Some(Run::Unfinished(last, ..)) if &*last.name == "b"));
        gate.resume(key(), |known| {
            assert!(
                matches!(known, Some(Run::Unfinished(..))),
                "the next slice continues it"
            );
            gate.resume(key(), |_| (Run::Passed(Timestamp(0), Revision(2)), Verdict::Open));
            (after("c"), Verdict::Trying)
        });
        assert!(matches!(gate.runs().get(&key()), Some(Run::Passed(..))));
    }
}
