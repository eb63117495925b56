//! Decisions about registrations, beside the scripts of `e2e/scripts/thirdparty`.

use crate::testing::TestControlPlane;
use insula_api::{Json, condition};
use serde_json::json;

const SECOND: (&str, &str) = ("apiextension.k8s.io/v1beta1", "thirdpartyresources");

fn registration(plural: &str, kind: &str, short: &str) -> String {
    format!(
        "{{apiVersion: apiextension.k8s.io/v1beta1, kind: ThirdPartyResource, metadata: {{name: \
            {plural}.example.io}}, spec: {{group: example.io, version: v1, names: {{plural: {plural}, kind: {kind}, \
            shortNames: [{short}]}}}}}}"
    )
}

/// Registrations of one group, in the order of their creation, and what each is granted.
#[tokio::test]
async fn a_registration_serves_with_the_names_that_it_was_granted() {
    let rig = TestControlPlane::new().await;
    let org = rig.workspace("root", "org").await;
    let cases = [
        ("widgets", "Widget", "w", true, Json::Null),
        // A short name of another: served without it.
        ("gadgets", "Gadget", "w", true, json!("ShortNamesConflict")),
        // A kind of another: not served.
        ("gizmos", "Widget", "g", false, json!("ListKindConflict")),
    ];
    for (plural, kind, short, is_served, conflict) in cases {
        let fresh = rig.create(&org, SECOND.1, &registration(plural, kind, short)).await;
        assert_eq!(fresh["status"]["acceptedNames"], Json::Null, "creation claims nothing");
        assert!(
            rig.target(&org, "example.io/v1", plural, "default").is_none(),
            "{plural}"
        );
        rig.settle().await;
        let name = format!("{plural}.example.io");
        let decided = rig.get(&org, SECOND.0, SECOND.1, &name).unwrap();
        let condition = condition(&decided, "NameConflict").unwrap();
        assert_eq!(
            condition["status"] == "True",
            !conflict.is_null(),
            "{plural}: {condition}"
        );
        assert!(
            conflict.is_null() || condition["reason"] == conflict,
            "{plural}: {condition}"
        );
        let target = rig.target(&org, "example.io/v1", plural, "default");
        assert_eq!(target.is_some(), is_served, "{plural}");
    }
    // The name that becomes free goes to the one that waits.
    rig.delete(&org, SECOND.0, SECOND.1, "widgets.example.io")
        .await
        .unwrap();
    rig.settle().await;
    assert!(rig.get(&org, SECOND.0, SECOND.1, "widgets.example.io").is_none());
    assert!(rig.target(&org, "example.io/v1", "gizmos", "default").is_some());
}
