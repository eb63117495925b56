//! Events in both API groups (`pkg/apis/core/validation/events.go`). The core group has few rules.
//! `events.k8s.io` has more, and its events are almost immutable.

mod table;

use crate::{
    Builtin, Strategy, Traits,
    kind::{OtherName, crd},
    names,
};
use insula_api::{FieldError, FieldPath, Json};
use serde_json::json;

/// Field names in the core group, in which objects are stored, and in `events.k8s.io`.
const FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];
/// Timestamps that are shown as null if unset.
const TIMES: &[&str] = &["eventTime", "firstTimestamp", "lastTimestamp"];
/// Maximum bytes of an event's `reportingInstance`, `action` and `reason`, and of its message.
const WORD_MAX: usize = 128;
const MESSAGE_MAX: usize = 1024;

pub(super) const KINDS: &[Builtin] = &[Builtin {
    strategy: &Events,
    name_rule: Some(names::NameRule::PathSegment),
    claimable: true,
    table: Some(table::TABLE),
    other_names: &[OtherName::Respelled {
        definition: crd!("events.k8s.io_events"),
        fields: FIELDS,
    }],
    ..Builtin::new(crd!("core_events"))
}];

/// Events.
struct Events;

impl Strategy for Events {
    fn traits(&self) -> Traits {
        Traits {
            created_by_update: true,
            ..Traits::BUILT_IN
        }
    }

    fn default(&self, new: &mut Json) {
        for field in TIMES {
            if new.get(field).is_none() {
                new[*field] = Json::Null;
            }
        }
    }

    /// Returns the reporting component from whichever of its two fields is set.
    fn selectable(&self, shown: &Json, field: &str) -> Option<String> {
        let component = shown["source"]["component"].as_str().filter(|text| !text.is_empty());
        (field == "source").then(|| {
            component
                .unwrap_or_else(|| text(shown, "reportingComponent"))
                .to_owned()
        })
    }
}

fn text<'a>(event: &'a Json, field: &str) -> &'a str {
    event[field].as_str().unwrap_or_default()
}

fn path_of(field: &str) -> FieldPath {
    FieldPath::new(field)
}

/// Validates an event in its stored form. `strict` is true if it was sent through `events.k8s.io`.
pub fn review(new: &Json, old: Option<&Json>, strict: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match new["eventTime"].is_null() {
        true => errors.extend(misplaced(new, false)),
        // Only current recorders set `eventTime`; they must also set the other new fields.
        false => {
            errors.extend(misplaced(new, true));
            errors.extend(incomplete(new, strict));
        }
    }
    match (strict, old) {
        (false, _) => {}
        (true, None) => errors.extend(unfit_for_creation(new)),
        (true, Some(old)) => errors.extend(changed(new, old)),
    }
    errors
}

/// Checks the namespace of an event. An event about a cluster-scoped object belongs to `default`;
/// current recorders (`today`) may also use `kube-system`.
fn misplaced(event: &Json, today: bool) -> Option<FieldError> {
    let namespace = event["metadata"]["namespace"].as_str().unwrap_or_default();
    let involved = event["involvedObject"]["namespace"].as_str().unwrap_or_default();
    let fits = match (involved.is_empty(), today) {
        (true, false) => namespace == "default",
        (true, true) => matches!(namespace, "default" | "kube-system"),
        (false, false) => namespace == involved,
        (false, true) => true,
    };
    let error = || {
        FieldError::invalid(
            &path_of("involvedObject").child("namespace"),
            &json!(involved),
            "does not match event.namespace",
        )
    };
    (!fits).then(error)
}

/// Checks the fields that current recorders must set.
fn incomplete(event: &Json, strict: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let controller = text(event, "reportingComponent");
    let controller_at = path_of(if strict {
        "reportingController"
    } else {
        "reportingComponent"
    });
    if controller.is_empty() {
        errors.push(FieldError::required(&controller_at, ""));
    }
    let problems = names::qualified_name_problems(controller);
    errors.extend(
        problems
            .into_iter()
            .map(|problem| FieldError::invalid(&controller_at, &json!(controller), problem)),
    );
    for field in ["reportingInstance", "action", "reason"] {
        if text(event, field).is_empty() {
            errors.push(FieldError::required(&path_of(field), ""));
        }
    }
    let limits = [
        ("reportingInstance", WORD_MAX),
        ("action", WORD_MAX),
        ("reason", WORD_MAX),
        ("message", MESSAGE_MAX),
    ];
    for (field, max) in limits {
        if text(event, field).len() > max {
            errors.push(unquoted(field, format!("can have at most {max} characters")));
        }
    }
    errors
}

