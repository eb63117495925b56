use crate::{OnDelete, Strategy, System};
use insula_api::{Json, Timestamp, aggregate};
use serde_json::json;
use std::sync::LazyLock;

const NOW: Timestamp = Timestamp(0);

fn strategy_of(group: &str, plural: &str) -> &'static dyn Strategy {
    static SYSTEM: LazyLock<System> = LazyLock::new(System::load);
    SYSTEM.get(group, plural).expect("is built in").api.strategy
}

fn created(group: &str, plural: &str, mut object: Json) -> Json {
    let strategy = strategy_of(group, plural);
    strategy.default(&mut object);
    strategy.prepare_for_create(&mut object, NOW);
    object
}

#[test]
fn namespaces_are_active_until_they_are_deleted() {
    let mut namespace = created("", "namespaces", json!({"metadata": {"name": "a"}}));
    assert_eq!(
        namespace,
        json!({
            "metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "a"}},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
        })
    );
    let strategy = strategy_of("", "namespaces");
    let mut forced = namespace.clone();
    forced["status"]["phase"] = json!("Terminating");
    assert_eq!(
        aggregate(&strategy.validate_update(&forced, &namespace)),
        "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"
    );
    assert_eq!(strategy.on_delete(&mut namespace, NOW), OnDelete::Hold);
    assert_eq!(namespace["status"]["phase"], "Terminating");
    namespace["spec"]["finalizers"] = json!([]);
    assert!(!strategy.is_held(&namespace));
    namespace["spec"]["finalizers"] = json!(["hold"]);
    assert_eq!(
        aggregate(&strategy.validate(&namespace)),
        "spec.finalizers: Invalid value: \"hold\": name is neither a standard finalizer name nor is it fully qualified"
    );
}

#[test]
fn string_data_is_only_a_way_to_write_data() {
    let secret = created("", "secrets", json!({"stringData": {"a": "b"}, "data": {"c": "ZA=="}}));
    assert_eq!(secret, json!({"type": "Opaque", "data": {"a": "Yg==", "c": "ZA=="}}));
}

#[test]
fn secrets_of_known_types_are_complete() {
    let cases = [
        (
            "kubernetes.io/tls",
            json!({"tls.crt": ""}),
            "data[tls.key]: Required value",
        ),
        (
            "kubernetes.io/ssh-auth",
            json!({}),
            "data[ssh-privatekey]: Required value",
        ),
        (
            "kubernetes.io/basic-auth",
            json!({}),
            "[data[password]: Required value, data[username]: Required value]",
        ),
        (
            "kubernetes.io/dockerconfigjson",
            json!({".dockerconfigjson": ""}),
            "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": unexpected end of JSON input",
        ),
    ];
    for (kind, data, why) in cases {
        assert_eq!(
            aggregate(&strategy_of("", "secrets").validate(&json!({"type": kind, "data": data}))),
            why
        );
    }
    assert!(
        strategy_of("", "secrets")
            .validate(&json!({"type": "a.io/b", "data": {}}))
            .is_empty()
    );
}

#[test]
fn immutable_means_immutable() {
    let old = json!({"immutable": true, "data": {"a": "b"}});
    for (plural, new) in [
        ("configmaps", json!({"data": {"a": "c"}})),
        ("secrets", json!({"data": {"a": "c"}})),
    ] {
        assert_eq!(
            aggregate(&strategy_of("", plural).validate_update(&new, &old)),
            "[immutable: Forbidden: field is immutable when `immutable` is set, data: Forbidden: field is immutable when `immutable` is set]"
        );
    }
}

#[test]
fn data_has_a_limit() {
    let large = "a".repeat(1024 * 1024 + 1);
    let errors = strategy_of("", "configmaps").validate(&json!({"data": {"a": large}}));
    assert_eq!(aggregate(&errors), "[]: Too long: may not be more than 1048576 bytes");
    let errors = strategy_of("", "configmaps").validate(&json!({"data": {"a": "1"}, "binaryData": {"a": "MQ=="}}));
    assert_eq!(errors.len(), 1);
    assert_eq!(
        strategy_of("", "configmaps")
            .validate(&json!({"data": {"no spaces": "1"}}))
            .len(),
        1
    );
}

#[test]
fn definitions_remember_what_they_stored() {
    let spec = |v1: bool| json!({"versions": [{"name": "v1", "storage": v1}, {"name": "v2", "storage": !v1}]});
    let old = created(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        json!({"spec": spec(true)}),
    );
    assert_eq!(old["status"]["storedVersions"], json!(["v1"]));
    let mut new = json!({"spec": spec(false), "status": old["status"]});
    strategy_of("apiextensions.k8s.io", "customresourcedefinitions").prepare_for_update(&mut new, &old, NOW);
    assert_eq!(new["status"]["storedVersions"], json!(["v1", "v2"]));
}

/// Kubernetes' documents know no null, and version 2 would drop the types of nullable fields.
#[test]
fn published_schemas_of_kinds_have_no_nullable_field() {
    for served in System::load().iter() {
        for version in &served.api.versions {
            let text = version.openapi.to_string();
            assert!(!text.contains("\"nullable\":true"), "{}", served.names().plural);
        }
    }
}
