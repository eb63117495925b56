//! Conversion webhooks of definitions. The server calls them as Kubernetes does, where the operator
//! allows it, and accepts from their answers only changes that the contract allows.

mod admission;
mod failing;

use std::time::Duration;

use insula_e2e::{Client, Hook, Reply, Server, Setup, shared, until, workspace};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GROUP: &str = "hooks.example.io";

/// Starts a server that may call this machine, with a webhook timeout of two seconds.
fn server() -> Server {
    Server::with(Setup {
        flags: vec!["--webhook-allow".into(), "127.0.0.1".into()],
        environment: vec![("INSULA_WEBHOOKS_TIMEOUT_SECONDS".into(), "2".into())],
        ..Setup::default()
    })
}

/// Converts the objects of a review: v1 has `spec.text`, v2 `spec.texts[0]`.
fn converted(review: &Value) -> Value {
    let request = &review["request"];
    let to = request["desiredAPIVersion"].as_str().unwrap();
    let convert = |object: &Value| {
        let mut object = object.clone();
        let text = [&object["spec"]["text"], &object["spec"]["texts"][0]]
            .into_iter()
            .find(|text| text.is_string())
            .cloned();
        object["apiVersion"] = json!(to);
        object["spec"] = match (text, to.ends_with("/v1")) {
            (None, _) => json!({}),
            (Some(text), true) => json!({"text": text, "unknown": true}),
            (Some(text), false) => json!({"texts": [text]}),
        };
        object["metadata"]["annotations"]["seen-as"] = json!(to);
        object
    };
    let objects: Vec<Value> = request["objects"].as_array().unwrap().iter().map(convert).collect();
    json!({"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": {
        "uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects}})
}

/// Answers a review with the breach of the contract that the path names.
fn answer(path: &str, review: &Value) -> Reply {
    let mut good = converted(review);
    let response = &mut good["response"];
    match path {
        "/hang" => return Reply::Hang,
        "/huge" => return Reply::Bytes(64 << 20),
        "/elsewhere" => return Reply::Elsewhere(307, "/convert".into()),
        "/broken" => return Reply::Elsewhere(500, String::new()),
        "/rejected" => return Reply::Elsewhere(422, String::new()),
        "/busy" => return Reply::Elsewhere(503, String::new()),
        "/uid" => response["uid"] = json!("another"),
        "/version" => response["convertedObjects"][0]["apiVersion"] = json!("hooks.example.io/v3"),
        "/kind" => response["convertedObjects"][0]["kind"] = json!("Other"),
        "/fewer" => response["convertedObjects"] = json!([]),
        "/name" => response["convertedObjects"][0]["metadata"]["name"] = json!("other"),
        "/object-uid" => response["convertedObjects"][0]["metadata"]["uid"] = json!("other"),
        "/owner" => {
            response["convertedObjects"][0]["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "a"}]);
        }
        "/label" => response["convertedObjects"][0]["metadata"]["labels"] = json!({"a b": "c"}),
        "/says-no" => response["result"] = json!({"status": "Failure", "message": "not today"}),
        "/first" => {
            for object in response["convertedObjects"].as_array_mut().unwrap() {
                object["spec"]["first"] = object["spec"]["texts"][0].clone();
            }
        }
        "/silent" => response["result"] = json!({}),
        "/review" => good["kind"] = json!("Review"),
        _ => {}
    }
    Reply::Json(good)
}

/// Creates a definition whose objects the webhook `client` converts, and waits until it is served.
fn define(at: &Client, plural: &str, client: &Value) {
    let fields = |spec: Value| {
        json!({"openAPIV3Schema": {"type": "object",
        "properties": {"spec": {"type": "object", "properties": spec}}}})
    };
    let text = json!({"type": "string"});
    let v1 = fields(json!({"text": text, "size": {"type": "integer", "default": 3}}));
    let v2 = fields(json!({"texts": {"type": "array", "items": text}, "first": text}));
    let kind = plural[..1].to_uppercase() + &plural[1..];
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Cluster", "names": {"plural": plural, "kind": kind},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": v1},
                {"name": "v2", "served": true, "storage": false, "schema": v2,
                    "selectableFields": [{"jsonPath": ".spec.first"}]},
            ],
            "conversion": {"strategy": "Webhook",
                "webhook": {"clientConfig": client, "conversionReviewVersions": ["v7", "v1", "v1beta1"]}},
        },
    });
    at.post(DEFINITIONS, &definition).expect(201);
    until("it is served", || {
        (at.get(&format!("/apis/{GROUP}/v2/{plural}")).code == 200).then_some(())
    });
}

