//! Commits: sends a transaction until its outcome is known.
//!
//! A full etcd refuses every transaction that puts a key, and with it the number in the session's
//! key. A transaction that only deletes is then sent without its number, in the session that there
//! is: a late or a rolled back etcd executes it no more than any other. One thing is lost: when its
//! answer is lost, nobody knows if it happened. So the number is left out only after etcd has said
//! that it is full, which means that nothing was executed.

use crate::{
    EtcdStore,
    errors::{Meaning, is_full, meaning, request_too_large, says_full},
    keys::Keys,
    members::{Member, Pauses},
    origin::Verdict,
    sessions::{Anchor, Expected, Seen},
};
use etcd_client::{Compare, CompareOp, Error, GetOptions, TxnOp, TxnOpResponse, TxnResponse};
use insula_api::Revision;
use insula_store::{CommitError, Guard, TXN_BYTES_MAX, Txn, TxnLimit, Write};
use parking_lot::Mutex;

/// Knowledge about a commit, from which the error follows when its time is up.
struct Knowledge {
    /// A transaction was sent that may have happened.
    sent: bool,
    /// Reason why the commit is not acknowledged yet.
    reason: String,
}

impl Knowledge {
    fn not_sent(reason: String) -> Self {
        Knowledge { sent: false, reason }
    }

    fn error(self) -> CommitError {
        if self.sent {
            CommitError::Unknown(self.reason)
        } else {
            CommitError::Unavailable(self.reason)
        }
    }
}

/// Consequence of an attempt for the commit.
enum Step {
    Done(Result<Revision, CommitError>),
    /// The transaction certainly did not happen: send it again.
    Retry,
    /// The transaction did not happen, and the member cannot be used.
    NextMember,
    /// The transaction did not happen, because etcd is full, and does if it puts nothing.
    WithoutNumber,
}

/// One sending of a transaction to one member, after one anchor.
struct Attempt<'a> {
    store: &'a EtcdStore,
    txn: &'a Txn,
    /// The transaction writes its number. A transaction that may change nothing does not, so that
    /// it takes no revision, and none does that a full etcd is to execute.
    marked: bool,
    anchor: Anchor,
    member: Member,
    expected: Expected<'a>,
    knowledge: &'a Mutex<Knowledge>,
}

impl EtcdStore {
    /// Commits a transaction whose keys are written once each, within the time of a request.
    pub(crate) async fn commit_in_time(&self, txn: &Txn) -> Result<Revision, CommitError> {
        let knowledge = Mutex::new(Knowledge::not_sent("etcd does not answer".into()));
        let limit = self.members.options().request_timeout;
        let outcome = tokio::select! {
            outcome = tokio::time::timeout(limit, self.commit_until_known(txn, &knowledge)) => outcome.ok(),
            reason = self.origin.status.ended() => {
                knowledge.lock().reason = reason;
                None
            }
        };
        outcome.unwrap_or_else(|| Err(knowledge.into_inner().error()))
    }

    async fn commit_until_known(&self, txn: &Txn, knowledge: &Mutex<Knowledge>) -> Result<Revision, CommitError> {
        let (mut pauses, mut with_number) = (Pauses::default(), changes_something(txn));
        loop {
            let anchor = match self.sessions.get(&self.members, &self.origin).await {
                Ok(session) => Anchor::Session(session),
                Err(reason) if says_full(&reason) && only_deletes(txn) => {
                    with_number = false;
                    Anchor::Mark(self.sessions.last_mark(|| self.origin.known()).0)
                }
                Err(reason) if says_full(&reason) => return Err(full(&reason)),
                Err(reason) => return Err(CommitError::Unavailable(reason)),
            };
            let generation = self.members.generation();
            let limit = self.members.options().attempt_timeout;
            let step = match tokio::time::timeout(limit, self.members.current()).await {
                Ok(Ok(member)) => {
                    let mut attempt = Attempt {
                        store: self,
                        txn,
                        marked: with_number,
                        anchor,
                        member,
                        expected: self.sessions.expect(),
                        knowledge,
                    };
                    attempt.run().await
                }
                Ok(Err(error)) => {
                    *knowledge.lock() = Knowledge::not_sent(error.to_string());
                    Step::NextMember
                }
                Err(_) => {
                    *knowledge.lock() = Knowledge::not_sent(self.members.silent(generation, limit));
                    Step::NextMember
                }
            };
            match step {
                Step::Done(outcome) => return outcome,
                Step::Retry => {}
                Step::WithoutNumber => with_number = false,
                Step::NextMember => {
                    let reason = knowledge.lock().reason.clone();
                    self.members.failed(generation, &reason);
                    self.members.pause(&mut pauses).await;
                }
            }
        }
    }
}

