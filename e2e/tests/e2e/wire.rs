//! Formats and protocols on the wire, beside plain JSON.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use http::header;
use insula_e2e::{Answer, Client, Server, Who, shared, tls, until, workspace};
use rustls::{ClientConnection, StreamOwned};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Defines widgets with arbitrary fields, and waits until they are served.
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

/// The server compresses a large list without changing it. It does not compress a small list or a
/// watch.
#[test]
fn large_answers_are_compressed() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "gzip").0);
    for i in 0..4 {
        let text = format!("{i} all work and no play\n").repeat(4000);
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{i}")},
            "data": {"text": text}});
        client.post(MAPS, &map).expect(201);
    }
    let gzip = [("accept-encoding", "gzip")];
    let (plain, packed) = (client.get(MAPS), client.get_with(MAPS, &gzip));
    assert!(!plain.headers.contains_key(header::CONTENT_ENCODING));
    assert_eq!(packed.headers[header::CONTENT_ENCODING], "gzip");
    assert!(packed.bytes.len() < plain.bytes.len() / 20, "{}", packed.bytes.len());
    // Their revisions may differ: others write meanwhile.
    assert_eq!(unpacked(&packed)["items"], plain.body["items"]);
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

/// Typed clients of Go ask for protobuf. `crates/apiserver/tests/protobuf.rs` compares the bytes.
#[test]
fn kinds_of_kubernetes_are_served_in_protobuf() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "typed").0);
    let get = |path: &str| client.get_with(path, &[("accept", PROTOBUF)]);
    let own = |group: &str| {
        [".kcp.io", ".kcp.dev", ".insula.io"]
            .iter()
            .any(|other| group.ends_with(other))
    };
    let groups = client.get("/apis").expect(200)["groups"].clone();
    let versions = groups.as_array().unwrap().iter().map(|group| {
        let version = group["preferredVersion"]["groupVersion"].as_str().unwrap();
        (format!("/apis/{version}"), own(group["name"].as_str().unwrap()))
    });
    let mut served = 0;
    for (version, own) in versions.chain([("/api/v1".to_owned(), false)]) {
        assert!(get(&version).bytes.starts_with(b"k8s\0"), "{version}");
        let resources = client.get(&version).expect(200)["resources"].clone();
        for resource in resources.as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            let verbs = resource["verbs"].as_array().unwrap();
            if !verbs.contains(&json!("list")) || name == "thirdpartyresources" {
                continue;
            }
            let list = get(&format!("{version}/{name}"));
            assert_eq!(
                (list.code, list.bytes.starts_with(b"k8s\0")),
                (if own { 406 } else { 200 }, true),
                "{name}"
            );
            served += usize::from(!own);
        }
    }
    assert!(served > 15, "{served}");
}

/// A field that a later version of Kubernetes has would be lost.
#[test]
fn unknown_fields_in_protobuf_are_refused() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "later").0);
    let field = |number: u8, content: &[u8]| [&[number << 3 | 2, content.len() as u8], content].concat();
    let kind = [field(1, b"v1"), field(2, b"ConfigMap")].concat();
    let later = [field(1, &field(1, b"a")), field(9, b"later")].concat();
    let body = [b"k8s\0".as_slice(), &field(1, &kind), &field(2, &later)].concat();
    let refused = client
        .try_send("POST", MAPS, &[("content-type", PROTOBUF)], body.into())
        .unwrap();
    assert_eq!(
        refused.expect(400)["message"],
        "the body has field 9 of core/v1.ConfigMap, which this server does not know; send application/json"
    );
}

/// Informers of metadata ask for protobuf. Lists, objects, events and refusals come in protobuf,
/// whole custom resources never do.
#[test]
fn metadata_is_served_in_protobuf() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "protobuf").0);
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

/// A watch over HTTP/1.1 comes in chunks: it has no length, and is JSON.
#[test]
fn watches_are_sent_in_chunks() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "chunks").0);
    let watch = format!("{MAPS}?watch=true&timeoutSeconds=1");
    let answer = client.over_http1().get(&watch);
    assert_eq!(answer.headers[header::CONTENT_TYPE], "application/json");
    assert_eq!(answer.headers[header::TRANSFER_ENCODING], "chunked");
    assert!(
        answer.text.lines().all(|line| line.starts_with("{\"type\":")),
        "{}",
        answer.text
    );
}

/// Clients that use protobuf send the options of a deletion in it: here a UID that is another
/// object's.
#[test]
fn delete_options_are_read_in_protobuf() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "options").0);
    let path = format!("{}/a", widgets(&client));
    let widget = json!({"apiVersion": "wire.example.io/v1", "kind": "Widget", "metadata": {"name": "a"}});
    client.post(path.trim_end_matches("/a"), &widget).expect(201);
    let field = |number: u8, content: &[u8]| [&[number << 3 | 2, content.len() as u8], content].concat();
    let kind = [field(1, b"v1"), field(2, b"DeleteOptions")].concat();
    let options = |uid: &str| {
        let preconditions = field(1, uid.as_bytes());
        let unknown = [field(1, &kind), field(2, &field(2, &preconditions))].concat();
        [b"k8s\0".as_slice(), &unknown].concat()
    };
    let delete = |uid: &str| {
        let headers = [("content-type", PROTOBUF)];
        client.try_send("DELETE", &path, &headers, options(uid).into()).unwrap()
    };
    let refused = delete("another").expect(409);
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("UID in the precondition (another)"),
        "{refused}"
    );
    let uid = client.get(&path).expect(200)["metadata"]["uid"].clone();
    delete(uid.as_str().unwrap()).expect(200);
    client.get(&path).expect(404);
}

