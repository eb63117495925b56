//! Bindings, step by step with all reconcilers.

mod grace;
mod keys;
mod removal;

use crate::testing::TestControlPlane;
use insula_api::{Json, condition};
use insula_catalog::ids;
use insula_meter::ServerWork;
use serde_json::json;

const BINDINGS: (&str, &str) = ("apis.kcp.io/v1alpha2", "apibindings");
const WIDGETS: (&str, &str) = ("example.io/v1", "widgets");

fn schema(name: &str, plural: &str, kind: &str, versions: &str) -> String {
    let singular = kind.to_lowercase();
    format!(
        "{{apiVersion: apis.kcp.io/v1alpha1, kind: APIResourceSchema, metadata: {{name: {name}.{plural}.example.io}}, \
         spec: {{group: example.io, scope: Namespaced, names: {{plural: {plural}, singular: {singular}, kind: {kind}, \
         listKind: {kind}List}}, versions: {versions}}}}}"
    )
}

const V1: &str = "[{name: v1, served: true, storage: true, schema: {type: object, properties: {spec: {type: object, \
                  properties: {size: {type: integer}}}}}}]";
const V1_AND_V2: &str = "[{name: v1, served: true, storage: true, schema: {type: object, properties: {spec: \
    {type: object, properties: {size: {type: integer}}}}}}, {name: v2, served: true, storage: false, schema: \
    {type: object, properties: {spec: {type: object, properties: {bytes: {type: integer}}}}}}]";

fn export(resources: &[(&str, &str)]) -> String {
    let resources: Vec<String> = resources
        .iter()
        .map(|(plural, schema)| format!("{{name: {plural}, group: example.io, schema: {schema}.{plural}.example.io}}"))
        .collect();
    format!(
        "{{apiVersion: apis.kcp.io/v1alpha2, kind: APIExport, metadata: {{name: widgets}}, spec: {{resources: [{}]}}}}",
        resources.join(", ")
    )
}

fn binding(name: &str, path: &str) -> String {
    let path = if path.is_empty() {
        String::new()
    } else {
        format!("path: '{path}', ")
    };
    format!(
        "{{apiVersion: apis.kcp.io/v1alpha2, kind: APIBinding, metadata: {{name: {name}}}, \
         spec: {{reference: {{export: {{{path}name: widgets}}}}}}}}"
    )
}

const WIDGET: &str =
    "{apiVersion: example.io/v1, kind: Widget, metadata: {name: a, namespace: default}, spec: {size: 3}}";

/// A provider with widgets, and a tenant.
async fn provider_and_tenant() -> TestControlPlane {
    let rig = TestControlPlane::new().await;
    rig.workspace("root", "provider").await;
    rig.workspace("root", "tenant").await;
    rig.create(
        "root:provider",
        "apiresourceschemas",
        &schema("today", "widgets", "Widget", V1),
    )
    .await;
    rig.create("root:provider", "apiexports", &export(&[("widgets", "today")]))
        .await;
    rig.settle().await;
    rig
}

fn status(rig: &TestControlPlane, path: &str, name: &str) -> Json {
    rig.get(path, BINDINGS.0, BINDINGS.1, name)
        .expect("the binding is there")["status"]
        .take()
}

fn says(rig: &TestControlPlane, path: &str, name: &str, kind: &str) -> (String, String) {
    let binding = rig
        .get(path, BINDINGS.0, BINDINGS.1, name)
        .expect("the binding is there");
    let condition = condition(&binding, kind).cloned().unwrap_or_default();
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    (
        if text("status") == "True" {
            "True".into()
        } else {
            text("reason")
        },
        text("message"),
    )
}

