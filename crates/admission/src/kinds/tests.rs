//! Tests of refusals against messages recorded from kcp.

use crate::kinds::{Operation, Review, review};
use insula_api::{ClusterName, Json, Object, ObjectKey, Revision, Timestamp};
use insula_auth::UserInfo;
use insula_catalog::{Catalog, Part, Prover};
use insula_meter::ServerWork;
use insula_store::{MemoryStore, Store, Txn, Write};
use serde_json::json;
use std::sync::{Arc, OnceLock};

fn catalog() -> &'static Catalog {
    static CATALOG: OnceLock<Catalog> = OnceLock::new();
    CATALOG.get_or_init(|| Catalog::new(Prover::default()))
}

/// Runs admission on a new object in a store that holds `others`.
fn create_among(others: &[(ObjectKey, Json)], kind: (&str, &str), object: &Json) -> Result<Json, String> {
    let store = MemoryStore::new();
    let put = |(key, value): &(ObjectKey, Json)| Write::Put(key.clone(), Arc::new(Object::new(value, None).unwrap()));
    let txn = Txn {
        guards: Vec::new(),
        writes: others.iter().map(put).collect(),
    };
    let commit = store.commit(txn);
    assert!(futures_util::FutureExt::now_or_never(commit).unwrap().unwrap() >= Revision(1));
    let user = UserInfo::authenticated("alice", "", vec!["system:kcp:admin".to_owned()]);
    let mut object = object.clone();
    object["metadata"]["annotations"]["kcp.io/cluster"] = json!("root");
    let asked = Review {
        snapshot: &store.latest().for_server(ServerWork::Tool),
        catalog: catalog(),
        user: &user,
        cluster: &ClusterName::root(),
        served: catalog().system().get(kind.0, kind.1).unwrap(),
        operation: Operation::Create,
        part: Part::Main,
        now: Timestamp(0),
        warnings: Default::default(),
    };
    review(asked, Some(&mut object), None).map_err(|error| error.to_string())?;
    Ok(object)
}

fn create(kind: (&str, &str), object: &Json) -> Result<Json, String> {
    create_among(&[], kind, object)
}

const SCHEMAS: (&str, &str) = ("apis.kcp.io", "apiresourceschemas");

fn schema(name: &str, change: impl FnOnce(&mut Json)) -> Json {
    let mut schema = json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema", "metadata": {"name": name, "uid": "x"},
        "spec": {
            "group": "golden.example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"type": "object"}}],
        },
    });
    change(&mut schema);
    schema
}

#[test]
fn schemas_are_refused_in_kcps_words() {
    let good = "today.widgets.golden.example.com";
    let cases: Vec<(&str, Json, &str)> = vec![
        (
            "today.gadgets.golden.example.com",
            json!({}),
            "[metadata.name: Invalid value: \"today.gadgets.golden.example.com\": must end in .widgets.golden.example.com]",
        ),
        (
            "2day.widgets.golden.example.com",
            json!({}),
            "[metadata.name: Invalid value: \"2day.widgets.golden.example.com\": must match ^[a-z]([-a-z0-9]*[a-z0-9])?$ in front of .widgets.golden.example.com]",
        ),
        (
            "today.widgets.golden",
            json!({"group": "golden"}),
            "[spec.group: Invalid value: \"golden\": should be a domain with at least one dot]",
        ),
        (
            "today.widgets.core",
            json!({"group": "core"}),
            "[spec.group: Invalid value: \"core\": must be empty string for the core group]",
        ),
        (
            "today.widgets.golden.k8s.io",
            json!({"group": "golden.k8s.io"}),
            "[metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111]",
        ),
        (
            good,
            json!({"names": {"plural": "widgets", "kind": "Widget"}}),
            "[spec.names.singular: Required value spec.names.listKind: Required value]",
        ),
        (
            good,
            json!({"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"type": "object",
            "properties": {"spec": {"properties": {"size": {}}}, "list": {"type": "array"}}}}]}),
            "[spec.versions[0].schema.openAPIV3Schema.properties[list].items: Required value: must be specified spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[size].type: Required value: must not be empty for specified object fields spec.versions[0].schema.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields]",
        ),
        (
            good,
            json!({"versions": [{"name": "v1", "served": true, "storage": true,
            "additionalPrinterColumns": [{"name": "Size", "type": "number-ish", "jsonPath": "spec.size"}],
            "schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}]}),
            "[spec.versions[0].additionalPrinterColumns[0].type: Invalid value: \"number-ish\": must be one of boolean,date,integer,number,string spec.versions[0].additionalPrinterColumns[0].JSONPath: Invalid value: \"spec.size\": must be a simple json path starting with .]",
        ),
    ];
    for (name, changes, why) in cases {
        let object = schema(name, |schema| {
            for (field, value) in changes.as_object().unwrap() {
                schema["spec"][field] = value.clone();
            }
        });
        let want = format!("apiresourceschemas.apis.kcp.io \"{name}\" is forbidden: {why}");
        assert_eq!(create(SCHEMAS, &object).unwrap_err(), want);
    }
    create(SCHEMAS, &schema(good, |_| {})).unwrap();
    let core = schema("v1.widgets.core", |schema| schema["spec"]["group"] = json!(""));
    create(SCHEMAS, &core).unwrap();
}

#[test]
fn rules_are_checked_once_their_schema_is_there() {
    let conversion = |field: &str| {
        json!({
            "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion",
            "metadata": {"name": "today.widgets.golden.example.com"},
            "spec": {"conversions": [
                {"from": "v1", "to": "v2", "rules": [{"field": field, "destination": ".spec.bytes"}]},
                {"from": "v2", "to": "v1", "rules": [{"field": ".spec.bytes", "destination": ".spec.size"}]},
            ]},
        })
    };
    let conversions = ("apis.kcp.io", "apiconversions");
    create(conversions, &conversion(".spec.missing")).unwrap();
    let version = |name: &str, field: &str| {
        json!({"name": name, "served": true, "storage": name == "v1", "schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": {field: {"type": "integer"}}}}}})
    };
    let schema = schema("today.widgets.golden.example.com", |schema| {
        schema["spec"]["versions"] = json!([version("v1", "size"), version("v2", "bytes")]);
    });
    let key = ObjectKey::cluster_scoped(
        insula_catalog::ids::apiresourceschemas(),
        ClusterName::root(),
        "today.widgets.golden.example.com",
    );
    let there = [(key, schema)];
    create_among(&there, conversions, &conversion(".spec.size")).unwrap();
    let refused = create_among(&there, conversions, &conversion(".spec.missing")).unwrap_err();
    assert!(refused.contains("spec.conversions[0].rules[0]"), "{refused}");
}

