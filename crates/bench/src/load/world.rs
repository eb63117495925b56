//! Tenants of the load: a provider that exports one kind in two versions, and workspaces that bind
//! it.

use super::client::Client;
use crate::fixtures::{GROUP, MOVES, PLURAL, rules, widget, widget_schema};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const PROVIDER: &str = "load-provider";
const SCHEMA: &str = "v1.widgets.bench.example.io";
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Path at which Workspaces are created and listed.
pub(crate) const WORKSPACES: &str = "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces";

/// Returns the name of tenant `n`.
pub(crate) fn tenant(n: usize) -> String {
    format!("t{n:06}")
}

/// Returns a Workspace of the plain type.
pub(crate) fn workspace(name: &str) -> Value {
    json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name},
        "spec": {"type": {"path": "root", "name": "universal"}},
    })
}

/// Returns the path of the widgets of tenant `n` in a version.
pub(crate) fn widgets(n: usize, version: &str) -> String {
    format!(
        "/clusters/root:{}/apis/{GROUP}/{version}/namespaces/default/{PLURAL}",
        tenant(n)
    )
}

/// Bodies of widgets that differ in their name. Encoded once, to save CPU time of the client.
pub(crate) struct Bodies {
    head: String,
    tail: String,
}

impl Bodies {
    /// Creates the bodies of widgets in a version.
    pub(crate) fn new(version: &str) -> Self {
        const MARK: &str = "@name";
        let body = widget(MARK, version, MOVES).to_string();
        let (head, tail) = body.split_once(MARK).unwrap_or((&body, ""));
        Bodies {
            head: head.to_owned(),
            tail: tail.to_owned(),
        }
    }

    /// Returns the widget with a name.
    pub(crate) fn named(&self, name: &str) -> Bytes {
        Bytes::from([&self.head, name, &self.tail].concat())
    }
}

/// Returns the path of other widgets of tenant `n`, which are in no list.
pub(crate) fn other_widgets(n: usize, version: &str) -> String {
    format!(
        "/clusters/root:{}/apis/{GROUP}/{version}/namespaces/kube-system/{PLURAL}",
        tenant(n)
    )
}

/// Creates the workspace of the provider and exports the kind from it, optionally with one field
/// computed by CEL.
pub(crate) async fn provide(client: &Client, computed: bool) -> Result<()> {
    client.create(WORKSPACES, &workspace(PROVIDER)).await?;
    wait_ready(client, PROVIDER).await?;
    let base = format!("/clusters/root:{PROVIDER}/apis/apis.kcp.io");
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == "v1",
        "schema": widget_schema(name, MOVES)})
    };
    let names = json!({"plural": PLURAL, "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    let schema = json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema", "metadata": {"name": SCHEMA},
        "spec": {
            "group": GROUP, "scope": "Namespaced", "names": names,
            "versions": [version("v1"), version("v2")],
        },
    });
    client
        .create(&format!("{base}/v1alpha1/apiresourceschemas"), &schema)
        .await?;
    let conversion = json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion", "metadata": {"name": SCHEMA},
        "spec": rules(MOVES, computed),
    });
    client
        .create(&format!("{base}/v1alpha1/apiconversions"), &conversion)
        .await?;
    let export = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "widgets"},
        "spec": {"resources": [{"name": PLURAL, "group": GROUP, "schema": SCHEMA, "storage": {"crd": {}}}]},
    });
    client.create(&format!("{base}/v1alpha2/apiexports"), &export).await?;
    Ok(())
}

/// Waits until a workspace is Ready.
pub(crate) async fn wait_ready(client: &Client, name: &str) -> Result<()> {
    let path = format!("{WORKSPACES}/{name}");
    let begun = Instant::now();
    loop {
        let found = client.get(&path).await?;
        if found["status"]["phase"] == "Ready" {
            return Ok(());
        }
        if begun.elapsed() > WAIT_MAX {
            bail!(
                "workspace {name} is not Ready after {} s: {}",
                WAIT_MAX.as_secs(),
                found["status"]
            );
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Binds the export in a tenant and waits until the API answers there.
pub(crate) async fn bind(client: &Client, n: usize) -> Result<()> {
    let tenant = tenant(n);
    let binding = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "widgets"},
        "spec": {"reference": {"export": {"path": format!("root:{PROVIDER}"), "name": "widgets"}}},
    });
    let bindings = format!("/clusters/root:{tenant}/apis/apis.kcp.io/v1alpha2/apibindings");
    client.create(&bindings, &binding).await?;
    let list = format!("{}?limit=1", widgets(n, "v1"));
    let begun = Instant::now();
    loop {
        let (code, answer) = client.send(Method::GET, &list, None).await?;
        match code {
            StatusCode::OK => return Ok(()),
            StatusCode::NOT_FOUND if begun.elapsed() < WAIT_MAX => {}
            _ => {
                let binding = client
                    .get(&format!("{bindings}/widgets"))
                    .await
                    .context("reading the binding")?;
                bail!(
                    "{list}: {code} {}; binding: {}",
                    String::from_utf8_lossy(&answer),
                    binding["status"]
                );
            }
        }
    }
}
