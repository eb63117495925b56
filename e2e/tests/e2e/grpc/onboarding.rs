//! The examples of `docs/clients`: each onboards a tenant over gRPC.

#[expect(dead_code, reason = "it is a program of its own as well")]
#[path = "../../../../docs/clients/rust/onboard.rs"]
mod onboard;

use std::{fs, path::PathBuf};

use insula_e2e::{Onboarding, Server, runtime, shared, unique};

/// Returns the API that the examples publish.
fn definition() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("clients/lamps.json")
}

/// Asserts that an example says what the server shows.
fn check(server: &Server, tenant: &str, said: &str) {
    let want = format!("root:{tenant} serves house.example.io of root:{tenant}-provider");
    assert_eq!(said, want);
    let lamps = "/apis/house.example.io/v1/lamps";
    server
        .admin()
        .in_workspace(&format!("root:{tenant}"))
        .get(lamps)
        .expect(200);
}

#[test]
fn the_example_in_rust() {
    let (server, tenant) = (shared(), unique("rust"));
    let (pki, text) = (server.data_dir().join("pki"), fs::read_to_string(definition()).unwrap());
    let onboarding = onboard::onboard(server.url(), &pki, &text, &tenant);
    let said = runtime().block_on(async { tokio::time::timeout(insula_e2e::PATIENCE, onboarding).await });
    check(&server, &tenant, &said.expect("it ends").unwrap());
}

#[test]
fn the_example_in_python() {
    let (server, tenant) = (shared(), unique("python"));
    if let Some(said) = Onboarding::Python.run(&server, &definition(), &tenant) {
        check(&server, &tenant, &said);
    }
}

#[test]
fn the_example_in_go() {
    let (server, tenant) = (shared(), unique("go"));
    if let Some(said) = Onboarding::Go.run(&server, &definition(), &tenant) {
        check(&server, &tenant, &said);
    }
}
