//! Grace period of deleted APIBindings, by an annotation of the export and of the workspace.

use super::{ExportName, offer::Binding};
use crate::locate;
use insula_api::{ClusterName, Json, names::annotations::UNBIND_GRACE_SECONDS};
use insula_store::{Entry, Snapshot};

/// Longest grace period in seconds: a year, as for deleted workspaces.
pub const GRACE_SECONDS_MAX: u64 = 366 * 24 * 3600;

/// Reads the value of the annotation; `None` if it is no number of seconds up to a year.
pub fn grace_seconds(text: &str) -> Option<u64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = is_number.then(|| text.parse().ok()).flatten()?;
    (seconds <= GRACE_SECONDS_MAX).then_some(seconds)
}

/// Returns the message of a value that [`grace_seconds`] does not read.
pub fn grace_seconds_problem() -> String {
    format!("must be a number of seconds from 0 to {GRACE_SECONDS_MAX}, which is a year; 0 is no grace period")
}

/// Returns the seconds that an APIExport or a LogicalCluster gives; 0 without the annotation.
pub(crate) fn grace_seconds_in(object: &Json) -> u64 {
    let given = object["metadata"]["annotations"][UNBIND_GRACE_SECONDS].as_str();
    given.and_then(grace_seconds).unwrap_or_default()
}

/// Returns the seconds for which the deletion of an APIBinding may be taken back: those of its
/// export or those of its workspace, whichever are more.
pub fn grace_seconds_of(snapshot: &Snapshot, binding: &Entry) -> u64 {
    let workspace = locate::logical_cluster(snapshot, &binding.key.cluster);
    let workspace = workspace.map_or(0, |view| view.unbind_grace_seconds);
    let reference = binding.object.parsed(Binding::read);
    let export = ClusterName::parse(&reference.cluster).ok().and_then(|cluster| {
        let name = reference.export.as_str().into();
        ExportName { cluster, name }.spec(snapshot)
    });
    workspace.max(export.map_or(0, |export| export.unbind_grace_seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_a_number_of_seconds_up_to_a_year() {
        for (text, want) in [
            ("0", Some(0)),
            ("86400", Some(86_400)),
            ("31622400", Some(GRACE_SECONDS_MAX)),
            ("31622401", None),
            ("-1", None),
            ("+5", None),
            ("1d", None),
            ("", None),
        ] {
            assert_eq!(grace_seconds(text), want, "{text}");
        }
    }
}