#[tokio::test]
async fn a_binding_serves_at_one_revision() {
    let rig = provider_and_tenant().await;
    let before = rig
        .create("root:tenant", "apibindings", &binding("widgets", "root:provider"))
        .await;
    assert_eq!(
        before["metadata"]["finalizers"],
        json!(["apis.kcp.io/apibinding-finalizer"])
    );
    assert_eq!(before["metadata"]["annotations"]["kcp.io/path"], "root:tenant");
    assert!(rig.target("root:tenant", WIDGETS.0, WIDGETS.1, "default").is_none());
    rig.settle().await;

    let snapshot = rig.registry.store.latest().for_server(ServerWork::Tool);
    let cluster = rig.cluster("root:tenant");
    let route = snapshot
        .get(&ids::resource_route(&cluster, "example.io", "widgets"))
        .unwrap();
    let bound = snapshot.get(&rig.keys(ids::apibindings())[0]).unwrap();
    let bundle = snapshot.get(&rig.keys(ids::bundles())[0]).unwrap();
    assert_eq!((route.revision, bundle.revision), (bound.revision, bound.revision));

    let status = status(&rig, "root:tenant", "widgets");
    let kinds: Vec<&Json> = status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| &c["type"])
        .collect();
    assert_eq!(
        json!(kinds),
        json!([
            "Ready",
            "APIExportValid",
            "BindingUpToDate",
            "InitialBindingCompleted",
            "PermissionClaimsApplied",
            "PermissionClaimsValid"
        ])
    );
    assert!(
        status["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .all(|c| c["status"] == "True")
    );
    assert_eq!(status["phase"], "Bound");
    assert_eq!(
        status["boundResources"][0]["schema"]["name"],
        "today.widgets.example.io"
    );
    assert_eq!(status["boundResources"][0]["storageVersions"], json!(["v1"]));
    rig.create("root:tenant", "widgets", WIDGET).await;
}

#[tokio::test]
async fn a_binding_to_nothing_waits_and_recovers() {
    let rig = TestControlPlane::new().await;
    let org = rig.workspace("root", "org").await;
    let error = rig
        .try_create(&org, "apibindings", &binding("a", "root:nowhere"))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "apibindings.apis.kcp.io \"a\" is forbidden: unable to create APIBinding: no permission to bind to export \
            root:nowhere:widgets"
    );
    rig.create(&org, "apibindings", &binding("here", "")).await;
    rig.settle().await;
    let cluster = rig.cluster(&org);
    let missing = (
        "APIExportNotFound".to_owned(),
        format!("APIExport {cluster}|widgets not found"),
    );
    assert_eq!(says(&rig, &org, "here", "APIExportValid"), missing);
    let waiting = (
        "WaitingForEstablished".to_owned(),
        "Waiting for API(s) to be established".to_owned(),
    );
    assert_eq!(says(&rig, &org, "here", "Ready"), waiting);
    assert_eq!(status(&rig, &org, "here")["phase"], "Binding");

    rig.create(&org, "apiexports", &export(&[("widgets", "today")])).await;
    rig.settle().await;
    let (reason, message) = says(&rig, &org, "here", "APIExportValid");
    assert_eq!(reason, "InternalError");
    assert!(
        message.ends_with("APIResourceSchema \"today.widgets.example.io\" not found"),
        "{message}"
    );

    rig.create(&org, "apiresourceschemas", &schema("today", "widgets", "Widget", V1))
        .await;
    rig.settle().await;
    assert_eq!(status(&rig, &org, "here")["phase"], "Bound");
}

#[tokio::test]
async fn rules_and_schema_reach_tenants_together() {
    let rig = provider_and_tenant().await;
    rig.create("root:tenant", "apibindings", &binding("widgets", "root:provider"))
        .await;
    rig.settle().await;
    rig.create("root:tenant", "widgets", WIDGET).await;

    let rules = "{apiVersion: apis.kcp.io/v1alpha1, kind: APIConversion, metadata: {name: \
        tomorrow.widgets.example.io}, \
        spec: {conversions: [{from: v1, to: v2, rules: [{field: .spec.size, destination: .spec.bytes}]}, \
        {from: v2, to: v1, rules: [{field: .spec.bytes, destination: .spec.size}]}]}}";
    rig.create("root:provider", "apiconversions", rules).await;
    rig.create(
        "root:provider",
        "apiresourceschemas",
        &schema("tomorrow", "widgets", "Widget", V1_AND_V2),
    )
    .await;
    let renamed = json!({"spec": {"resources": [
        {"name": "widgets", "group": "example.io", "schema": "tomorrow.widgets.example.io"}]}});
    rig.patch(
        "root:provider",
        "apis.kcp.io/v1alpha2",
        "apiexports",
        "widgets",
        renamed,
    )
    .await
    .unwrap();
    rig.settle().await;
    let bound = status(&rig, "root:tenant", "widgets")["boundResources"].take();
    assert_eq!(bound[0]["schema"]["name"], "tomorrow.widgets.example.io");
    let seen = rig.get("root:tenant", "example.io/v2", "widgets", "default/a").unwrap();
    assert_eq!(seen["spec"], json!({"bytes": 3}));
    // Nobody uses the first schema's bundle any more, but the export can go back to it.
    assert_eq!((rig.keys(ids::bundles()).len(), rig.collect().await), (2, 0));
    let export = "apis.kcp.io/v1alpha2";
    rig.delete("root:provider", export, "apiexports", "widgets")
        .await
        .expect("it goes");
    rig.settle().await;
    assert_eq!(rig.collect().await, 1);
    assert_eq!(rig.collect().await, 0);
}

