//! Checks of extension servers: a request for the discovery of each APIService's group version, at
//! intervals that grow while it fails, and the condition `Available` with Kubernetes' reasons
//! (`kube-aggregator/pkg/controllers/status/remote`).
//!
//! A server that does not answer delays no other workspace: the checks of one workspace wait for
//! each other, those of different workspaces run at the same time.

use super::documents;
use crate::{
    extensions::{Known, Unreachable},
    mounts,
    openapi::{self, Extension},
    server::ApiServer,
};
use axum::body::{Body, Bytes};
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use insula_api::{ClusterName, Condition, Json, ObjectKey, Scope, names::well_known, set_condition};
use insula_auth::{GROUP_MASTERS, UserInfo};
use insula_catalog::{
    Error,
    aggregation::{self, AVAILABLE, ApiService, Backend},
    ids,
};
use insula_meter::ServerWork;
use insula_registry::{Intent, Plan};
use std::{
    collections::{BTreeSet, HashMap},
    ops::ControlFlow,
    sync::Arc,
    time::Duration,
};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Period in which due checks begin.
const TICK: Duration = Duration::from_secs(1);
/// Time of one request of a check, as in Kubernetes.
const CHECK_TIME: Duration = Duration::from_secs(5);
/// Seconds between two checks of a server that passes them.
const PERIOD_SECONDS: i64 = 30;
/// Maximum number of seconds between two checks of a server that fails them.
const PAUSE_SECONDS_MAX: i64 = 60;
/// Checks at once, of all workspaces.
const CHECKS_MAX: usize = 128;
/// Checks at once of one workspace.
const CHECKS_PER_WORKSPACE: usize = 2;
/// Bytes of an OpenAPI v2 document. A server with a larger one has no part in the workspace's.
const OPENAPI_V2_BYTES_MAX: usize = 2 << 20;
/// Bytes of a discovery document.
const DOCUMENT_BYTES_MAX: usize = 256 << 10;
/// Attempts to write a condition beside other writers.
const ATTEMPTS: usize = 5;
const SECOND_MICROS: i64 = 1_000_000;

/// The schedule of one APIService.
struct State {
    backend: Backend,
    /// Monotonic time in microseconds.
    due: i64,
    failures: u32,
    runs: bool,
}

/// The schedule of all APIServices.
#[derive(Default)]
struct Schedule {
    states: HashMap<ObjectKey, State>,
    running: HashMap<ClusterName, usize>,
}

/// An APIService to check.
struct Due {
    key: ObjectKey,
    service: Arc<ApiService>,
    backend: Backend,
}

/// Checks all extension servers, for as long as it runs.
pub async fn keep_checking(server: Arc<ApiServer>) {
    let mut schedule = Schedule::default();
    let mut running: FuturesUnordered<BoxFuture<'static, (ObjectKey, bool)>> = FuturesUnordered::new();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let clock = &server.registry.clock;
        tokio::select! {
            Some((key, passed)) = running.next(), if !running.is_empty() => {
                schedule.finished(&key, passed, clock.monotonic_micros());
            }
            _ = ticks.tick() => {
                let all = all(&server);
                server.extensions.forget_others(&all.iter().map(|due| &due.key).collect());
                for due in schedule.due(all, clock.monotonic_micros(), running.len()) {
                    let server = Arc::clone(&server);
                    running.push(Box::pin(async move {
                        let passed = check(&server, &due).await;
                        (due.key, passed)
                    }));
                }
            }
        }
    }
}

/// Returns all APIServices with an extension server.
fn all(server: &ApiServer) -> Vec<Due> {
    let mut found = Vec::new();
    let snapshot = server.registry.store.latest().for_server(ServerWork::Housekeeping);
    snapshot.for_each(&Scope::everywhere(ids::apiservices()), |entry| {
        let service = entry.object.parsed(ApiService::read);
        if let Some(backend) = service.backend.clone() {
            found.push(Due {
                key: entry.key.clone(),
                service,
                backend,
            });
        }
        ControlFlow::Continue(())
    });
    found
}

impl Schedule {
    /// Returns the APIServices whose checks begin now. A changed address is checked at once.
    fn due(&mut self, all: Vec<Due>, now: i64, running: usize) -> Vec<Due> {
        let present: BTreeSet<&ObjectKey> = all.iter().map(|due| &due.key).collect();
        self.states.retain(|key, state| state.runs || present.contains(key));
        let mut free = CHECKS_MAX.saturating_sub(running);
        let mut found = Vec::new();
        for due in all {
            let fresh = State {
                backend: due.backend.clone(),
                due: now,
                failures: 0,
                runs: false,
            };
            let state = self.states.entry(due.key.clone()).or_insert(fresh);
            if state.backend != due.backend {
                state.backend = due.backend.clone();
                (state.due, state.failures) = (now, 0);
            }
            let of_workspace = self.running.entry(due.key.cluster.clone()).or_default();
            if state.runs || state.due > now || free == 0 || *of_workspace >= CHECKS_PER_WORKSPACE {
                continue;
            }
            state.runs = true;
            // The next check, unless the address changes while this one runs.
            state.due = i64::MAX;
            *of_workspace += 1;
            free -= 1;
            found.push(due);
        }
        self.running.retain(|_, count| *count > 0);
        found
    }

