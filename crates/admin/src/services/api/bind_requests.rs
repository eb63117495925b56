//! `ApiService`: requests for the right to bind an export. The server makes the APIBindRequest with
//! its own authority, in a workspace that the caller may not enter, so it decides by itself who may
//! ask, in whose name and how often. Decisions are requests of the HTTP API.

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
    ClusterPath, Json, Object, ObjectKey, Scope, Timestamp, Verb, condition,
    names::{annotations, groups},
};
use insula_catalog::{
    Error, SerializationPoint,
    exports::{
        ExportName, ExportView,
        bind_request::{
            self, BindRequest, Decision, GRANTED, PER_EXPORT_MAX, PER_USER_MAX, REASON_BYTES_MAX, Requester,
        },
    },
    freeze, ids, locate,
};
use insula_proto::admin::v1::{
    ApiBindRequest, ApiRequestDecision, ApiRequestState, DecideApiRequestRequest, DecideApiRequestResponse,
    ErrorReason, ListApiRequestsRequest, ListApiRequestsResponse, RequestApiRequest, RequestApiResponse,
};
use insula_registry::{Intent, Plan, commit, rewrite};
use insula_store::{Entry, Snapshot};
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
        workspace: read.workspace,
        reason: read.reason,
    }
}

/// Refuses a request beyond the limits, which name their numbers.
fn check_limits(snapshot: &Snapshot, asked: &(ExportName, Requester), now: Timestamp) -> Result<(), Status> {
    let (export, requester) = asked;
    let (mut of_export, mut of_user) = (0, 0);
    snapshot.for_each(&Scope::everywhere(ids::apibindrequests()), |entry| {
        let request = entry.object.parsed(BindRequest::read);
        if request.is_open(now) {
            of_export += usize::from(entry.key.cluster == export.cluster && *request.export == *export.name);
            let is_own = request.user == requester.user || *request.cluster == *requester.cluster.as_str();
            of_user += usize::from(is_own);
        }
        ControlFlow::Continue(())
    });
    let why = match (of_user >= PER_USER_MAX, of_export >= PER_EXPORT_MAX) {
        (true, _) => format!(
            "{of_user} requests of yours or from {} wait for a decision, and at most {PER_USER_MAX} may: ask again \
             when one is decided or has expired (`insula apis requests --mine`)",
            requester.workspace
        ),
        (_, true) => format!(
            "{of_export} requests for APIExport {:?} wait for a decision, and at most {PER_EXPORT_MAX} may: ask its \
             owner",
            export.name
        ),
        (false, false) => return Ok(()),
    };
    Err(Fault::new(Code::ResourceExhausted, ErrorReason::LimitReached, why).status())
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
        let Some(seconds) = entry.object.parsed(ExportView::read).request_seconds else {
            let owner = entry.object.body_value();
            let owner = owner["metadata"]["annotations"][annotations::API_OWNER].as_str();
            let owner = owner.map_or_else(|| format!("who administers {path}"), str::to_owned);
            return Err(wrong_state(format!(
                "export: APIExport {:?} of {path} takes no requests: ask {owner}; its owner allows them by the \
                 annotation {}={}",
                request.export,
                annotations::API_REQUESTS,
                bind_request::ALLOWED
            )));
        };
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
                snapshot = registry.store.latest();
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
            let (scope, side) = match &user {
                Some(_) => (Scope::everywhere(ids::apibindrequests()), Side::Requester),
                None => (Scope::cluster(ids::apibindrequests(), cluster.clone()), Side::Owner),
            };
            let (mut requests, mut last, mut next) = (Vec::new(), None, String::new());
            snapshot.for_each_after(&scope, after.as_ref(), |entry| {
                let read = entry.object.parsed(BindRequest::read);
                let is_own = user.as_ref().is_none_or(|user| {
                    *read.cluster == *cluster.as_str()
                        && user.name_within(Some(&entry.key.cluster)).as_ref() == Some(&read.user)
                });
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
            });
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
        let names = &[("spec.decision", "decision"), ("spec.message", "message"), ("", "name")];
        let decided = self
            .http(patched.validate_only(request.validate_only).names(names))
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

#[cfg(test)]
mod tests {
    use super::*;
    use insula_api::{ClusterName, Uid};
    use insula_store::{MemoryStore, Store, Txn, Write};
    use std::sync::Arc;

    const NOW: Timestamp = Timestamp(1_000);

    fn side(user: &str, cluster: &str) -> Requester {
        Requester {
            user: user.to_owned(),
            workspace: ClusterPath::parse("root:tenant").unwrap(),
            cluster: ClusterName::parse(cluster).unwrap(),
        }
    }

    fn export(name: &str) -> ExportName {
        ExportName {
            cluster: ClusterName::root(),
            name: name.into(),
        }
    }

    /// Returns the outcome of a request of eve for widgets beside others.
    async fn checked(others: impl Iterator<Item = (ExportName, Requester, Timestamp)>) -> Result<(), String> {
        let store = MemoryStore::new();
        for (of, requester, expires) in others {
            let (key, value) = bind_request::request((&of, &Uid::default()), &requester, "", expires);
            let object = Arc::new(Object::new(&value, None).unwrap());
            let txn = Txn {
                guards: Vec::new(),
                writes: vec![Write::Put(key, object)],
            };
            store.commit(txn).await.unwrap();
        }
        let asked = (export("widgets"), side("eve", "eves"));
        check_limits(&store.latest(), &asked, NOW).map_err(|refused| refused.message().to_owned())
    }

    #[tokio::test]
    async fn open_requests_of_a_user_of_a_workspace_and_for_an_export_are_limited() {
        let (open, over) = (Timestamp(2_000), NOW);
        let of_user = |count, expires| {
            (0..count).map(move |index| (export(&format!("e{index}")), side("eve", &format!("c{index}")), expires))
        };
        checked(of_user(PER_USER_MAX - 1, open)).await.unwrap();
        checked(of_user(PER_USER_MAX, over)).await.unwrap();
        let refused = checked(of_user(PER_USER_MAX, open)).await.unwrap_err();
        assert!(refused.contains("20 requests of yours"), "{refused}");
        let of_workspace = (0..PER_USER_MAX).map(|index| (export("gears"), side(&format!("u{index}"), "eves"), open));
        assert!(checked(of_workspace).await.is_err());
        let of_export = |count, name: &'static str| {
            (0..count).map(move |index| (export(name), side(&format!("u{index}"), &format!("c{index}")), open))
        };
        checked(of_export(PER_EXPORT_MAX - 1, "widgets")).await.unwrap();
        checked(of_export(PER_EXPORT_MAX, "gears")).await.unwrap();
        let refused = checked(of_export(PER_EXPORT_MAX, "widgets")).await.unwrap_err();
        assert!(refused.contains("100 requests for APIExport"), "{refused}");
    }
}
