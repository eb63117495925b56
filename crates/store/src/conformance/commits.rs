//! Transactions: guards, atomicity, revisions.

use super::*;
use crate::{CommitError, TXN_BYTES_MAX, TXN_OPS_MAX, TxnLimit};
use futures_util::future::join_all;
use insula_meter::ServerWork;

pub(super) async fn guards_hold_or_conflict(store: Arc<dyn Store>) {
    let text = "root/default/a";
    let made = create(&store, text).await;
    let other = create(&store, "root/default/b").await;
    let cases = [
        (Guard::Absent(key(text)), false),
        (Guard::At(key(text), Revision(made.0 - 1)), false),
        (Guard::At(key(text), other), false),
        (Guard::At(key(text), made), true),
        (Guard::Exists(key(text)), true),
        (Guard::Absent(key("root/default/none")), true),
        (Guard::At(key("root/default/none"), made), false),
        (Guard::At(key("root/default/none"), Revision(0)), false),
        (Guard::Exists(key("root/default/none")), false),
    ];
    for (guard, holds) in cases {
        let found = (*guard.key() == key(text)).then_some(made);
        let got = store
            .commit(Txn::one(guard.clone(), put("root/default/written", 1)))
            .await;
        if holds {
            assert!(got.is_ok(), "{guard:?}: {got:?}");
        } else {
            assert_eq!(
                got,
                Err(CommitError::Conflict {
                    key: guard.key().clone(),
                    found
                }),
                "{guard:?}"
            );
        }
    }
    // The first guard that fails is the one that is named.
    let guards = vec![
        Guard::Exists(key(text)),
        Guard::Absent(key(text)),
        Guard::Exists(key("root/default/none")),
    ];
    let got = store
        .commit(Txn {
            guards,
            writes: vec![delete(text)],
        })
        .await;
    assert_eq!(
        got,
        Err(CommitError::Conflict {
            key: key(text),
            found: Some(made)
        })
    );
}

pub(super) async fn a_failed_guard_writes_nothing(store: Arc<dyn Store>) {
    let made = create(&store, "root/default/a").await;
    let guards = vec![
        Guard::Exists(key("root/default/a")),
        Guard::Exists(key("root/default/none")),
    ];
    let writes = vec![
        put("root/default/b", 1),
        put("root/default/a", 1),
        delete("root/default/a"),
    ];
    assert!(store.commit(Txn { guards, writes }).await.is_err());
    let view = store.snapshot(Revision(0)).await.expect("a view");
    assert!(view.get(&key("root/default/b")).is_none());
    assert_eq!(view.get(&key("root/default/a")).expect("untouched").revision, made);
}

pub(super) async fn revisions_grow(store: Arc<dyn Store>) {
    let before = store.snapshot(Revision(0)).await.expect("a view").revision();
    assert!(before > Revision(0), "0 means any revision wherever clients write one");
    let revisions = busy(&store, 50).await;
    assert!(revisions[0] > before);
    assert!(revisions.is_sorted());
}

pub(super) async fn a_transaction_has_one_revision(store: Arc<dyn Store>) {
    let names = ["root/default/a", "other/default/a", "root//c"];
    let revision = commit(&store, names.iter().map(|name| put(name, 1)).collect()).await;
    for name in names {
        let entry = store.latest().get(&key(name)).expect("written");
        assert_eq!((entry.revision, entry.created), (revision, revision));
    }
}

pub(super) async fn doing_nothing_takes_no_revision(store: Arc<dyn Store>) {
    create(&store, "root/default/a").await;
    let mut cursor = store
        .watch(Scope::everywhere(widgets()), store.latest().revision())
        .expect("a cursor");
    let before = store.latest().revision();
    assert!(commit(&store, vec![delete("root/default/none")]).await >= before);
    assert!(commit(&store, vec![]).await >= before);
    let guard = Guard::Absent(key("root/default/a"));
    assert!(
        store
            .commit(Txn {
                guards: vec![guard],
                writes: vec![]
            })
            .await
            .is_err()
    );
    let next = create(&store, "root/default/b").await;
    let changes = drain(&mut cursor, next).await;
    assert_eq!(changes.len(), 1, "{changes:?}");
}

pub(super) async fn the_last_write_to_a_key_counts(store: Arc<dyn Store>) {
    let (a, b) = ("root/default/a", "root/default/b");
    commit(
        &store,
        vec![put(a, 1), delete(b), put(a, 2), put(b, 3), delete(a), put(a, 4)],
    )
    .await;
    let view = store.latest().for_server(ServerWork::Tool);
    assert_eq!(size(&view.get(&key(a)).expect("written").object), 4);
    assert_eq!(size(&view.get(&key(b)).expect("written").object), 3);
    commit(&store, vec![put(a, 5), delete(a)]).await;
    assert!(store.latest().get(&key(a)).is_none());
}