/// Points the definition's conversion at another webhook.
fn redirect(at: &Client, plural: &str, client: &Value) {
    let patch = json!({"spec": {"conversion": {"webhook": {"clientConfig": client}}}});
    at.merge(&format!("{DEFINITIONS}/{plural}.{GROUP}"), &patch).expect(200);
}

fn object(plural: &str, version: &str, name: &str, spec: Value) -> Value {
    let kind = plural[..1].to_uppercase() + &plural[1..];
    json!({"apiVersion": format!("{GROUP}/{version}"), "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn notes(version: &str, rest: &str) -> String {
    format!("/apis/{GROUP}/{version}/notes{rest}")
}

#[test]
fn definitions_convert_by_webhook() {
    let server = server();
    let hook = Hook::start(&server, answer);
    let (path, _) = workspace(&server.admin(), "hooks");
    let at = server.admin().in_workspace(&path);
    define(&at, "notes", &hook.client_config("/convert"));
    create_in_storage_version(&at, &hook);
    let made = create_in_other_version(&at, &hook);
    update_in_other_version(&at, made);
    apply_in_other_version(&at);
    list_in_other_version(&at, &hook);
    watch_other_version(&at);
    dry_run_and_delete(&at);
}

/// A certificate that `openssl req -x509` makes is both the webhook's and its `caBundle`.
#[test]
fn webhooks_may_have_self_signed_certificates() {
    let server = server();
    let hook = Hook::self_signed(answer);
    let (path, _) = workspace(&server.admin(), "hooks");
    let at = server.admin().in_workspace(&path);
    define(&at, "notes", &hook.client_config("/convert"));
    at.post(&notes("v1", ""), &object("notes", "v1", "a", json!({"text": "one"})))
        .expect(201);
    let shown = at.get(&notes("v2", "/a")).expect(200);
    assert_eq!(shown["spec"]["texts"], json!(["one"]));
}

/// Creates `a` in v1, without a review, and reads it in v2, with one.
fn create_in_storage_version(at: &Client, hook: &Hook) {
    // Written in v1, the storage version: the server calls no webhook.
    at.post(&notes("v1", ""), &object("notes", "v1", "a", json!({"text": "one"})))
        .expect(201);
    assert_eq!(hook.take("/convert"), [] as [Value; 0]);
    let seen = at.get(&notes("v2", "/a")).expect(200);
    assert_eq!(seen["spec"], json!({"texts": ["one"]}));
    assert_eq!(seen["metadata"]["annotations"]["seen-as"], json!("hooks.example.io/v2"));
    let reviews = hook.take("/convert");
    assert_eq!(reviews.len(), 1);
    assert_eq!(reviews[0]["apiVersion"], "apiextensions.k8s.io/v1");
    // A sent object is complete in its own version, and has no resourceVersion.
    let sent = &reviews[0]["request"]["objects"][0];
    assert_eq!(sent["spec"], json!({"text": "one", "size": 3}));
    assert_eq!(sent["metadata"].get("resourceVersion"), None);
}

/// Creates `b` in v2: converted to v1 for the store, which drops fields outside its schema, and
/// back for the answer. Returns it.
fn create_in_other_version(at: &Client, hook: &Hook) -> Value {
    let made = at
        .post(
            &notes("v2", ""),
            &object("notes", "v2", "b", json!({"texts": ["two", "gone"]})),
        )
        .expect(201);
    assert_eq!(made["spec"], json!({"texts": ["two"]}));
    let stored = at.get(&notes("v1", "/b")).expect(200);
    assert_eq!(stored["spec"], json!({"text": "two", "size": 3}));
    assert_eq!(stored["metadata"]["uid"], made["metadata"]["uid"]);
    let uids: Vec<Value> = hook
        .take("/convert")
        .iter()
        .map(|review| review["request"]["objects"][0]["metadata"]["uid"].clone())
        .collect();
    assert_eq!(uids, [made["metadata"]["uid"].clone(), made["metadata"]["uid"].clone()]);
    made
}

/// Changes `b` in v2, by PUT and by patch.
fn update_in_other_version(at: &Client, made: Value) {
    let mut changed = made;
    changed["spec"]["texts"] = json!(["three"]);
    at.put(&notes("v2", "/b"), &changed).expect(200);
    let patched = at
        .merge(&notes("v2", "/b"), &json!({"spec": {"texts": ["four"]}}))
        .expect(200);
    assert_eq!(patched["spec"], json!({"texts": ["four"]}));
    at.put(&notes("v2", "/b"), &changed).expect(409);
}

/// Applies `c` in v2 (server-side apply). An apply without a change writes nothing.
fn apply_in_other_version(at: &Client) {
    let config = object("notes", "v2", "c", json!({"texts": ["applied"]}));
    let apply = |config: &Value| {
        let kind = ("content-type", "application/apply-patch+yaml");
        let url = notes("v2", "/c?fieldManager=me&force=true");
        at.try_send("PATCH", &url, &[kind], config.to_string().into()).unwrap()
    };
    apply(&config).expect(201);
    let applied = apply(&object("notes", "v2", "c", json!({"texts": ["again"]}))).expect(200);
    assert_eq!(applied["spec"], json!({"texts": ["again"]}));
    let same = apply(&object("notes", "v2", "c", json!({"texts": ["again"]}))).expect(200);
    assert_eq!(
        same["metadata"]["resourceVersion"],
        applied["metadata"]["resourceVersion"]
    );
}

/// Lists in v2: a list is one review, a list of metadata none.
fn list_in_other_version(at: &Client, hook: &Hook) {
    hook.take("/convert");
    let list = at.get(&notes("v2", "")).expect(200);
    let texts: Vec<&Value> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["spec"]["texts"][0])
        .collect();
    assert_eq!(texts, ["one", "four", "again"]);
    let reviews = hook.take("/convert");
    assert_eq!(reviews.len(), 1);
    assert_eq!(reviews[0]["request"]["objects"].as_array().unwrap().len(), 3);
    let partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    at.get_with(&notes("v2", ""), &[("accept", partial)]).expect(200);
    assert_eq!(hook.take("/convert").len(), 0);
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    at.get_with(&notes("v2", ""), &[("accept", table)]).expect(200);
}

/// Watches in v2: the initial state and a later change arrive in that version.
fn watch_other_version(at: &Client) {
    let mut events = Vec::new();
    let watch = notes("v2", "?watch=true&allowWatchBookmarks=false");
    at.watch(&watch, |event| {
        if event["object"]["metadata"]["name"] == "c" {
            in_parallel(at, &notes("v1", "/a"), "new");
        }
        events.push(event["object"]["spec"]["texts"][0].clone());
        (events.last() == Some(&json!("new"))).then_some(())
    })
    .unwrap();
    assert_eq!(events, ["one", "four", "again", "new"]);
}

/// A dry run calls the webhook, too, and writes nothing.
fn dry_run_and_delete(at: &Client) {
    let dry = notes("v2", "?dryRun=All");
    at.post(&dry, &object("notes", "v2", "d", json!({"texts": ["dry"]})))
        .expect(201);
    at.get(&notes("v1", "/d")).expect(404);
    at.delete(&notes("v2", "/a")).expect(200);
}

/// Writes from another thread while a watch is read: the watch's runtime must not wait for the
/// write.
fn in_parallel(at: &Client, url: &str, text: &str) {
    let (at, url, text) = (at.clone(), url.to_owned(), text.to_owned());
    std::thread::spawn(move || at.merge(&url, &json!({"spec": {"text": text}})));
}

#[test]
fn field_selectors_use_the_fields_of_their_version() {
    let server = server();
    let hook = Hook::start(&server, answer);
    let (path, _) = workspace(&server.admin(), "hooks");
    let at = server.admin().in_workspace(&path);
    define(&at, "notes", &hook.client_config("/first"));
    let url = |version: &str, rest: &str| format!("/apis/{GROUP}/{version}/notes{rest}");
    for (name, text) in [("a", "one"), ("b", "two")] {
        let object = object("notes", "v1", name, json!({"text": text}));
        at.post(&url("v1", ""), &object).expect(201);
    }
    let list = at.get(&url("v2", "?fieldSelector=spec.first%3Dtwo")).expect(200);
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(list["items"][0]["metadata"]["name"], "b");
    // A watcher sees an object enter its selection and leave it again.
    let mut events = Vec::new();
    at.watch(&url("v2", "?watch=true&fieldSelector=spec.first%3Dtwo"), |event| {
        let seen = (event["type"].clone(), event["object"]["metadata"]["name"].clone());
        events.push((seen.0.as_str()?.to_owned(), seen.1.as_str()?.to_owned()));
        match events.len() {
            1 => in_parallel(&at, &url("v1", "/a"), "two"),
            2 => in_parallel(&at, &url("v1", "/b"), "three"),
            _ => return Some(()),
        }
        None
    })
    .unwrap();
    let want = [("ADDED", "b"), ("ADDED", "a"), ("DELETED", "b")];
    assert_eq!(events, want.map(|(kind, name)| (kind.to_owned(), name.to_owned())));
}

/// A change is one call for any number of watchers, whether they select by fields of their version
/// or receive everything.
#[test]
fn watchers_share_one_conversion_review() {
    const WATCHERS: usize = 5;
    let server = server();
    let hook = Hook::start(&server, answer);
    let (path, _) = workspace(&server.admin(), "hooks");
    let at = server.admin().in_workspace(&path);
    define(&at, "notes", &hook.client_config("/first"));
    let url = |version: &str, rest: &str| format!("/apis/{GROUP}/{version}/notes{rest}");
    at.post(&url("v1", ""), &object("notes", "v1", "a", json!({"text": "old"})))
        .expect(201);
    let (ready, started) = std::sync::mpsc::channel();
    let watchers: Vec<_> = (0..WATCHERS)
        .map(|number| {
            let select = if number % 2 == 0 {
                ""
            } else {
                "&fieldSelector=spec.first!%3Dnone"
            };
            let (at, watch, ready) = (at.clone(), url("v2", &format!("?watch=true{select}")), ready.clone());
            std::thread::spawn(move || {
                at.watch(&watch, |event| match event["object"]["spec"]["first"].as_str() {
                    Some("old") => ready.send(()).err().map(|_| String::new()),
                    other => other.map(str::to_owned),
                })
            })
        })
        .collect();
    for _ in 0..WATCHERS {
        started.recv_timeout(Duration::from_secs(20)).unwrap();
    }
    let begun = hook.take("/first");
    at.merge(&url("v1", "/a"), &json!({"spec": {"text": "new"}}))
        .expect(200);
    for watcher in watchers {
        assert_eq!(watcher.join().unwrap().as_deref(), Some("new"));
    }
    let asked = hook.take("/first");
    let texts = |reviews: &[Value]| -> Vec<String> {
        let objects = reviews
            .iter()
            .map(|review| &review["request"]["objects"][0]["spec"]["text"]);
        objects
            .map(|text| text.as_str().unwrap_or_default().to_owned())
            .collect()
    };
    assert_eq!(
        (texts(&begun), texts(&asked)),
        (vec!["old".to_owned()], vec!["new".to_owned()])
    );
}

#[test]
fn webhooks_call_only_allowed_targets() {
    let server = shared();
    let hook = Hook::start(&server, answer);
    let (path, _) = workspace(&server.admin(), "hooks");
    let at = server.admin().in_workspace(&path);
    define(&at, "notes", &hook.client_config("/convert"));
    let v2 = format!("/apis/{GROUP}/v2/notes");
    at.post(
        &format!("/apis/{GROUP}/v1/notes"),
        &object("notes", "v1", "a", json!({"text": "one"})),
    )
    .expect(201);
    let port = hook.client_config("")["url"]
        .as_str()
        .unwrap()
        .rsplit(':')
        .next()
        .unwrap()
        .to_owned();
    let bundle = hook.client_config("")["caBundle"].clone();
    let why = "is not among the targets that this server may call";
    let local = [
        "127.0.0.1",
        "localhost",
        "2130706433",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
    ];
    let local = local.map(|host| format!("{host}:{port}"));
    let remote = ["169.254.169.254", "10.0.0.1:22", "8.8.8.8:22"].map(str::to_owned);
    for host in local.into_iter().chain(remote) {
        redirect(
            &at,
            "notes",
            &json!({"url": format!("https://{host}/convert"), "caBundle": bundle}),
        );
        until("the refusal names the host", || {
            let got = at.get(&format!("{v2}/a"));
            let message = got.body["message"].as_str().unwrap_or_default();
            (got.code == 500 && message.contains(why) && message.contains(&host)).then_some(())
        });
    }
    redirect(
        &at,
        "notes",
        &json!({"url": null, "service": {"name": "converter", "namespace": "default", "path": "/convert"}}),
    );
    until("the refusal names the service", || {
        let got = at.get(&format!("{v2}/a"));
        let message = got.body["message"].as_str().unwrap_or_default();
        message
            .contains("https://converter.default.svc:443/convert?timeout=10s")
            .then_some(())
    });
    assert_eq!(hook.take("/convert").len(), 0);
}
