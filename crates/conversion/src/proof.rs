//! Search for a counterexample: objects generated from the schemas, written through one version and
//! edited through others. Each write must convert and keep the laws. Findings are shrunk to a
//! minimal sequence of writes. Values that another version's schema refuses break no law: the
//! search collects one example of every kind of them.
//!
//! The verdict is a function of schemas, rules and [`Search`] alone: counts bound the search, never
//! a clock, so that every server, controller and tool finds the same.
//!
//! Servers call [`prove`] before they serve rules. It first tries each rule whose types leave
//! failure open on its own, with edge values of the fields that it reads, since such an object is
//! the easiest to understand; then it searches sequences of writes.
//!
//! This is no mathematical proof: rules are programs. The search covers the corners in which such
//! programs break (empty, full and partial objects, bounds, other alphabets, duplicates) and
//! reports the number of its cases.

mod edges;
mod edit;
mod finding;
mod fitting;
mod focus;
mod generate;
mod random;
mod rules;
mod shrink;
mod text;

use crate::bundle::{Bundle, LossPolicy};
use crate::error::{Cause, ConvertError};
use crate::laws::{Laws, Observed, Violation};
use crate::object_budget;
use crate::rules::Validation;
use fitting::Misfits;
use focus::Focus;
use generate::Fill;
use insula_api::{FieldError, Json};
use insula_cel::Budget;
use insula_meter::Meter;
use insula_schema::Structural;
use random::Random;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use text::Patterns;

pub use finding::{Counterexample, FINDINGS_SHOWN, Finding, counted};
pub use fitting::Misfit;
pub(crate) use fitting::general;

/// Maximum number of sequences that are tried to make a counterexample smaller.
const SHRINKS_MAX: usize = 2_000;
/// Maximum number of counterexamples that one search reports.
const COUNTEREXAMPLES_MAX: usize = 8;
/// Work of a search by default: a fraction of a second.
const WORK_MAX: u64 = 400_000;
/// Units of a meter that a unit of work takes, about: the work of a large API is five seconds.
const METER_UNITS: u64 = 100;
/// Cost of expressions, in CEL cost units, that counts as the work of one value.
const COST_PER_VALUE: u64 = 100;

/// Extent of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Search {
    /// Seed of the sequence of cases.
    pub seed: u64,
    /// Number of cases; each is a sequence of writes to one object.
    pub cases: u32,
    /// Most writes of one case.
    pub writes: usize,
    /// Most work: no write follows the one that exceeds it. Every write is work for each of its
    /// values to each version and back, and for the cost of its expressions. Small APIs end with
    /// the last case, large ones with the work.
    pub work: u64,
}

impl Search {
    /// Returns the extent of a search over an API: each pair of its versions is searched as in an
    /// API of these two, since every version is written as often, and every write is read in all
    /// others. So the search grows with the versions and not with their pairs. Versions that nobody
    /// can write or read do not count.
    #[must_use]
    pub fn of_every_pair(self, bundle: &Bundle) -> Search {
        let versions = in_use(bundle).max(2);
        // Writes of n versions are n times as many, and each costs n times as much. Two thirds of
        // that keep a large API of six versions within five seconds: a request waits for it.
        let work = ((versions * versions) as u64 * 2 / 3).max(4);
        Search {
            cases: self.cases.saturating_mul(versions as u32) / 2,
            work: self.work.saturating_mul(work) / 4,
            ..self
        }
    }
}

/// Returns the number of versions that are served or stored.
fn in_use(bundle: &Bundle) -> usize {
    let is_hidden = !bundle.served().any(|version| version == bundle.storage());
    bundle.served().count() + usize::from(is_hidden)
}

impl Default for Search {
    fn default() -> Self {
        Search {
            seed: 2026,
            cases: 300,
            writes: 4,
            work: WORK_MAX,
        }
    }
}

/// Result of a search that found no counterexample.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Searched {
    /// Cases that were run.
    pub cases: u32,
    /// Writes that were stored and read in every version.
    pub writes: u64,
    /// Writes refused by a rule whose author marked it `mayFail`.
    pub refused: u64,
    /// Objects that could not be generated, because the schema refused every try.
    pub skipped: u64,
    /// True if the search reached its limit of work before the last case.
    pub stopped: bool,
    /// Values that a version shows and its schema refuses: the smallest example of each kind.
    pub misfits: Vec<Misfit>,
}

/// A write of one object through one version.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// The client's version.
    pub version: String,
    /// The object that the client sends.
    pub object: Json,
}

