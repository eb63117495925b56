//! The record of one request, which every stage adds to.

use super::{
    event::{Event, Facts, NOTE_REASON},
    policy::{Level, Policy, Verdict},
    stage::Stage,
};
use crate::{
    authorize::{Attributes, Trail},
    user::UserInfo,
};
use insula_api::{Clock, ClusterName, ClusterPath, Json};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Longer notes are cut, as Kubernetes cuts them.
const NOTE_BYTES_MAX: usize = 10 << 10;
/// Notes of one request; webhooks of tenants write some of them.
const NOTES_MAX: usize = 64;

/// Takes what is recorded. It must not wait for a disk.
pub trait Sink: Send + Sync {
    /// One event.
    fn take(&self, event: Event);
}

/// Where records go, and how much of them.
pub struct Log {
    /// How much.
    pub policy: Policy,
    /// When.
    pub clock: Arc<dyn Clock>,
    /// Where.
    pub sink: Arc<dyn Sink>,
}

/// The record of a request. Copies are of the same record; without a log nothing is recorded.
#[derive(Clone, Default)]
pub struct Record(Option<Arc<Shared>>);

struct Shared {
    log: Arc<Log>,
    /// Nothing after the last event, and where the policy wants none.
    state: Mutex<Option<State>>,
}

#[derive(Default)]
struct State {
    facts: Facts,
    /// Whether the answer goes on after its headers.
    open: bool,
    /// Whether these have been sent.
    begun: bool,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record").finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, Option<State>> {
        // It is whole between any two statements.
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

/// An object as it is recorded.
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
    /// The record of a request that has just come: what its line and headers say.
    pub fn new(log: Arc<Log>, facts: Facts) -> Record {
        let received = log.clock.now_micros();
        let facts = Facts { received, ..facts };
        let state = Mutex::new(Some(State {
            facts,
            ..State::default()
        }));
        Record(Some(Arc::new(Shared { log, state })))
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

    /// The sender is known, after what they want. From here on it is known how much is recorded.
    pub fn known(&self, user: &UserInfo) {
        let Some(shared) = &self.0 else { return };
        let mut held = shared.state();
        let Some(State { facts, .. }) = held.as_mut() else {
            return;
        };
        let verdict = shared.log.policy.verdict(user, &facts.attributes);
        if verdict.level == Level::None {
            *held = None;
            return;
        }
        facts.user = user.clone();
        facts.verdict = Some(verdict);
        if !verdict.omit_stages.has(Stage::RequestReceived) {
            let facts = facts.clone();
            drop(held);
            shared.write(Stage::RequestReceived, facts);
        }
    }

    /// The sender acts as another.
    pub fn acts_as(&self, user: &UserInfo) {
        self.change(|facts| facts.impersonated = Some(user.clone()));
    }

    /// Where it goes.
    pub fn located(&self, cluster: Option<&ClusterName>, path: Option<&ClusterPath>) {
        self.change(|facts| {
            facts.cluster = cluster.cloned();
            facts.path = path.cloned();
        });
    }

    /// What authorisation said.
    pub fn decided(&self, allowed: bool, reason: &str, trail: &Trail) {
        self.change(|facts| {
            facts.decision = Some((allowed, reason.to_owned()));
            facts.trail.clone_from(trail);
        });
    }

    /// What is asked for.
    pub fn about(&self, attributes: Attributes) {
        self.change(|facts| facts.attributes = attributes);
    }

    /// Why it was refused before, or beside, authorisation.
    pub fn refused(&self, why: impl fmt::Display) {
        self.note(NOTE_REASON, &why.to_string());
    }

    /// A note of somebody who had a say. The last one of a key holds.
    pub fn note(&self, key: &str, value: &str) {
        let value = &value[..value.floor_char_boundary(NOTE_BYTES_MAX)];
        self.change(|facts| {
            if facts.annotations.len() < NOTES_MAX || facts.annotations.contains_key(key) {
                facts.annotations.insert(key.to_owned(), value.to_owned());
            }
        });
    }

    /// How much is recorded of it.
    pub fn level(&self) -> Level {
        let mut level = Level::None;
        self.change(|facts| level = facts.verdict.unwrap_or_default().level);
        level
    }

    /// What was sent. Its name is recorded with the metadata: the URL of a creation does not have
    /// it.
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

    /// The Status that was answered.
    pub fn status(&self, status: &Json) {
        self.change(|facts| facts.status = Some(status.clone()));
    }

    /// What was answered.
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

    /// Objects were too large to be recorded.
    pub fn truncated(&self) {
        self.note("audit.k8s.io/truncated", "true");
    }

    /// The answer goes on after its headers, until the result is dropped.
    pub fn open(&self) -> Open {
        self.change_state(|state| state.open = true);
        Open(self.clone())
    }

    /// Whether an answer was told, or nothing is recorded.
    pub fn is_answered(&self) -> bool {
        let mut told = true;
        self.change_state(|state| told = state.begun);
        told
    }

    /// Whether the answer goes on after its headers.
    pub fn is_open(&self) -> bool {
        let mut open = false;
        self.change_state(|state| open = state.open);
        open
    }

    /// The answer is there. One that goes on has begun, any other one is complete.
    pub fn answered(&self, code: u16) {
        self.change(|facts| facts.code = code);
        self.reached(|state| match state.open {
            true => Stage::ResponseStarted,
            false => Stage::ResponseComplete,
        });
    }

    /// The server failed on it.
    pub fn panicked(&self) {
        self.reached(|_| Stage::Panic);
    }

    /// Writes a stage; after the last one there is nothing to write any more.
    fn reached(&self, stage: impl FnOnce(&State) -> Stage) {
        let Some(shared) = &self.0 else { return };
        let mut held = shared.state();
        let Some(state) = held.as_mut() else { return };
        let stage = stage(state);
        let facts = &mut state.facts;
        // Whoever did not come as far as to be known is nobody in particular.
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

/// An answer that goes on, such as a watch. It is complete when this is dropped.
#[derive(Debug)]
pub struct Open(Record);

impl Drop for Open {
    fn drop(&mut self) {
        let mut begun = false;
        self.0.change_state(|state| {
            state.open = false;
            begun = state.begun;
        });
        // Where its headers are still to be sent, its beginning is its end.
        if begun {
            self.0.reached(|_| Stage::ResponseComplete);
        }
    }
}

#[cfg(test)]
mod tests;
