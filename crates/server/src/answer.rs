//! A small HTTPS server around one function, for tools that answer other servers. Same port, limits
//! and end as the big one: no store, no identity of its own.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use insula_apiserver::fair_share::FairShare;
use tokio::{net::TcpListener, sync::Semaphore};

use crate::{
    StartError, VERSION,
    build::cores,
    config::Limits,
    lifecycle::Lifecycle,
    listen,
    metrics::Metrics,
    priority::PriorityRuntimes,
    rotating::Files,
    run::{Signals, resolve},
    tls,
};

/// For requests in flight when it ends.
const DRAIN: Duration = Duration::from_secs(10);

/// Where to answer, and as whom.
#[derive(Debug, Clone)]
pub struct Answering {
    /// Address and port.
    pub listen: String,
    /// The certificate, and those up to its CA, as PEM.
    pub certificate: PathBuf,
    /// Its key, as PEM.
    pub key: PathBuf,
    /// Bytes of a request at most.
    pub body_bytes: usize,
}

/// What makes an answer of a request. It may take its time: it has a thread of its own.
pub type Answer = dyn Fn(Request<Bytes>) -> Response<Bytes> + Send + Sync;

/// What happens while it answers.
#[derive(Debug)]
pub enum Told {
    /// It answers here.
    Ready(SocketAddr),
    /// The files of the certificate changed; who connects from now on is shown the new one.
    Renewed,
    /// They changed, to what cannot be used. The certificate before is shown on.
    NotRenewed(StartError),
}

/// Answers until SIGTERM or SIGINT, then drains.
///
/// # Errors
/// The address, or the certificate.
pub async fn answer(settings: Answering, answer: Arc<Answer>, tell: impl Fn(Told)) -> Result<(), StartError> {
    let mut stop = Signals::listen()?;
    let (files, shown) = Files::open(settings.certificate.clone(), settings.key)?;
    let tls = tls::plain_config(Arc::clone(&shown)).map_err(|error| tls::wrong(&settings.certificate, &error))?;
    let address = resolve(&settings.listen).await?;
    let cannot = |cause| StartError::Listen { address, cause };
    let listener = TcpListener::bind(address).await.map_err(cannot)?;
    tell(Told::Ready(listener.local_addr().map_err(cannot)?));
    let lifecycle = Lifecycle::default();
    let server = listen::Server {
        listener,
        tls: Arc::new(tls),
        answer: bounded(answer, settings.body_bytes),
        limits: Limits::default(),
        runtimes: PriorityRuntimes::new(cores(), FairShare::new(cores(), 100)),
        lifecycle: lifecycle.clone(),
        metrics: Arc::new(Metrics::new(VERSION, None)),
        drain: DRAIN,
    };
    let serving = listen::serve(server);
    tokio::pin!(serving);
    let renewing = files.follow(&shown, |news| {
        tell(match news {
            Ok(()) => Told::Renewed,
            Err(error) => Told::NotRenewed(error),
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
    // As many at once as there are cores: more would only wait for each other, with their bodies in
    // memory.
    let turns = Arc::new(Semaphore::new(cores()));
    Arc::new(move |request: Request<Body>| {
        let (answer, turns) = (Arc::clone(&answer), Arc::clone(&turns));
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let Ok(_turn) = turns.acquire_owned().await else {
                return Ok(plain(StatusCode::SERVICE_UNAVAILABLE));
            };
            let Ok(body) = Limited::new(body, body_bytes).collect().await else {
                return Ok(plain(StatusCode::PAYLOAD_TOO_LARGE));
            };
            let request = Request::from_parts(parts, body.to_bytes());
            Ok(match tokio::task::spawn_blocking(move || answer(request)).await {
                Ok(response) => response.map(|body| Body::new(Full::new(body))),
                Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR),
            })
        })
    })
}

fn plain(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = code;
    response
}
