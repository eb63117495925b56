//! The rules of `metadata`, the same for every resource, with the messages of Kubernetes.

use insula_api::{FieldError, FieldPath, Json, Rng, names::labels::CLAIMED_PREFIX};
use insula_catalog::{Served, ids, names};
use serde_json::{Map, json};

/// The finalizer of an object whose dependents are orphaned first.
pub const ORPHAN: &str = "orphan";
/// The finalizer of an object whose dependents are deleted first.
pub const FOREGROUND: &str = "foregroundDeletion";

/// Metadata fields that a client may send; all else is unknown.
const FIELDS: &[&str] = &[
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Fields of an owner reference, in the order in which Kubernetes prints them.
const OWNER_FIELDS: &[&str] = &["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];

/// Finalizers that Kubernetes itself uses.
const OWN_FINALIZERS: &[&str] = &[ORPHAN, FOREGROUND, "kubernetes"];

/// Drops the labels that an object is only shown with: providers send objects back as they see
/// them.
pub(crate) fn drop_shown_labels(object: &mut Json) {
    if let Some(Json::Object(metadata)) = object.get_mut("metadata") {
        unlabel(metadata);
    }
}

fn unlabel(metadata: &mut Map<String, Json>) {
    let Some(Json::Object(labels)) = metadata.get_mut("labels") else {
        return;
    };
    let count = labels.len();
    labels.retain(|key, _| !key.starts_with(CLAIMED_PREFIX));
    if labels.is_empty() && count > 0 {
        metadata.remove("labels");
    }
}

/// Drops unknown fields, empty fields and labels that are only shown. A Go client drops empty
/// fields whenever it writes the object again.
pub(crate) fn prune(metadata: &mut Map<String, Json>) {
    unlabel(metadata);
    let empty = |value: &Json| match value {
        Json::Null => true,
        Json::Object(map) => map.is_empty(),
        Json::Array(list) => list.is_empty(),
        Json::String(text) => text.is_empty(),
        _ => false,
    };
    metadata.retain(|field, value| FIELDS.contains(&field.as_str()) && !empty(value));
}

/// Metadata fields that Kubernetes does not know, for `fieldValidation`.
pub(crate) fn unknown(object: &Json) -> Vec<String> {
    let metadata = object["metadata"].as_object();
    let unknown = metadata
        .into_iter()
        .flatten()
        .filter(|(field, _)| !FIELDS.contains(&field.as_str()));
    unknown.map(|(field, _)| format!("metadata.{field}")).collect()
}

/// Returns a name of at most 63 characters: the prefix, cut to 58, and five random characters
/// without vowels.
pub(crate) fn generated_name(prefix: &str, rng: &dyn Rng) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut random = rng.next_u64();
    let mut name: String = prefix.chars().take(58).collect();
    for _ in 0..5 {
        name.push(LETTERS[(random % LETTERS.len() as u64) as usize] as char);
        random /= LETTERS.len() as u64;
    }
    name
}

/// Removes duplicate owner references and returns a warning that lists them.
pub(crate) fn unite_owners(metadata: &mut Map<String, Json>) -> Vec<String> {
    let Some(Json::Array(owners)) = metadata.get_mut("ownerReferences") else {
        return Vec::new();
    };
    let mut united: Vec<Json> = Vec::with_capacity(owners.len());
    let mut repeated: Vec<String> = Vec::new();
    for owner in owners.drain(..) {
        match united.contains(&owner) {
            true => repeated.push(text(&owner, "uid").to_owned()),
            false => united.push(owner),
        }
    }
    *owners = united;
    if repeated.is_empty() {
        return Vec::new();
    }
    vec![format!(
        ".metadata.ownerReferences contains duplicate entries after mutating admission happens; API server dedups \
         owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; \
         duplicate UID(s) observed: {}",
        repeated.join(", ")
    )]
}

fn text<'a>(value: &'a Json, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// Checks the metadata of an object about to be written.
pub(crate) fn validate(served: &Served, metadata: &Json, errors: &mut Vec<FieldError>) {
    let at = FieldPath::new("metadata");
    let rule = served.api.name_rule();
    let prefix = text(metadata, "generateName");
    if !prefix.is_empty() {
        // A prefix may end in `-`, which a whole name may not.
        let whole = prefix
            .strip_suffix('-')
            .map_or(prefix.to_owned(), |stem| format!("{stem}a"));
        let problems = names::name_problems(&whole, rule).into_iter();
        errors.extend(problems.map(|p| FieldError::invalid(&at.child("generateName"), &json!(prefix), p)));
    }
    names::check_name(text(metadata, "name"), rule, &at.child("name"), errors);
    names::check_labels_and_annotations(metadata, &at, errors);
    check_owners(&metadata["ownerReferences"], &at.child("ownerReferences"), errors);
    let finalizers = at.child("finalizers");
    check_finalizers(&metadata["finalizers"], &finalizers, errors);
    if has_core_validation(served) {
        for (i, finalizer) in metadata["finalizers"].as_array().into_iter().flatten().enumerate() {
            names::check_finalizer_is_qualified(finalizer, &finalizers.index(i), errors);
        }
    }
}

/// Returns true for the kinds whose metadata Kubernetes checks with
/// `pkg/apis/core/validation.ValidateObjectMeta`.
fn has_core_validation(served: &Served) -> bool {
    let group = &*served.api.group;
    served.api.strategy.traits().is_struct
        && ["", ids::RBAC, "certificates.k8s.io"].contains(&group)
        && &*served.api.names.plural != "events"
}

fn check_owners(owners: &Json, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut first: Option<&Json> = None;
    for owner in owners.as_array().into_iter().flatten() {
        let version = match text(owner, "apiVersion").split('/').collect::<Vec<_>>()[..] {
            [version] | [_, version] => version,
            // The versions of the first ThirdPartyResources, whose group is a domain:
            // `example.com/stable/v1`.
            [group, _, version] if group.contains('.') => version,
            _ => "",
        };
        let fields = [("apiVersion", version), ("kind", ""), ("name", ""), ("uid", "")];
        for (field, version) in fields {
            let (missing, why) = match field {
                "apiVersion" => (version.is_empty(), "version must not be empty"),
                _ => (text(owner, field).is_empty(), "must not be empty"),
            };
            if missing {
                errors.push(FieldError::invalid(&at.child(field), &json!(text(owner, field)), why));
            }
        }
        if text(owner, "apiVersion") == "v1" && text(owner, "kind") == "Event" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid_text(at, printed_owner(owner), why));
        }
        if owner["controller"] != true {
            continue;
        }
        match first {
            None => first = Some(owner),
            Some(first) => {
                let of = |owner: &Json| format!("{}/{}", text(owner, "kind"), text(owner, "name"));
                let why = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
                    of(first),
                    of(owner)
                );
                let all: Vec<String> = owners.as_array().into_iter().flatten().map(printed_owner).collect();
                errors.push(FieldError::invalid_text(at, format!("[{}]", all.join(",")), why));
            }
        }
    }
}

