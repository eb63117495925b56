//! Shares of memory: what one tenant stores and replaces beside the others.

use insula_e2e::{
    Answer, Client, Etcd, Server, Setup, Who, etcd_programs, insula, until, workspace, workspace_owned_by,
};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WORKSPACES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaces";

/// Bytes of one large object.
const LARGE: usize = 900_000;

fn map(name: &str, bytes: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "x".repeat(bytes)}})
}

fn with(environment: &[(&str, &str)], flags: &[&str]) -> Server {
    Server::with(Setup {
        environment: environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        ..Setup::default()
    })
}

fn as_user(server: &Server, user: &str, place: &str) -> Client {
    server.client(Who::Token(format!("{user}-token"))).in_workspace(place)
}

/// Returns the events of a watch from a revision that ends after a second.
fn resumed(client: &Client, revision: &str) -> Answer {
    client.get(&format!("{MAPS}?watch=1&timeoutSeconds=1&resourceVersion={revision}"))
}

fn at_revision(client: &Client, revision: &str) -> Answer {
    client.get(&format!("{MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact"))
}

fn revision(object: &Value) -> String {
    object["metadata"]["resourceVersion"]
        .as_str()
        .expect("a revision")
        .to_owned()
}

/// A tenant that replaces more than the history holds, in several workspaces of its own, loses its
/// own history. Watches of others go on from before the flood, and lists at a revision, too.
#[test]
fn a_flood_of_changes_pushes_out_its_own_history() {
    let server = with(&[("INSULA_WATCHES_HISTORY_MEGABYTES", "16")], &[]);
    let (quiet, _) = workspace_owned_by(&server, "bob");
    let bob = as_user(&server, "bob", &quiet);
    let first = revision(&bob.post(MAPS, &map("mine", 1)).expect(201));
    let second = revision(&bob.put(&format!("{MAPS}/mine"), &map("mine", 400_000)).expect(200));
    let third = revision(&bob.put(&format!("{MAPS}/mine"), &map("mine", 2)).expect(200));
    let floods: Vec<Client> = (0..8)
        .map(|_| as_user(&server, "alice", &workspace_owned_by(&server, "alice").0))
        .collect();
    let starts: Vec<String> = floods
        .iter()
        .map(|alice| revision(&alice.post(MAPS, &map("big", LARGE)).expect(201)))
        .collect();
    // More than three times the history, and less than bob's part in each workspace.
    for round in 0..6 {
        for alice in &floods {
            alice
                .put(&format!("{MAPS}/big"), &map("big", LARGE + round))
                .expect(200);
        }
    }
    let events = resumed(&bob, &first);
    assert_eq!(events.code, 200, "{:.300}", events.text);
    for revision in [&second, &third] {
        assert!(
            events.text.contains(&format!("\"resourceVersion\":\"{revision}\"")),
            "{:.300}",
            events.text
        );
    }
    let then = at_revision(&bob, &second).expect(200);
    let items = then["items"].as_array().unwrap();
    let mine = items.iter().find(|map| map["metadata"]["name"] == "mine");
    assert_eq!(
        mine.and_then(|map| map["data"]["a"].as_str()).map(str::len),
        Some(400_000)
    );
    let answers = |list: &dyn Fn(&Client, &str) -> Answer| -> Vec<u16> {
        let each = floods.iter().zip(&starts);
        each.map(|(alice, start)| list(alice, start).code).collect()
    };
    assert!(
        answers(&|alice, start| at_revision(alice, start)).contains(&410),
        "no history was cut"
    );
    // The latest state, and what comes now, is there for everybody.
    for alice in &floods {
        let list = alice.get(MAPS).expect(200);
        assert!(
            list["items"]
                .as_array()
                .is_some_and(|items| items.iter().any(|map| map["metadata"]["name"] == "big"))
        );
        assert_eq!(
            resumed(alice, list["metadata"]["resourceVersion"].as_str().unwrap()).code,
            200
        );
    }
    // Who sees all workspaces lost a part of what there was to see.
    let everywhere = server.client(Who::ShardAdmin).get(&format!(
        "/clusters/*/api/v1/configmaps?watch=1&timeoutSeconds=1&resourceVersion={first}"
    ));
    assert!(
        everywhere.code == 410 || everywhere.text.contains("Expired"),
        "{:.300}",
        everywhere.text
    );
}

