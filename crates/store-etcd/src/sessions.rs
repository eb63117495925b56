//! Sessions, by which a server knows which of its own transactions etcd has executed.
//!
//! A session is a key in etcd, `<prefix>/sessions/<server>-<number>`. Every transaction requires
//! that the key exists, at least at the revision that this server has seen, and writes its number
//! into the key. So
//! - the watch tells which transactions happened, and at which revision, whatever became of their
//!   answers;
//! - when an answer is lost the server deletes the key and begins another session: from that
//!   revision on no transaction of the old one can happen any more, however late it arrives, and
//!   one whose number the watch has not shown never happened;
//! - an etcd that was rolled back executes nothing, for there the key is older than the server has
//!   seen it, or absent.
//!
//! A full etcd takes no number, and begins no session: see `commit.rs` for deletions there.
//!
//! By example: session 1 begins at 10; transactions 7 and 8 are sent, the connection breaks.
//! Session 2 begins at 12 and deletes the key of session 1. The watch shows 11: number 7, then 12.
//! So 7 is committed at 11, and 8 may be sent again.

use crate::{
    errors::{compacted, future},
    keys::Keys,
    members::Members,
    origin::{Origin, Verdict},
};
use etcd_client::{Compare, CompareOp, Error, GetOptions, KeyValue, KvClient, SortOrder, SortTarget, TxnOp};
use insula_api::Revision;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
};
use tokio::sync::oneshot;

/// Sessions that were not written for this many revisions of etcd are deleted by servers that
/// start. A server whose session is deleted begins another one with its next transaction.
const STALE_REVISIONS: i64 = 10_000;

/// Sessions that one server deletes at its start.
const STALE_MAX: i64 = 1_000;

/// A session of this server.
#[derive(Clone)]
pub(crate) struct Session {
    number: u64,
    pub(crate) key: Vec<u8>,
    /// The revision from which on no earlier session of this server can write.
    pub(crate) began: Revision,
    /// The latest revision at which this server has seen the key written.
    written: i64,
}

impl Session {
    /// Holds in any state of etcd that continues what this server has seen, until the session ends.
    pub(crate) fn compare(&self) -> Compare {
        Compare::mod_revision(self.key.clone(), CompareOp::Greater, self.written - 1)
    }
}

/// The latest transaction that the watch has shown, of whichever server: proof that a state of etcd
/// continues ours.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mark {
    pub(crate) key: Vec<u8>,
    pub(crate) revision: Revision,
    pub(crate) value: Vec<u8>,
}

impl Mark {
    pub(crate) fn from_key_value(kv: &KeyValue) -> Self {
        Mark {
            key: kv.key().to_vec(),
            revision: Revision(kv.mod_revision().unsigned_abs()),
            value: kv.value().to_vec(),
        }
    }
}

/// Evidence in a transaction that it is executed by a state of etcd that continues ours.
pub(crate) enum Anchor {
    /// The session of this server, which also ends a late transaction.
    Session(Session),
    /// The latest transaction that the watch has shown, of whichever server, for deletions in a
    /// full etcd, where no session can begin. Without one the guards and the header are evidence.
    Mark(Option<Mark>),
}

impl Anchor {
    pub(crate) fn compare(&self) -> Option<Compare> {
        match self {
            Self::Session(session) => Some(session.compare()),
            Self::Mark(mark) => mark.as_ref().map(|mark| {
                let revision = i64::try_from(mark.revision.0).unwrap_or(i64::MAX);
                Compare::mod_revision(mark.key.clone(), CompareOp::Greater, revision - 1)
            }),
        }
    }
}

/// A change of a session's key that the watch has shown.
pub(crate) enum Written {
    Mark(Mark),
    Deleted(Vec<u8>),
}

/// Sessions of this server, and its transactions that wait for the watch.
pub(crate) struct Sessions {
    instance: u64,
    pub(crate) keys: Keys,
    next_session: AtomicU64,
    next_number: AtomicU64,
    ledger: Mutex<Ledger>,
    /// Held while a session begins: one serves all waiting transactions.
    beginning: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Ledger {
    current: Option<Session>,
    waiting: HashMap<u64, oneshot::Sender<Revision>>,
    last: Option<Mark>,
}

/// State of a transaction as the watch has shown it.
#[derive(Debug, PartialEq)]
pub(crate) enum Seen {
    At(Revision),
    Nothing,
    /// The mirror was loaded anew in between, and may have missed it.
    Lost,
}

/// A transaction that waits for the watch to show its number.
pub(crate) struct Expected<'a> {
    sessions: &'a Sessions,
    number: u64,
    seen: oneshot::Receiver<Revision>,
    lost: bool,
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.sessions.ledger.lock().waiting.remove(&self.number);
    }
}

