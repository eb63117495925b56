//! The one place where the parts meet: what was configured and opened becomes what is served.

use std::{future::Future, pin::Pin, sync::Arc};

use axum::{Router, extract::Request, middleware, response::IntoResponse};
use http::{StatusCode, header::CONTENT_TYPE};
use insula_registry::access::Authenticator;
use insula_store::Store;
use tower::ServiceExt;

use crate::{
    Env, StartError,
    config::Config,
    health::{self, Health},
    lifecycle::Lifecycle,
    metrics::Metrics,
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
    pub authenticator: Arc<Authenticator>,
    /// Where to count.
    pub metrics: Arc<Metrics>,
    /// When to end streams.
    pub lifecycle: Lifecycle,
    /// How clients reach us, without a path: for `status.URL` and discovery of addresses.
    pub url: String,
}

/// What is served, and what goes on beside it.
pub struct App {
    /// Every request, gRPC included.
    pub router: Router,
    /// Spawned by the server; ends with it.
    pub background: Vec<Background>,
}

/// Puts everything together. Nothing runs yet.
pub async fn build(parts: Parts) -> Result<App, StartError> {
    let Parts {
        config: _,
        env,
        store,
        authenticator,
        metrics,
        lifecycle,
        url: _,
    } = parts;
    let health = health::routes(Health {
        store,
        lifecycle,
        metrics,
        authenticator,
    });
    let http = health.fallback(not_found);
    let grpc = Router::new().fallback(no_such_service);
    let traced = by_content_type(http, grpc).layer(middleware::from_fn_with_state(env.rng, trace::trace));
    Ok(App {
        router: traced,
        background: Vec::new(),
    })
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

async fn not_found() -> impl IntoResponse {
    let body = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "the server could not find the requested resource",
        "reason": "NotFound", "details": {}, "code": 404,
    });
    (
        StatusCode::NOT_FOUND,
        [(CONTENT_TYPE, "application/json")],
        body.to_string(),
    )
}

async fn no_such_service() -> impl IntoResponse {
    tonic::Status::unimplemented("no such service").into_http::<axum::body::Body>()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
