//! What is done now and then: old revisions are forgotten, unused compiled APIs too.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use insula_api::Revision;
use insula_registry::Registry;

/// How often.
const PERIOD: Duration = Duration::from_secs(60);
/// Watches and lists can go back this many periods, as kube-apiserver's five minutes.
const KEPT_PERIODS: usize = 5;

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
    }
}
