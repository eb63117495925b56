//! Extension servers for servers to proxy to: HTTPS that demands a certificate of a front proxy,
//! and one kind, Boat of `fleet.example.com/v1`, in memory.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::broadcast,
};
use tokio_rustls::TlsAcceptor;

use crate::{Server, base64, runtime};

/// Group version of the kind.
const API: &str = "fleet.example.com/v1";

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A running extension server; it ends with the program.
pub struct Extension {
    url: String,
    ca_bundle: String,
    state: Arc<State>,
}

struct State {
    /// Part of the common name that a front proxy's certificate must have. Empty for any.
    allowed: Mutex<String>,
    boats: Mutex<BTreeMap<String, Value>>,
    revision: AtomicU64,
    events: broadcast::Sender<String>,
    /// Requests that are never answered.
    hanging: AtomicU64,
    /// Headers of the last request for a path, by path.
    seen: Mutex<BTreeMap<String, HeaderMap>>,
}

impl Extension {
    /// Starts an extension server that trusts the front proxies of a server.
    pub fn start(server: &Server) -> Self {
        let pki = server.data_dir().join("pki");
        let mut front = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(pki.join("front-proxy-ca.crt")).unwrap();
        front.add(ca).unwrap();
        let provider: Arc<_> = rustls::crypto::aws_lc_rs::default_provider().into();
        let verifier = WebPkiClientVerifier::builder_with_provider(front.into(), Arc::clone(&provider));
        let chain = CertificateDer::pem_file_iter(pki.join("server.crt")).unwrap();
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(
                chain.map(Result::unwrap).collect(),
                PrivateKeyDer::from_pem_file(pki.join("server.key")).unwrap(),
            )
            .unwrap();
        let listener = runtime().block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let state = Arc::new(State {
            allowed: Mutex::default(),
            boats: Mutex::default(),
            revision: AtomicU64::new(1),
            events: broadcast::channel(64).0,
            hanging: AtomicU64::new(0),
            seen: Mutex::default(),
        });
        runtime().spawn(accept(listener, TlsAcceptor::from(Arc::new(tls)), Arc::clone(&state)));
        Self {
            url,
            ca_bundle: base64(&std::fs::read(pki.join("ca.crt")).unwrap()),
            state,
        }
    }

    /// Accepts no certificate but that of a common name, as a server that reads the ConfigMap
    /// `extension-apiserver-authentication` does.
    pub fn allow_only(&self, name: &str) {
        name.clone_into(&mut self.state.allowed.lock().unwrap());
    }

    /// Returns the APIService of the kind, with another URL if one is given.
    pub fn api_service(&self, url: Option<&str>) -> Value {
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "v1.fleet.example.com",
                "annotations": {"insula.io/url": url.unwrap_or(&self.url)}},
            "spec": {"group": "fleet.example.com", "version": "v1", "groupPriorityMinimum": 1000,
                "versionPriority": 15, "caBundle": self.ca_bundle,
                "service": {"namespace": "default", "name": "fleet"}},
        })
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the number of requests that were never answered.
    pub fn hanging(&self) -> u64 {
        self.state.hanging.load(Ordering::Relaxed)
    }

    /// Returns the values of a header of the last request for a path.
    pub fn header(&self, path: &str, name: &str) -> Vec<String> {
        let seen = self.state.seen.lock().unwrap();
        let values = seen.get(path).map(|headers| headers.get_all(name).iter());
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        values.into_iter().flatten().map(text).collect()
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, state: Arc<State>) {
    while let Ok((tcp, _)) = listener.accept().await {
        let (acceptor, state) = (acceptor.clone(), Arc::clone(&state));
        tokio::spawn(async move {
            let Ok(tls) = acceptor.accept(tcp).await else { return };
            let shown = tls.get_ref().1.peer_certificates().and_then(<[_]>::first);
            let shown: Arc<[u8]> = shown.map(|shown| shown.as_ref().into()).unwrap_or_default();
            let service = service_fn(move |request| respond(request, Arc::clone(&shown), Arc::clone(&state)));
            // Clients that go away are part of the tests.
            drop(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(tls), service)
                    .with_upgrades()
                    .await,
            );
        });
    }
}

