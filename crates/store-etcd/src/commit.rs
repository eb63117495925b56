//! Commits: sends a transaction until its outcome is known.
//!
//! A full etcd refuses every transaction that puts a key, and with it the number in the session's
//! key. A transaction that only deletes is then sent without its number, in the session that there
//! is: a late or a rolled back etcd executes it no more than any other. One thing is lost: when its
//! answer is lost, nobody knows if it happened. So the number is left out only after etcd has said
//! that it is full, and the watch that the one with the number has not happened.

use crate::{
    EtcdStore,
    errors::{Meaning, is_full, meaning, request_too_large, says_full},
    keys::Layout,
    layout::{self, Location},
    members::{Member, Pauses},
    origin::Verdict,
    relocation::relocate_keys,
    sessions::{Anchor, Expected, Seen},
    txn::{changes_something, compare, only_deletes},
};
use etcd_client::{Error, GetOptions, TxnOp, TxnOpResponse, TxnResponse};
use insula_api::{ObjectKey, Revision};
use insula_store::{CommitError, Guard, TXN_BYTES_MAX, TXN_OPS_MAX, Txn, TxnLimit, Write};
use parking_lot::Mutex;
use std::{
    borrow::Cow,
    collections::{BTreeSet, HashSet},
};

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

/// Keys in etcd of what a transaction names.
#[derive(PartialEq, Eq)]
struct Locations {
    /// Those of the guards, and then of those that the store adds.
    guards: Vec<Location>,
    writes: Vec<Location>,
}

impl Locations {
    /// Returns the keys of those that leave the earlier layout.
    fn earlier(&self) -> BTreeSet<&[u8]> {
        let all = self.guards.iter().chain(&self.writes);
        let earlier = all.filter(|location| location.next.is_some());
        earlier.map(|location| &*location.present).collect()
    }
}

