//! `QuotaService`: limits of workspaces, and what they use.

use super::{freeze::Child, retry::retried};
use crate::{
    fields::{Mask, etag},
    pages::Page,
    requests::Once,
    session::{AdminService, Session, right},
    status::{self, Fault},
};
use insula_api::{
    ClusterName, ObjectKey, Revision, Scope, Timestamp, Verb,
    names::{annotations, groups},
};
use insula_catalog::{
    Error, ids,
    limits::WorkspaceLimits,
    locate,
    metering::{self, Amounts, METERS, VERBS},
};
use insula_proto::admin::v1::{
    ErrorReason, GetLimitsRequest, GetLimitsResponse, GetUsageRequest, GetUsageResponse, Limits, ListUsageRequest,
    ListUsageResponse, MeteredUsage, ResourceUsage, SetLimitsRequest, SetLimitsResponse, WorkspaceUsage,
    quota_service_server::QuotaService,
};
use insula_registry::set_annotations;
use insula_store::{Entry, Snapshot};
use std::ops::ControlFlow;
use tonic::{Code, Request, Response, Status};

/// Hours to look back where the caller names no number, and the most.
const HOURS_DEFAULT: i64 = 24;
const HOURS_MAX: i64 = metering::KEPT_DAYS * 24;
const HOUR_SECONDS: i64 = 3_600;

#[tonic::async_trait]
impl QuotaService for AdminService {
    async fn get_limits(&self, request: Request<GetLimitsRequest>) -> Result<Response<GetLimitsResponse>, Status> {
        let session = self.begin(&request).await?;
        let located = session.locate(or_root(&request.get_ref().workspace), &reading())?;
        let entered = self.enter(&session, &located.cluster).await?;
        let (own, etag) = entered.run(async { own(&session.snapshot, &located.cluster) }).await;
        let server = self.server_limits();
        Ok(Response::new(GetLimitsResponse {
            header: session.header(),
            effective: Some(effective(&own, &server)),
            own: Some(own),
            server: Some(server),
            etag,
        }))
    }

    async fn set_limits(&self, request: Request<SetLimitsRequest>) -> Result<Response<SetLimitsResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let child = Child::find(&session, &request.workspace, "limit")?;
        let once = Once {
            request_id: &request.request_id,
            validate_only: request.validate_only,
        };
        let entered = self.enter(&session, &child.workspace.cluster).await?;
        let (service, session_, child, sent) = (self, &session, &child, &request);
        let work = entered.run(retried(session_, &request.etag, move |snapshot| async move {
            service.set(session_, &snapshot, child, sent).await
        }));
        self.once(&session, once, &request, work).await.map(Response::new)
    }

    async fn get_usage(&self, request: Request<GetUsageRequest>) -> Result<Response<GetUsageResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let cluster = session.locate(or_root(&request.workspace), &reading())?.cluster;
        let from = self.since(request.hours)?;
        let entered = self.enter(&session, &cluster).await?;
        let (resources, hours) = entered
            .run(async {
                let resources = self.resources(&session.snapshot, &cluster);
                (resources, self.hours(&session.snapshot, &cluster, from))
            })
            .await;
        let now = self.api.limits.usage_of(&cluster);
        Ok(Response::new(GetUsageResponse {
            header: session.header(),
            resources,
            requests_in_flight: now.requests as i64,
            watches: now.watches as i64,
            bytes_in_flight: now.bytes as i64,
            metered: hours
                .iter()
                .map(|(hour, amounts)| metered(Some(*hour), amounts))
                .collect(),
        }))
    }

    async fn list_usage(&self, request: Request<ListUsageRequest>) -> Result<Response<ListUsageResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let listing = right(Verb::List, groups::TENANCY, "workspaces", "");
        let parent = session
            .locate_field("parent", or_root(&request.parent), &listing)?
            .cluster;
        let from = self.since(request.hours)?;
        let entered = self.enter(&session, &parent).await?;
        entered.run(self.children(&session, &parent, &request, from)).await
    }
}

/// Returns a path, or `root` for an empty one.
fn or_root(path: &str) -> &str {
    if path.is_empty() { "root" } else { path }
}

/// The right by which a user reads a workspace from within.
fn reading() -> insula_auth::Attributes {
    right(Verb::Get, groups::CORE, "logicalclusters", "cluster")
}

