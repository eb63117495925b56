//! Idempotency of writes: the answer of a request with a `request_id` is kept for a day, so that
//! its repetition has no second effect.
//!
//! ```text
//! absent ──begin──> Begun ──effect, answer──> Done ──24 h──> absent
//!                     ├──────refusal──────> absent
//!                     └─unknown outcome─> Begun
//! ```
//! A record is an internal object named `<payer>/<request_id>`. Its creation is guarded, so that
//! of two requests at the same time one runs. A repetition that finds a record that is begun is
//! ABORTED as long as the request may still run: while this server runs it, or, on a store that
//! servers share, for [`LEASE_SECONDS`] after another server began it. After that its server is
//! taken for dead, and the repetition runs the request again: its writes are guarded themselves,
//! names that the server makes up follow from the id, and a creation that finds the object of an
//! earlier run ([`Session::is_of_earlier_run`]) answers with it. The same holds after a failure
//! that does not say whether there was an effect.

use crate::{
    pages::hash_bytes,
    session::{AdminService, Session},
    status::{self, Fault},
};
use data_encoding::HEXLOWER;
use insula_api::{ClusterName, Json, ObjectKey, Rng, Scope, Timestamp, Uid};
use insula_catalog::{Error, ids};
use insula_meter::ServerWork;
use insula_proto::{Message, admin::v1::ErrorReason};
use insula_registry::{Deps, Intent, Plan, commit};
use insula_store::{Entry, Snapshot};
use serde_json::json;
use std::{
    collections::HashSet,
    ops::ControlFlow,
    sync::{Mutex, MutexGuard, PoisonError},
};
use tonic::{Code, Status};

/// Seconds for which answers are kept.
const KEPT_SECONDS: i64 = 24 * 3_600;
/// Requests of a user that are kept. The oldest ones make room for new ones.
const PER_USER_MAX: usize = 1000;
/// Requests that make room at once: the order is read from all of a user's records.
const ROOM: usize = 50;
/// Bytes of an answer that is kept.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Seconds after which a request of another server is taken for lost. A call has 60 s by default.
const LEASE_SECONDS: i64 = 300;
/// Bytes of the name of a user in the name of a record.
const PAYER_BYTES_MAX: usize = 1024;
/// Characters of a UUID.
const ID_CHARS: usize = 36;
/// Records that expire in one transaction.
const EXPIRED_MAX: usize = 50;
/// Seconds after which a repetition may come back.
const RETRY_SECONDS: u32 = 1;

/// Requests that this server runs.
pub struct Requests {
    /// Tells this process from others on the same store.
    instance: u64,
    /// True if no other server uses the store: a request that this one does not run is lost.
    is_alone: bool,
    running: Mutex<HashSet<ObjectKey>>,
}

/// A request that this server runs, until it is dropped.
struct Running<'a> {
    requests: &'a Requests,
    key: ObjectKey,
}

impl Requests {
    /// Returns the requests of a process that runs none. `is_alone` is true on a store of its own.
    pub fn new(rng: &dyn Rng, is_alone: bool) -> Self {
        Requests {
            instance: rng.next_u64(),
            is_alone,
            running: Mutex::default(),
        }
    }

    fn running(&self) -> MutexGuard<'_, HashSet<ObjectKey>> {
        // The set is consistent between any two statements.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, key: &ObjectKey) -> Option<Running<'_>> {
        self.running().insert(key.clone()).then(|| Running {
            requests: self,
            key: key.clone(),
        })
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.requests.running().remove(&self.key);
    }
}

/// The parameters of a write that make it idempotent.
pub(crate) struct Once<'a> {
    /// `request_id` of the request.
    pub(crate) request_id: &'a str,
    /// `validate_only` of the request: nothing is kept then.
    pub(crate) validate_only: bool,
}

impl AdminService {
    /// Runs a write once for each `request_id` of the caller: a repetition gets the first answer.
    /// `message` is the whole request. Rights are checked before.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for an id that is no UUID or belongs to another request, ABORTED while the
    /// first request runs, FAILED_PRECONDITION where its answer was not kept, and the refusal of
    /// the work.
    // No bound `Send`: each caller would prove it for all that its work holds, which took rustc
    // a second each. The calls themselves are proven to be.
    pub(crate) async fn once<Q: Message, A: Message + Default>(
        &self,
        session: &Session,
        once: Once<'_>,
        message: &Q,
        work: impl Future<Output = Result<A, Status>>,
    ) -> Result<A, Status> {
        let id = parse_id(once.request_id)?.filter(|_| !once.validate_only);
        let Some(id) = id else {
            return work.await;
        };
        let request = Request::from_message(session, id, &message.encode_to_vec());
        let (running, begun) = match self.begun(session, &request).await? {
            Begun::Now(running, entry) => (running, entry),
            Begun::Before(answer) => return replayed(session, &answer),
        };
        let answer = work.await;
        let kept = answer.as_ref().map(Message::encode_to_vec);
        self.ended(session, (&request, &begun), kept).await;
        drop(running);
        answer
    }

