//! A controller of kube-rs that works for all tenants: it watches through the wildcard and writes
//! into one cluster at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use futures_util::{StreamExt, pin_mut};
use insula_e2e::{Client as Http, Server, runtime, shared, unique, until, workspace};
use kube::{
    Api, Client, Config,
    api::{DynamicObject, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{ApiResource, GroupVersionKind},
    runtime::watcher,
};
use serde_json::{Value, json};

const SCHEMAS: &str = "/apis/apis.kcp.io/v1alpha1/apiresourceschemas";
const EXPORT: &str = "/apis/apis.kcp.io/v1alpha2/apiexports/tasks";
const BINDINGS: &str = "/apis/apis.kcp.io/v1alpha2/apibindings";

/// Returns a schema of tasks: v1 has a title; v2, if present, also has priorities.
fn schema(generation: &str, versions: &[&str]) -> Value {
    let text = json!({"type": "string"});
    let version = |name: &&str| {
        let mut spec = json!({"title": text});
        if *name == "v2" {
            spec["priority"] = json!({"type": "integer"});
        }
        let status = json!({"type": "object", "properties": {"done": text}});
        let properties = json!({"spec": {"type": "object", "properties": spec}, "status": status});
        json!({"name": name, "served": true, "storage": *name == "v1", "subresources": {"status": {}},
            "schema": {"type": "object", "properties": properties}})
    };
    json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
        "metadata": {"name": format!("{generation}.tasks.example.io")},
        "spec": {"group": "example.io", "scope": "Namespaced",
            "names": {"plural": "tasks", "singular": "task", "kind": "Task", "listKind": "TaskList"},
            "versions": versions.iter().map(version).collect::<Vec<_>>()},
    })
}

fn resources(generation: &str) -> Value {
    json!([{"name": "tasks", "group": "example.io", "schema": format!("{generation}.tasks.example.io")}])
}

/// Clients of a provider's virtual workspace: one for all clusters, and one for each cluster that
/// it writes to.
struct ProviderView {
    config: Config,
    url: String,
    clients: Mutex<BTreeMap<String, Client>>,
}

impl ProviderView {
    async fn new(server: &Server, provider: &str) -> Self {
        let options = KubeConfigOptions {
            context: Some("base".to_owned()),
            ..KubeConfigOptions::default()
        };
        let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).unwrap();
        Self {
            config: Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap(),
            url: format!("{}/services/apiexport/{provider}/tasks/clusters", server.url()),
            clients: Mutex::default(),
        }
    }

    fn client(&self, cluster: &str) -> Client {
        let mut clients = self.clients.lock().unwrap();
        let make = || {
            let mut config = self.config.clone();
            config.cluster_url = format!("{}/{cluster}", self.url).parse().unwrap();
            Client::try_from(config).unwrap()
        };
        clients.entry(cluster.to_owned()).or_insert_with(make).clone()
    }

    fn tasks(&self, cluster: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.io", "v1", "Task"));
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client(cluster), namespace, &kind),
            None => Api::all_with(self.client(cluster), &kind),
        }
    }
}

