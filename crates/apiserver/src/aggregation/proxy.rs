//! One proxied request: from the authorized request to the streamed answer.

use super::{
    body::{breaks, completes},
    headers,
};
use crate::{
    extensions::{Kind, Permit},
    mounts,
    reauthorize::Credentials,
    reply::{self, Form, Replied, Reply},
    request::Parsed,
    request_stages::Permitted,
    server::ApiServer,
};
use axum::body::Body;
use futures_util::{FutureExt, future::BoxFuture};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use insula_access::Authenticator;
use insula_api::{ClusterName, Verb};
use insula_auth::{Attributes, audit::OpenCall};
use insula_catalog::{
    Error, Named,
    aggregation::{self, Aggregated},
    freeze, locate,
};
use insula_edge::{guard::limits::WatchPermit, port::GuardedBody};
use insula_meter::Meter;
use insula_pipeline::ObjectPath;
use insula_pipeline::{Refusal, Scope};
use insula_registry::Deps;
use std::{fmt::Write, sync::Arc, time::Duration};
use tokio::{sync::watch, time::sleep};

/// Subresources whose requests last long, as in kube-apiserver.
const LONG: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// Returns the extension server of a group version in the cluster of a request. Virtual workspaces
/// have none.
pub(crate) fn find(server: &ApiServer, request: &Permitted, group: &str, version: &str) -> Option<Aggregated> {
    let cluster = request.authorized.scope().cluster.as_ref()?;
    if request.authorized.scope().view.is_some() {
        return None;
    }
    let catalog = &server.registry.catalog;
    aggregation::find(catalog, &request.authorized.scope().snapshot, cluster, (group, version))
}

/// Returns the extension server of a path below `/openapi/v3`.
pub(crate) fn document(server: &ApiServer, request: &Permitted, path: &str) -> Option<Aggregated> {
    let (group, version) = path.trim_matches('/').strip_prefix("apis/")?.split_once('/')?;
    find(server, request, group, version)
}

/// Returns the path of objects behind the cluster. It is made of the parts that were authorized.
pub(crate) fn path_of(path: &ObjectPath) -> String {
    let mut parts = vec!["apis", &path.group, &path.version];
    parts.extend(path.watch_prefix.then_some("watch"));
    if let Some(namespace) = &path.namespace {
        parts.extend(["namespaces", namespace]);
    }
    parts.push(&path.resource);
    parts.extend(path.name.as_deref());
    parts.extend(path.subresource.iter().flat_map(|rest| rest.split('/')));
    let mut text = String::new();
    for part in parts {
        text.push('/');
        encode(part, &mut text);
    }
    text
}

/// Percent-encodes the bytes of a segment that a path cannot hold.
fn encode(part: &str, into: &mut String) {
    for byte in part.bytes() {
        match byte {
            b'a'..=b'z'
            | b'A'..=b'Z'
            | b'0'..=b'9'
            | b'-'
            | b'.'
            | b'_'
            | b'~'
            | b':'
            | b'@'
            | b'!'
            | b'$'
            | b'&'
            | b'\''
            | b'('
            | b')'
            | b'*'
            | b'+'
            | b','
            | b'=' => into.push(char::from(byte)),
            // A String takes every text.
            byte => drop(write!(into, "%{byte:02X}")),
        }
    }
}

