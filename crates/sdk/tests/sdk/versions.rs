//! Versions and scale: a hub that no client sees, conversion by rules, and `/scale`.

use insula_sdk::{
    FieldError, FieldPath, Kind, ObjectMeta, Resource, Server, Strategy,
    kube::{
        Api, Client,
        api::{DynamicObject, Patch, PatchParams, PostParams},
        core::{ApiResource, GroupVersionKind},
    },
    schemars::JsonSchema,
    serde::{Deserialize, Serialize},
    serde_json::{Value, from_value, json},
    testing::{TestServer, check_roundtrip, runtime},
};
use std::process::Command;

/// A fleet of boats. The hub: stored, and seen by nobody.
#[derive(Resource, Clone, Debug)]
#[resource(group = "hub.example.com", version = "internal", kind = "Convoy", unserved)]
#[resource(strategy = Boats, versions(v1::Convoy, v2::Convoy))]
pub(crate) struct Hub {
    metadata: ObjectMeta,
    spec: HubSpec,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default)]
pub(crate) struct HubSpec {
    #[serde(default)]
    boats: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<String>,
}

pub(crate) struct Boats;

impl Strategy<Hub> for Boats {
    fn validate(&self, new: &Hub) -> Vec<FieldError> {
        let at = FieldPath::new("spec").child("boats");
        match new.spec.boats.iter().any(|boat| boat == "Titanic") {
            true => vec![FieldError::forbidden(&at, "is no name for a boat")],
            false => Vec::new(),
        }
    }

    fn canonicalize(&self, new: &mut Hub) {
        new.spec.boats.sort();
    }
}

pub(crate) mod v1 {
    use super::*;

    #[derive(Resource, Clone, Debug)]
    #[resource(group = "hub.example.com", version = "v1")]
    pub(crate) struct Convoy {
        pub(crate) metadata: ObjectMeta,
        pub(crate) spec: Spec,
    }

    #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default)]
    pub(crate) struct Spec {
        #[serde(default)]
        pub(crate) names: String,
    }

    impl From<Hub> for Convoy {
        fn from(hub: Hub) -> Self {
            let names = hub.spec.boats.join(" ");
            Self {
                metadata: hub.metadata,
                spec: Spec { names },
            }
        }
    }

    impl From<Convoy> for Hub {
        fn from(own: Convoy) -> Self {
            let boats = own.spec.names.split(' ').filter(|name| !name.is_empty());
            let boats = boats.map(str::to_owned).collect();
            Self {
                metadata: own.metadata,
                spec: HubSpec { boats, port: None },
            }
        }
    }
}

pub(crate) mod v2 {
    use super::*;

    #[derive(Resource, Clone, Debug)]
    #[resource(group = "hub.example.com", version = "v2")]
    pub(crate) struct Convoy {
        pub(crate) metadata: ObjectMeta,
        pub(crate) spec: HubSpec,
    }

    impl From<Hub> for Convoy {
        fn from(Hub { metadata, spec }: Hub) -> Self {
            Self { metadata, spec }
        }
    }

    impl From<Convoy> for Hub {
        fn from(Convoy { metadata, spec }: Convoy) -> Self {
            Self { metadata, spec }
        }
    }
}

insula_sdk::roundtrip!(convoys_lose_nothing_through_a_hub_that_is_not_served: Hub);

async fn get(client: &Client, path: &str) -> Result<Value, u16> {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    match client.request::<Value>(request).await {
        Ok(value) => Ok(value),
        Err(insula_sdk::kube::Error::Api(status)) => Err(status.code),
        Err(other) => panic!("{other}"),
    }
}

fn dynamic(client: &Client, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), "default", &kind)
}

#[test]
fn a_hub_that_is_not_served_stores_and_decides() {
    runtime().block_on(async {
        let server = TestServer::start(Server::builder().resource::<Hub>()).await;
        let client = server.client("root").await;
        let group = get(&client, "/apis/hub.example.com").await.unwrap();
        let versions = group["versions"].as_array().unwrap().iter();
        let versions: Vec<_> = versions.map(|version| version["version"].as_str().unwrap()).collect();
        assert_eq!(versions, ["v2", "v1"]);
        let internal = "/apis/hub.example.com/internal";
        for path in [internal, &format!("{internal}/namespaces/default/convoys")] {
            assert_eq!(get(&client, path).await, Err(404), "{path}");
        }
        let one = dynamic(&client, "hub.example.com", "v1", "Convoy");
        let two = dynamic(&client, "hub.example.com", "v2", "Convoy");
        let sent = |names: &str| {
            from_value(json!({"apiVersion": "hub.example.com/v1", "kind": "Convoy",
                "metadata": {"name": "north"}, "spec": {"names": names}}))
            .unwrap()
        };
        let refused = one.create(&PostParams::default(), &sent("Titanic")).await.unwrap_err();
        assert!(refused.to_string().contains("is no name for a boat"), "{refused}");
        let made = one
            .create(&PostParams::default(), &sent("fram gjoa amiral"))
            .await
            .unwrap();
        assert_eq!(made.data["spec"], json!({"names": "amiral fram gjoa"}));
        let patch = Patch::Merge(json!({"spec": {"port": "Oslo"}}));
        let shown = two.patch("north", &PatchParams::default(), &patch).await.unwrap();
        assert_eq!(
            shown.data["spec"],
            json!({"boats": ["amiral", "fram", "gjoa"], "port": "Oslo"})
        );
        // v1 has no port. A write through it leaves the port alone.
        let patch = Patch::Merge(json!({"spec": {"names": "fram"}}));
        one.patch("north", &PatchParams::default(), &patch).await.unwrap();
        let shown = two.get("north").await.unwrap();
        assert_eq!(shown.data["spec"], json!({"boats": ["fram"], "port": "Oslo"}));
        server.shutdown().await;
    });
}

