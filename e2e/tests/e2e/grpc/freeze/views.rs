//! Freezes seen by initializers and terminators, through their virtual workspaces.

use insula_e2e::{Client, Who, shared, unique, until, workspace};
use serde_json::json;

use super::{CONFIGMAPS, WORKSPACES, answered, client, configmap, freeze, thaw};

const TYPES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes";
const STATUS: &str = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster/status";

/// Waits for a phase of a workspace, and returns its cluster.
fn in_phase(lobby: &Client, name: &str, phase: &str) -> String {
    until(&format!("{name} is {phase}"), || {
        let found = lobby.get(&format!("{WORKSPACES}/{name}")).expect(200);
        let cluster = found["spec"]["cluster"].as_str().map(str::to_owned);
        cluster.filter(|_| found["status"]["phase"] == phase)
    })
}

/// A frozen workspace stays in the phase that it has: its initializer reads, and neither writes
/// nor takes its entry off. Its deletion ends the freeze, so that its terminator can work.
#[test]
fn initializers_wait_for_the_thaw_and_terminators_work() {
    let server = shared();
    let root = server.admin();
    let (path, cluster) = workspace(&root, "lobby");
    let lobby = root.in_workspace(&path);
    let gated = json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType",
        "metadata": {"name": "gated"}, "spec": {"initializer": true, "terminator": true,
            "extend": {"with": [{"name": "universal", "path": "root"}]}}});
    lobby.post(TYPES, &gated).expect(201);
    let name = unique("guest");
    let guest = json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name},
        "spec": {"type": {"name": "gated"}}});
    lobby.post(WORKSPACES, &guest).expect(201);
    let inside = in_phase(&lobby, &name, "Initializing");
    let view = |which: &str| root.below(&format!("/services/{which}/{cluster}:gated/clusters/{inside}"));
    let initializer = view("initializingworkspaces");
    initializer.post(CONFIGMAPS, &configmap("before")).expect(201);

    let mut admin = client(&server, &Who::KcpAdmin);
    let place = format!("{path}:{name}");
    answered(admin.freeze_workspace(freeze(&place, false))).unwrap();
    let done = json!({"status": {"initializers": []}});
    for refused in [
        initializer.post(CONFIGMAPS, &configmap("meanwhile")),
        initializer.delete(&format!("{CONFIGMAPS}/before")),
        initializer.merge(STATUS, &done),
    ] {
        let refused = refused.expect(403);
        let why = refused["message"].as_str().unwrap();
        assert!(why.contains("is frozen since "), "{why}");
    }
    initializer.get(&format!("{CONFIGMAPS}/before")).expect(200);
    in_phase(&lobby, &name, "Initializing");
    answered(admin.thaw_workspace(thaw(&place))).unwrap();
    initializer.merge(STATUS, &done).expect(200);
    in_phase(&lobby, &name, "Ready");

    answered(admin.freeze_workspace(freeze(&place, false))).unwrap();
    lobby.delete(&format!("{WORKSPACES}/{name}")).expect(200);
    in_phase(&lobby, &name, "Terminating");
    let terminator = view("terminatingworkspaces");
    until("the terminator sees it", || {
        (terminator.get(CONFIGMAPS).code == 200).then_some(())
    });
    terminator.delete(&format!("{CONFIGMAPS}/before")).expect(200);
    terminator
        .merge(STATUS, &json!({"status": {"terminators": []}}))
        .expect(200);
    until("the workspace is gone", || {
        (lobby.get(&format!("{WORKSPACES}/{name}")).code == 404).then_some(())
    });
}
