//! Values of stored objects that a change of rules hides: a served version shows them now, and
//! would show them no longer. One guard for rules that are emptied or made weaker.

use crate::{
    kinds::{review::Review, usage::Usage},
    publication::Acceptance,
};
use insula_api::{
    Json, Object, Scope,
    names::{annotations::ACCEPTED_EFFECTS, effects},
};
use insula_catalog::Api;
use insula_conversion::{Stored, object_budget};
use insula_store::Entry;
use std::ops::ControlFlow;

/// Objects that are compared in one request, aside from other requests: about a second.
const OBJECTS_MAX: usize = 10_000;

/// Objects of which a served version would show less.
#[derive(Debug, Default)]
pub(super) struct Hidden {
    usage: Usage,
    /// The first of them: its key, the version, and the path of the value.
    first: Option<(Entry, String, String)>,
    /// True if there are more objects than were compared.
    unfinished: bool,
}

/// Compares what an API shows of stored objects with what its successor would show of them, in the
/// versions that both serve. An object that either cannot show is no concern of this guard.
pub(super) fn hidden(review: &Review<'_>, scopes: &[Scope], before: &Api, after: &Api) -> Hidden {
    let hidden = review.catalog.run_aside(|| compare(review, scopes, before, after));
    if hidden.unfinished {
        review.warn(format!(
            "the first {OBJECTS_MAX} stored objects were compared: others may show less than they do"
        ));
    }
    hidden
}

fn compare(review: &Review<'_>, scopes: &[Scope], before: &Api, after: &Api) -> Hidden {
    let mut hidden = Hidden::default();
    let served: Vec<&str> = before
        .bundle
        .served()
        .filter(|version| after.bundle.served().any(|other| other == *version))
        .collect();
    let mut compared = 0;
    for scope in scopes {
        review.snapshot.for_each(scope, |entry| {
            if compared == OBJECTS_MAX {
                hidden.unfinished = true;
                return ControlFlow::Break(());
            }
            compared += 1;
            hidden.compare(entry, &served, before, after);
            ControlFlow::Continue(())
        });
    }
    hidden
}

impl Hidden {
    fn compare(&mut self, entry: &Entry, served: &[&str], before: &Api, after: &Api) {
        let value = entry.object.body_value();
        for version in served {
            let (Some(was), Some(is)) = (
                shown(before, &entry.object, &value, version),
                shown(after, &entry.object, &value, version),
            ) else {
                continue;
            };
            if let Some(path) = first_hidden(&was, &is) {
                self.usage.add(&entry.key.cluster);
                if self.first.is_none() {
                    self.first = Some((entry.clone(), (*version).to_owned(), path));
                }
                return;
            }
        }
    }

    /// Returns why a change is refused, or `None` if it hides nothing, or no more than `object`,
    /// the APIConversion under review, accepts by its annotation.
    pub(super) fn refusal(&self, review: &Review<'_>, object: &Json) -> Option<String> {
        let total = self.usage.total();
        if total == 0 || accepts(object, effects::VALUE_HIDDEN, total) {
            return None;
        }
        let example = self.first.as_ref().map(|(entry, version, path)| {
            let key = &entry.key;
            let slash = if key.namespace.is_empty() { "" } else { "/" };
            format!("{path} of {}{slash}{} in {version}", key.namespace, key.name)
        });
        Some(format!(
            "{}{} would show less than they do, such as {}: keep a rule that shows it, or accept it by the \
             annotation {ACCEPTED_EFFECTS}: \"{}={total}\"",
            if self.unfinished { "at least " } else { "" },
            self.usage.message(review.snapshot),
            example.unwrap_or_default(),
            effects::VALUE_HIDDEN
        ))
    }
}

/// Returns true if an object's annotation accepts an effect on so many objects. An entry that
/// cannot be read accepts nothing.
fn accepts(object: &Json, effect: &str, objects: usize) -> bool {
    let annotation = object["metadata"]["annotations"][ACCEPTED_EFFECTS].as_str();
    let entries = annotation.unwrap_or_default().split(',').map(str::trim);
    let mut read = entries.filter_map(|entry| Acceptance::parse(entry).ok());
    read.any(|one| one.covers(effect, objects as u64))
}

fn shown(api: &Api, object: &Object, value: &Json, version: &str) -> Option<Json> {
    let stored = Stored {
        value,
        version: object.version(),
        residual: object.residual(),
    };
    api.bundle.get(stored, version, &mut object_budget()).ok()
}

/// Returns the path of the first value that `was` has and `is` lacks. Another value in its place is
/// not hidden; an empty object or list shows nothing.
fn first_hidden(was: &Json, is: &Json) -> Option<String> {
    match (was, is) {
        (Json::Null, _) => None,
        (Json::Object(was), _) => was.iter().find_map(|(name, value)| {
            let inner = first_hidden(value, is.get(name).unwrap_or(&Json::Null))?;
            Some(format!(".{name}{inner}"))
        }),
        (Json::Array(was), _) => was.iter().enumerate().find_map(|(index, value)| {
            let inner = first_hidden(value, is.get(index).unwrap_or(&Json::Null))?;
            Some(format!("[{index}]{inner}"))
        }),
        (_, Json::Null) => Some(String::new()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_is_hidden_that_nothing_takes_the_place_of() {
        let was = json!({"spec": {"a": 1, "list": [{"x": 1}, {"y": false}], "none": null, "empty": {}}});
        let hidden = |is: Json| first_hidden(&was, &is);
        assert_eq!(hidden(was.clone()), None);
        assert_eq!(
            hidden(json!({"spec": {"a": "other", "list": [{"x": 1}, {"y": 2}]}})),
            None
        );
        assert_eq!(
            hidden(json!({"spec": {"list": [{"x": 1}, {"y": 2}]}})).as_deref(),
            Some(".spec.a")
        );
        assert_eq!(
            hidden(json!({"spec": {"a": 1, "list": [{"x": 1}]}})).as_deref(),
            Some(".spec.list[1].y")
        );
        assert_eq!(hidden(json!({})).as_deref(), Some(".spec.a"));
    }

    #[test]
    fn an_effect_is_accepted_up_to_a_number() {
        let accepts = |text: &str, objects| {
            let object = json!({"metadata": {"annotations": {ACCEPTED_EFFECTS: text}}});
            accepts(&object, effects::VALUE_HIDDEN, objects)
        };
        assert!(accepts("value-hidden=3", 3) && !accepts("value-hidden=3", 4));
        assert!(accepts("other=9, value-hidden=2", 2) && !accepts("other=9, value-hidden=2", 3));
        assert!(accepts("value-hidden", usize::MAX));
        assert!(!accepts("value-hidden=many", 1));
        assert!(!accepts("", 1));
        assert!(!super::accepts(&json!({}), effects::VALUE_HIDDEN, 1));
    }
}
