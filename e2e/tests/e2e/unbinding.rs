//! Deleted bindings within their grace period: served, whole, and brought back. The commands are
//! tested in `cli/unbind.rs`, the calls of gRPC in `grpc/unbinding.rs`.

use insula_e2e::{Client, Server, Setup, Who, publish_widgets, shared, unique, until, workspace, workspace_owned_by};
use serde_json::{Value, json};

mod attacks;
mod races;

pub(crate) const BINDINGS: &str = "/apis/apis.kcp.io/v1alpha2/apibindings";
pub(crate) const BINDING: &str = "/apis/apis.kcp.io/v1alpha2/apibindings/widgets";
pub(crate) const WIDGETS: &str = "/apis/example.io/v2/namespaces/default/widgets";
const CLUSTER: &str = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster";
const EXPORT: &str = "/apis/apis.kcp.io/v1alpha2/apiexports/widgets";
const WORKSPACES: &str = "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces";

/// A provider of widgets, and a tenant of alice's that has bound them and has two.
pub(crate) struct Scene {
    pub(crate) provider: String,
    pub(crate) tenant: String,
    pub(crate) cluster: String,
}

impl Scene {
    /// Makes both workspaces. The export gives deleted bindings a grace period.
    pub(crate) fn new(server: &Server, grace_seconds: Option<u64>) -> Self {
        let admin = server.admin();
        let (provider, _) = workspace(&admin, "provider");
        let (tenant, cluster) = workspace_owned_by(server, "alice");
        let scene = Self {
            provider,
            tenant,
            cluster,
        };
        let at_provider = admin.in_workspace(&scene.provider);
        publish_widgets(&at_provider);
        at_provider
            .merge(EXPORT, &grace(grace_seconds.map(|seconds| seconds.to_string())))
            .expect(200);
        scene.bind(server, "widgets", &scene.provider);
        until("the widgets are served", || {
            (scene.at_tenant(server).get(WIDGETS).code == 200).then_some(())
        });
        for name in ["ada", "bob"] {
            scene.create(server, name).expect(201);
        }
        scene
    }

    pub(crate) fn at_tenant(&self, server: &Server) -> Client {
        server.admin().in_workspace(&self.tenant)
    }

    fn bind(&self, server: &Server, name: &str, provider: &str) {
        let binding = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": name},
            "spec": {"reference": {"export": {"path": provider, "name": "widgets"}}}});
        self.at_tenant(server).post(BINDINGS, &binding).expect(201);
    }

    pub(crate) fn create(&self, server: &Server, name: &str) -> insula_e2e::Answer {
        let widget = json!({"apiVersion": "example.io/v2", "kind": "Widget", "metadata": {"name": name},
            "spec": {"name": {"first": name}, "more": "kept"}});
        self.at_tenant(server).post(WIDGETS, &widget)
    }

    /// Returns the bytes of the objects in both versions.
    pub(crate) fn objects(&self, server: &Server) -> Vec<String> {
        let read = |version: &str, name: &str| {
            let object = format!("/apis/example.io/{version}/namespaces/default/widgets/{name}");
            self.at_tenant(server).get(&object).text
        };
        ["v1", "v2"]
            .iter()
            .flat_map(|version| ["ada", "bob"].map(|name| read(version, name)))
            .collect()
    }

    pub(crate) fn until_gone(&self, server: &Server) {
        let tenant = self.at_tenant(server);
        until("the binding and its objects are gone", || {
            (tenant.get(BINDING).code == 404 && tenant.get(WIDGETS).code == 404).then_some(())
        });
    }
}

/// Returns the patch that sets or removes the grace period of an export or a workspace.
pub(crate) fn grace(seconds: Option<String>) -> Value {
    json!({"metadata": {"annotations": {"apis.insula.io/unbind-grace-seconds": seconds}}})
}

