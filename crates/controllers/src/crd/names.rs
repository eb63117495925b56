//! Which of a definition's names it gets: Kubernetes' rules, against every other API of the group in the cluster.

use crate::write::{list, text};
use insula_api::{Condition, ConditionStatus, Json};
use serde_json::{Map, json};
use std::collections::BTreeSet;

/// The names that others of the group have.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Plurals, singulars and short names.
    pub(crate) resources: BTreeSet<String>,
    /// Kinds and list kinds.
    pub(crate) kinds: BTreeSet<String>,
}

impl Taken {
    /// Adds what a definition was given.
    pub(crate) fn add_accepted(&mut self, accepted: &Json) {
        let mut resource = |name: &str| drop((!name.is_empty()).then(|| self.resources.insert(name.to_owned())));
        resource(text(accepted, "/plural"));
        resource(text(accepted, "/singular"));
        list(accepted, "/shortNames").iter().filter_map(Json::as_str).for_each(&mut resource);
        for kind in ["/kind", "/listKind"].map(|field| text(accepted, field)).into_iter().filter(|k| !k.is_empty()) {
            self.kinds.insert(kind.to_owned());
        }
    }

    /// Adds the names of an API that is served.
    pub(crate) fn add(&mut self, names: &insula_registry::Names) {
        self.resources.extend([names.plural.to_string(), names.singular.to_string()]);
        self.resources.extend(names.short_names.iter().cloned());
        self.kinds.extend([names.kind.to_string(), names.list_kind.to_string()]);
    }
}

/// The accepted names, and the condition `NamesAccepted`.
pub(crate) fn accept(wanted: &Json, had: &Json, taken: &Taken) -> (Json, Condition) {
    let mut accepted = Map::new();
    // Kubernetes always prints these two.
    accepted.insert("kind".into(), json!(text(had, "/kind")));
    accepted.insert("plural".into(), json!(text(had, "/plural")));
    let mut problem = None;
    let free = |name: &str, had: &str, taken: &BTreeSet<String>| name == had || !taken.contains(name);
    let mut single = |field: &str, reason: &str, taken: &BTreeSet<String>, accepted: &mut Map<String, Json>| {
        let pointer = format!("/{field}");
        let (name, old) = (text(wanted, &pointer), text(had, &pointer));
        let keep = match free(name, old, taken) {
            true => name,
            false => {
                problem = Some((reason.to_owned(), format!("{name:?} is already in use")));
                old
            }
        };
        if !keep.is_empty() {
            accepted.insert(field.into(), json!(keep));
        }
    };
    single("plural", "PluralConflict", &taken.resources, &mut accepted);
    single("singular", "SingularConflict", &taken.resources, &mut accepted);
    let short = short_names(wanted, had, taken, &mut accepted);
    let before = problem.take();
    let mut single = |field: &str, reason: &str, accepted: &mut Map<String, Json>| -> Option<(String, String)> {
        let pointer = format!("/{field}");
        let (name, old) = (text(wanted, &pointer), text(had, &pointer));
        let (keep, problem) = match free(name, old, &taken.kinds) {
            true => (name, None),
            false => (old, Some((reason.to_owned(), format!("{name:?} is already in use")))),
        };
        if !keep.is_empty() {
            accepted.insert(field.into(), json!(keep));
        }
        problem
    };
    let kind = single("kind", "KindConflict", &mut accepted);
    let list_kind = single("listKind", "ListKindConflict", &mut accepted);
    if let Some(categories) = wanted.get("categories") {
        accepted.insert("categories".into(), categories.clone());
    }
    // The last one wins, as in Kubernetes.
    let (status, reason, message) = match list_kind.or(kind).or(short).or(before) {
        Some((reason, message)) => (ConditionStatus::False, reason, message),
        None => (ConditionStatus::True, "NoConflicts".to_owned(), "no conflicts found".to_owned()),
    };
    let condition = Condition { kind: "NamesAccepted".to_owned(), status, severity: String::new(), reason, message };
    (Json::Object(accepted), condition)
}

/// All short names or none.
fn short_names(
    wanted: &Json,
    had: &Json,
    taken: &Taken,
    accepted: &mut Map<String, Json>,
) -> Option<(String, String)> {
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
