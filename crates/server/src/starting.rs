//! Parts of a server from its settings to the moment before its port opens, and the tasks that run
//! beside it.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use insula_edge::{
    guard::fair_share::FairShare,
    port::{Lifecycle, PriorityRuntimes, listen::Answer, tls::CurrentTls},
};
use insula_store::Store;
use insula_store_etcd::EtcdStore;
use tokio::{
    sync::oneshot,
    task::{JoinHandle, JoinSet},
};
use tokio_util::task::TaskTracker;

use crate::{
    Additions, Env, StartError, Started, accounts,
    audit::{self, Writer},
    build::{Parts, Tasks, build, cores},
    config::{Config, Limits},
    endpoint::{self, Endpoint},
    files, format, identity,
    installation_keys::{self, Fingerprints},
    metrics::Metrics,
    open::{self, Opened},
    preflight::{self, Checked},
    progress::{Progress, Step},
    telemetry::Telemetry,
    tls,
};

/// A start with an open store.
pub(crate) struct Starting {
    config: Config,
    env: Env,
    checked: Checked,
    /// The store. A start that fails closes it.
    pub(crate) store: Arc<dyn Store>,
    etcd: Option<Arc<EtcdStore>>,
    drivers: JoinSet<()>,
    failed: Option<oneshot::Receiver<String>>,
    /// Time at which the start began.
    pub(crate) begun: Instant,
    additions: Additions,
}

/// Certificates of a server, and the address that they are for.
pub(crate) struct Identified {
    /// Address to listen on.
    pub(crate) listen: SocketAddr,
    endpoint: Endpoint,
    took: Duration,
}

/// A server without its port.
pub(crate) struct Assembled {
    pub(crate) config: Arc<Config>,
    /// URL under which clients reach the server.
    pub(crate) url: String,
    /// Absolute path of the administrator's kubeconfig.
    pub(crate) kubeconfig: PathBuf,
    /// Function that answers every request.
    pub(crate) answer: Answer,
    pub(crate) tls: Arc<CurrentTls>,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) runtimes: Arc<PriorityRuntimes>,
    /// Receives the reason when the store can never be used again.
    pub(crate) failed: Option<oneshot::Receiver<String>>,
    tasks: Tasks,
    store: Arc<dyn Store>,
    drivers: JoinSet<()>,
    audit: Arc<Writer>,
}

impl Starting {
    /// Checks everything that the settings name, and opens the store. The directory of the store is
    /// locked before any file of another running server could be changed.
    pub(crate) async fn open(
        config: Config,
        env: Env,
        mut additions: Additions,
        progress: Progress<'_>,
    ) -> Result<Self, StartError> {
        let begun = Instant::now();
        tls::install_provider();
        let mut checked = preflight::check(&config, env.clock.now()).await?;
        checked.authenticator.delegate = additions.delegate.take();

        let Opened {
            store,
            driver,
            etcd,
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
        Ok(Starting {
            config,
            env,
            checked,
            store,
            etcd,
            drivers,
            failed,
            begun,
            additions,
        })
    }

    /// Brings what earlier versions stored into today's format.
    async fn upgrade(&self) -> Result<(), StartError> {
        let (etcd, name) = (self.etcd.as_deref(), self.config.store.to_string());
        format::upgrade(&*self.store, etcd, &*self.env.clock, &name).await
    }

    /// Upgrades the store, reads the keys and certificates of the server, and makes those that are
    /// missing.
    pub(crate) async fn identify(&mut self) -> Result<Identified, StartError> {
        self.upgrade().await?;
        if let Some(etcd) = self.etcd.clone() {
            let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.env.clock));
            self.drivers.spawn(format::mark_later(store, etcd, clock));
        }
        let begun = Instant::now();
        let listen = self.checked.listen;
        let endpoint = Endpoint::prepare(&self.config, listen, self.env.clock.now())?;
        let accounts = accounts::open(&self.config.data_dir, &self.env, &self.store)?;
        self.checked.authenticator.accounts = Some(accounts);
        Ok(Identified {
            listen,
            endpoint,
            took: begun.elapsed(),
        })
    }

    /// Checks that other servers on the store have the same keys.
    async fn check_keys(&self, url: &str) -> Result<(), StartError> {
        let config = &self.config;
        let (accounts, accounts_before) = accounts::key_names(&config.data_dir)?;
        let own = Fingerprints {
            authority: identity::ca_key_name(&config.data_dir)?.unwrap_or_default(),
            accounts,
            accounts_before,
        };
        let name = config.store.to_string();
        let accepts_new = config.etcd.accept_new_keys;
        installation_keys::check(&*self.store, &name, &own, url, accepts_new).await
    }

    /// Builds a server that clients reach at an address.
    pub(crate) async fn assemble(
        self,
        Identified { endpoint, took, .. }: Identified,
        address: SocketAddr,
        (progress, telemetry): (Progress<'_>, &Telemetry),
    ) -> Result<Assembled, StartError> {
        let kubeconfig = endpoint.kubeconfig.clone();
        let url = endpoint::url(&self.config, address).url;
        if self.etcd.is_some() {
            self.check_keys(&url).await?;
        }
        let lifecycle = Lifecycle::default();
        let metrics = telemetry.metrics();
        let config = Arc::new(self.config);
        let clock = Arc::clone(&self.env.clock);
        let Checked {
            authenticator,
            issuers,
            policy,
            ..
        } = self.checked;
        let (audit, writer) = audit::open(&config, policy, Arc::clone(&clock), &metrics)?;
        let runtimes = runtimes(&config.limits);
        let mut app = build(Parts {
            config: Arc::clone(&config),
            env: self.env,
            store: Arc::clone(&self.store),
            authenticator,
            issuers,
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
        progress(&Step {
            name: "identity",
            what: "TLS + admin identity",
            detail: format!("{} (0600)", files::shown(&kubeconfig)),
            took,
        });
        app.tasks.background.extend(tasks);
        let here = Started::new(&url, &kubeconfig, &lifecycle);
        app.tasks.background.extend(here.begin(self.additions.tasks));
        Ok(Assembled {
            config,
            url,
            kubeconfig,
            answer: app.answer,
            tls,
            lifecycle,
            metrics,
            runtimes,
            failed: self.failed,
            tasks: app.tasks,
            store: self.store,
            drivers: self.drivers,
            audit: writer,
        })
    }
}

impl Assembled {
    /// Begins the tasks beside requests. `serving` is the life of the port: it ends when the server
    /// is gone. Returns the task that closes the store when nothing uses it any more.
    pub(crate) fn begin(self, serving: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let Assembled {
            lifecycle,
            runtimes,
            tasks,
            store,
            drivers,
            audit,
            ..
        } = self;
        lifecycle.set_ready();
        tokio::spawn(async move {
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
            serving.await;
            beside.close();
            beside.wait().await;
            tasks.last_writes.await;
            store.close().await;
            // The audit events of the last requests are written before the end.
            drop(tokio::task::spawn_blocking(move || audit.close()).await);
            // Nothing is left to follow.
            drop(drivers);
        })
    }
}

/// Creates the priority runtimes, which share the cores between tenants.
fn runtimes(limits: &Limits) -> Arc<PriorityRuntimes> {
    let fair_share = FairShare::new(cores(), limits.compute_percent_per_workspace);
    PriorityRuntimes::new(cores(), fair_share)
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
