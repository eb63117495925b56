//! A client that exposes codes, headers, bodies and watch events.

use std::{path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request, header};
use http_body_util::{BodyExt, Full};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::Value;

use crate::{
    PATIENCE, runtime,
    transport::{InProcess, Transport},
};

/// The identity of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// The certificate of the contexts `base` and `root`.
    KcpAdmin,
    /// The certificate of the context `system:admin`.
    ShardAdmin,
    /// A bearer token.
    Token(String),
    /// No credential.
    Anonymous,
}

/// A client of one server with one identity.
#[derive(Clone)]
pub struct Client {
    pub(crate) transport: Transport,
    url: String,
    token: Option<String>,
}

/// A response with its body.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub code: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// The body as JSON; null if it is none.
    pub body: Value,
    /// The body as text.
    pub text: String,
    /// The body as bytes.
    pub bytes: Bytes,
}

impl Answer {
    /// Asserts the status code and returns the body.
    #[track_caller]
    pub fn expect(self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}", self.text);
        self.body
    }
}

/// Returns TLS settings that trust the server of a data directory, with the credential of an
/// identity.
pub fn tls(data_dir: &Path, who: &Who) -> ClientConfig {
    let pki = data_dir.join("pki");
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(pki.join("ca.crt")).unwrap())
        .unwrap();
    let provider = rustls::crypto::aws_lc_rs::default_provider().into();
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = builder.with_root_certificates(roots);
    let name = match who {
        Who::KcpAdmin => "kcp-admin",
        Who::ShardAdmin => "shard-admin",
        Who::Token(_) | Who::Anonymous => return builder.with_no_client_auth(),
    };
    let chain = CertificateDer::pem_file_iter(pki.join(format!("{name}.crt"))).unwrap();
    let key = PrivateKeyDer::from_pem_file(pki.join(format!("{name}.key"))).unwrap();
    builder
        .with_client_auth_cert(chain.map(Result::unwrap).collect(), key)
        .unwrap()
}

impl Client {
    /// Returns a client of the server at `url` that trusts the CA of a data directory and shows a
    /// certificate of it.
    pub fn new(url: &str, data_dir: &Path, who: Who) -> Self {
        let transport = Transport::https(&tls(data_dir, &who));
        Self::over(transport, url, who)
    }

    /// Returns a client of a server in this process. `url` is the URL that the server tells.
    pub fn in_process(server: Arc<dyn InProcess>, url: &str, who: Who) -> Self {
        let known = who.clone();
        Self::over(Transport::Call { server, who: known }, url, who)
    }

    fn over(transport: Transport, url: &str, who: Who) -> Self {
        let token = match who {
            Who::Token(token) => Some(token),
            Who::KcpAdmin | Who::ShardAdmin | Who::Anonymous => None,
        };
        Self {
            transport,
            url: url.to_owned(),
            token,
        }
    }

    /// Returns a client of the same server, below a path: `/clusters/root:a`.
    pub fn below(&self, path: &str) -> Self {
        Self {
            url: format!("{}{path}", self.url),
            ..self.clone()
        }
    }

    /// Returns the same client over HTTP/1.1 alone.
    pub fn over_http1(&self) -> Self {
        Self {
            transport: self.transport.over_http1(),
            ..self.clone()
        }
    }

    /// Returns a client of the same server, inside a workspace.
    pub fn in_workspace(&self, workspace: &str) -> Self {
        self.below(&format!("/clusters/{workspace}"))
    }

