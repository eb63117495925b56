//! What is done now and then: old revisions are forgotten, unused compiled APIs too, and memory
//! goes back to the system.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use insula_api::Revision;
use insula_registry::Registry;

/// The longest pause between two rounds.
const PERIOD_MAX: Duration = Duration::from_secs(60);
/// Marks that the history is divided into, at least: it is kept for its length and at most a fifth
/// of that more.
const MARKS_MIN: u32 = 5;
/// The allocator gives back to the system what has been free for a second, when a page is freed
/// after that: in an idle server never.
const FREE_FOR: Duration = Duration::from_secs(2);
/// A page of its own.
const PAGE_BYTES: usize = 4 << 20;

/// Has the system give this process memory in small pages only. Of what was given back between
/// things that stay, it would make large pages again by and by, so that an idle server grew to what
/// it had before.
pub(crate) fn take_small_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "large pages");
    }
}

/// The pause between rounds, and how many of them a history of a length lasts.
fn rounds(history: Duration) -> (Duration, usize) {
    let period = (history / MARKS_MIN).min(PERIOD_MAX);
    let kept = history.as_nanos().div_ceil(period.as_nanos().max(1));
    (period, usize::try_from(kept).unwrap_or(usize::MAX))
}

/// Runs for as long as the server does. Revisions younger than `history` are kept.
pub(crate) async fn keep(registry: Arc<Registry>, history: Duration) {
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
