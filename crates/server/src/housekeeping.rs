//! Periodic tasks: compaction of old revisions, removal of unused compiled APIs, return of memory
//! to the system, storage of the uses of API versions, expiry of kept answers.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use insula_api::Revision;
use insula_registry::Deps;

use crate::host::Marks;

/// The longest pause between two rounds.
const PERIOD_MAX: Duration = Duration::from_secs(60);
/// Least number of periods that the history is divided into: it is kept for its length and at most
/// a fifth more.
const MARKS_MIN: u32 = 5;
/// Pause before a page is freed on purpose. The allocator returns pages to the system that have
/// been free for a second, but only when another page is freed: in an idle server never.
const FREE_FOR: Duration = Duration::from_secs(2);
/// Size of an allocation that gets a page of its own.
const PAGE_BYTES: usize = 4 << 20;

/// Pause after uses of API versions were stored. Those that are noted meanwhile share transactions.
const USES_PAUSE: Duration = Duration::from_millis(100);
/// Pause after the store took no write.
const USES_RETRY: Duration = Duration::from_secs(2);

/// Stores the uses of API versions when they are noted, for as long as the server runs. Each
/// version of an API in a workspace is written at most once an hour.
pub(crate) async fn store_uses(registry: Arc<Deps>) {
    loop {
        registry.uses.wait().await;
        let left = insula_registry::store_uses(&registry).await;
        tokio::time::sleep(if left == 0 { USES_PAUSE } else { USES_RETRY }).await;
    }
}

/// Pause between two removals of expired requests.
const EXPIRY_PERIOD: Duration = Duration::from_secs(600);

/// Removes the kept answers of gRPC requests once they have expired, for as long as the server
/// runs.
pub(crate) async fn expire_requests(registry: Arc<Deps>) {
    loop {
        tokio::time::sleep(EXPIRY_PERIOD).await;
        insula_admin::expire_requests(&registry).await;
    }
}

/// Pause between two marks of the history.
const MARK_PERIOD: Duration = Duration::from_secs(15);

/// Notes revisions with their times for as long as the server runs, for compactions by age.
pub(crate) async fn mark(registry: Arc<Deps>, marks: Arc<Marks>) {
    loop {
        marks.note(registry.clock.monotonic_micros(), registry.store.latest().revision());
        tokio::time::sleep(MARK_PERIOD).await;
    }
}

/// Seconds between two looks for records of metered amounts that are too old.
const EXPIRY_SECONDS: u64 = 3_600;

/// Stores the metered amounts for as long as the server runs, if there is a period.
pub(crate) async fn store_metering(registry: Arc<Deps>, period_seconds: u64) {
    if period_seconds == 0 {
        std::future::pending::<()>().await;
    }
    let rounds = (EXPIRY_SECONDS / period_seconds.max(1)).max(1);
    loop {
        if let Err(error) = insula_registry::metering::expire(&registry).await {
            tracing::debug!(%error, "expiry of metered amounts");
        }
        for _ in 0..rounds {
            tokio::time::sleep(Duration::from_secs(period_seconds)).await;
            if let Err(error) = insula_registry::metering::store(&registry).await {
                tracing::debug!(%error, "metered amounts");
            }
        }
    }
}

/// Limit on the storage of the last uses, when the server ends.
const LAST_USES_MAX: Duration = Duration::from_secs(5);

/// Stores the uses of API versions and the metered amounts that are left after the last request.
pub(crate) async fn store_last_uses(registry: Arc<Deps>) {
    let stored = async {
        insula_registry::store_uses(&registry).await;
        insula_registry::metering::store(&registry).await.is_ok()
    };
    let stored = tokio::time::timeout(LAST_USES_MAX, stored).await;
    if !stored.unwrap_or(false) {
        tracing::debug!("the last uses of API versions, or metered amounts, are not stored");
    }
}

/// Disables transparent huge pages for this process. The system would merge returned pages into
/// huge pages again over time, so that an idle server grew to its previous size.
pub(crate) fn take_small_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "large pages");
    }
}

/// Returns the pause between rounds, and the number of rounds for which history is kept.
fn rounds(history: Duration) -> (Duration, usize) {
    let period = (history / MARKS_MIN).min(PERIOD_MAX);
    let kept = history.as_nanos().div_ceil(period.as_nanos().max(1));
    (period, usize::try_from(kept).unwrap_or(usize::MAX))
}

/// Runs the periodic tasks for as long as the server runs. Revisions younger than `history` are
/// kept.
pub(crate) async fn keep(registry: Arc<Deps>, history: Duration) {
    let (period, kept) = rounds(history);
    let free_for = FREE_FOR.min(period / 2);
    let mut marks: VecDeque<Revision> = VecDeque::new();
    loop {
        tokio::time::sleep(period - free_for).await;
        registry.catalog.sweep();
        marks.push_back(registry.store.latest().revision());
        if marks.len() > kept
            && let Some(old) = marks.pop_front()
            && let Err(error) = registry.store.compact(old).await
        {
            tracing::debug!(%error, "compaction");
        }
        tokio::time::sleep(free_for).await;
        drop(std::hint::black_box(Vec::<u8>::with_capacity(PAGE_BYTES)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_kept_for_its_length() {
        for (seconds, period_millis, kept) in [
            (1, 200, 5),
            (2, 400, 5),
            (300, 60_000, 5),
            (301, 60_000, 6),
            (3600, 60_000, 60),
        ] {
            let want = (Duration::from_millis(period_millis), kept);
            assert_eq!(rounds(Duration::from_secs(seconds)), want, "{seconds} s");
        }
    }
}
