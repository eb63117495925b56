//! Grace period of deleted workspaces and APIBindings, in which their deletion may be taken back.
//!
//! ```text
//! Ready ──DELETE──> awaits deletion ──time──> deleting ──> gone
//!   └────undelete────────┘
//! ```
//! The whole state is in the object: `deletionTimestamp` is the time at which the deletion goes on,
//! and `deletionGracePeriodSeconds` is above 0 until then. The end of the grace period sets that
//! to 0. From then on the object is one that is being deleted, as without a grace period.
//!
//! Until then, requests find neither a deleted workspace nor those below it
//! ([`insula_catalog::locate::awaits_deletion`]); its content and its LogicalCluster stay as they
//! are. The APIs of a deleted binding are served as those of any binding that is being deleted:
//! objects are read, changed and deleted, and none is created.

use crate::deps::Deps;
use crate::metadata::{FOREGROUND, ORPHAN};
use insula_api::{Clock, Json, Meta, Timestamp};
use insula_catalog::{exports::unbind, ids, object::metadata_of};
use insula_store::{Entry, Snapshot};
use serde_json::json;

/// Returns the seconds for which the deletion of an object may be taken back by the settings; 0 for
/// an object without content to keep. `None` for kinds that have no grace period.
pub(crate) fn setting(deps: &Deps, snapshot: &Snapshot, old: &Entry) -> Option<u64> {
    let resource = &old.key.resource;
    if *resource == ids::workspaces() {
        let value = old.object.body_value();
        let cluster = value["spec"]["cluster"].as_str().unwrap_or_default();
        return Some(if cluster.is_empty() {
            0
        } else {
            deps.workspace_grace_seconds
        });
    }
    // A binding that has bound nothing has no objects. The controller looks whether there are any.
    (*resource == ids::apibindings()).then(|| {
        let value = old.object.body_value();
        let bound = value["status"]["boundResources"].as_array();
        if bound.is_none_or(Vec::is_empty) {
            0
        } else {
            unbind::grace_seconds_of(snapshot, old)
        }
    })
}

/// Sets the grace period of an object that a request deletes. `seconds` are those of the setting
/// and of the request, which may shorten the period, also later, and not prolong it. The period
/// begins with the next whole second, since times of objects have no parts of one.
pub(crate) fn set(value: &mut Json, old: &Meta, seconds: (u64, Option<u64>), clock: &dyn Clock) {
    let (setting, requested) = seconds;
    let now = clock.now();
    let metadata = metadata_of(value);
    let known = metadata.get("deletionGracePeriodSeconds").and_then(Json::as_u64);
    let (begun, longest) = match old.deletion_timestamp {
        None => (clock.next_second(), setting),
        Some(end) if old.awaits_deletion() => {
            let longest = known.unwrap_or_default();
            (Timestamp(end.0.saturating_sub_unsigned(longest)), longest)
        }
        _ => return,
    };
    let wanted = requested.unwrap_or(longest).min(longest);
    if old.is_deleting() && wanted == longest {
        return;
    }
    let end = match wanted {
        0 => now,
        _ => Timestamp(begun.0.saturating_add_unsigned(wanted)),
    };
    let left = if end > now { wanted } else { 0 };
    metadata.insert("deletionTimestamp".into(), json!(end.max(now).to_string()));
    metadata.insert("deletionGracePeriodSeconds".into(), json!(left));
}

/// Ends the grace period of a deleted object: its deletion goes on.
pub fn end(value: &mut Json, now: Timestamp) {
    let metadata = metadata_of(value);
    metadata.insert("deletionTimestamp".into(), json!(now.to_string()));
    metadata.insert("deletionGracePeriodSeconds".into(), json!(0));
}

