//! Watches that stall, lag, or outlive the right to watch.

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::Version;
use insula_e2e::{
    Client, Issuer, Server, Setup, Slow, WebSocket, Who, base64, shared, tls, until, with_widgets, workspace,
};
use serde_json::{Value, json};

use crate::issuers::mappings;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

fn server_with(environment: &[(&str, &str)], flags: &[&str]) -> Server {
    let text = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Server::with(Setup {
        flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        environment: environment.iter().map(text).collect(),
        ..Setup::default()
    })
}

/// Starts a server that keeps a history of one or two seconds.
fn server_with_short_history() -> Server {
    server_with(&[("INSULA_WATCHES_HISTORY_SECONDS", "1")], &[])
}

fn slow(server: &Server, who: &Who, version: Version, path: &str) -> Slow {
    let token = match who {
        Who::Token(token) => Some(token.as_str()),
        Who::KcpAdmin | Who::ShardAdmin | Who::Anonymous => None,
    };
    Slow::open(server, tls(&server.data_dir(), who), token, version, path)
}

fn define(client: &Client, plural: &str) {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.org")},
        "spec": {
            "group": "example.org", "scope": "Namespaced",
            "names": {"plural": plural, "singular": plural, "kind": plural, "listKind": format!("{plural}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    client.post(DEFINITIONS, &definition).expect(201);
    until("the kind is served", || {
        (client.get(&format!("/apis/example.org/v1/{plural}")).code == 200).then_some(())
    });
}

fn object(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "default"}})
}

/// Returns a map with a number of bytes.
fn map(name: &str, bytes: usize, fill: &str) -> Value {
    let mut map = object("v1", "ConfigMap", name);
    map["data"] = json!({"a": fill.repeat(bytes)});
    map
}

/// Writes until the server has compacted the history up to now. No test here watches Secrets: such
/// a watch would rightly get a 410.
fn forget(client: &Client) {
    let now = client.post(SECRETS, &object("v1", "Secret", "clock")).expect(201);
    let revision = now["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let before = format!("{SECRETS}?resourceVersion={revision}&resourceVersionMatch=Exact");
    let mut count = 0;
    until("the history is forgotten", || {
        count += 1;
        let data = json!({"stringData": {"count": count.to_string()}});
        client.merge(&format!("{SECRETS}/clock"), &data).expect(200);
        (client.get(&before).code == 410).then_some(())
    });
    client.delete(&format!("{SECRETS}/clock")).expect(200);
}

/// Checks that the server answers new requests.
fn is_alive(server: &Server) {
    for _ in 0..8 {
        let livez = server.client(Who::Anonymous).get("/livez");
        assert_eq!(livez.code, 200, "{}", livez.text);
    }
}

/// Returns the next event that is no bookmark: its type and the object's name.
fn next_event(watch: &mut Slow) -> Option<(String, String)> {
    loop {
        let event = watch.event()?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if event["type"] != "BOOKMARK" {
            return Some((text(&event["type"]), text(&event["object"]["metadata"]["name"])));
        }
    }
}

fn added(name: &str) -> Option<(String, String)> {
    Some(("ADDED".to_owned(), name.to_owned()))
}

const LAMPS: &str = "/apis/example.org/v1/namespaces/default/lamps";

/// A watched list: its path, a client that writes to it, the path of its writes, and an object.
type Watched<'a> = (String, &'a Client, &'static str, Value);

/// Returns a defined kind, a built-in one, a bound one, and the bound one through its export's
/// virtual workspace.
fn watched_kinds<'a>(here: &'a Client, there: &'a Client, path: &str, views: &str) -> [Watched<'a>; 4] {
    let widgets = "/apis/example.io/v1/namespaces/default/widgets";
    let cluster = there
        .get("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster")
        .expect(200);
    let cluster = cluster["metadata"]["annotations"]["kcp.io/cluster"].as_str().unwrap();
    let view = format!("/services/apiexport/{cluster}/widgets/clusters/*/apis/example.io/v1/widgets");
    [
        (
            format!("/clusters/{path}{LAMPS}"),
            here,
            LAMPS,
            object("example.org/v1", "lamps", ""),
        ),
        (
            format!("/clusters/{path}{MAPS}"),
            here,
            MAPS,
            object("v1", "ConfigMap", ""),
        ),
        (
            format!("/clusters/{views}{widgets}"),
            there,
            widgets,
            object("example.io/v1", "Widget", ""),
        ),
        (view, there, widgets, object("example.io/v1", "Widget", "")),
    ]
}