#[tokio::test]
async fn a_schema_without_a_stored_version_is_not_taken() {
    let rig = provider_and_tenant().await;
    rig.create("root:tenant", "apibindings", &binding("widgets", "root:provider"))
        .await;
    rig.settle().await;
    rig.create("root:tenant", "widgets", WIDGET).await;
    let v2 = V1.replace("v1", "v2");
    rig.create(
        "root:provider",
        "apiresourceschemas",
        &schema("tomorrow", "widgets", "Widget", &v2),
    )
    .await;
    let resources = json!([{"name": "widgets", "group": "example.io", "schema": "tomorrow.widgets.example.io"}]);
    let renamed = json!({"spec": {"resources": resources}});
    let error = rig
        .patch(
            "root:provider",
            "apis.kcp.io/v1alpha2",
            "apiexports",
            "widgets",
            renamed,
        )
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "APIExport.apis.kcp.io \"widgets\" is invalid: spec.resources[0].schema: Invalid value: \
         \"tomorrow.widgets.example.io\": lacks v1, in which 1 object in 1 workspace (root:tenant: 1) are stored: keep \
         it in spec.versions, not served if it is to go, until they were written in another storage version"
    );
    // Somebody may write an object in the moment in which nobody had one.
    let export = rig
        .registry
        .store
        .latest()
        .get(&rig.keys(ids::apiexports())[0])
        .unwrap();
    let mut value = export.object.body_value();
    value["spec"]["resources"] = resources;
    let plan = insula_registry::Plan::new(vec![insula_registry::Intent::Update(export, value)]);
    insula_registry::commit(&rig.registry, &plan).await.unwrap();
    rig.settle().await;
    let (reason, message) = says(&rig, "root:tenant", "widgets", "BindingUpToDate");
    assert_eq!(reason, "APIResourceSchemaInvalid");
    assert!(message.contains("(1 stored in v1)"), "{message}");
    assert_eq!(
        says(&rig, "root:tenant", "widgets", "InitialBindingCompleted").0,
        "True"
    );
    assert!(
        rig.get("root:tenant", WIDGETS.0, WIDGETS.1, "default/a").is_some(),
        "it is served as before"
    );

    rig.delete("root:tenant", WIDGETS.0, WIDGETS.1, "default/a")
        .await
        .unwrap();
    rig.settle().await;
    assert_eq!(says(&rig, "root:tenant", "widgets", "BindingUpToDate").0, "True");
    assert_eq!(
        status(&rig, "root:tenant", "widgets")["boundResources"][0]["storageVersions"],
        json!(["v2"])
    );
}

