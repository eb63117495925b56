use crate::testing::TestControlPlane;
use insula_api::condition;
use serde_json::json;

#[tokio::test]
async fn a_namespace_takes_its_content_along() {
    let rig = TestControlPlane::new().await;
    let org = rig.workspace("root", "org").await;
    rig.create(
        &org,
        "namespaces",
        "{apiVersion: v1, kind: Namespace, metadata: {name: doomed}}",
    )
    .await;
    for (name, finalizers) in [("plain", "[]"), ("held", "[a.io/hold]")] {
        let yaml = format!(
            "{{apiVersion: v1, kind: Secret, metadata: {{name: {name}, namespace: doomed, finalizers: {finalizers}}}}}"
        );
        rig.create(&org, "secrets", &yaml).await;
    }
    rig.delete(&org, "v1", "namespaces", "doomed").await.unwrap();
    rig.settle().await;
    let waiting = rig.get(&org, "v1", "namespaces", "doomed").unwrap();
    assert_eq!(waiting["status"]["phase"], "Terminating");
    assert_eq!(
        condition(&waiting, "NamespaceFinalizersRemaining").unwrap()["message"],
        "Some content in the namespace has finalizers remaining: a.io/hold in 1 resource instances"
    );
    assert_eq!(
        condition(&waiting, "NamespaceContentRemaining").unwrap()["message"],
        "Some resources are remaining: secrets. has 1 resource instances"
    );
    assert!(rig.get(&org, "v1", "secrets", "doomed/plain").is_none());
    let release = json!({"metadata": {"finalizers": null}});
    rig.patch(&org, "v1", "secrets", "doomed/held", release).await.unwrap();
    rig.settle().await;
    assert!(rig.get(&org, "v1", "namespaces", "doomed").is_none());

    let error = rig.delete(&org, "v1", "namespaces", "default").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "namespaces \"default\" is forbidden: this namespace may not be deleted"
    );
}
