//! Extension servers that break the rules of HTTP: their answers are bytes, and may never end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Builder,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::base64;

/// Behaviour after the first bytes of an answer.
pub enum Then {
    /// Closes the connection.
    Close,
    /// Drops the connection, without the end of TLS.
    Drop,
    /// Waits for the next request.
    Stay,
    /// Sends bytes again and again, with a pause.
    Repeat(Vec<u8>, Duration),
    /// Says nothing more.
    Hang,
}

type Script = Arc<dyn Fn(&str) -> (Vec<u8>, Then) + Send + Sync>;

/// A running extension server; it ends with the program.
pub struct Hostile {
    url: String,
    ca_bundle: String,
    requests: Arc<AtomicU64>,
}

impl Hostile {
    /// Starts a server whose certificate has a name, and which answers each path as a script says.
    pub fn start(name: &str, script: impl Fn(&str) -> (Vec<u8>, Then) + Send + Sync + 'static) -> Self {
        let mut params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let tls = rustls::ServerConfig::builder_with_provider(rustls::crypto::aws_lc_rs::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let requests = Arc::<AtomicU64>::default();
        let (acceptor, counted, script) = (
            TlsAcceptor::from(Arc::new(tls)),
            Arc::clone(&requests),
            Arc::new(script) as Script,
        );
        let serve = async move {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, counted, script) = (acceptor.clone(), Arc::clone(&counted), Arc::clone(&script));
                tokio::spawn(async move {
                    if let Ok(tls) = acceptor.accept(tcp).await {
                        // Proxies that hang up are part of the tests.
                        drop(converse(tls, &counted, &script).await);
                    }
                });
            }
        };
        // A thread of its own: no other test can keep it from hanging up.
        thread::spawn(move || {
            Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap()
                .block_on(serve)
        });
        Self {
            url,
            ca_bundle: base64(certificate.pem().as_bytes()),
            requests,
        }
    }

    /// Returns `https://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the number of requests so far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Returns the APIService of version v1 of a group.
    pub fn api_service(&self, group: &str) -> Value {
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("v1.{group}"), "annotations": {"insula.io/url": self.url}},
            "spec": {"group": group, "version": "v1", "groupPriorityMinimum": 20_000, "versionPriority": 1000,
                "caBundle": self.ca_bundle, "service": {"namespace": "default", "name": "hostile"}},
        })
    }

    /// Returns an answer in JSON.
    pub fn json(value: &Value) -> (Vec<u8>, Then) {
        let (body, kind) = (value.to_string(), "content-type: application/json");
        let length = body.len();
        let text = format!("HTTP/1.1 200 OK\r\n{kind}\r\ncontent-length: {length}\r\n\r\n{body}");
        (text.into_bytes(), Then::Stay)
    }
}

async fn converse(mut tls: TlsStream<TcpStream>, requests: &AtomicU64, script: &Script) -> std::io::Result<()> {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(tls.read_u8().await?);
        }
        requests.fetch_add(1, Ordering::Relaxed);
        let head = String::from_utf8_lossy(&head);
        let (first, then) = script(head.split(' ').nth(1).unwrap_or_default());
        tls.write_all(&first).await?;
        tls.flush().await?;
        match then {
            Then::Close => return tls.shutdown().await,
            Then::Drop => return Ok(()),
            Then::Stay => {}
            Then::Hang => {
                // Until the other side hangs up.
                while tls.read(&mut [0; 256]).await? > 0 {}
                return Ok(());
            }
            Then::Repeat(bytes, pause) => loop {
                tls.write_all(&bytes).await?;
                tls.flush().await?;
                tokio::time::sleep(pause).await;
            },
        }
    }
}
