//! Endpoints beside the API: health, version, metrics and backups.
//!
//! Health is for everybody. The version is for authenticated users, and the reasons of a failure
//! are for administrators. Metrics are for administrators, and for users whom roles in `root` allow
//! to read them.

mod checks;

use insula_meter::ServerWork;
use std::sync::Arc;

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
use insula_edge::port::Arrival;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::{
    VERSION, backup,
    metrics::{Metrics, format::Format},
};

pub(crate) use checks::Checks;
use checks::Reasons;

const METRICS: &str = "/metrics";

/// State of the endpoints.
#[derive(Clone)]
pub(crate) struct Health {
    pub(crate) checks: Arc<Checks>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The API server, which counts open watches.
    pub(crate) api: Arc<ApiServer>,
    /// Permits of backups.
    pub(crate) backups: Arc<Semaphore>,
}

/// Returns true for the path of an endpoint.
pub(crate) fn serves(path: &str) -> bool {
    matches!(path, "/version" | METRICS | backup::PATH) || insula_apiserver::health::serves(path)
}

/// Returns the health endpoint at a path, for metrics; the empty text for other paths. One check
/// has no series of its own, as in Kubernetes.
pub(crate) fn check(path: &str) -> &'static str {
    let known = ["/livez", "/healthz", "/readyz"];
    known.into_iter().find(|known| *known == path).unwrap_or_default()
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
        _ => report(health, probe).await,
    };
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().entry(CONTENT_LENGTH).or_insert(length.into());
    }
    response
}

/// Answers a health check: everybody may read the three reports, one check those who may read its
/// path. Reasons are for administrators only.
async fn report(health: &Health, probe: Probe<'_>) -> Response {
    let uri = &probe.head.uri;
    let (name, check) = checks::parts(uri.path());
    if check.is_some()
        && let Err(refusal) = permit(health, probe, uri.path()).await
    {
        return refusal.into_response();
    }
    let report = health.checks.report(name, check, uri.query()).await;
    // The path below `/readyz` is not open to everybody, and guards the reasons.
    let shows_reasons = report.has_reasons()
        && (check.is_some() || permit(health, probe, &format!("{}/reasons", uri.path())).await.is_ok());
    report.into_response(if shows_reasons {
        Reasons::Shown
    } else {
        Reasons::Withheld
    })
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
    let latest = health.checks.store.latest().for_server(ServerWork::Housekeeping);
    let facts = ClusterFacts {
        entered: true,
        ..insula_access::facts(&latest, &root)
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
