//! Grace period of deleted workspaces, in which their deletion may be taken back.
//!
//! ```text
//! Ready ──DELETE──> awaits deletion ──time──> deleting ──> gone
//!   └────undelete────────┘
//! ```
//! The whole state is in the Workspace: `deletionTimestamp` is the time at which the deletion goes
//! on, and `deletionGracePeriodSeconds` is above 0 until then. Requests find neither the workspace
//! nor those below it ([`insula_catalog::locate::awaits_deletion`]); its content and its
//! LogicalCluster stay as they are. The end of the grace period sets `deletionGracePeriodSeconds`
//! to 0. From then on the workspace is one that is being deleted, as without a grace period.

use crate::metadata::{FOREGROUND, ORPHAN};
use insula_api::{Json, Meta, Timestamp};
use insula_catalog::object::metadata_of;
use serde_json::json;

/// Sets the grace period of a Workspace that a request deletes. `seconds` are those of the setting
/// and of the request, which may shorten the period, also later, and not prolong it.
pub(crate) fn set(value: &mut Json, old: &Meta, seconds: (u64, Option<u64>), now: Timestamp) {
    let (setting, requested) = seconds;
    // A workspace without a logical cluster has no content to keep.
    let has_content = value["spec"]["cluster"]
        .as_str()
        .is_some_and(|cluster| !cluster.is_empty());
    let metadata = metadata_of(value);
    let known = metadata.get("deletionGracePeriodSeconds").and_then(Json::as_u64);
    let (begun, longest) = match old.deletion_timestamp {
        None if has_content => (now, setting),
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
    let end = Timestamp(begun.0.saturating_add_unsigned(wanted));
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

/// Removes from a Workspace what its deletion wrote.
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

    /// Deletes a Workspace at a time, and returns its time of deletion and its grace period.
    fn deleted(value: &mut Json, seconds: (u64, Option<u64>), now: i64) -> (String, i64) {
        let old = Object::new(value, None).expect("an object").meta;
        if !old.is_deleting() {
            end(value, Timestamp(now));
        }
        set(value, &old, seconds, Timestamp(now));
        let metadata = &value["metadata"];
        let end = metadata["deletionTimestamp"].as_str().expect("a time");
        let seconds = metadata["deletionGracePeriodSeconds"].as_i64().expect("seconds");
        (end.to_owned(), seconds)
    }

    fn workspace(cluster: &str) -> Json {
        json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "a"},
            "spec": {"cluster": cluster}})
    }

    #[test]
    fn the_grace_period_is_the_setting_or_shorter() {
        let at = |seconds: i64| Timestamp(seconds).to_string();
        for (cluster, seconds, want) in [
            ("c", (0, None), (at(1000), 0)),
            ("c", (0, Some(60)), (at(1000), 0)),
            ("c", (60, None), (at(1060), 60)),
            ("c", (60, Some(10)), (at(1010), 10)),
            ("c", (60, Some(600)), (at(1060), 60)),
            ("c", (60, Some(0)), (at(1000), 0)),
            ("", (60, None), (at(1000), 0)),
        ] {
            let got = deleted(&mut workspace(cluster), seconds, 1000);
            assert_eq!(got, want, "{cluster:?} {seconds:?}");
        }
    }

    #[test]
    fn a_second_deletion_shortens_the_period_and_never_prolongs_it() {
        let at = |seconds: i64| Timestamp(seconds).to_string();
        let mut value = workspace("c");
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
        let mut value = workspace("c");
        value["metadata"]["finalizers"] = json!(["a/b", FOREGROUND]);
        let before = json!({"name": "a", "finalizers": ["a/b"]});
        deleted(&mut value, (60, None), 1000);
        take_back(&mut value);
        assert_eq!(value["metadata"], before);
    }
}
