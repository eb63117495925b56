//! Reads of the whole state: the first load, and those after a loss.

use crate::{
    BlockingExecutor,
    errors::too_large_to_read,
    keys::{Keys, Layout, RANGES, Range, next_key},
    layout::{is_stray, split_created},
    members::Members,
    mirror::MirrorError,
    read_header,
    sessions::{self, Mark, newest_mark},
};
use etcd_client::{GetOptions, KeyValue, KvClient};
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use insula_api::{Object, ObjectKey, Revision};
use insula_store::{Entry, FORMAT};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Objects in a page.
const PAGE_MAX: i64 = 2000;

/// Pages of one range that are decoded, while the next one is read.
const DECODED_MAX: usize = 2;

/// Knowledge about a load beside the objects.
pub(crate) struct Loaded {
    pub(crate) revision: Revision,
    /// etcd's revision when the load began.
    pub(crate) now: Revision,
    pub(crate) cluster: u64,
    /// The latest transaction.
    pub(crate) last: Option<Mark>,
    /// The mark of the format.
    pub(crate) format: Option<u64>,
}

/// Loads from a member that answers, at a revision or the present one, and deletes sessions that
/// killed servers left behind.
pub(crate) async fn load_first(
    members: &Members,
    keys: &Keys,
    at: Option<Revision>,
) -> Result<(Loaded, Vec<Entry>), MirrorError> {
    let options = members.options();
    let read = |kv: KvClient| read_header(kv, keys.tick());
    members
        .repeat(options.request_timeout, options.attempt_timeout, read)
        .await
        .map_err(MirrorError::Ended)?;
    let member = members.current().await?;
    let mut entries = Vec::new();
    let take = |_, _, page| {
        entries.extend::<Vec<Entry>>(page);
        Ok(())
    };
    let loaded = load(&member.kv, at, (keys, &options.executor), take).await;
    match &loaded {
        Ok(loaded) => {
            let cleaned = sessions::delete_stale(keys, member.kv, loaded.now);
            let reason = match options.timeout(options.attempt_timeout, cleaned).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some(members.silent(member.generation, options.attempt_timeout)),
            };
            if let Some(reason) = reason {
                // Nobody uses these keys any more, so the start goes on.
                tracing::warn!(
                    reason,
                    "sessions of ended servers stay in etcd; the next start deletes them"
                );
            }
        }
        Err(error) => members.failed(member.generation, &error.to_string()),
    }
    loaded.map(|loaded| (loaded, entries))
}

/// Reads everything at one revision, the present one if none is given, in pages of no order: the
/// ranges of keys beside one another. Passes the revision and the number of the cluster with the
/// objects of each page.
pub(crate) async fn load(
    kv: &KvClient,
    at: Option<Revision>,
    (keys, executor): (&Keys, &BlockingExecutor),
    mut take: impl FnMut(Revision, u64, Vec<Entry>) -> Result<(), MirrorError>,
) -> Result<Loaded, MirrorError> {
    let mut kv = kv.clone();
    let given = at.map(|at| i64::try_from(at.0).unwrap_or(i64::MAX));
    let options = given.map(|given| GetOptions::new().with_revision(given));
    let begin = kv.get(keys.slotted(), options).await?;
    let header = begin.header().map(|header| (header.revision(), header.cluster_id()));
    let (now, cluster) = header.unwrap_or_default();
    let at = given.unwrap_or(now);
    if let (Some(slotted), None) = (begin.kvs().first(), keys.slots_began()) {
        keys.begin_slots(Revision(slotted.mod_revision().unsigned_abs()));
    }
    let revision = Revision(at.unsigned_abs());
    let pages = keys.ranges().map(|range| pages(kv.clone(), range, at));
    let mut pages = stream::iter(pages.map(|pages| Box::pin(decoded(pages, keys, executor)))).flatten_unordered(RANGES);
    let (mut format, mut first) = (None, None);
    while let Some(page) = pages.try_next().await? {
        format = format.or(page.format);
        first = first.into_iter().chain(page.first_in_slot).min();
        take(revision, cluster, page.entries)?;
    }
    drop(pages);
    if let (Some(first), Some(began)) = (first, keys.slots_began())
        && first <= began
    {
        // The keys were copied from another etcd, and have other revisions than there.
        keys.begin_slots(Revision(first.0 - 1));
    }
    Ok(Loaded {
        revision,
        now: Revision(now.unsigned_abs()),
        cluster,
        last: newest_mark(&mut kv, keys, at).await?,
        format,
    })
}