/// Creates objects until one is refused. Returns their number and the refusal.
fn fill(client: &Client, prefix: &str) -> (usize, Answer) {
    for n in 0..50 {
        let answer = client.post(MAPS, &map(&format!("{prefix}{n}"), LARGE));
        if answer.code != 201 {
            return (n, answer);
        }
    }
    panic!("there is no limit");
}

fn assert_refused(answer: &Answer, parts: &[&str]) {
    assert_eq!(
        (answer.code, &answer.body["reason"]),
        (403, &json!("Forbidden")),
        "{:.300}",
        answer.text
    );
    let message = answer.body["message"].as_str().unwrap_or_default();
    for part in parts {
        assert!(message.contains(part), "{message}");
    }
}

const LIMITS: [(&str, &str); 2] = [
    ("INSULA_WORKSPACES_STORAGE_BYTES", "3750000"),
    ("INSULA_WORKSPACES_STORAGE_BYTES_PER_OWNER", "6000000"),
];

#[test]
fn storage_has_shares() {
    let server = with(&LIMITS, &[]);
    let ((one, cluster), (two, _)) = (
        workspace_owned_by(&server, "alice"),
        workspace_owned_by(&server, "alice"),
    );
    let alice = as_user(&server, "alice", &one);
    let (count, refusal) = fill(&alice, "m");
    assert_eq!(count, 4);
    assert_refused(
        &refusal,
        &[
            &cluster,
            "has reached its storage limit",
            "/3750000 bytes",
            "this write adds 90",
        ],
    );
    // Of the write itself: an update may not grow, and may shrink; a dry run tells the same.
    let first = format!("{MAPS}/m0");
    alice
        .merge(&first, &json!({"metadata": {"labels": {"a": "b"}}}))
        .expect(200);
    assert_refused(
        &alice.merge(&first, &json!({"data": {"b": "y".repeat(140_000)}})),
        &["storage limit"],
    );
    assert_refused(
        &alice.post(&format!("{MAPS}?dryRun=All"), &map("dry", LARGE)),
        &["storage limit"],
    );
    alice.merge(&first, &json!({"data": {"a": "x"}})).expect(200);
    alice.post(MAPS, &map("again", LARGE)).expect(201);
    // All workspaces of the owner together.
    let other = as_user(&server, "alice", &two);
    let (count, refusal) = fill(&other, "m");
    assert_eq!(count, 2, "{:.300}", refusal.text);
    assert_refused(&refusal, &["owner \"alice\"", "/6000000 bytes"]);
    // Others have their own share, and the platform's workspaces count each for itself.
    let bob = as_user(&server, "bob", &workspace_owned_by(&server, "bob").0);
    let platform = server.client(Who::ShardAdmin);
    for client in [&bob, &platform.in_workspace(&workspace(&platform, "plain").0)] {
        for n in 0..4 {
            client.post(MAPS, &map(&format!("o{n}"), LARGE)).expect(201);
        }
    }
    // A restart counts again what is there.
    let server = server.restart();
    let (alice, other) = (as_user(&server, "alice", &one), as_user(&server, "alice", &two));
    assert_refused(&alice.post(MAPS, &map("late", LARGE)), &["storage limit"]);
    alice.delete(&format!("{MAPS}/again")).expect(200);
    other.post(MAPS, &map("late", LARGE)).expect(201);
    assert_refused(&other.post(MAPS, &map("later", LARGE)), &["owner \"alice\""]);
    let rows = server.client(Who::ShardAdmin).get("/metrics").text;
    let stored = rows
        .lines()
        .find_map(|row| row.strip_prefix("insula_owner_storage_bytes{owner=\"alice\"} "));
    let stored: usize = stored.expect("a series of alice").parse().unwrap();
    assert!((5_000_000..6_000_000).contains(&stored), "{stored}");
    assert!(rows.contains(&format!("insula_workspace_storage_bytes{{cluster=\"{cluster}\"}}")));
    let kubeconfig = server.kubeconfig();
    let flags = ["status", "-o", "json", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let status: Value = serde_json::from_slice(&insula(&flags).output().unwrap().stdout).unwrap();
    let owners = status["storage"]["owners"].as_array().unwrap();
    assert_eq!(
        (&owners[0]["name"], &owners[0]["bytes"]),
        (&json!("alice"), &json!(stored))
    );
    assert_eq!(status["storage"]["bytesPerOwner"], 6_000_000);
}

/// An owner whose share is used up cannot go on in a new workspace.
#[test]
fn an_owner_at_the_limit_creates_no_workspace() {
    let server = with(&[("INSULA_WORKSPACES_STORAGE_BYTES_PER_OWNER", "2000000")], &[]);
    let alice = as_user(&server, "alice", &workspace_owned_by(&server, "alice").0);
    fill(&alice, "m");
    let small = |n: usize| alice.post(MAPS, &map(&format!("s{n}"), 50_000));
    let refusal = (0..40)
        .map(small)
        .find(|answer| answer.code != 201)
        .expect("there is no limit");
    assert_refused(&refusal, &["owner \"alice\"", "/2000000 bytes"]);
    let child = json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "more"}});
    assert_refused(&alice.post(WORKSPACES, &child), &["\"alice\"", "/2000000 bytes"]);
    let bob = as_user(&server, "bob", &workspace_owned_by(&server, "bob").0);
    bob.post(WORKSPACES, &child).expect(201);
}

