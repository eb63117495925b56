//! The revision at which a server that starts reads the state, so that it knows the recent past.
//!
//! The state is read as it was, and the watch brings it to the present: each change in between is
//! in the history as if the server had been there. So a client's watch goes on from before the
//! start, and needs no list.
//!
//! ```text
//! compacted │ oldest          begin                      now
//!           ├───── a quarter ──┼─ history of the server ──┤
//! ```
//! Servers compact etcd while another one starts. The quarter is what they may take meanwhile; a
//! load that loses its revision nevertheless is done again at the present one, without history.

use crate::{
    Driver, EtcdStore, REVISION_READS,
    errors::compacted,
    keys::Keys,
    load::load_first,
    members::Members,
    mirror::{Mirror, MirrorError},
    origin::Origin,
    sessions::Sessions,
    shared_reads::SharedReads,
    status::Status,
};
use etcd_client::{Error, GetOptions, KvClient};
use insula_api::Revision;
use insula_store::Mvcc;
use std::{sync::Arc, time::Duration};

/// Revisions of the history that a start reads. etcd sends a watch that is behind a thousand of
/// them every tenth of a second, and reads all that are left each time.
const REVISIONS_MAX: u64 = 20_000;
/// Divisor of the revisions that etcd still has, which gives those that are left to compactions.
const LEFT_SHARE: u64 = 4;

/// Time for the watch to bring the state of an earlier revision to the present one.
const RESUME_TIMEOUT: Duration = Duration::from_secs(20);

impl EtcdStore {
    /// Reads the state of an earlier revision, and follows etcd to the present one. Returns nothing
    /// if etcd has no history.
    pub(crate) async fn resume(members: &Arc<Members>, prefix: &str) -> Result<Option<(EtcdStore, Driver)>, String> {
        let (options, keys) = (members.options(), Keys::new(prefix));
        let begin = |kv: KvClient| begin(kv, &keys);
        let begin = members
            .repeat(options.request_timeout, options.attempt_timeout, begin)
            .await?;
        let Some(begin) = begin else { return Ok(None) };
        let (store, mirror, now) = Self::open(members, prefix, Some(begin))
            .await
            .map_err(|error| error.to_string())?;
        let mut driver: Driver = Box::pin(mirror.run());
        let reached = options.timeout(RESUME_TIMEOUT, store.reach(now));
        tokio::select! {
            biased;
            ended = &mut driver => ended?,
            reached = reached => reached.map_err(|_| "its watch is slow".to_owned())??,
        }
        Ok(Some((store, driver)))
    }

    /// Reads the state at a revision, or at the present one. Returns the store, its mirror, and
    /// etcd's present revision.
    pub(crate) async fn open(
        members: &Arc<Members>,
        prefix: &str,
        at: Option<Revision>,
    ) -> Result<(EtcdStore, Mirror, Revision), MirrorError> {
        let keys = Keys::new(prefix);
        let (loaded, entries) = load_first(members, &keys, at).await?;
        let origin = Arc::new(Origin {
            cluster: loaded.cluster,
            mvcc: Mvcc::load(loaded.revision, entries),
            status: Arc::new(Status::default()),
        });
        let sessions = Arc::new(Sessions::new(members.options().instance, keys.clone(), loaded.last));
        let mirror = Mirror {
            origin: origin.clone(),
            members: members.clone(),
            sessions: sessions.clone(),
            keys: keys.clone(),
        };
        let store = EtcdStore {
            members: members.clone(),
            origin,
            sessions,
            keys,
            format: loaded.format,
            current: SharedReads::new(REVISION_READS),
            tick: tokio::sync::Mutex::default(),
        };
        Ok((store, mirror, loaded.now))
    }
}

/// Returns the revision to begin at. `None` when etcd has no past that can be followed: nothing was
/// written since the slots began, and what was written before is in another layout.
async fn begin(mut kv: KvClient, keys: &Keys) -> Result<Option<Revision>, Error> {
    let slotted = kv.get(keys.slotted(), None).await?;
    let now = slotted.header().map_or(0, |header| header.revision().unsigned_abs());
    let Some(first) = slotted.kvs().first().map(|kv| kv.mod_revision().unsigned_abs()) else {
        return Ok(None);
    };
    let first = first.max(now.saturating_sub(REVISIONS_MAX));
    let (mut gone, mut oldest) = (first, now);
    if is_readable(&mut kv, keys, first).await? {
        oldest = first;
    }
    while oldest > gone + 1 {
        let middle = gone.midpoint(oldest);
        match is_readable(&mut kv, keys, middle).await? {
            true => oldest = middle,
            false => gone = middle,
        }
    }
    let begin = if oldest == first {
        first
    } else {
        oldest + (now - oldest) / LEFT_SHARE
    };
    Ok((begin < now).then_some(Revision(begin)))
}

/// Returns true if etcd has the state at a revision.
async fn is_readable(kv: &mut KvClient, keys: &Keys, revision: u64) -> Result<bool, Error> {
    let revision = i64::try_from(revision).unwrap_or(i64::MAX);
    let options = GetOptions::new().with_count_only().with_revision(revision);
    match kv.get(keys.tick(), Some(options)).await {
        Ok(_) => Ok(true),
        Err(error) if compacted(&error) => Ok(false),
        Err(error) => Err(error),
    }
}
