//! Pending webhook calls of a request.
//!
//! Between a request and the store everything is a pure function of a snapshot: nothing there waits
//! or calls a webhook. A function that needs a webhook's response looks it up in the request's
//! [`PendingCalls`]. A missing response is recorded as an open call and the function returns an
//! error. Its caller then makes all open calls at once and runs the function again. So the core
//! stays synchronous, a list makes one call for all of its objects, and nothing is committed on an
//! incomplete set of responses.
//!
//! ```text
//! run 1: update → old object in v2?  open                              call, remember
//! run 2: update → old object in v2   known → new object in v1?  open   call, remember
//! run 3: update → … known → … known → commit
//! ```
//!
//! Every run must request the same calls, or the loop would not end. Time and randomness are
//! therefore drawn once for all runs.

pub mod admission;
pub mod conversion;
mod response_cache;

pub use admission::Hook;
pub use conversion::Webhook;
pub use response_cache::ResponseCache;

use crate::{Call, Endpoint, Error, Outbound, Result};
use futures_util::future::{join, join_all};
use insula_api::{Clock, ClusterName, Json, Rng, Timestamp, Uid};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::{collections::HashMap, fmt, sync::Arc};

/// The response of a webhook: JSON, or the error message.
pub type Answer = std::result::Result<Arc<Json>, Arc<str>>;

type Key = [u8; 32];

/// A self-contained call to a webhook.
#[derive(Debug, Clone)]
pub enum PendingCall {
    /// Converts an object to another version.
    Convert {
        webhook: Arc<Webhook>,
        object: Json,
        to: Arc<str>,
    },
    /// Admits and possibly mutates a write. `request` is an AdmissionRequest without its `uid`.
    Admit { hook: Arc<Hook>, request: Json },
}

impl PendingCall {
    fn key(&self) -> Key {
        let mut hash = Sha256::new();
        match self {
            PendingCall::Convert { webhook, object, to } => {
                for part in [
                    webhook.endpoint.url.as_bytes(),
                    webhook.endpoint.ca_bundle.as_deref().unwrap_or_default(),
                    to.as_bytes(),
                    object.to_string().as_bytes(),
                ] {
                    hash.update(part);
                    hash.update([0]);
                }
            }
            PendingCall::Admit { hook, request } => {
                let role = if hook.mutating { "mutate" } else { "validate" };
                for part in [
                    hook.endpoint.url.as_bytes(),
                    role.as_bytes(),
                    request.to_string().as_bytes(),
                ] {
                    hash.update(part);
                    hash.update([0]);
                }
            }
        }
        hash.finalize().into()
    }
}

/// The webhook calls of one request and their responses.
pub struct PendingCalls {
    known: Mutex<Known>,
    now: (Timestamp, i64),
    rng: Arc<dyn Rng>,
    outbound: Arc<dyn Outbound>,
    /// The cache that a watch consults before it calls a webhook, and the clock by which cached
    /// responses expire.
    shared: Option<(Arc<ResponseCache>, Arc<dyn Clock>)>,
}

/// Sends calls to webhooks.
#[derive(Clone)]
struct Caller {
    outbound: Arc<dyn Outbound>,
    rng: Arc<dyn Rng>,
}

#[derive(Default)]
struct Known {
    answers: HashMap<Key, Answer>,
    /// Calls without a response, in the order of their first request.
    open: Vec<(Key, PendingCall)>,
    /// Random bytes drawn so far, and the number of them that the current run has used.
    drawn: Vec<u8>,
    seen: usize,
}

impl fmt::Debug for PendingCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.known.lock();
        write!(
            f,
            "Questions({} answered, {} open)",
            known.answers.len(),
            known.open.len()
        )
    }
}

impl PendingCalls {
    /// Creates the state of one request, without any call.
    pub fn new(clock: &dyn Clock, rng: Arc<dyn Rng>, outbound: Arc<dyn Outbound>) -> Self {
        PendingCalls {
            known: Mutex::default(),
            now: (clock.now(), clock.now_micros()),
            rng,
            outbound,
            shared: None,
        }
    }

    /// Shares responses with other watches through `responses`.
    pub fn sharing(self, responses: Arc<ResponseCache>, clock: Arc<dyn Clock>) -> Self {
        PendingCalls {
            shared: Some((responses, clock)),
            ..self
        }
    }

