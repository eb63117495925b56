//! Payers of workspaces: the owner that a LogicalCluster names, so that a user of many workspaces
//! counts as one.

use crate::ids;
use insula_api::Object;
use insula_auth::GROUP_MASTERS;
use insula_store::Payers;
use serde::Deserialize;
use std::sync::Arc;

/// The part of a LogicalCluster that names its owner. Read for every workspace at the start, and
/// therefore without the rest.
#[derive(Deserialize)]
struct LogicalCluster {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    annotations: Annotations,
}

#[derive(Deserialize, Default)]
struct Annotations {
    #[serde(rename = "experimental.tenancy.kcp.io/owner")]
    owner: Option<String>,
}

#[derive(Deserialize)]
struct Owner {
    username: Arc<str>,
    #[serde(default)]
    groups: Vec<String>,
}

/// Returns the rule by which a store knows the payer of a logical cluster.
pub fn rule() -> Payers {
    Payers {
        resource: ids::logicalclusters(),
        read: payer,
    }
}

/// Returns the owner that pays for a workspace. An administrator of the platform creates
/// workspaces for others: each counts for itself.
fn payer(logical_cluster: &Object) -> Option<Arc<str>> {
    let text = logical_cluster.body().concat();
    let read: LogicalCluster = serde_json::from_str(&text).ok()?;
    of_owner(&read.metadata.annotations.owner?)
}

/// Returns who pays for a workspace whose LogicalCluster names an owner in its annotation.
pub(crate) fn of_owner(annotation: &str) -> Option<Arc<str>> {
    let owner: Owner = serde_json::from_str(annotation).ok()?;
    let is_platform = owner.groups.iter().any(|group| group == GROUP_MASTERS);
    (!is_platform && !owner.username.is_empty()).then_some(owner.username)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_owner_pays_unless_the_platform_made_the_workspace() {
        let read = |annotations: serde_json::Value| {
            let value = json!({"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster",
                "metadata": {"name": "cluster", "annotations": annotations}, "spec": {}});
            payer(&Object::new(&value, None).expect("an object"))
        };
        let owned = |owner: &str| read(json!({"experimental.tenancy.kcp.io/owner": owner, "other": "x"}));
        assert_eq!(owned(r#"{"username": "eve"}"#).as_deref(), Some("eve"));
        assert_eq!(
            owned(r#"{"username": "eve", "groups": ["devs"]}"#).as_deref(),
            Some("eve")
        );
        assert_eq!(owned(r#"{"username": "admin", "groups": ["system:masters"]}"#), None);
        assert_eq!(owned("eve"), None);
        assert_eq!(read(json!({})), None);
    }
}
