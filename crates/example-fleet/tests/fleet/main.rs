//! The example as its users run it: the program, kubectl and plain HTTP, stand-alone, on etcd, and
//! through aggregation.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod aggregated;
mod delegation;
mod wardle;

use insula_e2e::{Client, Etcd, Kubectl, Server, Setup, until, workspace};
use insula_example_fleet::Ship;
use serde_json::{Value, json};

const SHIPS: &str = "/apis/fleet.example.com/v1/namespaces/default/ships";
const OLD: &str = "/apis/fleet.example.com/v1alpha1/namespaces/default/ships";

insula_sdk::roundtrip!(ships_lose_nothing_between_versions: Ship);

fn start(flags: &[&str]) -> Server {
    start_with(flags, &[])
}

fn start_with(flags: &[&str], environment: &[(&str, &str)]) -> Server {
    let environment = environment
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Server::with(Setup {
        program: Some(env!("CARGO_BIN_EXE_example-fleet").into()),
        flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        environment: environment.collect(),
        ..Setup::default()
    })
}

fn ship(version: &str, name: &str, spec: Value) -> Value {
    let api_version = format!("fleet.example.com/{version}");
    json!({"apiVersion": api_version, "kind": "Ship", "metadata": {"name": name}, "spec": spec})
}

#[test]
fn the_fleet_sails_alone() {
    let server = start(&[]);
    sail(&server);
    let Some(kubectl) = Kubectl::for_server(&server) else {
        return;
    };
    let (path, _) = workspace(&server.admin(), "south");
    let run = |arguments: &[&str], stdin: &str| {
        let ran = kubectl.run(&path, arguments, stdin);
        assert_eq!(ran.code, 0, "{}", ran.text);
        ran.text
    };
    let sent = ship("v1", "fram", json!({"flag": "NO", "speed": {"knots": 7}})).to_string();
    run(&["apply", "--server-side", "-f", "-"], &sent);
    let table = run(&["get", "ships"], "");
    assert!(
        table.contains("FLAG") && table.contains("NO") && table.contains('7'),
        "{table}"
    );
    assert!(run(&["explain", "ship.spec.crew"], "").contains("alphabetical order"));
}

#[test]
fn the_fleet_sails_on_etcd() {
    let Some(etcd) = Etcd::start() else { return };
    sail(&start(&["--store", &etcd.store()]));
}

/// Two servers share the ships: each serves, converts and controls those that the other one writes.
#[test]
fn two_fleets_share_an_etcd() {
    let Some(etcd) = Etcd::start() else { return };
    let store = etcd.store();
    let [one, two] = [(), ()].map(|()| start(&["--store", &store]));
    let [one, two] = [one.admin(), two.admin()].map(|admin| admin.in_workspace("root"));
    one.post(SHIPS, &ship("v1", "fram", json!({"flag": "NO", "speed": {"knots": 7}})))
        .expect(201);
    let path = format!("{OLD}/fram");
    until("the other server shows the ship", || {
        (two.get(&path).code == 200).then_some(())
    });
    assert_eq!(two.get(&path).expect(200)["spec"]["knots"], 7);
    two.merge(&path, &json!({"spec": {"crew": ["b", "a"]}})).expect(200);
    let path = format!("{SHIPS}/fram");
    until("the first server shows the change", || {
        (one.get(&path).expect(200)["spec"]["crew"] == json!(["a", "b"])).then_some(())
    });
    two.post(&format!("{path}/dock"), &json!({"port": "Tromso"}))
        .expect(201);
    let log_book = "/api/v1/namespaces/default/configmaps/fram-log-book";
    until("a controller of one of them keeps the log book", || {
        (one.get(log_book).body["data"]["port"] == "Tromso").then_some(())
    });
}

/// Uses every part of the example in two workspaces.
fn sail(server: &Server) {
    let admin = server.admin();
    let [north, other] = ["north", "other"].map(|name| admin.in_workspace(&workspace(&admin, name).0));
    strategy(&north);
    versions(&north);
    docks(&north);
    // Another tenant has the kind, and none of the ships.
    assert_eq!(other.get(SHIPS).expect(200)["items"], json!([]));
}

fn strategy(client: &Client) {
    let made = client.post(
        SHIPS,
        &ship(
            "v1",
            "fram",
            json!({"flag": "NO", "crew": ["nansen", "amundsen", "nansen"]}),
        ),
    );
    assert_eq!(made.expect(201)["spec"]["crew"], json!(["amundsen", "nansen"]));
    let refused = client
        .post(SHIPS, &ship("v1", "gjoa", json!({"flag": "Norway"})))
        .expect(422);
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("spec.flag: Invalid value"),
        "{refused}"
    );
    let refused = client
        .merge(&format!("{SHIPS}/fram"), &json!({"spec": {"flag": "SE"}}))
        .expect(422);
    assert!(
        refused["message"].as_str().unwrap().contains("a ship keeps its flag"),
        "{refused}"
    );
}

fn versions(client: &Client) {
    let cargo = json!({"spec": {"cargo": "dogs", "speed": {"knots": 7}}});
    client.merge(&format!("{SHIPS}/fram"), &cargo).expect(200);
    let mut old = client.get(&format!("{OLD}/fram")).expect(200);
    assert_eq!(
        old["spec"],
        json!({"flag": "NO", "knots": 7, "crew": ["amundsen", "nansen"]})
    );
    old["spec"]["knots"] = json!(6);
    // A controller of the fleet may have written in between.
    let written = until("the older version is written", || {
        let answer = client.put(&format!("{OLD}/fram"), &old);
        if answer.code == 409 {
            old = client.get(&format!("{OLD}/fram")).expect(200);
            old["spec"]["knots"] = json!(6);
            return None;
        }
        Some(answer)
    });
    written.expect(200);
    let spec = &client.get(&format!("{SHIPS}/fram")).expect(200)["spec"];
    assert_eq!((&spec["speed"]["knots"], &spec["cargo"]), (&json!(6), &json!("dogs")));
}

fn docks(client: &Client) {
    let (ship, dock) = (format!("{SHIPS}/fram"), format!("{SHIPS}/fram/dock"));
    let refused = client.post(&dock, &json!({})).expect(422);
    assert!(
        refused["message"].as_str().unwrap().contains("the port to dock in"),
        "{refused}"
    );
    let answer = client.post(&dock, &json!({"port": "Tromso"})).expect(201);
    assert_eq!(answer["message"], "docked in Tromso");
    let log_book = "/api/v1/namespaces/default/configmaps/fram-log-book";
    let entry = |key: &str, value: &str| {
        until("the log book has the port", || {
            (client.get(log_book).body["data"][key] == value).then_some(())
        });
    };
    entry("port", "Tromso");
    entry("crew", "amundsen, nansen");
    until("the status names the log book", || {
        let status = client.get(&ship).expect(200)["status"].clone();
        (status == json!({"port": "Tromso", "logBook": "fram-log-book"})).then_some(())
    });
    client.delete(&dock).expect(200);
    entry("port", "at sea");
    client.delete(&ship).expect(200);
    until("the log book is deleted with its ship", || {
        (client.get(log_book).code == 404).then_some(())
    });
}