impl Expected<'_> {
    /// Returns the write of the number into the session's key.
    pub(crate) fn write(&self, session: &Session) -> TxnOp {
        TxnOp::put(session.key.clone(), self.number.to_string(), None)
    }

    /// Waits until the mirror shows the transaction. Nothing if the mirror is loaded anew
    /// meanwhile.
    pub(crate) async fn applied(&mut self) -> Option<Revision> {
        if self.lost {
            return None;
        }
        let shown = (&mut self.seen).await.ok();
        self.lost = shown.is_none();
        shown
    }

    /// Returns what the watch has shown up to now.
    pub(crate) fn seen(&mut self) -> Seen {
        // Under the lock, so that marks of revisions that the mirror applies right now are recorded
        // first.
        let _shown = self.sessions.ledger.lock();
        if self.lost {
            return Seen::Lost;
        }
        match self.seen.try_recv() {
            Ok(revision) => Seen::At(revision),
            Err(oneshot::error::TryRecvError::Empty) => Seen::Nothing,
            Err(oneshot::error::TryRecvError::Closed) => Seen::Lost,
        }
    }
}

impl Sessions {
    pub(crate) fn new(instance: u64, keys: Keys, last: Option<Mark>) -> Self {
        let ledger = Ledger {
            last,
            ..Ledger::default()
        };
        Sessions {
            instance,
            keys,
            next_session: AtomicU64::new(0),
            next_number: AtomicU64::new(0),
            ledger: Mutex::new(ledger),
            beginning: tokio::sync::Mutex::default(),
        }
    }

    /// Registers a transaction before it is sent.
    pub(crate) fn expect(&self) -> Expected<'_> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let (shown, seen) = oneshot::channel();
        self.ledger.lock().waiting.insert(number, shown);
        Expected {
            sessions: self,
            number,
            seen,
            lost: false,
        }
    }

    /// Forgets a session that has ended, where a full etcd lets no other one begin.
    pub(crate) fn forget(&self, ended: &Session) {
        let mut ledger = self.ledger.lock();
        ledger.current.take_if(|current| current.number == ended.number);
    }

    /// Returns the current session, as new as the watch has shown it.
    fn current(&self) -> Option<Session> {
        self.ledger.lock().current.clone()
    }

    /// Returns a session to send transactions in, and begins one if there is none.
    pub(crate) async fn get(&self, members: &Members, origin: &Origin) -> Result<Session, String> {
        match self.current() {
            Some(session) => Ok(session),
            None => self.begin_after(None, members, origin).await,
        }
    }

    /// Ends `old`, if nobody else has, and returns a session that began after it.
    pub(crate) async fn end(&self, old: &Session, members: &Members, origin: &Origin) -> Result<Session, String> {
        self.begin_after(Some(old), members, origin).await
    }

    async fn begin_after(&self, old: Option<&Session>, members: &Members, origin: &Origin) -> Result<Session, String> {
        let _one = self.beginning.lock().await;
        let current = self.current();
        if let Some(current) = current.filter(|current| old.is_none_or(|old| current.number > old.number)) {
            return Ok(current);
        }
        let (options, known) = (members.options(), origin.known());
        let begin = |mut kv: KvClient| {
            // Each attempt has its own name: an attempt that arrives late creates a key that nobody
            // uses.
            let number = self.next_session.fetch_add(1, Ordering::Relaxed);
            let key = self.keys.session(self.instance, number);
            let end = old.map(|old| TxnOp::delete(old.key.clone(), None));
            let put = TxnOp::put(key.clone(), "", None);
            let txn = etcd_client::Txn::new().and_then(end.into_iter().chain([put]).collect::<Vec<_>>());
            async move { Ok((number, key, kv.txn(txn).await?)) }
        };
        let (number, key, answer) = members
            .repeat(options.request_timeout, options.attempt_timeout, begin)
            .await?;
        let began = origin.check(answer.header(), known)?;
        let session = Session {
            number,
            key,
            began,
            written: i64::try_from(began.0).unwrap_or(i64::MAX),
        };
        self.ledger.lock().current = Some(session.clone());
        Ok(session)
    }

    /// Applies the commits of the watch, and records their marks.
    pub(crate) fn apply_and_record(&self, apply: impl FnOnce(), written: Vec<Written>) {
        // Held over both, so that a task that sees the revision applied also finds its marks
        // recorded.
        let mut ledger = self.ledger.lock();
        apply();
        for change in written {
            match change {
                Written::Mark(mark) => self.record_mark(&mut ledger, mark),
                Written::Deleted(key) => {
                    ledger.last.take_if(|last| last.key == key);
                }
            }
        }
    }

    fn record_mark(&self, ledger: &mut Ledger, mark: Mark) {
        if let Some(current) = ledger.current.as_mut().filter(|current| current.key == mark.key) {
            current.written = current.written.max(i64::try_from(mark.revision.0).unwrap_or(i64::MAX));
        }
        let ours = self.keys.is_session_of(&mark.key, self.instance);
        let number = std::str::from_utf8(&mark.value).ok().and_then(|text| text.parse().ok());
        if let (true, Some(number)) = (ours, number)
            && let Some(waiting) = ledger.waiting.remove(&number)
        {
            // The commit may have stopped waiting.
            let _ = waiting.send(mark.revision);
        }
        ledger.last = Some(mark);
    }

    /// Applies a new load, after which earlier transactions are uncertain.
    pub(crate) fn apply_load(&self, apply: impl FnOnce(), last: Option<Mark>) {
        let mut ledger = self.ledger.lock();
        ledger.waiting.clear();
        ledger.last = last;
        apply();
    }

    /// Returns the mark of the latest applied transaction, and the revision of `known` in the same
    /// instant.
    pub(crate) fn last_mark(&self, known: impl FnOnce() -> Revision) -> (Option<Mark>, Revision) {
        let ledger = self.ledger.lock();
        (ledger.last.clone(), known())
    }

    /// Reads from etcd, at the latest applied revision, the mark of the latest transaction that was
    /// applied here.
    pub(crate) async fn verify(&self, kv: &mut KvClient, origin: &Origin) -> Result<Verdict, Error> {
        let (last, known) = self.last_mark(|| origin.known());
        let revision = i64::try_from(known.0).unwrap_or(i64::MAX);
        let options = GetOptions::new().with_revision(revision);
        // Without a mark any key will do: only the header is checked.
        let key = last.as_ref().map_or_else(|| self.keys.tick(), |mark| mark.key.clone());
        let got = match kv.get(key, Some(options)).await {
            Ok(got) => got,
            Err(error) if compacted(&error) => return Ok(Verdict::Compacted),
            Err(error) if future(&error) => {
                return Ok(Verdict::Other(
                    origin.fail(&format!("it has not reached revision {known}")),
                ));
            }
            Err(error) => return Err(error),
        };
        if let Err(reason) = origin.check(got.header(), known) {
            return Ok(Verdict::Other(reason));
        }
        if last.is_some() && got.kvs().first().map(Mark::from_key_value) != last {
            let evidence = format!("its transactions up to revision {known} are others");
            return Ok(Verdict::Other(origin.fail(&evidence)));
        }
        Ok(Verdict::Continues)
    }

    /// Deletes this server's session, at its end.
    pub(crate) async fn close(&self, mut kv: KvClient) -> Result<(), Error> {
        let current = self.ledger.lock().current.take();
        if let Some(session) = current {
            kv.delete(session.key, None).await?;
        }
        Ok(())
    }
}

