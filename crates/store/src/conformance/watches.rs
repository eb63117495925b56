//! The watch guarantees: ordered, unique, reliable, atomic, resumable, bookmarkable.

use super::*;
use crate::Gone;
use futures_util::future::join;
use insula_meter::ServerWork;
use std::collections::HashSet;

fn everything() -> Scope {
    Scope::everywhere(widgets())
}

pub(super) async fn watch_is_ordered(store: Arc<dyn Store>) {
    let revisions = busy(&store, 100).await;
    let mut cursor = store.watch(everything(), revisions[0]).expect("a cursor");
    let changes = drain(&mut cursor, revisions[100]).await;
    assert!(changes.iter().map(|change| change.revision).is_sorted());
    assert!(changes.iter().all(|change| change.revision > revisions[0]));
}

pub(super) async fn watch_is_unique(store: Arc<dyn Store>) {
    let revisions = busy(&store, 100).await;
    let mut cursor = store.watch(everything(), revisions[0]).expect("a cursor");
    let mut seen = HashSet::new();
    for change in drain(&mut cursor, revisions[100]).await {
        assert!(seen.insert((change.key.clone(), change.revision)), "twice: {change:?}");
    }
}

/// A view and the changes after it are the later view: nothing is missing, from wherever one
/// starts.
pub(super) async fn watch_is_reliable(store: Arc<dyn Store>) {
    let revisions = busy(&store, 100).await;
    let last = revisions[100];
    let scopes = [
        Scope::everything(),
        everything(),
        Scope::cluster(widgets(), cluster("root")),
        Scope::namespace(widgets(), cluster("other"), "ns1"),
    ];
    for scope in scopes {
        for start in revisions.iter().step_by(9) {
            let mut state = listed(&store, &scope, *start);
            let mut cursor = store.watch(scope.clone(), *start).expect("a cursor");
            for change in drain(&mut cursor, last).await {
                match &change.new {
                    Some(object) => state.insert(change.key.clone(), (size(object), change.revision)),
                    None => state.remove(&change.key),
                };
            }
            assert_eq!(state, listed(&store, &scope, last), "{scope:?} from {start}");
        }
    }
}

/// A pull never ends in the middle of a revision, however much there is.
pub(super) async fn watch_is_atomic(store: Arc<dyn Store>) {
    let start = store.snapshot(Revision(0)).await.expect("a view").revision();
    let mut want = BTreeMap::new();
    for round in 0..30 {
        let writes: Vec<Write> = (0..97).map(|n| put(&format!("root/default/w{n}"), round)).collect();
        want.insert(commit(&store, writes).await, 97);
    }
    let mut cursor = store.watch(everything(), start).expect("a cursor");
    let mut got = BTreeMap::new();
    while got.len() < want.len() {
        let mut pulled: BTreeMap<Revision, i32> = BTreeMap::new();
        for change in cursor.next().await.expect("nothing is compacted") {
            *pulled.entry(change.revision).or_default() += 1;
        }
        let newest = pulled
            .last_key_value()
            .map(|(revision, _)| *revision)
            .expect("a pull has changes");
        assert!(cursor.position() >= newest || got.len() + pulled.len() < want.len());
        for (revision, count) in pulled {
            assert_eq!(got.insert(revision, count), None, "{revision} came in two pulls");
        }
    }
    assert_eq!(got, want);
}

/// A watch that starts again at any revision it was told of goes on as if it had never stopped.
pub(super) async fn watch_is_resumable(store: Arc<dyn Store>) {
    let revisions = busy(&store, 60).await;
    let mut whole = store.watch(everything(), revisions[0]).expect("a cursor");
    let whole = drain(&mut whole, revisions[60]).await;
    for cut in (0..whole.len()).step_by(5) {
        let at = whole[cut].revision;
        let mut rest = store.watch(everything(), at).expect("a cursor");
        let rest = drain(&mut rest, revisions[60]).await;
        let want: Vec<_> = whole.iter().filter(|change| change.revision > at).collect();
        assert_eq!(rest.iter().collect::<Vec<_>>(), want);
    }
}