/// A crane.
#[derive(Resource, Clone, Debug)]
#[resource(group = "rules.example.com", version = "v2")]
#[resource(subresources(scale(spec = ".spec.arms", status = ".status.arms", selector = ".status.selector")))]
pub(crate) struct Crane {
    metadata: ObjectMeta,
    spec: CraneSpec,
    status: Option<CraneStatus>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CraneSpec {
    #[serde(default)]
    arms: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    reach: Option<i32>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub(crate) struct CraneStatus {
    #[serde(default)]
    arms: i32,
    #[serde(default)]
    selector: String,
}

mod old {
    use super::*;

    #[derive(Resource, Clone, Debug)]
    #[resource(group = "rules.example.com", version = "v1")]
    #[resource(subresources(scale(spec = ".spec.armCount", status = ".status.arms")))]
    pub(super) struct Crane {
        metadata: ObjectMeta,
        spec: Spec,
        status: Option<CraneStatus>,
    }

    #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Spec {
        #[serde(default)]
        arm_count: i32,
    }
}

fn cranes() -> Kind<Crane> {
    let rules = json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion",
    "metadata": {"name": "cranes.rules.example.com"},
    "spec": {"conversions": [
        {"from": "v1", "to": "v2", "rules": [{"from": "v1.spec.armCount", "to": "spec.arms"}]},
        {"from": "v2", "to": "v1", "rules": [{"from": "v2.spec.arms", "to": "spec.armCount"}]},
    ]}});
    Kind::<Crane>::new().version_by_rules::<old::Crane>(rules)
}

#[test]
fn cranes_lose_nothing_by_rules() {
    check_roundtrip(cranes());
}

#[test]
fn rules_convert_and_a_kind_scales() {
    runtime().block_on(async {
        let server = TestServer::start(Server::builder().kind(cranes())).await;
        let client = server.client("root").await;
        let cranes: Api<Crane> = Api::namespaced(client.clone(), "default");
        let old = dynamic(&client, "rules.example.com", "v1", "Crane");
        let sent = json!({"apiVersion": "rules.example.com/v1", "kind": "Crane", "metadata": {"name": "c"},
            "spec": {"armCount": 2}});
        old.create(&PostParams::default(), &from_value(sent).unwrap())
            .await
            .unwrap();
        assert_eq!(cranes.get("c").await.unwrap().spec.arms, 2);
        let patch = Patch::Merge(json!({"spec": {"reach": 30}}));
        cranes.patch("c", &PatchParams::default(), &patch).await.unwrap();
        let patch = Patch::Merge(json!({"spec": {"armCount": 3}}));
        old.patch("c", &PatchParams::default(), &patch).await.unwrap();
        let shown = cranes.get("c").await.unwrap().spec;
        assert_eq!((shown.arms, shown.reach), (3, Some(30)));

        let status = Patch::Merge(json!({"status": {"arms": 3, "selector": "crane=c"}}));
        cranes
            .patch_status("c", &PatchParams::default(), &status)
            .await
            .unwrap();
        let scale = cranes.get_scale("c").await.unwrap();
        let found = scale.status.unwrap();
        assert_eq!((scale.spec.unwrap().replicas, found.replicas), (Some(3), 3));
        assert_eq!(found.selector.as_deref(), Some("crane=c"));
        let five = Patch::Merge(json!({"spec": {"replicas": 5}}));
        cranes.patch_scale("c", &PatchParams::default(), &five).await.unwrap();
        assert_eq!(old.get("c").await.unwrap().data["spec"], json!({"armCount": 5}));
        let scaled = Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(server.kubeconfig())
            .args(["scale", "crane/c", "--replicas=7", "--current-replicas=5"])
            .output();
        match scaled {
            Ok(output) => {
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                assert_eq!(cranes.get("c").await.unwrap().spec.arms, 7);
            }
            Err(_) => eprintln!("skipped: no kubectl"),
        }
        server.shutdown().await;
    });
}
