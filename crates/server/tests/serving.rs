//! A server in this process, over real sockets: who gets which answer, and how it ends.
#![allow(clippy::unwrap_used)]

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use insula_server::{Config, Env, Running, StartError, config::StoreChoice};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tempfile::TempDir;

fn config(dir: &Path) -> Config {
    Config {
        data_dir: dir.join("data"),
        listen: "127.0.0.1:0".to_owned(),
        store: StoreChoice::Memory,
        ..Config::default()
    }
}

async fn started(change: impl FnOnce(&mut Config)) -> (TempDir, Running) {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    change(&mut config);
    let running = insula_server::start(config, Env::real(), &|_| ()).await.unwrap();
    (dir, running)
}

type Https = Client<hyper_rustls::HttpsConnector<hyper_util::client::legacy::connect::HttpConnector>, Empty<Bytes>>;

/// A client that trusts the server, with the certificate `who`, or without one.
fn client(data_dir: &Path, who: Option<&str>) -> Https {
    let pki = data_dir.join("pki");
    let chain = |name: &str| vec![CertificateDer::from_pem_file(pki.join(format!("{name}.crt"))).unwrap()];
    let mut roots = rustls::RootCertStore::empty();
    roots.add(chain("ca").remove(0)).unwrap();
    let tls = rustls::ClientConfig::builder().with_root_certificates(roots);
    let tls = match who {
        Some(name) => {
            let key = PrivateKeyDer::from_pem_file(pki.join(format!("{name}.key"))).unwrap();
            tls.with_client_auth_cert(chain(name), key).unwrap()
        }
        None => tls.with_no_client_auth(),
    };
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only();
    Client::builder(TokioExecutor::new()).build(connector.enable_http1().enable_http2().build())
}

