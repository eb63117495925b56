//! Two managers apply to one object in two versions. A model keeps what each of them owns; every
//! version has to show what the model says after every apply, whatever the schemas and rules are.

use std::collections::{BTreeMap, BTreeSet};

use insula_e2e::{Client, shared, until, workspace};
use serde_json::{Map, Value, json};

const GROUP: &str = "appliers.example.io";
const VERSIONS: [&str; 3] = ["v1", "v2", "v3"];
/// Fields of `spec`, each with its name in every version; `None` where the version lacks it.
type Names = Vec<[Option<String>; 3]>;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// Returns names for some fields: in all versions, renamed in one of them, beside the hub v1, or in
/// one version alone.
fn names(random: &mut Random) -> Names {
    let field = |number: usize, random: &mut Random| {
        let name = Some(format!("f{number}"));
        let other = Some(format!("g{number}"));
        match random.below(6) {
            0 => [name.clone(), name.clone(), name],
            1 => [name.clone(), other, name],
            2 => [name.clone(), name, other],
            3 => [name, other.clone(), other],
            4 => [None, name.clone(), name],
            _ => {
                let mut alone = [None, None, None];
                alone[random.below(3) as usize] = name;
                alone
            }
        }
    };
    (0..7).map(|number| field(number, random)).collect()
}

fn definition(plural: &str, names: &Names) -> Value {
    let text = json!({"type": "string"});
    let version = |index: usize| {
        let own = names.iter().filter_map(|name| name[index].clone());
        let mut fields: Map<String, Value> = own.map(|name| (name, text.clone())).collect();
        let size = if index == 1 { "bytes" } else { "size" };
        let item = json!({"type": "object", "required": ["name"], "properties": {"name": text, size: text}});
        let items = json!({"type": "array", "items": item, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"]});
        fields.insert("items".to_owned(), items);
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
        json!({"name": VERSIONS[index], "served": true, "storage": index == 0, "schema": {"openAPIV3Schema": schema}})
    };
    let versions: Vec<Value> = (0..3).map(version).collect();
    let kind = plural.to_uppercase();
    let of_kind = json!({"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": plural});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {"group": GROUP, "scope": "Cluster", "names": of_kind, "versions": versions}})
}

fn rules(plural: &str, names: &Names) -> Value {
    let direction = |from: usize, to: usize| {
        let renamed = names.iter().filter_map(|name| name[from].clone().zip(name[to].clone()));
        let renamed = renamed.filter(|(from, to)| from != to);
        let spec = |name: &str| format!(".spec.{name}");
        let mut rules: Vec<Value> = renamed
            .map(|(from, to)| json!({"field": spec(&from), "destination": spec(&to)}))
            .collect();
        if from == 1 || to == 1 {
            let size = |index: usize| spec(if index == 1 { "items[i].bytes" } else { "items[i].size" });
            rules.push(json!({"field": size(from), "destination": size(to)}));
        }
        json!({"from": VERSIONS[from], "to": VERSIONS[to], "rules": rules})
    };
    let conversions: Vec<Value> = [(0, 1), (1, 0), (0, 2), (2, 0)]
        .into_iter()
        .map(|(from, to)| direction(from, to))
        .collect();
    json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion",
        "metadata": {"name": format!("{plural}.{GROUP}")}, "spec": {"conversions": conversions}})
}

/// A value that a manager may own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Label(u64),
    Finalizer(u64),
    /// Number of a field of `spec`.
    Field(usize),
    Item(u64),
    /// The other field of an item.
    Size(u64),
}

/// The parts of an object, and their owners.
#[derive(Debug, Default)]
struct Model {
    values: BTreeMap<Part, String>,
    owners: BTreeMap<Part, BTreeSet<usize>>,
}