/// Proxies a request to its extension server, at a path of that server.
pub(crate) async fn proxy(server: &ApiServer, request: Permitted, to: Aggregated, path: &str) -> Replied {
    let Permitted { mut parsed, authorized } = request;
    let (scope, attributes) = (authorized.scope(), authorized.attributes());
    let Some(cluster) = scope.cluster.clone() else {
        return Err(Refusal::NotServed);
    };
    check_thawed(scope, &cluster, attributes, &parsed.method)?;
    parsed.check_forwarded()?;
    if !to.service.available {
        return Err(unavailable(&to));
    }
    let upgrade = parsed.upgrade.take();
    let kind = kind_of(&parsed, attributes, upgrade.is_some());
    let permit = server.extensions.permits.take(&cluster, kind)?;
    let stream = match kind {
        Kind::Stream => Some(Stream::open(server, &parsed, scope, &cluster, Some(&to))?),
        Kind::Request => None,
    };
    let mut fields = headers::of_request(&parsed.headers);
    if upgrade.is_some() {
        headers::add_upgrade(&parsed.headers, &mut fields);
    }
    headers::add_identity(authorized.user(), &cluster, &mut fields)?;
    let outgoing = outgoing(&mut parsed, &to, path, fields)?;
    // A walk that ended early may not have found that the workspace serves the API itself.
    scope.meter.check().map_err(Error::from)?;
    let answered = server.extensions.servers.send(to.home(), &to.backend, outgoing).await;
    let mut response = answered.map_err(|why| {
        let (service, home) = (&*to.key.name, to.home());
        tracing::info!(service, %home, why = why.message, "an extension server gave no answer");
        unreachable(&to, &cluster, &why.message)
    })?;
    let status = response.status();
    if status == StatusCode::SWITCHING_PROTOCOLS {
        let (Some(upgrade), Some(stream)) = (upgrade, stream) else {
            return Ok(bad_gateway("the backend changed the protocol, which nobody asked for").into());
        };
        let other = hyper::upgrade::on(&mut response);
        let fields = headers::of_upgrade(response.headers());
        let (end, held) = stream.into_parts();
        return Ok(upgrade.join(other, fields, end, (permit, held)).into());
    }
    if mounts::has_two_lengths(response.headers()) {
        return Ok(bad_gateway(mounts::TWO_LENGTHS).into());
    }
    if status.is_redirection() && response.headers().contains_key(header::LOCATION) {
        return Ok(bad_gateway(REDIRECTED).into());
    }
    let streamed = streamed(server, response, permit, stream);
    Ok(Reply::new(streamed, Form::Proxied))
}

/// Kubernetes' words.
const REDIRECTED: &str = "the backend attempted to redirect this request, which is not permitted";

fn kind_of(parsed: &Parsed, attributes: &Attributes, upgrades: bool) -> Kind {
    let is_long = LONG.contains(&attributes.subresource.split('/').next().unwrap_or_default());
    match upgrades || is_long || parsed.verb == Some(Verb::Watch) {
        true => Kind::Stream,
        false => Kind::Request,
    }
}

fn outgoing(parsed: &mut Parsed, to: &Aggregated, path: &str, fields: HeaderMap) -> Result<Request<Body>, Refusal> {
    let query = parsed.uri.query();
    // The hash of a document is that of the index, which is not the extension server's.
    let query = query.filter(|_| parsed.resource_path().is_some());
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    let Ok(uri) = format!("{}{path}{query}", to.backend.url).parse() else {
        let why = format!("the address of {} cannot be understood", to.key.name);
        return Err(Refusal::from(Error::Unavailable(why)));
    };
    let mut request = Request::new(std::mem::take(&mut parsed.body));
    *request.method_mut() = parsed.method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = fields;
    Ok(request)
}

/// Returns the answer as it comes, with an end.
fn streamed(server: &ApiServer, response: Response<Body>, permit: Permit, stream: Option<Stream>) -> Response<Body> {
    let (parts, body) = response.into_parts();
    let body = match stream {
        Some(stream) => {
            let (end, held) = stream.into_parts();
            GuardedBody::wrap(body, Some(end), completes, Some(Box::new((permit, held))))
        }
        None => {
            let time = sleep(server.limits.settings.request_time).boxed();
            GuardedBody::wrap(body, Some(time), breaks, Some(Box::new(permit)))
        }
    };
    let mut answer = Response::new(body);
    *answer.status_mut() = parts.status;
    *answer.headers_mut() = headers::of_answer(&parts.headers);
    answer
}

/// Refuses writes in a frozen workspace.
fn check_thawed(scope: &Scope, cluster: &ClusterName, attributes: &Attributes, method: &Method) -> Result<(), Refusal> {
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(());
    }
    let Err(freeze) = freeze::open(&scope.snapshot, cluster) else {
        return Ok(());
    };
    let known = locate::path_of(&scope.snapshot, cluster).to_string();
    let named = Named {
        group: attributes.group.as_str().into(),
        resource: attributes.resource.as_str().into(),
    };
    Err(Refusal::Verb(Error::Forbidden {
        resource: named,
        name: attributes.name.clone(),
        why: freeze.refusal(&known),
        cause: None,
    }))
}

fn unavailable(to: &Aggregated) -> Refusal {
    let reason = match to.service.reason.as_str() {
        "" => "it has not been checked yet",
        reason => reason,
    };
    let why = format!(
        "service unavailable: the APIService {} is not available: {reason}",
        to.key.name
    );
    Refusal::from(Error::Unavailable(why))
}

