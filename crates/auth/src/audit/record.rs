//! The audit record of one request, to which every stage of its handling adds facts.

use super::{
    event::{Event, Facts, NOTE_REASON},
    policy::{Level, Policy, Verdict},
    stage::Stage,
};
use crate::{attributes::Attributes, authorize::Trail, user::UserInfo};
use insula_api::{Clock, ClusterName, ClusterPath, Json};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

/// Maximum number of bytes of an annotation; longer ones are cut, as in Kubernetes.
const NOTE_BYTES_MAX: usize = 10 << 10;
/// Maximum number of annotations of one request; tenants' webhooks write some of them.
const NOTES_MAX: usize = 64;

/// Destination of audit events. It must not wait for a disk.
pub trait Sink: Send + Sync {
    /// Takes one event.
    fn take(&self, event: Event);
}

/// Audit log: policy, clock and sink.
pub struct Log {
    /// Decides the level of each request.
    pub policy: Policy,
    /// Gives the times of events.
    pub clock: Arc<dyn Clock>,
    /// Receives the events.
    pub sink: Arc<dyn Sink>,
}

/// Record of a request. Clones share the record; without a log, nothing is recorded.
#[derive(Clone, Default)]
pub struct Record(Option<Arc<Shared>>);

struct Shared {
    log: Arc<Log>,
    /// `None` after the last event, and for requests that the policy leaves out.
    state: Mutex<Option<State>>,
    /// Facts of a request that is not audited, for the audited requests that it makes.
    left_out: OnceLock<Facts>,
}

/// The sender of a request, for the records of the requests that it makes within the server.
#[derive(Clone, Default)]
pub struct Origin(Option<(Arc<Log>, Facts)>);

impl Origin {
    /// Starts the record of a request with an id and a URI of its own, which are made where there
    /// is a log. The annotation `note` names the request of the sender.
    pub fn record(&self, named: impl FnOnce() -> (String, String), note: &str) -> Record {
        let Some((log, facts)) = &self.0 else {
            return Record::default();
        };
        let (id, uri) = named();
        let facts = Facts {
            id,
            uri,
            user_agent: facts.user_agent.clone(),
            source_ips: facts.source_ips.clone(),
            annotations: [(note.to_owned(), facts.id.clone())].into(),
            ..Facts::default()
        };
        Record::new(Arc::clone(log), facts)
    }
}

#[derive(Default)]
struct State {
    facts: Facts,
    /// True while the answer continues after its headers.
    open: bool,
    /// True once the headers have been sent.
    begun: bool,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record").finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, Option<State>> {
        // Every statement leaves it consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, stage: Stage, facts: Facts) {
        let Verdict { level, omit_stages, .. } = facts.verdict.unwrap_or_default();
        if level == Level::None || omit_stages.has(stage) {
            return;
        }
        let at = match stage {
            Stage::RequestReceived => facts.received,
            Stage::ResponseStarted | Stage::ResponseComplete | Stage::Panic => self.log.clock.now_micros(),
        };
        self.log.sink.take(Event { stage, at, facts });
    }
}

/// Prepares an object for the record; removes `managedFields` if the policy says so.
fn as_recorded(mut object: Json, omit_managed_fields: bool) -> Json {
    fn strip(object: &mut Json) {
        if let Some(metadata) = object.get_mut("metadata").and_then(Json::as_object_mut) {
            metadata.remove("managedFields");
        }
    }
    if omit_managed_fields {
        strip(&mut object);
        for item in object
            .get_mut("items")
            .and_then(Json::as_array_mut)
            .into_iter()
            .flatten()
        {
            strip(item);
        }
    }
    object
}

impl Record {
    /// Starts the record of a request, with the facts from its first line and headers.
    pub fn new(log: Arc<Log>, facts: Facts) -> Record {
        let received = log.clock.now_micros();
        let facts = Facts { received, ..facts };
        let state = Mutex::new(Some(State {
            facts,
            ..State::default()
        }));
        let left_out = OnceLock::new();
        Record(Some(Arc::new(Shared { log, state, left_out })))
    }

    /// Returns the sender of the request, as long as it is not answered.
    pub fn origin(&self) -> Origin {
        let Some(shared) = &self.0 else {
            return Origin::default();
        };
        let facts = shared.state().as_ref().map(|state| state.facts.clone());
        let facts = facts.or_else(|| shared.left_out.get().cloned());
        Origin(facts.map(|facts| (Arc::clone(&shared.log), facts)))
    }

    fn change_state(&self, change: impl FnOnce(&mut State)) {
        if let Some(shared) = &self.0
            && let Some(state) = shared.state().as_mut()
        {
            change(state);
        }
    }

    fn change(&self, change: impl FnOnce(&mut Facts)) {
        self.change_state(|state| change(&mut state.facts));
    }

    /// Sets the user, after the attributes; from here on the policy's verdict is known.
    pub fn known(&self, user: &UserInfo) {
        self.known_at(user, || (None, None));
    }

    /// Sets the user like [`Record::known`]. `place` finds the cluster and its path for the event
    /// of the request's arrival, if the policy has that: the request is located later.
    pub fn known_at(&self, user: &UserInfo, place: impl FnOnce() -> (Option<ClusterName>, Option<ClusterPath>)) {
        let Some(shared) = &self.0 else { return };
        let mut held = shared.state();
        let Some(State { facts, .. }) = held.as_mut() else {
            return;
        };
        let verdict = shared.log.policy.verdict(user, &facts.attributes);
        if verdict.level == Level::None {
            let left_out = held.take().map(|state| state.facts).unwrap_or_default();
            // Set once: the state is gone.
            let _ = shared.left_out.set(left_out);
            return;
        }
        facts.user = user.clone();
        facts.verdict = Some(verdict);
        if !verdict.omit_stages.has(Stage::RequestReceived) {
            let mut facts = facts.clone();
            drop(held);
            (facts.cluster, facts.path) = place();
            shared.write(Stage::RequestReceived, facts);
        }
    }

