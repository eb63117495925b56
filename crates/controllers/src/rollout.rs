//! The gate before a new generation of schema and rules: it is tried on every object that is
//! stored, of every tenant, before it serves anybody. Where one could not be read in a served
//! version, the generation before serves on.
//!
//! A dry run goes over the objects in slices, one for each look, so that nothing else has to wait
//! for it; what it found is kept for the tenants that come after: for each of them only its objects
//! that were written since are tried. An object that is written between the last look and the
//! change of the claim, which is the next commit, may still turn out not to fit: then it fails for
//! itself alone when it is read, and can be deleted.

use insula_api::{ClusterName, Condition, Json, ObjectKey, Revision, Scope, Timestamp, condition, set_condition};
use insula_conversion::Stored;
use insula_registry::{Api, locate};
use insula_store::{Entry, Snapshot};
use std::{
    collections::{BTreeMap, HashMap},
    ops::ControlFlow,
    sync::{Arc, Mutex, PoisonError},
};

/// Objects that one look tries.
const SLICE: usize = 1000;
/// Seconds for which a dry run that found nothing holds, and one that was left can be taken up: the
/// tenants of an API change over one after another.
const HOLDS_SECONDS: i64 = 60;
/// Dry runs that are remembered.
const RUNS_MAX: usize = 1024;
/// Workspaces that a message names.
const NAMED_MAX: usize = 5;
/// Seconds until somebody whose change is held back looks again: an object may have been put right.
pub(crate) const AGAIN_SECONDS: u64 = 10;

/// What a dry run says.
#[derive(Debug, Clone, Default)]
pub(crate) enum Verdict {
    /// Nothing is in the way.
    #[default]
    Open,
    /// It is not over yet.
    Trying,
    /// There are objects that could not be read.
    Blocked(Arc<Failure>),
}

/// Objects that a generation does not fit.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Failure {
    counts: BTreeMap<ClusterName, usize>,
    first: Option<(ObjectKey, Revision)>,
    why: String,
    /// For whoever offers the API: workspaces, counts and the first object.
    pub(crate) for_provider: String,
}

enum Run {
    /// Where it is, what it found so far, and when; and the revision that it began at.
    Under(ObjectKey, Box<Failure>, Timestamp, Revision),
    /// When, and the revision at which everything fitted.
    Passed(Timestamp, Revision),
    Failed(Arc<Failure>),
}

/// What a new generation is tried on.
pub(crate) struct Trial<'a> {
    pub(crate) api: &'a Api,
    /// All objects that it may come to serve.
    pub(crate) scope: Scope,
    /// Those of them that it serves with the next commit.
    pub(crate) next: Scope,
}

/// Dry runs by what is tried on what.
#[derive(Default)]
pub(crate) struct Gate(Mutex<HashMap<(u64, Vec<u8>), Run>>);

impl Gate {
    /// Tries an API on objects, or goes on with it.
    pub(crate) fn attempt(&self, trial: &Trial<'_>, snapshot: &Snapshot, now: Timestamp) -> Verdict {
        let Trial { api, scope, next } = trial;
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.len() > RUNS_MAX {
            runs.clear();
        }
        let key = (api.fingerprint, scope.prefix());
        let (after, failure, since) = match runs.remove(&key) {
            Some(Run::Passed(when, at)) if now.since(when) <= HOLDS_SECONDS => {
                let mut failure = Box::default();
                step_since(api, next, snapshot, at, &mut failure);
                let (run, verdict) = outcome(failure, snapshot, when, at);
                runs.insert(key, run);
                return verdict;
            }
            Some(Run::Failed(failure)) if failure.stands(snapshot) => {
                runs.insert(key, Run::Failed(failure.clone()));
                return Verdict::Blocked(failure);
            }
            Some(Run::Under(after, failure, when, since)) if now.since(when) <= HOLDS_SECONDS => {
                (Some(after), failure, since)
            }
            _ => (None, Box::default(), snapshot.revision()),
        };
        let (run, verdict) = match step(api, scope, snapshot, after, failure) {
            (Some(after), failure) => (Run::Under(after, failure, now, since), Verdict::Trying),
            (None, mut failure) => {
                // What was written behind its back, slice after slice.
                if failure.counts.is_empty() && since < snapshot.revision() {
                    step_since(api, scope, snapshot, since, &mut failure);
                }
                outcome(failure, snapshot, now, snapshot.revision())
            }
        };
        runs.insert(key, run);
        verdict
    }
}

