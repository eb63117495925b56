use crate::testing::TestControlPlane;
use insula_api::condition;
use serde_json::json;

const EXPORTS: (&str, &str) = ("apis.kcp.io/v1alpha2", "apiexports");
const SLICES: (&str, &str) = ("apis.kcp.io/v1alpha1", "apiexportendpointslices");
const EXPORT: &str = "{apiVersion: apis.kcp.io/v1alpha2, kind: APIExport, metadata: {name: gadgets}, spec: {}}";

#[tokio::test]
async fn an_export_gets_an_identity_and_a_slice() {
    let rig = TestControlPlane::new().await;
    let org = rig.workspace("root", "org").await;
    rig.create(&org, EXPORTS.1, EXPORT).await;
    rig.settle().await;
    let export = rig.get(&org, EXPORTS.0, EXPORTS.1, "gadgets").unwrap();
    assert_eq!(
        export["spec"]["identity"],
        json!({"secretRef": {"name": "gadgets", "namespace": "kcp-system"}})
    );
    assert_eq!(export["status"]["identityHash"].as_str().unwrap().len(), 64);
    assert_eq!(
        (
            &export["metadata"]["generation"],
            &export["metadata"]["annotations"]["kcp.io/path"]
        ),
        (&json!(2), &json!(org))
    );
    assert_eq!(condition(&export, "IdentityValid").unwrap()["status"], "True");
    assert!(rig.get(&org, "v1", "secrets", "kcp-system/gadgets").is_some());
    let slice = rig.get(&org, SLICES.0, SLICES.1, "gadgets").unwrap();
    assert_eq!(condition(&slice, "APIExportValid").unwrap()["status"], "True");
    assert!(slice["status"].get("endpoints").is_none(), "nobody has bound it");

    let binding = "{apiVersion: apis.kcp.io/v1alpha2, kind: APIBinding, metadata: {name: g}, \
                   spec: {reference: {export: {name: gadgets}}}}";
    rig.create(&org, "apibindings", binding).await;
    rig.settle().await;
    let slice = rig.get(&org, SLICES.0, SLICES.1, "gadgets").unwrap();
    let url = format!("https://server:6443/services/apiexport/{}/gadgets", rig.cluster(&org));
    assert_eq!(slice["status"]["endpoints"], json!([{"url": url}]));

    rig.delete(&org, EXPORTS.0, EXPORTS.1, "gadgets").await.unwrap();
    rig.settle().await;
    assert!(rig.get(&org, SLICES.0, SLICES.1, "gadgets").is_none());
}

#[tokio::test]
async fn an_identity_of_ones_own_is_kept_and_never_changes() {
    let rig = TestControlPlane::new().await;
    let org = rig.workspace("root", "org").await;
    let own = EXPORT.replace(
        "spec: {}",
        "spec: {identity: {secretRef: {namespace: default, name: mine}}}",
    );
    rig.create(&org, EXPORTS.1, &own).await;
    rig.settle().await;
    let export = rig.get(&org, EXPORTS.0, EXPORTS.1, "gadgets").unwrap();
    assert_eq!(
        condition(&export, "IdentityValid").unwrap()["reason"],
        "IdentityVerificationFailed"
    );

    let secret = "{apiVersion: v1, kind: Secret, metadata: {name: mine, namespace: default}, stringData: {key: abc}}";
    rig.create(&org, "secrets", secret).await;
    rig.settle().await;
    let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let export = rig.get(&org, EXPORTS.0, EXPORTS.1, "gadgets").unwrap();
    assert_eq!(export["status"]["identityHash"], hash);

    let other = json!({"stringData": {"key": "other"}});
    rig.patch(&org, "v1", "secrets", "default/mine", other).await.unwrap();
    rig.settle().await;
    let export = rig.get(&org, EXPORTS.0, EXPORTS.1, "gadgets").unwrap();
    assert_eq!(export["status"]["identityHash"], hash);
    let message = condition(&export, "IdentityValid").unwrap()["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(message.starts_with("hash mismatch: identity secret hash "), "{message}");
}

/// One secret, one export: who copies the secret of another's has not got their identity.
#[tokio::test]
async fn an_identity_is_one_exports_alone() {
    let rig = TestControlPlane::new().await;
    let (first, second) = (
        rig.workspace("root", "first").await,
        rig.workspace("root", "second").await,
    );
    let secret = "{apiVersion: v1, kind: Secret, metadata: {name: mine, namespace: default}, stringData: {key: abc}}";
    let own = EXPORT.replace(
        "spec: {}",
        "spec: {identity: {secretRef: {namespace: default, name: mine}}}",
    );
    for org in [&first, &second] {
        rig.create(org, "secrets", secret).await;
        rig.create(org, EXPORTS.1, &own).await;
        rig.settle().await;
    }
    let export = rig.get(&second, EXPORTS.0, EXPORTS.1, "gadgets").unwrap();
    assert!(export["status"].get("identityHash").is_none(), "{export}");
    let valid = condition(&export, "IdentityValid").unwrap();
    assert_eq!(
        valid["message"],
        "secret default/mine is the identity of an APIExport of another workspace already: name a secret of its own, \
            or delete the other export first"
    );
    let export = rig.get(&first, EXPORTS.0, EXPORTS.1, "gadgets").unwrap();
    assert_eq!(condition(&export, "IdentityValid").unwrap()["status"], "True");
}
