//! Retirement of owners in versions that are no longer served: nobody can write through those
//! again, so that their fields are translated to a served version.
//!
//! A manager is assumed to have applied, in the served version, the conversion of its part of the
//! object:
//!
//! ```text
//! v1  manager owns spec.size     part {spec: {size: 1}}  →  v2 {spec: {bytes: 1, unit: default}}
//! v2  without spec.size: spec.bytes differs              →  manager owns spec.bytes
//! ```
//! Both conditions count: by the part alone, the manager would own defaults that nobody set; by the
//! difference alone, fields of others within an item.

use super::change::without_own;
use super::managers::{Entry, Manager, Managers, Operation};
use super::{Shape, Versions};
use crate::fields::FieldSet;
use crate::typed::{compare, fields_of, remove, with_named};
use insula_api::Json;

/// An object whose owners move to another version.
#[derive(Clone, Copy)]
pub struct Retirement<'a> {
    /// The object in the target version, without `managedFields`.
    pub live: &'a Json,
    /// The target version.
    pub to: &'a str,
    /// Conversion of whole objects.
    pub whole: &'a dyn Versions,
    /// Conversion of parts of the object.
    pub parts: &'a dyn Versions,
}

/// Translates to `to` the fields owned in versions that are no longer served. Drops owners in
/// versions that do not exist any more, as any write does; owners whose part cannot be converted
/// stay as they are.
pub fn retire(managers: Managers, is_served: impl Fn(&str) -> bool, retirement: &Retirement<'_>) -> Managers {
    let Some(target) = retirement.whole.shape(retirement.to) else {
        return managers;
    };
    let mut kept = Managers::default();
    for (manager, entry) in managers.0 {
        if *entry.api_version == *retirement.to || is_served(&entry.api_version) {
            join(&mut kept, manager, entry);
            continue;
        }
        let Some(shape) = retirement.whole.shape(&entry.api_version) else {
            continue;
        };
        let Ok(mut fields) = retirement.translated(shape, target, &entry) else {
            join(&mut kept, manager, entry);
            continue;
        };
        without_own(&mut fields);
        if fields.is_empty() {
            continue;
        }
        let manager = Manager {
            api_version: match manager.operation {
                Operation::Update => retirement.to.into(),
                Operation::Apply => manager.api_version,
            },
            ..manager
        };
        let entry = Entry {
            api_version: retirement.to.into(),
            fields,
            time: entry.time,
        };
        join(&mut kept, manager, entry);
    }
    kept.cap();
    kept
}

/// Adds an entry; a manager with updates through both versions becomes one.
fn join(managers: &mut Managers, manager: Manager, entry: Entry) {
    match managers.0.get_mut(&manager) {
        Some(known) => {
            known.fields.unite(entry.fields);
            known.time = known.time.max(entry.time);
        }
        None => drop(managers.0.insert(manager, entry)),
    }
}