impl Model {
    /// A forced apply: what the manager had and does not say again goes, unless the other has it.
    fn apply(&mut self, manager: usize, wanted: &BTreeMap<Part, String>) {
        for (place, value) in wanted {
            let owners = self.owners.entry(place.clone()).or_default();
            if self
                .values
                .insert(place.clone(), value.clone())
                .is_some_and(|had| had != *value)
            {
                owners.clear();
            }
            owners.insert(manager);
        }
        for (place, owners) in &mut self.owners {
            if !wanted.contains_key(place) && owners.remove(&manager) && owners.is_empty() {
                self.values.remove(place);
            }
        }
    }

    /// Returns labels, finalizers and `spec` in a version.
    fn shown(&self, version: usize, names: &Names) -> Value {
        shape(&self.values, version, names)
    }
}

/// Returns values in the form of a version. Values that it lacks are left out.
fn shape(values: &BTreeMap<Part, String>, version: usize, names: &Names) -> Value {
    let (mut labels, mut finalizers, mut spec) = (Map::new(), Vec::new(), Map::new());
    let mut items: BTreeMap<u64, Map<String, Value>> = BTreeMap::new();
    for (place, value) in values {
        match place {
            Part::Label(number) => drop(labels.insert(format!("l{number}"), json!(value))),
            Part::Finalizer(number) => finalizers.push(json!(format!("example.io/f{number}"))),
            Part::Field(number) => {
                if let Some(name) = &names[*number][version] {
                    spec.insert(name.clone(), json!(value));
                }
            }
            Part::Item(number) => {
                let item = items.entry(*number).or_default();
                item.insert("name".to_owned(), json!(format!("i{number}")));
            }
            Part::Size(number) => {
                let size = if version == 1 { "bytes" } else { "size" };
                items.entry(*number).or_default().insert(size.to_owned(), json!(value));
            }
        }
    }
    if !items.is_empty() {
        spec.insert("items".to_owned(), items.into_values().map(Value::Object).collect());
    }
    json!({"labels": labels, "finalizers": finalizers, "spec": spec})
}

/// Returns what a manager says next: each value that its version knows with a chance of one half.
fn wanted(random: &mut Random, version: usize, names: &Names) -> BTreeMap<Part, String> {
    let fields = (0..names.len()).filter(|number| names[*number][version].is_some());
    let mut places: Vec<Part> = fields.map(Part::Field).collect();
    places.extend((0..2).flat_map(|number| [Part::Label(number), Part::Finalizer(number)]));
    let mut wanted = BTreeMap::new();
    for place in places {
        if random.below(2) == 0 {
            wanted.insert(place, format!("x{}", random.below(3)));
        }
    }
    for number in 0..3 {
        if random.below(2) == 0 {
            wanted.insert(Part::Item(number), String::new());
            if random.below(2) == 0 {
                wanted.insert(Part::Size(number), format!("x{}", random.below(3)));
            }
        }
    }
    // A value of a finalizer is its name.
    for (place, value) in &mut wanted {
        if matches!(place, Part::Finalizer(_)) {
            value.clear();
        }
    }
    wanted
}

/// Returns labels, finalizers and `spec` of an object, its lists in order.
fn seen(object: &Value) -> Value {
    let sorted = |list: &Value, key: &str| {
        let mut list = list.as_array().cloned().unwrap_or_default();
        list.sort_by_key(|item| item.get(key).unwrap_or(item).to_string());
        list
    };
    let map = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let mut spec = map(&object["spec"]);
    match sorted(&object["spec"]["items"], "name") {
        items if items.is_empty() => drop(spec.remove("items")),
        items => drop(spec.insert("items".to_owned(), Value::Array(items))),
    }
    json!({"labels": map(&object["metadata"]["labels"]), "spec": spec,
        "finalizers": sorted(&object["metadata"]["finalizers"], "")})
}