    /// Keeps the answer of a request, or removes its record where it was refused for good.
    async fn ended(&self, session: &Session, (request, begun): (&Request, &Entry), answer: Result<Vec<u8>, &Status>) {
        match answer {
            Ok(answer) => self.done(request, begun, &answer).await,
            // A request that has ended has seen a part, by which nothing is refused for good.
            Err(failure) if is_open(failure) || session.check_walks().is_err() => {}
            Err(_) => {
                // A record that stays is taken over by the repetition.
                let _ = commit(self.registry(), &Plan::new(vec![Intent::Delete(begun.clone())])).await;
            }
        }
    }

    /// Begins a request, or finds its answer.
    async fn begun(&self, session: &Session, request: &Request) -> Result<Begun<'_>, Status> {
        let registry = self.registry();
        let snapshot = registry.store.snapshot(insula_api::Revision(0)).await;
        let snapshot = snapshot.map_err(|error| Status::unavailable(error.to_string()))?;
        let snapshot = snapshot.charged_to(session.caller.work());
        let now = registry.clock.now();
        let mut record = request.record(self.requests.instance, now);
        let mut intents = match snapshot.get(&request.key) {
            None => vec![Intent::Create(request.key.clone(), record)],
            Some(entry) => {
                let known = entry.object.body_value();
                if !is_expired(&known, now) {
                    if let Some(answer) = request.answer(&known)? {
                        return Ok(Begun::Before(answer));
                    }
                    let is_own = known["spec"]["instance"] == json!(self.requests.instance.to_string());
                    let is_lost = is_own || self.requests.is_alone;
                    if !is_lost && began(&known).0 + LEASE_SECONDS > now.0 {
                        return Err(in_progress());
                    }
                }
                if !is_expired(&known, now) {
                    let first = first_begun(&known);
                    record["spec"]["first"] = json!(first.to_string());
                    session.runs_again(first);
                }
                let mut value = known;
                value["spec"] = record["spec"].take();
                vec![Intent::Update(entry, value)]
            }
        };
        let running = self.requests.run(&request.key).ok_or_else(in_progress)?;
        intents.extend(room(&snapshot, &request.key, request.payer_prefix()));
        match commit(registry, &Plan::new(intents)).await {
            Ok(_) => {}
            Err(Error::Conflict { .. }) => return Err(in_progress()),
            Err(error) => return Err(Status::unavailable(format!("request_id: {error}"))),
        }
        let entry = registry.store.latest().get(&request.key);
        entry
            .map(|entry| Begun::Now(running, entry))
            .ok_or_else(|| Status::internal("request_id: the record of the request is gone"))
    }

    /// Keeps the answer of a request. Without it, a repetition runs the request again.
    async fn done(&self, request: &Request, begun: &Entry, answer: &[u8]) {
        let mut value = begun.object.body_value();
        value["spec"]["done"] = json!(true);
        if answer.len() <= ANSWER_BYTES_MAX {
            value["spec"]["answer"] = json!(HEXLOWER.encode(answer));
        }
        let plan = Plan::new(vec![Intent::Update(begun.clone(), value)]);
        if let Err(error) = commit(self.registry(), &plan).await {
            tracing::warn!(%error, request = &*request.key.name, "the answer of a request is not kept");
        }
    }
}

/// The beginning of a request.
enum Begun<'a> {
    /// It runs now, with this record.
    Now(Running<'a>, Entry),
    /// It was answered before.
    Before(Vec<u8>),
}

/// A request with an id.
struct Request {
    key: ObjectKey,
    /// Hash of the method, the user and the message.
    fingerprint: String,
}

impl Request {
    fn from_message(session: &Session, id: Uid, message: &[u8]) -> Self {
        let caller = &session.caller;
        let payer = caller.payer();
        let payer = &payer[..payer.floor_char_boundary(PAYER_BYTES_MAX)];
        let of = [caller.method(), caller.name()].join("\0");
        Request {
            key: ObjectKey::cluster_scoped(ids::requests(), ClusterName::bound_crds(), &format!("{payer}/{id}")),
            fingerprint: format!(
                "{:016x}",
                hash_bytes(of.bytes().chain([0]).chain(message.iter().copied()))
            ),
        }
    }

    /// The beginning of the names of all records of the payer.
    fn payer_prefix(&self) -> &str {
        let name = &self.key.name;
        &name[..name.len() - ID_CHARS]
    }

    fn record(&self, instance: u64, now: Timestamp) -> Json {
        json!({
            "apiVersion": ids::INTERNAL_V1, "kind": "Request", "metadata": {"name": &*self.key.name},
            "spec": {"fingerprint": self.fingerprint, "instance": instance.to_string(), "began": now.to_string()},
        })
    }