/// Returns the refusal of a request without an answer. Tenants of an export learn nothing about the
/// provider's server.
fn unreachable(to: &Aggregated, cluster: &ClusterName, why: &str) -> Refusal {
    let why = match to.home() == cluster {
        true => format!("error trying to reach service: {why}"),
        false => "error trying to reach service".to_owned(),
    };
    Refusal::from(Error::Unavailable(why))
}

fn bad_gateway(text: &str) -> Response<Body> {
    reply::bytes(502, text.as_bytes().to_vec(), "text/plain; charset=utf-8")
}

/// An answer that lasts: a watch, an upgraded connection, or text of a program.
pub(crate) struct Stream {
    review: Review,
    permit: WatchPermit,
    record: OpenCall,
}

/// The facts by which a stream is reviewed while it lasts.
struct Review {
    authenticator: Arc<Authenticator>,
    registry: Arc<Deps>,
    credentials: Credentials,
    period: Duration,
    closing: watch::Receiver<bool>,
    cluster: ClusterName,
    /// Pays for looking whether the extension server is still there.
    meter: Meter,
    /// None if this server answers.
    to: Option<Aggregated>,
}

impl Stream {
    /// Takes the permit of a stream.
    ///
    /// # Errors
    /// 429.
    pub(crate) fn open(
        server: &ApiServer,
        parsed: &Parsed,
        scope: &Scope,
        cluster: &ClusterName,
        to: Option<&Aggregated>,
    ) -> Result<Self, Refusal> {
        let permit = server
            .limits
            .watch(parsed.watch_payer(), Some(cluster), scope.own_limits())?;
        Ok(Stream {
            review: Review {
                authenticator: server.authenticator.clone(),
                registry: server.registry.clone(),
                credentials: Credentials::from_request(parsed)?,
                period: server.bookmark_period,
                closing: server.closing.clone(),
                cluster: cluster.clone(),
                meter: scope.meter.clone(),
                to: to.cloned(),
            },
            permit,
            record: parsed.record.open(),
        })
    }

    /// Returns a body that is sent as it comes, until the end of the stream.
    pub(crate) fn body(self, body: Body) -> Body {
        let (end, held) = self.into_parts();
        GuardedBody::wrap(body, Some(end), completes, Some(Box::new(held)))
    }

    /// Returns the end of the stream, and the permit that it holds until then.
    fn into_parts(self) -> (BoxFuture<'static, ()>, (WatchPermit, OpenCall)) {
        (self.review.until_ended().boxed(), (self.permit, self.record))
    }
}

impl Review {
    /// Waits until the server closes, the user's right is gone, or the cluster has no such
    /// extension server any more.
    async fn until_ended(mut self) {
        loop {
            tokio::select! {
                // An error is the end of the server.
                _ = self.closing.wait_for(|closing| *closing) => return,
                () = sleep(self.period) => {}
            }
            let refused = self.credentials.refusal(&self.authenticator, &self.registry).await;
            if refused.is_some() || !self.is_served() {
                return;
            }
        }
    }

    fn is_served(&self) -> bool {
        let Some(to) = &self.to else { return true };
        let service = &to.service;
        let snapshot = self.registry.store.latest().charged_to(&self.meter);
        let catalog = &self.registry.catalog;
        let found = aggregation::find(catalog, &snapshot, &self.cluster, (&service.group, &service.version));
        found.is_some_and(|found| found.key == to.key && found.backend == to.backend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{Rest, Route, parse};

    #[test]
    fn the_proxied_path_is_the_authorized_one() {
        for (raw, want) in [
            (
                "/clusters/root/apis/a.b/v1/namespaces/x/flunders/y/log",
                "/apis/a.b/v1/namespaces/x/flunders/y/log",
            ),
            (
                "/%63lusters/root/apis/a.b/v1/watch/flunders",
                "/apis/a.b/v1/watch/flunders",
            ),
            (
                "/clusters/root/apis/a.b/v1/flunders/a%20b%3Fc",
                "/apis/a.b/v1/flunders/a%20b%3Fc",
            ),
            ("/clusters/root/apis/a.b/v1/namespaces/x", "/apis/a.b/v1/namespaces/x"),
        ] {
            let Ok(Route::Cluster {
                rest: Rest::Resource(path),
                ..
            }) = parse(raw)
            else {
                panic!("{raw}");
            };
            assert_eq!(path_of(&path), want, "{raw}");
        }
    }
}
