//! What is done now and then: old revisions are forgotten, unused compiled APIs too, and memory goes back to the system.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use insula_api::Revision;
use insula_registry::Registry;

/// How often.
const PERIOD: Duration = Duration::from_secs(60);
/// Watches and lists can go back this many periods, as kube-apiserver's five minutes.
const KEPT_PERIODS: usize = 5;
/// The allocator gives back to the system what has been free for a second, when a page is freed after that: in an idle server never.
const FREE_FOR: Duration = Duration::from_secs(2);
/// A page of its own.
const PAGE_BYTES: usize = 4 << 20;

/// Has the system give this process memory in small pages only. Of what was given back between things that stay, it would make large
/// pages again by and by, so that an idle server grew to what it had before.
pub(crate) fn take_small_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "large pages");
    }
}

/// Runs for as long as the server does.
pub(crate) async fn keep(registry: Arc<Registry>) {
    let mut marks: VecDeque<Revision> = VecDeque::new();
    loop {
        tokio::time::sleep(PERIOD).await;
        registry.catalog.sweep();
        marks.push_back(registry.store.latest().revision());
        if marks.len() <= KEPT_PERIODS {
            continue;
        }
        if let Some(old) = marks.pop_front()
            && let Err(error) = registry.store.compact(old).await
        {
            tracing::debug!(%error, "compaction");
        }
        tokio::time::sleep(FREE_FOR).await;
        drop(std::hint::black_box(Vec::<u8>::with_capacity(PAGE_BYTES)));
    }
}
