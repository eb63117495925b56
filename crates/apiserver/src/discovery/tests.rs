use super::*;
use crate::fixtures;

/// The definitions of the scenario `crd-discovery`.
fn golden() -> Vec<Served> {
    let version = |name: &str| json!({"name": name, "served": name != "v2", "storage": name == "v1"});
    let names = [
        "foo10",
        "v1beta1",
        "v1",
        "v11alpha2",
        "v2",
        "v10",
        "v3beta1",
        "v12alpha1",
        "foo1",
        "v11beta2",
    ];
    let mut versions: Vec<Json> = names.into_iter().map(version).collect();
    versions[2]["subresources"] =
        json!({"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}});
    versions[5]["subresources"] = json!({"status": {}});
    let mut widgets = fixtures::widgets(json!(versions));
    widgets["group"] = json!("golden.example.com");
    widgets["names"]["singular"] = json!("thewidget");
    widgets["names"]["shortNames"] = json!(["wd", "w"]);
    widgets["names"]["categories"] = json!(["golden", "all"]);
    let gadgets = json!({
        "group": "golden.example.com", "scope": "Cluster", "names": {"plural": "gadgets", "kind": "Gadget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}}],
    });
    vec![fixtures::served(&widgets), fixtures::served(&gadgets)]
}

#[test]
fn versions_are_ranked_as_people_rank_them() {
    let want = [
        "v10",
        "v1",
        "v11beta2",
        "v3beta1",
        "v1beta1",
        "v12alpha1",
        "v11alpha2",
        "foo1",
        "foo10",
    ];
    let served = golden();
    assert_eq!(versions(&served, "golden.example.com"), want);
    let body = group(&served, "golden.example.com").expect("is served");
    assert_eq!(
        body["preferredVersion"],
        json!({"groupVersion": "golden.example.com/v10", "version": "v10"})
    );
    assert_eq!(groups(&served, "host:1")["groups"][0]["name"], "golden.example.com");
    assert_eq!(group(&served, "other.io"), None);
    let mut odd = vec!["v", "v1rc1", "v1", "v1beta", "1", "v18446744073709551616"];
    odd.sort_by_key(|version| priority(version));
    assert_eq!(odd, ["v1", "1", "v", "v18446744073709551616", "v1beta", "v1rc1"]);
}

#[test]
fn resources_come_by_name_with_their_subresources() {
    let served = golden();
    let mut list = resources(&served, "golden.example.com", "v1").expect("is served");
    for resource in list["resources"].as_array_mut().expect("a list") {
        if let Some(map) = resource.as_object_mut() {
            map.remove("storageVersionHash");
        }
    }
    let verbs = json!([
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "create",
        "update",
        "watch"
    ]);
    let sub = json!(["get", "patch", "update"]);
    let want = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "golden.example.com/v1", "resources": [
        {"name": "gadgets", "singularName": "gadget", "namespaced": false, "kind": "Gadget", "verbs": verbs},
        {"name": "gadgets/status", "singularName": "", "namespaced": false, "kind": "Gadget", "verbs": sub},
        {"name": "widgets", "singularName": "thewidget", "namespaced": true, "kind": "Widget", "verbs": verbs,
         "shortNames": ["wd", "w"], "categories": ["golden", "all"]},
        {"name": "widgets/status", "singularName": "", "namespaced": true, "kind": "Widget", "verbs": sub},
        {"name": "widgets/scale", "singularName": "", "namespaced": true, "kind": "Scale", "group": "autoscaling",
         "version": "v1", "verbs": sub},
    ]});
    assert_eq!(list, want);
    assert_eq!(resources(&served, "golden.example.com", "v2"), None, "is not served");
    assert_eq!(resources(&served, "", "v1"), None);
}

#[test]
fn terminating_resources_cannot_be_created() {
    let mut served = golden();
    served[0].terminating = true;
    let list = resources(&served, "golden.example.com", "foo1").expect("is served");
    assert_eq!(
        list["resources"][0]["verbs"],
        json!(["delete", "deletecollection", "get", "list", "watch"])
    );
}

#[test]
fn the_storage_version_shows_as_a_hash() {
    let mut served = golden();
    let (system, binding) = (served[0].origin.clone(), "widgets".into());
    for (origin, hashed) in [
        (Origin::Bound { binding }, "golden.example.com/v1/Widget"),
        (system, "/golden.example.com/v1/Widget"),
    ] {
        served[0].origin = origin;
        let list = resources(&served, "golden.example.com", "v10").expect("is served");
        // First eight bytes of SHA-256, whatever version is looked at.
        let digest = Sha256::digest(hashed);
        let want = json!(STANDARD.encode(&digest[..8]));
        assert_eq!(list["resources"][0]["storageVersionHash"], want);
    }
}

#[test]
fn aggregated_discovery_says_it_all_at_once() {
    let list = aggregated_groups(&golden());
    assert_eq!(list["items"][0]["metadata"], json!({"name": "golden.example.com"}));
    let v1 = &list["items"][0]["versions"][1];
    assert_eq!((&v1["version"], &v1["freshness"]), (&json!("v1"), &json!("Current")));
    let want = json!({
        "resource": "widgets", "scope": "Namespaced", "singularResource": "thewidget",
        "responseKind": {"group": "golden.example.com", "version": "v1", "kind": "Widget"},
        "verbs": ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
        "shortNames": ["wd", "w"], "categories": ["golden", "all"],
        "subresources": [
            {"subresource": "status", "verbs": ["get", "patch", "update"],
             "responseKind": {"group": "golden.example.com", "version": "v1", "kind": "Widget"}},
            {"subresource": "scale", "verbs": ["get", "patch", "update"],
             "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}},
        ],
    });
    assert_eq!(v1["resources"][1], want);
    assert_eq!(aggregated_core(&golden())["items"], json!([]));
}

#[test]
fn entity_tags() {
    let tag = etag(b"x");
    assert_eq!((tag.len(), tag.to_uppercase() == tag), (128, true));
    for (header, want) in [
        (None, false),
        (Some(format!("\"{tag}\"")), true),
        (Some(format!("\"a\", W/\"{tag}\"")), true),
        (Some("\"a\"".into()), false),
    ] {
        assert_eq!(etag_matches(header.as_deref(), &tag), want, "{header:?}");
    }
}

#[test]
fn the_version_has_digits_that_clients_parse() {
    let body = version("0.1.0");
    assert_eq!(
        (&body["major"], &body["minor"], &body["gitVersion"]),
        (&json!("1"), &json!("36"), &json!("v1.36.0+insula-0.1.0"))
    );
}

/// Compares with the recorded answers of a real server, where they are at hand.
#[test]
fn golden_discovery() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/golden/scenarios/crd-discovery.golden.json"
    );
    let Ok(text) = std::fs::read_to_string(file) else {
        eprintln!("skipped: {file} is absent");
        return;
    };
    let recorded: Json = serde_json::from_str(&text).expect("recordings are JSON");
    let served = golden();
    assert_eq!(
        group(&served, "golden.example.com"),
        Some(recorded["group"]["body"].clone())
    );
    for version in ["v10", "foo1"] {
        let mut list = resources(&served, "golden.example.com", version).expect("is served");
        list["resources"][0]["storageVersionHash"] = json!("<version hash>");
        assert_eq!(list, recorded[version]["body"], "{version}");
    }
}