/// Marks each task as done, in every cluster, and records the existing tasks.
async fn control(view: Arc<ProviderView>, known: Arc<Mutex<BTreeSet<(String, String)>>>) {
    let events = watcher(view.tasks("*", None), watcher::Config::default());
    pin_mut!(events);
    while let Some(event) = events.next().await {
        let (task, exists) = match event.expect("the watch goes on") {
            watcher::Event::Init => {
                known.lock().unwrap().clear();
                continue;
            }
            watcher::Event::InitDone => continue,
            watcher::Event::InitApply(task) | watcher::Event::Apply(task) => (task, true),
            watcher::Event::Delete(task) => (task, false),
        };
        let cluster = task.metadata.annotations.as_ref().unwrap()["kcp.io/cluster"].clone();
        let name = task.metadata.name.clone().unwrap();
        let key = (cluster.clone(), name.clone());
        match exists {
            true => known.lock().unwrap().insert(key),
            false => known.lock().unwrap().remove(&key),
        };
        if exists && task.data["status"]["done"].is_null() {
            let done = Patch::Merge(json!({"status": {"done": cluster.as_str()}}));
            let api = view.tasks(&cluster, task.metadata.namespace.as_deref());
            match api.patch_status(&name, &PatchParams::default(), &done).await {
                Ok(_) => {}
                // The tenant deleted it meanwhile, or its workspace is gone.
                Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

struct Tenant {
    http: Http,
    path: String,
    cluster: String,
}

fn tenant(admin: &Http, provider: &str) -> Tenant {
    let (path, cluster) = workspace(admin, "task");
    let http = admin.in_workspace(&path);
    let binding = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "tasks"},
        "spec": {"reference": {"export": {"path": provider, "name": "tasks"}}}});
    http.post(BINDINGS, &binding).expect(201);
    until("tasks are served", || {
        (http.get("/apis/example.io/v1/tasks").code == 200).then_some(())
    });
    Tenant { http, path, cluster }
}

impl Tenant {
    fn add(&self, version: &str, name: &str, spec: Value) {
        let task = json!({"apiVersion": format!("example.io/{version}"), "kind": "Task",
            "metadata": {"name": name}, "spec": spec});
        let tasks = format!("/apis/example.io/{version}/namespaces/default/tasks");
        until("the version takes tasks", || {
            (self.http.post(&tasks, &task).code == 201).then_some(())
        });
    }

    fn is_done(&self, name: &str) {
        until("the controller has done it", || {
            let task = self
                .http
                .get(&format!("/apis/example.io/v1/namespaces/default/tasks/{name}"));
            (task.body["status"]["done"] == self.cluster.as_str()).then_some(())
        });
    }
}

#[test]
fn a_controller_follows_tenants_and_schema_changes() {
    let server = shared();
    let admin = server.admin();
    let (provider, home) = workspace(&admin, "controller");
    let own = admin.in_workspace(&provider);
    own.post(SCHEMAS, &schema("one", &["v1"])).expect(201);
    let export = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "tasks"},
        "spec": {"resources": resources("one")}});
    own.post(EXPORT.trim_end_matches("/tasks"), &export).expect(201);
    let view = Arc::new(runtime().block_on(ProviderView::new(&server, &home)));
    let known = Arc::new(Mutex::default());
    // It starts before any tenant has a binding.
    let controller = runtime().spawn(control(view, Arc::clone(&known)));

    let (first, second) = (tenant(&admin, &provider), tenant(&admin, &provider));
    // Two distinct tasks with the same name and namespace.
    first.add("v1", "same", json!({"title": "a"}));
    second.add("v1", "same", json!({"title": "b"}));
    first.is_done("same");
    second.is_done("same");

    own.post(SCHEMAS, &schema("two", &["v1", "v2"])).expect(201);
    own.merge(EXPORT, &json!({"spec": {"resources": resources("two")}}))
        .expect(200);
    let third = tenant(&admin, &provider);
    third.add("v2", "new", json!({"title": "c", "priority": 1}));
    first.add("v2", "new", json!({"title": "d", "priority": 2}));
    third.is_done("new");
    first.is_done("new");
    let kept = first
        .http
        .get("/apis/example.io/v2/namespaces/default/tasks/new")
        .expect(200);
    assert_eq!(
        kept["spec"],
        json!({"title": "d", "priority": 2}),
        "its writes through v1 keep what v2 has"
    );

    let (parent, name) = second.path.rsplit_once(':').unwrap();
    admin
        .in_workspace(parent)
        .delete(&format!("/apis/tenancy.kcp.io/v1alpha1/workspaces/{name}"))
        .expect(200);
    until("the controller forgets who went", || {
        let known: std::sync::MutexGuard<'_, BTreeSet<(String, String)>> = known.lock().unwrap();
        known
            .iter()
            .all(|(cluster, _)| *cluster != second.cluster)
            .then_some(())
    });
    let fresh = unique("last");
    third.add("v1", &fresh, json!({"title": "e"}));
    third.is_done(&fresh);
    assert_eq!(known.lock().unwrap().len(), 4);
    assert!(!controller.is_finished(), "it never stopped");
    controller.abort();
}
