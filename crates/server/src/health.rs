//! Endpoints beside the API: health, version, metrics and backups.
//!
//! Health is for everybody. The version is for authenticated users, and the reasons of a failure
//! are for administrators. Metrics are for administrators, and for users whom roles in `root` allow
//! to read them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    body::{Body, HttpBody},
    extract::Request,
    response::{IntoResponse, Response},
};
use http::{
    Method, StatusCode,
    header::{ACCEPT, ALLOW, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, VARY},
    request::Parts,
};
use insula_access::{AccountLookup, Authenticator, Unauthenticated};
use insula_api::{Clock, ClusterName};
use insula_apiserver::{ApiServer, NotActing, proxied_user};
use insula_auth::{Attributes, ClusterFacts, Permit};
use insula_edge::port::{Arrival, Lifecycle};
use insula_store::Store;
use serde_json::json;
use tokio::sync::{Mutex, Semaphore};

use crate::{
    VERSION, backup,
    certificates::Alarm,
    config::StoreChoice,
    metrics::{Metrics, format::Format},
};

const METRICS: &str = "/metrics";

/// Time for which the result of a probe of the store is reused.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// State of the endpoints.
#[derive(Clone)]
pub(crate) struct Health {
    pub(crate) store_check: Arc<StoreCheck>,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The API server, which counts open watches.
    pub(crate) api: Arc<ApiServer>,
    /// Permits of backups.
    pub(crate) backups: Arc<Semaphore>,
    /// The last failed reload of certificates.
    pub(crate) certificates: Arc<Alarm>,
}

impl Health {
    /// Runs the checks of `/readyz`.
    pub(crate) async fn checks(&self) -> Vec<(&'static str, Result<(), String>)> {
        let serving = match self.lifecycle.is_ready() {
            true => Ok(()),
            false => Err("starting, or shutting down".to_owned()),
        };
        let store = (self.store_check.name, self.store_check.ready().await);
        vec![("ping", Ok(())), ("serving", serving), store]
    }
}

/// Health check of the store. On etcd it has the name of Kubernetes' check, `etcd`.
pub(crate) struct StoreCheck {
    name: &'static str,
    pub(crate) store: Arc<dyn Store>,
    /// The latest probe and its time. Locked while a probe runs, so that concurrent requests share
    /// it.
    probed: Mutex<Option<(Instant, Result<(), String>)>>,
}

impl StoreCheck {
    pub(crate) fn new(store: Arc<dyn Store>, choice: &StoreChoice) -> Self {
        let name = match choice {
            StoreChoice::Etcd(_) => "etcd",
            StoreChoice::Embedded | StoreChoice::Memory => "store",
        };
        Self {
            name,
            store,
            probed: Mutex::default(),
        }
    }

    /// Probes the store, at most once in [`PROBE_INTERVAL`]: health is open to everybody.
    async fn ready(&self) -> Result<(), String> {
        let mut probed = self.probed.lock().await;
        if let Some((at, outcome)) = &*probed
            && at.elapsed() < PROBE_INTERVAL
        {
            return outcome.clone();
        }
        let outcome = self.store.ready().await;
        *probed = Some((Instant::now(), outcome.clone()));
        outcome
    }
}

/// Returns true for the path of an endpoint.
pub(crate) fn serves(path: &str) -> bool {
    let is_check = |(report, _): (&str, &str)| matches!(report, "/livez" | "/healthz" | "/readyz");
    matches!(
        path,
        "/livez" | "/healthz" | "/readyz" | "/version" | METRICS | backup::PATH
    ) || path.rsplit_once('/').is_some_and(is_check)
}

/// A request for an endpoint.
#[derive(Clone, Copy)]
pub(crate) struct Probe<'a> {
    arrival: &'a Arrival,
    head: &'a Parts,
}

