//! Conditions in the shapes of Kubernetes and kcp: kcp adds `severity` to conditions that are not
//! `True`.

use crate::{Json, Timestamp};
use serde_json::json;

/// Status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It is not known yet.
    Unknown,
}

impl ConditionStatus {
    /// Returns the text on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        }
    }
}

/// Condition to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Type, e.g. `Ready`.
    pub kind: String,
    /// Status.
    pub status: ConditionStatus,
    /// kcp's severity (`Error`, `Warning`, `Info`) of a condition that does not hold; empty for
    /// none.
    pub severity: String,
    /// One word; may be empty.
    pub reason: String,
    /// Message for people: the problem, its cause and the fix.
    pub message: String,
    /// Generation of the object that it is about; `None` if it does not say.
    pub generation: Option<i64>,
}

impl Condition {
    /// Creates a condition that holds, without a reason.
    pub fn holds(kind: &str) -> Self {
        Condition {
            kind: kind.into(),
            status: ConditionStatus::True,
            severity: String::new(),
            reason: String::new(),
            message: String::new(),
            generation: None,
        }
    }

    /// Creates a condition that fails with kcp's severity `Error`.
    pub fn fails(kind: &str, reason: &str, message: impl Into<String>) -> Self {
        Condition {
            kind: kind.into(),
            status: ConditionStatus::False,
            severity: "Error".into(),
            reason: reason.into(),
            message: message.into(),
            generation: None,
        }
    }

    /// Adds the generation of an object, which the condition is about.
    #[must_use]
    pub fn observed(mut self, object: &Json) -> Self {
        self.generation = object["metadata"]["generation"].as_i64();
        self
    }

    /// Replaces the severity (`Warning`, `Info`, or empty for Kubernetes' own conditions).
    #[must_use]
    pub fn severity(mut self, severity: &str) -> Self {
        self.severity = severity.into();
        self
    }

    /// Replaces reason and message.
    #[must_use]
    pub fn because(mut self, reason: &str, message: impl Into<String>) -> Self {
        self.reason = reason.into();
        self.message = message.into();
        self
    }
}

/// Finds the condition of a type in `object.status.conditions`.
pub fn condition<'a>(object: &'a Json, kind: &str) -> Option<&'a Json> {
    object
        .pointer("/status/conditions")?
        .as_array()?
        .iter()
        .find(|c| c["type"] == kind)
}

/// Sets a condition in `object.status.conditions`, in the place of the one of its type.
/// `lastTransitionTime` moves only when the status changes, so that a reconciler at rest writes
/// nothing. Returns true if anything changed.
pub fn set_condition(object: &mut Json, want: &Condition, now: Timestamp) -> bool {
    let mut fresh = json!({
        "type": want.kind, "status": want.status.as_str(), "lastTransitionTime": now.to_string(),
    });
    for (field, value) in [
        ("severity", &want.severity),
        ("reason", &want.reason),
        ("message", &want.message),
    ] {
        if !value.is_empty() {
            fresh[field] = json!(value);
        }
    }
    if let Some(generation) = want.generation {
        fresh["observedGeneration"] = json!(generation);
    }
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    let conditions = &mut object["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else {
        return false;
    };
    match list.iter_mut().find(|c| c["type"] == want.kind.as_str()) {
        Some(old) => {
            if old["status"] == fresh["status"] && old["lastTransitionTime"].is_string() {
                fresh["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            let changed = *old != fresh;
            *old = fresh;
            changed
        }
        None => {
            list.push(fresh);
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_set_twice_changes_nothing() {
        let mut object = json!({});
        assert!(set_condition(&mut object, &Condition::holds("Ready"), Timestamp(1)));
        assert!(!set_condition(&mut object, &Condition::holds("Ready"), Timestamp(9)));
        assert_eq!(
            object["status"]["conditions"][0]["lastTransitionTime"],
            "1970-01-01T00:00:01Z"
        );
        assert!(set_condition(
            &mut object,
            &Condition::fails("Ready", "Broken", "x"),
            Timestamp(9)
        ));
        assert_eq!(
            condition(&object, "Ready").expect("set")["lastTransitionTime"],
            "1970-01-01T00:00:09Z"
        );
    }
}
