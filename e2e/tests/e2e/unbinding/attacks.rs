//! Tenants that try to get more, or less, than the grace period of a deleted binding gives.

use insula_e2e::{Client, Server, Who, shared, until};
use serde_json::{Value, json};

use super::{BINDING, CLUSTER, EXPORT, Scene, WIDGETS, grace};

/// Deletions that are taken back one after another.
const FLIPS: usize = 40;

fn user(server: &Server, name: &str) -> Client {
    server.client(Who::Token(format!("{name}-token")))
}

/// Returns the time and the seconds of a deletion.
fn deletion(binding: &Value) -> (Value, Value) {
    let metadata = &binding["metadata"];
    (
        metadata["deletionTimestamp"].clone(),
        metadata["deletionGracePeriodSeconds"].clone(),
    )
}

#[test]
fn a_period_that_is_no_number_of_seconds_is_refused() {
    let server = shared();
    let scene = Scene::new(&server, None);
    let alice = user(&server, "alice").in_workspace(&scene.tenant);
    let provider = server.admin().in_workspace(&scene.provider);
    let wrong = [
        "-1",
        "+5",
        "",
        " 5",
        "1e9",
        "0x10",
        "\u{663}",
        "5\n",
        "31622401",
        "18446744073709551616",
    ];
    for text in wrong {
        let value = grace(Some(text.to_owned()));
        let codes = [alice.merge(CLUSTER, &value).code, provider.merge(EXPORT, &value).code];
        assert_eq!(codes, [403, 403], "{text:?}");
    }
    let number = json!({"metadata": {"annotations": {"apis.insula.io/unbind-grace-seconds": 5}}});
    assert_eq!(alice.merge(CLUSTER, &number).code, 422);
    // Others have no say in it, and a binding has none of its own.
    let bob = user(&server, "bob").in_workspace(&scene.tenant);
    bob.merge(CLUSTER, &grace(Some("5".to_owned()))).expect(403);
    let stranger = user(&server, "alice").in_workspace(&scene.provider);
    stranger.merge(EXPORT, &grace(Some("5".to_owned()))).expect(403);
    alice.merge(BINDING, &grace(Some("5".to_owned()))).expect(200);
    assert_eq!(deletion(&alice.delete(BINDING).expect(200)).1, json!(0));
    scene.until_gone(&server);
}

#[test]
fn a_period_is_changed_by_no_write_of_the_binding() {
    let server = shared();
    let scene = Scene::new(&server, Some(3600));
    let alice = user(&server, "alice").in_workspace(&scene.tenant);
    let marked = deletion(&alice.delete(BINDING).expect(200));
    for forged in [
        json!({"metadata": {"deletionTimestamp": "2099-01-01T00:00:00Z"}}),
        json!({"metadata": {"deletionTimestamp": "1999-01-01T00:00:00Z"}}),
        json!({"metadata": {"deletionGracePeriodSeconds": 0}}),
    ] {
        alice.merge(BINDING, &forged).expect(422);
    }
    for ignored in [
        json!({"metadata": {"deletionTimestamp": null, "deletionGracePeriodSeconds": null}}),
        json!({"metadata": {"finalizers": null}}),
        json!({"status": {"boundResources": []}}),
    ] {
        let shown = alice.merge(BINDING, &ignored).expect(200);
        assert_eq!(deletion(&shown), marked, "{ignored}");
        assert_eq!(shown["metadata"]["finalizers"].as_array().map(Vec::len), Some(1));
    }
    // A shorter setting is for later deletions.
    alice.merge(CLUSTER, &grace(Some("1".to_owned()))).expect(200);
    let provider = server.admin().in_workspace(&scene.provider);
    provider.merge(EXPORT, &grace(None)).expect(200);
    assert_eq!(deletion(&alice.delete(BINDING).expect(200)), marked);
    assert_eq!(scene.create(&server, "late").code, 403);
}

#[test]
fn flips_lose_no_object_and_a_deleted_export_none() {
    let server = shared();
    let scene = Scene::new(&server, Some(3600));
    let tenant = scene.at_tenant(&server);
    for _ in 0..FLIPS {
        tenant.delete(BINDING).expect(200);
        assert_eq!(super::races::undelete(&server, &scene.tenant), Ok(()));
    }
    let before = scene.objects(&server);
    tenant.delete(BINDING).expect(200);
    let provider = server.admin().in_workspace(&scene.provider);
    provider.delete(EXPORT).expect(200);
    until("the export is gone", || {
        (provider.get(EXPORT).code == 404).then_some(())
    });
    assert_eq!(scene.objects(&server), before);
    assert_eq!(super::races::undelete(&server, &scene.tenant), Ok(()));
    let shown = tenant.get(BINDING).expect(200);
    assert_eq!(shown["status"]["phase"], "Bound");
    assert_eq!(scene.objects(&server), before);
    let list = tenant.get(WIDGETS).expect(200);
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2));
}
