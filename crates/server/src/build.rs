//! Wiring of the server: builds the served application from the configuration and the opened parts.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use insula_access::{Authenticator, issuers::Issuers, static_tokens::StaticTokens};
use insula_admin::{AdminService, host::Host, operations::Operations};
use insula_api::Clock;
use insula_apiserver::{ApiServer, Extensions, aggregation};
use insula_auth::{audit::Log, jwt::Issuer};
use insula_catalog::CompiledKind;
use insula_console::Console;
use insula_controllers::Controllers;
use insula_edge::{
    guard::limits::{Limits, Settings, Share},
    port::{Lifecycle, PriorityRuntimes, listen::Answer},
};
use insula_registry::{
    Deps, StorageLimits, Team,
    representation::{Cache, Workers},
};
use insula_store::{Sharing, Store};

use crate::{
    Env, StartError, VERSION, backup,
    certificates::Alarm,
    config::{self, Config, StoreChoice},
    edge::Edge,
    grpc::{Calls, MessageBytes},
    health::{Checks, Health},
    host::ServerHost,
    housekeeping,
    identity::{self, FrontProxies},
    issuers,
    measured_store::MeasuredStore,
    memory,
    metrics::{Metrics, Sources},
    outbound::{self, IssuerKeys, LoginProvider, Webhook},
    space, static_tokens,
    telemetry::LogLevel,
};

/// A task that runs beside requests. It is dropped when the server is gone, after the last request.
pub type Background = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Parts that are opened before anything is served.
pub struct Parts {
    /// The settings.
    pub config: Arc<Config>,
    /// Time and randomness.
    pub env: Env,
    /// The store of all objects.
    pub store: Arc<dyn Store>,
    /// Authentication of users.
    pub authenticator: Authenticator,
    /// Issuers of tokens that the operator configured.
    pub issuers: Vec<Issuer>,
    /// Metrics of the server.
    pub metrics: Arc<Metrics>,
    /// Lifecycle that ends streams.
    pub lifecycle: Lifecycle,
    /// URL of the server without a path, for `status.URL` and discovery of addresses.
    pub url: String,
    /// The CA that programs in workspaces trust.
    pub trust: insula_registry::Trust,
    /// Forwards requests to servers that workspaces are mounted from.
    pub mounts: Arc<dyn insula_apiserver::Forward>,
    /// The CA of the front proxies, under which extension servers are called.
    pub(crate) front_proxies: Arc<FrontProxies>,
    /// The last failed reload of certificates.
    pub(crate) certificates: Arc<Alarm>,
    /// Audit log.
    pub audit: Arc<Log>,
    /// Threads of normal and of low priority.
    pub runtimes: Arc<PriorityRuntimes>,
    /// Level of the log.
    pub log: LogLevel,
    /// Kinds that the program adds.
    pub kinds: Vec<CompiledKind>,
}

/// The served application and its tasks.
pub struct App {
    /// Function that answers every request, gRPC included.
    pub answer: Answer,
    /// Tasks beside requests.
    pub tasks: Tasks,
}

/// Tasks beside requests.
pub struct Tasks {
    /// Tasks that the server spawns, and that end with it.
    pub background: Vec<Background>,
    /// Writes that are left after the last request.
    pub last_writes: Background,
}

