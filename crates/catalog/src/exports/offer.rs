//! Parsed APIExports and APIBindings, cached with their stored objects.

use insula_api::{Json, LabelSelector, Labels, Object, Verb};
use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
};

/// Groups and names of events, which are the same objects.
const EVENTS: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];

/// The resources that an APIExport offers and its permission claims.
#[derive(Debug)]
pub struct ExportOffer {
    /// Identity hash; empty until the export has one.
    pub(crate) identity: String,
    pub(crate) resources: Vec<Offered>,
    pub(crate) claims: Vec<Terms>,
}

/// A resource of an APIExport.
#[derive(Debug)]
pub(crate) struct Offered {
    pub(crate) group: String,
    pub(crate) resource: String,
    /// Name of the resource's APIResourceSchema.
    pub(crate) schema: String,
}

/// The resource and verbs of a permission claim.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) group: String,
    pub(crate) resource: String,
    /// Identity of the claimed resource's export; empty for built-in kinds.
    pub(crate) identity: String,
    pub(crate) verbs: BTreeSet<String>,
}

/// An APIBinding.
#[derive(Debug)]
pub struct Binding {
    /// Cluster of the export, from the binding's status.
    pub(crate) cluster: String,
    pub(crate) export: String,
    /// Permission claims that the consumer accepted.
    pub(crate) accepted: Vec<(Terms, Selection)>,
    /// Names of the bound APIResourceSchemas.
    pub(crate) schemas: BTreeSet<String>,
}

/// The objects of an accepted permission claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selection {
    selector: LabelSelector,
    /// Required labels with their values.
    labels: BTreeMap<String, String>,
}

fn text(of: &Json, field: &str) -> String {
    of[field].as_str().unwrap_or_default().to_owned()
}

fn list(of: &Json) -> impl Iterator<Item = &Json> {
    of.as_array().into_iter().flatten()
}

impl ExportOffer {
    pub(crate) fn read(value: &Json) -> ExportOffer {
        let resource = |resource: &Json| Offered {
            group: text(resource, "group"),
            resource: text(resource, "name"),
            schema: text(resource, "schema"),
        };
        ExportOffer {
            identity: text(&value["status"], "identityHash"),
            resources: list(&value["spec"]["resources"]).map(resource).collect(),
            claims: list(&value["spec"]["permissionClaims"]).map(Terms::read).collect(),
        }
    }
}

impl Terms {
    fn read(claim: &Json) -> Terms {
        Terms {
            group: text(claim, "group"),
            resource: text(claim, "resource"),
            identity: text(claim, "identityHash"),
            verbs: list(&claim["verbs"])
                .filter_map(Json::as_str)
                .map(str::to_owned)
                .collect(),
        }
    }

    /// Returns true if the claim covers a resource. Events of both groups are the same objects, and
    /// programs of Kubernetes write the ones and claim the others.
    pub(crate) fn covers(&self, group: &str, resource: &str) -> bool {
        let is_event = |group: &str| EVENTS.contains(&(group, resource));
        self.resource == resource && (self.group == group || is_event(&self.group) && is_event(group))
    }

    /// Returns the names of the resources that the claim covers.
    pub(crate) fn covered(&self) -> impl Iterator<Item = (&str, &str)> {
        let others = EVENTS.into_iter().filter(|(group, _)| *group != self.group);
        let others = others.filter(|(group, resource)| self.covers(group, resource));
        iter::once((&*self.group, &*self.resource)).chain(others)
    }

    /// Returns true if both name the same resource of the same API.
    pub(crate) fn is_about(&self, other: &Terms) -> bool {
        self.group == other.group && self.resource == other.resource && self.identity == other.identity
    }

    /// Returns true if both sides allow a verb. As in kcp, `*` counts only if both sides contain
    /// it: a wider permission on one side takes effect only after the other side follows.
    pub(crate) fn agree_on(&self, other: &Terms, verb: Option<Verb>) -> bool {
        let both = |name: &str| self.verbs.contains(name) && other.verbs.contains(name);
        verb.is_some_and(|verb| both(verb.name())) || both("*")
    }
}

