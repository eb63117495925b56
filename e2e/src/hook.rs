//! Webhooks for servers to call: HTTPS with a certificate of the server's own CA, and answers that
//! the test chooses.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::{Server, runtime};

/// Behaviour of a webhook for one request.
pub enum Reply {
    /// 200 with this body.
    Json(Value),
    /// 200 with a body of this many bytes.
    Bytes(usize),
    /// A status code with a `Location` header.
    Elsewhere(u16, String),
    /// No answer at all.
    Hang,
}

/// A running webhook; it ends with the program.
pub struct Hook {
    url: String,
    ca_bundle: String,
    seen: Arc<Mutex<Vec<(String, Value)>>>,
    heads: Heads,
}

/// Headers of requests by path.
type Heads = Arc<Mutex<Vec<(String, HeaderMap)>>>;

impl Hook {
    /// Starts a webhook that answers requests by their path and body.
    pub fn start(server: &Server, answer: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static) -> Self {
        let pki = server.data_dir().join("pki");
        let chain = CertificateDer::pem_file_iter(pki.join("server.crt")).unwrap();
        let key = PrivateKeyDer::from_pem_file(pki.join("server.key")).unwrap();
        let ca = std::fs::read(pki.join("ca.crt")).unwrap();
        Self::with_certificate(chain.map(Result::unwrap).collect(), key, &ca, answer)
    }

    /// Starts a webhook whose certificate is its own certificate authority, as `openssl req -x509`
    /// makes it.
    pub fn self_signed(answer: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static) -> Self {
        let mut params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let key_der = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let chain = vec![certificate.der().clone()];
        Self::with_certificate(chain, key_der, certificate.pem().as_bytes(), answer)
    }

    fn with_certificate(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        ca: &[u8],
        answer: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let provider = rustls::crypto::aws_lc_rs::default_provider().into();
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let listener = runtime().block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let heads = Heads::default();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let records = (Arc::clone(&seen), Arc::clone(&heads));
        runtime().spawn(accept(listener, acceptor, Arc::new(answer), records));
        Self {
            url,
            ca_bundle: base64(ca),
            seen,
            heads,
        }
    }

    /// Returns the headers of all requests that a path received.
    pub fn headers(&self, path: &str) -> Vec<HeaderMap> {
        let heads = self.heads.lock().unwrap();
        let here = heads.iter().filter(|(at, _)| at == path);
        here.map(|(_, headers)| headers.clone()).collect()
    }

    /// Returns the URL of the webhook.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the `clientConfig` of a definition or webhook configuration for a path.
    pub fn client_config(&self, path: &str) -> Value {
        serde_json::json!({"url": format!("{}{path}", self.url), "caBundle": self.ca_bundle})
    }

    /// Takes the requests that a path received so far.
    pub fn take(&self, path: &str) -> Vec<Value> {
        let mut seen = self.seen.lock().unwrap();
        let (here, others) = std::mem::take(&mut *seen).into_iter().partition(|(at, _)| at == path);
        *seen = others;
        let here: Vec<(String, Value)> = here;
        here.into_iter().map(|(_, body)| body).collect()
    }
}

type Records = (Arc<Mutex<Vec<(String, Value)>>>, Heads);

type Answer = dyn Fn(&str, &Value) -> Reply + Send + Sync;

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, answer: Arc<Answer>, records: Records) {
    while let Ok((tcp, _)) = listener.accept().await {
        let (acceptor, answer, records) = (acceptor.clone(), Arc::clone(&answer), records.clone());
        tokio::spawn(async move {
            let Ok(tls) = acceptor.accept(tcp).await else { return };
            let service = service_fn(move |request| respond(request, Arc::clone(&answer), records.clone()));
            // Tests also cover callers that time out and disconnect.
            drop(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(tls), service)
                    .await,
            );
        });
    }
}

async fn respond(
    request: Request<Incoming>,
    answer: Arc<Answer>,
    (seen, heads): Records,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    heads.lock().unwrap().push((path.clone(), request.headers().clone()));
    let body = request.into_body().collect().await.map(|body| body.to_bytes());
    let body: Value = serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default();
    let reply = answer(&path, &body);
    seen.lock().unwrap().push((path, body));
    let response = Response::builder();
    Ok(match reply {
        Reply::Json(value) => response.body(Full::new(value.to_string().into())),
        Reply::Bytes(count) => response.body(Full::new(vec![b' '; count].into())),
        Reply::Elsewhere(code, place) => response
            .status(code)
            .header(header::LOCATION, place)
            .body(Full::default()),
        Reply::Hang => std::future::pending().await,
    }
    .unwrap())
}

/// Bytes in base64.
pub fn base64(bytes: &[u8]) -> String {
    data_encoding::BASE64.encode(bytes)
}

/// Bytes of a text in base64.
pub fn from_base64(text: &str) -> Vec<u8> {
    data_encoding::BASE64.decode(text.as_bytes()).unwrap()
}
