//! The recent history outlives a restart.

use super::*;
use crate::Gone;

/// Checks what a restart keeps of the history. `open` opens one store, which is empty at first, and
/// again after it was closed.
pub async fn a_restart_keeps_history(open: impl AsyncFn() -> Arc<dyn Store>) {
    let everything = Scope::everywhere(widgets());
    let store = open().await;
    let revisions = busy(&store, 60).await;
    let mut whole = store.watch(everything.clone(), revisions[0]).expect("a cursor");
    let whole = drain(&mut whole, revisions[60]).await;
    let views: Vec<_> = revisions.iter().map(|at| listed(&store, &everything, *at)).collect();
    store.close().await;
    drop(store);
    let store = open().await;
    for (at, view) in revisions.iter().zip(&views) {
        let mut cursor = store.watch(everything.clone(), *at).expect("its history is kept");
        let seen = drain(&mut cursor, revisions[60]).await;
        let want: Vec<_> = whole.iter().filter(|change| change.revision > *at).collect();
        assert_eq!(seen.iter().collect::<Vec<_>>(), want, "after {at}");
        assert_eq!(listed(&store, &everything, *at), *view, "at {at}");
    }
    // What was compacted stays so, and an engine may lose a part of the rest.
    let more = busy(&store, 60).await;
    store.compact(more[10]).await.expect("it is past");
    store.close().await;
    drop(store);
    let store = open().await;
    for at in revisions.iter().chain(&more[..10]) {
        let gone = store.watch(everything.clone(), *at);
        assert!(matches!(gone, Err(Gone::Compacted { .. })), "{at} was compacted");
    }
    let mut late = store.watch(everything, more[50]).expect("its history is kept");
    assert!(!drain(&mut late, more[60]).await.is_empty());
}