/// Builds the application. Writes the objects that every installation has: `root` and its workspace
/// types. Starts no task.
pub async fn build(mut parts: Parts) -> Result<App, StartError> {
    let outbound = Arc::new(Webhook::new(&parts.config.webhooks, Arc::clone(&parts.metrics)));
    let kinds = std::mem::take(&mut parts.kinds);
    let mut registry = registry(&parts, outbound.clone());
    add(&mut registry, kinds)?;
    let registry = Arc::new(registry);
    let Parts {
        config,
        env,
        store,
        mut authenticator,
        issuers: configured,
        metrics,
        lifecycle,
        mounts,
        front_proxies,
        certificates,
        audit,
        runtimes,
        log,
        ..
    } = parts;
    let keys = Arc::new(IssuerKeys::new(outbound));
    authenticator.tokens = with_marks(authenticator.tokens, &config)?;
    authenticator.issuers = Some(Issuers::new(configured, keys.clone(), env.clock.clone()));
    let authenticator = Arc::new(authenticator);
    insula_controllers::bootstrap(&registry)
        .await
        .map_err(|cause| StartError::Bootstrap(cause.to_string()))?;

    let (closing, closed) = tokio::sync::watch::channel(false);
    let served = (Arc::clone(&registry), Arc::clone(&authenticator));
    let checks = Checks::new(&store, &config.store, &lifecycle, certificates);
    let outside = (mounts, front_proxies, Arc::clone(&checks));
    let server = Arc::new(api_server(&config, served, outside, &runtimes, closed));
    let (watched, counted, controllers) = (store, Arc::clone(&metrics), reconcilers(&server, &metrics));
    let health = Health {
        checks,
        metrics: Arc::clone(&metrics),
        authenticator: Arc::clone(&authenticator),
        clock: env.clock.clone(),
        api: Arc::clone(&server),
        backups: backup::permits(),
    };
    let host = ServerHost::new(&config, &health, log);
    let (admin, admin_tasks) = admin(&config, &server, &runtimes, host, lifecycle.clone());
    let (calls, calls_health) = calls(&config, admin, (&metrics, &lifecycle, &runtimes)).await?;
    let edge = Edge {
        console: console(&config, (&registry.external_url, &authenticator, keys), env.clock)?,
        rng: env.rng,
        audit,
        metrics,
        health,
        calls,
        api: server,
    };

    let mut background = background(&config, Arc::clone(&registry), watched, counted, authenticator);
    background.push(Box::pin(aggregation::keep_checking(Arc::clone(&edge.api))));
    background.push(Box::pin(end_streams(lifecycle, calls_health, closing)));
    background.extend(admin_tasks);
    background.extend(controllers);
    Ok(App {
        answer: edge.into_answer(),
        tasks: Tasks {
            background,
            last_writes: Box::pin(housekeeping::store_last_uses(registry)),
        },
    })
}

/// Creates the console, if the settings want one. The key of its sessions is derived from that of
/// the CA, which all servers of an installation have: a browser may reach another one with each
/// request.
fn console(
    config: &Config,
    (url, authenticator, keys): (&str, &Arc<Authenticator>, Arc<IssuerKeys>),
    clock: Arc<dyn Clock>,
) -> Result<Option<Console>, StartError> {
    if !config.serves_console() {
        return Ok(None);
    }
    let secret = identity::ca_key(&config.data_dir)?;
    let login = LoginProvider::login(&config.console_login, url, (authenticator, keys), &clock);
    Ok(secret.map(|secret| Console::new(secret.as_bytes(), login, clock)))
}

/// Returns static tokens that know the marks of the certificates that are made with them.
fn with_marks(tokens: StaticTokens, config: &Config) -> Result<StaticTokens, StartError> {
    Ok(tokens.with_key(static_tokens::mark_key(&config.data_dir)?))
}

/// Creates the API server over a registry and an authenticator.
fn api_server(
    config: &Config,
    (registry, authenticator): (Arc<Deps>, Arc<Authenticator>),
    (mounts, front_proxies, health): (Arc<dyn insula_apiserver::Forward>, Arc<FrontProxies>, Arc<Checks>),
    runtimes: &PriorityRuntimes,
    closing: tokio::sync::watch::Receiver<bool>,
) -> ApiServer {
    let extensions = outbound::Extensions::new(&config.webhooks.allow, front_proxies, registry.clock.clone());
    ApiServer {
        limits: Limits::new(limits(&config.limits), &registry.clock),
        registry,
        mounts,
        health,
        extensions: Extensions::new(
            Arc::new(extensions),
            config.webhooks.proxied_requests_per_workspace,
            (config.limits.requests_in_flight / 2).max(1),
        ),
        third_party_resources: config.workspaces.third_party_resources,
        hosts: config.hosts(),
        authenticator,
        fair_share: runtimes.fair_share.clone(),
        openapi: insula_apiserver::openapi::Cache::new(block_in_place),
        closing,
        bookmark_period: Duration::from_secs(config.watches.bookmark_seconds),
    }
}