/// Reads a range at a revision, page after page.
fn pages(kv: KvClient, (start, end): Range, at: i64) -> impl Stream<Item = Result<Vec<KeyValue>, MirrorError>> {
    stream::try_unfold(Some((kv, start, PAGE_MAX)), move |next| {
        let end = end.clone();
        async move {
            let Some((mut kv, start, mut limit)) = next else {
                return Ok(None);
            };
            let mut page = loop {
                let options = GetOptions::new()
                    .with_range(end.clone())
                    .with_limit(limit)
                    .with_revision(at);
                match kv.get(start.clone(), Some(options)).await {
                    Ok(page) => break page,
                    Err(error) if too_large_to_read(&error) && limit > 1 => limit /= 2,
                    Err(error) => return Err(error.into()),
                }
            };
            let (more, kvs) = (page.more(), page.take_kvs());
            let last = kvs.last().filter(|_| more);
            let next = last.map(|last| (kv, next_key(last.key()), limit));
            Ok(Some((kvs, next)))
        }
    })
}

/// A page of a load.
struct Decoded {
    entries: Vec<Entry>,
    format: Option<u64>,
    /// The first revision of what is in slots.
    first_in_slot: Option<Revision>,
}

/// Decodes pages beside one another, and while the next one is read.
fn decoded(
    pages: impl Stream<Item = Result<Vec<KeyValue>, MirrorError>>,
    keys: &Keys,
    executor: &BlockingExecutor,
) -> impl Stream<Item = Result<Decoded, MirrorError>> {
    let begin = |kvs: Vec<KeyValue>| {
        let (keys, (done, decoded)) = (keys.clone(), oneshot::channel());
        executor(Box::new(move || {
            // The load may have ended.
            let _ = done.send(decode(&keys, &kvs));
        }));
        Ok(async move {
            let undone = |_| MirrorError::Other("a page was not decoded".into());
            decoded.await.map_err(undone)?
        })
    };
    pages
        .and_then(move |kvs| std::future::ready(begin(kvs)))
        .try_buffered(DECODED_MAX)
}

fn decode(keys: &Keys, kvs: &[KeyValue]) -> Result<Decoded, MirrorError> {
    let (objects, marks): (Vec<_>, Vec<_>) = kvs.iter().partition(|kv| !keys.is_format(kv.key()));
    let layout = |kv: &KeyValue| keys.encoded(kv.key()).map(|(layout, _)| layout);
    let written = |kv: &KeyValue| Revision(kv.mod_revision().unsigned_abs());
    let in_slots = objects.iter().filter(|kv| layout(kv) == Some(Layout::Slot));
    let first_in_slot = in_slots.map(|kv| written(kv)).min();
    let counts = |kv: &&KeyValue| !layout(kv).is_some_and(|layout| is_stray(keys, layout, written(kv)));
    let entries = objects.into_iter().filter(counts).map(|kv| entry(keys, kv));
    Ok(Decoded {
        entries: entries.collect::<Result<_, _>>()?,
        format: marks.first().map(|mark| readable_format(mark)).transpose()?,
        first_in_slot,
    })
}

/// Reads the mark of the format, and refuses a later format.
pub(crate) fn readable_format(kv: &KeyValue) -> Result<u64, MirrorError> {
    let text = String::from_utf8_lossy(kv.value());
    let format = text
        .parse()
        .map_err(|_| damaged(kv, format!("{text:?} is no format")))?;
    match format > FORMAT {
        true => Err(MirrorError::Format(format)),
        false => Ok(format),
    }
}

/// Decodes an object.
pub(crate) fn entry(keys: &Keys, kv: &KeyValue) -> Result<Entry, MirrorError> {
    let encoded = keys.encoded(kv.key()).map(|(_, encoded)| encoded);
    let encoded = encoded.ok_or_else(|| damaged(kv, "it is outside of the prefix".into()))?;
    let (created, stored) = split_created(kv.value());
    let object = Object::from_stored(stored).map_err(|error| damaged(kv, error.to_string()))?;
    Ok(Entry {
        key: object_key(kv, encoded)?,
        object: Arc::new(object),
        revision: Revision(kv.mod_revision().unsigned_abs()),
        created: created.unwrap_or(Revision(kv.create_revision().unsigned_abs())),
    })
}

/// Decodes the key of an object.
pub(crate) fn object_key(kv: &KeyValue, encoded: &[u8]) -> Result<ObjectKey, MirrorError> {
    ObjectKey::decode(encoded).map_err(|error| damaged(kv, error.to_string()))
}

fn damaged(kv: &KeyValue, reason: String) -> MirrorError {
    MirrorError::Damaged {
        key: String::from_utf8_lossy(kv.key()).into(),
        reason,
    }
}
