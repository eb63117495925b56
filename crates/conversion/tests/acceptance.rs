//! Port of kcp's deleted end-to-end test of APIConversion, the only published acceptance test of
//! the feature. Runs with v1 stored, as there, and with v2 stored.

use crate::support::{bundle, object, yaml};
use insula_conversion::{Bundle, ToStore, laws, unmetered_budget};
use serde_json::{Value as Json, json};

const WIDGETS: &str = r"
versions:
  v1: {spec: {firstName: string, lastName: string}, status: {phase: string}}
  v2: {spec: {name: {first: string, last: string, lastUpper: string}, someNewField: {hello: string}},
      status: {phase: string}}
rules:
  conversions:
  - from: v1
    to: v2
    rules:
    - {field: .spec.firstName, destination: .spec.name.first}
    - {field: .spec.lastName, destination: .spec.name.last, transformation: self}
    - {field: .spec.lastName, destination: .spec.name.lastUpper, transformation: self.upperAscii()}
  - from: v2
    to: v1
    rules:
    - {field: .spec.name.first, destination: .spec.firstName}
    - {field: .spec.name.last, destination: .spec.lastName}
    preserve:
    - .spec.someNewField
";

struct Widget<'b> {
    bundle: &'b Bundle,
    stored: ToStore,
}

impl Widget<'_> {
    fn read(&self, version: &str) -> Json {
        let stored = self.stored.stored(self.bundle.storage());
        self.bundle.get(stored, version, &mut unmetered_budget()).unwrap()["spec"].clone()
    }

    fn write(&mut self, version: &str, spec: Json) {
        let old = self.stored.clone();
        let x = object(version, &json!({"spec": spec}));
        self.stored = self
            .bundle
            .put(
                &x,
                version,
                Some(old.stored(self.bundle.storage())),
                &mut unmetered_budget(),
            )
            .unwrap();
        laws::put_get(self.bundle, &x, version, &self.stored).unwrap();
        laws::get_put(self.bundle, &self.stored).unwrap();
        laws::non_interference(self.bundle, version, &old, &self.stored).unwrap();
    }
}

fn create<'b>(bundle: &'b Bundle, version: &str, spec: Json) -> Widget<'b> {
    let stored = bundle
        .put(
            &object(version, &json!({"spec": spec})),
            version,
            None,
            &mut unmetered_budget(),
        )
        .unwrap();
    Widget { bundle, stored }
}

#[test]
fn widgets_of_kcps_acceptance_test() {
    for storage in ["v1", "v2"] {
        let mut doc = yaml(WIDGETS);
        doc["storage"] = json!(storage);
        let bundle = bundle(&doc).unwrap();

        let mut bob = create(&bundle, "v1", json!({"firstName": "Bob", "lastName": "Jones"}));
        let name = json!({"first": "Bob", "last": "Jones", "lastUpper": "JONES"});
        assert_eq!(bob.read("v2"), json!({"name": name}), "{storage}");
        bob.write("v2", json!({"name": name, "someNewField": {"hello": "world"}}));
        assert_eq!(
            bob.read("v2"),
            json!({"name": name, "someNewField": {"hello": "world"}}),
            "{storage}"
        );

        let alice = json!({"name": {"first": "Alice", "last": "Smith"}, "someNewField": {"hello": "world"}});
        let mut alice = create(&bundle, "v2", alice);
        assert_eq!(
            alice.read("v1"),
            json!({"firstName": "Alice", "lastName": "Smith"}),
            "{storage}"
        );
        alice.write("v1", json!({"firstName": "Robot", "lastName": "Dragon"}));
        let name = json!({"first": "Robot", "last": "Dragon", "lastUpper": "DRAGON"});
        assert_eq!(
            alice.read("v2"),
            json!({"name": name, "someNewField": {"hello": "world"}}),
            "{storage}"
        );

        let just_bob = create(&bundle, "v1", json!({"firstName": "Bob"}));
        assert_eq!(just_bob.read("v2"), json!({"name": {"first": "Bob"}}), "{storage}");
    }
}