/// Two servers on one etcd count alike.
#[test]
fn storage_has_shares_on_etcd() {
    for program in etcd_programs() {
        let etcd = Etcd::with_quota(&program, 1, None);
        let flags = ["--store", &etcd.store()];
        let (one, two) = (with(&LIMITS, &flags), with(&LIMITS, &flags));
        let (place, _) = workspace_owned_by(&one, "alice");
        let (here, there) = (as_user(&one, "alice", &place), as_user(&two, "alice", &place));
        until("the other server has the workspace", || {
            (there.get(MAPS).code == 200).then_some(())
        });
        assert_eq!(fill(&here, "m").0, 4);
        until("the other server counts alike", || {
            let answer = there.post(MAPS, &map("late", LARGE));
            (answer.code == 403).then(|| assert_refused(&answer, &["storage limit", "/3750000 bytes"]))
        });
        here.delete(&format!("{MAPS}/m0")).expect(200);
        until("the space is free there", || {
            (there.post(MAPS, &map("late", LARGE)).code == 201).then_some(())
        });
        let one = one.restart();
        assert_refused(
            &as_user(&one, "alice", &place).post(MAPS, &map("more", LARGE)),
            &["storage limit"],
        );
    }
}

/// Sixteen merges of long lists at once: the writes of a tenant take turns, off the threads that
/// answer, so that another tenant waits for none of them.
#[test]
fn a_burst_of_large_patches_delays_no_other_tenant() {
    const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
    let server = Server::start();
    let (place, _) = workspace_owned_by(&server, "alice");
    let alice = as_user(&server, "alice", &place);
    let bob = as_user(&server, "bob", &workspace_owned_by(&server, "bob").0);
    let names: Value = (0..4_000).map(|n| json!({"name": format!("item-{n}")})).collect();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "many"}, "secrets": names});
    alice.post(ACCOUNTS, &account).expect(201);
    bob.post(MAPS, &map("mine", 1)).expect(201);
    let burst: Vec<_> = (0..16)
        .map(|n| {
            // Each over a connection of its own: one connection is served by one thread.
            let (alice, names) = (as_user(&server, "alice", &place), names.clone());
            std::thread::spawn(move || {
                let patch = json!({"metadata": {"labels": {"turn": n.to_string()}}, "secrets": names}).to_string();
                let kind = [("content-type", "application/strategic-merge-patch+json")];
                let answer = alice.try_send("PATCH", &format!("{ACCOUNTS}/many"), &kind, patch.into());
                answer.unwrap().expect(200);
            })
        })
        .collect();
    // Answered one after the other while the burst computes.
    for _ in 0..10 {
        bob.get(&format!("{MAPS}/mine")).expect(200);
    }
    let computing = burst.iter().filter(|patch| !patch.is_finished()).count();
    assert!(computing > 8, "{computing} of the burst were still computing");
    burst.into_iter().for_each(|patch| patch.join().unwrap());
}