#[test]
fn exports_and_bindings_are_refused_in_kcps_words() {
    let export = |spec: Json| json!({"metadata": {"name": "widgets"}, "spec": spec});
    let cases = [
        (
            json!({"resources": [{"name": "machines", "group": "", "schema": "v1.machines"}]}),
            "spec.resources[0].schema: Invalid value: \"v1.machines\": must end in .machines.core",
        ),
        (
            json!({"permissionClaims": [{"group": "other.example.com", "resource": "things", "verbs": ["*"]}]}),
            "spec.permissionClaims[0].identityHash: Invalid value: \"\": identityHash is required for API types that are not built-in",
        ),
    ];
    for (spec, why) in cases {
        let want = format!("apiexports.apis.kcp.io \"widgets\" is forbidden: {why}");
        assert_eq!(create(("apis.kcp.io", "apiexports"), &export(spec)).unwrap_err(), want);
    }
    let reference = json!({"export": {"name": "widgets"}});
    let claim = |selector: Json| json!({"reference": reference, "permissionClaims": [{"resource": "secrets", "selector": selector}]});
    let cases = [
        (json!({"reference": {}}), "[spec.reference.export: Required value]"),
        (
            json!({"reference": {"export": {"path": "root"}}}),
            "[spec.reference.export.name: Required value]",
        ),
        (
            claim(json!({})),
            "[spec.permissionClaims[0].selector: Required value: either one of matchAll, matchLabels, or matchExpressions must be set]",
        ),
        (
            claim(json!({"matchAll": true, "matchLabels": {"a": "b"}})),
            "[spec.permissionClaims[0].selector.matchLabels: Invalid value: {\"matchLabels\":{\"a\":\"b\"},\"matchAll\":true}: matchLabels cannot be used with matchAll]",
        ),
        (
            json!({"reference": {"export": {"path": "root:x", "name": "y"}}}),
            "unable to create APIBinding: no permission to bind to export root:x:y",
        ),
    ];
    for (spec, why) in cases {
        let want = format!("apibindings.apis.kcp.io \"widgets\" is forbidden: {why}");
        assert_eq!(create(("apis.kcp.io", "apibindings"), &export(spec)).unwrap_err(), want);
    }
}

#[test]
fn kinds_of_the_tree_are_refused_in_kcps_words() {
    let named = |name: &str, spec: Json| json!({"metadata": {"name": name}, "spec": spec});
    let cases = [
        (
            ("tenancy.kcp.io", "workspacetypes"),
            named("any", json!({})),
            "workspacetypes.tenancy.kcp.io \"any\" is forbidden: metadata.name: Invalid value: \"any\": name is reserved",
        ),
        (
            ("tenancy.kcp.io", "workspacetypes"),
            named("bad", json!({"defaultChildWorkspaceType": {"name": "universal"}})),
            "workspacetypes.tenancy.kcp.io \"bad\" is forbidden: .spec.defaultChildWorkspaceType.path must be set",
        ),
        (
            ("core.kcp.io", "logicalclusters"),
            named("cluster", json!({})),
            "logicalclusters.core.kcp.io \"cluster\" is forbidden: LogicalCluster cannot be created",
        ),
        (
            ("tenancy.kcp.io", "workspaces"),
            named("a", json!({"URL": "https://example.com"})),
            "workspaces.tenancy.kcp.io \"a\" is forbidden: spec.URL can only be set by system privileged users",
        ),
        (
            ("apiextensions.k8s.io", "customresourcedefinitions"),
            named(
                "apiexports.apis.kcp.io",
                json!({"group": "apis.kcp.io", "names": {"plural": "apiexports"}}),
            ),
            "customresourcedefinitions.apiextensions.k8s.io \"apiexports.apis.kcp.io\" is forbidden: apis.kcp.io is a reserved group",
        ),
    ];
    for (kind, object, why) in cases {
        assert_eq!(create(kind, &object).unwrap_err(), why);
    }
}