impl Binding {
    /// Reads an APIBinding.
    pub fn read(object: &Object) -> Binding {
        let value = object.body_value();
        let accepted = list(&value["spec"]["permissionClaims"]).filter(|claim| claim["state"] == "Accepted");
        Binding {
            cluster: text(&value["status"], "apiExportClusterName"),
            export: text(&value["spec"]["reference"]["export"], "name"),
            schemas: list(&value["status"]["boundResources"])
                .map(|bound| text(&bound["schema"], "name"))
                .collect(),
            accepted: accepted
                .filter_map(|claim| Some((Terms::read(claim), Selection::read(&claim["selector"])?)))
                .collect(),
        }
    }
}

impl Selection {
    /// Reads the selector of an accepted claim. Returns None for a malformed selector, and for an
    /// empty one without `matchAll`.
    fn read(selector: &Json) -> Option<Selection> {
        let selected = LabelSelector::from_json(selector).ok()?;
        if selected.is_empty() && selector["matchAll"] != true {
            return None;
        }
        let labels = selector["matchLabels"].as_object().into_iter().flatten();
        Some(Selection {
            selector: selected,
            labels: labels
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect(),
        })
    }

    pub(crate) fn matches(&self, labels: &Labels) -> bool {
        self.selector.matches(labels)
    }

    /// Adds the required labels to an object.
    ///
    /// # Errors
    /// The object has another value for a required label, or the selector does not match it.
    pub(crate) fn keep(&self, object: &mut Json) -> Result<(), String> {
        for (key, wanted) in &self.labels {
            if !object["metadata"]["labels"].is_object() {
                object["metadata"]["labels"] = Json::Object(serde_json::Map::new());
            }
            let labels = &mut object["metadata"]["labels"];
            match labels.get(key).and_then(Json::as_str) {
                None => labels[key] = Json::String(wanted.clone()),
                Some(value) if value == wanted => {}
                Some(_) => return Err(format!("protected label {key} must have value {wanted}")),
            }
        }
        let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
        let labels: Labels = labels
            .filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into())))
            .collect();
        match self.selector.matches(&labels) {
            true => Ok(()),
            false => Err(format!(
                "the permission claim was accepted for objects with labels {}: keep them so",
                self.selector
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn verbs_hold_where_both_say_them() {
        let terms = |verbs: &[&str]| Terms {
            group: String::new(),
            resource: "configmaps".into(),
            identity: String::new(),
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        };
        let rows: [(&[&str], &[&str], &str, bool); 6] = [
            (&["get", "list"], &["get"], "get", true),
            (&["get", "list"], &["get"], "list", false),
            (&["*"], &["*"], "delete", true),
            (&["*"], &["get"], "get", false),
            (&["get"], &["*"], "get", false),
            (&["*", "get"], &["get"], "get", true),
        ];
        for (exported, accepted, verb, holds) in rows {
            let (exported, accepted) = (terms(exported), terms(accepted));
            assert_eq!(
                exported.agree_on(&accepted, Verb::named(verb)),
                holds,
                "{exported:?} {accepted:?} {verb}"
            );
        }
    }

    #[test]
    fn selected_objects_stay_selected() {
        let rows = [
            (json!({"matchAll": true}), json!({}), Ok(json!({}))),
            (
                json!({"matchLabels": {"share": "yes"}}),
                json!({"a": "b"}),
                Ok(json!({"a": "b", "share": "yes"})),
            ),
            (
                json!({"matchLabels": {"share": "yes"}}),
                json!({"share": "no"}),
                Err("protected label share must have value yes".to_owned()),
            ),
            (
                json!({"matchExpressions": [{"key": "env", "operator": "In", "values": ["a", "b"]}]}),
                json!({"env": "c"}),
                Err("the permission claim was accepted for objects with labels env in (a,b): keep them so".to_owned()),
            ),
        ];
        for (selector, labels, want) in rows {
            let mut object = json!({"metadata": {"labels": labels}});
            let kept = Selection::read(&selector).expect("selects").keep(&mut object);
            let got = kept.map(|()| object["metadata"]["labels"].clone());
            assert_eq!(got, want, "{selector}");
        }
        assert_eq!(Selection::read(&json!({})), None, "nothing said is nothing accepted");
        assert_eq!(Selection::read(&json!({"matchLabels": {}})), None);
    }
}
