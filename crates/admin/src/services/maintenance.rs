//! `MaintenanceService`: history, health, members, configuration, log level, support bundle.

use crate::{
    host::blocking,
    operations::{Operations, Record},
    pages::Page,
    requests::Once,
    session::{AdminService, Session, workspace_path},
    status,
};
use insula_api::{ClusterName, Json, Revision, Timestamp};
use insula_auth::audit::Filter;
use insula_catalog::locate::{self, NotLocated};
use insula_meter::{Meter, TenantPays};
use insula_proto::{
    admin::v1::{
        CompactRequest, CompactResponse, EtcdMember, GetConfigRequest, GetConfigResponse, GetHealthRequest,
        GetHealthResponse, GetLogLevelRequest, GetLogLevelResponse, GetSupportBundleRequest, GetSupportBundleResponse,
        HealthCheck, ListAuditEventsRequest, ListAuditEventsResponse, ListMembersRequest, ListMembersResponse,
        ServerMember, SetLogLevelRequest, SetLogLevelResponse, compact_request::Until,
        maintenance_service_server::MaintenanceService,
    },
    value,
};
use insula_registry::servers;
use insula_store::Gone;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::{collections::BTreeMap, pin::Pin, sync::Arc, time::Duration};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

/// The paths whose rights these calls take.
const MAINTENANCE: &str = "/maintenance";
const HEALTH: &str = "/readyz/reasons";
const METRICS: &str = "/metrics/bundle";
const AUDIT: &str = "/maintenance/audit";
/// Bytes of a message of a support bundle.
const CHUNK_BYTES: usize = 1 << 20;
/// Bytes of a level of the log.
const LEVEL_BYTES_MAX: usize = 1024;

#[tonic::async_trait]
impl MaintenanceService for AdminService {
    async fn compact(&self, request: Request<CompactRequest>) -> Result<Response<CompactResponse>, Status> {
        let session = self.begin(&request).await?;
        session.administer("post", MAINTENANCE)?;
        let request = request.into_inner();
        let upto = match request.until {
            None | Some(Until::Revision(0)) => return Err(status::invalid("revision", "or age is required")),
            Some(Until::Revision(revision)) => Revision(revision),
            Some(Until::Age(ref age)) => {
                let age = Duration::try_from(*age).map_err(|_| status::invalid("age", "must not be negative"))?;
                let known = match age.as_secs() {
                    0 => Some(session.snapshot.revision()),
                    seconds => self.host.revision_before(seconds),
                };
                known.ok_or_else(|| {
                    let text = format!(
                        "age: this server keeps no history that is older than {} s",
                        age.as_secs()
                    );
                    Status::failed_precondition(text)
                })?
            }
        };
        let latest = session.snapshot.revision();
        if upto > latest {
            let problem = format!("{upto} is in the future; the latest is {latest}");
            return Err(status::out_of_range("revision", problem));
        }
        let once = once(&request.request_id, request.validate_only);
        let compacted = async {
            if !request.validate_only {
                let compacted = self.registry().store.compact(upto).await;
                compacted.map_err(|gone: Gone| status::out_of_range("revision", gone))?;
                tracing::info!(%upto, "the history was compacted by a call");
            }
            let oldest = self.registry().store.measures().floor;
            Ok(CompactResponse {
                header: session.header(),
                revision: oldest.max(upto).0,
            })
        };
        self.once(&session, once, &request, compacted).await.map(Response::new)
    }

    async fn get_health(&self, request: Request<GetHealthRequest>) -> Result<Response<GetHealthResponse>, Status> {
        let session = self.begin(&request).await?;
        session.administer("get", HEALTH)?;
        let checks = self.checks().await;
        Ok(Response::new(GetHealthResponse {
            header: session.header(),
            ready: checks.iter().all(|check| check.ok),
            checks,
            alarm: self.registry().store.alarm().unwrap_or_default(),
        }))
    }

    async fn list_members(
        &self,
        request: Request<ListMembersRequest>,
    ) -> Result<Response<ListMembersResponse>, Status> {
        let session = self.begin(&request).await?;
        session.administer("get", MAINTENANCE)?;
        let request = request.into_inner();
        let page = Page::read(&session, &[], request.page_size, &request.page_token)?;
        let revision = page.snapshot(&session).await?.revision();
        let (servers, etcd_members) = self.members(&session).await?;
        let from = page.after.as_ref().map(|(_, name)| name.clone()).unwrap_or_default();
        let mut rest = servers.into_iter().filter(|server| server.name > from);
        let servers: Vec<ServerMember> = rest.by_ref().take(page.size).collect();
        let last = servers.last().filter(|_| rest.next().is_some());
        Ok(Response::new(ListMembersResponse {
            header: session.header_at(revision),
            next_page_token: last.map_or_else(String::new, |last| page.next(revision, &last.name)),
            servers,
            etcd_members,
        }))
    }