/// One sending of a transaction to one member, after one anchor.
struct Attempt<'a> {
    store: &'a EtcdStore,
    txn: &'a Txn,
    /// Guards as they are sent: see [`EtcdStore::sent_guards`].
    guards: Vec<Cow<'a, Guard>>,
    /// Keys in etcd of what the transaction names.
    locations: Locations,
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
        let options = self.members.options();
        let committed = self.commit_until_known(txn, &knowledge);
        let outcome = tokio::select! {
            biased;
            outcome = options.timeout(options.request_timeout, committed) => outcome.ok(),
            reason = self.origin.status.ended() => {
                knowledge.lock().reason = reason;
                None
            }
        };
        outcome.unwrap_or_else(|| Err(knowledge.into_inner().error()))
    }

    /// Returns the guards, and behind them those on what is put without one. The value of a put
    /// tells when its object was created, as far as this process knows, and another object may have
    /// taken its place. So what is put is guarded by its revision.
    fn sent_guards<'a>(&self, txn: &'a Txn) -> Vec<Cow<'a, Guard>> {
        let guards = txn.guards.iter().map(Cow::Borrowed);
        if self.keys.slots_began().is_none() {
            return guards.collect();
        }
        let written = |key: &ObjectKey| Some(self.origin.mvcc.current(&key.encode())?.0);
        let put: HashSet<&ObjectKey> = txn.puts().collect();
        let guards = guards.map(|guard| match &*guard {
            // One that is not known here is of no revision, and is read before it is sent again.
            Guard::Exists(key) if put.contains(key) => {
                Cow::Owned(Guard::At(key.clone(), written(key).unwrap_or(Revision(u64::MAX))))
            }
            _ => guard,
        });
        let added = txn.unguarded_puts().map(|key| match written(key) {
            Some(written) => Cow::Owned(Guard::At(key.clone(), written)),
            None => Cow::Owned(Guard::Absent(key.clone())),
        });
        guards.chain(added).collect()
    }

    fn locations(&self, txn: &Txn, guards: &[Cow<'_, Guard>]) -> Locations {
        let find = |key| Location::find(&self.keys, &self.origin.mvcc, key);
        Locations {
            guards: guards.iter().map(|guard| find(guard.key())).collect(),
            writes: txn.writes.iter().map(|write| find(write.key())).collect(),
        }
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
            if let (None, Anchor::Session(session)) = (self.keys.slots_began(), &anchor) {
                // They may have begun before the session.
                self.origin.mvcc.reached(session.began).await;
            }
            let generation = self.members.generation();
            let options = self.members.options();
            let limit = options.attempt_timeout;
            let step = match options.timeout(limit, self.members.current()).await {
                Ok(Ok(member)) => {
                    let guards = self.sent_guards(txn);
                    let mut attempt = Attempt {
                        store: self,
                        txn,
                        locations: self.locations(txn, &guards),
                        guards,
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
    /// Returns the key that tells whether a guard holds.
    fn key_of(&self, guard: &Guard, location: &Location) -> Vec<u8> {
        match guard {
            Guard::At(key, written) => layout::written_at(&self.store.keys, key, *written),
            Guard::Absent(_) | Guard::Exists(_) => location.present.clone(),
        }
    }

    /// Returns true if another key may hold the object of this one by now.
    fn may_have_moved(&self, key: &[u8]) -> bool {
        let layout = self.store.keys.encoded(key).map(|(layout, _)| layout);
        layout == Some(Layout::Earlier) && self.store.keys.slots_began().is_some()
    }

    /// Returns etcd's transaction. Nothing if what leaves the earlier layout takes too many
    /// operations with the rest: it has to be moved first.
    fn request(&self, mark: Option<TxnOp>) -> Option<etcd_client::Txn> {
        let (mut compares, mut looks) = (Vec::new(), Vec::new());
        for (guard, location) in self.guards.iter().zip(&self.locations.guards) {
            let key = self.key_of(guard, location);
            looks.push(TxnOp::get(key.clone(), Some(GetOptions::new().with_keys_only())));
            compares.push(compare(key, guard));
            if let (Guard::Absent(_), Some(next)) = (&**guard, &location.next) {
                compares.push(compare(next.clone(), guard));
            }
        }
        compares.extend(self.anchor.compare());
        let mut operations = Vec::new();
        for (write, location) in self.txn.writes.iter().zip(&self.locations.writes) {
            let Location { present, next, .. } = location;
            match write {
                Write::Put(_, object) => {
                    let value = location.value(object.to_stored());
                    operations.push(TxnOp::put(next.as_ref().unwrap_or(present).clone(), value, None));
                    operations.extend(next.as_ref().map(|_| TxnOp::delete(present.clone(), None)));
                }
                Write::Delete(_) => {
                    let keys = [Some(present), next.as_ref()].into_iter().flatten();
                    operations.extend(keys.map(|key| TxnOp::delete(key.clone(), None)));
                }
            }
        }
        operations.extend(mark);
        // One of each is the store's own.
        let fits = compares.len().max(operations.len()) <= TXN_OPS_MAX + 1;
        let txn = etcd_client::Txn::new().when(compares).and_then(operations);
        fits.then(|| txn.or_else(looks))
    }

    async fn run(&mut self) -> Step {
        let known = self.store.origin.known();
        let mark = match &self.anchor {
            Anchor::Session(session) if self.marked => Some(self.expected.write(session)),
            Anchor::Session(_) | Anchor::Mark(_) => None,
        };
        let options = self.store.members.options();
        let limit = options.attempt_timeout;
        let mut kv = self.member.kv.clone();
        let Some(request) = self.request(mark) else {
            let earlier: Vec<&[u8]> = self.locations.earlier().into_iter().collect();
            let moved = options
                .timeout(limit, relocate_keys(&mut kv, &self.store.keys, &earlier))
                .await;
            return match moved {
                Ok(Ok(())) => self.again().await,
                Ok(Err(error)) => self.not_sent(&error.to_string()),
                Err(_) => self.not_sent(&self.store.members.silent(self.member.generation, limit)),
            };
        };
        self.knowledge.lock().sent = true;
        let answered = tokio::select! {
            biased;
            // The watch has shown the transaction, with or without an answer.
            Some(revision) = self.expected.applied() => return Step::Done(Ok(revision)),
            answered = options.timeout(limit, kv.txn(request)) => answered,
        };
        let reason = match answered {
            Ok(Ok(response)) => {
                return match self.store.origin.check(response.header(), known) {
                    Ok(revision) => self.answered(&response, revision).await,
                    Err(reason) => Step::Done(Err(CommitError::Unknown(reason))),
                };
            }
            Ok(Err(error)) => match meaning(&error) {
                Meaning::Refused if is_full(&error) => return self.full(&error.to_string()).await,
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

    fn not_sent(&self, reason: &str) -> Step {
        *self.knowledge.lock() = Knowledge::not_sent(reason.to_owned());
        Step::NextMember
    }

    /// Sends the transaction again when this process has seen all that etcd has.
    async fn again(&self) -> Step {
        match self.store.catch_up().await {
            Ok(()) => Step::Retry,
            Err(error) => self.not_sent(&error.to_string()),
        }
    }

    /// Finds out whether a transaction happened for which etcd has no space. One that is accepted
    /// while there is some, and executed when there is none, happens, and is answered as full.
    async fn full(&mut self, reason: &str) -> Step {
        if self.marked {
            reason.clone_into(&mut self.knowledge.lock().reason);
            // It was executed before it was answered, or never is.
            if let Err(error) = self.store.catch_up().await {
                return Step::Done(Err(self.unknown(&error.to_string())));
            }
            match self.expected.seen() {
                Seen::At(revision) => return Step::Done(Ok(revision)),
                Seen::Lost => return Step::Done(Err(self.unknown("what happened meanwhile is compacted"))),
                Seen::Nothing => *self.knowledge.lock() = Knowledge::not_sent(reason.to_owned()),
            }
        }
        match self.marked && only_deletes(self.txn) {
            true => Step::WithoutNumber,
            false => Step::Done(Err(full(reason))),
        }
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
            return self.refused(&responses, revision).await;
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
    async fn refused(&mut self, responses: &[TxnOpResponse], revision: Revision) -> Step {
        let guards = self.guards.iter().zip(&self.locations.guards);
        for (index, ((guard, location), response)) in guards.zip(responses).enumerate() {
            let TxnOpResponse::Get(got) = response else { continue };
            let mut found = got.kvs().first().map(|kv| Revision(kv.mod_revision().unsigned_abs()));
            if found.is_none() && self.may_have_moved(&self.key_of(guard, location)) {
                if let Err(reason) = self.store.reach(revision).await {
                    return self.not_sent(&reason);
                }
                let known = self.store.origin.mvcc.current(&guard.key().encode());
                found = known.map(|(written, _)| written);
            }
            if self.txn.guards.get(index).is_some_and(|own| !own.holds(found)) {
                let key = guard.key().clone();
                return Step::Done(Err(CommitError::Conflict { key, found }));
            }
            if !guard.holds(found) {
                self.knowledge.lock().sent = false;
                return self.again().await;
            }
        }
        if self.store.locations(self.txn, &self.guards) != self.locations {
            // Others have moved what it writes.
            self.knowledge.lock().sent = false;
            return Step::Retry;
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

/// Returns the error of a transaction that a full etcd refuses.
fn full(reason: &str) -> CommitError {
    CommitError::Full(format!(
        "etcd is full, and only deletions are taken: {reason}; raise --quota-backend-bytes, or delete objects and \
         `etcdctl defrag`, then `etcdctl alarm disarm`"
    ))
}

fn refusal(error: &Error, txn: &Txn) -> CommitError {
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