fn printed_owner(owner: &Json) -> String {
    let given = OWNER_FIELDS
        .iter()
        .filter_map(|field| Some(format!("\"{field}\":{}", owner.get(field)?)));
    format!("{{{}}}", given.collect::<Vec<_>>().join(","))
}

fn check_finalizers(finalizers: &Json, at: &FieldPath, errors: &mut Vec<FieldError>) {
    for finalizer in finalizers.as_array().into_iter().flatten() {
        let problems = names::qualified_name_problems(finalizer.as_str().unwrap_or_default());
        errors.extend(problems.into_iter().map(|p| FieldError::invalid(at, finalizer, p)));
    }
    let has = |name: &str| finalizers.as_array().is_some_and(|list| list.iter().any(|f| f == name));
    if has(ORPHAN) && has(FOREGROUND) {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(at, finalizers, why));
    }
}

/// Checks an update's changes of metadata.
pub(crate) fn validate_update(new: &Json, old: &Json, errors: &mut Vec<FieldError>) {
    let at = FieldPath::new("metadata");
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        if new.get(field) != old.get(field) {
            let value = new.get(field).unwrap_or(&Json::Null);
            errors.push(FieldError::invalid(&at.child(field), value, "field is immutable"));
        }
    }
    if old["deletionTimestamp"].is_null() {
        return;
    }
    let had = |f: &&Json| old["finalizers"].as_array().is_some_and(|list| list.contains(*f));
    let finalizers = new["finalizers"].as_array().into_iter().flatten();
    let added: Vec<String> = finalizers.filter(|f| !had(f)).map(|f| f.to_string()).collect();
    if !added.is_empty() {
        let text = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            added.join(", ")
        );
        errors.push(FieldError::forbidden(&at.child("finalizers"), text));
    }
}

