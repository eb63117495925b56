//! Online backup of the whole store at one revision: `GET /backup`, for administrators of the
//! platform.
//!
//! One backup runs at a time. Chunks are encoded as the client reads them, so that a backup takes a
//! few hundred kilobytes of memory whatever its size. Its snapshot pins the history until the
//! backup ends, so that its time is limited.

use std::{io, ops::ControlFlow, sync::Arc, time::Duration};

use axum::{body::Body, response::IntoResponse, response::Response};
use bytes::Bytes;
use futures_util::stream;
use http::{StatusCode, header::CONTENT_TYPE, header::RETRY_AFTER};
use insula_api::{ClusterName, ObjectKey, Revision, Scope};
use insula_catalog::ids;
use insula_meter::ServerWork;
use insula_store::{
    Pinned, Snapshot,
    backup::{Encoder, Header},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Instant, timeout},
};

use crate::{
    VERSION,
    health::{Health, Probe, Refusal, permit},
};

pub(crate) const PATH: &str = "/backup";

/// Bytes passed to the connection at once, and objects encoded for them.
const CHUNK_BYTES: usize = 256 << 10;
const CHUNK_OBJECTS: usize = 256;
/// Longest time for which a client reads nothing.
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);
/// Longest time of a backup.
const TIME_MAX: Duration = Duration::from_secs(3600);
/// Seconds in `Retry-After` while another backup runs.
const RETRY_AFTER_SECONDS: u64 = 10;

/// Returns the permits of backups: one.
pub(crate) fn permits() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(1))
}

/// Answers a request for a backup.
pub(crate) async fn answer(health: &Health, probe: Probe<'_>) -> Response {
    if let Err(refusal) = permit(health, probe, PATH).await {
        return refusal.into_response();
    }
    let Ok(permit) = Arc::clone(&health.backups).try_acquire_owned() else {
        let refusal = Refusal {
            code: StatusCode::TOO_MANY_REQUESTS,
            reason: "TooManyRequests",
            message: "a backup is under way, and there is one at a time; try again later".to_owned(),
        };
        let after = [(RETRY_AFTER, RETRY_AFTER_SECONDS.to_string())];
        return (after, refusal).into_response();
    };
    let snapshot = match health.checks.store.snapshot(Revision(0)).await {
        Ok(snapshot) => snapshot,
        Err(error) => {
            let refusal = Refusal {
                code: StatusCode::SERVICE_UNAVAILABLE,
                reason: "ServiceUnavailable",
                message: error.to_string(),
            };
            return refusal.into_response();
        }
    };
    let header = Header {
        revision: snapshot.revision(),
        created: health.clock.now().to_string(),
        version: VERSION.to_owned(),
        installation: installation(&snapshot),
        workspace: String::new(),
        cluster: String::new(),
    };
    tracing::info!(revision = header.revision.0, "a backup begins");
    let (sender, receiver) = mpsc::channel(1);
    let snapshot = snapshot.for_server(ServerWork::Operation);
    tokio::spawn(send(snapshot, header, sender, permit));
    let body = Body::from_stream(stream::unfold(Some(receiver), chunk));
    ([(CONTENT_TYPE, "application/octet-stream")], body).into_response()
}

/// Returns the UID of the logical cluster `root`.
fn installation(snapshot: &Pinned) -> String {
    let key = ObjectKey::cluster_scoped(ids::logicalclusters(), ClusterName::root(), "cluster");
    let entry = snapshot.get(&key);
    entry.map_or_else(String::new, |entry| entry.object.meta.uid.to_string())
}

enum Part {
    Some(Bytes),
    /// The last chunk.
    Last(Bytes),
}

type Chunks = mpsc::Receiver<Part>;

/// Returns the next chunk. An aborted backup ends in an error, so that it is not mistaken for a
/// complete one.
async fn chunk(chunks: Option<Chunks>) -> Option<(io::Result<Bytes>, Option<Chunks>)> {
    let mut chunks = chunks?;
    match chunks.recv().await {
        Some(Part::Some(bytes)) => Some((Ok(bytes), Some(chunks))),
        Some(Part::Last(bytes)) => Some((Ok(bytes), None)),
        None => Some((Err(io::ErrorKind::TimedOut.into()), None)),
    }
}

/// Sends all chunks, unless the client disconnects or takes too long.
async fn send(snapshot: Snapshot, header: Header, sender: mpsc::Sender<Part>, permit: OwnedSemaphorePermit) {
    let (begun, revision) = (Instant::now(), header.revision.0);
    let mut bytes = Vec::new();
    let mut encoder = Encoder::begin(header, &mut bytes);
    let mut after = None;
    loop {
        let more = encode_some(&snapshot, &mut after, &mut encoder, &mut bytes);
        if !more {
            break;
        }
        let part = Part::Some(std::mem::take(&mut bytes).into());
        let sent = timeout(IDLE_TIME_MAX, sender.send(part)).await;
        if !matches!(sent, Ok(Ok(()))) || begun.elapsed() > TIME_MAX {
            tracing::warn!(revision, "a backup was given up: its client went, or took too long");
            return;
        }
    }
    let summary = encoder.finish(&mut bytes);
    // The client may have disconnected.
    let _ = timeout(IDLE_TIME_MAX, sender.send(Part::Last(bytes.into()))).await;
    drop(permit);
    tracing::info!(revision, objects = summary.objects, hash = %summary.hash, "a backup ends");
}

/// Appends the next objects. Returns false when there are none.
fn encode_some(snapshot: &Snapshot, after: &mut Option<ObjectKey>, encoder: &mut Encoder, bytes: &mut Vec<u8>) -> bool {
    let (mut objects, mut last) = (0, None);
    snapshot.for_each_after(&Scope::everything(), after.as_ref(), |entry| {
        encoder.object(entry, bytes);
        last = Some(entry.key.clone());
        objects += 1;
        match objects < CHUNK_OBJECTS && bytes.len() < CHUNK_BYTES {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    let more = last.is_some();
    if more {
        *after = last;
    }
    more
}
