//! Rollout per binding: a tenant whose objects do not fit stays, and the others move.

use super::{
    EXPORTS, binding_status, bound, offer,
    rollout::{binding, export, number, parsing, says, texts},
};
use crate::testing::TestControlPlane;
use insula_api::{Json, condition};
use serde_json::json;

const TENANTS: [&str; 3] = ["bob", "eve", "zoe"];

/// Tenants with a widget whose text is a number; that of eve is none.
async fn with_texts() -> TestControlPlane {
    let rig = bound(&TENANTS).await;
    rig.create("root:provider", "apiresourceschemas", &texts("text")).await;
    offer(&rig, "text").await;
    rig.settle().await;
    for tenant in TENANTS {
        let text = if tenant == "eve" { "many" } else { "7" };
        write(&rig, tenant, "a", text).await;
    }
    rig
}

async fn write(rig: &TestControlPlane, tenant: &str, name: &str, text: &str) {
    let widget = json!({"apiVersion": "example.io/v1", "kind": "Widget",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"text": text}});
    rig.create(&format!("root:{tenant}"), "widgets", &widget.to_string())
        .await;
}

fn schema(rig: &TestControlPlane, path: &str) -> Json {
    binding_status(rig, path)["boundResources"][0]["schema"]["name"].take()
}

/// Asserts that eve stays, that the others moved, and that both sides can see it.
fn assert_eve_stays(rig: &TestControlPlane, step: &str) {
    let (reason, message) = says(&binding(rig, "root:eve"), "BindingUpToDate");
    assert_eq!(reason, "RolloutBlocked", "{step}");
    assert!(
        message.contains("1 stored objects of this workspace could not be read, e.g. a: "),
        "{step}: {message}"
    );
    for path in ["root:bob", "root:zoe"] {
        assert_eq!(number(rig, path, "a"), json!(7), "{step}: {path} moved");
        let up_to_date = condition(&binding(rig, path), "BindingUpToDate").cloned();
        assert_eq!(up_to_date.expect("it is told")["status"], "True", "{step}");
    }
    assert_eq!(number(rig, "root:eve", "a"), Json::Null, "{step}");
    let export = export(rig);
    let (reason, why) = says(&export, "RolledOut");
    assert_eq!(reason, "StoredObjectsNotConvertible", "{step}");
    let eve = rig.cluster("root:eve");
    assert!(
        why.starts_with(&format!(
            "1 of 3 bindings stay on the previous generation, e.g. widgets in {eve}: "
        )),
        "{step}: {why}"
    );
    let rollout = &export["status"]["rollout"];
    assert_eq!(rollout["bindings"], 3, "{step}");
    assert_eq!(rollout["current"], 2, "{step}");
    assert_eq!(rollout["held"], 1, "{step}");
    assert_eq!(rollout["heldBindings"][0]["workspace"], eve.as_str(), "{step}");
    assert_eq!(rollout["heldBindings"][0]["message"], json!(message), "{step}");
}

fn assert_complete(rollout: &Json) {
    let counts = ["bindings", "current", "held", "reason"].map(|field| rollout[field].clone());
    assert_eq!(json!(counts), json!([3, 3, 0, "Complete"]), "{rollout}");
}

async fn assert_eve_follows(rig: &TestControlPlane) {
    let edit = json!({"spec": {"text": "12"}});
    rig.patch("root:eve", "example.io/v1", "widgets", "default/a", edit)
        .await
        .expect("an edit");
    rig.settle().await;
    assert_eq!(number(rig, "root:eve", "a"), json!(12));
    let export = export(rig);
    assert_complete(&export["status"]["rollout"]);
    let rolled_out = condition(&export, "RolledOut").expect("it was blocked once");
    assert_eq!(rolled_out["status"], "True");
}

#[tokio::test]
async fn one_tenant_does_not_hold_others_on_the_previous_schema() {
    let rig = with_texts().await;
    let rules = parsing("next.widgets.example.io", "int(self)");
    rig.create("root:provider", "apiconversions", &rules).await;
    rig.create("root:provider", "apiresourceschemas", &texts("next")).await;
    offer(&rig, "next").await;
    rig.settle().await;
    assert_eve_stays(&rig, "another schema");
    assert_eq!(schema(&rig, "root:eve"), "text.widgets.example.io");
    assert_eq!(schema(&rig, "root:bob"), "next.widgets.example.io");
    assert_eve_follows(&rig).await;
    assert_eq!(schema(&rig, "root:eve"), "next.widgets.example.io");
}

#[tokio::test]
async fn one_tenant_does_not_hold_others_on_the_previous_rules() {
    let rig = with_texts().await;
    let rules = parsing("text.widgets.example.io", "int(self)");
    rig.create("root:provider", "apiconversions", &rules).await;
    rig.settle().await;
    assert_eve_stays(&rig, "its own rules");
    // Her clients work on as before: under the new rules this text is refused.
    write(&rig, "eve", "b", "more").await;
    rig.settle().await;
    let (_, message) = says(&binding(&rig, "root:eve"), "BindingUpToDate");
    assert!(message.contains("stored objects of this workspace"), "{message}");
    rig.delete("root:eve", "example.io/v1", "widgets", "default/b")
        .await
        .expect("it goes");
    assert_eve_follows(&rig).await;
}

#[tokio::test]
async fn rules_that_are_taken_back_release_the_tenant_too() {
    let rig = with_texts().await;
    let rules = parsing("text.widgets.example.io", "int(self)");
    rig.create("root:provider", "apiconversions", &rules).await;
    rig.settle().await;
    assert_eve_stays(&rig, "before");
    // Two tenants see numbers by the new rules, and lose sight of them.
    let accepted = json!({"insula.io/accepted-effects": "value-hidden=2"});
    let conversions = json!([{"from": "v1", "to": "v2", "rules": []}]);
    let back = json!({"metadata": {"annotations": accepted}, "spec": {"conversions": conversions}});
    let back = rig
        .patch(
            "root:provider",
            "apis.kcp.io/v1alpha1",
            "apiconversions",
            "text.widgets.example.io",
            back,
        )
        .await;
    back.expect("rules");
    rig.settle().await;
    for tenant in TENANTS {
        let path = format!("root:{tenant}");
        assert_eq!(number(&rig, &path, "a"), Json::Null, "{tenant}");
    }
    let held = rig.get("root:provider", EXPORTS, "apiexports", "widgets").expect("it")["status"]["rollout"].take();
    assert_complete(&held);
    // The rules that came and went are remembered.
    let history = held["history"].as_array().expect("former releases");
    let fingerprints = history.iter().map(|former| &former["resources"][0]["fingerprint"]);
    assert_eq!(history.len(), 3, "{held}");
    assert_eq!(fingerprints.filter(|it| it.is_string()).count(), 3, "{held}");
}
