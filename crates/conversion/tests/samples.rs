//! Tests of the samples in `config/samples/conversions`: each folder's rules are admitted, pass a
//! search, and convert its objects as written there.
//!
//! `objects/<case>.<version>.yaml` is one object in each version, whichever wrote it. Where one
//! version has more fields than the others, the case is called `<case>-of-<version>`: that version
//! wrote it, and writes through the others keep its hidden fields.

use crate::support::yaml;
use insula_api::FieldPath;
use insula_conversion::proof::{Search, prove};
use insula_conversion::{Bundle, LossPolicy, ToStore, VersionSchema, laws, parse_rules, unmetered_budget};
use insula_meter::Meter;
use insula_schema::Structural;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Least number of cases in a folder.
const CASES_MIN: usize = 2;

struct Sample {
    name: String,
    bundle: Bundle,
    /// Objects by case and version.
    cases: BTreeMap<String, BTreeMap<String, Json>>,
}

/// Returns the folders with a `conversion.yaml`; the others belong to the guide, whose commands run
/// as printed.
fn folders() -> Vec<PathBuf> {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/samples/conversions");
    let entries = std::fs::read_dir(&samples).unwrap_or_else(|e| panic!("{}: {e}", samples.display()));
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    folders.retain(|folder| folder.join("conversion.yaml").exists());
    folders.sort();
    folders
}