impl Attempt<'_> {
    async fn run(&mut self) -> Step {
        let known = self.store.origin.known();
        let mark = match &self.anchor {
            Anchor::Session(session) if self.marked => Some(self.expected.write(session)),
            Anchor::Session(_) | Anchor::Mark(_) => None,
        };
        let request = request(&self.store.keys, &self.anchor, mark, self.txn);
        let limit = self.store.members.options().attempt_timeout;
        let mut kv = self.member.kv.clone();
        self.knowledge.lock().sent = true;
        let answered = tokio::select! {
            biased;
            // The watch has shown the transaction, with or without an answer.
            Some(revision) = self.expected.applied() => return Step::Done(Ok(revision)),
            answered = tokio::time::timeout(limit, kv.txn(request)) => answered,
        };
        let reason = match answered {
            Ok(Ok(response)) => {
                return match self.store.origin.check(response.header(), known) {
                    Ok(revision) => self.answered(&response, revision).await,
                    Err(reason) => Step::Done(Err(CommitError::Unknown(reason))),
                };
            }
            Ok(Err(error)) => match meaning(&error) {
                Meaning::Refused if self.marked && is_full(&error) && only_deletes(self.txn) => {
                    *self.knowledge.lock() = Knowledge::not_sent(error.to_string());
                    return Step::WithoutNumber;
                }
                Meaning::Refused => return Step::Done(Err(refusal(&error, self.txn))),
                Meaning::NotExecuted => {
                    *self.knowledge.lock() = Knowledge::not_sent(error.to_string());
                    return Step::NextMember;
                }
                Meaning::Unknown => error.to_string(),
            },
            Err(_) => self.store.members.silent(self.member.generation, limit),
        };
        self.store.members.failed(self.member.generation, &reason);
        self.knowledge.lock().reason = reason;
        self.resolve().await
    }

    /// Finds out whether a transaction without an answer happened.
    async fn resolve(&mut self) -> Step {
        let (true, Anchor::Session(session)) = (self.marked, &self.anchor) else {
            return Step::Done(Err(self.unknown("nothing tells whether it happened")));
        };
        let ended = async {
            let next = self
                .store
                .sessions
                .end(session, &self.store.members, &self.store.origin);
            let began = next.await?.began;
            self.store.origin.mvcc.reached(began).await;
            Ok::<(), String>(())
        };
        let ended = tokio::select! {
            biased;
            Some(revision) = self.expected.applied() => return Step::Done(Ok(revision)),
            ended = ended => ended,
        };
        if let Err(reason) = ended {
            return Step::Done(Err(self.unknown(&reason)));
        }
        match self.expected.seen() {
            Seen::At(revision) => Step::Done(Ok(revision)),
            Seen::Nothing => {
                self.knowledge.lock().sent = false;
                Step::Retry
            }
            Seen::Lost => Step::Done(Err(self.unknown("what happened meanwhile is compacted"))),
        }
    }

    fn unknown(&self, detail: &str) -> CommitError {
        CommitError::Unknown(format!("{}; {detail}", self.knowledge.lock().reason))
    }

    async fn answered(&mut self, response: &TxnResponse, revision: Revision) -> Step {
        let responses = response.op_responses();
        if !response.succeeded() {
            return self.refused(&responses).await;
        }
        self.knowledge.lock().reason = format!("committed at {revision}, not seen here");
        if self.marked && self.expected.applied().await.is_some() {
            return Step::Done(Ok(revision));
        }
        let deleted = responses
            .iter()
            .any(|response| matches!(response, TxnOpResponse::Delete(deleted) if deleted.deleted() > 0));
        if self.marked || deleted {
            // Its own event will arrive, or a load that includes it.
            self.store.origin.mvcc.reached(revision).await;
            return Step::Done(Ok(revision));
        }
        let reached = self.store.reach(revision).await;
        Step::Done(reached.map(|()| revision).map_err(CommitError::Unknown))
    }

    /// Finds the guard that failed in the keys that etcd returned with the transaction. If all
    /// guards hold, the session has ended.
    async fn refused(&mut self, responses: &[TxnOpResponse]) -> Step {
        for (guard, response) in self.txn.guards.iter().zip(responses) {
            let TxnOpResponse::Get(got) = response else { continue };
            let found = got.kvs().first().map(|kv| Revision(kv.mod_revision().unsigned_abs()));
            if !guard.holds(found) {
                let key = guard.key().clone();
                return Step::Done(Err(CommitError::Conflict { key, found }));
            }
        }
        *self.knowledge.lock() = Knowledge::not_sent("the session has ended".into());
        // Another request of this server, or a server that cleaned up, ended the session; or this
        // is another etcd.
        match self
            .store
            .sessions
            .verify(&mut self.member.kv, &self.store.origin)
            .await
        {
            Ok(Verdict::Continues | Verdict::Compacted) => {}
            Ok(Verdict::Other(reason)) => return Step::Done(Err(CommitError::Unavailable(reason))),
            Err(error) => {
                self.knowledge.lock().reason = error.to_string();
                return Step::NextMember;
            }
        }
        let Anchor::Session(session) = &self.anchor else {
            return Step::Retry;
        };
        let sessions = &self.store.sessions;
        match sessions.end(session, &self.store.members, &self.store.origin).await {
            Ok(_) => Step::Retry,
            Err(reason) if says_full(&reason) => {
                sessions.forget(session);
                Step::Retry
            }
            Err(reason) => Step::Done(Err(CommitError::Unavailable(reason))),
        }
    }
}

