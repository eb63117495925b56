//! Repetition of changes of what others change at the same time.

use crate::{session::Session, status::Fault};
use insula_proto::admin::v1::ErrorReason;
use insula_store::Snapshot;
use std::time::Duration;
use tonic::{Code, Status};

/// Attempts at a change.
const ATTEMPTS: u32 = 24;
/// Longest pause before the second attempt, in microseconds. It doubles up to that many times.
const PAUSE_MICROS: u64 = 4_000;
const DOUBLINGS: u32 = 6;
/// Seconds after which a client may try again.
const RETRY_SECONDS: u32 = 1;

/// Makes a change on the session's state, and again on the state of then where others have changed
/// the same meanwhile, unless the caller gave an etag: then the refusal is the caller's.
pub(super) async fn retried<T, F: Future<Output = Result<T, Status>>>(
    session: &Session,
    etag: &str,
    make: impl Fn(Snapshot) -> F,
) -> Result<T, Status> {
    let registry = &session.api.registry;
    let mut snapshot = session.snapshot.clone();
    for attempt in 0..ATTEMPTS {
        match make(snapshot).await {
            Err(refusal) if etag.is_empty() && is_conflict(&refusal) => {}
            done => return done,
        }
        // Of many that collide each goes at another moment.
        let longest = PAUSE_MICROS << attempt.min(DOUBLINGS);
        tokio::time::sleep(Duration::from_micros(registry.rng.next_u64() % longest)).await;
        let latest = registry.store.snapshot(insula_api::Revision(0)).await;
        let latest = latest.map_err(|error| Status::unavailable(error.to_string()))?;
        snapshot = latest.charged_to(session.caller.work());
    }
    let text = "others change the same object all the time: try again";
    Err(Fault::new(Code::Unavailable, ErrorReason::Unavailable, text)
        .retry(Some(RETRY_SECONDS))
        .status())
}

/// Returns true for the refusal of a write whose state has changed: an object is another one than
/// was read, or one appeared that was not there.
fn is_conflict(refusal: &Status) -> bool {
    matches!(refusal.code(), Code::Aborted | Code::AlreadyExists)
}
