//! ThirdPartyResources of both generations ([`crate::registration`] has their names and how they
//! are served).

use crate::{
    Builtin, OnDelete, Strategy, Traits,
    kind::crd,
    names::{self, NameRule},
    object::add_finalizer,
    registration::{kind_of, versions_of},
};
use insula_api::{Condition, FieldError, FieldPath, Json, Timestamp, names::finalizers, set_condition};
use serde_json::json;
use std::collections::BTreeSet;

/// Versions of one registration of the first generation. Each has an entry in discovery.
const VERSIONS_MAX: usize = 32;

pub(super) const KINDS: &[Builtin] = &[
    Builtin {
        strategy: &FirstGeneration,
        merge_keys: &[("versions", "name")],
        ..Builtin::new(crd!("extensions_thirdpartyresources"))
    },
    Builtin {
        strategy: &SecondGeneration,
        ..Builtin::new(crd!("apiextension.k8s.io_thirdpartyresources"))
    },
];

const TRAITS: Traits = Traits {
    deletes_to_object: true,
    own_deletion: true,
    ..Traits::BUILT_IN
};

/// Marks a registration as terminating until a controller has deleted its objects.
fn terminate(registration: &mut Json, now: Timestamp) {
    if registration["metadata"]["deletionTimestamp"].is_null() {
        add_finalizer(registration, finalizers::THIRD_PARTY_RESOURCES);
        let pending =
            Condition::holds("Terminating").because("Deleting", "the objects of the resource are being deleted");
        set_condition(registration, &pending, now);
    }
}

/// Registrations whose name says everything.
struct FirstGeneration;

impl Strategy for FirstGeneration {
    fn traits(&self) -> Traits {
        TRAITS
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        let at = FieldPath::new("metadata").child("name");
        let name = new["metadata"]["name"].as_str().unwrap_or_default();
        let invalid = |why: String| FieldError::invalid(&at, &json!(name), why);
        let mut errors = Vec::new();
        match name.split_once('.') {
            Some((kind, domain)) => {
                errors.extend(kind_of(kind).err().map(invalid));
                if !domain.contains('.') {
                    let why = format!("{domain:?} must be a fully qualified domain name such as example.com");
                    errors.push(invalid(why));
                }
            }
            None => {
                let why = "must be the kind in lower case with hyphens, a dot and a domain: cron-tab.example.com";
                errors.push(invalid(why.to_owned()));
            }
        }
        errors.extend(validate_versions(new));
        errors
    }

    fn on_delete(&self, object: &mut Json, now: Timestamp) -> OnDelete {
        terminate(object, now);
        OnDelete::Go
    }
}

fn validate_versions(new: &Json) -> Vec<FieldError> {
    let at = FieldPath::new("versions");
    let versions = versions_of(new);
    if versions.is_empty() {
        return vec![FieldError::required(
            &at,
            "a resource is served in at least one version",
        )];
    }
    if versions.len() > VERSIONS_MAX {
        return vec![FieldError::too_many(&at, versions.len(), VERSIONS_MAX)];
    }
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (i, version) in versions.iter().enumerate() {
        let at = at.index(i).child("name");
        if version.split('/').count() > 2 {
            let why = "must be a version such as v1, or one with a prefix such as stable/v1";
            errors.push(FieldError::invalid(&at, &json!(version), why));
        }
        if version.contains('/') && version.ends_with('s') {
            let why = "may not end with s: the path would take it for a plural";
            errors.push(FieldError::invalid(&at, &json!(version), why));
        }
        for part in version.split('/') {
            check_label(part, &at, &mut errors);
        }
        if !seen.insert(version) {
            errors.push(FieldError::duplicate(&at, &json!(version)));
        }
    }
    errors
}

/// Registrations that name everything in their `spec`.
struct SecondGeneration;

impl Strategy for SecondGeneration {
    fn traits(&self) -> Traits {
        Traits {
            generation: true,
            ..TRAITS
        }
    }

    fn default(&self, new: &mut Json) {
        let kind = new["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned();
        let Some(names) = new["spec"]["names"].as_object_mut().filter(|_| !kind.is_empty()) else {
            return;
        };
        for (field, name) in [("singular", kind.to_lowercase()), ("listKind", format!("{kind}List"))] {
            let given = names.get(field).and_then(Json::as_str).unwrap_or_default();
            if given.is_empty() {
                names.insert(field.into(), json!(name));
            }
        }
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        let spec = &new["spec"];
        let at = FieldPath::new("spec");
        let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
        let mut errors = Vec::new();
        let name = &new["metadata"]["name"];
        if *name != format!("{plural}.{group}") {
            let at = FieldPath::new("metadata").child("name");
            errors.push(FieldError::invalid(
                &at,
                name,
                "must be spec.names.plural+\".\"+spec.group",
            ));
        }
        names::check_name(&group, NameRule::Subdomain, &at.child("group"), &mut errors);
        let version = text(&spec["version"]);
        check_label(&version, &at.child("version"), &mut errors);
        let at = at.child("names");
        check_label(&plural, &at.child("plural"), &mut errors);
        let singular = text(&spec["names"]["singular"]);
        check_label(&singular, &at.child("singular"), &mut errors);
        for field in ["kind", "listKind"] {
            // Kinds have capitals, which names of resources have not.
            let name = text(&spec["names"][field]).to_lowercase();
            check_label(&name, &at.child(field), &mut errors);
        }
        if spec["names"]["kind"] == spec["names"]["listKind"] {
            let why = "kind and listKind may not be the same";
            errors.push(FieldError::invalid(
                &at.child("listKind"),
                &spec["names"]["listKind"],
                why,
            ));
        }
        let short = spec["names"]["shortNames"].as_array().into_iter().flatten();
        for (i, name) in short.enumerate() {
            check_label(&text(name), &at.child("shortNames").index(i), &mut errors);
        }
        errors
    }

    fn validate_update(&self, new: &Json, old: &Json) -> Vec<FieldError> {
        let fixed = [["scope", ""], ["names", "kind"]];
        let fixed = fixed.into_iter().filter_map(|[field, below]| {
            let pointer = ["/spec/", field, if below.is_empty() { "" } else { "/" }, below].concat();
            let (old, new) = (old.pointer(&pointer), new.pointer(&pointer));
            let at = FieldPath::new(&pointer.trim_start_matches('/').replace('/', "."));
            (old != new).then(|| FieldError::invalid(&at, new.unwrap_or(&Json::Null), "field is immutable"))
        });
        fixed.collect()
    }

    fn on_delete(&self, object: &mut Json, now: Timestamp) -> OnDelete {
        terminate(object, now);
        OnDelete::Go
    }
}

fn check_label(name: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let problems = insula_schema::label_1035(name).into_iter();
    errors.extend(problems.map(|problem| FieldError::invalid(at, &json!(name), problem)));
}