/// Searches for a reason not to serve an API: with and without rules, for each pair of its
/// versions. A meter pays for it. Once it has ended, the search ends, and its result is no verdict.
///
/// # Errors
/// Returns the findings at the paths of their rules, each with an object that shows it and with
/// advice; [`counted`] shortens them for people. Values that another version's schema refuses are
/// findings under [`Validation::Refuse`] only.
pub fn prove(bundle: &Bundle, how: Search, meter: &Meter) -> Result<Searched, Vec<FieldError>> {
    let refuses = bundle.validation() == Validation::Refuse;
    let is_lawful = bundle.loss_policy() == LossPolicy::Lossless || bundle.has_rules();
    if bundle.versions().count() < 2 || !is_lawful && !refuses {
        return Ok(Searched::default());
    }
    let how = how.of_every_pair(bundle);
    let mut found = finding::withheld(bundle);
    found.extend(finding::hiding(bundle));
    found.extend(rules::failing(bundle, meter));
    let searched = match up_to(bundle, how, COUNTEREXAMPLES_MAX, meter) {
        Ok(searched) if found.is_empty() => searched,
        Ok(_) => return Err(found),
        Err(all) => {
            // A rule that fails on its own object, which is the easiest to understand, fails in
            // sequences as well.
            let first = found.len();
            for error in all.iter().map(|one| one.as_error(bundle)) {
                if !found[..first].iter().any(|known| known.field == error.field) {
                    found.push(error);
                }
            }
            return Err(found);
        }
    };
    if refuses && !searched.misfits.is_empty() {
        return Err(searched.misfits.iter().map(|misfit| misfit.as_error(bundle)).collect());
    }
    Ok(searched)
}

/// Searches for a counterexample.
///
/// # Errors
/// Returns the first counterexample, shrunk.
pub fn search(bundle: &Bundle, how: Search) -> Result<Searched, Box<Counterexample>> {
    up_to(bundle, how, 1, &Meter::unbounded()).map_err(|mut found| Box::new(found.swap_remove(0)))
}

/// Searches for counterexamples: one for each rule that fails, and for each field of a version that
/// breaks a law.
///
/// # Errors
/// Returns the counterexamples, shrunk: lost values before failures, of equals the smallest first.
pub fn search_all(bundle: &Bundle, how: Search) -> Result<Searched, Vec<Counterexample>> {
    up_to(bundle, how, COUNTEREXAMPLES_MAX, &Meter::unbounded())
}

fn up_to(bundle: &Bundle, how: Search, most: usize, meter: &Meter) -> Result<Searched, Vec<Counterexample>> {
    let prover = Prover::new(bundle, how.work, meter);
    let mut random = Random::new(how.seed);
    let mut searched = Searched::default();
    let mut found: Vec<Counterexample> = Vec::new();
    // The kinds of findings as they were found: made smaller, two may become one.
    let mut kinds: Vec<Finding> = Vec::new();
    for case in 0..how.cases {
        if prover.exhausted() {
            searched.stopped = true;
            break;
        }
        let result = prover.case(case, how.writes, random.fork(), &mut searched);
        searched.cases += 1;
        let Err(shown) = result else { continue };
        let (script, finding) = *shown;
        if kinds.iter().any(|known| known.is_of_one_kind(&finding)) {
            continue;
        }
        kinds.push(finding.clone());
        // As much work again makes the finding smaller.
        let (script, finding) = Prover::new(bundle, how.work, meter).smallest(script, finding);
        if found.iter().any(|known| known.finding.is_of_one_kind(&finding)) {
            continue;
        }
        found.push(Counterexample {
            script,
            finding,
            case,
            seed: how.seed,
        });
        if found.len() == most {
            break;
        }
    }
    if !found.is_empty() {
        found.sort_by_key(Counterexample::rank);
        return Err(found);
    }
    searched.misfits = prover.misfits.into_inner().smallest(bundle, how, meter);
    Ok(searched)
}

/// Generates valid objects of a schema: first the corners (minimal, complete), then objects
/// between. The same seed generates the same objects.
pub fn objects(schema: &Structural, (api_version, kind): (&str, &str), seed: u64, count: u32) -> Vec<Json> {
    let (mut random, patterns, meter) = (Random::new(seed), Patterns::default(), Meter::unbounded());
    let api_version = Json::from(api_version);
    let one = |case| {
        let mut random = random.fork();
        let fill = match fill(case, 1, &mut random) {
            Fill::Near => Fill::Some(50),
            other => other,
        };
        generate::object(
            schema,
            (&api_version, kind),
            fill,
            (None, &patterns),
            &mut random,
            &meter,
        )
    };
    (0..count).filter_map(one).collect()
}

