//! Snapshots: isolation, order, scopes, compaction.

use super::*;
use crate::{Gone, Snapshot};
use futures_util::future::join;
use insula_meter::ServerWork;
use std::ops::ControlFlow;

pub(super) async fn what_was_acknowledged_is_seen(store: Arc<dyn Store>) {
    for n in 0..20 {
        let revision = commit(&store, vec![put("root/default/a", n)]).await;
        let latest = store.latest().for_server(ServerWork::Tool);
        assert!(latest.revision() >= revision);
        assert_eq!(latest.get(&key("root/default/a")).map(|e| e.revision), Some(revision));
        assert!(store.snapshot(Revision(0)).await.expect("a view").revision() >= revision);
    }
}

pub(super) async fn snapshots_are_isolated(store: Arc<dyn Store>) {
    let scope = Scope::everywhere(widgets());
    let mut seen = Vec::new();
    for n in 0..30 {
        commit(
            &store,
            vec![
                put(&format!("root/default/w{}", n % 7), n),
                delete(&format!("root/default/w{}", n % 5)),
            ],
        )
        .await;
        let view = store.latest().for_server(ServerWork::Tool);
        seen.push((view.range(&scope, None, usize::MAX), view.count(&scope), view));
    }
    for (entries, count, view) in seen {
        assert_eq!(view.range(&scope, None, usize::MAX), entries, "at {}", view.revision());
        assert_eq!((view.count(&scope), entries.len()), (count, count));
        for entry in entries {
            assert_eq!(view.get(&entry.key), Some(entry));
        }
    }
}

pub(super) async fn a_snapshot_waits_for_its_revision(store: Arc<dyn Store>) {
    let now = create(&store, "root/default/a").await;
    assert!(store.snapshot(now).await.expect("a view").revision() >= now);
    let later = Revision(now.0 + 1);
    let mut pending = store.snapshot(later);
    let early = tokio::time::timeout(Duration::from_millis(20), &mut pending).await;
    // Elsewhere on the same etcd somebody may have written.
    assert!(early.is_err() || store.latest().revision() >= later);
    let (view, written) = join(store.snapshot(later), commit(&store, vec![put("root/default/b", 1)])).await;
    assert!(view.expect("a view").revision() >= later && written >= later);
}

pub(super) async fn views_at_exact_revisions(store: Arc<dyn Store>) {
    let mut want = Vec::new();
    for n in 0..10 {
        want.push((commit(&store, vec![put("root/default/a", n)]).await, n));
    }
    for (revision, n) in want {
        let view = store.at_revision(revision).expect("not compacted");
        assert_eq!(view.revision(), revision);
        assert_eq!(
            view.get(&key("root/default/a")).map(|e| (size(&e.object), e.revision)),
            Some((n, revision))
        );
    }
    let asked = Revision(store.latest().revision().0 + 1_000_000);
    assert!(matches!(store.at_revision(asked), Err(Gone::Future { .. })));
}

