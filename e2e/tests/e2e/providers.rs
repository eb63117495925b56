//! A provider of an API and its tenants, for the tests of releases.

use insula_e2e::{Client, Server, until, workspace};
use serde_json::json;

use crate::tools::ran;

/// Runs `insula export` in the workspace of a provider. Returns the exit code and all output.
pub(crate) fn export(server: &Server, provider: &str, arguments: &[&str]) -> (i32, String) {
    let kubeconfig = server.kubeconfig();
    let to = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--workspace", provider];
    let (code, out, error) = ran(&[&["export"], arguments, &to].concat(), "");
    (code, format!("{out}{error}"))
}

/// Makes a workspace that binds the export of an API, which is named as its group, and waits until
/// v1 is served there. Returns its path and a client in it.
pub(crate) fn tenant(admin: &Client, provider: &str, (group, plural): (&str, &str)) -> (String, Client) {
    let (path, _) = workspace(admin, plural);
    let tenant = admin.in_workspace(&path);
    let binding = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding",
        "metadata": {"name": plural},
        "spec": {"reference": {"export": {"path": provider, "name": group}}}});
    tenant
        .post("/apis/apis.kcp.io/v1alpha2/apibindings", &binding)
        .expect(201);
    let objects = format!("/apis/{group}/v1/{plural}");
    until(&format!("{plural} are served"), || {
        (tenant.get(&objects).code == 200).then_some(())
    });
    (path, tenant)
}