struct Prover<'b> {
    bundle: &'b Bundle,
    meter: &'b Meter,
    /// The fields of each served version that rules touch.
    focus: Vec<(&'b str, Focus)>,
    patterns: Patterns,
    work: Cell<u64>,
    work_max: u64,
    misfits: RefCell<Misfits>,
}

/// Outcome of one write.
enum WriteOutcome<'b> {
    /// It is stored, and every served version shows it.
    Stored(Observed<'b>),
    /// A rule marked `mayFail` refused it.
    Refused,
}

impl<'b> Prover<'b> {
    fn new(bundle: &'b Bundle, work_max: u64, meter: &'b Meter) -> Self {
        let focus = |version| (version, Focus::for_version(bundle, version));
        Prover {
            bundle,
            meter,
            focus: bundle.served().map(focus).collect(),
            patterns: Patterns::default(),
            work: Cell::new(0),
            work_max,
            misfits: RefCell::default(),
        }
    }

    fn exhausted(&self) -> bool {
        self.work.get() > self.work_max || self.meter.check().is_err()
    }

    /// Counts the work of one write, and pays for it: the laws convert its object to each version
    /// and back.
    fn count(&self, object: &Json, budget: &Budget) {
        let versions = in_use(self.bundle) as u64;
        let one = (values(object) + budget.used() / COST_PER_VALUE).saturating_mul(2 * versions);
        self.work.set(self.work.get().saturating_add(one));
        // A search that may go no further is exhausted.
        let _ = self.meter.spend(one.saturating_mul(METER_UNITS));
    }

    fn case(
        &self,
        case: u32,
        writes: usize,
        mut random: Random,
        searched: &mut Searched,
    ) -> Result<(), Box<(Vec<Write>, Finding)>> {
        let versions: Vec<&str> = self.bundle.served().collect();
        let mut script: Vec<Write> = Vec::new();
        let mut stored: Option<Observed<'b>> = None;
        for turn in 0..=random.below(writes) {
            let at = (case as usize + if turn == 0 { 0 } else { random.below(versions.len()) }) % versions.len().max(1);
            let Some(version) = versions.get(at).filter(|_| !self.exhausted()) else {
                break;
            };
            let Some(object) = self.next(
                version,
                fill(case, versions.len(), &mut random),
                stored.as_ref(),
                &mut random,
            ) else {
                searched.skipped += 1;
                continue;
            };
            script.push(Write {
                version: (*version).to_owned(),
                object,
            });
            match self.write(script.last().unwrap_or(&script[0]), stored.as_ref()) {
                Ok(WriteOutcome::Stored(after)) => {
                    searched.writes += 1;
                    self.misfits.borrow_mut().look(self.bundle, &script, &after, self.meter);
                    stored = Some(after);
                }
                Ok(WriteOutcome::Refused) => {
                    searched.refused += 1;
                    script.pop();
                }
                Err(finding) => return Err(Box::new((script, finding))),
            }
        }
        Ok(())
    }

    /// Generates the next client's object: a fresh one, or the current one edited with parts of a
    /// fresh one.
    fn next(&self, version: &str, fill: Fill, stored: Option<&Observed<'b>>, random: &mut Random) -> Option<Json> {
        let schema = self.bundle.schema(version)?;
        let focus = self.focus.iter().find(|(name, _)| *name == version);
        let focus = focus.map(|(_, focus)| focus);
        let api_version = self.bundle.api_version_of(version)?;
        let fresh = generate::object(
            schema,
            (&api_version, self.bundle.kind()),
            fill,
            (focus, &self.patterns),
            random,
            self.meter,
        )?;
        let Some(stored) = stored else { return Some(fresh) };
        let shown = stored.view(version).ok()?;
        // What a version shows may be refused by its own schema, and so may an edit of it.
        Some(generate::edited(edit::mix(shown, &fresh, random), shown, schema, self.meter).unwrap_or(fresh))
    }

