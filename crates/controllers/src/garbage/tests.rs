use crate::testing::TestControlPlane;
use insula_api::Json;
use insula_registry::Propagation;
use serde_json::json;

/// A family: each member with its owners and whether it blocks them.
const MEMBERS: &[(&str, &[(&str, bool)])] = &[
    ("grandparent", &[]),
    ("parent", &[("grandparent", true)]),
    ("uncle", &[("grandparent", false)]),
    ("child", &[("parent", true)]),
    ("shared", &[("parent", true), ("stranger", true)]),
];

struct Family {
    rig: TestControlPlane,
    workspace: String,
}

impl Family {
    async fn new() -> Family {
        let rig = TestControlPlane::new().await;
        let workspace = rig.workspace("root", "org").await;
        let family = Family { rig, workspace };
        family.add("stranger", &[], "").await;
        for (name, owners) in MEMBERS {
            family.add(name, owners, "").await;
        }
        family.rig.settle().await;
        family
    }

    async fn add(&self, name: &str, owners: &[(&str, bool)], finalizers: &str) {
        let references: Vec<Json> = owners
            .iter()
            .map(|(owner, blocks)| {
                let uid = self
                    .get(owner)
                    .map_or(json!("nobody"), |o| o["metadata"]["uid"].clone());
                json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid,
                    "blockOwnerDeletion": blocks})
            })
            .collect();
        let finalizers: Vec<&str> = finalizers.split_whitespace().collect();
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default", "ownerReferences": references, "finalizers": finalizers},
        });
        self.rig.create(&self.workspace, "configmaps", &body.to_string()).await;
    }

    fn get(&self, name: &str) -> Option<Json> {
        self.rig
            .get(&self.workspace, "v1", "configmaps", &format!("default/{name}"))
    }

    fn owners(&self, name: &str) -> Vec<String> {
        let object = self.get(name).unwrap_or_default();
        let references = object["metadata"]["ownerReferences"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        references
            .iter()
            .map(|r| r["name"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    async fn delete(&self, name: &str, propagation: Option<Propagation>) {
        let name = format!("default/{name}");
        let deleted = self
            .rig
            .delete_as(&self.workspace, "v1", "configmaps", &name, propagation);
        deleted.await.unwrap();
    }

    fn alive(&self) -> String {
        let names = MEMBERS.iter().map(|(name, _)| *name).chain(["stranger"]);
        let alive: Vec<&str> = names.filter(|name| self.get(name).is_some()).collect();
        alive.join(" ")
    }
}

#[tokio::test]
async fn dependents_go_with_their_last_owner() {
    let all = "grandparent parent uncle child shared stranger";
    for (who, how, left) in [
        ("grandparent", None, "shared stranger"),
        ("grandparent", Some(Propagation::Background), "shared stranger"),
        ("grandparent", Some(Propagation::Foreground), "shared stranger"),
        (
            "grandparent",
            Some(Propagation::Orphan),
            "parent uncle child shared stranger",
        ),
        ("stranger", None, "grandparent parent uncle child shared"),
        (
            "child",
            Some(Propagation::Foreground),
            "grandparent parent uncle shared stranger",
        ),
    ] {
        let family = Family::new().await;
        assert_eq!(family.alive(), all);
        family.delete(who, how).await;
        family.rig.settle().await;
        assert_eq!(family.alive(), left, "{who} {how:?}");
        let want = match who {
            "grandparent" if how != Some(Propagation::Orphan) => vec!["stranger"],
            "stranger" => vec!["parent"],
            _ => vec!["parent", "stranger"],
        };
        assert_eq!(family.owners("shared"), want, "{who} {how:?}");
        if how == Some(Propagation::Orphan) {
            assert!(family.owners("parent").is_empty());
        }
    }
}

/// In the foreground an owner stays for as long as a blocking dependent does, and for no other.
#[tokio::test]
async fn owners_wait_for_those_who_block_them() {
    let family = Family::new().await;
    family.add("held", &[("parent", true)], "example.io/hold").await;
    family.add("loose", &[("uncle", false)], "example.io/hold").await;
    family.delete("grandparent", Some(Propagation::Foreground)).await;
    family.rig.settle().await;
    assert_eq!(family.alive(), "grandparent parent shared stranger");
    assert_eq!(
        family.get("grandparent").unwrap()["metadata"]["finalizers"],
        json!(["foregroundDeletion"])
    );
    for name in ["held", "loose"] {
        assert!(
            family.get(name).unwrap()["metadata"]["deletionTimestamp"].is_string(),
            "{name}"
        );
    }
    let release = json!({"metadata": {"finalizers": null}});
    let patched = family
        .rig
        .patch(&family.workspace, "v1", "configmaps", "default/held", release);
    patched.await.unwrap();
    family.rig.settle().await;
    assert_eq!(family.alive(), "shared stranger");
}

/// An object with an owner that never existed is deleted; one with an owner of an unserved kind
/// stays.
#[tokio::test]
async fn absent_owners_are_told_from_unknown_ones() {
    let family = Family::new().await;
    family.add("foundling", &[("nobody", false)], "").await;
    let unknown = json!({"apiVersion": "example.io/v1", "kind": "Widget", "name": "w", "uid": "u"});
    let body = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "ward", "namespace": "default", "ownerReferences": [unknown]},
    });
    family
        .rig
        .create(&family.workspace, "configmaps", &body.to_string())
        .await;
    family.rig.settle().await;
    assert!(family.get("foundling").is_none());
    assert!(family.get("ward").is_some());
}

/// Two that own one another do not wait for ever.
#[tokio::test]
async fn circles_are_broken() {
    let family = Family::new().await;
    let uid = family.get("child").unwrap()["metadata"]["uid"].clone();
    let child =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "child", "uid": uid, "blockOwnerDeletion": true});
    let circle = json!({"metadata": {"ownerReferences": [child]}});
    let patched = family
        .rig
        .patch(&family.workspace, "v1", "configmaps", "default/parent", circle);
    patched.await.unwrap();
    family.delete("parent", Some(Propagation::Foreground)).await;
    family.rig.settle().await;
    assert_eq!(family.alive(), "grandparent uncle shared stranger");
}