async fn get(client: &Https, url: String) -> (StatusCode, http::HeaderMap, String) {
    let request = Request::get(url).body(Empty::new()).unwrap();
    let (head, body) = client.request(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status, head.headers, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_for_everybody_and_the_rest_for_those_we_know() {
    let (dir, running) = started(|_| ()).await;
    let url = |path: &str| format!("{}{path}", running.url());
    let data = dir.path().join("data");
    let (anonymous, kcp, shard) = (
        client(&data, None),
        client(&data, Some("kcp-admin")),
        client(&data, Some("shard-admin")),
    );
    for path in ["/readyz", "/livez", "/healthz"] {
        for client in [&anonymous, &kcp, &shard] {
            let (code, _, body) = get(client, url(path)).await;
            assert_eq!((code, body.as_str()), (StatusCode::OK, "ok"), "{path}");
        }
    }
    let (_, _, verbose) = get(&anonymous, url("/readyz?verbose")).await;
    assert_eq!(verbose, "[+]ping ok\n[+]serving ok\n[+]store ok\nreadyz check passed\n");
    let (code, _, body) = get(&anonymous, url("/metrics")).await;
    let status: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert_eq!(
        status["message"],
        "forbidden: User \"system:anonymous\" cannot get path \"/metrics\": access denied"
    );
    for client in [&anonymous, &kcp] {
        let (_, _, version) = get(client, url("/version")).await;
        let version: serde_json::Value = serde_json::from_str(&version).unwrap();
        assert_eq!((&version["major"], &version["minor"]), (&"1".into(), &"36".into()));
    }
    let (code, _, metrics) = get(&shard, url("/metrics")).await;
    assert_eq!(code, StatusCode::OK);
    assert!(metrics.contains("insula_requests_total{verb=\"Other\",class=\"NonResource\",code=\"ClientError\"} 1"));
    let (code, headers, _) = get(&shard, url("/nowhere")).await;
    assert_eq!(code, StatusCode::NOT_FOUND);
    assert_eq!(headers["audit-id"].len(), 36);
    running.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_known_by_the_file_and_only_by_it() {
    let tokens = tempfile::tempdir().unwrap();
    let path = tokens.path().join("tokens.csv");
    fs::write(&path, "good-token,root,1,\"system:masters\"\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let (dir, running) = started(|config| config.token_file = Some(path)).await;
    let client = client(&dir.path().join("data"), None);
    for (authorization, want) in [("Bearer good-token", 200), ("Bearer other", 401), ("Basic eDp5", 401)] {
        let url = format!("{}/metrics", running.url());
        let request = Request::get(url)
            .header("authorization", authorization)
            .body(Empty::new())
            .unwrap();
        assert_eq!(client.request(request).await.unwrap().status(), want, "{authorization}");
    }
    running.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_another_ca_is_refused() {
    let (ours, running) = started(|_| ()).await;
    let (theirs, other) = started(|_| ()).await;
    other.shutdown().await;
    // Trusts our CA, and shows a certificate of theirs.
    let (ours, theirs) = (ours.path().join("data/pki"), theirs.path().join("data/pki"));
    fs::copy(ours.join("ca.crt"), theirs.join("ca.crt")).unwrap();
    let client = client(theirs.parent().unwrap(), Some("kcp-admin"));
    let request = Request::get(format!("{}/readyz", running.url()))
        .body(Empty::new())
        .unwrap();
    assert!(client.request(request).await.is_err());
    running.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_for_their_owner() {
    let (dir, running) = started(|_| ()).await;
    let data = dir.path().join("data");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&data), 0o700);
    assert_eq!(mode(&data.join("pki")), 0o700);
    assert_eq!(running.kubeconfig(), data.join("admin.kubeconfig"));
    let keys = ["ca", "server", "kcp-admin", "shard-admin"].map(|name| data.join(format!("pki/{name}.key")));
    for path in keys
        .iter()
        .map(std::path::PathBuf::as_path)
        .chain([running.kubeconfig()])
    {
        assert_eq!(mode(path), 0o600, "{}", path.display());
    }
    let kubeconfig = fs::read_to_string(running.kubeconfig()).unwrap();
    assert!(
        kubeconfig.contains(&format!("\"{}/clusters/root\"", running.url())),
        "{kubeconfig}"
    );
    running.shutdown().await;
}

/// Sends bytes in the clear and reads what comes until the end.
async fn conversation(running: &Running, bytes: &'static [u8]) -> String {
    let address = running.address();
    let talk = move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        let ended = stream.read_to_end(&mut answer);
        (ended.map(drop).map_err(|error| error.kind()), answer)
    };
    let (ended, answer) = tokio::task::spawn_blocking(talk).await.unwrap();
    let patient = !matches!(
        ended,
        Err(std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
    );
    assert!(patient, "the server did not end the connection");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_is_refused_in_words_and_silence_has_an_end() {
    let (_dir, running) = started(|config| config.limits.header_seconds = 1).await;
    let answer = conversation(&running, b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
    assert!(
        answer.ends_with("the URL has to begin with \"https://\" here."),
        "{answer}"
    );
    conversation(&running, b"").await;
    conversation(&running, b"\x16\x03\x01").await;
    running.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_headers_have_an_end_under_tls_too() {
    let (dir, running) = started(|config| config.limits.header_seconds = 1).await;
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(dir.path().join("data/pki/ca.crt")).unwrap())
        .unwrap();
    let tls = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    for begun in ["", "GET /readyz HTTP/1.1\r\nHost: "] {
        let connector = tokio_rustls::TlsConnector::from(Arc::new(tls.clone()));
        let stream = tokio::net::TcpStream::connect(running.address()).await.unwrap();
        let mut stream = connector
            .connect("127.0.0.1".try_into().unwrap(), stream)
            .await
            .unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, begun.as_bytes())
            .await
            .unwrap();
        let mut answer = Vec::new();
        let reading = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer);
        let ended = tokio::time::timeout(Duration::from_secs(20), reading).await;
        assert!(ended.is_ok(), "after {begun:?} the server waits for ever");
    }
    running.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_tells_load_balancers_before_it_closes() {
    let (dir, running) = started(|config| config.shutdown_delay_seconds = 1).await;
    let client = client(&dir.path().join("data"), None);
    let url = format!("{}/readyz", running.url());
    let address = running.address();
    let stopping = tokio::spawn(running.shutdown());
    let seen = loop {
        let (code, _, body) = get(&client, url.clone()).await;
        if code != StatusCode::OK {
            break (code, body);
        }
        tokio::task::yield_now().await;
    };
    let want = "[+]ping ok\n[-]serving failed: reason withheld\n[+]store ok\nreadyz check failed\n";
    assert_eq!(seen, (StatusCode::SERVICE_UNAVAILABLE, want.to_owned()));
    // The client's idle connection does not keep the server.
    stopping.await.unwrap();
    assert!(TcpStream::connect(address).is_err(), "nothing listens any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_start_on_the_same_directory_names_the_holder() {
    let (dir, running) = started(|config| config.store = StoreChoice::Embedded).await;
    let again = || {
        insula_server::start(
            Config {
                store: StoreChoice::Embedded,
                ..config(dir.path())
            },
            Env::real(),
            &|_| (),
        )
    };
    let error = again().await.map(drop).unwrap_err();
    assert_eq!(error.exit_code(), 3);
    let StartError::InUse { path, holder } = &error else {
        panic!("{error}")
    };
    assert_eq!(*path, dir.path().join("data"));
    assert!(holder.contains(&std::process::id().to_string()), "{holder}");
    running.shutdown().await;

    // A start that fails later lets go of the directory.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let config = Config {
        listen,
        store: StoreChoice::Embedded,
        ..config(dir.path())
    };
    let failed = insula_server::start(config, Env::real(), &|_| ()).await;
    assert_eq!(failed.map(drop).unwrap_err().exit_code(), 4);
    again().await.unwrap().shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_are_told_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let steps = Mutex::new(Vec::new());
    let tell = |step: &insula_server::Step| steps.lock().unwrap().push(step.name);
    let running = insula_server::start(config(dir.path()), Env::real(), &tell)
        .await
        .unwrap();
    running.shutdown().await;
    assert_eq!(*steps.lock().unwrap(), ["store", "identity", "ready"]);
}