/// Creates the registry over a measured store, with the options of the configuration.
fn registry(parts: &Parts, outbound: Arc<Webhook>) -> Deps {
    let measured = Arc::new(MeasuredStore {
        inner: Arc::clone(&parts.store),
        metrics: Arc::clone(&parts.metrics),
    });
    let (env, workspaces) = (&parts.env, &parts.config.workspaces);
    let mut registry = Deps::new(measured, env.clock.clone(), env.rng.clone(), parts.url.clone());
    registry.trust = parts.trust.clone();
    registry.extension_trust = Some(Arc::clone(&parts.front_proxies.trust));
    registry.sign_account = parts
        .authenticator
        .accounts
        .as_ref()
        .map(|accounts| accounts.sign.clone());
    let run = format!("{:016x}", env.rng.next_u64());
    registry.team = match parts.config.store {
        StoreChoice::Etcd(_) => Team::member(&run),
        _ => Team::alone(&run),
    };
    registry.homes = workspaces.homes;
    registry.objects_per_workspace = workspaces.objects;
    registry.storage = storage(workspaces, memory::usable());
    registry.store.share(Sharing {
        payers: insula_catalog::payer::rule(),
        history_bytes_max: parts.config.watches.history_megabytes << 20,
    });
    registry.event_ttl_seconds = workspaces.event_ttl_seconds;
    registry.workspace_grace_seconds = workspaces.deletion_grace_seconds;
    if !workspaces.version_uses {
        registry.uses = insula_catalog::version_uses::VersionUses::disabled();
    }
    registry.catalog.close(&insula_catalog::Gates {
        definitions_v1beta1: workspaces.definitions_v1beta1,
        definition_subresources: workspaces.definition_subresources,
    });
    registry.catalog.work_aside(block_in_place);
    registry.outbound = outbound;
    let mut cache = Cache::new(converters(&parts.runtimes));
    if workspaces.metering_seconds == 0 {
        cache.metering = insula_catalog::metering::Metering::disabled();
    }
    registry.cache = Arc::new(cache);
    registry
}

/// Returns the limits of what workspaces and owners store. The default leaves room for others
/// beside any one of them.
fn storage(workspaces: &config::Workspaces, memory: Option<u64>) -> StorageLimits {
    let share = memory.map_or(0, |memory| memory / 4);
    StorageLimits {
        workspace_bytes: workspaces.storage_bytes.unwrap_or(share),
        owner_bytes: workspaces.storage_bytes_per_owner.unwrap_or(share),
        owner_objects: workspaces.objects_per_owner,
    }
}

/// Adds the kinds of the program.
fn add(registry: &mut Deps, kinds: Vec<CompiledKind>) -> Result<(), StartError> {
    for kind in kinds {
        let name = kind.definition["metadata"]["name"].to_string();
        registry
            .catalog
            .add(kind)
            .map_err(|errors| StartError::Build(format!("the kind {name}: {}", insula_api::aggregate(&errors))))?;
    }
    Ok(())
}

/// Returns the limits of the API server from the settings.
fn limits(config: &config::Limits) -> Settings {
    Settings {
        body_bytes: config.body_bytes,
        request_time: Duration::from_secs(config.request_seconds),
        compute_time: Duration::from_secs(config.compute_seconds),
        requests: config.requests_in_flight,
        bytes: config.bytes_in_flight,
        user: Share {
            requests: config.requests_in_flight_per_user,
            watches: config.watches_per_user,
            rate: config.requests_per_second_per_user,
            bytes: config.bytes_in_flight_per_user,
        },
        workspace: Share {
            requests: config.requests_in_flight_per_workspace,
            watches: config.watches_per_workspace,
            rate: config.requests_per_second_per_workspace,
            bytes: config.bytes_in_flight_per_workspace,
        },
    }
}

/// Creates the admin services and their tasks. Only a store on etcd has several servers.
fn admin(
    config: &Config,
    api: &Arc<ApiServer>,
    runtimes: &Arc<PriorityRuntimes>,
    host: ServerHost,
    lifecycle: Lifecycle,
) -> (AdminService, Vec<Background>) {
    let registry = &api.registry;
    let is_alone = registry.team.is_alone();
    let marks = Arc::clone(&host.marks);
    let host: Arc<dyn Host> = Arc::new(host);
    let workers = Arc::new(insula_admin::WorkerPool::new(converters(runtimes)));
    let jobs = insula_admin::jobs(api, &workers, &host, VERSION);
    let operations = Arc::new(Operations::new(Arc::clone(registry), jobs, is_alone));
    let admin = AdminService {
        api: Arc::clone(api),
        workers,
        operations: Arc::clone(&operations),
        host,
        info: Arc::new(insula_admin::Info {
            version: VERSION.to_owned(),
            kubernetes_version: "v1.36.0".to_owned(),
            store: config.store.to_string(),
            started: registry.clock.now(),
        }),
        uploads: Arc::new(insula_admin::Uploads::new(1)),
        requests: Arc::new(insula_admin::Requests::new(&*registry.rng, is_alone)),
    };
    let mut tasks: Vec<Background> = vec![
        Box::pin(operations.run()),
        Box::pin(housekeeping::mark(Arc::clone(registry), marks)),
    ];
    if !is_alone {
        tasks.push(Box::pin(insula_registry::servers::keep(
            Arc::clone(registry),
            admin.server(),
            |seconds| Box::pin(tokio::time::sleep(Duration::from_secs(seconds))),
            async move { lifecycle.draining().await },
        )));
    }
    (admin, tasks)
}

