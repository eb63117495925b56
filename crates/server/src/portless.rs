//! A server without a port, for programs that ask it in their own process, such as tests.
//!
//! Everything behind the TLS handshake is that of [`start`](crate::start): the edge, the same
//! authenticators and authorizers, the controllers. Connections, their limits and their shares of
//! threads are missing.

use std::{net::SocketAddr, sync::Arc};

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use insula_edge::port::{
    Answered, Lifecycle, ObservedBody, PriorityRuntimes,
    listen::{Answer, PeerFacts},
    tls::CurrentTls,
};
use rustls_pki_types::CertificateDer;
use tokio::task::JoinHandle;

use crate::{Additions, Env, StartError, config::Config, progress::Progress, starting::Starting, telemetry::Telemetry};

/// A running server without a port. Dropping this does not stop it.
pub struct Portless {
    address: SocketAddr,
    url: String,
    answer: Answer,
    tls: Arc<CurrentTls>,
    runtimes: Arc<PriorityRuntimes>,
    lifecycle: Lifecycle,
    served: JoinHandle<()>,
}

impl Portless {
    /// Starts a server as [`start_with`](crate::start_with) does, but binds no port. The address of
    /// the settings is part of the URLs that the server tells, and nothing else.
    ///
    /// # Errors
    /// Fails as the start of a server does, except for its port.
    pub async fn start(
        config: Config,
        env: Env,
        additions: Additions,
        progress: Progress<'_>,
    ) -> Result<Self, StartError> {
        let starting = Starting::open(config, env, additions, progress).await?;
        let store = Arc::clone(&starting.store);
        let started = Self::begin(starting, progress).await;
        if started.is_err() {
            store.close().await;
        }
        started
    }

    async fn begin(mut starting: Starting, progress: Progress<'_>) -> Result<Self, StartError> {
        let identified = starting.identify().await?;
        let address = identified.listen;
        let telemetry = Telemetry::default();
        let assembled = starting.assemble(identified, address, (progress, &telemetry)).await?;
        let lifecycle = assembled.lifecycle.clone();
        let (url, answer) = (assembled.url.clone(), Arc::clone(&assembled.answer));
        let (tls, runtimes) = (Arc::clone(&assembled.tls), Arc::clone(&assembled.runtimes));
        let ends = lifecycle.clone();
        let served = assembled.begin(async move {
            ends.closing().await;
            ends.set_gone();
        });
        Ok(Portless {
            address,
            url,
            answer,
            tls,
            runtimes,
            lifecycle,
            served,
        })
    }

    /// Returns the URL that the server tells: `https://127.0.0.1:6443`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Answers a request of a peer that shows a chain of certificates, or none. A handshake would
    /// have verified the chain; here the caller vouches for it.
    pub async fn answer<B>(&self, chain: &[CertificateDer<'_>], request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let mut request = request.map(Body::new);
        let facts = PeerFacts::new(
            &self.tls.get(),
            chain,
            self.address,
            (&self.runtimes, self.runtimes.meter()),
        );
        let arrival = facts.arrival(&mut request);
        let Answered { response, held, .. } = (self.answer)(request, arrival).await;
        match held {
            Some(held) => response.map(|body| ObservedBody::wrap(body, held)),
            None => response,
        }
    }

    /// Stops the server at once. Returns when the store is closed.
    pub async fn shutdown(self) {
        self.lifecycle.set_draining();
        self.lifecycle.set_closing();
        if let Err(error) = self.served.await {
            tracing::error!(%error, "the server did not end cleanly");
        }
    }
}