/// The position moves with the store while the scope is quiet, never past what is pending, and one
/// can resume from it.
pub(super) async fn watch_is_bookmarkable(store: Arc<dyn Store>) {
    let start = create(&store, "root/default/a").await;
    let mut quiet = store
        .watch(Scope::cluster(widgets(), cluster("quiet")), start)
        .expect("a cursor");
    let mut narrow = store
        .watch(Scope::namespace(widgets(), cluster("root"), "narrow"), start)
        .expect("a cursor");
    let busy = busy(&store, 20).await;
    assert!(quiet.position() >= busy[20] && narrow.position() >= busy[20]);
    assert_eq!(quiet.try_next().expect("nothing is compacted"), []);
    let happened = create(&store, "quiet/default/a").await;
    let later = create(&store, "root/narrow/a").await;
    assert!(quiet.position() < happened && narrow.position() < later);
    let bookmark = quiet.position();
    let got = quiet.next().await.expect("nothing is compacted");
    assert_eq!(got.iter().map(|change| change.revision).collect::<Vec<_>>(), [happened]);
    assert!(quiet.position() >= later);
    let mut resumed = store
        .watch(quiet.scope().clone(), bookmark)
        .expect("a bookmark can be resumed from");
    assert_eq!(resumed.next().await.expect("nothing is compacted"), got);
    assert_eq!(narrow.try_next().expect("nothing is compacted").len(), 1);
}

pub(super) async fn watch_tells_old_and_new(store: Arc<dyn Store>) {
    let text = "root/default/a";
    let start = store.snapshot(Revision(0)).await.expect("a view").revision();
    let mut cursor = store.watch(everything(), start).expect("a cursor");
    let mut revisions = Vec::new();
    for write in [put(text, 1), put(text, 2), delete(text), put(text, 3)] {
        revisions.push(commit(&store, vec![write]).await);
    }
    let got: Vec<_> = drain(&mut cursor, revisions[3])
        .await
        .iter()
        .map(|change| {
            let old = change.old.as_ref().map(|old| (size(&old.object), old.revision));
            (change.revision, old, change.new.as_ref().map(|new| size(new)))
        })
        .collect();
    let want = [
        (revisions[0], None, Some(1)),
        (revisions[1], Some((1, revisions[0])), Some(2)),
        (revisions[2], Some((2, revisions[1])), None),
        (revisions[3], None, Some(3)),
    ];
    assert_eq!(got, want);
}

pub(super) async fn watch_waits_and_can_be_cancelled(store: Arc<dyn Store>) {
    let start = create(&store, "root/default/a").await;
    let mut cursor = store.watch(everything(), start).expect("a cursor");
    for n in 0..20 {
        let waited = tokio::time::timeout(Duration::from_millis(1), cursor.next()).await;
        assert!(waited.is_err(), "there is nothing: {waited:?}");
        let (got, revision) = join(cursor.next(), commit(&store, vec![put("root/default/a", n)])).await;
        let got = got.expect("nothing is compacted");
        assert_eq!(got.iter().map(|change| change.revision).collect::<Vec<_>>(), [revision]);
    }
}

pub(super) async fn watch_keeps_to_its_scope(store: Arc<dyn Store>) {
    let start = store.snapshot(Revision(0)).await.expect("a view").revision();
    let names = ["root/ns/a", "root/ns-b/a", "root//ns", "root2/ns/a", "roo/ns/a"];
    let last = commit(&store, names.iter().map(|name| put(name, 1)).collect()).await;
    let cases: [(Scope, &[&str]); 4] = [
        (everything(), &names),
        (Scope::cluster(widgets(), cluster("root")), &names[..3]),
        (Scope::namespace(widgets(), cluster("root"), "ns"), &names[..1]),
        (Scope::namespace(widgets(), cluster("root"), ""), &names[2..3]),
    ];
    for (scope, want) in cases {
        let mut cursor = store.watch(scope, start).expect("a cursor");
        let got: HashSet<_> = drain(&mut cursor, last)
            .await
            .iter()
            .map(|change| change.key.clone())
            .collect();
        assert_eq!(got, want.iter().map(|name| key(name)).collect());
    }
}