    async fn get_config(&self, request: Request<GetConfigRequest>) -> Result<Response<GetConfigResponse>, Status> {
        let session = self.begin(&request).await?;
        session.administer("get", MAINTENANCE)?;
        let config = self.host.config().as_object().cloned().unwrap_or_default();
        let config = value::from_json(&config).map_err(|error| Status::internal(error.to_string()))?;
        Ok(Response::new(GetConfigResponse {
            header: session.header(),
            config: Some(config),
        }))
    }

    async fn get_log_level(
        &self,
        request: Request<GetLogLevelRequest>,
    ) -> Result<Response<GetLogLevelResponse>, Status> {
        let session = self.begin(&request).await?;
        session.administer("get", MAINTENANCE)?;
        let config = self.host.config();
        Ok(Response::new(GetLogLevelResponse {
            header: session.header(),
            level: self.host.log_level(),
            configured_level: config["log"]["level"].as_str().unwrap_or_default().to_owned(),
        }))
    }

    async fn set_log_level(
        &self,
        request: Request<SetLogLevelRequest>,
    ) -> Result<Response<SetLogLevelResponse>, Status> {
        let session = self.begin(&request).await?;
        session.administer("post", MAINTENANCE)?;
        let request = request.into_inner();
        if request.level.trim().is_empty() || request.level.len() > LEVEL_BYTES_MAX {
            let text = format!("is required, and has at most {LEVEL_BYTES_MAX} bytes; write one such as debug");
            return Err(status::invalid("level", text));
        }
        let once = once(&request.request_id, request.validate_only);
        let changed = async {
            let former_level = self.host.log_level();
            let set = self.host.set_log_level(&request.level, request.validate_only);
            set.map_err(|why| status::invalid("level", why))?;
            if !request.validate_only {
                let (user, level) = (&session.caller.acting_user().name, &request.level);
                tracing::warn!(level, former_level, user, "the level of the log was changed");
            }
            Ok(SetLogLevelResponse {
                header: session.header(),
                level: request.level.clone(),
                former_level,
            })
        };
        self.once(&session, once, &request, changed).await.map(Response::new)
    }

    async fn list_audit_events(
        &self,
        request: Request<ListAuditEventsRequest>,
    ) -> Result<Response<ListAuditEventsResponse>, Status> {
        let session = self.begin(&request).await?;
        session.administer("get", AUDIT)?;
        let request = request.into_inner();
        let fields = [
            &*request.workspace,
            &request.user,
            &request.verb,
            &request.resource,
            &request.name,
        ];
        let failed = if request.failed { "failed" } else { "" };
        let selected = [&fields[..], &[failed]].concat();
        let page = Page::read(&session, &selected, request.page_size, &request.page_token)?;
        let filter = Filter {
            cluster: recorded_cluster(&session, &request.workspace)?,
            user: request.user,
            verb: request.verb,
            resource: request.resource,
            name: request.name,
            failed: request.failed,
        };
        let (most, before) = (page.size, page.after.as_ref().map(|(_, position)| position.clone()));
        let (host, meter) = (Arc::clone(&self.host), session.caller.work().clone());
        let read_page = move |meter: &Meter| host.audit_events(&filter, most, before.as_deref(), meter);
        let read = move || meter.without_turns(TenantPays::ByMeter, || read_page(&meter));
        let read = blocking(&*self.host, read).await?.map_err(Status::unavailable)?;
        let events = read.events.iter().filter_map(Json::as_object).map(value::from_json);
        let revision = session.snapshot.revision();
        Ok(Response::new(ListAuditEventsResponse {
            header: session.header(),
            events: events
                .collect::<Result<_, _>>()
                .map_err(|error| Status::internal(error.to_string()))?,
            next_page_token: read.next.map_or_else(String::new, |next| page.next(revision, &next)),
        }))
    }

    type GetSupportBundleStream = Pin<Box<dyn Stream<Item = Result<GetSupportBundleResponse, Status>> + Send>>;

