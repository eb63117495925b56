//! Rules that only read: whatever they read, the fields beside are carried as if the rule were not
//! there. Random schemas with one such rule, and each spelling of such rules by hand.

use crate::support::apis::Dice;
use crate::support::{bundle, bundle_of, object};
use insula_conversion::{Bundle, ToStore, unmetered_budget};
use serde_json::{Map, Value as Json, json};

const SEED: u64 = 2026;
/// Random schemas with one rule each.
const APIS: u64 = 600;
/// Edits of one object, alternating between the versions.
const EDITS: usize = 6;

fn put(bundle: &Bundle, version: &str, part: &Json, old: Option<&ToStore>) -> ToStore {
    let x = object(version, part);
    let old = old.map(|old| old.stored(bundle.storage()));
    bundle.put(&x, version, old, &mut unmetered_budget()).unwrap()
}

fn get(bundle: &Bundle, stored: &ToStore, version: &str) -> Json {
    let stored = stored.stored(bundle.storage());
    bundle.get(stored, version, &mut unmetered_budget()).unwrap()
}

/// Writes `part` through v1 and returns the value that v2 shows at a JSON pointer.
fn seen(text: &str, part: &Json, pointer: &str) -> Json {
    let bundle = bundle_of(text);
    let stored = put(&bundle, "v1", part, None);
    get(&bundle, &stored, "v2")
        .pointer(pointer)
        .cloned()
        .unwrap_or_default()
}

const SHAPES: &str = r"
versions:
  v1: {spec: {r: {x: string, name: string, note: string}}}
  v2: {spec: {r: {group: string, name: string, extra: integer}, copy: {x: string, name: string}, group: string}}
rules: {conversions: [{from: v1, to: v2, rules: [RULE]}, {from: v2, to: v1, rules: []}]}
";

#[test]
fn siblings_of_a_field_that_is_read_are_carried() {
    let rules = [
        "{field: .spec.r, destination: .spec.r.group, transformation: self.x}",
        "{field: .spec.r, to: .spec.r.group, transformation: self.x}",
        "{field: .spec, destination: .spec.r.group, transformation: self.r.x}",
        "{field: .spec.r, destination: .spec.group, transformation: self.x}",
        "{field: .spec.r, destination: .spec.copy, transformation: {x: self.x, name: self.name}}",
        "{from: v1.spec.r.x, to: spec.r.group}",
        "{from: v1.spec.r, to: spec.copy}",
        "{from: self.spec.r, to: spec.copy}",
        "{rule: self.spec.r, field: spec.copy}",
        "{rule: self.spec.r.x, field: spec.r.group}",
    ];
    for rule in rules {
        let text = SHAPES.replace("RULE", rule);
        let name = seen(
            &text,
            &json!({"spec": {"r": {"x": "X", "name": "bob"}}}),
            "/spec/r/name",
        );
        assert_eq!(name, json!("bob"), "{rule}");
    }
}

#[test]
fn an_edit_of_a_sibling_shows_in_the_other_version() {
    let rule = "{field: .spec.r, destination: .spec.r.group, transformation: self.x}";
    let bundle = bundle_of(&SHAPES.replace("RULE", rule));
    let stored = put(&bundle, "v1", &json!({"spec": {"r": {"x": "X", "name": "bob"}}}), None);
    let mut shown = get(&bundle, &stored, "v2");
    shown["spec"]["r"]["name"] = json!("rob");
    let stored = put(&bundle, "v2", &shown, Some(&stored));
    assert_eq!(
        get(&bundle, &stored, "v1")["spec"],
        json!({"r": {"x": "X", "name": "rob"}})
    );
    let stored = put(
        &bundle,
        "v1",
        &json!({"spec": {"r": {"x": "X", "name": "pat"}}}),
        Some(&stored),
    );
    let shown = get(&bundle, &stored, "v2");
    assert_eq!(shown["spec"], json!({"r": {"group": "X", "name": "pat"}}));
}

#[test]
fn siblings_stay_beside_a_wider_field() {
    let text = r"
versions:
  v1: {spec: {day: string, owner: string, old: string, colors: {'*': {feeling: string}}}}
  v2: {spec: {day: string, owner: string, new: string, colors: [{name: string, feeling: string, day: string}]}}
rules: {conversions: [{from: v1, to: v2, rules: [
  {field: spec, destination: 'spec.colors[]', transformation:
    {name: key, feeling: 'self.colors[key].feeling', day: self.day}}]},
  {from: v2, to: v1, drop: [spec.colors]}]}
";
    let part = json!({"spec": {"day": "monday", "owner": "bob", "colors": {"red": {"feeling": "bold"}}}});
    assert_eq!(seen(text, &part, "/spec/owner"), json!("bob"));
    assert_eq!(seen(text, &part, "/spec/colors/0/day"), json!("monday"));
}