pub(super) async fn delete_and_create_again(store: Arc<dyn Store>) {
    let text = "root/default/a";
    let first = create(&store, text).await;
    let second = commit(&store, vec![put(text, 1)]).await;
    assert_eq!(
        store.latest().get(&key(text)).map(|e| (e.created, e.revision)),
        Some((first, second))
    );
    let third = commit(&store, vec![delete(text)]).await;
    assert!(store.latest().get(&key(text)).is_none());
    let stale = Txn::one(Guard::At(key(text), second), put(text, 9));
    assert_eq!(
        store.commit(stale).await,
        Err(CommitError::Conflict {
            key: key(text),
            found: None
        })
    );
    let fourth = create(&store, text).await;
    assert!(first < second && second < third && third < fourth);
    assert_eq!(
        store.latest().get(&key(text)).map(|e| (e.created, e.revision)),
        Some((fourth, fourth))
    );
    assert_eq!(
        store
            .at_revision(second)
            .expect("kept")
            .get(&key(text))
            .map(|e| e.created),
        Some(first)
    );
}

pub(super) async fn too_large_is_refused(store: Arc<dyn Store>) {
    let names = |n: usize| (0..n).map(|i| format!("root/default/w{i}"));
    let fits = names(TXN_OPS_MAX).map(|name| put(&name, 1)).collect();
    let before = commit(&store, fits).await;
    let writes: Vec<Write> = names(TXN_OPS_MAX + 1).map(|name| put(&name, 2)).collect();
    let guards: Vec<Guard> = names(TXN_OPS_MAX + 1).map(|name| Guard::Exists(key(&name))).collect();
    let limits = [
        (Txn { guards: vec![], writes }, TxnLimit::Writes),
        (
            Txn {
                guards,
                writes: vec![delete("root/default/w1")],
            },
            TxnLimit::Guards,
        ),
        (
            Txn {
                guards: vec![],
                writes: vec![large("root/default/w1", TXN_BYTES_MAX)],
            },
            TxnLimit::Bytes,
        ),
    ];
    for (txn, want) in limits {
        match store.commit(txn).await {
            Err(CommitError::TooLarge { limit, got, max }) => assert!(limit == want && got > max),
            other => panic!("{want:?}: {other:?}"),
        }
    }
    assert_eq!(
        store.latest().get(&key("root/default/w1")).map(|e| e.revision),
        Some(before)
    );
    let revision = commit(&store, vec![large("root/default/w1", TXN_BYTES_MAX - 1024)]).await;
    assert_eq!(
        store.latest().get(&key("root/default/w1")).map(|e| e.revision),
        Some(revision)
    );
}

fn large(text: &str, bytes: usize) -> Write {
    let key = key(text);
    let value = serde_json::json!({"apiVersion": "v1", "kind": "Widget", "metadata": {"name": *key.name},
        "spec": {"size": 0, "pad": "x".repeat(bytes)}});
    Write::Put(key, Arc::new(Object::new(&value, None).expect("an object")))
}

pub(super) async fn many_writers_lose_no_update(store: Arc<dyn Store>) {
    const WRITERS: i64 = 16;
    const ROUNDS: i64 = 10;
    create(&store, "root/default/counter").await;
    let writers = (0..WRITERS).map(|_| {
        let store = store.clone();
        async move {
            let mut revisions = Vec::new();
            while revisions.len() < ROUNDS as usize {
                let view = store.snapshot(Revision(0)).await.expect("a view");
                let entry = view.get(&key("root/default/counter")).expect("never deleted");
                let next = put("root/default/counter", size(&entry.object) + 1);
                match store.commit(Txn::one(Guard::At(entry.key, entry.revision), next)).await {
                    Ok(revision) => revisions.push(revision),
                    Err(CommitError::Conflict { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            revisions
        }
    });
    let mut revisions: Vec<Revision> = join_all(writers).await.into_iter().flatten().collect();
    let entry = store.latest().get(&key("root/default/counter")).expect("never deleted");
    assert_eq!(size(&entry.object), WRITERS * ROUNDS);
    revisions.sort_unstable();
    revisions.dedup();
    assert_eq!(revisions.len() as i64, WRITERS * ROUNDS, "one revision for each");
    assert_eq!(revisions.last(), Some(&entry.revision));
}

pub(super) async fn a_closed_store_reads_and_does_not_write(store: Arc<dyn Store>) {
    create(&store, "root/default/a").await;
    assert_eq!(store.health(), Ok(()));
    store.close().await;
    store.close().await;
    let got = store
        .commit(Txn {
            guards: vec![],
            writes: vec![put("root/default/b", 1)],
        })
        .await;
    assert!(matches!(got, Err(CommitError::Unavailable(_))), "{got:?}");
    assert!(store.health().is_err());
    assert!(store.latest().get(&key("root/default/a")).is_some());
}