fn plays(client: &Client, seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (plural, names) = (format!("things{seed}"), names(&mut random));
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    client.post(definitions, &definition(&plural, &names)).expect(201);
    let path = |version: usize| format!("/apis/{GROUP}/{}/{plural}", VERSIONS[version]);
    until("it is served", || (client.get(&path(0)).code == 200).then_some(()));
    let created = client.post("/apis/apis.kcp.io/v1alpha1/apiconversions", &rules(&plural, &names));
    assert_eq!(created.code, 201, "seed {seed}: {}", created.text);
    let versions = [random.below(3) as usize, random.below(3) as usize];
    let mut model = Model::default();
    for step in 0..25 {
        let manager = random.below(2) as usize;
        let version = versions[manager];
        let wanted = wanted(&mut random, version, &names);
        let shape = shape(&wanted, version, &names);
        let config = json!({"apiVersion": format!("{GROUP}/{}", VERSIONS[version]), "kind": plural.to_uppercase(),
            "metadata": {"name": "a", "labels": shape["labels"], "finalizers": shape["finalizers"]},
            "spec": shape["spec"]});
        let at = format!("{}/a?fieldManager=m{manager}&force=true", path(version));
        let headers: &[(&str, &[u8])] = &[("content-type", b"application/apply-patch+yaml")];
        let applied = client.send_bytes("PATCH", &at, headers, config.to_string().into_bytes().into());
        assert!(
            matches!(applied.code, 200 | 201),
            "seed {seed}, step {step}: {}",
            applied.text
        );
        model.apply(manager, &wanted);
        for (shown, name) in VERSIONS.iter().enumerate() {
            let object = client.get(&format!("{}/a", path(shown))).expect(200);
            assert_eq!(
                seen(&object),
                model.shown(shown, &names),
                "seed {seed}, step {step}: {name} after m{manager} applied {config}"
            );
        }
    }
}

#[test]
fn what_two_managers_apply_in_two_versions_is_there_in_all() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "appliers").0);
    (1..=12).for_each(|seed| plays(&client, seed));
}

/// A manager goes on in v2, which has a field that v1 lacks and another manager owns.
#[test]
fn a_second_version_with_more_fields_takes_nothing() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "appliers-later").0);
    let plural = "laters";
    let field = |name: &str| Some(name.to_owned());
    let names: Names = vec![
        [field("a"), field("a"), field("a")],
        [None, field("b"), field("b")],
        [field("c"), field("c"), field("c")],
    ];
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    client.post(definitions, &definition(plural, &names)).expect(201);
    let path = |version: &str| format!("/apis/{GROUP}/{version}/{plural}");
    until("it is served", || (client.get(&path("v1")).code == 200).then_some(()));
    client
        .post("/apis/apis.kcp.io/v1alpha1/apiconversions", &rules(plural, &names))
        .expect(201);
    let apply = |manager: &str, version: &str, part: Value| {
        let mut config = part;
        config["apiVersion"] = json!(format!("{GROUP}/{version}"));
        config["kind"] = json!(plural.to_uppercase());
        config["metadata"]["name"] = json!("a");
        let at = format!("{}/a?fieldManager={manager}", path(version));
        let headers: &[(&str, &[u8])] = &[("content-type", b"application/apply-patch+yaml")];
        let applied = client.send_bytes("PATCH", &at, headers, config.to_string().into_bytes().into());
        assert!(matches!(applied.code, 200 | 201), "{}", applied.text);
    };
    let shows = |version: &str| client.get(&format!("{}/a", path(version))).expect(200)["spec"].clone();
    apply("one", "v1", json!({"spec": {"a": "1"}}));
    apply("two", "v2", json!({"spec": {"b": "b", "c": "c"}}));
    apply("one", "v2", json!({"spec": {"a": "2"}}));
    assert_eq!(shows("v1"), json!({"a": "2", "c": "c"}));
    assert_eq!(shows("v3"), json!({"a": "2", "b": "b", "c": "c"}));
    apply("one", "v1", json!({"spec": {"a": "3"}}));
    apply("one", "v3", json!({"metadata": {"labels": {"l": "l"}}}));
    assert_eq!(shows("v1"), json!({"c": "c"}));
    assert_eq!(shows("v2"), json!({"b": "b", "c": "c"}));
}
