//! Checks generated APIs over their releases.

use super::api_model::{Api, name};
use super::apis::Dice;
use super::values::{Editor, Values, read, visible};
use super::{bundle, object};
use insula_conversion::{Bundle, ToStore, laws, unmetered_budget};
use serde_json::{Value as Json, json};
use std::fmt::Write as _;

/// Releases of an API, and writes in each.
const RELEASES: usize = 4;
const WRITES: usize = 4;

/// Histories that are tried to shorten one.
const ATTEMPTS: usize = 4_000;

/// The extent of a check.
#[derive(Debug, Default)]
pub struct Held {
    pub releases: u64,
    pub writes: u64,
    pub reads: u64,
}

/// Checks APIs from a seed.
///
/// # Errors
/// Returns the shortest history that shows something wrong.
pub fn hold(seed: u64, apis: u64) -> Result<Held, String> {
    let mut held = Held::default();
    let mut failed: Vec<(u64, Failure)> = Vec::new();
    for number in 0..apis {
        let of = seed.wrapping_mul(1_000_003).wrapping_add(number);
        if let Err(failure) = History::new(Dice::new(of)).check_all(&mut held) {
            failed.push((number, failure));
        }
    }
    let numbers: Vec<u64> = failed.iter().map(|(number, _)| *number).collect();
    match failed.into_iter().min_by_key(|(_, failure)| failure.log.len()) {
        Some((number, failure)) => Err(format!(
            "seed {seed}: {} of {apis} fail, {numbers:?}; number {number}, shortened: {}",
            numbers.len(),
            failure.shortened()
        )),
        None => Ok(held),
    }
}

/// Checks one API from a seed.
///
/// # Errors
/// Returns its history, shortened.
pub fn hold_one(seed: u64, number: u64) -> Result<Held, String> {
    let dice = Dice::new(seed.wrapping_mul(1_000_003).wrapping_add(number));
    let mut held = Held::default();
    let checked = History::new(dice).check_all(&mut held);
    checked.map_err(|failure| failure.shortened()).map(|()| held)
}

/// A history that shows something wrong.
struct Failure {
    why: String,
    log: String,
    draws: Vec<usize>,
}

impl Failure {
    fn from_draws(draws: Vec<usize>) -> Option<Failure> {
        History::new(Dice::again(draws)).check_all(&mut Held::default()).err()
    }

    /// Returns the kind of the failure: its words that name no version.
    fn kind(&self) -> Option<&str> {
        self.why.split([' ', ':']).find(|word| !word.starts_with('v'))
    }

    /// Returns a short history with a failure of the kind: made from the same draws, without some
    /// and with smaller ones.
    fn shortened(mut self) -> String {
        let mut attempts = ATTEMPTS;
        loop {
            let before = self.log.len();
            for size in [64, 16, 8, 4, 3, 2, 1] {
                let mut at = self.draws.len();
                while at > 0 && attempts > 0 {
                    attempts -= 1;
                    at = at.saturating_sub(size).min(self.draws.len());
                    let end = (at + size).min(self.draws.len());
                    let mut without = self.draws.clone();
                    without.drain(at..end);
                    let mut less = self.draws.clone();
                    less[at..end].iter_mut().for_each(|draw| *draw = 0);
                    let _ = self.take(without) || self.take(less);
                }
            }
            if attempts == 0 || self.log.len() == before {
                return format!("{}\n{}", self.why, self.log);
            }
        }
    }

    fn take(&mut self, draws: Vec<usize>) -> bool {
        let found = Failure::from_draws(draws).filter(|found| found.kind() == self.kind());
        let size = |failure: &Failure| (failure.log.len(), failure.draws.iter().sum::<usize>());
        match found.filter(|found| size(found) < size(self)) {
            Some(shorter) => *self = shorter,
            None => return false,
        }
        true
    }
}

/// An object over the releases of an API.
struct History {
    dice: Dice,
    api: Api,
    next: u64,
    all: Values,
    stored: Option<(ToStore, String)>,
    log: String,
}

