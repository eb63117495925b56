//! `ApiService`: requests for the right to bind an export. The server makes the APIBindRequest with
//! its own authority, in a workspace that the caller may not enter, so it decides by itself who may
//! ask, in whose name and how often. Decisions are requests as the caller.

mod limits;

use super::{
    manifests::text,
    objects::{moment, or_root, required},
};
use crate::{
    api_request::{ApiRequest, ObjectPath},
    fields,
    pages::Page,
    services::{header_after, retry::retried},
    session::{AdminService, Located, Session, right},
    status::{Fault, UNKNOWN_VALUE, invalid},
};
use insula_admission::kinds::is_hidden;
use insula_api::{
    ClusterName, ClusterPath, Json, Object, ObjectKey, Scope, Timestamp, Verb, condition,
    names::{annotations, groups},
};
use insula_auth::{Identities, UserInfo};
use insula_catalog::{
    Error, SerializationPoint,
    exports::{
        ExportName, ExportView,
        bind_request::{self, BindRequest, Decision, GRANTED, REASON_BYTES_MAX, Requester},
    },
    freeze, ids, indexes, locate,
};
use insula_proto::admin::v1::{
    ApiBindRequest, ApiRequestDecision, ApiRequestState, DecideApiRequestRequest, DecideApiRequestResponse,
    ErrorReason, ListApiRequestsRequest, ListApiRequestsResponse, RequestApiRequest, RequestApiResponse,
};
use insula_registry::{Intent, Plan, commit, rewrite};
use insula_store::{Entry, Snapshot};
use limits::check_limits;
use serde_json::json;
use std::ops::ControlFlow;
use tonic::{Code, Status};

const PLURAL: &str = "apibindrequests";
/// Bytes of the name of a user who may ask.
const USER_BYTES_MAX: usize = 512;

/// The side from which a request is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The owner of the export.
    Owner,
    /// The user who asks, who does not see who decided, nor the roles of the owner's workspace.
    Requester,
}

/// An export that the caller may ask for.
struct RequestableExport {
    name: ExportName,
    entry: Entry,
    requester: Requester,
    /// Seconds that the request waits for a decision.
    seconds: i64,
}

fn wrong_state(message: impl Into<String>) -> Status {
    Fault::new(Code::FailedPrecondition, ErrorReason::WrongState, message).status()
}

fn failed(error: Error) -> Status {
    match error {
        // Another request came first: the change is made again.
        Error::Conflict { .. } => Status::aborted(error.to_string()),
        error => Status::unavailable(error.to_string()),
    }
}

/// Returns a stored request as the answer of a call.
pub(super) fn message(snapshot: &Snapshot, entry: &Entry, side: Side) -> ApiBindRequest {
    let mut value = entry.object.body_value();
    value["metadata"]["resourceVersion"] = entry.revision.to_string().into();
    message_of(snapshot, &entry.key, &value, side)
}

fn message_of(snapshot: &Snapshot, key: &ObjectKey, value: &Json, side: Side) -> ApiBindRequest {
    // A request as it is stored has all metadata; one that is not made yet has no time.
    let read = Object::new(value, None).map(|object| BindRequest::read(&object));
    let Ok(read) = read else {
        return ApiBindRequest::default();
    };
    let state = match (read.decided.map(|(decision, _)| decision), read.granted) {
        (None, _) => ApiRequestState::Pending,
        (Some(Decision::Denied), _) => ApiRequestState::Denied,
        (Some(Decision::Approved), None) => ApiRequestState::Approved,
        (Some(Decision::Approved), Some(true)) => ApiRequestState::Granted,
        (Some(Decision::Approved), Some(false)) => ApiRequestState::Failed,
    };
    let failure = condition(value, GRANTED).and_then(|granted| granted["message"].as_str());
    let failure = failure.filter(|_| side == Side::Owner && state == ApiRequestState::Failed);
    let decided_by = match side {
        Side::Owner => text(value, "/spec/decidedBy"),
        Side::Requester => "",
    };
    let created = Timestamp::parse(text(value, "/metadata/creationTimestamp"));
    ApiBindRequest {
        name: key.name.to_string(),
        export_workspace: locate::path_of(snapshot, &key.cluster).to_string(),
        create_time: created.map(moment),
        expire_time: Some(moment(read.end())),
        state: state.into(),
        message: failure.map_or(read.message, str::to_owned),
        decided_by: decided_by.to_owned(),
        decide_time: read.decided.map(|(_, at)| moment(at)),
        etag: fields::etag_of(value),
        export: read.export,
        requester: read.user,
        requester_groups: match side {
            Side::Owner => read.groups,
            Side::Requester => Vec::new(),
        },
        group: read.group,
        workspace: read.workspace,
        reason: read.reason,
    }
}

