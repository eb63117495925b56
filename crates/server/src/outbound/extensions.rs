//! Requests to extension servers of APIServices: to the targets of webhooks only, over HTTPS, under
//! a certificate that names the workspace.
//!
//! Nothing is read ahead of the client: bodies are streamed, and an answer's head has a limit.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use axum::body::Body;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Request, Response, header};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use insula_api::{Clock, ClusterName, Timestamp};
use insula_apiserver::{ExtensionServers, Unreachable};
use insula_catalog::aggregation::Backend;
use rustls::RootCertStore;
use rustls_pki_types::{CertificateDer, pem::PemObject};

use super::{
    IDLE, IDLE_PER_HOST_MAX, Targets,
    connect::{self, Connector, NoConnection},
    find_cause,
    trust::{AnyServer, BundleVerifier},
};
use crate::identity::FrontProxies;

/// Extension servers whose connections are pooled. More only have to connect again.
const CLIENTS_MAX: usize = 256;
/// Age of a client, and of its certificate, at which it is made anew.
const RENEWAL_SECONDS: i64 = 24 * 3600;
/// Bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Headers of an answer.
const HEADERS_MAX: usize = 100;

type Pooled = Client<Connector, Body>;

/// Parts of an address that connections depend on. Workspaces and bundles share none.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    home: ClusterName,
    ca_bundle: Option<Arc<[u8]>>,
    insecure: bool,
}

/// Client of extension servers.
pub(crate) struct Extensions {
    targets: Arc<Targets>,
    proxies: Arc<FrontProxies>,
    clock: Arc<dyn Clock>,
    roots: OnceLock<Arc<RootCertStore>>,
    clients: Mutex<HashMap<Key, (Pooled, Timestamp)>>,
}

impl Extensions {
    pub(crate) fn new(targets: &Targets, proxies: Arc<FrontProxies>, clock: Arc<dyn Clock>) -> Self {
        Extensions {
            targets: Arc::new(targets.clone()),
            proxies,
            clock,
            roots: OnceLock::new(),
            clients: Mutex::default(),
        }
    }

    fn client(&self, home: &ClusterName, backend: &Backend) -> Result<Pooled, String> {
        let lock = || self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let key = Key {
            home: home.clone(),
            ca_bundle: backend.ca_bundle.clone(),
            insecure: backend.insecure,
        };
        let now = self.clock.now();
        if let Some((client, made)) = lock().get(&key)
            && now.0 - made.0 < RENEWAL_SECONDS
        {
            return Ok(client.clone());
        }
        let connector = Connector::with(Arc::clone(&self.targets), self.tls(home, backend, now)?);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_PER_HOST_MAX)
            .http1_max_buf_size(HEAD_BYTES_MAX)
            .http1_max_headers(HEADERS_MAX)
            .build(connector);
        let mut clients = lock();
        if clients.len() >= CLIENTS_MAX {
            clients.clear();
        }
        clients.insert(key, (client.clone(), now));
        Ok(client)
    }

    fn tls(&self, home: &ClusterName, backend: &Backend, now: Timestamp) -> Result<rustls::ClientConfig, String> {
        let config = match (&backend.ca_bundle, backend.insecure) {
            (None, false) => {
                let roots = self.roots.get_or_init(|| Arc::new(connect::machine_roots()));
                connect::config()?.with_root_certificates(Arc::clone(roots))
            }
            // rustls calls every verifier but its own dangerous.
            (Some(pem), _) => {
                let bundle = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect();
                let verifier = BundleVerifier::new(bundle, connect::provider())?;
                connect::config()?
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(verifier))
            }
            (None, true) => connect::config()?
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyServer(connect::provider()))),
        };
        let shown = self.proxies.certificate(home, now)?;
        config
            .with_client_auth_cert(shown.chain, shown.key)
            .map_err(|error| error.to_string())
    }
}

impl ExtensionServers for Extensions {
    fn send<'a>(
        &'a self,
        home: &'a ClusterName,
        backend: &'a Backend,
        mut request: Request<Body>,
    ) -> BoxFuture<'a, Result<Response<Body>, Unreachable>> {
        const AGENT: &str = concat!("insula/", env!("CARGO_PKG_VERSION"));
        let failed = |message: String| Unreachable {
            message,
            is_unknown: false,
        };
        Box::pin(async move {
            if request.uri().scheme_str() != Some("https") {
                return Err(failed("https is the only scheme that is spoken".to_owned()));
            }
            let client = self.client(home, backend).map_err(failed)?;
            let agent = request.headers_mut().entry(header::USER_AGENT);
            agent.or_insert(HeaderValue::from_static(AGENT));
            match client.request(request).await {
                Ok(response) => Ok(response.map(Body::new)),
                Err(error) => Err(match find_cause(&error) {
                    Some(why) => Unreachable {
                        message: why.to_string(),
                        is_unknown: matches!(why, NoConnection::NoTarget(_)),
                    },
                    None => failed("EOF".to_owned()),
                }),
            }
        })
    }
}