    fn finished(&mut self, key: &ObjectKey, passed: bool, now: i64) {
        if let Some(count) = self.running.get_mut(&key.cluster) {
            *count = count.saturating_sub(1);
        }
        let Some(state) = self.states.get_mut(key) else { return };
        state.runs = false;
        if state.due < i64::MAX {
            return;
        }
        let seconds = match passed {
            true => {
                state.failures = 0;
                PERIOD_SECONDS
            }
            false => {
                state.failures = state.failures.saturating_add(1);
                PAUSE_SECONDS_MAX.min(1 << (state.failures - 1).min(10))
            }
        };
        state.due = now + seconds * SECOND_MICROS;
    }
}

/// Checks an extension server and writes the result. Returns true if it passed.
async fn check(server: &ApiServer, due: &Due) -> bool {
    let snapshot = server.registry.store.latest().for_server(ServerWork::Housekeeping);
    let ApiService { group, version, .. } = &*due.service;
    let is_taken = aggregation::serves(&server.registry.catalog, &snapshot, &due.key.cluster, (group, version));
    let result = match is_taken {
        true => Err(Condition::fails(
            AVAILABLE,
            "ServedLocally",
            format!(
                "the workspace serves {group}/{version} by itself: remove its definitions and bindings, or this \
                 APIService"
            ),
        )),
        false => documents_of(server, due).await,
    };
    let passed = result.is_ok();
    let condition = match result {
        Ok(known) => {
            server.extensions.keep(&due.key, known);
            Condition::holds(AVAILABLE).because("Passed", "all checks passed")
        }
        Err(condition) => {
            server.extensions.mark_stale(&due.key);
            if due.service.available {
                server.extensions.outages.count(&condition.reason);
            }
            condition.severity("")
        }
    };
    write(server, due, &condition).await;
    passed
}

/// Reads the documents of an extension server.
///
/// # Errors
/// The condition of a server that failed the check.
async fn documents_of(server: &ApiServer, due: &Due) -> Result<Known, Condition> {
    let api_version = due.service.api_version();
    let (path, backend) = (format!("/apis/{api_version}"), &due.backend);
    let url = format!("{}{path}", backend.url);
    let failed = |why: String| {
        let message = format!("failing or missing response from {url}: {why}");
        Condition::fails(AVAILABLE, "FailedDiscoveryCheck", message)
    };
    let (status, body) = match get(server, due, &path, DOCUMENT_BYTES_MAX).await {
        Ok(answer) => answer,
        Err(why) if why.is_unknown && backend.by_name => {
            let (namespace, name) = &backend.service;
            let message = format!(
                "service/{name} in {namespace:?} is not present: workspaces have no endpoints of services. Set the \
                 annotation insula.io/url to the URL of the extension server, or have the operator give \
                 {name}.{namespace}.svc an address and allow it (webhooks.allow)"
            );
            return Err(Condition::fails(AVAILABLE, "ServiceNotFound", message));
        }
        Err(why) => return Err(failed(format!("Get {url:?}: {}", why.message))),
    };
    if !status.is_success() {
        return Err(failed(format!("bad status from {url}: {}", status.as_u16())));
    }
    let list: Json = serde_json::from_slice(&body).unwrap_or_default();
    let (group, version) = (&*due.service.group, &*due.service.version);
    let openapi_v2 = openapi_v2_of(server, due).await;
    Ok(Known {
        resources: documents::resources(&list, (group, version)),
        bytes: body.len() + openapi_v2.as_ref().map_or(0, |part| part.bytes()),
        openapi: openapi_of(server, due, &api_version).await,
        openapi_v2,
        is_current: list["resources"].is_array(),
    })
}

async fn openapi_of(server: &ApiServer, due: &Due, api_version: &str) -> Option<String> {
    let (status, body) = get(server, due, "/openapi/v3", DOCUMENT_BYTES_MAX).await.ok()?;
    let index: Json = serde_json::from_slice(&body).ok().filter(|_| status.is_success())?;
    documents::openapi_hash(&index, api_version)
}

/// Returns the part of OpenAPI v2; the known one if the document is as it was.
async fn openapi_v2_of(server: &ApiServer, due: &Due) -> Option<Arc<Extension>> {
    let (status, body) = get(server, due, "/openapi/v2", OPENAPI_V2_BYTES_MAX).await.ok()?;
    if !status.is_success() {
        return None;
    }
    let known = server.extensions.known(&due.key).openapi_v2.clone();
    let source = openapi::extension_hash(&body);
    known.filter(|known| known.source == source).or_else(|| {
        let of = (&*due.service.group, &*due.service.version);
        Some(Arc::new(server.openapi.extension(&body, of)))
    })
}

