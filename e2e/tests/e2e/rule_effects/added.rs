//! Rules beside those of the schema and the export that somebody looks at: more parts, and more
//! exports.

use super::*;

/// The first rules of a schema that is in use, and another part of those that it has, change what
/// is shown as a change of rules does.
#[test]
fn rules_that_are_added_have_the_same_guard() {
    let scene = Scene::new();
    let path = scene.stored_rules();
    let schema = path.rsplit('/').next().unwrap();
    let part = |name: &str, conversions: &Value| {
        json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion", "metadata": {"name": name,
            "labels": {"apis.kcp.io/apiresourceschema": schema}}, "spec": {"conversions": conversions}})
    };
    let drop = part(
        "dropped",
        &json!([{"from": "v1", "to": "v2", "rules": [], "drop": [".spec.color"]}]),
    );
    for query in ["?dryRun=All", ""] {
        let refused = scene.provider().post(&format!("{RULES}{query}"), &drop);
        let said = ["2 objects in 1 workspace", ".spec.color of ", "value-hidden=2"];
        assert!(
            refused.code == 403 && said.iter().all(|said| refused.text.contains(said)),
            "{refused:?}"
        );
    }
    assert_eq!(scene.spec("v2", "first")["color"], "red");
    let color =
        |expression: &str| json!({"field": ".spec.color", "destination": ".spec.color", "transformation": expression});
    let other = part(
        "other",
        &json!([{"from": "v1", "to": "v2", "rules": [color("self + '!'")]},
            {"from": "v2", "to": "v1", "rules": [color("self.replace('!', '')")]}]),
    );
    let answer = scene.provider().post(&format!("{RULES}?dryRun=All"), &other);
    let warnings = format!("{:?}", answer.headers.get_all("warning"));
    let changed = format!("value-changed:gadgets.{GROUP}/v2:.spec.color: 2 objects in 1 workspace");
    assert!(answer.code == 201 && warnings.contains(&changed), "{answer:?}");
    let mut accepted = drop;
    accepted["metadata"]["annotations"] = json!({"insula.io/accepted-effects-once": "value-hidden=2"});
    scene.provider().post(RULES, &accepted).expect(201);
}

/// Rules belong to a schema, and several exports may offer it: the tenants of all of them count.
#[test]
fn rules_of_a_schema_count_for_each_export_that_offers_it() {
    let scene = Scene::new();
    let resources = scene.provider().get(EXPORT).expect(200)["spec"]["resources"].clone();
    let second = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "second"},
        "spec": {"resources": resources}});
    let exports = EXPORT.rsplit_once('/').unwrap().0;
    scene.provider().post(exports, &second).expect(201);
    let (admin, tenant) = (scene.server.admin(), workspace(&scene.server.admin(), "gadgets").0);
    let tenant = admin.in_workspace(&tenant);
    let binding = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "gadgets"},
        "spec": {"reference": {"export": {"path": scene.provider, "name": "second"}}}});
    tenant
        .post("/apis/apis.kcp.io/v1alpha2/apibindings", &binding)
        .expect(201);
    until("gadgets are served", || {
        (tenant.get(&objects("v1")).code == 200).then_some(())
    });
    create(&tenant, "v1", "third", &json!({"size": "5"}));
    let doubled = rules(&[size("int(self) * 2"), rule(".spec.label", ".spec.tag")], &back());
    let changed = effect("value-changed", "v2", ".spec.size", 3);
    let found = scene.effects("color", &doubled);
    assert!(found.contains(&changed), "{found:?}");
    let flags = ["--apply", "--accept", "write-changed", "--accept", "value-changed=2"];
    let (code, text) = scene.publish("color", &doubled, &flags);
    assert!(code == 1 && text.contains("3 objects in 2 workspaces"), "{text}");
}