/// Returns warnings about metadata that is valid but discouraged.
pub(crate) fn warnings(served: &Served, metadata: &Json) -> Vec<String> {
    // Kubernetes warns of custom resources only.
    if served.api.strategy.traits().is_struct {
        return Vec::new();
    }
    let finalizers = metadata["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Json::as_str);
    finalizers
        .filter(|finalizer| !finalizer.contains('/') && !OWN_FINALIZERS.contains(finalizer))
        .map(|finalizer| {
            format!(
                "metadata.finalizers: {finalizer:?}: prefer a domain-qualified finalizer name to avoid accidental \
                 conflicts with other finalizer writers"
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_say_nothing_are_dropped() {
        let mut metadata =
            json!({"name": "a", "labels": {}, "finalizers": [], "generateName": "", "colour": 1, "uid": null});
        prune(metadata.as_object_mut().expect("is one"));
        assert_eq!(metadata, json!({"name": "a"}));
    }

    #[test]
    fn labels_that_are_only_shown_are_dropped() {
        let claim = format!("{CLAIMED_PREFIX}x");
        for (labels, want) in [
            (json!({&*claim: "y", "a": "b"}), json!({"labels": {"a": "b"}})),
            (json!({&*claim: "y"}), json!({})),
            (json!({}), json!({"labels": {}})),
            (json!("mistyped"), json!({"labels": "mistyped"})),
        ] {
            let mut object = json!({"metadata": {"labels": labels}});
            drop_shown_labels(&mut object);
            assert_eq!(object["metadata"], want);
        }
    }

    #[test]
    fn equal_owners_are_united() {
        let owner = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name});
        let mut metadata = json!({"ownerReferences": [owner("a"), owner("b"), owner("a")]});
        let warnings = unite_owners(metadata.as_object_mut().expect("is one"));
        assert_eq!(metadata["ownerReferences"], json!([owner("a"), owner("b")]));
        assert!(warnings[0].ends_with("duplicate UID(s) observed: a"), "{warnings:?}");
    }

    #[test]
    fn owners_and_finalizers_are_refused_in_kubernetes_words() {
        let owner = |version: &str, kind: &str| {
            let mut owner = json!({"apiVersion": version, "kind": kind, "name": "a"});
            owner["uid"] = json!("1");
            owner["controller"] = json!(true);
            owner
        };
        for (owners, want) in [
            (json!([owner("a/v1", "A")]), ""),
            (
                json!([owner("a/b/c", "A")]),
                "o.apiVersion: Invalid value: \"a/b/c\": version must not be empty",
            ),
            (json!([owner("example.com/stable/v1", "A")]), ""),
            (
                json!([owner("v1", "")]),
                "o.kind: Invalid value: \"\": must not be empty",
            ),
            (
                json!([owner("v1", "Event")]),
                "o: Invalid value: {\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"a\",\"uid\":\"1\",\
                 \"controller\":true}: /v1, Kind=Event is disallowed from being an owner",
            ),
        ] {
            let mut errors = Vec::new();
            check_owners(&owners, &FieldPath::new("o"), &mut errors);
            assert_eq!(errors.iter().map(ToString::to_string).collect::<String>(), want);
        }
        let mut errors = Vec::new();
        check_owners(
            &json!([owner("v1", "A"), owner("v1", "B")]),
            &FieldPath::new("o"),
            &mut errors,
        );
        assert!(
            errors[0].to_string().ends_with("in references for A/a and B/a"),
            "{errors:?}"
        );
        let mut errors = Vec::new();
        check_finalizers(
            &json!(["orphan", "foregroundDeletion"]),
            &FieldPath::new("f"),
            &mut errors,
        );
        assert!(errors[0].to_string().ends_with("cannot be both set"), "{errors:?}");
    }
}