fn outcome(mut failure: Box<Failure>, snapshot: &Snapshot, when: Timestamp, at: Revision) -> (Run, Verdict) {
    if failure.counts.is_empty() {
        return (Run::Passed(when, at), Verdict::Open);
    }
    failure.tell(snapshot);
    let failure: Arc<Failure> = failure.into();
    (Run::Failed(failure.clone()), Verdict::Blocked(failure))
}

/// Tries what was written after a revision. Passing over everything else costs next to nothing.
fn step_since(api: &Api, scope: &Scope, snapshot: &Snapshot, since: Revision, failure: &mut Failure) {
    snapshot.for_each(scope, |entry| {
        if entry.revision > since
            && let Err(why) = fits(api, entry)
        {
            failure.add(entry, why);
        }
        ControlFlow::Continue(())
    });
}

/// The next slice: where to go on, if there is more.
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
        if let Err(why) = fits(api, entry) {
            failure.add(entry, why);
        }
        last = Some(entry.key.clone());
        ControlFlow::Continue(())
    });
    (last.filter(|_| tried == SLICE), failure)
}

/// Whether an object reads in every served version, and can be stored again.
fn fits(api: &Api, entry: &Entry) -> Result<(), String> {
    if entry.object.schema() == api.fingerprint {
        return Ok(());
    }
    let value = entry.object.body_value();
    let stored = Stored {
        value: &value,
        version: entry.object.version(),
        residual: entry.object.residual(),
    };
    let versions = api.bundle.served().chain([api.bundle.storage()]);
    for version in versions {
        let seen = api.bundle.get(stored, version, &mut insula_conversion::object_budget());
        seen.map_err(|error| error.to_string())?;
    }
    Ok(())
}

impl Failure {
    fn add(&mut self, entry: &Entry, why: String) {
        if self.first.is_none() {
            self.first = Some((entry.key.clone(), entry.revision));
            self.why = why;
        }
        *self.counts.entry(entry.key.cluster.clone()).or_default() += 1;
    }

    /// Whether it is still so, as far as one look can tell.
    fn stands(&self, snapshot: &Snapshot) -> bool {
        let still = |(key, revision): &(ObjectKey, Revision)| {
            snapshot.get(key).is_some_and(|entry| entry.revision == *revision)
        };
        self.first.as_ref().is_some_and(still)
    }

    fn tell(&mut self, snapshot: &Snapshot) {
        let total: usize = self.counts.values().sum();
        let mut named: Vec<String> = self
            .counts
            .iter()
            .take(NAMED_MAX)
            .map(|(cluster, count)| format!("{}: {count}", locate::path_of(snapshot, cluster)))
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
            format!("{namespace}{} in {}", key.name, locate::path_of(snapshot, &key.cluster))
        });
        self.for_provider = format!(
            "{total} stored objects could not be read ({}), e.g. {place}: {}; what was served before is served on",
            named.join(", "),
            self.why
        );
    }

    /// For a tenant, who learns nothing about others.
    pub(crate) fn for_tenant(&self, tenant: &ClusterName) -> String {
        let own = self.counts.get(tenant).copied().unwrap_or_default();
        let first = self.first.as_ref().filter(|(key, _)| key.cluster == *tenant);
        let what = match (own, first) {
            (0, _) => "stored objects of other workspaces could not be read".to_owned(),
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

/// The first words of a verdict on several resources, if one is against it.
pub(crate) fn against<'a>(verdicts: impl IntoIterator<Item = &'a Verdict>) -> Option<String> {
    verdicts.into_iter().find_map(|verdict| match verdict {
        Verdict::Blocked(failure) => Some(failure.for_provider.clone()),
        Verdict::Open | Verdict::Trying => None,
    })
}

/// Whether something was held back before.
pub(crate) fn is_held(value: &Json) -> bool {
    condition(value, ROLLED_OUT).is_some_and(|said| said["status"] != "True")
}

/// The condition of exports and definitions.
const ROLLED_OUT: &str = "RolledOut";

/// Says that something is held back, or that it no longer is; nothing of what was never held back.
pub(crate) fn show(value: &mut Json, blocked: Option<String>, now: Timestamp) {
    let said = match blocked {
        Some(why) => Condition::fails(ROLLED_OUT, "StoredObjectsNotConvertible", why),
        None if condition(value, ROLLED_OUT).is_some() => Condition::holds(ROLLED_OUT),
        None => return,
    };
    let is_definition = value["kind"] == "CustomResourceDefinition";
    let said = if is_definition { said.severity("") } else { said };
    set_condition(value, &said, now);
}
