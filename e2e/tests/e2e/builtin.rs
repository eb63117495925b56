//! Kubernetes' own kinds, which every workspace has.

use insula_e2e::{Client, shared, workspace};
use serde_json::json;
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

// One test for each script of `e2e/scripts/builtin`.
include!(concat!(env!("OUT_DIR"), "/builtin.rs"));

/// Concurrent creations never exceed a quota. Creations above the quota get a 403, and other
/// requests do not wait.
#[test]
fn a_quota_is_never_exceeded() {
    const PLACES: usize = 10;
    const WRITERS: usize = 12;
    let server = shared();
    let admin = server.admin();
    let path = workspace(&admin, "quota").0;
    let client = admin.in_workspace(&path);
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"},
        "spec": {"hard": {"count/secrets": PLACES.to_string()}}});
    let mut since = String::new();
    let (made, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (client, made, refused) = (client.clone(), &made, &refused);
            scope.spawn(move || {
                for i in 0..4 {
                    let name = format!("s-{writer}-{i}");
                    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
                    match client.post("/api/v1/namespaces/default/secrets", &secret).code {
                        201 => made.fetch_add(1, Ordering::Relaxed),
                        403 => refused.fetch_add(1, Ordering::Relaxed),
                        other => panic!("{name}: {other}"),
                    };
                }
            });
        }
        // The quota is created during the writes. Writes before it may exceed it; no later write
        // may.
        let made = client
            .post("/api/v1/namespaces/default/resourcequotas", &quota)
            .expect(201);
        since = made["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    });
    let count_of = |query: &str| {
        let secrets = client
            .get(&format!("/api/v1/namespaces/default/secrets{query}"))
            .expect(200);
        secrets["items"].as_array().map_or(0, Vec::len)
    };
    let count = count_of("");
    let before = count_of(&format!("?resourceVersionMatch=Exact&resourceVersion={since}"));
    assert!(
        count <= PLACES.max(before),
        "{count}, {before} of them before the quota"
    );
    assert_eq!(count, made.load(Ordering::Relaxed));
    assert_eq!(count + refused.load(Ordering::Relaxed), WRITERS * 4);
    let status = client.get("/api/v1/namespaces/default/resourcequotas/few").expect(200)["status"].clone();
    assert_eq!(status["used"]["count/secrets"], json!(count.to_string()));
    assert!(refused.load(Ordering::Relaxed) > 0, "{count} were made");
}

