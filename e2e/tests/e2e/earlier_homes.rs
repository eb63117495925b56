//! Objects of the last program in which each version had a home of its own for what it shares with
//! others: a field that v2 and v3 have and the stored v1 lacks was two values.
//!
//! `e2e/fixtures/homes/before.backup` is the backup that this program took of an installation whose
//! tenant had written four gauges through three versions, without rules. In two of them the homes
//! of `unit` differ. On etcd that program stores the same keys and values.

use insula_e2e::{Server, Setup, until};
use serde_json::{Value, json};

use crate::earlier_names::{etcd_with, fixture, restore};

const BACKUP: &str = "homes/before.backup";

fn path(version: &str, name: &str) -> String {
    format!("/apis/example.io/{version}/gauges/{name}")
}

fn specs(server: &Server, name: &str) -> [Value; 3] {
    let tenant = server.admin().in_workspace("root:tenant");
    ["v1", "v2", "v3"].map(|version| tenant.get(&path(version, name)).expect(200)["spec"].clone())
}

/// Checks that each value has one home: that which was written last.
fn check(server: &Server) {
    let tenant = server.admin().in_workspace("root:tenant");
    until("gauges are served", || {
        (tenant.get("/apis/example.io/v3/gauges").code == 200).then_some(())
    });
    let wanted = [
        ("plain", json!({"url": "a"}), json!({"unit": "bar"}), json!({})),
        (
            "both",
            json!({"url": "b"}),
            json!({"unit": "psi"}),
            json!({"zone": "east"}),
        ),
        ("late3", json!({"url": "c"}), json!({"unit": "new"}), json!({})),
        (
            "late2",
            json!({"url": "d"}),
            json!({"unit": "new"}),
            json!({"zone": "west"}),
        ),
    ];
    for (name, v1, more, most) in wanted {
        let with = |base: &Value, more: &Value| {
            let mut all = base.as_object().unwrap().clone();
            all.extend(more.as_object().unwrap().clone());
            Value::Object(all)
        };
        let v2 = with(&v1, &more);
        let v3 = with(&v2, &most);
        assert_eq!(specs(server, name), [v1, v2, v3], "{name}");
    }
    // A write through one version reaches the other, and nothing else changes.
    let change = json!({"spec": {"unit": "mine"}});
    tenant.merge(&path("v2", "late2"), &change).expect(200);
    let [v1, v2, v3] = specs(server, "late2");
    assert_eq!(v1, json!({"url": "d"}));
    assert_eq!(v2, json!({"url": "d", "unit": "mine"}));
    assert_eq!(v3, json!({"url": "d", "unit": "mine", "zone": "west"}));
    // An event names the value that gave way, and comes once.
    let events = tenant.get("/api/v1/namespaces/default/events").expect(200);
    let of_homes: Vec<&Value> = events["items"].as_array().unwrap().iter().collect();
    let told = |event: &&Value| event["involvedObject"]["name"] == "late2" && event["reason"] == "ValueReplaced";
    let told: Vec<&Value> = of_homes.into_iter().filter(told).collect();
    assert_eq!(told.len(), 1, "{events}");
    let message = told[0]["message"].as_str().unwrap();
    assert!(message.ends_with("in place of .spec.unit of v3"), "{message}");
    // What was read is written back as it is.
    let object = tenant.get(&path("v3", "both")).expect(200);
    let again = tenant.put(&path("v3", "both"), &object).expect(200);
    assert_eq!(
        again["metadata"]["resourceVersion"],
        object["metadata"]["resourceVersion"]
    );
    tenant
        .merge(&path("v3", "late2"), &json!({"spec": {"unit": "new"}}))
        .expect(200);
}

#[test]
fn homes_in_an_embedded_store_are_joined() {
    let server = Server::with_data(Setup::default(), |data| restore(&fixture(BACKUP), data));
    check(&server);
    check(&server.restart());
}

#[test]
fn homes_in_etcd_are_joined() {
    let Some(etcd) = etcd_with(&fixture(BACKUP)) else {
        return;
    };
    let server = Server::with(Setup {
        flags: vec!["--store".to_owned(), etcd.store()],
        ..Setup::default()
    });
    check(&server);
}
