//! Kubernetes' own kinds that every workspace has.

use insula_e2e::{shared, workspace};
use serde_json::json;
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

stories!("builtin": apis, certificates, events, garbage, quota);

/// However many ask at once, a quota's places are given out once each; who finds none is told so, and nobody else waits.
#[test]
fn a_quota_is_never_exceeded() {
    const PLACES: usize = 10;
    const WRITERS: usize = 12;
    let server = shared();
    let admin = server.admin();
    let path = workspace(&admin, "crowd").0;
    let client = admin.at(&path);
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
        // It comes in the middle of it all: who was already at it may have more than it allows, and nobody after that.
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
