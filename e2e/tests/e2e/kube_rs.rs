//! kube-rs as another client of the same API.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, TryStreamExt};
use insula_e2e::{Server, runtime, shared, unique, with_widgets, workspace};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{ApiResource, GroupVersionKind},
    runtime::{Controller, WatchStreamExt, controller::Action, watcher},
};
use serde_json::json;

async fn client(server: &Server, workspace: &str) -> Client {
    let options = KubeConfigOptions {
        context: Some("base".to_owned()),
        ..KubeConfigOptions::default()
    };
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    config.cluster_url = format!("{}/clusters/{workspace}", server.url()).parse().unwrap();
    Client::try_from(config).unwrap()
}

fn widgets(client: &Client, version: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.io", version, "Widget"));
    Api::namespaced_with(client.clone(), "default", &kind)
}

fn widget(version: &str, name: &str, spec: serde_json::Value) -> DynamicObject {
    let object = json!({"apiVersion": format!("example.io/{version}"), "kind": "Widget",
        "metadata": {"name": name}, "spec": spec});
    serde_json::from_value(object).unwrap()
}

#[test]
fn typed_objects_are_created_changed_listed_and_deleted() {
    let server = shared();
    let (path, _) = workspace(&server.admin(), "typed");
    runtime().block_on(async {
        let client = client(&server, &path).await;
        assert_eq!(client.apiserver_version().await.unwrap().minor, "36");
        let namespaces: Api<Namespace> = Api::all(client.clone());
        assert!(namespaces.get_opt("default").await.unwrap().is_some());
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        let name = unique("map");
        let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": name}, "data": {"a": "b"}})).unwrap();
        let made = maps.create(&PostParams::default(), &map).await.unwrap();
        assert_eq!(made.data, map.data);
        let again = maps.create(&PostParams::default(), &map).await.unwrap_err();
        assert!(
            matches!(again, kube::Error::Api(ref status) if status.is_already_exists()),
            "{again}"
        );
        let patch = Patch::Merge(json!({"data": {"c": "d"}}));
        maps.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        let stale = maps.replace(&name, &PostParams::default(), &made).await.unwrap_err();
        assert!(
            matches!(stale, kube::Error::Api(ref status) if status.is_conflict()),
            "{stale}"
        );
        let listed = maps
            .list(&ListParams::default().fields(&format!("metadata.name={name}")))
            .await
            .unwrap();
        assert_eq!(listed.items[0].data.as_ref().unwrap().len(), 2);
        assert_eq!(
            maps.get_metadata(&name).await.unwrap().metadata.name.as_deref(),
            Some(name.as_str())
        );
        maps.delete(&name, &DeleteParams::default()).await.unwrap();
        assert!(maps.get_opt(&name).await.unwrap().is_none());
    });
}

#[test]
fn discovery_lists_bound_resources() {
    let server = shared();
    let path = with_widgets(&server);
    runtime().block_on(async {
        let client = client(&server, &path).await;
        for discovery in [
            kube::Discovery::new(client.clone()).run().await.unwrap(),
            kube::Discovery::new(client.clone()).run_aggregated().await.unwrap(),
        ] {
            let group = discovery.get("example.io").unwrap();
            assert_eq!(group.versions().collect::<Vec<_>>(), ["v2", "v1"]);
            let (resource, capabilities) = group.recommended_kind("Widget").unwrap();
            assert_eq!((resource.plural.as_str(), resource.version.as_str()), ("widgets", "v2"));
            assert!(capabilities.supports_operation(kube::discovery::verbs::WATCH));
        }
    });
}

