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

use insula_access::Authenticator;
use insula_apiserver::fair_share::FairShare;
use insula_auth::jwt::Issuer;
use insula_store::Store;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::oneshot,
    task::{JoinHandle, JoinSet},
};
use tokio_util::task::TaskTracker;

use crate::{
    Additions, Env, StartError, Started, accounts,
    audit::{self, Writer},
    build::{Parts, Tasks, build, cores},
    config::{Config, Limits, LogFormat},
    descriptors,
    endpoint::{self, Endpoint},
    files, housekeeping, identity, issuers, kubeconfig,
    lifecycle::Lifecycle,
    listen::{self, Server},
    metrics::Metrics,
    notify::Manager,
    open::{self, Opened},
    priority::PriorityRuntimes,
    progress::{self, Progress, Step},
    telemetry::{self, Telemetry},
    tls,
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
    start_measured(config, env, additions, (progress, &Telemetry::default())).await
}

async fn start_measured(
    config: Config,
    env: Env,
    mut additions: Additions,
    (progress, telemetry): (Progress<'_>, &Telemetry),
) -> Result<Running, StartError> {
    let begun = Instant::now();
    tls::install_provider();
    if let Some(path) = &config.kubeconfig {
        kubeconfig::check(path, &config.data_dir)?;
    }
    let mut authenticator = open::authenticator(&config)?;
    authenticator.delegate = additions.delegate.take();
    let issuers = issuers::read(&config)?;
    files::private_dir(&config.data_dir)?;

    let Opened {
        store,
        driver,
        failed,
        what,
    } = open::open(&config, &env).await?;
    // A store on etcd answers only while its driver runs, and the wiring already uses it.
    let mut drivers = JoinSet::new();
    if let Some(driver) = driver {
        drivers.spawn(driver);
    }
    progress(&Step {
        name: "store",
        what: "store ready",
        detail: what,
        took: begun.elapsed(),
    });
    let starting = Starting {
        config,
        env,
        authenticator,
        issuers,
        store: Arc::clone(&store),
        drivers,
        failed,
        begun,
        additions,
    };
    let started = starting.serve(progress, telemetry).await;
    if started.is_err() {
        // Releases the directory: the program may retry with another port.
        store.close().await;
    }
    started
}

/// A start with an open store.
struct Starting {
    config: Config,
    env: Env,
    authenticator: Authenticator,
    issuers: Vec<Issuer>,
    store: Arc<dyn Store>,
    drivers: JoinSet<()>,
    failed: Option<oneshot::Receiver<String>>,
    begun: Instant,
    additions: Additions,
}

impl Starting {
    async fn serve(self, progress: Progress<'_>, telemetry: &Telemetry) -> Result<Running, StartError> {
        let (config, env, store, mut authenticator) = (self.config, self.env, self.store, self.authenticator);
        let identifying = Instant::now();
        let listen = resolve(&config.listen).await?;
        let endpoint = Endpoint::prepare(&config, listen, env.clock.now())?;
        let kubeconfig = endpoint.kubeconfig.clone();
        authenticator.accounts = Some(accounts::open(&config.data_dir, &env, &store)?);
        let identified = identifying.elapsed();

        let (listener, address) = bind(listen).await?;
        let url = endpoint::url(&config, address).url;
        let lifecycle = Lifecycle::default();
        let metrics = telemetry.metrics();
        let config = Arc::new(config);
        let (audit, writer) = audit::open(&config, Arc::clone(&env.clock), &metrics)?;
        let (runtimes, clock) = (runtimes(&config.limits), Arc::clone(&env.clock));
        let mut app = build(Parts {
            config: Arc::clone(&config),
            env,
            store: Arc::clone(&store),
            authenticator,
            issuers: self.issuers,
            metrics: Arc::clone(&metrics),
            lifecycle: lifecycle.clone(),
            url: url.clone(),
            trust: endpoint.trust.clone(),
            mounts: mounts(&config, &endpoint.identity, Arc::clone(&metrics))?,
            front_proxies: Arc::clone(&endpoint.front_proxies),
            certificates: Arc::clone(&endpoint.alarm),
            audit,
            runtimes: Arc::clone(&runtimes),
            log: telemetry.log.clone(),
            kinds: self.additions.kinds,
        })
        .await?;
        let (tls, tasks) = endpoint.announce(&config, &url, &metrics, &clock)?;
        progress(&written(&kubeconfig, identified));
        app.tasks.background.extend(tasks);
        let here = Started::new(&url, &kubeconfig, &lifecycle);
        app.tasks.background.extend(here.begin(self.additions.tasks));

        let server = Server {
            listener,
            tls,
            answer: app.answer,
            limits: possible(&config.limits),
            runtimes,
            lifecycle: lifecycle.clone(),
            metrics,
            drain: Duration::from_secs(config.drain_seconds),
        };
        let served = tokio::spawn(serve(server, app.tasks, store, self.drivers, writer));
        lifecycle.set_ready();
        announce(
            progress,
            &url,
            config.external_url.is_some().then_some(address),
            self.begun,
        );
        Ok(Running {
            address,
            url,
            kubeconfig,
            lifecycle,
            delay: Duration::from_secs(config.shutdown_delay_seconds),
            served,
            failed: self.failed,
        })
    }
}

/// Returns the step after which the kubeconfig is there.
fn written(kubeconfig: &Path, took: Duration) -> Step {
    Step {
        name: "identity",
        what: "TLS + admin identity",
        detail: format!("{} (0600)", files::shown(kubeconfig)),
        took,
    }
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
fn possible(limits: &Limits) -> Limits {
    Limits {
        connections: descriptors::connections(limits.connections),
        ..limits.clone()
    }
}

/// Creates the priority runtimes, which share the cores between tenants.
fn runtimes(limits: &Limits) -> Arc<PriorityRuntimes> {
    let fair_share = FairShare::new(cores(), limits.compute_percent_per_workspace);
    PriorityRuntimes::new(cores(), fair_share)
}

/// Serves until the shutdown, and closes the store when nothing uses it any more.
async fn serve(server: Server, tasks: Tasks, store: Arc<dyn Store>, drivers: JoinSet<()>, audit: Arc<Writer>) {
    let (lifecycle, runtimes) = (server.lifecycle.clone(), Arc::clone(&server.runtimes));
    let beside = TaskTracker::new();
    for work in tasks.background {
        let lifecycle = lifecycle.clone();
        let work = async move {
            tokio::select! {
                () = lifecycle.gone() => {}
                () = work => {}
            }
        };
        beside.spawn_on(work, runtimes.controllers());
    }
    listen::serve(server).await;
    beside.close();
    beside.wait().await;
    tasks.last_writes.await;
    store.close().await;
    // The audit events of the last requests are written before the end.
    drop(tokio::task::spawn_blocking(move || audit.close()).await);
    // Nothing is left to follow.
    drop(drivers);
}

/// Runs a server program: starts with progress on standard error, serves until SIGTERM or SIGINT,
/// drains. A second signal ends the process at once.
pub async fn run(config: Config, env: Env) -> Result<(), StartError> {
    run_with(config, env, Additions::default()).await
}

/// Runs a server program as [`run`] does, with the parts that the program adds.
pub async fn run_with(config: Config, env: Env, additions: Additions) -> Result<(), StartError> {
    let telemetry = telemetry::install(&config, &*env.rng)?;
    let format = config.log.format;
    housekeeping::take_small_pages();
    // Signals during the start take effect at its end.
    let mut stop = Signals::listen()?;
    let manager = Manager::from_environment();
    let show = |step: &Step| eprintln!("{}", progress::line(step, format));
    let mut running = start_measured(config, env, additions, (&show, &telemetry)).await?;
    if format == LogFormat::Human {
        eprintln!(
            "  next:  kubectl --kubeconfig {} get workspaces",
            files::shown(running.kubeconfig())
        );
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

/// Creates the client of servers that workspaces are mounted from.
fn mounts(
    config: &Config,
    identity: &identity::Identity,
    metrics: Arc<Metrics>,
) -> Result<Arc<dyn insula_apiserver::Forward>, StartError> {
    let unusable = |cause: String| StartError::Identity {
        path: identity.front.key.clone(),
        cause,
    };
    let shown = crate::outbound::Shown {
        ca: files::read(&identity.ca)?.unwrap_or_default().into_bytes(),
        certificate: files::read(&identity.front.certificate)?
            .unwrap_or_default()
            .into_bytes(),
        key: files::read_secret(&identity.front.key)?
            .unwrap_or_default()
            .into_bytes(),
    };
    let mounts = crate::outbound::Mounts::new(&config.workspaces.mounts, &shown, metrics).map_err(unusable)?;
    Ok(Arc::new(mounts))
}
