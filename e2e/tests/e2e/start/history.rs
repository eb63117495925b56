//! Watches, pages and exact lists from before a restart.

use insula_e2e::{Client, Etcd, Server, Setup, until, with_widgets, workspace};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WIDGETS: &str = "/apis/example.io/v1/namespaces/default/widgets";

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"of": name}})
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": name}})
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn version(object: &Value) -> String {
    text(&object["metadata"]["resourceVersion"])
}

fn server(store: &[&str], environment: &[(&str, &str)]) -> Server {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Server::with(Setup {
        flags: store.iter().map(|flag| (*flag).to_owned()).collect(),
        environment: environment.iter().map(owned).collect(),
        ..Setup::default()
    })
}

/// Returns type, name and resourceVersion of each event after a revision, up to one of the object
/// `end`, or the code of an error.
fn events(client: &Client, list: &str, from: &str, end: &str) -> Vec<(String, String, String)> {
    let mut seen = Vec::new();
    let watch = format!("{list}?watch=true&resourceVersion={from}&timeoutSeconds=60");
    client.watch(&watch, |event| {
        let object = &event["object"];
        if event["type"] == "ERROR" {
            seen.push(("ERROR".to_owned(), object["code"].to_string(), String::new()));
            return Some(());
        }
        let name = text(&object["metadata"]["name"]);
        seen.push((text(&event["type"]), name.clone(), version(object)));
        (name == end).then_some(())
    });
    seen
}

/// Writes after a watch has ended, kills the server, and goes on with the watch: first that of a
/// built-in kind, then that of a bound one.
fn goes_on_after_a_kill(mut server: Server) {
    for (list, object) in [(MAPS, config_map as fn(&str) -> Value), (WIDGETS, widget)] {
        let path = if list == MAPS {
            workspace(&server.admin(), "watched").0
        } else {
            with_widgets(&server)
        };
        let client = server.admin().in_workspace(&path);
        let first = client.post(list, &object("first")).expect(201);
        let begin = version(&first);
        let mut want = Vec::new();
        let second = client.post(list, &object("second")).expect(201);
        want.push(("ADDED".to_owned(), "second".to_owned(), version(&second)));
        assert_eq!(events(&client, list, &begin, "second"), want);
        let resumed = version(&second);
        // Nobody watches meanwhile.
        let labels = json!({"metadata": {"labels": {"a": "b"}}});
        let changed = client.merge(&format!("{list}/first"), &labels).expect(200);
        let third = client.post(list, &object("third")).expect(201);
        client.delete(&format!("{list}/second")).expect(200);
        let latest = client.get(list).expect(200);
        server.kill9();
        server = server.restart();
        let client = server.admin().in_workspace(&path);
        let last = client.post(list, &object("last")).expect(201);
        let missed = [
            ("MODIFIED", "first", version(&changed)),
            ("ADDED", "third", version(&third)),
            ("DELETED", "second", version(&latest)),
            ("ADDED", "last", version(&last)),
        ];
        let mut missed = missed.map(|(kind, name, version)| (kind.to_owned(), name.to_owned(), version));
        let found = events(&client, list, &resumed, "last");
        // The list may be of a later revision than the deletion.
        missed[2].2 = found.get(2).map_or(String::new(), |deleted| deleted.2.clone());
        assert_eq!(found, missed, "{list}");
        let exact = format!("{list}?resourceVersion={resumed}&resourceVersionMatch=Exact");
        let before = client.get(&exact).expect(200);
        let names: Vec<&Value> = before["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| &item["metadata"]["name"])
            .collect();
        assert!(
            names.contains(&&json!("first")) && names.contains(&&json!("second")) && !names.contains(&&json!("third"))
        );
    }
}

#[test]
fn a_watch_goes_on_after_a_kill() {
    goes_on_after_a_kill(Server::start());
}

#[test]
fn a_watch_goes_on_after_a_kill_on_etcd() {
    let Some(etcd) = Etcd::start() else { return };
    goes_on_after_a_kill(server(&["--store", &etcd.store()], &[]));
}

/// Compaction holds across restarts: a watch from before it lists again.
fn compacted_is_gone(store: &[&str]) {
    let mut server = server(store, &[("INSULA_WATCHES_HISTORY_SECONDS", "1")]);
    let (path, _) = workspace(&server.admin(), "compacted");
    let client = server.admin().in_workspace(&path);
    let begin = version(&client.post(MAPS, &config_map("first")).expect(201));
    until("the history is compacted", || {
        client
            .merge(&format!("{MAPS}/first"), &json!({"data": {"a": "b"}}))
            .expect(200);
        let exact = format!("{MAPS}?resourceVersion={begin}&resourceVersionMatch=Exact");
        (client.get(&exact).code == 410).then_some(())
    });
    server.kill9();
    let server = server.restart();
    let client = server.admin().in_workspace(&path);
    client.post(MAPS, &config_map("last")).expect(201);
    let gone = [("ERROR".to_owned(), "410".to_owned(), String::new())];
    assert_eq!(events(&client, MAPS, &begin, "last"), gone);
}

#[test]
fn a_compacted_watch_is_gone_after_a_restart() {
    compacted_is_gone(&[]);
}

#[test]
fn a_compacted_watch_is_gone_after_a_restart_on_etcd() {
    let Some(etcd) = Etcd::start() else { return };
    compacted_is_gone(&["--store", &etcd.store()]);
}

/// Pages that began before a restart go on as they were. Without the history they continue from
/// the present, with the token in the refusal, and lists at revisions of that time get a 410.
#[test]
fn continue_tokens_outlive_a_restart() {
    let mut server = Server::start();
    let admin = server.admin().in_workspace("root");
    for name in ["a", "b", "c", "d", "e"] {
        admin.post(MAPS, &config_map(&format!("page-{name}"))).expect(201);
    }
    let whole = admin.get(MAPS).expect(200);
    let page = admin.get(&format!("{MAPS}?limit=3")).expect(200);
    let (token, begin) = (text(&page["metadata"]["continue"]), version(&page));
    let items = |list: &Value| list["items"].as_array().unwrap().clone();
    admin.post(MAPS, &config_map("written-meanwhile")).expect(201);
    server.kill9();
    server = server.restart();
    let next = format!("{MAPS}?limit=500&continue={token}");
    let exact = format!("{MAPS}?resourceVersion={begin}&resourceVersionMatch=Exact");
    let admin = server.admin().in_workspace("root");
    let rest = admin.get(&next).expect(200);
    assert_eq!([items(&page), items(&rest)].concat(), items(&whole));
    assert_eq!(items(&admin.get(&exact).expect(200)), items(&whole));
    let server = server.restart_after(|data| std::fs::remove_file(data.join("store/history")).unwrap());
    let admin = server.admin().in_workspace("root");
    let late = admin.get(&next).expect(410);
    assert_eq!(late["reason"], "Expired");
    assert!(text(&late["message"]).contains("use the continue token in this response"));
    let token = text(&late["metadata"]["continue"]);
    let rest = admin.get(&format!("{MAPS}?limit=500&continue={token}")).expect(200);
    let last = items(&page).pop().unwrap()["metadata"]["name"].clone();
    let now = items(&admin.get(MAPS).expect(200)).into_iter();
    let name = |item: &Value| text(&item["metadata"]["name"]);
    let want: Vec<Value> = now.filter(|item| name(item) > text(&last)).collect();
    assert_eq!(items(&rest), want);
    let message = &admin.get(&exact).expect(410)["message"];
    assert_eq!(message, "The resourceVersion for the provided list is too old.");
}