/// Builds an error that does not repeat the value.
fn unquoted(field: &str, detail: impl Into<String>) -> FieldError {
    FieldError::invalid(&path_of(field), &json!(""), detail)
}

fn unfit_for_creation(event: &Json) -> Vec<FieldError> {
    let mut errors = unfit_series(event);
    if event["eventTime"].is_null() {
        errors.push(FieldError::required(&path_of("eventTime"), ""));
    }
    let kind = text(event, "type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.push(unquoted("type", format!("has invalid value: {kind}")));
    }
    let source = |field: &str| event["source"][field].as_str().is_some_and(|text| !text.is_empty());
    let set = [
        ("firstTimestamp", !event["firstTimestamp"].is_null()),
        ("lastTimestamp", !event["lastTimestamp"].is_null()),
        ("count", event["count"].as_i64().is_some_and(|count| count != 0)),
        ("source", source("component") || source("host")),
    ];
    let set = set.into_iter().filter(|(_, is_set)| *is_set);
    errors.extend(set.map(|(field, _)| unquoted(field, "needs to be unset")));
    errors
}

fn unfit_series(event: &Json) -> Vec<FieldError> {
    let series = &event["series"];
    let mut errors = Vec::new();
    if series.is_null() {
        return errors;
    }
    if series["count"].as_i64().unwrap_or_default() < 2 {
        errors.push(unquoted("series.count", "should be at least 2"));
    }
    if series["lastObservedTime"].is_null() {
        errors.push(FieldError::required(&path_of("series.lastObservedTime"), ""));
    }
    errors
}

/// Checks that only `series` changed.
fn changed(new: &Json, old: &Json) -> Vec<FieldError> {
    let mut errors = match new.get("series") == old.get("series") {
        true => Vec::new(),
        false => unfit_series(new),
    };
    // Kubernetes checks the reason twice; the duplicate keeps the error list identical.
    let kept = [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        ("reason", "reason"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ];
    for (field, called) in kept {
        let (now, before) = (new.get(field), old.get(field));
        if now.filter(|value| !value.is_null()) != before.filter(|value| !value.is_null()) {
            let value = now.unwrap_or(&Json::Null);
            errors.push(FieldError::invalid(&path_of(called), value, "field is immutable"));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_spelling_has_its_rules() {
        let said = |strict: bool, event: Json| -> Vec<String> {
            let mut event = event;
            event["metadata"] = json!({"namespace": "team"});
            review(&event, None, strict).iter().map(ToString::to_string).collect()
        };
        let none: [&str; 0] = [];
        let old = json!({"involvedObject": {"namespace": "team"}, "source": {"component": "a"}});
        assert_eq!(said(false, old.clone()), none);
        assert_eq!(
            said(true, old),
            [
                "eventTime: Required value",
                "type: Invalid value: \"\": has invalid value: ",
                "source: Invalid value: \"\": needs to be unset"
            ]
        );
        assert_eq!(
            said(false, json!({"involvedObject": {}})),
            ["involvedObject.namespace: Invalid value: \"\": does not match event.namespace"]
        );
        let today = json!({"eventTime": "2026-01-02T03:04:05.000000Z", "involvedObject": {"namespace": "other"},
            "reportingComponent": "a.io/b", "reportingInstance": "b-1", "action": "Acting", "reason": "Because",
            "type": "Normal"});
        assert_eq!(said(true, today.clone()), none);
        let mut series = today.clone();
        series["series"] = json!({"count": 1});
        assert_eq!(
            said(true, series),
            [
                "series.count: Invalid value: \"\": should be at least 2",
                "series.lastObservedTime: Required value"
            ]
        );
        let mut long = today.clone();
        long["message"] = json!("m".repeat(1025));
        assert_eq!(
            said(false, long),
            ["message: Invalid value: \"\": can have at most 1024 characters"]
        );
        let mut other = today.clone();
        other["message"] = json!("m");
        other["metadata"] = json!({"namespace": "team"});
        let mut old = today;
        old["message"] = Json::Null;
        assert_eq!(
            review(&other, Some(&old), true)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
            ["message: Invalid value: \"m\": field is immutable"]
        );
        assert_eq!(review(&other, Some(&old), false), []);
    }
}