    /// Sends any request.
    pub fn try_send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Bytes) -> Result<Answer, String> {
        self.exchange(self.request(method, path, headers, body)?)
    }

    /// Sends any request, with headers that need not be text.
    #[track_caller]
    pub fn send_bytes(&self, method: &str, path: &str, headers: &[(&str, &[u8])], body: Bytes) -> Answer {
        let mut request = self.request(method, path, &[], body).unwrap();
        for (name, value) in headers {
            let name: header::HeaderName = name.parse().unwrap();
            let value = header::HeaderValue::from_bytes(value).unwrap();
            match name {
                header::CONTENT_TYPE => drop(request.headers_mut().insert(name, value)),
                _ => drop(request.headers_mut().append(name, value)),
            }
        }
        self.exchange(request)
            .unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer, String> {
        let line = format!("{} {}", request.method(), request.uri().path());
        runtime().block_on(async {
            let exchange = async {
                let (head, body) = self.transport.send(request).await?.into_parts();
                let bytes = body.collect().await?.to_bytes();
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let body = serde_json::from_str(&text).unwrap_or_default();
                Ok(Answer {
                    code: head.status.as_u16(),
                    headers: head.headers,
                    body,
                    text,
                    bytes,
                })
            };
            let answered = tokio::time::timeout(PATIENCE, exchange).await;
            answered.unwrap_or_else(|_| Err(format!("{line}: no answer within {PATIENCE:?}")))
        })
    }

    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, String> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        let given = |name: header::HeaderName| {
            headers
                .iter()
                .any(|(given, _)| given.eq_ignore_ascii_case(name.as_str()))
        };
        if !given(header::ACCEPT) {
            request = request.header(header::ACCEPT, "application/json");
        }
        if !given(header::CONTENT_TYPE) && !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let (Some(token), false) = (&self.token, given(header::AUTHORIZATION)) {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request
            .body(Full::new(body))
            .map_err(|error| format!("{path}: {error}"))
    }

    #[track_caller]
    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Answer {
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        self.try_send(method, path, headers, body)
            .unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Sends a GET.
    #[track_caller]
    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], None)
    }

    /// Sends a GET with headers.
    #[track_caller]
    pub fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send("GET", path, headers, None)
    }

    /// Sends a POST.
    #[track_caller]
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[], Some(body))
    }

    /// Sends a PUT.
    #[track_caller]
    pub fn put(&self, path: &str, body: &Value) -> Answer {
        self.send("PUT", path, &[], Some(body))
    }

    /// Sends a merge patch.
    #[track_caller]
    pub fn merge(&self, path: &str, body: &Value) -> Answer {
        self.send(
            "PATCH",
            path,
            &[("content-type", "application/merge-patch+json")],
            Some(body),
        )
    }

    /// Sends a DELETE.
    #[track_caller]
    pub fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, &[], None)
    }

    /// Opens a watch and passes each event to `look` until it returns a value. Returns None if
    /// [`PATIENCE`] or the stream ends first.
    pub fn watch<T>(&self, path: &str, mut look: impl FnMut(Value) -> Option<T>) -> Option<T> {
        self.watch_for(PATIENCE, path, &mut look)
    }

    /// Watches like [`Client::watch`], for a given time.
    pub fn watch_for<T>(&self, time: Duration, path: &str, look: &mut dyn FnMut(Value) -> Option<T>) -> Option<T> {
        self.watch_with(time, path, &[], look)
    }

    /// Watches like [`Client::watch_for`], with headers.
    pub fn watch_with<T>(
        &self,
        time: Duration,
        path: &str,
        headers: &[(&str, &str)],
        look: &mut dyn FnMut(Value) -> Option<T>,
    ) -> Option<T> {
        let request = self.request("GET", path, headers, Bytes::new()).unwrap();
        let read = async {
            let response = self.transport.send(request).await.unwrap();
            let code = response.status().as_u16();
            let mut body = response.into_body();
            let mut rest = Vec::new();
            while let Some(frame) = body.frame().await {
                rest.extend_from_slice(frame.ok()?.data_ref().map(Bytes::as_ref).unwrap_or_default());
                while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = rest.drain(..=end).collect();
                    let event = serde_json::from_slice(&line).unwrap_or_else(|_| String::from_utf8_lossy(&line).into());
                    if let Some(enough) = look(event) {
                        return Some(enough);
                    }
                }
            }
            // An answer that is no stream ends without a newline.
            let text = String::from_utf8_lossy(&rest).into_owned();
            assert_eq!(code, 200, "{path}: {text}");
            None
        };
        runtime().block_on(async { tokio::time::timeout(time, read).await.ok().flatten() })
    }
}