/// Answers a request for an endpoint.
pub(crate) async fn answer(health: &Health, arrival: &Arrival, request: Request) -> Response {
    let (head, _) = request.into_parts();
    let probe = Probe { arrival, head: &head };
    let mut response = match (head.uri.path(), &head.method) {
        (path, _) if path.ends_with('/') => StatusCode::NOT_FOUND.into_response(),
        (_, method) if !matches!(*method, Method::GET | Method::HEAD) => {
            (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET,HEAD")]).into_response()
        }
        ("/version", _) => version(health, probe).await,
        (METRICS, _) => text(health, probe).await,
        (backup::PATH, _) => backup::answer(health, probe).await,
        (path, _) if path.starts_with("/livez") => live(health, probe).await,
        _ => ready(health, probe).await,
    };
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().entry(CONTENT_LENGTH).or_insert(length.into());
    }
    response
}

/// Answers `/livez`. The server is alive while it drains and while etcd is unreachable: a restart
/// would not help. It is not alive when the store can never write again: a restart reads the state
/// from the disk or from etcd.
async fn live(health: &Health, probe: Probe<'_>) -> Response {
    let checks = [
        ("ping", Ok(())),
        (health.store_check.name, health.store_check.store.health()),
    ];
    report(health, probe, &checks).await
}

async fn ready(health: &Health, probe: Probe<'_>) -> Response {
    let checks = health.checks().await;
    report(health, probe, &checks).await
}

/// The outcome of one check.
type Check<'a> = (&'a str, Result<(), String>);

/// Answers `/readyz/<check>` as Kubernetes does: with one check, to those who may read the path.
async fn one_check(health: &Health, probe: Probe<'_>, checks: &[Check<'_>], name: &str) -> Response {
    if let Err(refusal) = permit(health, probe, probe.head.uri.path()).await {
        return refusal.into_response();
    }
    match checks.iter().find(|(check, _)| *check == name) {
        Some((_, Ok(()))) => plain(StatusCode::OK, "ok".to_owned()),
        Some((_, Err(reason))) => {
            let text = format!("internal server error: {reason}\n");
            plain(StatusCode::INTERNAL_SERVER_ERROR, text)
        }
        None => plain(StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
    }
}

/// Writes the report in the format of Kubernetes. Reasons are for administrators only.
async fn report(health: &Health, probe: Probe<'_>, checks: &[Check<'_>]) -> Response {
    let uri = &probe.head.uri;
    let path = uri.path().trim_start_matches('/');
    if let Some((_, name)) = path.split_once('/') {
        return one_check(health, probe, checks, name).await;
    }
    let parts = || uri.query().into_iter().flat_map(|query| query.split('&'));
    let excluded: Vec<&str> = parts().filter_map(|part| part.strip_prefix("exclude=")).collect();
    let failed = checks
        .iter()
        .any(|(name, check)| check.is_err() && !excluded.contains(name));
    let verbose = parts().any(|part| part.starts_with("verbose"));
    let code = if failed {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    };
    // An alarm is no failure. With a full disk reads and deletions work, and clients that free
    // space must get through; with a refused certificate the previous one is in use.
    let alarms = [
        ("disk", health.store_check.store.alarm()),
        ("certificate", health.certificates.get()),
    ];
    if !failed && !verbose {
        return plain(code, "ok".to_owned());
    }
    // The path below `/readyz` is not open to everybody, and guards the reasons.
    let is_admin = permit(health, probe, &format!("{}/reasons", uri.path())).await.is_ok();
    let mut text = String::new();
    for (check, result) in checks {
        match result {
            _ if excluded.contains(check) => text += &format!("[+]{check} excluded: ok\n"),
            Ok(()) => text += &format!("[+]{check} ok\n"),
            Err(reason) if is_admin => text += &format!("[-]{check} failed: {reason}\n"),
            Err(_) => text += &format!("[-]{check} failed: reason withheld\n"),
        }
    }
    for (name, alarm) in alarms {
        match alarm {
            None => {}
            Some(alarm) if is_admin => text += &format!("[!]{name} alarm: {alarm}\n"),
            Some(_) => text += &format!("[!]{name} alarm: reason withheld\n"),
        }
    }
    text += &format!("{path} check {}\n", if failed { "failed" } else { "passed" });
    plain(code, text)
}

async fn version(health: &Health, probe: Probe<'_>) -> Response {
    if let Err(refusal) = permit(health, probe, probe.head.uri.path()).await {
        return refusal.into_response();
    }
    axum_json(StatusCode::OK, &insula_apiserver::discovery::version(VERSION))
}