/// Deletes sessions that killed servers left behind.
pub(crate) async fn delete_stale(keys: &Keys, mut kv: KvClient, now: Revision) -> Result<(), Error> {
    let oldest = i64::try_from(now.0).unwrap_or(i64::MAX) - STALE_REVISIONS;
    if oldest <= 0 {
        return Ok(());
    }
    let (start, end) = keys.sessions();
    let options = GetOptions::new()
        .with_range(end)
        .with_keys_only()
        .with_max_mod_revision(oldest)
        .with_limit(STALE_MAX);
    let stale = kv.get(start, Some(options)).await?;
    for kvs in stale.kvs().chunks(insula_store::TXN_OPS_MAX) {
        let deletes: Vec<TxnOp> = kvs.iter().map(|kv| TxnOp::delete(kv.key(), None)).collect();
        kv.txn(etcd_client::Txn::new().and_then(deletes)).await?;
    }
    Ok(())
}

/// Reads the latest transaction's mark at a revision.
pub(crate) async fn newest_mark(kv: &mut KvClient, keys: &Keys, revision: i64) -> Result<Option<Mark>, Error> {
    let (start, end) = keys.sessions();
    let options = GetOptions::new()
        .with_range(end)
        .with_revision(revision)
        .with_sort(SortTarget::Mod, SortOrder::Descend)
        .with_limit(1);
    let newest = kv.get(start, Some(options)).await?;
    Ok(newest.kvs().first().map(Mark::from_key_value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(sessions: &Sessions, instance: u64, number: u64, revision: u64) -> Written {
        Written::Mark(Mark {
            key: sessions.keys.session(instance, 0),
            revision: Revision(revision),
            value: number.to_string().into_bytes(),
        })
    }

    #[test]
    fn the_watch_tells_which_transactions_happened() {
        let sessions = Sessions::new(7, Keys::new("/insula"), None);
        let [mut first, mut second, mut third] = [(); 3].map(|()| sessions.expect());
        let foreign = mark(&sessions, 8, second.number, 4);
        let own = mark(&sessions, 7, first.number, 5);
        sessions.apply_and_record(|| (), vec![foreign, own]);
        assert_eq!(first.seen(), Seen::At(Revision(5)));
        assert_eq!(second.seen(), Seen::Nothing, "another server's number");
        let last = sessions.last_mark(|| Revision(5)).0.map(|mark| mark.revision);
        assert_eq!(last, Some(Revision(5)));
        sessions.apply_load(|| (), None);
        assert_eq!(
            third.seen(),
            Seen::Lost,
            "nothing tells what happened before a new load"
        );
        drop([first, second, third]);
        assert!(sessions.ledger.lock().waiting.is_empty());
    }
}
