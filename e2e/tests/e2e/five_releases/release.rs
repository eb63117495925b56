//! The releases of engines.

use serde_json::{Value, json};

use super::{API, GROUP};

/// Reads every text.
pub(super) const FORGIVING: &str = "self.matches('^[0-9]{1,9}$') ? int(self) : 0";

/// One release: v1 has a text as size, v2 a number and another name for the tag, v1beta1 is shaped
/// as v1.
#[derive(Clone)]
pub(super) struct Release {
    /// Fields of all versions beside the size.
    fields: Value,
    required: Value,
    /// Presence of v1beta1, and whether it is served.
    beta: Option<bool>,
    /// Scale and a column of v1.
    scale: bool,
    rules: Value,
}

pub(super) fn direction(from: &str, to: &str, rules: &[Value]) -> Value {
    json!({"from": from, "to": to, "rules": rules})
}

pub(super) fn size(expression: &str) -> Value {
    json!({"field": ".spec.size", "destination": ".spec.size", "transformation": expression, "mayFail": true})
}

/// The rule for the tag of v1, which is the mark of v2.
pub(super) fn tag(from: &str, to: &str) -> Value {
    json!({"field": format!(".spec.{from}"), "destination": format!(".spec.{to}")})
}

pub(super) fn both_ways(expression: &str) -> Value {
    json!([
        direction("v1", "v2", &[size(expression), tag("tag", "mark")]),
        direction("v2", "v1", &[size("string(self)"), tag("mark", "tag")])
    ])
}

impl Release {
    pub(super) fn first() -> Release {
        Release {
            fields: json!({
                "backup": {"type": "object", "properties": {"at": {"type": "string"}}},
                "mode": {"type": "string", "enum": ["Fast", "Slow"]},
                "count": {"type": "integer"},
                "port": {"type": "integer"},
                "note": {"type": "string"},
                "level": {"type": "integer"},
                "replicas": {"type": "integer"},
            }),
            required: json!([]),
            beta: Some(true),
            scale: true,
            rules: both_ways(FORGIVING),
        }
    }

    /// Loses a field, a version, the scale and a column; an absent level is read as 1.
    pub(super) fn second() -> Release {
        let mut release = Release::first();
        release.fields.as_object_mut().unwrap().remove("backup");
        release.fields["level"]["default"] = json!(1);
        Release {
            beta: None,
            scale: false,
            ..release
        }
    }

    /// Stops to serve v1beta1, and has a column less.
    pub(super) fn unserved() -> Release {
        Release {
            beta: Some(false),
            ..Release::first()
        }
    }

    /// Takes a value out of an enumeration, narrows a bound, changes a type and a default, and
    /// requires a field.
    pub(super) fn third() -> Release {
        let mut release = Release::second();
        release.fields["mode"]["enum"] = json!(["Fast"]);
        release.fields["count"]["maximum"] = json!(24);
        release.fields["port"]["type"] = json!("string");
        release.fields["level"]["default"] = json!(2);
        release.required = json!(["note"]);
        release
    }

    pub(super) fn with_rules(rules: Value) -> Release {
        let release = Release::third();
        Release { rules, ..release }
    }

    pub(super) fn documents(&self) -> (Value, Value) {
        let version = |name: &str, size: &str| {
            let mut properties = self.fields.clone();
            properties["size"] = json!({"type": size});
            properties[if name == "v2" { "mark" } else { "tag" }] = json!({"type": "string"});
            let spec = json!({"type": "object", "properties": properties, "required": self.required});
            let status = json!({"type": "object", "properties": {"replicas": {"type": "integer"}}});
            let schema = json!({"type": "object", "properties": {"spec": spec, "status": status}});
            let mut version = json!({"name": name, "served": true, "storage": name == "v1",
                "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema}});
            if self.scale && name == "v1" {
                version["subresources"]["scale"] =
                    json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
                version["additionalPrinterColumns"] =
                    json!([{"name": "Size", "type": "string", "jsonPath": ".spec.size"}]);
            }
            version
        };
        let mut versions = vec![version("v1", "string"), version("v2", "integer")];
        if let Some(served) = self.beta {
            let mut beta = version("v1beta1", "string");
            beta["served"] = json!(served);
            versions.push(beta);
        }
        let names = json!({"plural": "engines", "kind": "Engine"});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": API},
            "spec": {"group": GROUP, "scope": "Cluster", "names": names, "versions": versions}});
        let rules = json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion",
            "metadata": {"name": API}, "spec": {"conversions": self.rules}});
        (definition, rules)
    }
}
