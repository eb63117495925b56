//! The laws over generated objects and edits through all versions, for rule sets that move, rename,
//! compute and drop. A failure prints its seed and the shortest sequence of writes that shows it.

use crate::support::{bundle, object, schema, yaml};
use insula_conversion::{Bundle, ToStore, laws, unmetered_budget};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestError, TestRunner};
use serde_json::{Map, Value as Json, json};

const CASES: u32 = 300;
const SEED: u64 = 2026;

/// An API, with a name for its rules.
struct Set {
    name: &'static str,
    text: &'static str,
}

const SETS: &[Set] = &[
    Set {
        name: "names in three versions",
        text: r"
versions:
  v1: {spec: {firstName: string, lastName: string, old: string}}
  v2: {spec: {name: {first: string, last: string, middle: string}, new: {hello: string}}}
  v3: {spec: {person: {given: string, family: string}, old: string, extra: [string]}}
rules:
  hub: v1
  conversions:
  - version: v2
    fromHub: [{field: spec.name.first, rule: self.spec.firstName}, {field: spec.name.last, rule: self.spec.lastName}]
    toHub: [{field: spec.firstName, rule: self.spec.name.first}, {field: spec.lastName, rule: self.spec.name.last}]
  - version: v3
    fromHub: [{field: spec.person.given, rule: self.spec.firstName}, {field: spec.person.family,
        rule: self.spec.lastName}]
    toHub: [{field: spec.firstName, rule: self.spec.person.given}, {field: spec.lastName,
        rule: self.spec.person.family}]
",
    },
    Set {
        name: "computed beside its source",
        text: r"
versions:
  v1: {spec: {last: string, n: integer}}
  v2: {spec: {last: string, upper: string, n: integer}}
rules:
  hub: v1
  conversions:
  - {from: v1, to: v2, rules: [{field: spec.last, destination: spec.upper, transformation: self.upperAscii()}]}
",
    },
    Set {
        name: "one value and a list",
        text: r"
versions:
  v1: {spec: {name: string, x: integer}}
  v2: {spec: {names: [string]}}
  v3: {spec: {name: string, names: [string]}}
rules:
  hub: v1
  conversions:
  - {from: v1, to: v2, rules: [{field: spec.name, to: 'spec.names[0]'}]}
  - {from: v2, to: v1, rules: [{from: 'v2.spec.names[0]', to: spec.name}], preserve: [spec.names]}
  - {from: v1, to: v3, rules: []}
",
    },
    Set {
        name: "keyed items renamed",
        text: r"
versions:
  v1: {spec: {'colors[name]': [{name: string, feeling: string, old: string}]}}
  v2: {spec: {nested: {'colors[realName]': [{realName: string, realFeeling: string, mood: string}]}}}
  v3: {spec: {'colors[name]': [{name: string, feeling: string, tone: integer}]}}
rules:
  hub: v1
  conversions:
  - from: v1
    to: v2
    rules:
    - {from: v1.spec.colors, to: spec.nested.colors, itemRules: [{from: self.name, to: item.realName},
          {from: self.feeling, to: item.realFeeling}]}
  - from: v2
    to: v1
    rules:
    - {from: v2.spec.nested.colors, to: spec.colors, itemRules: [{from: self.realName, to: item.name},
          {from: self.realFeeling, to: item.feeling}]}
  - {from: v1, to: v3, rules: []}
",
    },
    Set {
        name: "items without keys",
        text: r"
versions:
  v1: {spec: {colors: [{name: string, old: string}], n: integer}}
  v2: {spec: {list: [{label: string, mood: string, parts: [{a: integer, b: integer}]}]}}
rules:
  hub: v1
  conversions:
  - {from: v1, to: v2, rules: [{field: 'spec.colors[i].name', destination: 'spec.list[].label'}]}
  - {from: v2, to: v1, rules: [{field: 'spec.list[i].label', destination: 'spec.colors[].name'}]}
",
    },
    Set {
        name: "a map and a list",
        text: r"
versions:
  v1: {spec: {colors: {'*': {feeling: string, hue: integer}}}}
  v2: {spec: {'colors[name]': [{name: string, feeling: string, mood: string}]}}
rules:
  hub: v1
  conversions:
  - from: v1
    to: v2
    rules: [{field: 'spec.colors[key]', destination: 'spec.colors[]', transformation: {name: key,
        feeling: self.feeling}}]
  - from: v2
    to: v1
    rules: [{field: 'spec.colors[i]', destination: 'spec.colors[self.name]', transformation: {feeling: self.feeling}}]
",
    },
    Set {
        name: "rules in one direction that compute and forget",
        text: r#"
versions:
  v1: {spec: {size: integer, unit: string, gone: {a: string, b: string}}}
  v2: {spec: {text: string, unit: integer, gone: {b: string}}}
rules:
  hub: v1
  conversions:
  - from: v1
    to: v2
    rules:
    - {from: "string(v1.spec.size) + v1.spec.unit", to: spec.text}
    - {from: "has(v1.spec.gone) ? 'yes' : 'no'", to: spec.gone.b}
"#,
    },
    Set {
        name: "names joined and split, which can fail",
        text: r#"
versions:
  v1: {spec: {first: string, last: string}}
  v2: {spec: {full: string}}
  v3: {spec: {first: string, initial: string}}
rules:
  hub: v1
  conversions:
  - {from: v1, to: v2, rules: [{from: "v1.spec.first + ' ' + v1.spec.last", to: spec.full}]}
  - from: v2
    to: v1
    rules:
    - {from: "v2.spec.full.split('b')[0]", to: spec.first, mayFail: true}
    - {from: "v2.spec.full.split('b')[1]", to: spec.last, mayFail: true}
  - {from: v1, to: v3, rules: [{from: "v1.spec.last.charAt(0)", to: spec.initial, mayFail: true}]}
"#,
    },
    Set {
        name: "other defaults, other types, no rules",
        text: r"
versions:
  v1: {spec: {mode: {$: {type: string, default: a}}, n: integer, sub: {x: string, m: {'*': string}}},
      status: {phase: string}}
  v2: {spec: {mode: {$: {type: string, default: b}}, n: string, sub: {y: string, m: {'*': string}}, free: any},
      status: {phase: string, note: string}}
  v3: {spec: {mode: {$: {type: string, default: c}}, sub: {x: string, y: {$: {type: string, default: d}}}}}
",
    },
];

