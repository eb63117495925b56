//! Acceptance of the names of a definition, by the rules of Kubernetes, against every other API of
//! the group in the cluster.

use crate::write::{list, text};
use insula_api::{Condition, ConditionStatus, Json, Object};
use insula_catalog::registration;
use serde_json::{Map, json};
use std::collections::BTreeSet;

/// Names of other APIs of the group.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Plurals, singulars and short names.
    pub(crate) resources: BTreeSet<String>,
    /// Kinds and list kinds.
    pub(crate) kinds: BTreeSet<String>,
}

impl Taken {
    /// Adds the names that a definition has, and those that it waits for unless it is being
    /// deleted.
    pub(crate) fn add_definition(&mut self, definition: &Object, with_wanted: bool) {
        let value = definition.body_value();
        self.add_names(&value["status"]["acceptedNames"]);
        if with_wanted && !definition.meta.is_deleting() {
            match value["kind"] == registration::KIND {
                true => self.add_names(&registration::wanted(&value).unwrap_or_default()["names"]),
                false => self.add_names(&value["spec"]["names"]),
            }
        }
    }

    /// Adds names as a definition writes them.
    pub(crate) fn add_names(&mut self, names: &Json) {
        let given = |fields: [&str; 2]| fields.map(|field| text(names, field).to_owned());
        let short = list(names, "/shortNames")
            .iter()
            .filter_map(Json::as_str)
            .map(str::to_owned);
        self.resources
            .extend(given(["/plural", "/singular"]).into_iter().chain(short));
        self.kinds.extend(given(["/kind", "/listKind"]));
        // A name that was not accepted is empty.
        self.resources.remove("");
        self.kinds.remove("");
    }

    /// Returns true if all names are in another set.
    pub(crate) fn is_within(&self, other: &Taken) -> bool {
        self.resources.is_subset(&other.resources) && self.kinds.is_subset(&other.kinds)
    }

    /// Adds the names of a served API.
    pub(crate) fn add(&mut self, names: &insula_catalog::Names) {
        self.resources
            .extend([names.plural.to_string(), names.singular.to_string()]);
        self.resources.extend(names.short_names.iter().cloned());
        self.kinds.extend([names.kind.to_string(), names.list_kind.to_string()]);
    }
}

/// Returns true if a definition has all the names that it wants: it needs no names of others then.
pub(crate) fn are_accepted(definition: &Json) -> bool {
    let (wanted, had) = (&definition["spec"]["names"], &definition["status"]["acceptedNames"]);
    let single = ["/plural", "/singular", "/kind", "/listKind"];
    let short = list(had, "/shortNames");
    single.iter().all(|field| text(wanted, field) == text(had, field))
        && list(wanted, "/shortNames").iter().all(|name| short.contains(name))
}

/// Returns the accepted names, and the condition `NamesAccepted`.
pub(crate) fn accept(wanted: &Json, had: &Json, taken: &Taken) -> (Json, Condition) {
    let mut accepted = Map::new();
    // Kubernetes always prints these two.
    accepted.insert("kind".into(), json!(text(had, "/kind")));
    accepted.insert("plural".into(), json!(text(had, "/plural")));
    let single = |field: &str, reason: &str, taken: &BTreeSet<String>, accepted: &mut Map<String, Json>| {
        let pointer = format!("/{field}");
        let (name, old) = (text(wanted, &pointer), text(had, &pointer));
        let (keep, problem) = match name == old || !taken.contains(name) {
            true => (name, None),
            false => (old, Some((reason.to_owned(), format!("{name:?} is already in use")))),
        };
        if !keep.is_empty() {
            accepted.insert(field.into(), json!(keep));
        }
        problem
    };
    let problems = [
        single("plural", "PluralConflict", &taken.resources, &mut accepted),
        single("singular", "SingularConflict", &taken.resources, &mut accepted),
        short_names(wanted, had, taken, &mut accepted),
        single("kind", "KindConflict", &taken.kinds, &mut accepted),
        single("listKind", "ListKindConflict", &taken.kinds, &mut accepted),
    ];
    if let Some(categories) = wanted.get("categories") {
        accepted.insert("categories".into(), categories.clone());
    }
    // The message tells the last problem, as in Kubernetes.
    let (status, (reason, message)) = match problems.into_iter().flatten().next_back() {
        Some(problem) => (ConditionStatus::False, problem),
        None => (
            ConditionStatus::True,
            ("NoConflicts".to_owned(), "no conflicts found".to_owned()),
        ),
    };
    let condition = Condition {
        kind: "NamesAccepted".to_owned(),
        status,
        severity: String::new(),
        reason,
        message,
        generation: None,
    };
    (Json::Object(accepted), condition)
}

/// Accepts all short names or none. Returns the problem, if any.
fn short_names(wanted: &Json, had: &Json, taken: &Taken, accepted: &mut Map<String, Json>) -> Option<(String, String)> {
    let old = list(had, "/shortNames");
    let wanted = list(wanted, "/shortNames");
    let conflicts: Vec<String> = wanted
        .iter()
        .filter(|name| !old.contains(name))
        .filter_map(Json::as_str)
        .filter(|name| taken.resources.contains(*name))
        .map(|name| format!("{name:?} is already in use"))
        .collect();
    let keep = if conflicts.is_empty() { wanted } else { old };
    if !keep.is_empty() {
        accepted.insert("shortNames".into(), json!(keep));
    }
    let message = match conflicts.as_slice() {
        [] => return None,
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    Some(("ShortNamesConflict".to_owned(), message))
}
