//! Faults that a world can be given, to see that it is noticed.

use insula_api::ResourceId;
use insula_catalog::ids;
use insula_store::{Guard, Txn};
use std::{fmt, str::FromStr};

/// A fault of the store, or a guard that is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plant {
    /// Guards on objects of one kind are not checked.
    NoGuard(&'static str),
    /// Guards on the absence of an object are not checked.
    NoAbsence,
    /// Commits are acknowledged and do not happen, at times.
    AcksEarly,
    /// A transaction is two.
    SplitsTransactions,
    /// A copy misses commits.
    SkipsCommits,
    /// A copy has two commits in the wrong order.
    SwapsCommits,
    /// A copy has the first write of a commit, and the others with the next one.
    TearsCommits,
    /// A copy ignores deletions, at times.
    SkipsDeletions,
    /// A copy that is read anew lacks an object.
    ReloadsLess,
    /// A read that must be current reads the copy as it is.
    ReadsStale,
    /// An answer that is lost is told as a refusal.
    LostIsRefused,
    /// Of etcd: a watch misses events, at times.
    LosesEvents,
    /// Of etcd: a watch tells a revision in two messages.
    SplitsRevisions,
    /// Of etcd: a member answers from its own copy, which may lag.
    AnswersStale,
    /// Of etcd: a transaction happens although a comparison fails, at times.
    IgnoresComparisons,
    /// Of etcd: a transaction is acknowledged and does not happen, at times.
    Forgets,
}

/// Kinds of objects whose guards can be left out, with their resources.
fn guarded() -> Vec<(&'static str, ResourceId)> {
    vec![
        ("binding", ids::apibindings()),
        ("export", ids::apiexports()),
        ("schema", ids::apiresourceschemas()),
        ("rules", ids::apiconversions()),
        ("bundle", ids::bundles()),
        ("workspace", ids::workspaces()),
        ("cluster", ids::logicalclusters()),
    ]
}

impl Plant {
    /// Returns all of a store and its copies.
    pub fn all() -> Vec<Plant> {
        let guards = guarded().into_iter().map(|(name, _)| name);
        let guards = guards.chain(["route", "quota", "object"]).map(Plant::NoGuard);
        let others = [
            Plant::NoAbsence,
            Plant::AcksEarly,
            Plant::SplitsTransactions,
            Plant::SkipsCommits,
            Plant::SwapsCommits,
            Plant::TearsCommits,
            Plant::SkipsDeletions,
            Plant::ReloadsLess,
            Plant::ReadsStale,
            Plant::LostIsRefused,
        ];
        guards.chain(others).collect()
    }

    /// Returns those of etcd.
    pub fn of_etcd() -> Vec<Plant> {
        vec![
            Plant::LosesEvents,
            Plant::SplitsRevisions,
            Plant::AnswersStale,
            Plant::IgnoresComparisons,
            Plant::Forgets,
        ]
    }

    /// Returns a transaction as the faulty store executes it.
    pub fn changed(&self, mut txn: Txn) -> Vec<Txn> {
        match self {
            Plant::NoGuard(name) => {
                txn.guards.retain(|guard| !is_about(name, guard));
                vec![txn]
            }
            Plant::NoAbsence => {
                txn.guards.retain(|guard| !matches!(guard, Guard::Absent(_)));
                vec![txn]
            }
            Plant::SplitsTransactions if txn.writes.len() > 1 => {
                let second = txn.writes.split_off(1);
                let second = Txn {
                    guards: Vec::new(),
                    writes: second,
                };
                vec![txn, second]
            }
            _ => vec![txn],
        }
    }
}

fn is_about(name: &str, guard: &Guard) -> bool {
    let resource = &guard.key().resource;
    match name {
        "route" => *resource == ids::resource_routes(),
        "quota" => *resource.resource == *"resourcequotas",
        "object" => ["widgets", "configmaps"].contains(&&*resource.resource),
        name => guarded().iter().any(|(known, id)| *known == name && id == resource),
    }
}

impl fmt::Display for Plant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Plant::NoGuard(name) => write!(f, "no-guard-{name}"),
            Plant::NoAbsence => f.write_str("no-absence"),
            Plant::AcksEarly => f.write_str("acks-early"),
            Plant::SplitsTransactions => f.write_str("splits-transactions"),
            Plant::SkipsCommits => f.write_str("skips-commits"),
            Plant::SwapsCommits => f.write_str("swaps-commits"),
            Plant::TearsCommits => f.write_str("tears-commits"),
            Plant::SkipsDeletions => f.write_str("skips-deletions"),
            Plant::ReloadsLess => f.write_str("reloads-less"),
            Plant::ReadsStale => f.write_str("reads-stale"),
            Plant::LostIsRefused => f.write_str("lost-is-refused"),
            Plant::LosesEvents => f.write_str("loses-events"),
            Plant::SplitsRevisions => f.write_str("splits-revisions"),
            Plant::AnswersStale => f.write_str("answers-stale"),
            Plant::IgnoresComparisons => f.write_str("ignores-comparisons"),
            Plant::Forgets => f.write_str("forgets"),
        }
    }
}

impl FromStr for Plant {
    type Err = String;

    fn from_str(text: &str) -> Result<Plant, String> {
        let all = [Plant::all(), Plant::of_etcd()].concat();
        let names: Vec<String> = all.iter().map(Plant::to_string).collect();
        let found = all.into_iter().find(|plant| plant.to_string() == text);
        found.ok_or_else(|| format!("one of {}", names.join(", ")))
    }
}