/// Returns the condition that tells what the deletion waits for.
pub(crate) fn waits_for(binding: &Value) -> Option<Value> {
    let conditions = binding["status"]["conditions"].as_array()?;
    let mut found = conditions.iter();
    found.find(|it| it["type"] == "BindingResourceDeleteSuccess").cloned()
}

/// Without the annotation a deletion begins at once, as in kcp.
#[test]
fn without_a_grace_period_a_binding_goes_at_once() {
    let server = shared();
    for seconds in [None, Some(0)] {
        let scene = Scene::new(&server, seconds);
        let deleted = scene.at_tenant(&server).delete(BINDING);
        assert_eq!(deleted.headers.get("warning"), None);
        let deleted = deleted.expect(200);
        assert_eq!(deleted["metadata"]["deletionGracePeriodSeconds"], 0);
        scene.until_gone(&server);
    }
}

/// The provider sees the objects until the end of the period, the tenant creates none, and the
/// object limit of the workspace counts what is kept.
#[test]
fn kept_objects_are_served_and_counted() {
    let server = shared();
    let scene = Scene::new(&server, Some(3600));
    let (tenant, admin) = (scene.at_tenant(&server), server.admin());
    let before = scene.objects(&server);
    let note = |name: &str| {
        let note = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        tenant.post("/api/v1/namespaces/default/configmaps", &note)
    };
    let limit = |objects: Option<&str>| {
        let limit = json!({"metadata": {"annotations": {"core.kcp.io/max-total-objects": objects}}});
        tenant.merge(CLUSTER, &limit).expect(200);
    };
    let counted = || {
        limit(Some("1"));
        let refused = note("refused").expect(403)["message"].as_str().unwrap().to_owned();
        limit(None);
        let (_, count) = refused.split_once("limit (").unwrap();
        count.split_once('/').unwrap().0.parse::<u64>().unwrap()
    };
    let count = counted();

    let deleted = tenant.delete(BINDING);
    let warning = deleted.headers["warning"].to_str().unwrap().to_owned();
    let deleted = deleted.expect(200);
    assert_eq!(deleted["metadata"]["deletionGracePeriodSeconds"], 3600);
    let end = deleted["metadata"]["deletionTimestamp"].as_str().unwrap();
    for part in [end, "insula unbind widgets --undelete", "insula unbind widgets --now"] {
        assert!(warning.contains(part), "{part} in {warning}");
    }
    let told = until("the binding tells for what it waits", || {
        waits_for(&tenant.get(BINDING).expect(200))
    });
    assert_eq!(
        (&told["reason"], &told["severity"]),
        (&json!("GracePeriod"), &json!("Info"))
    );
    assert!(told["message"].as_str().unwrap().contains(end), "{told}");

    assert_eq!(scene.objects(&server), before, "they are served as they are");
    let refused = scene.create(&server, "late").expect(403);
    assert!(
        refused["message"].as_str().unwrap().contains("create not allowed"),
        "{refused}"
    );
    assert_eq!(counted(), count, "what is kept counts");
    let view = until("the provider has a view", || {
        let slice = "/apis/apis.kcp.io/v1alpha1/apiexportendpointslices/widgets";
        let slice = admin.in_workspace(&scene.provider).get(slice).expect(200);
        slice["status"]["endpoints"][0]["url"].as_str().map(str::to_owned)
    });
    let view = server.client_at(&view, Who::KcpAdmin);
    let seen = view.get(&format!("/clusters/{}{WIDGETS}", scene.cluster)).expect(200);
    assert_eq!(seen["items"].as_array().map(Vec::len), Some(2));
}