fn create_named(client: &Client, path: &str, object: &Value, name: &str) {
    let mut object = object.clone();
    object["metadata"]["name"] = json!(name);
    let code = client.post(path, &object).code;
    assert!(code == 201 || code == 409, "{path}: {code}");
}

/// Changes definitions, schemas, the export and the logical clusters.
fn touch_dependencies(here: &Client, there: &Client) {
    define(here, "fans");
    let touch = json!({"metadata": {"annotations": {"touched": "yes"}}});
    for client in [here, there] {
        client
            .merge("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster", &touch)
            .expect(200);
    }
    there
        .merge("/apis/apis.kcp.io/v1alpha2/apiexports/widgets", &touch)
        .expect(200);
}

/// A watch stalls, objects that it depends on change, and the server compacts the history of these
/// changes. The watch continues when its client reads on. Before the fix, a thread spun on the lost
/// position, no longer answered requests, and kept the process from ending.
#[test]
fn stalled_watches_outlast_the_history() {
    let server = server_with_short_history();
    let admin = server.admin();
    let (path, _) = workspace(&admin, "stalled");
    let views = with_widgets(&server);
    let (here, there) = (admin.in_workspace(&path), admin.in_workspace(&views));
    define(&here, "lamps");
    let kinds = watched_kinds(&here, &there, &path, &views);
    // More than the window of HTTP/2 lets through; of lamps, more than any socket buffer holds.
    for (_, client, path, object) in &kinds {
        let mut object = object.clone();
        object["metadata"]["annotations"] = json!({"long": "x".repeat(32 << 10)});
        create_named(client, path, &object, "first");
    }
    let bulk: Vec<String> = (0..8).map(|n| format!("first-{n}")).collect();
    for name in &bulk {
        let mut lamp = object("example.org/v1", "lamps", "");
        lamp["spec"] = json!({"text": "x".repeat(900 << 10)});
        create_named(&here, LAMPS, &lamp, name);
    }
    let selector = "fieldSelector=metadata.name%21%3Dkube-root-ca.crt";
    let mut watches = Vec::new();
    for (watched, ..) in &kinds {
        for version in [Version::HTTP_2, Version::HTTP_11] {
            let path = format!("{watched}?watch=true&{selector}");
            watches.push((path.clone(), slow(&server, &Who::KcpAdmin, version, &path)));
        }
    }
    let is_lamps = |path: &str| path.contains("lamps");
    touch_dependencies(&here, &there);
    forget(&here);
    for (path, watch) in &mut watches {
        assert_eq!(next_event(watch), added("first"), "{path}");
        for name in bulk.iter().filter(|_| is_lamps(path)) {
            assert_eq!(next_event(watch), added(name), "{path}");
        }
    }
    is_alive(&server);
    for (_, client, path, object) in &kinds {
        create_named(client, path, object, "second");
    }
    for (path, watch) in &mut watches {
        assert_eq!(next_event(watch), added("second"), "{path}");
    }
    // Deleting a definition still ends its watches.
    here.delete(&format!("{DEFINITIONS}/lamps.example.org")).expect(200);
    for (path, watch) in watches.iter_mut().filter(|(path, _)| is_lamps(path)) {
        let gone = std::iter::from_fn(|| next_event(watch)).collect::<Vec<_>>();
        assert!(gone.iter().all(|(kind, _)| kind == "DELETED"), "{path}: {gone:?}");
        assert_eq!(gone.len(), 2 + bulk.len(), "{path}: {gone:?}");
    }
    is_alive(&server);
    server.signal("-TERM");
    let (code, log) = server.wait();
    assert_eq!(code, Some(0), "{log}");
}

/// The server keeps only names of a state that it sends slowly. A change that is compacted before
/// it was sent ends the watch.
#[test]
fn a_compacted_initial_state_ends_its_watch() {
    let server = server_with_short_history();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "stalled").0);
    let names: Vec<String> = (0..12).map(|n| format!("map-{n:02}")).collect();
    for name in &names {
        client.post(MAPS, &map(name, 900 << 10, "x")).expect(201);
    }
    let watched = format!("{MAPS}?watch=true&fieldSelector=metadata.name%21%3Dkube-root-ca.crt");
    let path = client
        .get("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster")
        .expect(200);
    let cluster = path["metadata"]["annotations"]["kcp.io/cluster"].as_str().unwrap();
    let mut watch = slow(
        &server,
        &Who::KcpAdmin,
        Version::HTTP_11,
        &format!("/clusters/{cluster}{watched}"),
    );
    assert_eq!(next_event(&mut watch), added(&names[0]));
    client
        .merge(&format!("{MAPS}/map-11"), &json!({"data": {"a": "y"}}))
        .expect(200);
    forget(&client);
    for name in &names[1..11] {
        assert_eq!(next_event(&mut watch), added(name));
    }
    let last = watch.event().unwrap();
    assert_eq!(
        (&last["type"], &last["object"]["code"]),
        (&json!("ERROR"), &json!(410)),
        "{last:.300}"
    );
    assert_eq!(last["object"]["reason"], "Expired");
    assert_eq!(watch.event(), None);
}

