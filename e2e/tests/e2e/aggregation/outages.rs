//! Counts of extension servers that are not available, in the metrics of the server.

use insula_e2e::{Extension, Server, until, unused_port, workspace};
use serde_json::json;

use super::{SERVICE, SERVICES, register, wait_for};

#[test]
fn outages_are_counted_by_reason_and_without_names() {
    let server = Server::with_flags(&["--store", "memory", "--webhook-allow", "127.0.0.1"]);
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "outages").0);
    let present = "insula_aggregator_unavailable_apiservices";
    let lost = "insula_aggregator_unavailable_apiservice_total";
    let is = |name: &str, reason: &str, count: u64| {
        let line = format!("{name}{{reason=\"{reason}\"}} {count}");
        let text = server.admin().get("/metrics").text;
        text.lines().any(|found| found == line).then_some(())
    };
    let wait = |name: &str, reason: &str, count: u64| until("the count is right", || is(name, reason, count));
    let extension = Extension::start(&server);
    register(&client, &extension.api_service(None));
    for reason in ["FailedDiscoveryCheck", "ServedLocally", "ServiceNotFound", "Unchecked"] {
        wait(present, reason, 0);
        wait(lost, reason, 0);
    }
    // One that never was available is not lost.
    let mut other = extension.api_service(None);
    other["metadata"] = json!({"name": "v1.chosen.example.com"});
    other["spec"]["group"] = json!("chosen.example.com");
    client.post(SERVICES, &other).expect(201);
    wait(present, "ServiceNotFound", 1);
    wait(lost, "ServiceNotFound", 0);
    let at = |url: &str| json!({"metadata": {"annotations": {"insula.io/url": url}}});
    let away = format!("https://127.0.0.1:{}", unused_port());
    client.merge(SERVICE, &at(&away)).expect(200);
    wait_for(&client, "False", "FailedDiscoveryCheck");
    wait(present, "FailedDiscoveryCheck", 1);
    wait(lost, "FailedDiscoveryCheck", 1);
    // A reason that a user writes is no label.
    let condition = json!({"type": "Available", "status": "False", "reason": "Chosen", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let written = json!({"status": {"conditions": [condition]}});
    let status = format!("{SERVICES}/v1.chosen.example.com/status");
    until("its reason is counted as another one", || {
        // Again and again, because the next check replaces it.
        client.merge(&status, &written);
        is(present, "Unchecked", 1)
    });
    client.merge(SERVICE, &at(extension.url())).expect(200);
    wait_for(&client, "True", "Passed");
    wait(present, "FailedDiscoveryCheck", 0);
    wait(lost, "FailedDiscoveryCheck", 1);
    let text = server.admin().get("/metrics").text.to_lowercase();
    for name in ["chosen", "fleet.example.com", "root:"] {
        assert!(!text.contains(name), "{name}");
    }
}