#[test]
fn the_laws_hold_over_edits_through_all_versions() {
    for set in SETS {
        let doc = yaml(set.text);
        for storage in doc["versions"].as_object().unwrap().keys() {
            let mut doc = doc.clone();
            doc["storage"] = json!(storage);
            check(set, storage, &doc);
        }
    }
}

fn check(set: &Set, storage: &str, doc: &Json) {
    let bundle = bundle(doc).unwrap_or_else(|e| panic!("{}: {e:#?}", set.name));
    let edits = prop::collection::vec(edit(doc), 1..6);
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(SEED),
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&edits, |edits| {
        script(&bundle, doc, &edits).map_err(TestCaseError::fail)
    });
    if let Err(TestError::Fail(why, edits)) = outcome {
        let edits: Vec<String> = edits
            .iter()
            .map(|e| format!("{} {} {:?}", e.version, e.fresh, e.bits))
            .collect();
        panic!(
            "{}, stored in {storage}, seed {SEED}: {why}\n{}",
            set.name,
            edits.join("\n")
        );
    }
    outcome.unwrap();
}

/// A write: an object of a version, mixed by `bits` into the current view of that version.
#[derive(Debug, Clone)]
struct Edit {
    version: String,
    fresh: Json,
    bits: Vec<u8>,
}

fn edit(doc: &Json) -> impl Strategy<Value = Edit> + use<> {
    let versions: Vec<(String, Json)> = doc["versions"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, short)| (name.clone(), schema(short)))
        .collect();
    prop::sample::select(versions).prop_flat_map(|(version, schema)| {
        (values(&schema, true), prop::collection::vec(any::<u8>(), 12)).prop_map(move |(fresh, bits)| Edit {
            version: version.clone(),
            fresh: object(&version, &fresh),
            bits,
        })
    })
}

fn values(schema: &Json, root: bool) -> BoxedStrategy<Json> {
    match schema["type"].as_str().unwrap() {
        "string" => "[abc]{0,2}".prop_map(Json::from).boxed(),
        "integer" => (0..4i64).prop_map(Json::from).boxed(),
        "array" => prop::collection::vec(values(&schema["items"], false), 0..4)
            .prop_map(Json::from)
            .boxed(),
        _ if schema["x-kubernetes-preserve-unknown-fields"] == true => {
            prop::collection::btree_map("[ab]", 0..3i64, 0..3)
                .prop_map(|m| json!(m))
                .boxed()
        }
        _ if schema.get("additionalProperties").is_some() => {
            let entries = prop::collection::btree_map("[abc]", values(&schema["additionalProperties"], false), 0..3);
            entries.prop_map(|m| json!(m)).boxed()
        }
        _ => {
            let mut fields = Just(Map::new()).boxed();
            for (name, child) in schema["properties"].as_object().unwrap() {
                if root && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                    continue;
                }
                let name = name.clone();
                let child = prop::option::weighted(0.8, values(child, false));
                fields = (fields, child)
                    .prop_map(move |(mut map, value)| {
                        map.extend(value.map(|value| (name.clone(), value)));
                        map
                    })
                    .boxed();
            }
            fields.prop_map(Json::Object).boxed()
        }
    }
}