/// Returns the resident memory of the process in MiB.
fn resident(server: &Server) -> u64 {
    let status = Path::new("/proc").join(server.pid().to_string()).join("status");
    let text = std::fs::read_to_string(status).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() / 1024
}

/// Watches that lag far behind buffer a small part of their pending events.
#[test]
fn lagging_watches_use_bounded_memory() {
    const WATCHES: usize = 16;
    const CHANGES: usize = 100;
    let server = Server::start();
    let admin = server.admin();
    let (path, _) = workspace(&admin, "behind");
    let client = admin.in_workspace(&path);
    client.post(MAPS, &map("large", 1, "x")).expect(201);
    let state = client.get(MAPS).expect(200);
    let from = state["metadata"]["resourceVersion"].as_str().unwrap();
    let watched = format!("/clusters/{path}{MAPS}?watch=true&resourceVersion={from}");
    let versions = [Version::HTTP_2, Version::HTTP_11].into_iter().cycle();
    let open = |version| slow(&server, &Who::KcpAdmin, version, &watched);
    let mut watches: Vec<Slow> = versions.take(WATCHES).map(open).collect();
    for n in 0..CHANGES {
        let fill = char::from(b'a' + u8::try_from(n % 26).unwrap()).to_string();
        client
            .put(&format!("{MAPS}/large"), &map("large", 300_000, &fill))
            .expect(200);
    }
    let before = resident(&server);
    // The first event was sent before the others; reading its end pulls them.
    for watch in &mut watches {
        for _ in 0..2 {
            assert_eq!(next_event(watch), Some(("MODIFIED".to_owned(), "large".to_owned())));
        }
    }
    std::thread::sleep(Duration::from_millis(500));
    let grown = resident(&server).saturating_sub(before);
    // About sixteen times 30 MB if each watch encoded all pending events at once.
    eprintln!("{WATCHES} watches {CHANGES} changes of 300 kB behind: {before} MiB, and {grown} MiB more");
    assert!(grown < 120, "{before} MiB and {grown} MiB more");
    // They lose nothing.
    let all = std::iter::from_fn(|| next_event(&mut watches[0])).take(CHANGES - 2);
    assert!(all.count() == CHANGES - 2);
    is_alive(&server);
}

fn grant(client: &Client, user: &str) {
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": user.replace(':', "-")},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    });
    client.post(BINDINGS, &binding).expect(201);
}

/// Returns the token of a new service account with all rights.
fn account(client: &Client, name: &str) -> String {
    client.post(ACCOUNTS, &object("v1", "ServiceAccount", name)).expect(201);
    grant(client, &format!("system:serviceaccount:default:{name}"));
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"});
    let answer = client.post(&format!("{ACCOUNTS}/{name}/token"), &request).expect(201);
    answer["status"]["token"].as_str().unwrap().to_owned()
}

/// Returns TLS settings with a client certificate of the server's own CA that is valid for some
/// more seconds.
fn certified(server: &Server, name: &str, seconds: u64) -> rustls::ClientConfig {
    use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
    let read = |name: &str| std::fs::read_to_string(server.data_dir().join("pki").join(name)).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&read("ca.crt"), KeyPair::from_pem(&read("ca.key")).unwrap()).unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = (SystemTime::now() - Duration::from_secs(60)).into();
    params.not_after = (SystemTime::now() + Duration::from_secs(seconds)).into();
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    let authority = rustls::pki_types::pem::PemObject::from_pem_slice(read("ca.crt").as_bytes()).unwrap();
    roots.add(authority).unwrap();
    rustls::ClientConfig::builder_with_provider(rustls::crypto::aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            vec![certificate.der().clone()],
            rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap()
}