pub(super) async fn a_name_is_that_of_all_exporters(store: Arc<dyn Store>) {
    let start = store.snapshot(Revision(0)).await.expect("a view").revision();
    let exported = |resource: &str, identity: &str| {
        let mut key = key("root/ns/a");
        key.resource = ResourceId {
            identity: identity.into(),
            ..ResourceId::local("example.io", resource)
        };
        key
    };
    let among = [
        exported("widgets", ""),
        exported("widgets", "x"),
        exported("widgets", "y"),
    ];
    let others = [exported("widget", "x"), exported("widgetss", "x")];
    let write = |key: &ObjectKey| Write::Put(key.clone(), object(key, 1));
    let last = commit(&store, among.iter().chain(&others).map(write).collect()).await;
    let scope = Scope::named("example.io".into(), "widgets".into());
    let listed: Vec<ObjectKey> = listed(&store, &scope, last).into_keys().collect();
    assert_eq!(listed, among);
    let mut cursor = store.watch(scope.clone(), start).expect("a cursor");
    let got: HashSet<ObjectKey> = drain(&mut cursor, last)
        .await
        .iter()
        .map(|change| change.key.clone())
        .collect();
    assert_eq!(got, among.iter().cloned().collect());
    // A change of another name wakes the cursor, and is none of its.
    let last = commit(&store, vec![put("other/ns/b", 1), write(&others[0])]).await;
    assert_eq!(drain(&mut cursor, last).await.len(), 1);
    assert!(cursor.position() >= last);
    assert_eq!(store.latest().for_server(ServerWork::Tool).count(&scope), 4);
}

pub(super) async fn compacted_watch_is_gone(store: Arc<dyn Store>) {
    let first = create(&store, "root/default/a").await;
    let second = create(&store, "root/default/b").await;
    let third = create(&store, "root/default/c").await;
    store.compact(second).await.expect("it is past");
    assert!(matches!(store.watch(everything(), first), Err(Gone::Compacted { .. })));
    let mut cursor = store.watch(everything(), second).expect("the floor itself is kept");
    assert_eq!(cursor.next().await.expect("kept")[0].revision, third);
}

pub(super) async fn slow_watch_is_gone(store: Arc<dyn Store>) {
    let start = create(&store, "root/default/a").await;
    let mut slow = store.watch(everything(), start).expect("a cursor");
    let last = busy(&store, 10).await[10];
    store.compact(last).await.expect("it is past");
    assert!(slow.position() < last, "no bookmark past what was never delivered");
    assert!(matches!(slow.next().await, Err(Gone::Compacted { .. })));
    assert!(matches!(slow.try_next(), Err(Gone::Compacted { .. })), "it stays gone");
}

pub(super) async fn idle_watch_survives_compaction(store: Arc<dyn Store>) {
    let start = create(&store, "root/default/a").await;
    let mut idle = store
        .watch(Scope::cluster(widgets(), cluster("quiet")), start)
        .expect("a cursor");
    let last = busy(&store, 30).await[30];
    store.compact(last).await.expect("it is past");
    assert!(idle.position() >= last);
    assert_eq!(idle.try_next().expect("nothing was lost"), []);
    let happened = create(&store, "quiet/default/a").await;
    assert_eq!(idle.next().await.expect("nothing was lost")[0].revision, happened);
}

pub(super) async fn watch_from_the_future_is_refused(store: Arc<dyn Store>) {
    let asked = Revision(store.latest().revision().0 + 1_000_000);
    assert!(matches!(store.watch(everything(), asked), Err(Gone::Future { .. })));
}
