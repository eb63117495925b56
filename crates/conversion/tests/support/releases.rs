//! Checks generated APIs over their releases.

use super::api_model::{Api, name};
use super::apis::Dice;
use super::values::{Editor, Values, read, visible};
use super::{bundle, object};
use insula_conversion::{Bundle, ToStore, laws, object_budget};
use serde_json::{Value as Json, json};
use std::fmt::Write as _;

/// Releases of an API, and writes in each.
const RELEASES: usize = 4;
const WRITES: usize = 4;

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
    let mut failed: Vec<String> = Vec::new();
    for number in 0..apis {
        let of = seed.wrapping_mul(1_000_003).wrapping_add(number);
        let mut history = History::new(of);
        if let Err(why) = history.run(&mut held) {
            failed.push(format!(
                "API {of} (seed {seed}, number {number}): {why}\n{}",
                history.log
            ));
        }
    }
    match failed.iter().min_by_key(|text| text.len()) {
        Some(shortest) => Err(format!("{} of {apis} fail: {shortest}", failed.len())),
        None => Ok(held),
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
    fn new(seed: u64) -> History {
        let mut dice = Dice(seed);
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
        let shown = bundle.get(stored.stored(storage), &name(version), &mut object_budget());
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
            .put(&x, &from, old, &mut object_budget())
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
