//! Panics in requests: a bug in one request is a 500 of that request alone. No permit stays taken,
//! and no lock stays held.
#![allow(clippy::unwrap_used)]

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use insula_api::Rng;
use insula_proto::{
    admin::v1::{GetInfoRequest, ValidateRequest},
    admin::v1::{cluster_service_client::ClusterServiceClient, conversion_service_client::ConversionServiceClient},
    value::from_json,
};
use insula_server::{Config, Env, Running, config::StoreChoice};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};
use tonic::Code;
use tracing::{Subscriber, span::Id};
use tracing_subscriber::{
    layer::{Context, Layer, SubscriberExt},
    util::SubscriberInitExt,
};

/// Randomness that simulates a bug: it panics after a number of calls.
struct Faulty {
    real: Arc<dyn Rng>,
    left: AtomicI64,
}

impl Rng for Faulty {
    fn fill(&self, buffer: &mut [u8]) {
        assert!(self.left.fetch_sub(1, Ordering::Relaxed) != 1, "a bug, made for a test");
        self.real.fill(buffer);
    }
}

/// A layer of the log that simulates a bug in the work of a call: once `FAULTY` is set, it panics
/// when a low-priority thread begins with the work.
struct FaultyLayer;

static FAULTY: AtomicBool = AtomicBool::new(false);

impl<S: Subscriber> Layer<S> for FaultyLayer {
    fn on_enter(&self, _: &Id, _: Context<'_, S>) {
        let is_low = std::thread::current().name() == Some("low-priority");
        assert!(
            !(is_low && FAULTY.swap(false, Ordering::Relaxed)),
            "a bug, made for a test"
        );
    }
}

type Https<B = Full<Bytes>> = Client<HttpsConnector<HttpConnector>, B>;

fn client<B: http_body::Body<Data: Send> + Send>(data_dir: &Path) -> Https<B> {
    let pki = data_dir.join("pki");
    let certificate = |name: &str| CertificateDer::from_pem_file(pki.join(format!("{name}.crt"))).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate("ca")).unwrap();
    let key = PrivateKeyDer::from_pem_file(pki.join("shard-admin.key")).unwrap();
    let tls = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate("shard-admin")], key)
        .unwrap();
    let connector = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls);
    Client::builder(TokioExecutor::new()).build(connector.https_only().enable_http2().build())
}

async fn request(client: &Https, method: Method, url: &str, body: &Value) -> (u16, Value) {
    let request = Request::builder()
        .method(method)
        .uri(url)
        .header("content-type", "application/json")
        .body(Full::from(body.to_string()))
        .unwrap();
    let (head, body) = client.request(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status.as_u16(), serde_json::from_slice(&body).unwrap_or_default())
}

/// Starts a server on an empty data directory, which is removed when the directory is dropped. A
/// permit that a request did not give back fails the next request at once.
async fn start(env: Env) -> (tempfile::TempDir, Running) {
    let data_dir = tempfile::tempdir().unwrap();
    let mut config = Config {
        data_dir: data_dir.path().to_owned(),
        listen: "127.0.0.1:0".to_owned(),
        store: StoreChoice::Memory,
        ..Config::default()
    };
    config.limits.requests_in_flight_per_user = 1;
    config.limits.requests_in_flight_per_workspace = 1;
    let running = insula_server::start(config, env, &|_| ()).await.unwrap();
    (data_dir, running)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bug_in_a_request_ends_that_request() {
    let real = Env::real();
    let faulty = Arc::new(Faulty {
        real: Arc::clone(&real.rng),
        left: AtomicI64::new(-1),
    });
    let env = Env {
        rng: faulty.clone(),
        ..real
    };
    let (data_dir, running) = start(env).await;
    let client: Https = client(data_dir.path());
    let maps = format!("{}/clusters/root/api/v1/namespaces/default/configmaps", running.url());
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    // Reconcilers use random numbers, too, until the objects of every workspace exist.
    let mut seen = Value::Null;
    loop {
        let (code, list) = request(&client, Method::GET, &maps, &Value::Null).await;
        assert_eq!(code, 200);
        let now = list["metadata"]["resourceVersion"].clone();
        if std::mem::replace(&mut seen, now.clone()) == now {
            break;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    for _ in 0..3 {
        // The first call is for the id of the request; the second would be for the UID of the
        // object.
        faulty.left.store(2, Ordering::Relaxed);
        let (code, status) = request(&client, Method::POST, &maps, &map).await;
        faulty.left.store(-1, Ordering::Relaxed);
        assert_eq!((code, &status["reason"]), (500, &json!("InternalError")), "{status}");
        assert!(!status.to_string().contains("made for a test"), "{status}");
    }
    assert_eq!(request(&client, Method::POST, &maps, &map).await.0, 201);
    assert_eq!(request(&client, Method::GET, &maps, &Value::Null).await.0, 200);
    running.shutdown().await;
}

/// The work of a gRPC call runs on another thread.
#[tokio::test(flavor = "multi_thread")]
async fn a_bug_in_a_call_ends_that_call() {
    tracing_subscriber::registry().with(FaultyLayer).init();
    let (data_dir, running) = start(Env::real()).await;
    let origin: http::Uri = running.url().parse().unwrap();
    let mut conversions = ConversionServiceClient::with_origin(client(data_dir.path()), origin.clone());
    let schema = json!({"metadata": {"name": "v1.as.example.io"}, "spec": {"group": "example.io", "scope": "Cluster",
        "names": {"plural": "as", "singular": "a", "kind": "A", "listKind": "AList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"type": "object"}}]}});
    let validate = ValidateRequest {
        schema: Some(from_json(schema.as_object().unwrap()).unwrap()),
        ..ValidateRequest::default()
    };
    FAULTY.store(true, Ordering::Relaxed);
    let broken = conversions.validate(validate.clone()).await.unwrap_err();
    assert_eq!(broken.code(), Code::Internal, "{broken:?}");
    assert!(!broken.message().contains("made for a test"), "{broken:?}");
    let verdict = conversions.validate(validate).await.unwrap().into_inner();
    assert!(verdict.valid, "{:?}", verdict.violations);
    let mut clusters = ClusterServiceClient::with_origin(client(data_dir.path()), origin);
    clusters.get_info(GetInfoRequest {}).await.unwrap();
    running.shutdown().await;
    let log = std::fs::read_to_string(data_dir.path().join("audit/audit.log")).unwrap();
    let panics = log
        .lines()
        .filter(|line| line.contains("ConversionService/Validate") && line.contains("\"Panic\""));
    assert_eq!(panics.count(), 1, "{log}");
}
