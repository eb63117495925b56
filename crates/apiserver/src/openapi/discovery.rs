//! OpenAPI documents of discovery: `/api`, `/apis`, `/apis/<group>` and `/version`. They depend on
//! their path alone.

use super::{paths::camel, reference};
use crate::discovery::is_built_in;
use insula_api::Json;
use insula_catalog::Served;
use serde_json::{Map, json};
use std::collections::BTreeSet;

/// Paths that every cluster has.
const COMMON: [&str; 3] = ["api", "apis", "version"];

/// Returns the paths of the discovery documents. Kubernetes has none for the groups of custom
/// resources; kcp's virtual workspaces have them for all groups.
pub(super) fn paths(served: &[Served], all_groups: bool) -> BTreeSet<String> {
    let named = served.iter().filter(|served| !served.group().is_empty());
    let groups = named.filter(|served| all_groups || is_built_in(served));
    let groups = groups.map(|served| format!("apis/{}", served.group()));
    COMMON.into_iter().map(str::to_owned).chain(groups).collect()
}

/// Returns the document of one path.
pub(super) fn document(path: &str) -> Json {
    const VERSIONS: &str = "get available API versions";
    let group = path.strip_prefix("apis/").unwrap_or_default();
    let (tag, id, description, kind) = match path {
        "api" => (
            "core".to_owned(),
            "getCoreAPIVersions".to_owned(),
            VERSIONS,
            "APIVersions",
        ),
        "apis" => ("apis".to_owned(), "getAPIVersions".to_owned(), VERSIONS, "APIGroupList"),
        "version" => (
            "version".to_owned(),
            "getCodeVersion".to_owned(),
            "get the version information for this server",
            "Info",
        ),
        _ => {
            let name = camel(group);
            let tag = super::paths::uncapital(&name);
            (
                tag,
                format!("get{name}APIGroup"),
                "get information of a group",
                "APIGroup",
            )
        }
    };
    let schema = json!({"schema": reference(&component(kind))});
    let content = match kind {
        "Info" => json!({"application/json": schema}),
        _ => json!({"application/json": schema, "application/yaml": schema}),
    };
    let schemas: Map<String, Json> = needed(kind)
        .iter()
        .map(|kind| (component(kind), schema_of(kind)))
        .collect();
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v0.1.0"},
        "paths": {format!("/{path}/"): {"get": {
            "tags": [tag], "description": description, "operationId": id,
            "responses": {
                "200": {"description": "OK", "content": content},
                "401": {"description": "Unauthorized"},
            },
        }}},
        "components": {"schemas": schemas},
    })
}

fn component(kind: &str) -> String {
    match kind {
        "Info" => "io.k8s.apimachinery.pkg.version.Info".to_owned(),
        _ => format!("{}{kind}", super::META),
    }
}

/// Returns a kind and the kinds that its schema refers to.
fn needed(kind: &str) -> &'static [&'static str] {
    match kind {
        "APIVersions" => &["APIVersions", "ServerAddressByClientCIDR"],
        "APIGroupList" => &[
            "APIGroup",
            "APIGroupList",
            "GroupVersionForDiscovery",
            "ServerAddressByClientCIDR",
        ],
        "APIGroup" => &["APIGroup", "GroupVersionForDiscovery", "ServerAddressByClientCIDR"],
        _ => &["Info"],
    }
}

/// Fields of the server's version.
const VERSION_FIELDS: [&str; 9] = [
    "major",
    "minor",
    "gitVersion",
    "gitCommit",
    "gitTreeState",
    "buildDate",
    "goVersion",
    "compiler",
    "platform",
];

fn schema_of(kind: &str) -> Json {
    let text = |description: &str| json!({"type": "string", "default": "", "description": description});
    let items = |of: &str| json!({"default": {}, "allOf": [reference(&component(of))]});
    let list = |of: Json, description: &str| json!({"type": "array", "items": of, "description": description});
    let addresses = || {
        list(
            items("ServerAddressByClientCIDR"),
            "Addresses of the server by the networks of its clients.",
        )
    };
    let (required, properties) = match kind {
        "APIVersions" => (
            json!(["versions", "serverAddressByClientCIDRs"]),
            json!({
                "versions": list(json!({"type": "string", "default": ""}), "Versions of the core group."),
                "serverAddressByClientCIDRs": addresses(),
            }),
        ),
        "APIGroupList" => (
            json!(["groups"]),
            json!({"groups": list(items("APIGroup"), "The served groups.")}),
        ),
        "APIGroup" => (
            json!(["name", "versions"]),
            json!({
                "name": text("Name of the group."),
                "versions": list(items("GroupVersionForDiscovery"), "Served versions of the group."),
                "preferredVersion": items("GroupVersionForDiscovery"),
                "serverAddressByClientCIDRs": addresses(),
            }),
        ),
        "GroupVersionForDiscovery" => (
            json!(["groupVersion", "version"]),
            json!({
                "groupVersion": text("Group and version, joined by a slash."),
                "version": text("The version alone."),
            }),
        ),
        "ServerAddressByClientCIDR" => (
            json!(["clientCIDR", "serverAddress"]),
            json!({
                "clientCIDR": text("Network of the clients."),
                "serverAddress": text("Host and port of the server."),
            }),
        ),
        _ => {
            let fields = VERSION_FIELDS.iter();
            let all: Map<String, Json> = fields
                .map(|field| ((*field).to_owned(), json!({"type": "string", "default": ""})))
                .collect();
            (json!(VERSION_FIELDS), Json::Object(all))
        }
    };
    let mut schema = json!({"type": "object", "required": required, "properties": properties});
    if matches!(kind, "APIVersions" | "APIGroupList" | "APIGroup") {
        let gvk = json!([{"group": "", "version": "v1", "kind": kind}]);
        schema["x-kubernetes-group-version-kind"] = gvk;
        for field in ["apiVersion", "kind"] {
            schema["properties"][field] = json!({"type": "string"});
        }
    }
    schema
}