/// Creates the gRPC services of administrators, and what they say of their health.
async fn calls(
    config: &Config,
    session: AdminService,
    (metrics, lifecycle, runtimes): (&Metrics, &Lifecycle, &Arc<PriorityRuntimes>),
) -> Result<(Calls, insula_admin::Health), StartError> {
    let services = insula_admin::services(session, config.limits.body_bytes)
        .await
        .map_err(|cause| StartError::Bootstrap(cause.to_string()))?;
    let insula_admin::Services {
        routes,
        methods,
        health,
    } = services;
    let calls = Calls {
        services: routes.prepare().into_axum_router(),
        methods,
        bytes: Arc::new(MessageBytes::new(config.limits.body_bytes, metrics.message_bytes())),
        lifecycle: lifecycle.clone(),
        runtimes: Arc::clone(runtimes),
    };
    Ok((calls, health))
}

/// Returns the tasks of all controllers, whose queues and whose API server the metrics show.
fn reconcilers(server: &Arc<ApiServer>, metrics: &Metrics) -> Vec<Background> {
    let sleep: insula_controllers::Sleep = Arc::new(|count| Box::pin(tokio::time::sleep(Duration::from_secs(count))));
    let tasks = Controllers::new(Arc::clone(&server.registry)).tasks(sleep);
    metrics.add_sources(Sources {
        api: Arc::downgrade(server),
        queues: tasks.iter().map(|task| Arc::clone(&task.queue)).collect(),
    });
    tasks.into_iter().map(|task| -> Background { task.run }).collect()
}

/// Returns the tasks beside requests: housekeeping, uses of API versions, the alarm of the disk,
/// and the issuers of the operator.
fn background(
    config: &Config,
    registry: Arc<Deps>,
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    authenticator: Arc<Authenticator>,
) -> Vec<Background> {
    let history = Duration::from_secs(config.watches.history_seconds);
    let mut background: Vec<Background> = vec![
        Box::pin(housekeeping::keep(Arc::clone(&registry), history)),
        Box::pin(housekeeping::store_uses(Arc::clone(&registry))),
        Box::pin(housekeeping::store_metering(
            Arc::clone(&registry),
            config.workspaces.metering_seconds,
        )),
        Box::pin(housekeeping::expire_requests(Arc::clone(&registry))),
        Box::pin(space::follow(store, metrics)),
    ];
    if let Some(path) = config.token_file.clone() {
        background.push(Box::pin(static_tokens::follow(path, Arc::clone(&authenticator))));
    }
    if let Some(path) = config.authentication_config.clone() {
        background.push(Box::pin(issuers::follow(path, authenticator)));
    }
    background
}

/// Tells clients of gRPC that the server is not ready any more, and then watches that it closes.
async fn end_streams(lifecycle: Lifecycle, calls: insula_admin::Health, closing: tokio::sync::watch::Sender<bool>) {
    lifecycle.draining().await;
    calls.end().await;
    lifecycle.closing().await;
    // All watches may have ended already; then nobody listens.
    let _ = closing.send(true);
}

/// Runs work that blocks the thread. The other tasks of the thread move to another one meanwhile,
/// if the runtime has several threads.
pub(crate) fn block_in_place(work: &mut dyn FnMut()) {
    insula_edge::port::leave_threads(work);
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get)
}

/// Returns the workers of large conversions: one low-priority thread for each core while there is
/// something to convert. They serve all tenants in turn, so that no tenant waits for the
/// conversions of another one that came first.
fn converters(runtimes: &Arc<PriorityRuntimes>) -> Workers {
    let (runtimes, payers) = (Arc::clone(runtimes), Arc::clone(runtimes));
    Workers {
        width: cores(),
        start: Arc::new(move |work| runtimes.run_low_priority(work)),
        pay: Arc::new(move |workspace, work| payers.run_charged(workspace, work)),
    }
}
