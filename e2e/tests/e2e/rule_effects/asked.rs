//! Changes of a definition in a workspace whose versions a webhook converts.

use super::*;

/// Returns the definition of gadgets with a webhook, stored in v2: served versions have these
/// fields.
fn definition(versions: &[(&str, &[&str])], strategy: &str) -> Value {
    let version = |(name, fields): &(&str, &[&str])| {
        let fields: Value = fields.iter().map(|field| (*field, json!({"type": "string"}))).collect();
        let spec = json!({"type": "object", "properties": fields});
        json!({"name": name, "served": true, "storage": *name == "v2",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
    };
    let mut definition = super::definition("note");
    definition["spec"]["versions"] = versions.iter().map(version).collect();
    definition["spec"]["conversion"] = match strategy {
        "Webhook" => json!({"strategy": strategy, "webhook": {"conversionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "default", "name": "none"}}}}),
        _ => json!({"strategy": strategy}),
    };
    definition
}

/// A version shows what is stored in it without the webhook, so a change is told as for any
/// definition; that nothing is known of the other versions is told as well.
#[test]
fn a_definition_with_a_webhook_has_the_guard_of_its_stored_version() {
    const UNKNOWN: &str = "a conversion webhook decides";
    let server = shared();
    let admin = server.admin();
    let (both, less): (&[&str], &[&str]) = (&["color", "label"], &["color"]);
    let changes = [
        ("Webhook", "Webhook", vec![("v2", both)], vec![("v2", less)], false),
        ("None", "Webhook", vec![("v2", both)], vec![("v2", less)], false),
        (
            "Webhook",
            "Webhook",
            vec![("v1", both), ("v2", both)],
            vec![("v1", both), ("v2", less)],
            true,
        ),
    ];
    for (from, to, before, after, is_unknown) in changes {
        let client = admin.in_workspace(&workspace(&admin, "gadgets").0);
        client.post(DEFINITIONS, &definition(&before, from)).expect(201);
        until("gadgets are served", || {
            (client.get(&objects("v2")).code == 200).then_some(())
        });
        create(&client, "v2", "first", &json!({"color": "red", "label": "L"}));
        let change = json!({"spec": definition(&after, to)["spec"]});
        let removed = format!("field-removed:gadgets.{GROUP}/v2:.spec.label: 1 object");
        for query in ["?dryRun=All", ""] {
            let path = format!("{DEFINITIONS}/gadgets.{GROUP}{query}");
            let answer = client.merge(&path, &change);
            let warnings = format!("{:?}", answer.headers.get_all("warning").iter().collect::<Vec<_>>());
            assert!(
                answer.code == 200 && warnings.contains(&removed),
                "{from} {to}: {answer:?}"
            );
            assert!(!warnings.contains("/v1:"), "{warnings}");
            assert_eq!(warnings.contains(UNKNOWN), is_unknown, "{from} {to}: {warnings}");
        }
    }
    // A version that goes needs no object to be shown.
    let client = admin.in_workspace(&workspace(&admin, "gadgets").0);
    let (whole, rest) = ([("v1", both), ("v2", both)], [("v2", both)]);
    client.post(DEFINITIONS, &definition(&whole, "Webhook")).expect(201);
    until("gadgets are served", || {
        (client.get(&objects("v2")).code == 200).then_some(())
    });
    create(&client, "v2", "first", &json!({"color": "red"}));
    let path = format!("{DEFINITIONS}/gadgets.{GROUP}?dryRun=All");
    let answer = client.merge(&path, &json!({"spec": definition(&rest, "Webhook")["spec"]}));
    let warnings = format!("{:?}", answer.headers.get_all("warning").iter().collect::<Vec<_>>());
    let gone = format!("version-removed:gadgets.{GROUP}/v1: the whole version; 1 object");
    assert!(
        answer.code == 200 && warnings.contains(&gone) && !warnings.contains(UNKNOWN),
        "{answer:?}"
    );
}
