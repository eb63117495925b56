//! Watches of other kinds, and reconciliation by level: the object as it is.

use insula_sdk::{
    Action, Controller, ObjectMeta, ReconcileResult, Reconciler, Request, Resource, Server,
    k8s_openapi::api::core::v1::{ConfigMap, Secret},
    kube::{
        Api, ResourceExt,
        api::{Patch, PatchParams, PostParams},
    },
    schemars::JsonSchema,
    serde::{Deserialize, Serialize},
    serde_json::json,
    testing::{TestServer, runtime},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

/// A copy of a ConfigMap's greeting.
#[derive(Resource, Clone, Debug)]
#[resource(group = "watch.example.com", version = "v1")]
pub(crate) struct Parrot {
    metadata: ObjectMeta,
    spec: ParrotSpec,
    status: Option<ParrotStatus>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub(crate) struct ParrotSpec {
    /// ConfigMap with the greeting.
    from: String,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
pub(crate) struct ParrotStatus {
    says: String,
}

#[derive(Default)]
struct Repeat {
    /// Greetings that reconciliations saw.
    seen: Arc<Mutex<Vec<String>>>,
}

impl Reconciler for Repeat {
    type Object = Parrot;
    const NAME: &'static str = "repeat.watch.example.com";

    async fn reconcile(&self, request: &Request<Parrot>) -> ReconcileResult {
        let namespace = request.key.namespace.as_deref().unwrap_or_default();
        let maps: Api<ConfigMap> = Api::namespaced(request.client.clone(), namespace);
        let map = maps.get_opt(&request.object.spec.from).await?;
        let says = map.and_then(|map| map.data?.remove("greeting")).unwrap_or_default();
        self.seen.lock().unwrap().push(says.clone());
        if request.object.status.as_ref().is_none_or(|status| status.says != says) {
            request.patch_status(json!({"says": says})).await?;
        }
        Ok(Action::await_change())
    }
}

fn greeting(text: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some("greeting".into()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([("greeting".to_owned(), text.to_owned())])),
        ..ConfigMap::default()
    }
}

#[test]
fn a_change_of_a_watched_kind_reconciles_the_named_objects() {
    runtime().block_on(async {
        let repeat = Repeat::default();
        let seen = Arc::clone(&repeat.seen);
        // Both parrots of the namespace repeat every greeting; changes of Secrets name nobody.
        let controller = Controller::new(repeat)
            .watches::<ConfigMap>(|map| match map.name.as_deref() {
                Some("greeting") => vec![
                    (map.namespace.clone(), "ara".into()),
                    (map.namespace.clone(), "gone".into()),
                ],
                _ => Vec::new(),
            })
            .watches::<Secret>(|_| Vec::new());
        let server = TestServer::start(Server::builder().resource::<Parrot>().controller(controller)).await;
        let client = server.client("root").await;
        let parrots: Api<Parrot> = Api::namespaced(client.clone(), "default");
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        let ara = Parrot {
            metadata: ObjectMeta {
                name: Some("ara".into()),
                ..ObjectMeta::default()
            },
            spec: ParrotSpec {
                from: "greeting".into(),
            },
            status: None,
        };
        parrots.create(&PostParams::default(), &ara).await.unwrap();
        says(&parrots, "").await;
        maps.create(&PostParams::default(), &greeting("hello")).await.unwrap();
        says(&parrots, "hello").await;
        // Many changes may lead to few reconciliations, and the last one counts.
        for number in 0..20 {
            let patch = Patch::Merge(json!({"data": {"greeting": format!("hello {number}")}}));
            maps.patch("greeting", &PatchParams::default(), &patch).await.unwrap();
        }
        says(&parrots, "hello 19").await;
        let seen = seen.lock().unwrap().clone();
        assert_eq!(seen.last().map(String::as_str), Some("hello 19"));
        assert_eq!(parrots.get("ara").await.unwrap().name_any(), "ara");
        server.shutdown().await;
    });
}

async fn says(parrots: &Api<Parrot>, want: &str) {
    for _ in 0..600 {
        let status = parrots.get("ara").await.unwrap().status;
        if status.is_some_and(|status| status.says == want) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the parrot does not say {want:?} within a minute");
}
