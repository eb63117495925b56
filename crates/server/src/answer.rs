//! A small HTTPS server around one function, for tools that answer other servers. It has the port,
//! limits and shutdown of the API server, without a store and an identity of its own.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use insula_edge::{
    guard::fair_share::FairShare,
    port::{
        Lifecycle, PriorityRuntimes,
        listen::{self, Server},
        tls::CurrentTls,
    },
};
use tokio::{net::TcpListener, sync::Semaphore};

use crate::{
    StartError, VERSION,
    build::cores,
    config::Limits,
    metrics::Metrics,
    rotating::{self, Files},
    run::{Signals, resolve},
    tls,
};

/// Time for requests in flight at the end.
const DRAIN: Duration = Duration::from_secs(10);

/// Settings of the server: its address and its certificate.
#[derive(Debug, Clone)]
pub struct Answering {
    /// Address and port.
    pub listen: String,
    /// PEM file of the certificate, with those up to its CA.
    pub certificate: PathBuf,
    /// PEM file of its key.
    pub key: PathBuf,
    /// Bytes of a request body at most.
    pub body_bytes: usize,
}

/// Function that answers a request. It may block: it runs on a thread of its own.
pub type Answer = dyn Fn(Request<Bytes>) -> Response<Bytes> + Send + Sync;

/// Event of a running server.
#[derive(Debug)]
pub enum ServingEvent {
    /// The server answers at this address.
    Ready(SocketAddr),
    /// The files of the certificate changed; new connections get the new certificate.
    Renewed,
    /// The files changed and cannot be used. New connections still get the previous certificate.
    NotRenewed(StartError),
}

/// Answers until SIGTERM or SIGINT, then drains.
///
/// # Errors
/// Fails when the address cannot be bound or the certificate cannot be used.
pub async fn answer(settings: Answering, answer: Arc<Answer>, tell: impl Fn(ServingEvent)) -> Result<(), StartError> {
    let mut stop = Signals::listen()?;
    let (files, shown) = Files::open(settings.certificate.clone(), settings.key)?;
    let tls = tls::plain_config(Arc::clone(&shown)).map_err(|error| rotating::wrong(&settings.certificate, &error))?;
    let address = resolve(&settings.listen).await?;
    let cannot = |cause| StartError::Listen { address, cause };
    let listener = TcpListener::bind(address).await.map_err(cannot)?;
    tell(ServingEvent::Ready(listener.local_addr().map_err(cannot)?));
    let lifecycle = Lifecycle::default();
    let server = Server {
        listener,
        tls: Arc::new(CurrentTls::new(tls)),
        answer: bounded(answer, settings.body_bytes),
        limits: Limits::default().of_connections(),
        runtimes: PriorityRuntimes::new(cores(), FairShare::new(cores(), 100)),
        lifecycle: lifecycle.clone(),
        metrics: Arc::new(Metrics::new(VERSION)),
        drain: DRAIN,
    };
    let serving = listen::serve(server);
    tokio::pin!(serving);
    let renewing = files.follow(&shown, |news| {
        tell(match news {
            Ok(()) => ServingEvent::Renewed,
            Err(error) => ServingEvent::NotRenewed(error),
        });
    });
    tokio::select! {
        () = serving.as_mut() => {}
        never = renewing => match never {},
        () = stop.next() => {
            lifecycle.set_closing();
            serving.await;
        }
    }
    Ok(())
}

fn bounded(answer: Arc<Answer>, body_bytes: usize) -> listen::Answer {
    // One request for each core at once: more would only wait for each other, with their bodies in
    // memory.
    let turns = Arc::new(Semaphore::new(cores()));
    Arc::new(move |request: Request<Body>, _| {
        let (answer, turns) = (Arc::clone(&answer), Arc::clone(&turns));
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let Ok(_turn) = turns.acquire_owned().await else {
                return plain(StatusCode::SERVICE_UNAVAILABLE).into();
            };
            let Ok(body) = Limited::new(body, body_bytes).collect().await else {
                return plain(StatusCode::PAYLOAD_TOO_LARGE).into();
            };
            let request = Request::from_parts(parts, body.to_bytes());
            let response = match tokio::task::spawn_blocking(move || answer(request)).await {
                Ok(response) => response.map(|body| Body::new(Full::new(body))),
                Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR),
            };
            response.into()
        })
    })
}

fn plain(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = code;
    response
}