/// Removes from an object what its deletion wrote.
pub fn take_back(value: &mut Json) {
    let metadata = metadata_of(value);
    metadata.remove("deletionTimestamp");
    metadata.remove("deletionGracePeriodSeconds");
    if let Some(finalizers) = metadata.get_mut("finalizers").and_then(Json::as_array_mut) {
        finalizers.retain(|finalizer| finalizer != ORPHAN && finalizer != FOREGROUND);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use insula_api::Object;

    /// Clock that stands at a time, in milliseconds.
    struct Standing(i64);

    impl Clock for Standing {
        fn now(&self) -> Timestamp {
            Timestamp(self.0 / 1_000)
        }

        fn now_micros(&self) -> i64 {
            self.0 * 1_000
        }
    }

    /// Deletes a Workspace at a time, and returns its time of deletion and its grace period.
    fn deleted(value: &mut Json, seconds: (u64, Option<u64>), now: i64) -> (String, i64) {
        deleted_at(value, seconds, &Standing(now * 1_000))
    }

    fn deleted_at(value: &mut Json, seconds: (u64, Option<u64>), clock: &Standing) -> (String, i64) {
        let old = Object::new(value, None).expect("an object").meta;
        if !old.is_deleting() {
            end(value, clock.now());
        }
        set(value, &old, seconds, clock);
        let metadata = &value["metadata"];
        let end = metadata["deletionTimestamp"].as_str().expect("a time");
        let seconds = metadata["deletionGracePeriodSeconds"].as_i64().expect("seconds");
        (end.to_owned(), seconds)
    }

    fn workspace() -> Json {
        json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "a"},
            "spec": {"cluster": "c"}})
    }

    #[test]
    fn the_grace_period_is_the_setting_or_shorter() {
        let at = |seconds: i64| Timestamp(seconds).to_string();
        for (seconds, want) in [
            ((0, None), (at(1000), 0)),
            ((0, Some(60)), (at(1000), 0)),
            ((60, None), (at(1060), 60)),
            ((60, Some(10)), (at(1010), 10)),
            ((60, Some(600)), (at(1060), 60)),
            ((60, Some(0)), (at(1000), 0)),
        ] {
            let got = deleted(&mut workspace(), seconds, 1000);
            assert_eq!(got, want, "{seconds:?}");
        }
    }

    #[test]
    fn a_period_is_not_shorter_than_its_seconds() {
        let at = |seconds: i64| Timestamp(seconds).to_string();
        for (setting, milliseconds, want) in [
            (1, 1_000_000, (at(1001), 1)),
            (1, 1_000_001, (at(1002), 1)),
            (1, 1_000_999, (at(1002), 1)),
            (0, 1_000_999, (at(1000), 0)),
        ] {
            let got = deleted_at(&mut workspace(), (setting, None), &Standing(milliseconds));
            assert_eq!(got, want, "{setting} at {milliseconds}");
        }
        let mut value = workspace();
        assert_eq!(deleted_at(&mut value, (60, None), &Standing(1_000_900)), (at(1061), 60));
        assert_eq!(
            deleted_at(&mut value, (60, Some(0)), &Standing(1_000_950)),
            (at(1000), 0)
        );
    }

    #[test]
    fn a_second_deletion_shortens_the_period_and_never_prolongs_it() {
        let at = |seconds: i64| Timestamp(seconds).to_string();
        let mut value = workspace();
        assert_eq!(deleted(&mut value, (60, None), 1000), (at(1060), 60));
        assert_eq!(deleted(&mut value, (600, None), 1010), (at(1060), 60));
        assert_eq!(deleted(&mut value, (600, Some(90)), 1010), (at(1060), 60));
        assert_eq!(deleted(&mut value, (0, Some(30)), 1010), (at(1030), 30));
        assert_eq!(deleted(&mut value, (0, Some(0)), 1010), (at(1010), 0));
        assert_eq!(
            deleted(&mut value, (60, None), 1020),
            (at(1010), 0),
            "it is being deleted"
        );
    }

    #[test]
    fn nothing_of_a_deletion_stays() {
        let mut value = workspace();
        value["metadata"]["finalizers"] = json!(["a/b", FOREGROUND]);
        let before = json!({"name": "a", "finalizers": ["a/b"]});
        deleted(&mut value, (60, None), 1000);
        take_back(&mut value);
        assert_eq!(value["metadata"], before);
    }
}
