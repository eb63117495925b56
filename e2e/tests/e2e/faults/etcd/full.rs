//! A server on an etcd whose space is used up.

use insula_e2e::{Client, Etcd, Server, etcd_programs, until, workspace};
use serde_json::{Value, json};

use super::MAPS;

/// Space of etcd: what the server makes at its start, and some large objects.
const QUOTA_BYTES: u64 = 24 << 20;

fn large(n: usize) -> Value {
    let data = json!({"a": "x".repeat(700_000)});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{n}")}, "data": data})
}

/// Asserts that a full etcd is the reason of a refusal.
fn assert_full(answer: &insula_e2e::Answer) {
    assert_eq!(answer.code, 507, "{}", answer.text);
    for part in ["etcd is full, and only deletions are taken", "etcdctl alarm disarm"] {
        assert!(answer.text.contains(part), "{}", answer.text);
    }
}

/// Deletes objects and sees that they are gone, while other writes are refused.
fn delete(client: &Client, numbers: std::ops::Range<usize>) {
    for n in numbers {
        let path = format!("{MAPS}/m{n}");
        assert_full(&client.merge(&path, &json!({"data": {"b": "c"}})));
        client.delete(&path).expect(200);
        client.get(&path).expect(404);
    }
    assert_full(&client.post(MAPS, &large(1_000)));
}

/// Every transaction put the number of the server's transaction, deletions too: a full etcd refused
/// them all, so that nothing could free its space. A server that starts has no session there, and
/// can begin none.
#[test]
fn a_full_etcd_takes_deletions() {
    for program in etcd_programs() {
        let etcd = Etcd::with_quota(&program, 1, Some(QUOTA_BYTES));
        let mut server = Server::with_flags(&["--store", &etcd.store()]);
        let (place, _) = workspace(&server.admin(), "full");
        let mut client = server.admin().in_workspace(&place);
        let mut count = 0;
        let refused = loop {
            let answer = client.post(MAPS, &large(count));
            if answer.code != 201 {
                break answer;
            }
            count += 1;
            assert!(count < 100, "etcd has no quota");
        };
        assert_full(&refused);
        assert!(count >= 8, "{count}");
        delete(&client, 0..2);
        // Killed: its session stays.
        server = server.restart();
        client = server.admin().in_workspace(&place);
        delete(&client, 2..4);
        // Ended: it has deleted its session.
        server.signal("-TERM");
        server = server.ended().start().unwrap_or_else(|end| panic!("{end}"));
        client = server.admin().in_workspace(&place);
        delete(&client, 4..6);
        let left = client.get(MAPS).expect(200);
        let names: Vec<&Value> = left["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|map| &map["metadata"]["name"])
            .collect();
        let kept = names
            .iter()
            .filter(|name| name.as_str().is_some_and(|name| name.starts_with('m')))
            .count();
        assert_eq!(kept, count - 6, "{names:?}");
        etcd.free_space();
        until("writes are taken again", || {
            (client.post(MAPS, &large(2_000)).code == 201).then_some(())
        });
        client.delete(&format!("{MAPS}/m6")).expect(200);
    }
}