fn signed(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Returns the limits that the platform set for a workspace, and their etag.
fn own(snapshot: &Snapshot, cluster: &ClusterName) -> (Limits, String) {
    match snapshot.get(&ids::logical_cluster(cluster)) {
        Some(entry) => (of_entry(&entry), entry.revision.to_string()),
        None => (Limits::default(), String::new()),
    }
}

fn of_entry(entry: &Entry) -> Limits {
    let view = entry
        .object
        .parsed(|object| locate::LogicalClusterView::read(&object.body_value()));
    let own = view.limits.as_deref().copied().unwrap_or_default();
    let some = |limit: Option<usize>| limit.map_or(0, signed);
    Limits {
        objects: match view.objects_max {
            Some(0) => -1,
            Some(most) => i64::try_from(most).unwrap_or(i64::MAX),
            None => 0,
        },
        requests_in_flight: some(own.requests),
        requests_per_second: some(own.rate),
        watches: some(own.watches),
        bytes_in_flight: some(own.bytes),
        storage_bytes: own.storage.map_or(0, bytes_or_none),
    }
}

/// Returns a limit of bytes; -1 for none.
pub(super) fn bytes_or_none(limit: u64) -> i64 {
    match limit {
        0 => -1,
        limit => i64::try_from(limit).unwrap_or(i64::MAX),
    }
}

fn effective(own: &Limits, server: &Limits) -> Limits {
    let either = |own: i64, server: i64| if own == 0 { server } else { own };
    Limits {
        objects: either(own.objects, server.objects),
        requests_in_flight: either(own.requests_in_flight, server.requests_in_flight),
        requests_per_second: either(own.requests_per_second, server.requests_per_second),
        watches: either(own.watches, server.watches),
        bytes_in_flight: either(own.bytes_in_flight, server.bytes_in_flight),
        storage_bytes: either(own.storage_bytes, server.storage_bytes),
    }
}

/// Returns the limits with the fields of an update in the place of the former ones.
fn updated(own: Limits, wanted: &Limits, mask: &Mask) -> Result<Limits, Status> {
    let field = |name: &'static str, least: i64, own: i64, wanted: i64| match (mask.has(name), wanted) {
        (false, _) => Ok(own),
        (true, wanted) if wanted >= least => Ok(wanted),
        (true, _) => Err(status::invalid(
            &format!("limits.{name}"),
            format!("must be at least {least}"),
        )),
    };
    Ok(Limits {
        objects: field("objects", -1, own.objects, wanted.objects)?,
        requests_in_flight: field(
            "requests_in_flight",
            0,
            own.requests_in_flight,
            wanted.requests_in_flight,
        )?,
        requests_per_second: field(
            "requests_per_second",
            0,
            own.requests_per_second,
            wanted.requests_per_second,
        )?,
        watches: field("watches", 0, own.watches, wanted.watches)?,
        bytes_in_flight: field("bytes_in_flight", 0, own.bytes_in_flight, wanted.bytes_in_flight)?,
        storage_bytes: field("storage_bytes", -1, own.storage_bytes, wanted.storage_bytes)?,
    })
}

impl AdminService {
    fn server_limits(&self) -> Limits {
        let share = self.api.limits.settings.workspace;
        Limits {
            objects: match self.registry().objects_per_workspace {
                0 => -1,
                most => i64::try_from(most).unwrap_or(i64::MAX),
            },
            requests_in_flight: signed(share.requests),
            requests_per_second: signed(share.rate),
            watches: signed(share.watches),
            bytes_in_flight: signed(share.bytes),
            storage_bytes: bytes_or_none(self.registry().storage.workspace_bytes),
        }
    }

    async fn set(
        &self,
        session: &Session,
        snapshot: &Snapshot,
        child: &Child,
        request: &SetLimitsRequest,
    ) -> Result<SetLimitsResponse, Status> {
        let wanted = request.limits.unwrap_or_default();
        let known = [
            ("objects", wanted.objects != 0),
            ("requests_in_flight", wanted.requests_in_flight != 0),
            ("requests_per_second", wanted.requests_per_second != 0),
            ("watches", wanted.watches != 0),
            ("bytes_in_flight", wanted.bytes_in_flight != 0),
            ("storage_bytes", wanted.storage_bytes != 0),
        ];
        let mask = Mask::read(request.update_mask.as_ref(), &known)?;
        let given = etag(&request.etag)?.and_then(|etag| etag.parse().ok()).map(Revision);
        let (own, present) = own(snapshot, &child.cluster);
        let limits = updated(own, &wanted, &mask)?;
        let stale = || {
            let text = "etag: is not that of the present limits: read them again";
            let fault = Fault::new(Code::Aborted, ErrorReason::StaleEtag, text);
            fault
                .resource("workspaces.tenancy.kcp.io", &child.workspace.name)
                .status()
        };
        if given.is_some_and(|given| given.to_string() != present) {
            return Err(stale());
        }
        if request.validate_only {
            return Ok(SetLimitsResponse {
                header: session.header_at(snapshot.revision()),
                own: Some(limits),
                etag: present,
            });
        }
        let some = |limit: i64| usize::try_from(limit).ok().filter(|limit| *limit > 0);
        let of_requests = WorkspaceLimits {
            requests: some(limits.requests_in_flight),
            rate: some(limits.requests_per_second),
            watches: some(limits.watches),
            bytes: some(limits.bytes_in_flight),
            // -1 is no limit, which the annotation's type has as 0.
            storage: (limits.storage_bytes != 0).then(|| u64::try_from(limits.storage_bytes).unwrap_or(0)),
        };
        let objects = (limits.objects != 0).then(|| limits.objects.to_string());
        let written = [
            (annotations::LIMITS, of_requests.write()),
            (annotations::OBJECTS_MAX, objects),
        ];
        // Fields that the mask leaves out were read at this revision.
        let at_revision = present.parse().ok().map(Revision);
        let entry = set_annotations(self.registry(), &child.cluster, at_revision, &written)
            .await
            .map_err(|error| match error {
                Error::Conflict { .. } => stale(),
                error => super::freeze::failed(error),
            })?;
        Ok(SetLimitsResponse {
            header: session.header_at(entry.revision),
            own: Some(of_entry(&entry)),
            etag: entry.revision.to_string(),
        })
    }