/// Refuses a reason that cannot be printed in a line.
fn check_reason(reason: &str) -> Result<(), Status> {
    if reason.len() > REASON_BYTES_MAX {
        return Err(invalid("reason", format!("must have at most {REASON_BYTES_MAX} bytes")));
    }
    match reason.chars().any(is_hidden) {
        true => Err(invalid("reason", "must not have control characters or line breaks")),
        false => Ok(()),
    }
}

/// Refuses a user of these groups whom the owner of an export does not let ask. Returns the seconds
/// that a request waits.
fn check_policy(path: &ClusterPath, export: &Entry, groups: &[String]) -> Result<i64, Status> {
    let view = export.object.parsed(ExportView::read);
    let value = export.object.body_value();
    let owner = value["metadata"]["annotations"][annotations::API_OWNER].as_str();
    let owner = owner.map_or_else(|| format!("who administers {path}"), str::to_owned);
    let name = &*export.key.name;
    match view.request_seconds {
        None => Err(wrong_state(format!(
            "export: APIExport {name:?} of {path} takes no requests: ask {owner}; its owner allows them by the \
             annotation {}={}",
            annotations::API_REQUESTS,
            bind_request::ALLOWED
        ))),
        Some(_) if !is_asked_by(&view, groups) => Err(wrong_state(format!(
            "export: APIExport {name:?} of {path} takes requests of members of some groups ({}), and you are in none \
             of them there: ask {owner}",
            annotations::API_REQUEST_GROUPS
        ))),
        Some(seconds) => Ok(seconds),
    }
}