    async fn get_support_bundle(
        &self,
        request: Request<GetSupportBundleRequest>,
    ) -> Result<Response<Self::GetSupportBundleStream>, Status> {
        let session = self.begin(&request).await?;
        session.administer("get", MAINTENANCE)?;
        session.administer("get", METRICS)?;
        let text = serde_json::to_vec_pretty(&self.bundle(&session).await?);
        let text = text.map_err(|error| Status::internal(error.to_string()))?;
        let sha256: String = Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
        let header = session.header();
        let message = |data: &[u8], sha256: &str| {
            Ok(GetSupportBundleResponse {
                header: header.clone(),
                data: data.to_vec(),
                sha256: sha256.to_owned(),
            })
        };
        let mut messages: Vec<_> = text.chunks(CHUNK_BYTES).map(|data| message(data, "")).collect();
        messages.push(message(&[], &sha256));
        Ok(Response::new(Box::pin(tokio_stream::iter(messages))))
    }
}

/// Returns the logical cluster whose requests the log has. One that is gone is still in the log, by
/// its name.
fn recorded_cluster(session: &Session, workspace: &str) -> Result<Option<ClusterName>, Status> {
    if workspace.is_empty() {
        return Ok(None);
    }
    let path = workspace_path("workspace", workspace)?;
    match locate::locate_view(&session.snapshot, &path) {
        Ok((cluster, _)) => Ok(Some(cluster)),
        Err(NotLocated::UnknownCluster(cluster)) if path.parent().is_none() => Ok(Some(cluster)),
        Err(why) => Err(status::not_located(&path, &why).unwrap_or_else(|| status::no_workspace(workspace))),
    }
}

fn once(request_id: &str, validate_only: bool) -> Once<'_> {
    Once {
        request_id,
        validate_only,
    }
}

impl AdminService {
    async fn checks(&self) -> Vec<HealthCheck> {
        let checks = self.host.checks().await.into_iter();
        let described = checks.map(|(name, outcome)| HealthCheck {
            name: name.to_owned(),
            ok: outcome.is_ok(),
            message: outcome.err().unwrap_or_default(),
        });
        described.collect()
    }

    /// Returns the servers, and the members of etcd.
    async fn members(&self, session: &Session) -> Result<(Vec<ServerMember>, Vec<EtcdMember>), Status> {
        let time = |time: Timestamp| {
            Some(prost_types::Timestamp {
                seconds: time.0,
                nanos: 0,
            })
        };
        let now = self.registry().clock.now();
        let known = servers::list(&session.snapshot, now, self.server());
        let servers = known.into_iter().map(|(server, seen)| ServerMember {
            answers: server.name == self.registry().team.run(),
            name: server.name,
            url: server.url,
            version: server.version,
            start_time: time(Timestamp(server.started)),
            seen_time: time(seen),
        });
        let members = self.registry().store.members().await.map_err(Status::unavailable)?;
        let members = members.into_iter().map(|member| EtcdMember {
            id: format!("{:x}", member.id),
            name: member.name,
            client_urls: member.client_urls,
            learner: member.learner,
        });
        Ok((servers.collect(), members.collect()))
    }

    /// Returns the document of a support bundle.
    async fn bundle(&self, session: &Session) -> Result<Json, Status> {
        let checks = self.checks().await.into_iter();
        let checks = checks.map(|check| json!({"name": check.name, "ok": check.ok, "message": check.message}));
        let members = match self.members(session).await {
            Ok((servers, etcd)) => json!({
                "servers": servers.iter().map(|server| json!({"name": server.name, "url": server.url,
                    "version": server.version, "answers": server.answers})).collect::<Vec<_>>(),
                "etcd": etcd.iter().map(|member| json!({"id": member.id, "name": member.name,
                    "learner": member.learner})).collect::<Vec<_>>(),
            }),
            Err(status) => json!({"error": status.message()}),
        };
        let mut operations: BTreeMap<String, u64> = BTreeMap::new();
        for entry in Operations::list(&session.snapshot) {
            if let Some(record) = Record::read(&entry.object) {
                *operations
                    .entry(format!("{} {}", record.kind, record.state()))
                    .or_default() += 1;
            }
        }
        let scope = insula_api::Scope::everything();
        Ok(json!({
            "time": self.registry().clock.now().to_string(),
            "version": self.info.version, "kubernetesVersion": self.info.kubernetes_version,
            "store": self.info.store, "started": self.info.started.to_string(),
            "revision": session.snapshot.revision().0.to_string(), "objects": session.snapshot.count(&scope),
            "config": self.host.config(), "logLevel": self.host.log_level(),
            "health": checks.collect::<Vec<_>>(), "alarm": self.registry().store.alarm(),
            "members": members, "operations": operations, "runtime": self.host.runtime(),
            "metrics": self.host.metrics().lines().collect::<Vec<_>>(),
        }))
    }
}
