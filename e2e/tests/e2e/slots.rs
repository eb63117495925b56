//! An etcd that an earlier program has filled: its objects are moved to slots while servers use it.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use insula_e2e::{Client, Etcd, Server, Setup, from_base64, ready_workspace, until};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const EARLIER: &str = "/insula/objects/";
const SLOTS: &str = "/insula/slots/";
const MARK: &str = "/insula/objects/!a-later-version-of-insula-uses-this-store";
/// Seconds after which a server without a new record counts as gone.
const GONE: u64 = 60;
const MAPS_BEFORE: usize = 300;
const WRITERS: usize = 4;

fn on(etcd: &Etcd) -> Server {
    Server::with(Setup {
        flags: vec!["--store".into(), etcd.store()],
        ..Setup::default()
    })
}

fn map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}})
}

/// Starts an etcd with the objects of another one as a program of format 3 has them. One of its
/// servers was seen some seconds before it counts as gone.
fn earlier_layout(filled: &Etcd, seconds: u64) -> Option<Etcd> {
    let etcd = Etcd::start()?;
    let pair = |kv: &Value| {
        let [key, value] = ["key", "value"].map(|field| from_base64(kv[field].as_str().unwrap()));
        // The mark is no object.
        let encoded = key.strip_prefix(SLOTS.as_bytes())?.get("0000/".len()..)?;
        // It has no values that tell when their objects were created.
        let stored = if value[0] == 0xc0 { &value[9..] } else { &value };
        Some(([EARLIER.as_bytes(), encoded].concat(), stored.to_vec()))
    };
    let mut pairs: Vec<_> = filled.objects("").iter().filter_map(pair).collect();
    let seen = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + seconds - GONE;
    let record = json!({"apiVersion": "internal.insula.io/v1", "kind": "Server", "metadata": {"name": "old"},
        "spec": {"name": "old", "url": "https://10.0.0.1:6443", "version": "0.1.0", "started": 1, "format": 3},
        "seen": seen});
    let record = insula_api::Object::new(&record, None).unwrap().to_stored();
    pairs.push((
        format!("{EARLIER}internal.insula.io/servers//root//old").into_bytes(),
        record,
    ));
    etcd.put_all(&pairs);
    etcd.put_all(&[(MARK.into(), b"3".to_vec())]);
    Some(etcd)
}

/// Writes its own objects again and again until `stop`: makes, reads, replaces and deletes them.
/// Returns the values that are to be there.
fn write(client: &Client, writer: usize, stop: &AtomicBool) -> Vec<(String, String)> {
    let name = |n: usize| format!("w{writer}-{n}");
    let mut n = 0;
    while !stop.load(Ordering::SeqCst) {
        client.post(MAPS, &map(&name(n), "made")).expect(201);
        // One of before, whose place may change at any time.
        let before = format!("{MAPS}/before-{}", (n * WRITERS + writer) % MAPS_BEFORE);
        let patched = client.merge(&before, &json!({"data": {"patched": "yes"}}));
        patched.expect(200);
        if n >= 2 {
            let path = format!("{MAPS}/{}", name(n - 2));
            assert_eq!(client.get(&path).expect(200)["data"]["value"], "made");
            client.put(&path, &map(&name(n - 2), "replaced")).expect(200);
        }
        if n % 3 == 2 {
            client.delete(&format!("{MAPS}/{}", name(n - 2))).expect(200);
        }
        n += 1;
    }
    let there = (0..n).filter(|at| at % 3 != 0 || at + 2 >= n);
    let value = |at: usize| if at + 2 < n { "replaced" } else { "made" };
    there.map(|at| (name(at), value(at).to_owned())).collect()
}

#[test]
fn a_filled_etcd_is_moved_under_load() {
    let Some(filled) = Etcd::start() else { return };
    let first = on(&filled);
    let (path, _) = ready_workspace(&first.admin(), "root", "tenant", json!({}));
    let tenant = first.admin().in_workspace(&path);
    for n in 0..MAPS_BEFORE {
        tenant.post(MAPS, &map(&format!("before-{n}"), "kept")).expect(201);
    }
    let made = |client: &Client| client.get(&format!("{MAPS}/before-7")).expect(200)["metadata"].clone();
    let before = made(&tenant);
    let etcd = earlier_layout(&filled, 8).unwrap();
    first.share_keys(&etcd.store());
    let servers = [on(&etcd), on(&etcd)];
    assert_eq!(etcd.count(SLOTS), 0, "a server of the earlier program may be there");
    let stop = AtomicBool::new(false);
    let wanted = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let client = servers[writer % 2].admin().in_workspace(&path);
                let stop = &stop;
                scope.spawn(move || write(&client, writer, stop))
            })
            .collect();
        until("all objects are in their slots", || {
            (etcd.count(EARLIER) == 1 && etcd.count(SLOTS) > MAPS_BEFORE).then_some(())
        });
        thread::sleep(Duration::from_millis(500));
        stop.store(true, Ordering::SeqCst);
        let written = writers.into_iter().flat_map(|writer| writer.join().unwrap());
        written.collect::<Vec<_>>()
    });
    let third = on(&etcd);
    for server in servers.iter().chain([&third]) {
        let tenant = server.admin().in_workspace(&path);
        let list = tenant.get(MAPS).expect(200);
        let items = list["items"].as_array().unwrap();
        let found = |name: &str| items.iter().find(|item| item["metadata"]["name"] == name);
        for (name, value) in &wanted {
            assert_eq!(
                found(name).map(|map| &map["data"]["value"]),
                Some(&json!(value)),
                "{name}"
            );
        }
        // The namespace's own one beside them.
        assert_eq!(items.len(), wanted.len() + MAPS_BEFORE + 1);
        assert!((0..MAPS_BEFORE).all(|n| found(&format!("before-{n}")).unwrap()["data"]["value"] == "kept"));
        let now = made(&tenant);
        assert_eq!(
            (&now["uid"], &now["creationTimestamp"]),
            (&before["uid"], &before["creationTimestamp"])
        );
    }
    assert_eq!(etcd.count(EARLIER), 1, "the mark alone");
}