impl Retirement<'_> {
    fn translated(&self, shape: Shape<'_>, target: Shape<'_>, entry: &Entry) -> Result<FieldSet, String> {
        let from = &*entry.api_version;
        let seen = self.whole.convert(self.live, self.to, from)?;
        let mut others = with_named(shape, fields_of(shape, &seen));
        others.subtract(&with_named(shape, entry.fields.clone()));
        let mut part = remove(shape, &seen, &others);
        for field in ["apiVersion", "kind"] {
            part[field] = seen[field].clone();
        }
        let part = self.parts.convert(&part, from, self.to)?;
        let translated = fields_of(target, &part).intersection(&fields_of(target, self.live));
        // Where the object is invalid without the part, the manager owns all of it.
        let rest = self.whole.convert(&remove(shape, &seen, &entry.fields), from, self.to);
        Ok(rest.map_or(translated.clone(), |rest| {
            compare(target, &rest, self.live).touched(&translated)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use insula_schema::Structural;
    use serde_json::json;

    /// Two versions: `old` has `size` where `new` has `bytes` and a unit with a default; `gone`
    /// does not exist any more. Whole objects keep a note that `old` does not show.
    struct Two {
        old: Structural,
        new: Structural,
        note: Option<&'static str>,
    }

    fn two(note: Option<&'static str>) -> Two {
        let schema = |number: &str, unit: serde_json::Value| {
            Structural::parse_trusted(&json!({"type": "object", "properties": {"spec": {"type": "object",
                "properties": {
                number: {"type": "integer"}, "colour": {"type": "string"}, "unit": unit, "note": {"type": "string"},
                "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"],
                    "items": {"type": "object", "properties": {"port": {"type": "integer"},
                        "name": {"type": "string"}}}},
            }}}}))
            .expect("a schema")
        };
        Two {
            old: schema("size", json!({"type": "string"})),
            new: schema("bytes", json!({"type": "string", "default": "B"})),
            note,
        }
    }

    impl Versions for Two {
        fn shape(&self, api_version: &str) -> Option<Shape<'_>> {
            match api_version {
                "g/old" => Some(Shape::for_schema(&self.old)),
                "g/new" => Some(Shape::for_schema(&self.new)),
                _ => None,
            }
        }

        fn convert(&self, object: &Json, from: &str, to: &str) -> Result<Json, String> {
            let mut out = object.clone();
            out["apiVersion"] = json!(to);
            let (a, b) = if to == "g/new" {
                ("size", "bytes")
            } else {
                ("bytes", "size")
            };
            if let (true, Some(spec)) = (from != to, out.get_mut("spec").and_then(Json::as_object_mut)) {
                if let Some(number) = spec.remove(a) {
                    spec.insert(b.into(), number);
                }
                if to == "g/new" {
                    spec.entry("unit").or_insert(json!("B"));
                    spec.extend(self.note.map(|note| ("note".to_owned(), json!(note))));
                } else {
                    spec.remove("unit");
                    spec.remove("note");
                }
            }
            Ok(out)
        }
    }

    fn owner(name: &str, operation: &str, version: &str, fields: Json) -> Json {
        json!({"apiVersion": version, "fieldsType": "FieldsV1", "fieldsV1": fields, "manager": name,
            "operation": operation})
    }

    fn check(owners: Json, want: Json) {
        let live = json!({"apiVersion": "g/new", "kind": "K", "metadata": {"labels": {"a": "b"}}, "spec": {
            "bytes": 1, "colour": "red", "unit": "B", "note": "kept", "ports": [{"port": 1, "name": "web"}]}});
        let (whole, parts) = (two(Some("kept")), two(None));
        let retirement = Retirement {
            live: &live,
            to: "g/new",
            whole: &whole,
            parts: &parts,
        };
        let managers = Managers::read(&owners).expect("a list of owners");
        let translated = retire(managers, |version| version == "g/new", &retirement);
        assert_eq!(translated.to_json(), want);
    }

    #[test]
    fn what_was_applied_is_told_in_the_version_that_lives() {
        check(
            json!([
                owner(
                    "a",
                    "Apply",
                    "g/old",
                    json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:size": {}}})
                ),
                owner("b", "Apply", "g/new", json!({"f:spec": {"f:colour": {}}})),
                owner("c", "Apply", "g/gone", json!({"f:spec": {"f:colour": {}}})),
            ]),
            json!([
                owner(
                    "a",
                    "Apply",
                    "g/new",
                    json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:bytes": {}}})
                ),
                owner("b", "Apply", "g/new", json!({"f:spec": {"f:colour": {}}})),
            ]),
        );
    }

    #[test]
    fn who_updates_through_both_is_one_and_items_are_shared_as_before() {
        check(
            json!([
                owner("a", "Update", "g/new", json!({"f:spec": {"f:unit": {}}})),
                owner("a", "Update", "g/old", json!({"f:spec": {"f:size": {}}})),
                owner(
                    "b",
                    "Update",
                    "g/old",
                    json!({"f:spec": {"f:ports": {"k:{\"port\":1}": {".": {}, "f:port": {}}}}})
                ),
            ]),
            json!([
                owner("a", "Update", "g/new", json!({"f:spec": {"f:bytes": {}, "f:unit": {}}})),
                owner(
                    "b",
                    "Update",
                    "g/new",
                    json!({"f:spec": {"f:ports": {"k:{\"port\":1}": {".": {}, "f:port": {}}}}})
                ),
            ]),
        );
    }
}