    /// Returns the answer in a record of the request's id; `None` if there is none yet.
    fn answer(&self, record: &Json) -> Result<Option<Vec<u8>>, Status> {
        let spec = &record["spec"];
        if spec["fingerprint"] != json!(self.fingerprint) {
            let problem = "belongs to another request of the last 24 hours: make up a new UUID";
            return Err(Fault::new(
                Code::InvalidArgument,
                ErrorReason::RequestIdReused,
                format!("request_id: {problem}"),
            )
            .field("request_id", problem, "")
            .status());
        }
        if spec["done"] != json!(true) {
            return Ok(None);
        }
        let answer = spec["answer"].as_str();
        match answer.and_then(|answer| HEXLOWER.decode(answer.as_bytes()).ok()) {
            Some(answer) => Ok(Some(answer)),
            None => Err(Fault::new(
                Code::FailedPrecondition,
                ErrorReason::AnswerNotKept,
                "request_id: the request was carried out, and its answer was too large to be kept: read the object",
            )
            .status()),
        }
    }
}

/// Returns a kept answer with the header of the repetition. In protobuf, a field that comes again
/// overrides the earlier one.
fn replayed<A: Message + Default>(session: &Session, answer: &[u8]) -> Result<A, Status> {
    let header = session.header().unwrap_or_default().encode_to_vec();
    let mut bytes = answer.to_vec();
    insula_proto::encode_header(&header, &mut bytes);
    A::decode(&*bytes).map_err(|error| Status::internal(format!("a kept answer is malformed: {error}")))
}

fn parse_id(request_id: &str) -> Result<Option<Uid>, Status> {
    if request_id.is_empty() {
        return Ok(None);
    }
    let id = Uid::parse(request_id).filter(|_| request_id.len() == ID_CHARS);
    let id = id.ok_or_else(|| {
        let problem = "must be a UUID such as 6f1b3ad0-94a5-4f4e-9d3a-0a7d3c5f2b11, or empty";
        status::invalid("request_id", problem)
    })?;
    Ok(Some(id))
}

fn in_progress() -> Status {
    let text = "request_id: the request is running: send it again";
    Fault::new(Code::Aborted, ErrorReason::RequestInProgress, text)
        .retry(Some(RETRY_SECONDS))
        .status()
}

fn began(record: &Json) -> Timestamp {
    let began = record["spec"]["began"].as_str().and_then(Timestamp::parse);
    began.unwrap_or(Timestamp(0))
}

/// Returns when the request ran for the first time.
fn first_begun(record: &Json) -> Timestamp {
    let first = record["spec"]["first"].as_str().and_then(Timestamp::parse);
    first.unwrap_or_else(|| began(record))
}

/// Returns true for failures after which the request may have had its effect.
fn is_open(failure: &Status) -> bool {
    match failure.code() {
        // Answers without room in memory are refused after their writes.
        Code::ResourceExhausted
        | Code::Cancelled
        | Code::DataLoss
        | Code::DeadlineExceeded
        | Code::Internal
        | Code::Unavailable
        | Code::Unknown => true,
        Code::Ok
        | Code::Aborted
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::InvalidArgument
        | Code::NotFound
        | Code::OutOfRange
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Unimplemented => false,
    }
}

fn is_expired(record: &Json, now: Timestamp) -> bool {
    began(record).0 + KEPT_SECONDS <= now.0
}

fn records() -> Scope {
    Scope::cluster(ids::requests(), ClusterName::bound_crds())
}

/// Returns the deletions that make room for a new record of a user who has too many: of those that
/// were written first.
fn room(snapshot: &Snapshot, new: &ObjectKey, prefix: &str) -> Vec<Intent> {
    let mut known = Vec::new();
    let first = ObjectKey {
        name: prefix.into(),
        ..new.clone()
    };
    snapshot.for_each_after(&records(), Some(&first), |entry| {
        let name = &entry.key.name;
        match name.strip_prefix(prefix) {
            Some(id) if id.len() == ID_CHARS && entry.key != *new => known.push(entry.clone()),
            Some(_) => {}
            None => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    });
    if known.len() < PER_USER_MAX {
        return Vec::new();
    }
    known.sort_by_key(|entry| entry.revision);
    known.truncate(ROOM);
    known.into_iter().map(Intent::Delete).collect()
}

/// Deletes the records of requests that are older than a day. Other servers may do the same.
pub async fn expire_requests(registry: &Deps) {
    let snapshot = registry.store.latest().for_server(ServerWork::Housekeeping);
    let now = registry.clock.now();
    let mut expired = Vec::new();
    snapshot.for_each(&records(), |entry| {
        if is_expired(&entry.object.body_value(), now) {
            expired.push(Intent::Delete(entry.clone()));
        }
        ControlFlow::Continue(())
    });
    for batch in expired.chunks(EXPIRED_MAX) {
        if let Err(error) = commit(registry, &Plan::new(batch.to_vec())).await {
            tracing::debug!(%error, "expired requests");
        }
    }
}

#[cfg(test)]
mod tests;