    /// Sets the impersonated user.
    pub fn acts_as(&self, user: &UserInfo) {
        self.change(|facts| facts.impersonated = Some(user.clone()));
    }

    /// Sets the logical cluster of the request.
    pub fn located(&self, cluster: Option<&ClusterName>, path: Option<&ClusterPath>) {
        self.change(|facts| {
            facts.cluster = cluster.cloned();
            facts.path = path.cloned();
        });
    }

    /// Sets the authorization decision.
    pub fn decided(&self, allowed: bool, reason: &str, trail: &Trail) {
        self.change(|facts| {
            facts.decision = Some((allowed, reason.to_owned()));
            facts.trail.clone_from(trail);
        });
    }

    /// Sets the attributes of the request.
    pub fn about(&self, attributes: Attributes) {
        self.change(|facts| facts.attributes = attributes);
    }

    /// Records the reason of a refusal before, or beside, authorization.
    pub fn refused(&self, why: impl fmt::Display) {
        self.note(NOTE_REASON, &why.to_string());
    }

    /// Adds an annotation; the last value of a key counts.
    pub fn note(&self, key: &str, value: &str) {
        let value = &value[..value.floor_char_boundary(NOTE_BYTES_MAX)];
        self.change(|facts| {
            if facts.annotations.len() < NOTES_MAX || facts.annotations.contains_key(key) {
                facts.annotations.insert(key.to_owned(), value.to_owned());
            }
        });
    }

    /// Returns the level at which the request is recorded.
    pub fn level(&self) -> Level {
        let mut level = Level::None;
        self.change(|facts| level = facts.verdict.unwrap_or_default().level);
        level
    }

    /// Records the object in the request. Its name goes into the metadata: the URL of a create
    /// lacks it.
    pub fn sent(&self, object: &Json) {
        self.change(|facts| {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
            if facts.attributes.name.is_empty() {
                facts.attributes.name = text("name");
            }
            facts.sent = [text("uid"), text("resourceVersion")];
            let Verdict {
                level,
                omit_managed_fields,
                ..
            } = facts.verdict.unwrap_or_default();
            if level >= Level::Request {
                facts.request_object = Some(as_recorded(object.clone(), omit_managed_fields));
            }
        });
    }

    /// Records the Status object of the answer.
    pub fn status(&self, status: &Json) {
        self.change(|facts| facts.status = Some(status.clone()));
    }

    /// Records the object in the answer.
    pub fn given(&self, object: Json) {
        self.change(|facts| {
            let Verdict {
                level,
                omit_managed_fields,
                ..
            } = facts.verdict.unwrap_or_default();
            if level >= Level::RequestResponse {
                facts.response_object = Some(as_recorded(object, omit_managed_fields));
            }
        });
    }

    /// Marks objects as too large for the record.
    pub fn truncated(&self) {
        self.note("audit.k8s.io/truncated", "true");
    }

    /// Marks the answer as one that continues after its headers, until the result is dropped.
    pub fn open(&self) -> OpenCall {
        self.change_state(|state| state.open = true);
        OpenCall(self.clone())
    }

    /// Returns true if the answer is recorded, or the request is not.
    pub fn is_answered(&self) -> bool {
        let mut told = true;
        self.change_state(|state| told = state.begun);
        told
    }

    /// Returns true while the answer continues after its headers.
    pub fn is_open(&self) -> bool {
        let mut open = false;
        self.change_state(|state| open = state.open);
        open
    }

    /// Records the answer's status code. An answer that continues has started, any other one is
    /// complete.
    pub fn answered(&self, code: u16) {
        self.change(|facts| facts.code = code);
        self.reached(|state| match state.open {
            true => Stage::ResponseStarted,
            false => Stage::ResponseComplete,
        });
    }

    /// Records that the server panicked.
    pub fn panicked(&self) {
        self.reached(|_| Stage::Panic);
    }

    /// Writes the event of a stage; does nothing after the last event.
    fn reached(&self, stage: impl FnOnce(&State) -> Stage) {
        let Some(shared) = &self.0 else { return };
        let mut held = shared.state();
        let Some(state) = held.as_mut() else { return };
        let stage = stage(state);
        let facts = &mut state.facts;
        // A user without authentication counts as anonymous.
        let verdict = || shared.log.policy.verdict(&facts.user, &facts.attributes);
        facts.verdict = Some(facts.verdict.unwrap_or_else(verdict));
        state.begun = true;
        let facts = match stage {
            Stage::RequestReceived | Stage::ResponseStarted => facts.clone(),
            Stage::ResponseComplete | Stage::Panic => {
                let facts = std::mem::take(facts);
                *held = None;
                facts
            }
        };
        drop(held);
        shared.write(stage, facts);
    }
}

/// An answer that continues after its headers, such as a watch. Dropping it completes the answer.
#[derive(Debug)]
pub struct OpenCall(Record);

impl Drop for OpenCall {
    fn drop(&mut self) {
        let mut begun = false;
        self.0.change_state(|state| {
            state.open = false;
            begun = state.begun;
        });
        // If its headers are still unsent, `answered` writes its only event.
        if begun {
            self.0.reached(|_| Stage::ResponseComplete);
        }
    }
}

#[cfg(test)]
mod tests;