/// Two informers of one resource, one in each version, see the same objects and the same changes.
#[test]
fn watchers_of_both_versions_see_each_change() {
    let server = shared();
    let path = with_widgets(&server);
    runtime().block_on(async {
        let client = client(&server, &path).await;
        let (v1, v2) = (widgets(&client, "v1"), widgets(&client, "v2"));
        v1.create(&PostParams::default(), &widget("v1", "a", json!({"firstName": "Bob"})))
            .await
            .unwrap();
        let mut old = pin!(watcher(v1.clone(), watcher::Config::default()).applied_objects());
        // The newer protocol, where the watch streams the list.
        let mut new = pin!(watcher(v2.clone(), watcher::Config::default().streaming_lists()).applied_objects());
        let patience = Duration::from_secs(20);
        let first = tokio::time::timeout(patience, old.try_next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(first.data["spec"], json!({"firstName": "Bob"}));
        let first = tokio::time::timeout(patience, new.try_next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(first.data["spec"], json!({"name": {"first": "Bob"}}));
        let patch = Patch::Merge(json!({"spec": {"name": {"first": "Eve"}, "more": "hidden"}}));
        v2.patch("a", &PatchParams::default(), &patch).await.unwrap();
        let seen = tokio::time::timeout(patience, old.next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(seen.data["spec"], json!({"firstName": "Eve"}));
        let seen = tokio::time::timeout(patience, new.next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(seen.data["spec"], json!({"name": {"first": "Eve"}, "more": "hidden"}));
        assert_eq!(seen.types.unwrap().api_version, "example.io/v2");
        let mut through_v1 = v1.get("a").await.unwrap();
        through_v1.data["spec"]["firstName"] = "Zoe".into();
        v1.replace("a", &PostParams::default(), &through_v1).await.unwrap();
        let seen = tokio::time::timeout(patience, new.next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(seen.data["spec"], json!({"name": {"first": "Zoe"}, "more": "hidden"}));
    });
}

/// Sets the name of each widget of v1, as a controller of v1 that does not know v2.
async fn give_name(
    widget: Arc<DynamicObject>,
    context: Arc<(Api<DynamicObject>, AtomicUsize)>,
) -> kube::Result<Action> {
    let (api, runs) = &*context;
    runs.fetch_add(1, Ordering::Relaxed);
    let apply = PatchParams::apply("namer").force();
    let wanted = json!({"apiVersion": "example.io/v1", "kind": "Widget", "spec": {"firstName": "Named"}});
    let name = widget.metadata.name.as_deref().unwrap();
    api.patch(name, &apply, &Patch::Apply(wanted)).await?;
    Ok(Action::await_change())
}

/// A controller reaches its goal, receives other clients' changes, and rests when nothing is left
/// to do.
#[test]
fn a_controller_converges_and_stops_writing() {
    let server = shared();
    let path = with_widgets(&server);
    runtime().block_on(async {
        let client = client(&server, &path).await;
        let (v1, v2) = (widgets(&client, "v1"), widgets(&client, "v2"));
        let context = Arc::new((v1.clone(), AtomicUsize::new(0)));
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.io", "v1", "Widget"));
        let controller = Controller::new_with(v1, watcher::Config::default(), kind)
            .run(give_name, |_, error, _| panic!("{error}"), Arc::clone(&context))
            .for_each(|_| std::future::ready(()));
        let controlled = tokio::spawn(controller);
        let named = |first: &'static str| {
            let v2 = v2.clone();
            async move {
                for _ in 0..1000 {
                    let found = v2.get_opt("a").await.unwrap();
                    if found.is_some_and(|found| found.data["spec"]["name"]["first"] == first) {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                panic!("not {first} in time");
            }
        };
        let made = widget("v2", "a", json!({"name": {"first": "Bob"}, "more": "hidden"}));
        v2.create(&PostParams::default(), &made).await.unwrap();
        named("Named").await;
        let patch = Patch::Merge(json!({"spec": {"name": {"first": "Eve"}}}));
        v2.patch("a", &PatchParams::default(), &patch).await.unwrap();
        named("Named").await;
        // Its own writes without changes cause no events.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let runs = context.1.load(Ordering::Relaxed);
        assert!((2..10).contains(&runs), "{runs} runs");
        assert_eq!(v2.get("a").await.unwrap().data["spec"]["more"], "hidden");
        controlled.abort();
    });
}