impl History {
    fn new(mut dice: Dice) -> History {
        dice.below(2);
        let api = Api::new(&mut dice);
        History {
            dice,
            api,
            next: 0,
            all: Values::new(),
            stored: None,
            log: String::new(),
        }
    }

    fn check_all(mut self, held: &mut Held) -> Result<(), Failure> {
        self.run(held).map_err(|why| Failure {
            why,
            log: std::mem::take(&mut self.log),
            draws: std::mem::take(&mut self.dice.drawn),
        })
    }

    fn run(&mut self, held: &mut Held) -> Result<(), String> {
        for release in 0..RELEASES {
            if release > 0 {
                self.api.advance(&mut self.dice);
            }
            let doc = self.api.doc();
            let _ = writeln!(self.log, "release {doc}");
            let bundle = bundle(&doc).map_err(|errors| format!("does not compile: {errors:#?}"))?;
            held.releases += 1;
            self.check(&bundle, held)?;
            for _ in 0..1 + self.dice.below(WRITES) {
                self.write(&bundle, held)?;
                self.check(&bundle, held)?;
            }
        }
        Ok(())
    }

    fn read(&self, bundle: &Bundle, version: usize) -> Result<Option<Json>, String> {
        let Some((stored, storage)) = &self.stored else {
            return Ok(None);
        };
        let shown = bundle.get(stored.stored(storage), &name(version), &mut unmetered_budget());
        shown.map(Some).map_err(|error| error.to_string())
    }

    /// Compares what every version shows with the model.
    fn check(&self, bundle: &Bundle, held: &mut Held) -> Result<(), String> {
        for version in self.served() {
            let Some(shown) = self.read(bundle, version)? else {
                continue;
            };
            held.reads += 1;
            let view = self.api.view(version);
            let got = read(&self.api.fields, &view, &shown["spec"]);
            let want = visible(&self.api.fields, &view, &self.all);
            if got != want {
                let version = name(version);
                return Err(format!("{version} shows {shown}\n got {got:?}\nwant {want:?}"));
            }
        }
        Ok(())
    }

    fn served(&self) -> Vec<usize> {
        let release = &self.api.release;
        let served = |version: &usize| release.versions[*version] && release.served[*version];
        (0..self.api.full.len()).filter(served).collect()
    }

    fn write(&mut self, bundle: &Bundle, held: &mut Held) -> Result<(), String> {
        let served = self.served();
        if served.is_empty() {
            return Ok(());
        }
        let version = served[self.dice.below(served.len())];
        let (view, from) = (self.api.view(version), name(version));
        let shown = self.read(bundle, version)?;
        let is_new = shown.is_none();
        let mut x = shown.unwrap_or_else(|| object(&from, &json!({"spec": {}})));
        if x.get("spec").is_none() {
            x["spec"] = json!({});
        }
        let mut editor = Editor {
            dice: &mut self.dice,
            next: &mut self.next,
        };
        let edits = if is_new { 12 } else { 1 };
        for _ in 0..edits {
            editor.edit((&self.api.fields, 0), &view, &mut x["spec"], &mut self.all);
        }
        let _ = writeln!(self.log, "{from} writes {}", x["spec"]);
        insula_schema::default(&mut x, bundle.schema(&from).unwrap());
        let old = self.stored.as_ref().map(|(stored, storage)| stored.stored(storage));
        let after = bundle
            .put(&x, &from, old, &mut unmetered_budget())
            .map_err(|e| e.to_string())?;
        let broken = |violation: laws::Violation| violation.to_string();
        laws::put_get(bundle, &x, &from, &after).map_err(broken)?;
        laws::get_put(bundle, &after).map_err(broken)?;
        laws::carried(bundle, &after).map_err(broken)?;
        let residual = after
            .residual
            .as_deref()
            .map(String::from_utf8_lossy)
            .unwrap_or_default();
        let _ = writeln!(self.log, "  stored {} beside {residual}", after.value["spec"]);
        self.stored = Some((after, bundle.storage().to_owned()));
        held.writes += 1;
        Ok(())
    }
}