/// The same for a workspace with a limit on all its objects. kcp scans once a minute, and admits
/// any number of objects in between.
#[test]
fn a_workspaces_object_limit_is_never_exceeded() {
    const WRITERS: usize = 12;
    let server = shared();
    let admin = server.admin();
    let path = workspace(&admin, "full").0;
    let client = admin.in_workspace(&path);
    let limit = |objects: usize| {
        let own = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster";
        let annotations = json!({"core.kcp.io/max-total-objects": objects.to_string()});
        client
            .merge(own, &json!({"metadata": {"annotations": annotations}}))
            .expect(200);
    };
    let secret = |name: &str| {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
        client.post("/api/v1/namespaces/default/secrets", &secret)
    };
    // A refusal reports the current number of objects.
    limit(1);
    let told = secret("first").expect(403)["message"].as_str().unwrap().to_owned();
    let there: usize = told
        .split_once("limit (")
        .unwrap()
        .1
        .split_once('/')
        .unwrap()
        .0
        .parse()
        .unwrap();
    limit(there + 10);
    let codes: Vec<u16> = thread::scope(|scope| {
        let write = |writer: usize| {
            (0..4)
                .map(move |i| secret(&format!("s-{writer}-{i}")).code)
                .collect::<Vec<u16>>()
        };
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    let (made, refused): (Vec<u16>, Vec<u16>) = codes.iter().partition(|code| **code == 201);
    assert_eq!((made.len(), refused), (10, vec![403; WRITERS * 4 - 10]));
    // A deletion frees room.
    let list = client.get("/api/v1/namespaces/default/secrets").expect(200);
    let name = list["items"][0]["metadata"]["name"].as_str().unwrap();
    client
        .delete(&format!("/api/v1/namespaces/default/secrets/{name}"))
        .expect(200);
    secret("next").expect(201);
    secret("last").expect(403);
    // The workspace can be deleted as any other.
    let (parent, name) = path.rsplit_once(':').unwrap();
    let workspaces = "/apis/tenancy.kcp.io/v1alpha1/workspaces";
    admin
        .in_workspace(parent)
        .delete(&format!("{workspaces}/{name}"))
        .expect(200);
    insula_e2e::until("the workspace is gone", || {
        (admin.in_workspace(parent).get(&format!("{workspaces}/{name}")).code == 404).then_some(())
    });
}

/// A creation charges all quotas that apply in one transaction, so the number of quotas in a
/// namespace and in a workspace has a limit.
#[test]
fn resource_quotas_of_a_namespace_have_a_limit() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "quotas").0);
    let quota = |name: String, everywhere: bool| {
        let annotations = json!({"experimental.quota.kcp.io/cluster-scoped": everywhere.to_string()});
        let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"hard": {"count/secrets": "1000"}}});
        client.post("/api/v1/namespaces/default/resourcequotas", &quota)
    };
    for (everywhere, place, max) in [(false, "namespace", 64), (true, "workspace", 32)] {
        for i in 0..max {
            quota(format!("{place}-{i}"), everywhere).expect(201);
        }
        let told = quota("more".to_owned(), everywhere).expect(403);
        let words = format!("the {place} has {max} quotas that count in all of it, and may have no more");
        assert!(told["message"].as_str().unwrap().contains(&words), "{told}");
    }
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "counted"}});
    client.post("/api/v1/namespaces/default/secrets", &secret).expect(201);
}

/// Of several workspaces whose exports have one identity at the same moment, one gets it.
#[test]
fn an_identity_belongs_to_the_exports_of_one_workspace() {
    let server = shared();
    let admin = server.admin();
    let clients = ["a", "b", "c"].map(|name| admin.in_workspace(&workspace(&admin, name).0));
    let exports = "/apis/apis.kcp.io/v1alpha2/apiexports";
    for round in 0..5 {
        let secret = format!("identity-{round}");
        let names = ["one", "two"].map(|name| format!("{name}-{round}"));
        for (client, name) in clients
            .iter()
            .flat_map(|client| names.iter().map(move |name| (client, name)))
        {
            let identity = json!({"secretRef": {"namespace": "default", "name": secret}});
            let export = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": name},
                "spec": {"identity": identity}});
            client.post(exports, &export).expect(201);
        }
        // All the exports wait for the secret of their workspace, and all secrets have one key.
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret},
            "stringData": {"key": format!("{secret}-of-many")}});
        for client in &clients {
            client.post("/api/v1/namespaces/default/secrets", &object).expect(201);
        }
        let is_valid = |client: &Client, name: &str| {
            let export = client.get(&format!("{exports}/{name}")).expect(200);
            let conditions = export["status"]["conditions"].as_array()?;
            let condition = conditions.iter().find(|c| c["type"] == "IdentityValid")?;
            let told = condition["message"].as_str().unwrap_or_default();
            (condition["status"] == "True" || told.contains("of another workspace already"))
                .then_some(condition["status"] == "True")
        };
        let valid = insula_e2e::until("each was looked at", || {
            let found = clients.iter().map(|client| {
                let [one, two] = &names;
                let (one, two) = (is_valid(client, one)?, is_valid(client, two)?);
                (one == two).then_some(one)
            });
            found.collect::<Option<Vec<bool>>>()
        });
        assert_eq!(valid.iter().filter(|valid| **valid).count(), 1, "round {round}");
    }
}