/// Returns true for a transaction that a full etcd executes.
fn only_deletes(txn: &Txn) -> bool {
    txn.writes.iter().all(|write| matches!(write, Write::Delete(_)))
}

/// Returns the error of a transaction that a full etcd refuses.
fn full(reason: &str) -> CommitError {
    CommitError::Full(format!(
        "etcd is full, and only deletions are taken: {reason}; raise --quota-backend-bytes, or delete objects and \
         `etcdctl defrag`, then `etcdctl alarm disarm`"
    ))
}

/// Returns true for a transaction that cannot happen without a new revision.
fn changes_something(txn: &Txn) -> bool {
    let exists = |write: &Write| {
        txn.guards.iter().any(|guard| match guard {
            Guard::Absent(_) => false,
            Guard::At(key, _) | Guard::Exists(key) => key == write.key(),
        })
    };
    txn.writes.iter().any(|write| match write {
        Write::Put(..) => true,
        Write::Delete(_) => exists(write),
    })
}

fn request(keys: &Keys, anchor: &Anchor, mark: Option<TxnOp>, txn: &Txn) -> etcd_client::Txn {
    let look = |key: Vec<u8>| TxnOp::get(key, Some(GetOptions::new().with_keys_only()));
    let compares: Vec<Compare> = txn
        .guards
        .iter()
        .map(|guard| compare(keys, guard))
        .chain(anchor.compare())
        .collect();
    let looks: Vec<TxnOp> = txn.guards.iter().map(|guard| look(keys.object(guard.key()))).collect();
    let operations: Vec<TxnOp> = txn
        .writes
        .iter()
        .map(|write| match write {
            Write::Put(key, object) => TxnOp::put(keys.object(key), object.to_stored(), None),
            Write::Delete(key) => TxnOp::delete(keys.object(key), None),
        })
        .chain(mark)
        .collect();
    etcd_client::Txn::new()
        .when(compares)
        .and_then(operations)
        .or_else(looks)
}

fn compare(keys: &Keys, guard: &Guard) -> Compare {
    let key = keys.object(guard.key());
    match guard {
        Guard::Absent(_) => Compare::create_revision(key, CompareOp::Equal, 0),
        Guard::Exists(_) => Compare::create_revision(key, CompareOp::Greater, 0),
        // A revision that no key can have never holds; 0 would mean "absent" to etcd.
        Guard::At(_, revision) => {
            let revision = i64::try_from(revision.0)
                .ok()
                .filter(|revision| *revision > 0)
                .unwrap_or(i64::MAX);
            Compare::mod_revision(key, CompareOp::Equal, revision)
        }
    }
}

fn refusal(error: &Error, txn: &Txn) -> CommitError {
    if is_full(error) {
        return full(&error.to_string());
    }
    if !request_too_large(error) {
        return CommitError::Unavailable(error.to_string());
    }
    let sizes = txn.writes.iter().map(|write| match write {
        Write::Put(_, object) => object.size(),
        Write::Delete(_) => 0,
    });
    CommitError::TooLarge {
        limit: TxnLimit::Bytes,
        got: sizes.sum(),
        max: TXN_BYTES_MAX,
    }
}