/// The tenant's own setting counts where the provider has none, and the longer one of both.
#[test]
fn a_workspace_keeps_the_objects_of_its_bindings() {
    let server = shared();
    let scene = Scene::new(&server, Some(60));
    let alice = server
        .client(Who::Token("alice-token".to_owned()))
        .in_workspace(&scene.tenant);
    let wrong = alice.merge(CLUSTER, &grace(Some("1h".to_owned()))).expect(403);
    let message = wrong["message"].as_str().unwrap();
    for part in ["metadata.annotations[apis.insula.io/unbind-grace-seconds]", "31622400"] {
        assert!(message.contains(part), "{message}");
    }
    alice.merge(CLUSTER, &grace(Some("7200".to_owned()))).expect(200);
    let marked = alice.delete(BINDING).expect(200);
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 7200);
    // A second deletion does not begin the time anew, and may shorten it.
    let again = alice.delete(BINDING).expect(200);
    assert_eq!(
        again["metadata"]["deletionTimestamp"],
        marked["metadata"]["deletionTimestamp"]
    );
    let longer = alice.delete(&format!("{BINDING}?gracePeriodSeconds=9000")).expect(200);
    assert_eq!(longer["metadata"]["deletionGracePeriodSeconds"], 7200);
    let shorter = alice.delete(&format!("{BINDING}?gracePeriodSeconds=1")).expect(200);
    // Counted from the first deletion, so that it may be over.
    let left = shorter["metadata"]["deletionGracePeriodSeconds"].as_u64();
    assert!(left.is_some_and(|left| left <= 1), "{shorter}");
    scene.until_gone(&server);
}

/// The period ends after its time, also if the server was down then.
#[test]
fn the_end_of_the_period_removes_the_objects() {
    let mut server = Server::with(Setup::default());
    let short = Scene::new(&server, Some(2));
    short.at_tenant(&server).delete(BINDING).expect(200);
    short.until_gone(&server);

    let scene = Scene::new(&server, Some(5));
    let before = scene.objects(&server);
    let marked = scene.at_tenant(&server).delete(BINDING).expect(200);
    server.kill9();
    let server = server.restart();
    let shown = scene.at_tenant(&server).get(BINDING).expect(200);
    assert_eq!(
        shown["metadata"]["deletionTimestamp"],
        marked["metadata"]["deletionTimestamp"]
    );
    assert_eq!(scene.objects(&server), before);
    scene.until_gone(&server);
}

/// A workspace goes without waiting for its bindings.
#[test]
fn a_workspace_does_not_wait_for_its_bindings() {
    let server = shared();
    let scene = Scene::new(&server, Some(3600));
    scene.at_tenant(&server).delete(BINDING).expect(200);
    let name = scene.tenant.rsplit(':').next().unwrap();
    let object = format!("{WORKSPACES}/{name}");
    server.admin().delete(&object).expect(200);
    until("the workspace is gone", || {
        (server.admin().get(&object).code == 404).then_some(())
    });
}

/// Another API of the name has to wait, and says for what. A binding to the same export takes the
/// objects over.
#[test]
fn names_stay_with_the_deleted_binding() {
    let server = shared();
    let scene = Scene::new(&server, Some(3600));
    let before = scene.objects(&server);
    let tenant = scene.at_tenant(&server);
    tenant.delete(BINDING).expect(200);
    let (rival, _) = workspace(&server.admin(), "rival");
    publish_widgets(&server.admin().in_workspace(&rival));
    let name = unique("rival");
    scene.bind(&server, &name, &rival);
    let message = until("the rival waits", || {
        let shown = tenant.get(&format!("{BINDINGS}/{name}")).expect(200);
        let conditions = shown["status"]["conditions"].as_array()?.clone();
        let conflict = conditions.iter().find(|it| it["reason"] == "NamingConflicts")?;
        conflict["message"].as_str().map(str::to_owned)
    });
    for part in [
        "APIBinding \"widgets\" is deleted and keeps its objects and names until",
        "insula unbind widgets --undelete",
        "insula unbind widgets --now",
    ] {
        assert!(message.contains(part), "{part} in {message}");
    }
    tenant.delete(&format!("{BINDINGS}/{name}")).expect(200);
    scene.bind(&server, "again", &scene.provider);
    until("the new binding took over", || {
        (tenant.get(BINDING).code == 404).then_some(())
    });
    assert_eq!(scene.objects(&server), before);
    scene.create(&server, "late").expect(201);
}
