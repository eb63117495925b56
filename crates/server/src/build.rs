//! The one place where the parts meet: what was configured and opened becomes what is served.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Request, State},
    middleware::{self, Next},
    response::Response,
};
use http::{Method, header::CONTENT_TYPE};
use insula_apiserver::{
    ApiServer, handle,
    limits::{Limits, Settings, Share},
    shares::Shares,
};
use insula_auth::{audit::Log, jwt::Issuer};
use insula_controllers::Controllers;
use insula_registry::{
    Registry,
    access::Authenticator,
    issuers::Issuers,
    representation::{Cache, Workers},
};
use insula_store::Store;
use tower::ServiceExt;

use crate::{
    Env, StartError, VERSION, authority,
    config::Config,
    health::{self, Health},
    housekeeping, issuers,
    lifecycle::Lifecycle,
    measured::Measured,
    metrics::{Class, Effect, Metrics, Verb},
    outbound::{IssuerKeys, Webhook},
    trace,
};

/// Work that goes on beside requests. It is dropped when the server is gone, after the last request.
pub type Background = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What is there before anything is served.
pub struct Parts {
    /// The settings.
    pub config: Arc<Config>,
    /// The world.
    pub env: Env,
    /// The objects.
    pub store: Arc<dyn Store>,
    /// Who is who.
    pub authenticator: Authenticator,
    /// Who else vouches for users.
    pub issuers: Vec<Issuer>,
    /// Where to count.
    pub metrics: Arc<Metrics>,
    /// When to end streams.
    pub lifecycle: Lifecycle,
    /// How clients reach us, without a path: for `status.URL` and discovery of addresses.
    pub url: String,
    /// The CA that signed our certificate, PEM.
    pub trust: Arc<str>,
    /// Reaches the servers that workspaces are mounted from.
    pub mounts: Arc<dyn insula_apiserver::Forward>,
    /// Where requests are recorded.
    pub audit: Arc<Log>,
    /// Who goes first.
    pub shares: Shares,
}

/// What is served, and what goes on beside it.
pub struct App {
    /// Every request, gRPC included.
    pub router: Router,
    /// Spawned by the server; ends with it.
    pub background: Vec<Background>,
}

/// Puts everything together. Nothing runs yet, but what every installation has is written: `root` and its types.
pub async fn build(parts: Parts) -> Result<App, StartError> {
    let Parts {
        config,
        env,
        store,
        mut authenticator,
        issuers: configured,
        metrics,
        lifecycle,
        url,
        trust,
        mounts,
        audit,
        shares,
    } = parts;
    let measured = Arc::new(Measured {
        inner: Arc::clone(&store),
        metrics: Arc::clone(&metrics),
    });
    let mut registry = Registry::new(measured, env.clock.clone(), env.rng.clone(), url);
    registry.trust = trust;
    registry.homes = config.workspaces.homes;
    registry.objects_per_workspace = config.workspaces.objects;
    registry.event_ttl_seconds = config.workspaces.event_ttl_seconds;
    registry.catalog.work_aside(aside);
    let outbound = Arc::new(Webhook::new(&config.webhooks));
    registry.outbound = outbound.clone();
    authenticator.issuers = Some(Issuers::new(
        configured,
        Arc::new(IssuerKeys::new(outbound)),
        env.clock.clone(),
    ));
    let authenticator = Arc::new(authenticator);
    let followed = Arc::clone(&authenticator);
    registry.cache = Arc::new(Cache::new(converters()));
    let registry = Arc::new(registry);
    insula_controllers::bootstrap(&registry)
        .await
        .map_err(|cause| StartError::Bootstrap(cause.to_string()))?;

    let (closing, closed) = tokio::sync::watch::channel(false);
    let settings = Settings {
        body_bytes: config.limits.body_bytes,
        request_time: Duration::from_secs(config.limits.request_seconds),
        requests: config.limits.requests_in_flight,
        user: Share {
            requests: config.limits.requests_in_flight_per_user,
            watches: config.limits.watches_per_user,
            rate: config.limits.requests_per_second_per_user,
        },
        workspace: Share {
            requests: config.limits.requests_in_flight_per_workspace,
            watches: config.limits.watches_per_workspace,
            rate: config.limits.requests_per_second_per_workspace,
        },
    };
    let server = Arc::new(ApiServer {
        registry: Arc::clone(&registry),
        mounts,
        authenticator: Arc::clone(&authenticator),
        limits: Limits::new(settings, &env.clock),
        shares,
        openapi: insula_apiserver::openapi::Cache::new(aside),
        closing: closed,
    });
    let api = insula_apiserver::router(server).layer(middleware::from_fn_with_state(Arc::clone(&metrics), count));
    let health = health::routes(Health {
        store,
        lifecycle: lifecycle.clone(),
        metrics,
        authenticator: Arc::clone(&authenticator),
    });
    let http = health.fallback_service(api);
    let door = insula_admin::Door {
        registry: Arc::clone(&registry),
        authenticator,
        info: Arc::new(insula_admin::Info {
            version: VERSION.to_owned(),
            kubernetes_version: "v1.36.0".to_owned(),
            store: config.store.to_string(),
            started: env.clock.now(),
        }),
    };
    let services = insula_admin::routes(door)
        .await
        .map_err(|cause| StartError::Bootstrap(cause.to_string()))?;
    let grpc = services.prepare().into_axum_router();
    let traced = by_content_type(http, grpc)
        .layer(middleware::from_fn(authority::once))
        .layer(middleware::from_fn_with_state(audit, crate::audit::record))
        .layer(middleware::from_fn_with_state(env.rng, trace::trace));

    let mut background: Vec<Background> = vec![
        Box::pin(housekeeping::keep(Arc::clone(&registry))),
        Box::pin(async move {
            lifecycle.closing().await;
            // Watches may all be gone already; then nobody has to be told.
            let _ = closing.send(true);
        }),
    ];
    let sleep: insula_controllers::Sleep =
        Arc::new(|seconds| Box::pin(tokio::time::sleep(Duration::from_secs(seconds))));
    let reconcilers = Controllers::new(registry).tasks(sleep);
    if let Some(path) = config.authentication_config.clone() {
        background.push(Box::pin(issuers::follow(path, followed)));
    }
    background.extend(reconcilers.into_iter().map(|(_, task)| -> Background { task }));
    Ok(App {
        router: traced,
        background,
    })
}

