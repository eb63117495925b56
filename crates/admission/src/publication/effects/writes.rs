//! Effects on what clients write: what they see in one version after the release, written there,
//! and what each other version shows of that by the rules of before and of after.

use super::{
    Generation,
    compare::{Differing, added, differing},
    names,
};
use insula_api::Json;
use insula_catalog::Api;
use insula_conversion::{ConvertError, object_budget};
use insula_meter::Meter;

/// An object as a version shows it after the release, with the differences from before.
pub(super) struct Shown<'v> {
    pub(super) version: &'v str,
    pub(super) object: Json,
    pub(super) differing: Vec<Differing>,
}

impl Generation {
    /// Examines writes in each version that shows an object, where the rules to another one are
    /// others than before. What differs in a view already is told by that.
    pub(super) fn writes(&mut self, views: &[Shown<'_>], reached: &mut Vec<usize>) {
        for written in views {
            for shown in views {
                let pair = (written.version, shown.version);
                let rules = |api: &Api| api.bundle.rules_between(pair.0, pair.1);
                if pair.0 != pair.1 && rules(&self.before) != rules(&self.after) {
                    self.write(written, shown, reached);
                }
            }
        }
    }

    fn write(&mut self, written: &Shown<'_>, shown: &Shown<'_>, reached: &mut Vec<usize>) {
        let (from, to) = (written.version, shown.version);
        let schemas = (self.before.bundle.schema(from), self.before.bundle.schema(to));
        let shown_after = self.after.bundle.schema(to).cloned();
        let (Some(written_before), Some(shown_before), Some(shown_after)) = (schemas.0, schemas.1, shown_after) else {
            return;
        };
        let mut known = written.object.clone();
        insula_schema::prune(&mut known, written_before);
        // What nobody could write before is no concern of the release.
        let Ok(was) = converted(&self.before, &known, to, &self.meter) else {
            return;
        };
        let is = match converted(&self.after, &written.object, to, &self.meter) {
            Ok(is) => is,
            Err(error) => {
                let field = error.rule.as_ref().map_or("", |rule| &rule.source);
                reached.extend(self.effect_at(names::VALUE_REFUSED, from, field, &error.to_string()));
                return;
            }
        };
        let added = added(&was, &is, shown_after.root());
        for (kind, path) in differing(&was, &is, shown_before.root()).into_iter().chain(added) {
            if shown.differing.iter().any(|(_, known)| *known == path) {
                continue;
            }
            let (kind, rule) = match kind {
                names::VALUE_HIDDEN => (names::WRITE_HIDDEN, "no rule"),
                names::VALUE_ADDED => (names::WRITE_ADDED, "a rule"),
                _ => (names::WRITE_CHANGED, "another rule"),
            };
            let why = format!("{rule} brings what is written in {from}");
            reached.extend(self.effect_at(kind, to, &path, &why));
        }
    }
}

/// Converts what a client writes to another version.
fn converted(api: &Api, object: &Json, to: &str, meter: &Meter) -> Result<Json, ConvertError> {
    let mut made = api.bundle.convert(object, to, &mut object_budget(meter))?;
    if let Some(schema) = api.bundle.schema(to) {
        insula_schema::prune(&mut made, schema);
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use crate::publication::{Manifest, effects::Generation, publish};
    use insula_api::{Object, names::effects as names};
    use insula_catalog::Api;
    use insula_conversion::{Bundle, unmetered_budget};
    use insula_meter::Meter;
    use serde_json::{Value as Json, json};
    use std::sync::Arc;

    fn rule(source: &str, destination: &str) -> Json {
        json!({"field": source, "destination": destination})
    }

    fn computed(expression: &str) -> Json {
        json!({"field": ".spec.size", "destination": ".spec.size", "transformation": expression, "mayFail": true})
    }

    fn direction(from: &str, to: &str, rules: &[Json]) -> Json {
        json!({"from": from, "to": to, "rules": rules})
    }

    /// Compiles gadgets: v1 has a text and a label, v2 a number and a tag.
    fn gadgets(conversions: &[Json]) -> Arc<Api> {
        let version = |name: &str, size: &str, other: &str| {
            let text = json!({"type": "string"});
            let mut fields = json!({"size": {"type": size}, "color": text, other: text});
            if name == "v2" {
                fields["rk"] = text;
            }
            let spec = json!({"type": "object", "properties": fields});
            json!({"name": name, "served": true, "storage": name == "v1",
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
        };
        let versions = [version("v1", "string", "label"), version("v2", "integer", "tag")];
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "gadgets.example.io"}, "spec": {"group": "example.io", "scope": "Cluster",
                "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
                "versions": versions}});
        let rules = json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion",
            "metadata": {"name": "gadgets.example.io"}, "spec": {"conversions": conversions}});
        let published = publish(Manifest {
            schema: &definition,
            conversion: Some(&rules),
            meter: &Meter::unbounded(),
        });
        Arc::new(published.compile().expect("the definition is right"))
    }

    fn there(rules: &[Json]) -> Json {
        direction("v1", "v2", rules)
    }

    fn back(rules: &[Json]) -> Json {
        direction("v2", "v1", rules)
    }

    fn whole() -> [Json; 2] {
        [
            there(&[computed("int(self)"), rule(".spec.label", ".spec.tag")]),
            back(&[computed("string(self)"), rule(".spec.tag", ".spec.label")]),
        ]
    }

    /// Stores an object that is written in a version.
    fn write(bundle: &Bundle, version: &str, spec: Json) -> (Object, Json) {
        let object = json!({"apiVersion": format!("example.io/{version}"), "kind": "Gadget",
            "metadata": {"name": "main", "labels": {"rack": "7", "own": "x"}}, "spec": spec});
        let made = bundle
            .put(&object, version, None, &mut unmetered_budget())
            .expect("it is written");
        let value = made.value.clone();
        (
            Object::new(&value, made.residual.map(Vec::into_boxed_slice)).expect("an object"),
            value,
        )
    }

    /// Returns the effects of other rules on gadgets that were written in either version.
    fn effects(after: &[Json]) -> Vec<String> {
        effects_between(&whole(), after)
    }

    fn effects_between(before: &[Json], after: &[Json]) -> Vec<String> {
        let (before, after) = (gadgets(before), gadgets(after));
        let objects = [
            ("v1", json!({"size": "3", "label": "L", "color": "red"})),
            ("v2", json!({"size": 3, "tag": "T", "color": "red"})),
        ];
        let mut effects = Generation::new(&before, &after, &Meter::unbounded());
        let mut all = Vec::new();
        for (version, spec) in objects {
            let (object, value) = write(&before.bundle, version, spec);
            let mut unreadable = None;
            let reached = effects.of_object(&object, &value, &mut unreadable);
            assert!(unreadable.is_none(), "{unreadable:?}");
            all.extend(reached.into_iter().map(|index| effects.found[index].id()));
        }
        all.sort_unstable();
        all.dedup();
        all.iter().map(|id| id.replace("gadgets.example.io/", "")).collect()
    }

    #[test]
    fn rules_that_stay_have_no_effect() {
        assert_eq!(effects(&whole()), [""; 0]);
        let [there, back] = whole();
        assert_eq!(effects(&[back, there]), [""; 0]);
    }

    #[test]
    fn a_direction_that_goes_hides_what_is_written() {
        let [there, back] = whole();
        let hidden = |version: &str, field: &str| format!("write-hidden:{version}:.spec.{field}");
        assert_eq!(effects(&[there]), [hidden("v1", "label"), hidden("v1", "size")]);
        // What v2 shows no longer is told as that.
        assert_eq!(
            effects(&[back]),
            ["value-hidden:v2:.spec.size", "value-hidden:v2:.spec.tag"]
        );
    }

    #[test]
    fn a_rule_that_goes_hides_what_is_written() {
        let [first, _] = whole();
        let without_tag = [first, back(&[computed("string(self)")])];
        assert_eq!(effects(&without_tag), ["write-hidden:v1:.spec.label"]);
    }

    #[test]
    fn another_rule_changes_what_is_written() {
        let [first, _] = whole();
        let other = [
            first,
            back(&[computed("string(self * 2)"), rule(".spec.tag", ".spec.label")]),
        ];
        assert_eq!(effects(&other), [format!("{}:v1:.spec.size", names::WRITE_CHANGED)]);
    }

    /// From rules for the size alone to the whole ones.
    #[test]
    fn a_rule_that_gives_a_value_is_told() {
        let size = [there(&[computed("int(self)")]), back(&[computed("string(self)")])];
        let told = effects_between(&size, &whole());
        let added =
            |version: &str, field: &str| ["value", "write"].map(|what| format!("{what}-added:{version}:.spec.{field}"));
        let mut want = [added("v1", "label"), added("v2", "tag")].concat();
        want.sort_unstable();
        assert_eq!(told, want);
        let given = json!({"field": ".spec.color", "destination": ".spec.rk", "transformation": "self + '!'"});
        let [mut first, second] = whole();
        first["rules"].as_array_mut().unwrap().push(given);
        let told = effects(&[first, second]);
        assert!(told.contains(&"value-added:v2:.spec.rk".to_owned()), "{told:?}");
    }

    #[test]
    fn a_label_that_is_moved_is_hidden() {
        let [mut first, mut second] = whole();
        let both = [
            (&mut first, ".metadata.labels.rack", ".spec.rk"),
            (&mut second, ".spec.rk", ".metadata.labels.rack"),
        ];
        for (direction, source, destination) in both {
            direction["rules"]
                .as_array_mut()
                .unwrap()
                .push(rule(source, destination));
        }
        let hidden = effects(&[first, second]);
        assert!(
            hidden.contains(&"value-hidden:v2:.metadata.labels.rack".to_owned()),
            "{hidden:?}"
        );
        assert!(!hidden.iter().any(|id| id.contains("own")), "{hidden:?}");
    }
}