fn script(bundle: &Bundle, doc: &Json, edits: &[Edit]) -> Result<(), String> {
    let mut stored: Option<ToStore> = None;
    for (i, edit) in edits.iter().enumerate() {
        let x = next(bundle, doc, stored.as_ref(), edit)?;
        let old = stored.as_ref().map(|s| s.stored(bundle.storage()));
        // A write that another version cannot show is refused and changes nothing.
        let Ok(after) = bundle.put(&x, &edit.version, old, &mut unmetered_budget()) else {
            continue;
        };
        let reported = |v: laws::Violation| {
            let residual = after.residual.as_deref().map(String::from_utf8_lossy);
            format!(
                "write {i} through {}: {v}\nx {x}\nbefore {stored:?}\nafter {} {residual:?}",
                edit.version, after.value
            )
        };
        laws::put_get(bundle, &x, &edit.version, &after).map_err(reported)?;
        laws::get_put(bundle, &after).map_err(reported)?;
        if let Some(before) = &stored {
            laws::non_interference(bundle, &edit.version, before, &after).map_err(reported)?;
            laws::later_edit_wins(bundle, &edit.version, before, &after).map_err(reported)?;
        }
        stored = Some(after);
    }
    Ok(())
}

fn next(bundle: &Bundle, doc: &Json, stored: Option<&ToStore>, edit: &Edit) -> Result<Json, String> {
    let schema_json = schema(&doc["versions"][&edit.version]);
    let mut x = match stored {
        None => edit.fresh.clone(),
        Some(stored) => {
            let shown = bundle.get(stored.stored(bundle.storage()), &edit.version, &mut unmetered_budget());
            let shown = shown.map_err(|e| format!("law 5: {e}"))?;
            let mut bits = edit.bits.iter().cycle();
            mix(&shown, &edit.fresh, &mut bits)
        }
    };
    unique(&mut x, &schema_json);
    let schema = bundle.schema(&edit.version).unwrap();
    insula_schema::prune(&mut x, schema);
    insula_schema::default(&mut x, schema);
    Ok(x)
}

fn mix<'b>(old: &Json, fresh: &Json, bits: &mut impl Iterator<Item = &'b u8>) -> Json {
    match (old, fresh) {
        (Json::Object(old), Json::Object(fresh)) => {
            let mut out = Map::new();
            for name in old.keys().chain(fresh.keys()) {
                let value = match (old.get(name), fresh.get(name)) {
                    (Some(old), Some(fresh)) => Some(mix(old, fresh, bits)),
                    (old, fresh) => if bits.next().unwrap().is_multiple_of(4) {
                        fresh
                    } else {
                        old
                    }
                    .cloned(),
                };
                out.extend(value.map(|value| (name.clone(), value)));
            }
            Json::Object(out)
        }
        (Json::Array(old), Json::Array(fresh)) => {
            let mut out = Vec::new();
            for (i, item) in old.iter().enumerate() {
                match (bits.next().unwrap() % 5, fresh.get(i)) {
                    (0, _) => {}
                    (1, Some(fresh)) => out.push(mix(item, fresh, bits)),
                    (2, Some(fresh)) => out.extend([fresh.clone(), item.clone()]),
                    _ => out.push(item.clone()),
                }
            }
            if bits.next().unwrap().is_multiple_of(4) {
                out.reverse();
            }
            out.extend(fresh.iter().skip(old.len()).cloned());
            Json::Array(out)
        }
        _ => if bits.next().unwrap().is_multiple_of(3) {
            fresh
        } else {
            old
        }
        .clone(),
    }
}

/// Gives items of keyed lists distinct keys.
fn unique(value: &mut Json, schema: &Json) {
    match value {
        Json::Object(map) => {
            for (name, child) in map.iter_mut() {
                let child_schema = schema["properties"]
                    .get(name)
                    .or_else(|| schema.get("additionalProperties"));
                if let Some(child_schema) = child_schema {
                    unique(child, child_schema);
                }
            }
        }
        Json::Array(items) => {
            if let Some(key) = schema["x-kubernetes-list-map-keys"][0].as_str() {
                let mut seen = Vec::new();
                items.retain(|item| match item.get(key).cloned() {
                    Some(value) if !seen.contains(&value) => {
                        seen.push(value);
                        true
                    }
                    _ => false,
                });
            }
            items.iter_mut().for_each(|item| unique(item, &schema["items"]));
        }
        _ => {}
    }
}