    /// Returns the time from which amounts are asked for.
    fn since(&self, hours: i32) -> Result<Timestamp, Status> {
        let hours = match i64::from(hours) {
            0 => HOURS_DEFAULT,
            hours @ 1..=HOURS_MAX => hours,
            _ => return Err(status::invalid("hours", format!("must be between 0 and {HOURS_MAX}"))),
        };
        Ok(Timestamp(self.registry().clock.now().0 - hours * HOUR_SECONDS))
    }

    /// Returns the stored objects of a cluster by resource, without resources that have none.
    fn resources(&self, snapshot: &Snapshot, cluster: &ClusterName) -> Vec<ResourceUsage> {
        let served = self.registry().catalog.served(snapshot, cluster);
        let mut found: Vec<ResourceUsage> = served
            .iter()
            .filter(|served| served.alias.is_none())
            .map(|served| {
                let (mut objects, mut bytes) = (0, 0);
                snapshot.for_each(&Scope::cluster(served.resource_id(), cluster.clone()), |entry| {
                    objects += 1;
                    bytes += signed(entry.object.size());
                    ControlFlow::Continue(())
                });
                ResourceUsage {
                    group: served.api.group.to_string(),
                    resource: served.api.names.plural.to_string(),
                    objects,
                    bytes,
                }
            })
            .filter(|usage| usage.objects > 0)
            .collect();
        found.sort_unstable_by(|a, b| (&a.group, &a.resource).cmp(&(&b.group, &b.resource)));
        found
    }

    /// Returns the metered amounts of a workspace by the hour: stored, and counted since.
    fn hours(&self, snapshot: &Snapshot, cluster: &ClusterName, from: Timestamp) -> metering::Hours {
        let mut hours = metering::stored(snapshot, cluster, from);
        let pending = self.registry().cache.metering.pending(cluster);
        if !pending.is_empty() {
            let now = self.registry().clock.now().0;
            hours
                .entry(now - now.rem_euclid(HOUR_SECONDS))
                .or_default()
                .add(&pending);
        }
        hours
    }

    async fn children(
        &self,
        session: &Session,
        parent: &ClusterName,
        request: &ListUsageRequest,
        from: Timestamp,
    ) -> Result<Response<ListUsageResponse>, Status> {
        let filter = format!("{} {}", request.hours, request.by_resource);
        let page = Page::read(
            session,
            &[parent.as_str(), &filter],
            request.page_size,
            &request.page_token,
        )?;
        let snapshot = &page.snapshot(session).await?;
        let after = page.after.as_ref();
        let after = after.map(|(_, name)| ObjectKey::cluster_scoped(ids::workspaces(), parent.clone(), name));
        let scope = Scope::cluster(ids::workspaces(), parent.clone());
        let mut found = snapshot.range(&scope, after.as_ref(), page.size + 1);
        let more = found.len() > page.size;
        found.truncate(page.size);
        let last = found.last().filter(|_| more);
        let next = last.map(|last| page.next(snapshot.revision(), &last.key.name));
        let path = locate::path_of(snapshot, parent);
        let workspaces = found.iter().filter_map(|entry| {
            let cluster = locate::cluster_of(snapshot, parent, &entry.key.name)?;
            let resources = self.resources(snapshot, &cluster);
            let mut sum = Amounts::default();
            for amounts in self.hours(snapshot, &cluster, from).values() {
                sum.add(amounts);
            }
            Some(WorkspaceUsage {
                path: path.join(&entry.key.name).to_string(),
                cluster: cluster.to_string(),
                objects: resources.iter().map(|usage| usage.objects).sum(),
                bytes: resources.iter().map(|usage| usage.bytes).sum(),
                resources: if request.by_resource { resources } else { Vec::new() },
                metered: Some(metered(None, &sum)),
            })
        });
        Ok(Response::new(ListUsageResponse {
            header: session.header_at(snapshot.revision()),
            workspaces: workspaces.collect(),
            next_page_token: next.unwrap_or_default(),
        }))
    }
}

fn metered(hour: Option<i64>, amounts: &Amounts) -> MeteredUsage {
    let count = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    let named = METERS
        .iter()
        .zip(amounts.0)
        .take(VERBS)
        .filter(|(_, amount)| *amount > 0);
    MeteredUsage {
        hour: hour.map(|seconds| prost_types::Timestamp { seconds, nanos: 0 }),
        requests: named
            .map(|(verb, amount)| ((*verb).to_owned(), count(amount)))
            .collect(),
        bytes_out: count(amounts.0[VERBS]),
        conversions: count(amounts.0[VERBS + 1]),
    }
}
