//! Disks of two versions, with wrong and right rules between them, and the store of one.

use insula_api::FieldPath;
use insula_conversion::{
    Bundle, LossPolicy, Step, Stored, ToStore, VersionSchema, Writer, Written, parse_rules, unmetered_budget, written,
};
use insula_schema::Structural;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

pub(crate) fn version(name: &str, fields: Json) -> VersionSchema {
    let part = json!({"type": "object", "properties": fields});
    let schema = json!({"type": "object", "properties": {"spec": part, "status": part}});
    VersionSchema {
        name: name.to_owned(),
        served: true,
        schema: Structural::parse_trusted(&schema).expect("a schema").into(),
    }
}

/// v1 has a size in gibibytes as text, v2 bytes; `owner` becomes `team`; `color` is only in v2.
pub(crate) fn bundle(to: &str, back: &str) -> Bundle {
    stored_in("v2", to, back)
}

pub(crate) fn stored_in(storage: &str, to: &str, back: &str) -> Bundle {
    let (text, number) = (json!({"type": "string"}), json!({"type": "integer"}));
    let versions = vec![
        version("v1", json!({"size": text, "owner": text, "note": text})),
        version(
            "v2",
            json!({"bytes": number, "team": text, "note": text, "color": text}),
        ),
    ];
    let rules = json!({"conversions": [
        {"from": "v1", "to": "v2", "rules": [
            {"field": ".spec.size", "destination": ".spec.bytes", "transformation": to, "mayFail": true},
            {"field": ".spec.owner", "destination": ".spec.team"}]},
        {"from": "v2", "to": "v1", "rules": [
            {"field": ".spec.bytes", "destination": ".spec.size", "transformation": back},
            {"field": ".spec.team", "destination": ".spec.owner"}]}]});
    let path = FieldPath::new("spec");
    let rules = parse_rules(&rules, &path).expect("rules");
    Bundle::compile("e.io", versions, storage, Some(&rules), LossPolicy::Lossless, &path).expect("compiles")
}

pub(crate) const UP: &str = "int(self.replace('Gi', '')) * 1073741824";
pub(crate) const DOWN: &str = "string(self / 1073741824) + 'Gi'";
pub(crate) const WRONG_UP: &str = "int(self.replace('Gi', '')) * 1000";
pub(crate) const WRONG_DOWN: &str = "string(self / 1000) + 'Gi'";

pub(crate) fn wrong() -> Bundle {
    bundle(WRONG_UP, WRONG_DOWN)
}

pub(crate) fn right() -> Bundle {
    bundle(UP, DOWN)
}

/// An object with its field owners, by version.
pub(crate) struct Store {
    pub(crate) stored: ToStore,
    pub(crate) owned: BTreeMap<&'static str, Vec<&'static str>>,
}

pub(crate) fn object(version: &str, spec: Json, owned: &BTreeMap<&'static str, Vec<&'static str>>) -> Json {
    let owners = owned.iter().map(|(version, fields)| {
        let fields = if fields.is_empty() {
            json!({"f:metadata": {}})
        } else {
            json!({"f:spec": {}})
        };
        json!({"apiVersion": format!("e.io/{version}"), "fieldsV1": fields})
    });
    let owners: Vec<Json> = owners.collect();
    json!({"apiVersion": format!("e.io/{version}"), "kind": "Disk",
        "metadata": {"name": "a", "managedFields": owners}, "spec": spec})
}

impl Store {
    pub(crate) fn create(by: &Bundle, version: &'static str, spec: Json, owned: &[&'static str]) -> Store {
        let owned = BTreeMap::from([(version, owned.to_vec())]);
        let x = object(version, spec, &owned);
        let stored = by.put(&x, version, None, &mut unmetered_budget()).expect("stores");
        Store { stored, owned }
    }

    pub(crate) fn stored(&self) -> Stored<'_> {
        let api_version = self.stored.value["apiVersion"].as_str().expect("is set");
        self.stored.stored(insula_api::names::version_of(api_version))
    }

    /// Moves the object to the storage version of a release.
    pub(crate) fn moved(mut self, by: &Bundle) -> Store {
        let x = by
            .get(self.stored(), by.storage(), &mut unmetered_budget())
            .expect("reads");
        let stored = by.put(&x, by.storage(), Some(self.stored()), &mut unmetered_budget());
        self.stored = stored.expect("moves");
        self
    }

    pub(crate) fn spec(&self, by: &Bundle, version: &str) -> Json {
        by.get(self.stored(), version, &mut unmetered_budget()).expect("reads")["spec"].clone()
    }

    /// Writes fields through a version, which owns them from then on.
    pub(crate) fn edit(
        &mut self,
        by: &Bundle,
        version: &'static str,
        fields: Json,
        owned: &[&'static str],
        lost: &[&'static str],
    ) {
        let mut spec = self.spec(by, version);
        for (name, value) in fields.as_object().expect("fields") {
            spec[name] = value.clone();
        }
        self.owned
            .values_mut()
            .for_each(|paths| paths.retain(|path| !lost.contains(path)));
        self.owned.entry(version).or_default().extend(owned);
        let x = object(version, spec, &self.owned);
        self.stored = by
            .put(&x, version, Some(self.stored()), &mut unmetered_budget())
            .expect("stores");
    }

    pub(crate) fn recompute(&mut self, by: &Bundle, former: &Bundle) -> (Vec<String>, Vec<String>) {
        let owns = |version: &str, path: &[Step<'_>]| {
            let path: Vec<&str> = path
                .iter()
                .filter_map(|step| match step {
                    Step::Field(name) => Some(*name),
                    Step::Item(..) => None,
                })
                .collect();
            self.owned
                .get(version)
                .is_some_and(|owned| owned.contains(&path.join(".").as_str()))
        };
        let writers = [Writer {
            version: "v1",
            rules: former,
        }];
        let done = by
            .recompute(self.stored(), &writers, &owns, &mut unmetered_budget())
            .expect("recomputes");
        let text = |all: &[insula_conversion::Difference]| -> Vec<String> {
            let one = |it: &insula_conversion::Difference| {
                let value = |value: &Option<Json>| value.as_ref().map_or("-".to_owned(), Json::to_string);
                format!("{} {}: {} -> {}", it.version, it.path, value(&it.was), value(&it.is))
            };
            all.iter().map(one).collect()
        };
        let told = (text(&done.changes), text(&done.kept));
        self.stored = done.stored;
        told
    }

    pub(crate) fn record(&self) -> Written {
        written(self.stored.residual.as_deref()).expect("reads")["v1"]
    }
}

pub(crate) fn written_by(store: &Store) -> Vec<String> {
    let records = written(store.stored.residual.as_deref()).expect("reads");
    records.into_keys().collect()
}