/// Starts the server with a workspace that exports widgets to itself, and an issuer that the server
/// trusts.
fn reviewing() -> (Server, String, Issuer) {
    let other = shared();
    let issuer = Issuer::start(&other);
    let file = tempfile::NamedTempFile::new().unwrap();
    let config = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "jwt": [issuer.configuration(&other, &mappings("corp:"))]});
    std::fs::write(file.path(), config.to_string()).unwrap();
    let server = server_with(
        &[("INSULA_WATCHES_BOOKMARK_SECONDS", "1")],
        &["--authentication-config", file.path().to_str().unwrap()],
    );
    let path = with_widgets(&server);
    (server, path, issuer)
}

/// Checks that a watch ends with an ERROR, and returns its code.
fn refusal(name: &str, mut next: impl FnMut() -> Option<Value>) -> Value {
    let error = std::iter::from_fn(&mut next).find(|event| event["type"] != "BOOKMARK");
    let error = error.unwrap_or_else(|| panic!("{name}: it ended without a word"));
    assert_eq!(
        (&error["type"], &error["object"]["kind"]),
        (&json!("ERROR"), &json!("Status")),
        "{name}: {error}"
    );
    assert_eq!(next(), None, "{name}");
    error["object"]["code"].clone()
}

fn message(socket: &mut WebSocket) -> Option<Value> {
    loop {
        let message = socket.receive()?;
        if message.is_text() {
            return Some(serde_json::from_str(message.to_text().unwrap()).unwrap());
        }
        if message.is_close() {
            return None;
        }
    }
}

/// A watch ends when its user loses the account, the credential or the right, over every protocol,
/// with the error that a new request gets.
#[test]
fn watches_end_when_access_is_revoked() {
    let (server, path, issuer) = reviewing();
    let client = server.admin().in_workspace(&path);
    let cluster = client
        .get("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster")
        .expect(200);
    let cluster = cluster["metadata"]["annotations"]["kcp.io/cluster"].as_str().unwrap();
    for user in ["alice", "bob", "corp:ada", "eve"] {
        grant(&client, user);
    }
    let token = |name: &str| Who::Token(name.to_owned());
    let robot = token(&account(&client, "robot"));
    let query = "watch=true&allowWatchBookmarks=true&fieldSelector=metadata.name%3Dnone";
    let maps = format!("/clusters/{path}{MAPS}?{query}");
    let view = format!(
        "/services/apiexport/{cluster}/widgets/clusters/*/apis/example.io/v1/widgets?watch=true\
         &allowWatchBookmarks=true"
    );
    let mut watches = vec![
        (
            "a user over HTTP/2",
            403,
            slow(&server, &token("alice-token"), Version::HTTP_2, &maps),
        ),
        (
            "a user over HTTP/1.1",
            403,
            slow(&server, &token("alice-token"), Version::HTTP_11, &maps),
        ),
        (
            "a user of a view",
            403,
            slow(&server, &token("bob-token"), Version::HTTP_2, &view),
        ),
        ("a service account", 401, slow(&server, &robot, Version::HTTP_11, &maps)),
    ];
    let hidden = format!(
        "base64url.bearer.authorization.k8s.io.{}",
        base64(b"alice-token").trim_end_matches('=')
    );
    let anonymous = server.client(Who::Anonymous);
    let protocols = [("sec-websocket-protocol", hidden.as_str())];
    let mut socket = anonymous.websocket(&maps, &protocols).unwrap();
    for (name, _, watch) in &mut watches {
        for _ in 0..2 {
            assert_eq!(watch.event().unwrap()["type"], "BOOKMARK", "{name}");
        }
    }
    assert_eq!(message(&mut socket).unwrap()["type"], "BOOKMARK");
    for user in ["alice", "bob"] {
        client.delete(&format!("{BINDINGS}/{user}")).expect(200);
    }
    client.delete(&format!("{ACCOUNTS}/robot")).expect(200);
    for (name, code, mut watch) in watches {
        assert_eq!(refusal(name, || watch.event()), json!(code), "{name}");
    }
    assert_eq!(refusal("a WebSocket", || message(&mut socket)), json!(403));

    let soon = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 4;
    let short = token(&issuer.token(&json!({"exp": soon})));
    let mut watch = slow(&server, &short, Version::HTTP_2, &maps);
    let mut by_certificate = Slow::open(&server, certified(&server, "eve", 4), None, Version::HTTP_11, &maps);
    assert_eq!(refusal("a token that expires", || watch.event()), json!(401));
    assert_eq!(
        refusal("a certificate that expires", || by_certificate.event()),
        json!(401)
    );
}