async fn respond(
    request: Request<Incoming>,
    shown: Arc<[u8]>,
    state: Arc<State>,
) -> Result<Response<Body>, Infallible> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let headers = request.headers().clone();
    state.seen.lock().unwrap().insert(path.clone(), headers);
    let allowed = state.allowed.lock().unwrap().clone();
    if !shown
        .windows(allowed.len().max(1))
        .any(|part| part.starts_with(allowed.as_bytes()))
    {
        return Ok(text(401, "this front proxy is not allowed"));
    }
    let objects = format!("/apis/{API}/namespaces/default/boats");
    let query = request.uri().query().unwrap_or_default().to_owned();
    let answer = match path.as_str() {
        "/openapi/v2" => json(200, &openapi_v2()),
        "/openapi/v3" => json(200, &openapi_index()),
        path if path == format!("/openapi/v3/apis/{API}") => json(200, &openapi()),
        path if path == format!("/apis/{API}") => json(200, &discovery()),
        path if path == objects || path == format!("/apis/{API}/boats") => match method {
            Method::GET if query.contains("watch=") => watch(&state),
            Method::GET => list(&state),
            Method::POST => create(request, &state).await,
            _ => text(405, "no"),
        },
        path => match path.strip_prefix(&format!("{objects}/")) {
            Some("hangs") => {
                state.hanging.fetch_add(1, Ordering::Relaxed);
                std::future::pending().await
            }
            Some("elsewhere") => Response::builder()
                .status(302)
                .header(header::LOCATION, "https://127.0.0.1:1/secret")
                .body(Full::default().boxed_unsync())
                .unwrap(),
            Some("endless") => Response::new(zeros()),
            Some("cookie") => {
                let mut answer = json(200, &json!({}));
                let headers = answer.headers_mut();
                headers.insert(header::SET_COOKIE, "a=b".parse().unwrap());
                headers.insert("x-remote-user", "root".parse().unwrap());
                answer
            }
            Some("echo/exec") => upgrade(request),
            Some(name) => object(request, name.to_owned(), &state).await,
            None => text(404, "404 page not found"),
        },
    };
    Ok(answer)
}

fn json(code: u16, value: &Value) -> Response<Body> {
    let mut answer = text(code, &value.to_string());
    let kind = http::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}

fn text(code: u16, body: &str) -> Response<Body> {
    let mut answer = Response::new(Full::from(body.to_owned()).boxed_unsync());
    *answer.status_mut() = StatusCode::from_u16(code).unwrap();
    answer
}

fn zeros() -> Body {
    let zeros = stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(&[b'0'; 4096]))));
    StreamBody::new(zeros).boxed_unsync()
}

fn discovery() -> Value {
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": API, "resources": [
        {"name": "boats", "singularName": "boat", "namespaced": true, "kind": "Boat", "shortNames": ["bo"],
         "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"]},
    ]})
}

fn openapi_index() -> Value {
    json!({"paths": {format!("apis/{API}"): {"serverRelativeURL": format!("/openapi/v3/apis/{API}?hash=ABC123")}}})
}

fn openapi_v2() -> Value {
    let gvk = json!([{"group": "fleet.example.com", "version": "v1", "kind": "Boat"}]);
    let meta = "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    json!({"swagger": "2.0", "info": {"title": "fleet", "version": "v1"},
        "definitions": {"com.example.fleet.v1.Boat": {"type": "object", "description": "A Boat floats.",
            "x-kubernetes-group-version-kind": gvk, "properties": {"metadata": {"$ref": meta},
                "spec": {"type": "object", "properties": {"sails": {"type": "integer"}}}}}},
        "paths": {format!("/apis/{API}/boats"): {"get": {"operationId": "listBoats", "responses": {}}}}})
}

fn openapi() -> Value {
    let gvk = json!({"group": "fleet.example.com", "version": "v1", "kind": "Boat"});
    let text = |words: &str| json!({"type": "string", "description": words});
    let schema = json!({
        "type": "object", "description": "A Boat floats.", "x-kubernetes-group-version-kind": [gvk],
        "properties": {
            "apiVersion": text("The version."), "kind": text("The kind."), "metadata": {"type": "object"},
            "spec": {"type": "object", "description": "The build of the boat.", "properties": {
                "sails": {"type": "integer", "description": "The number of its sails."}}},
        },
    });
    let operation = json!({"patch": {"x-kubernetes-action": "patch", "x-kubernetes-group-version-kind": gvk,
        "parameters": [{"name": "fieldValidation", "in": "query"}, {"name": "dryRun", "in": "query"}]}});
    json!({"openapi": "3.0.0", "info": {"title": "fleet", "version": "v1"},
        "paths": {format!("/apis/{API}/namespaces/{{namespace}}/boats/{{name}}"): operation},
        "components": {"schemas": {"com.example.fleet.v1.Boat": schema}}})
}