    /// Returns the response if it is known; otherwise records the call as open.
    pub fn request(&self, pending_call: PendingCall) -> Option<Answer> {
        let key = pending_call.key();
        let mut known = self.known.lock();
        if let Some(answer) = known.answers.get(&key) {
            return Some(answer.clone());
        }
        if known.open.iter().all(|(open, _)| *open != key) {
            known.open.push((key, pending_call));
        }
        None
    }

    /// Checks that no call is open. A transaction must not commit while one is, even if the code
    /// handled the missing response.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Webhook`] while a call has no response.
    pub fn check(&self) -> Result<()> {
        match self.known.lock().open.is_empty() {
            true => Ok(()),
            false => Err(Error::Webhook("a webhook has not been asked yet".into())),
        }
    }

    /// Begins another run of the request and replays its randomness from the start.
    pub fn begin_run(&self) {
        self.known.lock().seen = 0;
    }

    /// Drops all responses and open calls, for callers that outlive a request.
    pub fn forget(&self) {
        let mut known = self.known.lock();
        known.answers.clear();
        known.open.clear();
    }

    /// Makes all open calls. Returns `false` if there were none.
    pub async fn answer(&self, cluster: &ClusterName) -> bool {
        let open = std::mem::take(&mut self.known.lock().open);
        if open.is_empty() {
            return false;
        }
        let caller = Caller {
            outbound: self.outbound.clone(),
            rng: self.rng.clone(),
        };
        let answers = match &self.shared {
            Some((response_cache, clock)) => response_cache.request(cluster, open, caller, clock.now()).await,
            None => caller.request(cluster, open).await,
        };
        self.known.lock().answers.extend(answers);
        true
    }
}

impl Caller {
    async fn request(&self, cluster: &ClusterName, open: Vec<(Key, PendingCall)>) -> Vec<(Key, Answer)> {
        let (keys, pending_calls): (Vec<Key>, Vec<PendingCall>) = open.into_iter().unzip();
        let reviews = conversion::reviews(&pending_calls, &*self.rng).into_iter();
        let converted = join_all(reviews.map(|review| review.send(&*self.outbound, cluster)));
        let admitted = pending_calls
            .iter()
            .enumerate()
            .filter_map(|(index, pending_call)| match pending_call {
                PendingCall::Admit { hook, request } => Some(async move {
                    let answer = admission::request(hook, request, (&*self.outbound, cluster, &*self.rng)).await;
                    (index, answer)
                }),
                PendingCall::Convert { .. } => None,
            });
        let (converted, admitted) = join(converted, join_all(admitted)).await;
        let answers = converted.into_iter().flatten().chain(admitted);
        answers.map(|(index, answer)| (keys[index], answer)).collect()
    }
}

impl Clock for PendingCalls {
    fn now(&self) -> Timestamp {
        self.now.0
    }

    fn now_micros(&self) -> i64 {
        self.now.1
    }
}

impl Rng for PendingCalls {
    fn fill(&self, buffer: &mut [u8]) {
        let mut known = self.known.lock();
        let (from, to) = (known.seen, known.seen + buffer.len());
        if known.drawn.len() < to {
            let mut fresh = vec![0; to - known.drawn.len()];
            self.rng.fill(&mut fresh);
            known.drawn.extend(fresh);
        }
        buffer.copy_from_slice(&known.drawn[from..to]);
        known.seen = to;
    }
}

/// Builds a call whose body is `review`.
fn call(cluster: &ClusterName, endpoint: &Endpoint, review: &Json, timeout_seconds: Option<u32>) -> Call {
    let body = review.to_string().into_bytes();
    Call {
        cluster: cluster.clone(),
        endpoint: endpoint.clone(),
        answer_bytes_max: 2 * body.len() + ANSWER_BYTES_FREE,
        timeout_seconds,
        body,
    }
}

/// Bytes that a response may have beyond twice the size of its call: room for additions.
const ANSWER_BYTES_FREE: usize = 1 << 20;

/// Returns a random `uid` for a review; the response must repeat it.
fn review_uid(rng: &dyn Rng) -> String {
    Uid::random(rng).to_string()
}
