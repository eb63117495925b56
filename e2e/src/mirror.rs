//! A server for mounts. It authenticates the server that forwards a request by its client
//! certificate, and answers with the request it received.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::{Server, runtime};

/// Starts one that trusts a server's CA and returns its URL. It ends with the program.
pub fn mirror(server: &Server) -> String {
    let pki = server.data_dir().join("pki");
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(pki.join("ca.crt")).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .unwrap();
    let chain = CertificateDer::pem_file_iter(pki.join("server.crt")).unwrap();
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            chain.map(Result::unwrap).collect(),
            PrivateKeyDer::from_pem_file(pki.join("server.key")).unwrap(),
        )
        .unwrap();
    let listener = runtime().block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    runtime().spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(tls) = acceptor.accept(tcp).await else { return };
                let connection = hyper::server::conn::http1::Builder::new();
                drop(connection.serve_connection(TokioIo::new(tls), service_fn(show)).await);
            });
        }
    });
    url
}

async fn show(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let mut headers = Map::new();
    for (name, value) in &head.headers {
        let known = headers.entry(name.as_str()).or_insert_with(|| json!([]));
        known.as_array_mut().unwrap().push(json!(value.to_str().unwrap()));
    }
    let seen: Value = json!({
        "method": head.method.as_str(), "path": head.uri.to_string(), "headers": headers,
        "body": String::from_utf8_lossy(&body),
    });
    let answer = Response::builder()
        .status(207)
        .header("content-type", "application/json")
        .header("set-cookie", "stolen=1")
        .header("location", "https://elsewhere.example");
    Ok(answer.body(Full::new(seen.to_string().into())).unwrap())
}