#[test]
fn siblings_in_items_are_carried() {
    let rules = [
        "{field: 'spec.items[i].r', destination: 'spec.items[].r.group', transformation: self.x}",
        "{field: 'spec.items[i]', destination: 'spec.items[].r.group', transformation: self.r.x}",
        "{from: v1.spec.items, to: spec.items, itemRules: [{field: r, destination: r.group, transformation: self.x}]}",
        "{from: v1.spec.items, to: spec.items, itemRules: [{from: self.r.x, to: item.r.group}]}",
    ];
    for rule in rules {
        let text = r"
versions:
  v1: {spec: {items: [{r: {x: string, name: string}, id: string}]}}
  v2: {spec: {items: [{r: {group: string, name: string}, id: string, more: string}]}}
rules: {conversions: [{from: v1, to: v2, rules: [RULE]}]}
";
        let text = text.replace("RULE", rule);
        let part = json!({"spec": {"items": [{"id": "a", "r": {"x": "X", "name": "bob"}}]}});
        let item = seen(&text, &part, "/spec/items/0");
        assert_eq!(item, json!({"id": "a", "r": {"group": "X", "name": "bob"}}), "{rule}");
    }
}

#[test]
fn entries_that_are_read_stay() {
    let text = r"
versions: {v1: {spec: {m: {'*': string}, old: string}}, v2: {spec: {m: {'*': string}, group: string}}}
rules: {conversions: [{from: v1, to: v2, rules: [RULE]}]}
";
    let part = json!({"metadata": {"annotations": {"a": "x", "b": "y"}}, "spec": {"m": {"k": "v", "l": "w"}}});
    for rule in [
        "{field: \"metadata.annotations['a']\", destination: spec.group, transformation: self + '!'}",
        "{field: spec.m.k, destination: spec.group, transformation: self + '!'}",
    ] {
        assert_eq!(
            seen(&text.replace("RULE", rule), &part, "/metadata/annotations/a"),
            json!("x"),
            "{rule}"
        );
        assert_eq!(
            seen(&text.replace("RULE", rule), &part, "/spec/m/k"),
            json!("v"),
            "{rule}"
        );
    }
}

#[test]
fn a_move_takes_its_source_away() {
    let text = |rule: &str, v1: &str, v2: &str| {
        format!("versions: {{v1: {v1}, v2: {v2}}}\nrules: {{conversions: [{{from: v1, to: v2, rules: [{rule}]}}]}}")
    };
    let part = json!({"metadata": {"annotations": {"a": "x", "b": "y"}}, "spec": {
        "m": {"k": "v", "l": "w"}, "a": "A", "l": [{"t": "1"}]}});
    let schema = "{spec: {m: {'*': string}, a: string, b: string, l: [{t: string}], k: [{t: string}]}}";
    for (rule, gone, there) in [
        (
            "{field: \"metadata.annotations['a']\", destination: spec.b}",
            "/metadata/annotations/a",
            "/metadata/annotations/b",
        ),
        ("{field: spec.m.k, destination: spec.b}", "/spec/m/k", "/spec/m/l"),
        ("{field: spec.a, destination: spec.b}", "/spec/a", "/spec/b"),
        ("{field: spec.l, destination: spec.k}", "/spec/l", "/spec/k/0/t"),
        (
            "{field: spec.l, destination: spec.k, itemRules: [{field: t, destination: t}]}",
            "/spec/l",
            "/spec/k/0/t",
        ),
        (
            "{field: 'spec.l[i].t', destination: 'spec.k[].t'}",
            "/spec/l",
            "/spec/k/0/t",
        ),
    ] {
        let text = text(rule, schema, schema);
        assert_eq!(seen(&text, &part, gone), Json::Null, "{rule}");
        assert_ne!(seen(&text, &part, there), Json::Null, "{rule}");
    }
}

/// A random API: versions v1 and v2 with fields in common, and one rule that reads.
struct Api {
    doc: Json,
    /// Parts of v1, the place for generated fields: pointers to the fields that both versions have.
    common: Vec<String>,
}

/// A field in the notation of schemas; none of the names is used by a rule.
fn field(dice: &mut Dice, depth: usize) -> Json {
    match dice.below(if depth > 2 { 5 } else { 7 }) {
        0 | 1 => json!("string"),
        2 => json!("integer"),
        3 => json!("boolean"),
        4 => json!(["string"]),
        5 => json!({"*": "string"}),
        _ => json!({"p": field(dice, depth + 1), "q": field(dice, depth + 1)}),
    }
}

/// Rules that only read: rule, the field that it reads from, and true if that is a list.
const RULES: [(&str, &str, bool); 9] = [
    (
        "{field: spec.r, destination: spec.r.group, transformation: self.x}",
        "r",
        false,
    ),
    (
        "{field: spec.r, destination: spec.group, transformation: self.x}",
        "r",
        false,
    ),
    (
        "{field: spec, destination: spec.r.group, transformation: self.r.x}",
        "r",
        false,
    ),
    (
        "{field: spec.r, destination: spec.made, transformation: {group: self.x}}",
        "r",
        false,
    ),
    ("{from: v1.spec.r.x + '!', to: spec.r.group}", "r", false),
    ("{from: v1.spec.r.x, to: spec.group, onlyIfAbsent: true}", "r", false),
    ("{rule: self.spec.r.x, field: spec.r.group}", "r", false),
    (
        "{field: 'spec.items[i]', destination: 'spec.items[].group', transformation: self.x}",
        "items",
        true,
    ),
    (
        "{from: v1.spec.items, to: spec.items, itemRules: [{from: self.x, to: item.group}]}",
        "items",
        true,
    ),
];