/// A revision from before the definition is not part of its history. The watch reports that within
/// the stream, and clients list again.
#[test]
fn watches_begin_with_the_definition() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "old").0);
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

fn event(message: Option<Message>) -> Value {
    let Some(Message::Text(text)) = message else {
        panic!("{message:?}");
    };
    serde_json::from_str(&text).unwrap()
}

/// A watch over WebSocket: events are messages, pings are answered, the end is a close. Refusals
/// come before the upgrade.
#[test]
fn watches_are_served_over_websockets() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "websocket").0);
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    client.post(MAPS, &map("a")).expect(201);
    client.post(MAPS, &map("b")).expect(201);
    let mut watch = client
        .websocket(&format!("{MAPS}?watch=true&timeoutSeconds=3"), &[])
        .unwrap();
    assert_eq!(watch.protocol, None);
    for name in ["a", "b", "kube-root-ca.crt"] {
        let event = event(watch.receive());
        assert_eq!(
            (&event["type"], &event["object"]["metadata"]["name"]),
            (&json!("ADDED"), &json!(name))
        );
    }
    watch.send(Message::Ping("here?".into()));
    assert_eq!(watch.receive(), Some(Message::Pong("here?".into())));
    watch.send(Message::Text("nobody listens".into()));
    client.delete(&format!("{MAPS}/a")).expect(200);
    assert_eq!(event(watch.receive())["type"], "DELETED");
    assert!(matches!(watch.receive(), Some(Message::Close(Some(frame))) if u16::from(frame.code) == 1000));
    assert_eq!(watch.receive(), None);

    let offered = [("sec-websocket-protocol", "base64.binary.k8s.io, binary.k8s.io")];
    let table = ("accept", "application/json;as=Table;g=meta.k8s.io;v=v1");
    let mut watch = client
        .websocket(&format!("{MAPS}?watch=1"), &[offered[0], table])
        .unwrap();
    assert_eq!(watch.protocol.as_deref(), Some("base64.binary.k8s.io"));
    for _ in ["b", "kube-root-ca.crt"] {
        assert_eq!(event(watch.receive())["object"]["kind"], "Table");
    }
    watch.send(Message::Close(None));
    let last = watch.receive();
    assert!(matches!(last, Some(Message::Close(_))), "{last:?}");

    assert_eq!(
        client.websocket("/apis/none.example.io/v1/things?watch=1", &[]).err(),
        Some(404)
    );
    assert_eq!(
        client
            .websocket(&format!("{MAPS}?watch=1&resourceVersion=x"), &[])
            .err(),
        Some(400)
    );
    // A handshake on a request that is no watch gets an ordinary answer.
    assert_eq!(client.websocket(MAPS, &[]).err(), Some(200));
}

/// HTTP/2 by its frames (RFC 9113, 4.1). A client library stops sending a body after a refusal,
/// while parts of it can still be in transit on the network.
struct Http2Connection(StreamOwned<ClientConnection, TcpStream>);

impl Http2Connection {
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const GOAWAY: u8 = 7;
    const END_STREAM: u8 = 1;
    const END_HEADERS: u8 = 4;

    fn connect(server: &Server) -> Self {
        let mut config = tls(&server.data_dir(), &Who::KcpAdmin);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let connection = ClientConnection::new(Arc::new(config), "127.0.0.1".try_into().unwrap()).unwrap();
        let stream = TcpStream::connect(server.address()).unwrap();
        let mut frames = Http2Connection(StreamOwned::new(connection, stream));
        frames.0.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        let (settings, window_update) = (4, 8);
        frames.send(settings, 0, 0, b"");
        frames.send(window_update, 0, 0, &(1_u32 << 30).to_be_bytes());
        frames
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.0.write_all(&[&head, payload].concat()).unwrap();
    }

    /// Sends headers, as they are (RFC 7541, 6.2.2).
    fn begin(&mut self, stream: u32, headers: &[(&str, &str)]) {
        let mut block = Vec::new();
        for (name, value) in headers {
            block.push(0);
            for text in [name, value] {
                block.push(u8::try_from(text.len()).unwrap());
                block.extend_from_slice(text.as_bytes());
            }
        }
        self.send(Self::HEADERS, Self::END_HEADERS, stream, &block);
    }

    fn next(&mut self) -> (u8, u32, Vec<u8>) {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        self.0.read_exact(&mut payload).unwrap();
        (
            head[3],
            u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            payload,
        )
    }
}

/// A connection stays open after any number of requests refused while their bodies are in transit.
#[test]
fn refusals_do_not_end_a_connection() {
    let server = shared();
    let admin = server.admin();
    let path = format!(
        "/clusters/{}/apis/no.example.io/v1/things",
        workspace(&admin, "refused").0
    );
    let mut frames = Http2Connection::connect(&server);
    let authority = server.address().to_string();
    let headers = [
        (":method", "POST"),
        (":scheme", "https"),
        (":authority", &authority),
        (":path", &path),
        ("content-type", "application/json"),
    ];
    let mut streams = (1..).step_by(2);
    // More than HTTP/2's library tolerates.
    for _ in 0..20 {
        let some: Vec<u32> = streams.by_ref().take(100).collect();
        some.iter().for_each(|stream| frames.begin(*stream, &headers));
        frames.0.flush().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        for stream in &some {
            frames.send(Http2Connection::DATA, Http2Connection::END_STREAM, *stream, b"{}");
        }
        frames.0.flush().unwrap();
        let mut answered = 0;
        while answered < some.len() {
            let (kind, stream, payload) = frames.next();
            assert_ne!(kind, Http2Connection::GOAWAY, "{}", String::from_utf8_lossy(&payload));
            answered += usize::from(kind == Http2Connection::HEADERS && some.contains(&stream));
        }
    }
}
