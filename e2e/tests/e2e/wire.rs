//! What goes over the wire, beside plain JSON.

use std::io::Read;

use http::header;
use insula_e2e::{Answer, Client, shared, until, workspace};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Defines widgets that take anything, and waits until they are served.
fn widgets(client: &Client) -> &'static str {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let versions = json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]);
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.wire.example.io"},
        "spec": {"group": "wire.example.io", "scope": "Namespaced", "versions": versions,
            "names": {"plural": "widgets", "kind": "Widget"}}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    client.post(definitions, &definition).expect(201);
    let path = "/apis/wire.example.io/v1/namespaces/default/widgets";
    until("widgets are served", || (client.get(path).code == 200).then_some(()));
    path
}

fn unpacked(answer: &Answer) -> Value {
    let mut text = String::new();
    let mut gzip = flate2::read::GzDecoder::new(&answer.bytes[..]);
    gzip.read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A list that is large travels compressed, and is the same list; a small one and a watch travel as they are.
#[test]
fn large_answers_are_compressed() {
    let server = shared();
    let admin = server.admin();
    let client = admin.at(&workspace(&admin, "gzip").0);
    for i in 0..4 {
        let text = format!("{i} all work and no play\n").repeat(4000);
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{i}")}, "data": {"text": text}});
        client.post(MAPS, &map).expect(201);
    }
    let gzip = [("accept-encoding", "gzip")];
    let (plain, packed) = (client.get(MAPS), client.get_with(MAPS, &gzip));
    assert!(!plain.headers.contains_key(header::CONTENT_ENCODING));
    assert_eq!(packed.headers[header::CONTENT_ENCODING], "gzip");
    assert!(packed.bytes.len() < plain.bytes.len() / 20, "{}", packed.bytes.len());
    assert_eq!(unpacked(&packed), plain.body);
    for small in [
        format!("{MAPS}/m0"),
        format!("{MAPS}?limit=1"),
        format!("{MAPS}?watch=true&timeoutSeconds=1"),
    ] {
        let answer = client.get_with(&small, &gzip);
        assert_eq!(
            (answer.code, answer.headers.get(header::CONTENT_ENCODING)),
            (200, None),
            "{small}"
        );
    }
    let openapi = client.get_with("/openapi/v3/api/v1", &gzip);
    assert_eq!(unpacked(&openapi)["openapi"], "3.0.0");
}

/// Informers of metadata ask for it in protobuf: lists, objects, events and refusals come in it, whole objects never do.
#[test]
fn metadata_travels_in_protobuf() {
    let server = shared();
    let admin = server.admin();
    let client = admin.at(&workspace(&admin, "protobuf").0);
    let path = widgets(&client);
    let widget = |name: &str| json!({"apiVersion": "wire.example.io/v1", "kind": "Widget", "metadata": {"name": name}});
    client.post(path, &widget("left")).expect(201);
    let get = |path: &str, kind: &str| {
        let accept = format!("{PROTOBUF};as={kind};g=meta.k8s.io;v=v1,application/json;as={kind};g=meta.k8s.io;v=v1");
        client.get_with(path, &[("accept", &accept)])
    };
    let holds = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    let list = get(path, "PartialObjectMetadataList");
    assert_eq!(list.headers[header::CONTENT_TYPE], PROTOBUF);
    assert!(
        list.bytes.starts_with(b"k8s\0") && holds(&list.bytes, "left"),
        "{:?}",
        list.bytes
    );
    let one = get(&format!("{path}/left"), "PartialObjectMetadata");
    assert!(one.bytes.starts_with(b"k8s\0") && holds(&one.bytes, "PartialObjectMetadata"));
    let events = get(&format!("{path}?watch=true&timeoutSeconds=1"), "PartialObjectMetadata");
    assert_eq!(events.headers[header::CONTENT_TYPE], format!("{PROTOBUF};stream=watch"));
    let length = u32::from_be_bytes(events.bytes[..4].try_into().unwrap()) as usize;
    assert_eq!(events.bytes.len(), 4 + length, "one event");
    assert!(events.bytes[4..].starts_with(b"\x0a\x05ADDED") && holds(&events.bytes, "left"));
    let missing = get(&format!("{path}/right"), "PartialObjectMetadata");
    assert_eq!(
        (missing.code, &missing.headers[header::CONTENT_TYPE]),
        (404, &PROTOBUF.parse().unwrap())
    );
    assert!(holds(&missing.bytes, "widgets.wire.example.io \"right\" not found"));
    assert_eq!(client.get_with(path, &[("accept", PROTOBUF)]).code, 406);
    let both = client.get_with(path, &[("accept", &format!("{PROTOBUF},application/json"))]);
    assert_eq!(both.body["items"][0]["metadata"]["name"], "left");
}

/// A revision from before the definition is none of its history: the watch says so within the stream, and clients list anew.
#[test]
fn watches_begin_with_the_definition() {
    let server = shared();
    let admin = server.admin();
    let client = admin.at(&workspace(&admin, "old").0);
    let before = client.get(MAPS).expect(200)["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = widgets(&client);
    let events = client
        .get(&format!("{path}?watch=true&timeoutSeconds=5&resourceVersion={before}"))
        .expect(200);
    assert_eq!(
        (&events["type"], &events["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    let now = client.get(path).expect(200)["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    let events = client.get(&format!("{path}?watch=true&timeoutSeconds=1&resourceVersion={now}"));
    assert_eq!((events.code, &*events.text), (200, ""));
}