fn api(dice: &mut Dice) -> Api {
    let (rule, container, list) = RULES[dice.below(RULES.len())];
    let mut common = Vec::new();
    let mut fields = Map::new();
    for n in 0..1 + dice.below(4) {
        fields.insert(format!("f{n}"), field(dice, 0));
    }
    let prefix = if list {
        format!("/spec/{container}/0")
    } else {
        format!("/spec/{container}")
    };
    leaves(&Json::Object(fields.clone()), &prefix, &mut common);
    let beside: Map<String, Json> = (0..dice.below(3)).map(|n| (format!("g{n}"), field(dice, 0))).collect();
    leaves(&Json::Object(beside.clone()), "/spec", &mut common);
    let mut version = |own: &[&str]| {
        let mut inner = fields.clone();
        inner.extend(own.iter().map(|name| ((*name).to_owned(), json!("string"))));
        // Versions of equal shape carry whole values; most differ.
        if dice.below(3) > 0 {
            inner.insert(format!("only{}", own.len()), json!("integer"));
        }
        let inner = if list { json!([inner]) } else { Json::Object(inner) };
        let mut spec = beside.clone();
        spec.insert(container.to_owned(), inner);
        spec
    };
    let v1 = version(&["x"]);
    let mut v2 = version(&["group", "y"]);
    v2.insert("group".to_owned(), json!("string"));
    v2.insert("made".to_owned(), json!({"group": "string"}));
    let rules = crate::support::yaml(&format!("{{conversions: [{{from: v1, to: v2, rules: [{rule}]}}]}}"));
    let storage = ["v1", "v2"][dice.below(2)];
    let doc = json!({"storage": storage, "versions": {"v1": {"spec": v1}, "v2": {"spec": v2}}, "rules": rules});
    Api { doc, common }
}

fn leaves(short: &Json, at: &str, out: &mut Vec<String>) {
    match short {
        Json::Object(map) if !map.contains_key("*") => {
            map.iter()
                .for_each(|(name, short)| leaves(short, &format!("{at}/{name}"), out));
        }
        _ => out.push(at.to_owned()),
    }
}

/// Returns a value of a schema in short notation; some fields are left out.
fn value(short: &Json, dice: &mut Dice) -> Json {
    let word = format!("w{}", dice.below(1000));
    match short {
        Json::String(kind) if kind == "integer" => json!(dice.below(1000)),
        Json::String(kind) if kind == "boolean" => json!(dice.below(2) == 0),
        Json::String(_) => json!(word),
        Json::Array(items) => json!([value(&items[0], dice)]),
        Json::Object(map) if map.contains_key("*") => json!({word: "v"}),
        Json::Object(map) => {
            let mut out = Map::new();
            for (name, short) in map {
                if dice.below(5) > 0 {
                    out.insert(name.clone(), value(short, dice));
                }
            }
            Json::Object(out)
        }
        other => panic!("{other} is no schema"),
    }
}

/// Writes random objects through both versions in turn, and compares the fields in common after
/// each write.
fn differs(seed: u64) -> Option<String> {
    let dice = &mut Dice::new(seed);
    let api = api(dice);
    let bundle = bundle(&api.doc).unwrap_or_else(|e| panic!("seed {seed}: {e:#?}\n{}", api.doc));
    let mut stored: Option<ToStore> = None;
    for _ in 0..EDITS {
        let version = ["v1", "v2"][dice.below(2)];
        let mut part = value(&api.doc["versions"][version], dice);
        if let Some(old) = &stored {
            // Most edits change one field and keep the rest.
            let mut edited = get(&bundle, old, version);
            let at = &api.common[dice.below(api.common.len())];
            if let (Some(new), Some(old)) = (part.pointer(at), edited.pointer_mut(at)) {
                *old = new.clone();
                part = json!({"spec": edited["spec"]});
            }
        }
        let after = put(&bundle, version, &part, stored.as_ref());
        let (v1, v2) = (get(&bundle, &after, "v1"), get(&bundle, &after, "v2"));
        let different = api.common.iter().find(|at| v1.pointer(at) != v2.pointer(at));
        if let Some(at) = different {
            return Some(format!(
                "seed {seed}: {at} differs after {part} as {version}\nv1 {v1}\nv2 {v2}\n{}",
                api.doc
            ));
        }
        stored = Some(after);
    }
    None
}

#[test]
fn fields_in_common_read_the_same_whatever_rules_read() {
    let seeds = (0..APIS).map(|i| SEED * 1_000_003 + i);
    let found: Vec<String> = seeds.filter_map(differs).collect();
    assert!(found.is_empty(), "{} of {APIS} APIs; first: {}", found.len(), found[0]);
}
