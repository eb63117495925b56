//! The contract, on the engines of this crate.

use insula_store::{
    MemoryStore, Store, conformance,
    embedded::{EmbeddedStore, Options},
};
use std::sync::Arc;

fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap()
        .block_on(future);
}

macro_rules! engines {
    ($($case:ident)*) => {
        const NAMED: &[&str] = &[$(stringify!($case)),*];

        mod memory {
            $(#[test] fn $case() {
                super::in_memory(stringify!($case));
            })*
        }

        mod embedded {
            $(#[test] fn $case() {
                super::on_disk(stringify!($case));
            })*
        }
    };
}

fn in_memory(case: &str) {
    block_on(conformance::run_case(case, Arc::new(MemoryStore::new())));
}

fn on_disk(case: &str) {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(dir.path(), Options::default()).unwrap());
    block_on(conformance::run_case(case, store));
}

engines! {
    guards_hold_or_conflict a_failed_guard_writes_nothing revisions_grow a_transaction_has_one_revision
    doing_nothing_takes_no_revision the_last_write_to_a_key_counts delete_and_create_again too_large_is_refused
    many_writers_lose_no_update a_closed_store_reads_and_does_not_write
    what_was_acknowledged_is_seen snapshots_are_isolated a_snapshot_waits_for_its_revision views_at_exact_revisions
    lists_are_ordered_and_paged counts_are_those_of_the_view scopes_do_not_leak compacted_views_are_gone
    held_snapshots_survive_compaction
    watch_is_ordered watch_is_unique watch_is_reliable watch_is_atomic watch_is_resumable watch_is_bookmarkable
    watch_tells_old_and_new watch_waits_and_can_be_cancelled watch_keeps_to_its_scope
    a_name_is_that_of_all_exporters compacted_watch_is_gone
    slow_watch_is_gone idle_watch_survives_compaction watch_from_the_future_is_refused
}

#[test]
fn every_case_runs_under_its_name() {
    assert_eq!(
        NAMED,
        conformance::CASES.iter().map(|(name, _)| *name).collect::<Vec<_>>()
    );
}

#[test]
fn a_restart_keeps_history() {
    let dir = tempfile::tempdir().unwrap();
    block_on(conformance::a_restart_keeps_history(async || {
        Arc::new(EmbeddedStore::open(dir.path(), Options::default()).unwrap()) as Arc<dyn Store>
    }));
}
