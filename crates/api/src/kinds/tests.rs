use super::{ApiBinding, ApiBindingPhase, ApiExport, LogicalCluster, Workspace, WorkspacePhase, read};
use serde_json::{Value, json};

#[test]
fn fields_have_their_names_in_json() {
    let binding: ApiBinding = read(&json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding",
        "metadata": {"name": "b", "annotations": {"kcp.io/path": "root:t"}},
        "spec": {"reference": {"export": {"path": "root:p", "name": "widgets"}},
            "permissionClaims": [{"group": "", "resource": "secrets", "identityHash": "h", "state": "Accepted"}]},
        "status": {"phase": "Bound", "boundResources": [{"group": "example.io", "resource": "widgets",
            "schema": {"name": "today.widgets.example.io", "UID": "u", "identityHash": "i"},
            "storageVersions": ["v1", "v2"]}]},
    }));
    assert_eq!(binding.metadata.annotation("kcp.io/path"), Some("root:t"));
    assert_eq!(binding.spec.reference.export.path, "root:p");
    assert_eq!(binding.spec.permission_claims[0].identity_hash, "h");
    assert_eq!(binding.status.phase, Some(ApiBindingPhase::Bound));
    let bound = binding.status.bound("example.io", "widgets").expect("it is bound");
    assert_eq!(bound.schema.uid, "u");
    assert_eq!(bound.storage_versions, ["v1", "v2"]);
    assert_eq!(&*bound.id().identity, "i");

    let workspace: Workspace = read(&json!({
        "spec": {"URL": "https://s/clusters/c", "cluster": "c", "type": {"name": "universal", "path": "root"},
            "mount": {"ref": {"apiVersion": "g/v1", "kind": "K", "name": "n"}}},
        "status": {"phase": "Ready"},
    }));
    assert_eq!(workspace.spec.url, "https://s/clusters/c");
    assert_eq!(workspace.spec.r#type.name, "universal");
    assert_eq!(workspace.spec.mount.expect("it is a mount").r#ref.kind, "K");
    assert_eq!(workspace.status.phase, Some(WorkspacePhase::Ready));
}

#[test]
fn a_phase_reads_as_it_is_written() {
    for phase in WorkspacePhase::ALL {
        let cluster: LogicalCluster = read(&json!({"status": {"phase": phase.as_str()}}));
        assert_eq!(cluster.status.phase, Some(phase));
        assert_eq!(WorkspacePhase::parse(phase.as_str()), phase);
    }
}

#[test]
fn one_field_that_does_not_fit_spoils_no_other() {
    let cluster: LogicalCluster = read(&json!({
        "metadata": {"annotations": null},
        "spec": {"directlyDeletable": "yes", "owner": {"name": 7, "cluster": "c"}},
        "status": {"phase": "Sleeping", "terminators": ["a"], "initializers": null},
        "unknown": 1,
    }));
    assert!(!cluster.spec.directly_deletable);
    assert_eq!((&*cluster.spec.owner.name, &*cluster.spec.owner.cluster), ("", "c"));
    assert_eq!(cluster.status.phase, None);
    assert_eq!(cluster.status.terminators, ["a"]);
    assert_eq!(read::<ApiExport>(&Value::Null), ApiExport::default());
}