fn read(path: &Path) -> Json {
    yaml(&std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

impl Sample {
    fn load(folder: &Path) -> Sample {
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let (schema, conversion) = (read(&folder.join("schema.yaml")), read(&folder.join("conversion.yaml")));
        assert_eq!(
            schema["metadata"]["name"], conversion["metadata"]["name"],
            "{name}: rules have the name of their schema"
        );
        let at = FieldPath::new("spec");
        let rules = parse_rules(&conversion["spec"], &at).unwrap_or_else(|e| panic!("{name}: {e:#?}"));
        let versions = schema["spec"]["versions"].as_array().unwrap();
        let storage = versions.iter().find(|v| v["storage"] == true).unwrap();
        let compiled = versions.iter().map(|version| VersionSchema {
            name: version["name"].as_str().unwrap().to_owned(),
            served: version["served"] == true,
            schema: Structural::parse(&version["schema"], &FieldPath::new("schema"))
                .unwrap_or_else(|e| panic!("{name} {}: {e:#?}", version["name"]))
                .into(),
        });
        let bundle = Bundle::compile(
            schema["spec"]["group"].as_str().unwrap(),
            compiled.collect(),
            storage["name"].as_str().unwrap(),
            Some(&rules),
            LossPolicy::Lossless,
            &at,
        );
        Sample {
            bundle: bundle.unwrap_or_else(|e| panic!("{name}: {}", printed(&e))),
            cases: cases(folder),
            name,
        }
    }

    fn write(&self, x: &Json, version: &str, old: Option<&ToStore>) -> ToStore {
        let old = old.map(|old| old.stored(self.bundle.storage()));
        let written = self.bundle.put(x, version, old, &mut unmetered_budget());
        written.unwrap_or_else(|e| panic!("{}: {version}: {e}", self.name))
    }

    fn shown(&self, stored: &ToStore, version: &str) -> Json {
        let stored = stored.stored(self.bundle.storage());
        let read = self.bundle.get(stored, version, &mut unmetered_budget());
        read.unwrap_or_else(|e| panic!("{}: {version}: {e}", self.name))
    }

    /// Checks that each version shows the object that `version` wrote as the case expects, before
    /// and after each version writes back its view.
    fn check(&self, case: &str, version: &str) {
        let objects = &self.cases[case];
        let mut stored = self.write(&objects[version], version, None);
        for through in objects.keys() {
            for (other, want) in objects {
                let at = format!("{}: {case} written as {version}, read as {other}", self.name);
                assert_same(want, &self.shown(&stored, other), &at);
            }
            stored = self.write(&objects[through], through, Some(&stored));
        }
        let kept = laws::put_get(&self.bundle, &objects[version], version, &stored);
        assert_eq!(kept, Ok(()), "{}: {case} as {version}", self.name);
        assert_eq!(
            laws::get_put(&self.bundle, &stored),
            Ok(()),
            "{}: {case} as {version}",
            self.name
        );
    }
}

fn cases(folder: &Path) -> BTreeMap<String, BTreeMap<String, Json>> {
    let mut cases: BTreeMap<String, BTreeMap<String, Json>> = BTreeMap::new();
    for entry in std::fs::read_dir(folder.join("objects")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let (case, version) = name
            .split_once('.')
            .unwrap_or_else(|| panic!("{name}: <case>.<version>.yaml"));
        cases
            .entry(case.to_owned())
            .or_default()
            .insert(version.to_owned(), read(&path));
    }
    cases
}

fn printed(errors: &[insula_api::FieldError]) -> String {
    errors.iter().map(|e| format!("\n  {e}")).collect()
}

fn assert_same(want: &Json, got: &Json, at: &str) {
    let print = |json: &Json| serde_json::to_string_pretty(json).unwrap();
    assert!(want == got, "{at}:\nwant {}\ngot {}", print(want), print(got));
}

#[test]
fn objects_convert_as_their_cases_say() {
    for folder in folders() {
        let sample = Sample::load(&folder);
        assert!(sample.cases.len() >= CASES_MIN, "{}: too few cases", sample.name);
        for (case, objects) in &sample.cases {
            let versions: Vec<&str> = sample.bundle.versions().collect();
            for version in &versions {
                let object = objects
                    .get(*version)
                    .unwrap_or_else(|| panic!("{}: {case} has no {version}", sample.name));
                let schema = sample.bundle.schema(version).unwrap();
                let mut whole = object.clone();
                insula_schema::prune(&mut whole, schema);
                insula_schema::default(&mut whole, schema);
                assert_same(
                    object,
                    &whole,
                    &format!("{}: {case}.{version} as the server takes it in", sample.name),
                );
                let errors = insula_schema::validate(object, schema, &Meter::unbounded());
                assert!(
                    errors.is_empty(),
                    "{}: {case}.{version}: {}",
                    sample.name,
                    printed(&errors)
                );
            }
            match case.split_once("-of-") {
                Some((_, writer)) => sample.check(case, writer),
                None => versions.iter().for_each(|version| sample.check(case, version)),
            }
        }
    }
}

#[test]
fn rules_are_admitted_and_hold() {
    for folder in folders() {
        let Sample { name, bundle, .. } = Sample::load(&folder);
        let over_budget = bundle.over_budget(&FieldPath::new("spec"));
        assert!(over_budget.is_empty(), "{name}: {}", printed(&over_budget));
        match prove(&bundle, Search::default(), &Meter::unbounded()) {
            Ok(searched) => assert!(searched.writes > u64::from(searched.cases), "{name}: {searched:?}"),
            Err(found) => panic!("{name}: {}", printed(&found)),
        }
    }
}

/// Conversion of a consumed object equals conversion of a borrowed one.
#[test]
fn converting_in_place_is_converting() {
    for folder in folders() {
        let Sample { name, bundle, .. } = Sample::load(&folder);
        let mut compared = 0;
        for from in bundle.versions() {
            let schema = bundle.schema(from).unwrap();
            let api_version = format!("samples.example.io/{from}");
            for mut object in insula_conversion::proof::objects(schema, (&api_version, "Kind"), 2026, 200) {
                insula_schema::default(&mut object, schema);
                for to in bundle.versions().filter(|to| *to != from) {
                    let looked_at = bundle.convert(&object, to, &mut unmetered_budget());
                    let taken = bundle.get_owned(object.clone(), from, None, to, &mut unmetered_budget());
                    assert_eq!(taken.ok(), looked_at.ok(), "{name}: {from} to {to}: {object}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 200, "{name}: {compared}");
    }
}