async fn text(health: &Health, probe: Probe<'_>) -> Response {
    match permit(health, probe, probe.head.uri.path()).await {
        Ok(_) => {
            let accept = probe
                .head
                .headers
                .get_all(ACCEPT)
                .iter()
                .filter_map(|value| value.to_str().ok());
            let format = Format::preferred_by(Some(&accept.collect::<Vec<_>>().join(",")));
            let headers = [(CONTENT_TYPE, format.content_type()), (VARY, ACCEPT.as_str())];
            (headers, Body::from(format.write(health.metrics.text()))).into_response()
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Authenticates and authorizes a request by the same chain as every other path. The listener has
/// checked the certificate against our CA.
pub(crate) async fn permit(health: &Health, probe: Probe<'_>, path: &str) -> Result<Permit, Refusal> {
    let Probe { arrival, head } = probe;
    let (record, peer) = (&arrival.record, arrival.certificate.as_ref());
    let (headers, authenticator) = (&head.headers, &health.authenticator);
    let authorization = headers.get_all(AUTHORIZATION).iter().map(http::HeaderValue::as_bytes);
    let named = || proxied_user(headers, authenticator.delegate.is_some()).map_err(Unauthenticated::from);
    let lookup = AccountLookup::default();
    let user = authenticator
        .authenticate(peer, named, authorization, || None, &lookup)
        .await;
    let user = user.map_err(|error| {
        tracing::debug!(%error, "a credential was refused");
        record.refused(&error);
        let (code, reason, message) = match error {
            Unauthenticated::Malformed(message) => (StatusCode::BAD_REQUEST, "BadRequest", message),
            Unauthenticated::Refused(_) | Unauthenticated::Unavailable(_) => {
                (StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized".to_owned())
            }
        };
        Refusal { code, reason, message }
    })?;
    let attributes = Attributes {
        verb: head.method.as_str().to_lowercase().into(),
        path: path.to_owned(),
        ..Attributes::default()
    };
    record.known(&user);
    if let Some(connection) = &arrival.authenticated {
        connection.tell(&user);
    }
    let user = insula_apiserver::acting(user, headers).map_err(|why| {
        let (code, reason, message) = match why {
            NotActing::Unnamed(why) => (StatusCode::BAD_REQUEST, "BadRequest", why.to_string()),
            NotActing::Forbidden(message) => (StatusCode::FORBIDDEN, "Forbidden", message),
        };
        record.refused(&message);
        Refusal { code, reason, message }
    })?;
    let (attributes, facts) = question(health, attributes);
    match insula_auth::permit(&user, attributes, &facts) {
        Ok(permit) => {
            record.decided(true, permit.reason(), permit.trail());
            Ok(permit)
        }
        Err(forbidden) => {
            record.decided(false, &forbidden.reason, &forbidden.trail);
            Err(Refusal {
                code: StatusCode::FORBIDDEN,
                reason: "Forbidden",
                message: forbidden.message,
            })
        }
    }
}

/// Returns the attributes and facts of an authorization. Access to metrics is decided in `root`,
/// without access to the workspace `root` itself.
fn question(health: &Health, asked: Attributes) -> (Attributes, ClusterFacts) {
    if asked.path != METRICS {
        return (asked, ClusterFacts::default());
    }
    let root = ClusterName::root();
    let facts = ClusterFacts {
        entered: true,
        ..insula_access::facts(&health.store_check.store.latest(), &root)
    };
    let asked = Attributes {
        cluster: Some(root),
        ..asked
    };
    (asked, facts)
}

/// Refusal of a request.
pub(crate) struct Refusal {
    pub(crate) code: StatusCode,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self { code, reason, message } = self;
        axum_json(
            code,
            &json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": message, "reason": reason, "details": {}, "code": code.as_u16(),
            }),
        )
    }
}

fn axum_json(code: StatusCode, value: &serde_json::Value) -> Response {
    (code, [(CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

fn plain(code: StatusCode, text: String) -> Response {
    let headers = [
        (CONTENT_TYPE.as_str(), "text/plain; charset=utf-8"),
        ("x-content-type-options", "nosniff"),
    ];
    (code, headers, text).into_response()
}