#[tokio::test]
async fn names_are_won_once() {
    let rig = provider_and_tenant().await;
    rig.workspace("root", "other").await;
    rig.create(
        "root:other",
        "apiresourceschemas",
        &schema("mine", "widgets", "Widget", V1),
    )
    .await;
    rig.create("root:other", "apiexports", &export(&[("widgets", "mine")]))
        .await;
    rig.create("root:tenant", "apibindings", &binding("first", "root:provider"))
        .await;
    rig.settle().await;
    rig.create("root:tenant", "apibindings", &binding("second", "root:other"))
        .await;
    rig.settle().await;
    let (reason, message) = says(&rig, "root:tenant", "second", "Ready");
    assert_eq!(reason, "NamingConflicts");
    assert_eq!(
        message,
        "Unable to bind APIs: naming conflict with APIBinding \"first\" bound to APIExport root:provider:widgets: \
            spec.names.plural=widgets is forbidden; the API is bound already, delete one of the two bindings"
    );
    assert!(status(&rig, "root:tenant", "second").get("boundResources").is_none());

    let definition = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: \
        {name: widgets.example.io}, spec: {group: example.io, scope: Namespaced, names: {plural: widgets, kind: \
            Widget}, \
        versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}";
    rig.create("root:tenant", "customresourcedefinitions", definition).await;
    rig.settle().await;
    let crd = (
        "apiextensions.k8s.io/v1",
        "customresourcedefinitions",
        "widgets.example.io",
    );
    let refused = rig.get("root:tenant", crd.0, crd.1, crd.2).unwrap();
    assert_eq!(condition(&refused, "NamesAccepted").unwrap()["status"], "False");

    rig.delete("root:tenant", crd.0, crd.1, crd.2).await.unwrap();
    rig.delete("root:tenant", BINDINGS.0, BINDINGS.1, "first")
        .await
        .unwrap();
    rig.settle().await;
    assert_eq!(status(&rig, "root:tenant", "second")["phase"], "Bound");
}

#[tokio::test]
async fn only_accepted_claims_apply() {
    let rig = provider_and_tenant().await;
    let claims = json!({"spec": {"permissionClaims": [{"group": "", "resource": "configmaps", "verbs": ["get"]}]}});
    rig.patch("root:provider", "apis.kcp.io/v1alpha2", "apiexports", "widgets", claims)
        .await
        .unwrap();
    let yaml = "{apiVersion: apis.kcp.io/v1alpha2, kind: APIBinding, metadata: {name: widgets}, spec: {reference: \
        {export: {path: 'root:provider', name: widgets}}, permissionClaims: [\
        {resource: configmaps, verbs: [get], state: Accepted, selector: {matchAll: true}},\
        {resource: serviceaccounts, verbs: [get], state: Accepted, selector: {matchAll: true}}]}}";
    rig.create("root:tenant", "apibindings", yaml).await;
    rig.settle().await;
    let status = status(&rig, "root:tenant", "widgets");
    assert_eq!(status["appliedPermissionClaims"].as_array().unwrap().len(), 1);
    assert_eq!(
        says(&rig, "root:tenant", "widgets", "PermissionClaimsValid"),
        (
            "InvalidPermissionClaims".to_owned(),
            "1 unexpected and/or invalid permission claims (showing first 1): unexpected/invalid claim for \
                serviceaccounts. (identity \"\")"
                .to_owned()
        )
    );
    assert_eq!(status["phase"], "Bound");
}

#[tokio::test]
async fn workspaces_of_a_type_begin_with_its_apis() {
    let rig = provider_and_tenant().await;
    let shop = "{apiVersion: tenancy.kcp.io/v1alpha1, kind: WorkspaceType, metadata: {name: shop}, spec: {extend: \
        {with: [{name: universal, path: root}]}, defaultAPIBindings: [{path: 'root:provider', export: widgets}], \
        additionalWorkspaceLabels: {sells: widgets}}}";
    rig.create("root", "workspacetypes", shop).await;
    let workspace =
        "{apiVersion: tenancy.kcp.io/v1alpha1, kind: Workspace, metadata: {name: s}, spec: {type: {name: shop}}}";
    let created = rig.create("root", "workspaces", workspace).await;
    assert_eq!(created["metadata"]["labels"]["sells"], "widgets");
    rig.settle().await;
    let ready = rig.get("root", "tenancy.kcp.io/v1alpha1", "workspaces", "s").unwrap();
    assert_eq!(ready["status"]["phase"], "Ready");
    rig.create("root:s", "widgets", WIDGET).await;
    let logical = rig
        .get("root:s", "core.kcp.io/v1alpha1", "logicalclusters", "cluster")
        .unwrap();
    let kinds: Vec<&Json> = logical["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| &c["type"])
        .collect();
    assert_eq!(json!(kinds), json!(["WorkspaceInitialized"]));
    rig.delete("root", "tenancy.kcp.io/v1alpha1", "workspaces", "s")
        .await
        .unwrap();
    rig.settle().await;
    assert_eq!(rig.keys(ids::resource_routes()).len(), 0);
}
