//! Start, service and shutdown of a server.
//!
//! [`start`] returns a running server, for programs that use it; [`run`] is the whole life of a
//! server program, with progress lines and signals.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use insula_edge::port::{
    ConnectionLimits, Lifecycle, descriptors,
    listen::{self, Server},
};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::oneshot,
    task::JoinHandle,
};

use crate::{
    Additions, Env, StartError,
    config::{Config, Limits, LogFormat},
    files, housekeeping,
    notify::Manager,
    progress::{self, Progress, Step},
    starting::Starting,
    telemetry::{self, Telemetry},
};

/// Exit code of a process that gets a second signal: 128 + SIGINT, as in shells.
const IMPATIENT_EXIT_CODE: i32 = 130;

/// A running server. Dropping this does not stop it.
pub struct Running {
    address: SocketAddr,
    url: String,
    kubeconfig: PathBuf,
    lifecycle: Lifecycle,
    delay: Duration,
    served: JoinHandle<()>,
    failed: Option<oneshot::Receiver<String>>,
}

impl Running {
    /// Returns the address that the server listens on, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL under which clients reach the server: `https://127.0.0.1:6443`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the absolute path of the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Waits until the store can never be used again, and returns the reason.
    pub async fn store_failed(&mut self) -> String {
        match &mut self.failed {
            Some(failed) => match failed.await {
                Ok(reason) => reason,
                // The store was closed.
                Err(_) => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }

    /// Stops the server: readiness fails at once, then no connection is accepted, then requests in
    /// flight get their time to end. Returns when everything is on disk and closed.
    pub async fn shutdown(self) {
        self.lifecycle.set_draining();
        tokio::time::sleep(self.delay).await;
        self.lifecycle.set_closing();
        if let Err(error) = self.served.await {
            tracing::error!(%error, "the server did not end cleanly");
        }
    }
}

/// Opens everything and serves. The directory of the store is locked before any file of another
/// running server could be changed.
pub async fn start(config: Config, env: Env, progress: Progress<'_>) -> Result<Running, StartError> {
    start_with(config, env, Additions::default(), progress).await
}

/// Opens everything and serves, with the parts that the program adds.
pub async fn start_with(
    config: Config,
    env: Env,
    additions: Additions,
    progress: Progress<'_>,
) -> Result<Running, StartError> {
    Box::pin(start_measured(
        config,
        env,
        additions,
        (progress, &Telemetry::default()),
    ))
    .await
}

async fn start_measured(
    config: Config,
    env: Env,
    additions: Additions,
    (progress, telemetry): (Progress<'_>, &Telemetry),
) -> Result<Running, StartError> {
    if !config.data_dir.exists() {
        // A new server, which no other one can be in the way of: an address that is taken or not of
        // this machine is refused before the directory is made.
        bind(resolve(&config.listen).await?).await?;
    }
    let starting = Starting::open(config, env, additions, progress).await?;
    let store = Arc::clone(&starting.store);
    let started = serve(starting, progress, telemetry).await;
    if started.is_err() {
        // Releases the directory: the program may retry with another port.
        store.close().await;
    }
    started
}

/// Opens the port, and serves on it.
async fn serve(mut starting: Starting, progress: Progress<'_>, telemetry: &Telemetry) -> Result<Running, StartError> {
    let begun = starting.begun;
    let identified = starting.identify().await?;
    let (listener, address) = bind(identified.listen).await?;
    let mut assembled = starting.assemble(identified, address, (progress, telemetry)).await?;
    let config = Arc::clone(&assembled.config);
    let server = Server {
        listener,
        tls: Arc::clone(&assembled.tls),
        answer: Arc::clone(&assembled.answer),
        limits: possible(&config.limits),
        runtimes: Arc::clone(&assembled.runtimes),
        lifecycle: assembled.lifecycle.clone(),
        metrics: assembled.metrics.clone(),
        drain: Duration::from_secs(config.drain_seconds),
    };
    let (url, kubeconfig) = (assembled.url.clone(), assembled.kubeconfig.clone());
    let (lifecycle, failed) = (assembled.lifecycle.clone(), assembled.failed.take());
    let served = assembled.begin(listen::serve(server));
    announce(progress, &url, config.external_url.is_some().then_some(address), begun);
    Ok(Running {
        address,
        url,
        kubeconfig,
        lifecycle,
        delay: Duration::from_secs(config.shutdown_delay_seconds),
        served,
        failed,
    })
}

/// Reports the last steps: the address if the URL does not have it, and the URL.
fn announce(progress: Progress<'_>, url: &str, address: Option<SocketAddr>, begun: Instant) {
    if let Some(address) = address {
        progress(&listening(address, begun));
    }
    progress(&ready(url, begun));
}

/// Returns the step that names the port, where the URL of the server does not.
fn listening(address: SocketAddr, begun: Instant) -> Step {
    Step {
        name: "listen",
        what: "listening",
        detail: address.to_string(),
        took: begun.elapsed(),
    }
}

/// Returns the last step of a start.
fn ready(url: &str, begun: Instant) -> Step {
    Step {
        name: "ready",
        what: "API",
        detail: url.to_owned(),
        took: begun.elapsed(),
    }
}

/// Binds the port. Returns the listener and its address, with the real port.
async fn bind(listen: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let unusable = |cause| StartError::Listen { address: listen, cause };
    let listener = TcpListener::bind(listen).await.map_err(unusable)?;
    let address = listener.local_addr().map_err(unusable)?;
    Ok((listener, address))
}

/// Returns limits with as many connections as the process may have.
fn possible(limits: &Limits) -> ConnectionLimits {
    ConnectionLimits {
        connections: descriptors::connections(limits.connections),
        ..limits.of_connections()
    }
}

/// Runs a server program: starts with progress on standard error, serves until SIGTERM or SIGINT,
/// drains. A second signal ends the process at once.
pub async fn run(config: Config, env: Env) -> Result<(), StartError> {
    run_with(config, env, Additions::default()).await
}

/// Runs a server program as [`run`] does, with the parts that the program adds.
pub async fn run_with(config: Config, env: Env, additions: Additions) -> Result<(), StartError> {
    let telemetry = telemetry::install(&config, &*env.rng)?;
    let (format, serves_console) = (config.log.format, config.serves_console());
    housekeeping::take_small_pages();
    // Signals during the start take effect at its end.
    let mut stop = Signals::listen()?;
    let manager = Manager::from_environment();
    let show = |step: &Step| eprintln!("{}", progress::line(step, format));
    let mut running = Box::pin(start_measured(config, env, additions, (&show, &telemetry))).await?;
    if format == LogFormat::Human {
        eprintln!(
            "  next:  kubectl --kubeconfig {} get workspaces",
            files::shown(running.kubeconfig())
        );
        if serves_console {
            eprintln!("  see:   {}/console", running.url());
        }
    }
    manager.ready(running.url());
    let failure = tokio::select! {
        () = stop.next() => None,
        reason = running.store_failed() => Some(reason),
        never = manager.keep_alive() => match never {},
    };
    manager.stopping();
    if failure.is_some() {
        // No request may be served any more; load balancers get no warning.
        running.delay = Duration::ZERO;
    }
    tracing::info!("stopping; a second signal ends at once");
    tokio::select! {
        () = running.shutdown() => {}
        () = stop.next() => std::process::exit(IMPATIENT_EXIT_CODE),
    }
    tracing::info!("stopped");
    telemetry.flush().await;
    failure.map_or(Ok(()), |reason| Err(StartError::StoreEnded(reason)))
}

pub(crate) struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    pub(crate) fn listen() -> Result<Self, StartError> {
        let listen = |kind| signal(kind).map_err(|error| StartError::Build(format!("no signal handlers: {error}")));
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

pub(crate) async fn resolve(listen: &str) -> Result<SocketAddr, StartError> {
    let wrong = |cause: String| StartError::Address {
        listen: listen.to_owned(),
        cause,
    };
    let mut addresses = tokio::net::lookup_host(listen)
        .await
        .map_err(|error| wrong(error.to_string()))?;
    addresses
        .next()
        .ok_or_else(|| wrong("the name has no address".to_owned()))
}