fn status(code: u16, reason: &str) -> Response<Body> {
    json(
        code,
        &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code,
            "message": format!("boats: {reason}")}),
    )
}

fn list(state: &State) -> Response<Body> {
    let items: Vec<Value> = state.boats.lock().unwrap().values().cloned().collect();
    let revision = state.revision.load(Ordering::Relaxed).to_string();
    json(
        200,
        &json!({"apiVersion": API, "kind": "BoatList", "metadata": {"resourceVersion": revision}, "items": items}),
    )
}

fn watch(state: &State) -> Response<Body> {
    let known = state
        .boats
        .lock()
        .unwrap()
        .values()
        .map(|boat| event("ADDED", boat))
        .collect::<String>();
    let events = state.events.subscribe();
    let events = stream::unfold((events, Some(known)), |(mut events, first)| async move {
        let text = match first {
            Some(first) => first,
            None => events.recv().await.ok()?,
        };
        Some((Ok(Frame::data(Bytes::from(text))), (events, None)))
    });
    Response::new(StreamBody::new(events).boxed_unsync())
}

fn event(kind: &str, boat: &Value) -> String {
    json!({"type": kind, "object": boat}).to_string() + "\n"
}

fn store(state: &State, name: &str, mut boat: Value) -> Value {
    let revision = state.revision.fetch_add(1, Ordering::Relaxed) + 1;
    let (metadata, uid) = (&mut boat["metadata"], format!("uid-of-{name}"));
    metadata["name"] = json!(name);
    metadata["namespace"] = json!("default");
    metadata["uid"] = json!(uid);
    metadata["resourceVersion"] = json!(revision.to_string());
    metadata["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    let old = state.boats.lock().unwrap().insert(name.to_owned(), boat.clone());
    let kind = if old.is_some() { "MODIFIED" } else { "ADDED" };
    // Nobody may be watching.
    let _ = state.events.send(event(kind, &boat));
    boat
}

async fn body_of(request: Request<Incoming>) -> Value {
    let body = request.into_body().collect().await.map(|body| body.to_bytes());
    let body = body.unwrap_or_default();
    serde_json::from_slice(&body)
        .or_else(|_| serde_saphyr::from_slice(&body))
        .unwrap_or_default()
}

async fn create(request: Request<Incoming>, state: &State) -> Response<Body> {
    let boat = body_of(request).await;
    let name = boat["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    json(201, &store(state, &name, boat))
}

async fn object(request: Request<Incoming>, name: String, state: &State) -> Response<Body> {
    let known = state.boats.lock().unwrap().get(&name).cloned();
    match (request.method().clone(), known) {
        (Method::GET, Some(boat)) => json(200, &boat),
        (Method::PATCH, known) => {
            let is_apply = request.headers()[header::CONTENT_TYPE] == "application/apply-patch+yaml";
            if !is_apply {
                return status(415, "UnsupportedMediaType");
            }
            let boat = body_of(request).await;
            let code = if known.is_some() { 200 } else { 201 };
            json(code, &store(state, &name, boat))
        }
        (Method::DELETE, Some(boat)) => {
            state.boats.lock().unwrap().remove(&name);
            let _ = state.events.send(event("DELETED", &boat));
            json(200, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
        }
        _ => status(404, "NotFound"),
    }
}

/// Answers with the protocol that is asked for, and repeats what it gets.
fn upgrade(mut request: Request<Incoming>) -> Response<Body> {
    let protocol = request.headers().get(header::UPGRADE).cloned();
    let Some(protocol) = protocol else {
        return text(400, "no upgrade");
    };
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgraded.await else { return };
        let mut stream = TokioIo::new(upgraded);
        let mut buffer = [0; 256];
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            if stream.write_all(&buffer[..read]).await.is_err() {
                return;
            }
        }
    });
    Response::builder()
        .status(101)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, protocol)
        .body(Full::default().boxed_unsync())
        .unwrap()
}