/// Gets a document of an extension server, as Kubernetes' aggregator does.
async fn get(server: &ApiServer, due: &Due, path: &str, bytes_max: usize) -> Result<(StatusCode, Bytes), Unreachable> {
    let failed = |message: &str| Unreachable {
        message: message.to_owned(),
        is_unknown: false,
    };
    let user = UserInfo::authenticated(well_known::AGGREGATOR, "", vec![GROUP_MASTERS.to_owned()]);
    let mut request = Request::new(Body::empty());
    let uri = format!("{}{path}", due.backend.url).parse();
    *request.uri_mut() = uri.map_err(|_| failed("the URL cannot be understood"))?;
    let headers = request.headers_mut();
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    mounts::add_user(&user, headers).map_err(|_| failed("the aggregator cannot be named in a header"))?;
    let answer = async {
        let sent = server.extensions.servers.send(&due.key.cluster, &due.backend, request);
        let (head, body) = sent.await?.into_parts();
        match Limited::new(body, bytes_max).collect().await {
            Ok(body) => Ok((head.status, body.to_bytes())),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(failed(&format!("the document is larger than {bytes_max} bytes")))
            }
            Err(_) => Err(failed("unexpected EOF")),
        }
    };
    match timeout(CHECK_TIME, answer).await {
        Ok(answered) => answered,
        Err(_) => Err(failed("context deadline exceeded")),
    }
}

/// Writes the condition, unless the APIService has another server by now.
async fn write(server: &ApiServer, due: &Due, condition: &Condition) {
    let registry = &server.registry;
    for _ in 0..ATTEMPTS {
        let Some(entry) = registry.store.latest().get(&due.key) else {
            return;
        };
        if entry.object.parsed(ApiService::read).backend.as_ref() != Some(&due.backend) {
            return;
        }
        let mut value = entry.object.body_value();
        if !set_condition(&mut value, condition, registry.clock.now()) {
            return;
        }
        match insula_registry::commit(registry, &Plan::new(vec![Intent::Update(entry, value)])).await {
            Err(Error::Conflict { .. }) => {}
            Ok(_) => return,
            Err(error) => {
                tracing::warn!(service = %due.key.name, cluster = %due.key.cluster, %error, "a check is not recorded");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(cluster: &str, name: &str, url: &str) -> Due {
        let backend = Backend {
            url: url.into(),
            ca_bundle: None,
            insecure: false,
            service: ("default".into(), "api".into()),
            by_name: false,
        };
        let cluster = ClusterName::parse(cluster).expect("a name");
        Due {
            key: ObjectKey::cluster_scoped(ids::apiservices(), cluster, name),
            service: Arc::new(ApiService {
                group: "a.b".into(),
                version: "v1".into(),
                group_priority: 1,
                version_priority: 1,
                backend: Some(backend.clone()),
                available: false,
                reason: String::new(),
            }),
            backend,
        }
    }

    fn names(due: &[Due]) -> Vec<String> {
        due.iter().map(|due| due.key.name.to_string()).collect()
    }

    #[test]
    fn failing_servers_are_asked_less_and_less_often() {
        let mut schedule = Schedule::default();
        let one = || vec![due("a", "one", "https://x")];
        let key = one()[0].key.clone();
        let (mut now, mut pauses) = (0, Vec::new());
        for _ in 0..9 {
            assert_eq!(names(&schedule.due(one(), now, 0)), ["one"]);
            assert!(schedule.due(one(), now, 1).is_empty(), "it runs");
            schedule.finished(&key, false, now);
            let next = schedule.states[&key].due;
            pauses.push((next - now) / SECOND_MICROS);
            assert!(schedule.due(one(), next - 1, 0).is_empty());
            now = next;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(names(&schedule.due(one(), now, 0)), ["one"]);
        schedule.finished(&key, true, now);
        assert_eq!(schedule.states[&key].due, now + PERIOD_SECONDS * SECOND_MICROS);
        let moved = schedule.due(vec![due("a", "one", "https://y")], now, 0);
        assert_eq!(names(&moved), ["one"], "another address is checked at once");
        schedule.finished(&key, true, now);
        assert!(schedule.due(Vec::new(), now, 0).is_empty() && schedule.states.is_empty());
    }

    #[test]
    fn a_workspace_with_many_servers_delays_no_other() {
        let mut schedule = Schedule::default();
        let many = (0..10).map(|i| due("a", &format!("a{i}"), "https://x"));
        let all: Vec<Due> = many.chain([due("b", "b0", "https://y")]).collect();
        assert_eq!(names(&schedule.due(all, 0, 0)), ["a0", "a1", "b0"]);
    }
}