    fn write(&self, write: &Write, before: Option<&Observed<'b>>) -> Result<WriteOutcome<'b>, Finding> {
        let old = before.map(|before| before.to_store().stored(self.bundle.storage()));
        let mut budget = object_budget(self.meter);
        let after = self.bundle.put(&write.object, &write.version, old, &mut budget);
        self.count(&write.object, &budget);
        let after = match after {
            Ok(after) => Observed::new(self.bundle, Cow::Owned(after), self.meter),
            Err(error) if self.may_fail(&error) => return Ok(WriteOutcome::Refused),
            Err(error) => return Err(Finding::Fails(error)),
        };
        for version in self.bundle.served() {
            after.view(version).map_err(Finding::Fails)?;
        }
        self.check(write, before, &after).map_err(Finding::Breaks)?;
        Ok(WriteOutcome::Stored(after))
    }

    /// Checks the laws after a write.
    fn check(&self, write: &Write, before: Option<&Observed<'b>>, after: &Observed<'b>) -> Result<(), Violation> {
        let (laws, from) = (Laws::new(self.bundle, self.meter), &*write.version);
        laws.put_get(&write.object, from, after)?;
        laws.get_put(after)?;
        laws.carried(after)?;
        laws.metadata(after)?;
        for version in self.bundle.served() {
            laws.write_back(version, after)?;
        }
        self.check_status(write, before, after)?;
        let Some(before) = before else { return Ok(()) };
        laws.non_interference(from, before, after)?;
        laws.later_edit_wins(from, before, after)?;
        laws.identity(from, before, after)
    }

    /// Checks a write of the status alone, through the versions in turn: the status of before the
    /// write, or none. Every write is followed by one where there are two versions; of more
    /// versions a part, since it is read in all of them.
    fn check_status(
        &self,
        write: &Write,
        before: Option<&Observed<'b>>,
        after: &Observed<'b>,
    ) -> Result<(), Violation> {
        let versions = self.focus.len();
        let turn = values(&write.object) as usize % (versions * (versions / 2)).max(1);
        let Some((version, _)) = self.focus.get(turn) else {
            return Ok(());
        };
        // Law 5 covers versions that cannot be read.
        let status = |stored: &Observed<'b>| Some(stored.view(version).ok()?.get("status")?.clone());
        let (was, is) = (before.and_then(status), status(after));
        let other = was.filter(|was| Some(was) != is.as_ref());
        Laws::new(self.bundle, self.meter).status(version, after, other.as_ref())
    }

    /// Returns true if a rule failed whose author marked it `mayFail`.
    fn may_fail(&self, error: &ConvertError) -> bool {
        let rule = error.rule.as_ref();
        let facts = rule.and_then(|rule| self.bundle.converter(&error.from, &error.to)?.facts.get(rule.index));
        !matches!(error.cause, Cause::Budget(_)) && facts.is_some_and(|facts| facts.may_fail)
    }

    /// Shrinks a sequence of writes that ends in a similar finding.
    fn smallest(&self, mut script: Vec<Write>, mut finding: Finding) -> (Vec<Write>, Finding) {
        let mut tries = 0;
        loop {
            let smaller = shrink::smaller(&script).find_map(|candidate| {
                tries += 1;
                let done = tries > SHRINKS_MAX || self.exhausted();
                let found = self
                    .replay(candidate)
                    .filter(|(_, found)| !done && found.is_like(&finding));
                (done || found.is_some()).then_some(found)
            });
            match smaller {
                Some(Some(smaller)) => (script, finding) = smaller,
                // The search ends, or nothing is smaller.
                _ => return (script, finding),
            }
        }
    }

    /// Replays a sequence; `None` if one of its objects is invalid or it finds nothing.
    fn replay(&self, script: Vec<Write>) -> Option<(Vec<Write>, Finding)> {
        let mut stored: Option<Observed<'b>> = None;
        let mut result = Vec::new();
        for write in script {
            self.work.set(self.work.get().saturating_add(values(&write.object)));
            let object = generate::normal(write.object.clone(), self.bundle.schema(&write.version)?, self.meter)?;
            result.push(Write { object, ..write });
            match self.write(result.last()?, stored.as_ref()) {
                Ok(WriteOutcome::Stored(after)) => stored = Some(after),
                Ok(WriteOutcome::Refused) => {}
                Err(finding) => return Some((result, finding)),
            }
        }
        None
    }
}

/// Returns the number of values in an object.
fn values(json: &Json) -> u64 {
    1 + match json {
        Json::Object(map) => map.values().map(values).sum(),
        Json::Array(items) => items.iter().map(values).sum(),
        _ => 0,
    }
}

/// Returns the fill level of a case: first minimal and complete objects of every version, and
/// objects near the rules, then random ones.
fn fill(case: u32, versions: usize, random: &mut Random) -> Fill {
    match case as usize / versions.max(1) {
        0 => Fill::Required,
        1 => Fill::Full,
        2 => Fill::Near,
        _ if random.chance(30) => Fill::Near,
        _ => Fill::Some(*random.pick(&[15, 40, 70, 95]).unwrap_or(&50)),
    }
}
