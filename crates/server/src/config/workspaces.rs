//! Settings of workspaces.

use serde::{Deserialize, Deserializer, Serialize, de::Error};

use super::Targets;

/// Longest grace period of a deletion in seconds: a year.
const GRACE_SECONDS_MAX: u64 = 366 * 24 * 3600;

/// Workspaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Workspaces {
    /// Gives every user a home workspace (`kubectl ws ~`).
    pub homes: bool,
    /// Seconds for which an event is kept after its last write; 0 for ever.
    pub event_ttl_seconds: u64,
    /// Seconds for which the deletion of a workspace may be taken back; 0 for none.
    pub deletion_grace_seconds: u64,
    /// Objects of a workspace at most; 0 for no limit.
    pub objects: u64,
    /// Bytes of the objects of a workspace in memory at most; 0 for no limit, `None` for a quarter
    /// of the memory.
    #[serde(deserialize_with = "bytes")]
    pub storage_bytes: Option<u64>,
    /// Bytes of the objects of all workspaces of one owner at most; 0 for no limit, `None` for a
    /// quarter of the memory.
    #[serde(deserialize_with = "bytes")]
    pub storage_bytes_per_owner: Option<u64>,
    /// Objects of all workspaces of one owner at most; 0 for no limit.
    pub objects_per_owner: u64,
    /// Records which versions of bound APIs are used.
    pub version_uses: bool,
    /// Seconds between two writes of metered amounts; 0 meters nothing.
    pub metering_seconds: u64,
    /// Serves ThirdPartyResources of both generations and their objects.
    pub third_party_resources: bool,
    /// Serves CustomResourceDefinitions in `apiextensions.k8s.io/v1beta1`.
    pub definitions_v1beta1: bool,
    /// Reads the subresources of definitions in v1beta1; false drops them.
    pub definition_subresources: bool,
    /// Servers that workspaces may be mounted from, written as `webhooks.allow`; empty for none.
    pub mounts: Targets,
}

impl Default for Workspaces {
    fn default() -> Self {
        Self {
            homes: true,
            event_ttl_seconds: 3600,
            deletion_grace_seconds: 0,
            objects: 0,
            storage_bytes: None,
            storage_bytes_per_owner: None,
            objects_per_owner: 0,
            version_uses: true,
            metering_seconds: 60,
            third_party_resources: true,
            definitions_v1beta1: true,
            definition_subresources: true,
            mounts: Targets::nobody(),
        }
    }
}

/// Reads a number of bytes. The value of a variable or flag is a text, since the default has no
/// type.
fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Given {
        Number(u64),
        Text(String),
    }
    match Option::<Given>::deserialize(from)? {
        None => Ok(None),
        Some(Given::Number(bytes)) => Ok(Some(bytes)),
        Some(Given::Text(text)) => {
            let wrong = |_| D::Error::custom(format!("{text:?} is no number of bytes"));
            text.trim().parse().map(Some).map_err(wrong)
        }
    }
}

/// Returns the key of a setting that no server can keep, and the mistake.
pub(super) fn mistake(workspaces: &Workspaces) -> Option<(&'static str, String)> {
    let seconds = workspaces.deletion_grace_seconds;
    (seconds > GRACE_SECONDS_MAX).then(|| {
        let why = format!("{seconds} must be at most {GRACE_SECONDS_MAX}, which is a year");
        ("workspaces.deletionGraceSeconds", why)
    })
}
