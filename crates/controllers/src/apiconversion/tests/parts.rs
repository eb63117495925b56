//! Several APIConversions of one schema: each shows its own rules.

use super::SCHEMA;
use crate::testing::TestControlPlane;
use insula_api::{Json, condition};

fn part(name: &str, conversions: &str) -> String {
    format!(
        "{{apiVersion: apis.kcp.io/v1alpha1, kind: APIConversion, metadata: {{name: {name},
          labels: {{apis.kcp.dev/apiresourceschema: today.widgets.example.io}}}},
          spec: {{conversions: [{conversions}]}}}}"
    )
}

fn get(rig: &TestControlPlane, workspace: &str, name: &str) -> Json {
    let found = rig.get(workspace, "apis.kcp.io/v1alpha1", "apiconversions", name);
    found.expect("stored")
}

#[tokio::test]
async fn a_part_shows_its_own_fields_and_the_fault_of_another() {
    let rig = TestControlPlane::new().await;
    let org = rig.workspace("root", "org").await;
    let forth = part(
        "forth",
        "{from: v1, to: v2, rules: [{field: .spec.a, destination: .spec.b}]}",
    );
    let back = part(
        "back",
        "{from: v2, to: v1, rules: [{field: .spec.b, destination: .spec.missing}]}",
    );
    rig.create(&org, "apiconversions", &forth).await;
    rig.create(&org, "apiconversions", &back).await;
    rig.settle().await;
    for name in ["forth", "back"] {
        let valid = condition(&get(&rig, &org, name), "Valid").cloned();
        assert_eq!(valid.expect("a condition")["reason"], "SchemaNotFound", "{name}");
    }
    rig.create(&org, "apiresourceschemas", SCHEMA).await;
    rig.settle().await;
    let own = get(&rig, &org, "back");
    let own = condition(&own, "Valid").expect("a condition");
    assert_eq!(own["reason"], "InvalidRules");
    let message = own["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("spec.conversions[0].rules[0].destination"),
        "{message}"
    );
    assert!(!message.contains("APIConversion \"back\""), "{message}");
    let other = get(&rig, &org, "forth");
    let other = condition(&other, "Valid").expect("a condition");
    assert_eq!(other["reason"], "OtherPartInvalid");
    let message = other["message"].as_str().unwrap_or_default();
    assert!(message.contains("of APIConversion \"back\""), "{message}");
}