/// Counts what the API answered.
async fn count(State(metrics): State<Arc<Metrics>>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let _held = metrics.in_flight(match *request.method() {
        Method::GET | Method::HEAD | Method::OPTIONS => Effect::ReadOnly,
        _ => Effect::Mutating,
    });
    let response = next.run(request).await;
    let kind = response.extensions().get::<handle::Kind>().copied().unwrap_or_default();
    let verb = match kind.verb {
        "get" => Verb::Get,
        "list" => Verb::List,
        "watch" => Verb::Watch,
        "create" => Verb::Create,
        "update" => Verb::Update,
        "patch" => Verb::Patch,
        "delete" => Verb::Delete,
        "deletecollection" => Verb::DeleteCollection,
        _ => Verb::Other,
    };
    let class = match kind.class {
        handle::Class::NonResource => Class::NonResource,
        handle::Class::System => Class::System,
        handle::Class::Bound => Class::Bound,
        handle::Class::Local => Class::Local,
    };
    metrics.request(verb, class, response.status(), started.elapsed());
    response
}

/// One port for both: gRPC says so in its content type.
fn by_content_type(http: Router, grpc: Router) -> Router {
    Router::new().fallback(move |request: Request| {
        let router = if is_grpc(&request) { grpc.clone() } else { http.clone() };
        async move { router.oneshot(request).await.unwrap_or_else(|never| match never {}) }
    })
}

fn is_grpc(request: &Request) -> bool {
    let kind = request.headers().get(CONTENT_TYPE).map(http::HeaderValue::as_bytes);
    // Not a prefix alone: gRPC-Web (`application/grpc-web`) is another protocol.
    kind.and_then(|kind| kind.strip_prefix(b"application/grpc"))
        .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// Work that takes a while: the thread's other tasks go to another one meanwhile. A runtime of one thread has none.
pub(crate) fn aside(work: &mut dyn FnMut()) {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get)
}

/// Large conversions have threads beside those that answer: as many as there are cores, while there is something to convert.
/// They work for all tenants in turns, so that they are as quick as others', whoever comes first.
fn converters() -> Workers {
    let threads = tokio::runtime::Handle::current();
    Workers {
        width: cores(),
        start: Arc::new(move |work| drop(threads.spawn_blocking(work))),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[tokio::test]
    async fn grpc_and_http_share_the_port() {
        let router = by_content_type(
            Router::new().fallback(|| async { "http" }),
            Router::new().fallback(|| async { "grpc" }),
        );
        for (content_type, want) in [
            ("application/grpc", "grpc"),
            ("application/grpc+proto", "grpc"),
            ("application/grpc;charset=utf-8", "grpc"),
            ("application/grpc-web", "http"),
            ("application/json", "http"),
        ] {
            let request = Request::post("/x")
                .header(CONTENT_TYPE, content_type)
                .body(Body::empty())
                .unwrap();
            let response = router.clone().oneshot(request).await.unwrap();
            let body = axum::body::to_bytes(response.into_body(), 100).await.unwrap();
            assert_eq!(body, want, "{content_type}");
        }
    }
}
