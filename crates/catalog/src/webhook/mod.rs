//! What a request has to ask others before it can be answered.
//!
//! Between a request and the store everything is a function of a snapshot: nothing there waits or
//! calls. Where it needs what only a webhook knows, it looks among the answers of the request. A
//! question without an answer is noted, the function ends in an error, and whoever called it
//! (`Registry::settled`) asks all open questions at once and calls it again. So the core stays
//! without a wait, a list asks one question about all of its objects, and nothing is committed on
//! half an answer.
//!
//! ```text
//! run 1: update → old object in v2?  open          ask, remember
//! run 2: update → old object in v2   known → new object in v1?  open          ask, remember
//! run 3: update → … known → … known → commit
//! ```
//!
//! Every run must ask the same again, or the questions would never end: time and randomness are
//! drawn once for all runs.

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

/// What a webhook says: JSON, or why there is none.
pub type Answer = std::result::Result<Arc<Json>, Arc<str>>;

type Key = [u8; 32];

/// A question, complete in itself.
#[derive(Debug, Clone)]
pub enum Question {
    /// How an object looks in another version.
    Convert {
        webhook: Arc<Webhook>,
        object: Json,
        to: Arc<str>,
    },
    /// Whether a write may happen, and what is to be changed of it: an AdmissionRequest without its
    /// name.
    Admit { hook: Arc<Hook>, request: Json },
}

impl Question {
    fn key(&self) -> Key {
        let mut hash = Sha256::new();
        match self {
            Question::Convert { webhook, object, to } => {
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
            Question::Admit { hook, request } => {
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

/// The questions of one request, and what came back.
pub struct PendingCalls {
    known: Mutex<Known>,
    now: (Timestamp, i64),
    rng: Arc<dyn Rng>,
    outbound: Arc<dyn Outbound>,
    /// Where answers are looked for before anybody is asked, and the clock by which they age: for
    /// watches.
    shared: Option<(Arc<ResponseCache>, Arc<dyn Clock>)>,
}

/// Who carries questions out.
#[derive(Clone)]
struct Asker {
    outbound: Arc<dyn Outbound>,
    rng: Arc<dyn Rng>,
}

#[derive(Default)]
struct Known {
    answers: HashMap<Key, Answer>,
    /// In the order in which they came up.
    open: Vec<(Key, Question)>,
    /// Randomness drawn so far, and how much of it this run has seen.
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
    /// The calls of one request: no call was made yet.
    pub fn new(clock: &dyn Clock, rng: Arc<dyn Rng>, outbound: Arc<dyn Outbound>) -> Self {
        PendingCalls {
            known: Mutex::default(),
            now: (clock.now(), clock.now_micros()),
            rng,
            outbound,
            shared: None,
        }
    }

    /// The same for a watch, which looks for responses that other watches got first.
    pub fn sharing(self, responses: Arc<ResponseCache>, clock: Arc<dyn Clock>) -> Self {
        PendingCalls {
            shared: Some((responses, clock)),
            ..self
        }
    }

    /// The answer, if there is one; otherwise the question is open now.
    pub fn ask(&self, question: Question) -> Option<Answer> {
        let key = question.key();
        let mut known = self.known.lock();
        if let Some(answer) = known.answers.get(&key) {
            return Some(answer.clone());
        }
        if known.open.iter().all(|(open, _)| *open != key) {
            known.open.push((key, question));
        }
        None
    }

    /// Nothing may be committed on questions that are still open, whatever was made of their
    /// absence.
    pub fn check(&self) -> Result<()> {
        match self.known.lock().open.is_empty() {
            true => Ok(()),
            false => Err(Error::Webhook("a webhook has not been asked yet".into())),
        }
    }

    /// Begins another run of the request: randomness is handed out from the start again.
    pub fn begin_run(&self) {
        self.known.lock().seen = 0;
    }

    /// Forgets everything: for those who live longer than a request.
    pub fn forget(&self) {
        let mut known = self.known.lock();
        known.answers.clear();
        known.open.clear();
    }

    /// Asks what is open. `false`: nothing was.
    pub async fn answer(&self, cluster: &ClusterName) -> bool {
        let open = std::mem::take(&mut self.known.lock().open);
        if open.is_empty() {
            return false;
        }
        let asker = Asker {
            outbound: self.outbound.clone(),
            rng: self.rng.clone(),
        };
        let answers = match &self.shared {
            Some((response_cache, clock)) => response_cache.ask(cluster, open, asker, clock.now()).await,
            None => asker.ask(cluster, open).await,
        };
        self.known.lock().answers.extend(answers);
        true
    }
}

impl Asker {
    async fn ask(&self, cluster: &ClusterName, open: Vec<(Key, Question)>) -> Vec<(Key, Answer)> {
        let (keys, questions): (Vec<Key>, Vec<Question>) = open.into_iter().unzip();
        let reviews = conversion::reviews(&questions, &*self.rng).into_iter();
        let converted = join_all(reviews.map(|review| review.ask(&*self.outbound, cluster)));
        let admitted = questions
            .iter()
            .enumerate()
            .filter_map(|(index, question)| match question {
                Question::Admit { hook, request } => Some(async move {
                    let answer = admission::ask(hook, request, (&*self.outbound, cluster, &*self.rng)).await;
                    (index, answer)
                }),
                Question::Convert { .. } => None,
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

/// A call with a review of its own name.
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

/// An answer may have twice the bytes of the question, and these: an object's worth of additions.
const ANSWER_BYTES_FREE: usize = 1 << 20;

/// A name for a review, that its answer has to repeat.
fn review_uid(rng: &dyn Rng) -> String {
    Uid::random(rng).to_string()
}