pub(super) async fn lists_are_ordered_and_paged(store: Arc<dyn Store>) {
    let mut names = Vec::new();
    for cluster in ["other", "root"] {
        for namespace in ["alpha", "alpha-b", ""] {
            names.extend((0..40).map(|n| format!("{cluster}/{namespace}/w{n}")));
        }
    }
    for chunk in names.chunks(100) {
        commit(&store, chunk.iter().map(|name| put(name, 1)).collect()).await;
    }
    names.sort_by_key(|name| key(name).encode());
    let (scope, view) = (
        Scope::everywhere(widgets()),
        store.latest().for_server(ServerWork::Tool),
    );
    let (mut after, mut got) = (None, Vec::new());
    loop {
        let page = view.range(&scope, after.as_ref(), 7);
        let Some(last) = page.last() else { break };
        after = Some(last.key.clone());
        got.extend(page.into_iter().map(|entry| entry.key));
        assert_eq!(view.count_after(&scope, after.as_ref()), names.len() - got.len());
        // What is written between two pages of one view changes nothing.
        commit(&store, vec![delete(&names[got.len() - 1]), put("root/zeta/new", 1)]).await;
    }
    assert_eq!(got, names.iter().map(|name| key(name)).collect::<Vec<_>>());
    let mut visited = 0;
    view.for_each(&scope, |_| {
        visited += 1;
        if visited == 100 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert_eq!(visited, 100);
    let wanted = |key: &ObjectKey| key.name.ends_with('7');
    let mut chosen = Vec::new();
    view.for_each_wanted(&scope, wanted, |entry| {
        chosen.push(entry.key.clone());
        ControlFlow::Continue(())
    });
    got.retain(wanted);
    assert_eq!((chosen.len(), chosen), (24, got));
    assert_eq!(view.range(&scope, None, 0), []);
}

/// Numbers of many objects are kept and not walked; a view's are those of its revision all the
/// same, whoever asked first.
pub(super) async fn counts_are_those_of_the_view(store: Arc<dyn Store>) {
    let named = |prefix: &str, count: usize| (0..count).map(move |n| format!("{prefix}/w{n}")).collect::<Vec<_>>();
    let many = named("root/alpha", 1200);
    for chunk in [many.clone(), named("root/beta", 300), named("other/alpha", 900)]
        .concat()
        .chunks(100)
    {
        commit(&store, chunk.iter().map(|name| put(name, 1)).collect()).await;
    }
    let root = Scope::cluster(widgets(), cluster("root"));
    let alpha = Scope {
        namespace: Some("alpha".into()),
        ..root.clone()
    };
    let scopes = [
        Scope::everywhere(widgets()),
        root,
        alpha,
        Scope::cluster(widgets(), cluster("other")),
    ];
    let counts = |view: &Snapshot| scopes.each_ref().map(|scope| view.count(scope));
    let first = store.latest().for_server(ServerWork::Tool);
    let mut views = Vec::new();
    for (n, chunk) in many.chunks(100).enumerate() {
        let deleted = chunk.iter().map(|name| delete(name));
        let others = [
            put(&format!("root/gamma/w{n}"), 1),
            put("root/beta/w0", 2),
            delete("root/beta/none"),
        ];
        commit(&store, deleted.chain(others).collect()).await;
        views.push(store.latest().for_server(ServerWork::Tool));
        // Before the others of the views, after, and again when it is known.
        if n == 2 {
            assert_eq!(counts(&first), [2400, 1500, 1200, 900]);
        }
    }
    for (view, left) in views.iter().zip((0..12).rev()) {
        let there = 100 * left + 12 - left;
        assert_eq!(
            counts(view),
            [there + 1200, there + 300, 100 * left, 900],
            "at {}",
            view.revision()
        );
        assert_eq!(view.range(&scopes[0], None, usize::MAX).len(), there + 1200);
    }
    assert_eq!(counts(&first), [2400, 1500, 1200, 900]);
}

pub(super) async fn scopes_do_not_leak(store: Arc<dyn Store>) {
    let names = ["root/ns/a", "root/ns-b/a", "root//ns", "root2/ns/a", "roo/ns/a"];
    commit(&store, names.iter().map(|name| put(name, 1)).collect()).await;
    let mut foreign = key("root/ns/a");
    foreign.resource.identity = "0123abcd".into();
    let theirs = Write::Put(foreign.clone(), object(&foreign, 2));
    commit(&store, vec![theirs]).await;
    let cases = [
        (Scope::everywhere(widgets()), 5),
        (Scope::cluster(widgets(), cluster("root")), 3),
        (Scope::namespace(widgets(), cluster("root"), "ns"), 1),
        (Scope::namespace(widgets(), cluster("root"), ""), 1),
        (Scope::cluster(widgets(), cluster("none")), 0),
        (Scope::everywhere(foreign.resource.clone()), 1),
        (Scope::everywhere(ResourceId::local("example.io", "widget")), 0),
    ];
    for (scope, count) in cases {
        let view = store.latest().for_server(ServerWork::Tool);
        let entries = view.range(&scope, None, usize::MAX);
        assert_eq!((entries.len(), view.count(&scope)), (count, count), "{scope:?}");
        assert!(
            entries
                .iter()
                .all(|entry| entry.key.encode().starts_with(&scope.prefix()))
        );
    }
}

pub(super) async fn compacted_views_are_gone(store: Arc<dyn Store>) {
    let first = create(&store, "root/default/a").await;
    let second = commit(&store, vec![put("root/default/a", 1), put("root/default/b", 1)]).await;
    let third = commit(&store, vec![delete("root/default/b")]).await;
    store.compact(second).await.expect("it is past");
    assert!(matches!(store.at_revision(first), Err(Gone::Compacted { .. })));
    let view = store
        .at_revision(second)
        .expect("the floor itself is kept")
        .for_server(ServerWork::Tool);
    assert_eq!(view.count(&Scope::everywhere(widgets())), 2);
    assert_eq!(
        store
            .at_revision(third)
            .expect("kept")
            .for_server(ServerWork::Tool)
            .count(&Scope::everywhere(widgets())),
        1
    );
    store.compact(first).await.expect("compacting twice is no error");
    let future = Revision(store.latest().revision().0 + 1_000_000);
    assert!(matches!(store.compact(future).await, Err(Gone::Future { .. })));
    assert!(store.at_revision(second).is_ok());
}

pub(super) async fn held_snapshots_survive_compaction(store: Arc<dyn Store>) {
    let revisions = busy(&store, 40).await;
    let scope = Scope::everywhere(widgets());
    let held = store
        .at_revision(revisions[20])
        .expect("kept")
        .for_server(ServerWork::Tool);
    let before = held.range(&scope, None, usize::MAX);
    let newest = store.latest().revision();
    store.compact(newest).await.expect("it is past");
    commit(
        &store,
        before.iter().map(|entry| Write::Delete(entry.key.clone())).collect(),
    )
    .await;
    assert_eq!(held.range(&scope, None, usize::MAX), before);
    assert!(
        store.at_revision(revisions[20]).is_err(),
        "held by one is not kept for all"
    );
    drop(held);
    commit(&store, vec![put("root/default/x", 1)]).await;
    store.compact(newest).await.expect("it is past");
}