/// Returns the groups of a user as they count in a cluster.
pub(super) fn groups_of(user: &UserInfo, cluster: &ClusterName) -> Vec<String> {
    let identities = Identities::in_cluster(user, Some(cluster));
    let mut groups: Vec<String> = identities.iter().flat_map(|user| user.groups.clone()).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

/// Returns true if the owner of an export lets a member of these groups ask for it.
pub(super) fn is_asked_by(export: &ExportView, groups: &[String]) -> bool {
    export.request_seconds.is_some()
        && (export.request_groups.is_empty() || export.request_groups.iter().any(|group| groups.contains(group)))
}

impl Session {
    /// Finds an export that the caller may ask for. One that is neither listed nor readable gets
    /// the answer of a binding without the right.
    fn requestable_export(
        &self,
        snapshot: &Snapshot,
        located: &Located,
        request: &RequestApiRequest,
    ) -> Result<RequestableExport, Status> {
        let provider = ("export_workspace", request.export_workspace.as_str());
        let path = ClusterPath::parse(provider.1)
            .map_err(|error| invalid(provider.0, format!("{error}; write a path such as root:org:team")))?;
        let found = locate::locate_view(snapshot, &path).ok().and_then(|(cluster, _)| {
            let name = ExportName {
                cluster,
                name: request.export.as_str().into(),
            };
            let entry = snapshot.get(&name.key())?;
            let read = right(Verb::Get, groups::APIS, "apiexports", &request.export);
            let is_seen = entry.object.parsed(ExportView::read).is_listed
                || self.caller.permit(snapshot, &name.cluster, read).is_ok();
            (is_seen && !entry.object.meta.is_deleting()).then_some((name, entry))
        });
        let bind = || right("bind", groups::APIS, "apiexports", &request.export);
        let may_bind = |name: &ExportName| {
            let clusters = (&located.cluster, &name.cluster);
            self.caller.permit_offer(snapshot, clusters, bind()).is_ok()
        };
        let Some((name, entry)) = found.filter(|(name, _)| !may_bind(name)) else {
            // Refuses all who may not bind it, in the same words.
            let provider = self.exporter(&located.cluster, provider, &request.export)?;
            self.find_export(snapshot, &provider, &request.export)?;
            return Err(wrong_state(format!(
                "you may bind APIExport {0:?} of {path} already: `insula bind apiexport {path}:{0}`",
                request.export
            )));
        };
        let groups = groups_of(self.user()?, &name.cluster);
        let seconds = check_policy(&path, &entry, &groups)?;
        let user = self.user()?.name_within(Some(&name.cluster));
        let user = user.filter(|user| user.len() <= USER_BYTES_MAX && !user.chars().any(is_hidden));
        let user = user.ok_or_else(|| {
            wrong_state(format!(
                "your user name does not count in {path}: nobody can name it there"
            ))
        })?;
        Ok(RequestableExport {
            requester: Requester {
                user,
                groups,
                workspace: locate::path_of(snapshot, &located.cluster),
                cluster: located.cluster.clone(),
            },
            name,
            entry,
            seconds,
        })
    }
}

impl AdminService {
    /// Asks for the right to bind an export.
    pub(super) async fn request_bind(
        &self,
        session: &Session,
        located: &Located,
        request: &RequestApiRequest,
    ) -> Result<RequestApiResponse, Status> {
        check_reason(&request.reason)?;
        let requested = retried(session, "", |snapshot| {
            self.request_bind_once(session, located, request, snapshot)
        });
        let (request, created) = requested.await?;
        Ok(RequestApiResponse {
            header: header_after(session),
            request: Some(request),
            created,
        })
    }

    async fn request_bind_once(
        &self,
        session: &Session,
        located: &Located,
        request: &RequestApiRequest,
        mut snapshot: Snapshot,
    ) -> Result<(ApiBindRequest, bool), Status> {
        let asked = session.requestable_export(&snapshot, located, request)?;
        let (registry, now) = (self.registry(), self.registry().clock.now());
        let meta = &asked.entry.object.meta;
        let key = bind_request::key(&asked.name, &asked.requester.user);
        if let Some(there) = snapshot.get(&key) {
            let known = there.object.parsed(BindRequest::read);
            // Who got the right and may not bind has lost it since, and may ask again.
            let is_over =
                known.has_ended(now) || known.granted == Some(true) || known.export_uid != meta.uid.to_string();
            if known.user != asked.requester.user {
                return Err(wrong_state(format!(
                    "request {} of another user is in the way",
                    key.name
                )));
            }
            if !is_over {
                return Ok((message(&snapshot, &there, Side::Requester), false));
            }
            if !request.validate_only {
                let gone = Plan::new(vec![Intent::Delete(there)]);
                commit(registry, &gone).await.map_err(failed)?;
                snapshot = registry.store.latest().charged_to(session.caller.work());
            }
        }
        let (state, of) = (snapshot.clone(), (asked.name.clone(), asked.requester.clone()));
        self.run_blocking(session, located, move || check_limits(&state, &of, now))
            .await?;
        let open = freeze::open(&snapshot, &asked.name.cluster);
        let open = open.map_err(|_| wrong_state(format!("{} is frozen: ask later", request.export_workspace)))?;
        let expires = Timestamp(now.0.saturating_add(asked.seconds));
        let export = (&asked.name, &meta.uid);
        let (key, mut value) = bind_request::request(export, &asked.requester, &request.reason, expires);
        value["metadata"]["creationTimestamp"] = json!(now.to_string());
        if request.validate_only {
            return Ok((message_of(&snapshot, &key, &value, Side::Requester), true));
        }
        let mut intents = vec![
            Intent::Create(key.clone(), value),
            Intent::Expect(asked.name.key(), Some(asked.entry.revision)),
            Intent::Sign(SerializationPoint::of_bind_requests(&snapshot)),
        ];
        intents.extend(open.map(|(key, revision)| Intent::Expect(key, Some(revision))));
        session.check_walks()?;
        let made = commit(registry, &Plan::new(intents)).await.map_err(failed)?;
        let made = made.and_then(|revision| registry.store.at_revision(revision).ok());
        let entry = made.as_ref().and_then(|made| made.get(&key));
        let entry = entry.ok_or_else(|| Status::internal("the history of the write is gone"))?;
        Ok((message(&snapshot, &entry, Side::Requester), true))
    }

    /// Lists requests for the exports of a workspace, or those of the caller from it.
    pub(super) async fn list_requests(
        &self,
        session: &Session,
        request: ListApiRequestsRequest,
    ) -> Result<ListApiRequestsResponse, Status> {
        let located = match request.mine {
            true => session.locate_binder(&request.workspace)?,
            false => session.locate(
                or_root(&request.workspace),
                &right(Verb::List, groups::REQUESTS, PLURAL, ""),
            )?,
        };
        let mine = if request.mine { "mine" } else { "" };
        let filter = [located.cluster.as_str(), &request.export, mine];
        let page = Page::read(session, &filter, request.page_size, &request.page_token)?;
        let snapshot = page.snapshot(session).await?;
        let revision = snapshot.revision();
        let user = request.mine.then(|| session.user().cloned()).transpose()?;
        let cluster = located.cluster.clone();
        let listed = move || {
            let after = page.after.as_ref();
            let after = after.and_then(|(_, at)| rewrite::key_at(ids::apibindrequests(), at));
            let (mut requests, mut last, mut next) = (Vec::new(), None, String::new());
            let side = if user.is_some() { Side::Requester } else { Side::Owner };
            let show = |entry: &Entry| {
                let read = entry.object.parsed(BindRequest::read);
                let is_own = user
                    .as_ref()
                    .is_none_or(|user| user.name_within(Some(&entry.key.cluster)).as_ref() == Some(&read.user));
                if !is_own || !request.export.is_empty() && read.export != request.export {
                    return ControlFlow::Continue(());
                }
                if requests.len() == page.size {
                    let last = last.as_ref().map(rewrite::position).unwrap_or_default();
                    next = page.next(snapshot.revision(), &last);
                    return ControlFlow::Break(());
                }
                last = Some(entry.key.clone());
                requests.push(message(&snapshot, entry, side));
                ControlFlow::Continue(())
            };
            match side {
                Side::Requester => {
                    let from = (&indexes::BIND_REQUESTS_BY_CLUSTER, cluster.as_str());
                    snapshot.for_each_indexed_after(from, after.as_ref(), show);
                }
                Side::Owner => {
                    let scope = Scope::cluster(ids::apibindrequests(), cluster.clone());
                    snapshot.for_each_after(&scope, after.as_ref(), show);
                }
            }
            Ok((requests, next))
        };
        let (requests, next_page_token) = self.run_blocking(session, &located, listed).await?;
        Ok(ListApiRequestsResponse {
            header: session.header_at(revision),
            requests,
            next_page_token,
        })
    }
}

impl Session {
    /// Decides on a request, as the patch of `spec.decision` by the caller does.
    pub(super) async fn decide_request(
        &self,
        located: &Located,
        request: &DecideApiRequestRequest,
    ) -> Result<DecideApiRequestResponse, Status> {
        let etag = fields::etag(&request.etag)?;
        required("name", &request.name)?;
        let decision = match ApiRequestDecision::try_from(request.decision) {
            Ok(ApiRequestDecision::Approve) => Decision::Approved,
            Ok(ApiRequestDecision::Deny) => Decision::Denied,
            Ok(ApiRequestDecision::Unspecified) => return Err(invalid("decision", "is required")),
            Err(_) => return Err(invalid("decision", UNKNOWN_VALUE)),
        };
        let mut patch = json!({"spec": {"decision": decision.as_str()}});
        if !request.message.is_empty() {
            patch["spec"]["message"] = json!(request.message);
        }
        if !request.group.is_empty() {
            patch["spec"]["group"] = json!(request.group);
        }
        if let Some(etag) = etag {
            patch["metadata"] = json!({"resourceVersion": etag});
        }
        let path = ObjectPath {
            group: groups::REQUESTS,
            version: "v1alpha1",
            resource: PLURAL,
            name: &request.name,
            ..ObjectPath::default()
        };
        let patched = ApiRequest::merge(path.in_cluster(&located.cluster), &patch);
        let names = &[
            ("spec.decision", "decision"),
            ("spec.group", "group"),
            ("spec.message", "message"),
            ("", "name"),
        ];
        let decided = self
            .run(patched.validate_only(request.validate_only).names(names))
            .await?;
        let key = ObjectKey::cluster_scoped(ids::apibindrequests(), located.cluster.clone(), &request.name);
        Ok(DecideApiRequestResponse {
            header: self.header_of(&decided),
            request: Some(message_of(&self.snapshot, &key, &decided, Side::Owner)),
        })
    }

    /// Finds the workspace whose requests the caller may decide on.
    pub(super) fn locate_requests(&self, request: &DecideApiRequestRequest) -> Result<Located, Status> {
        let patch = right(Verb::Patch, groups::REQUESTS, PLURAL, &request.name);
        self.locate(or_root(&request.workspace), &patch)
    }
}
