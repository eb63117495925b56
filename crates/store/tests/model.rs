//! Random operations on an engine and on the model: every answer and every view must agree.
//! proptest prints the failing sequence and keeps its seed in `proptest-regressions`.

use insula_api::{ClusterName, Object, ObjectKey, ResourceId, Revision, Scope};
use insula_meter::ServerWork;
use insula_store::{
    Cursor, Gone, Guard, MemoryStore, Snapshot, Store, Txn, Write,
    embedded::{EmbeddedStore, Options},
    model::{Model, ModelChange},
};
use proptest::prelude::*;
use std::sync::Arc;

#[derive(Debug, Clone)]
enum Op {
    Commit {
        guards: Vec<(u8, GuardKind)>,
        writes: Vec<(u8, Option<u8>)>,
    },
    /// Back from the latest revision.
    Compact(u8),
    Watch {
        scope: u8,
        back: u8,
    },
    Pull(u8),
    Hold {
        back: u8,
    },
    DropHeld(u8),
    Restart,
}

#[derive(Debug, Clone, Copy)]
enum GuardKind {
    Absent,
    Exists,
    /// At the revision the key has, plus this.
    At(u8),
}

const KEYS: u8 = 12;

fn key(n: u8) -> ObjectKey {
    let (resource, cluster) = (
        ["widgets", "gadgets"][n as usize % 2],
        ["root", "other"][n as usize / 2 % 2],
    );
    ObjectKey {
        resource: ResourceId::local("example.io", resource),
        cluster: ClusterName::parse(cluster).unwrap(),
        namespace: ["", "a", "a-b"][n as usize / 4 % 3].into(),
        name: "x".into(),
    }
}

fn scope(n: u8) -> Scope {
    let ObjectKey {
        resource,
        cluster,
        namespace,
        ..
    } = key(n);
    match n % 3 {
        0 => Scope::everywhere(resource),
        1 => Scope::cluster(resource, cluster),
        _ => Scope::namespace(resource, cluster, &namespace),
    }
}

fn object(n: u8) -> Arc<Object> {
    let value = serde_json::json!({"apiVersion": "v1", "kind": "Widget", "metadata": {"name": "x"}, "spec": {"n": n}});
    Arc::new(Object::new(&value, None).unwrap())
}

fn op() -> impl Strategy<Value = Op> {
    let guard = prop_oneof![
        Just(GuardKind::Absent),
        Just(GuardKind::Exists),
        (0..2_u8).prop_map(GuardKind::At)
    ];
    let guards = prop::collection::vec((0..KEYS, guard), 0..2);
    let writes = prop::collection::vec((0..KEYS, prop::option::weighted(0.7, any::<u8>())), 0..4);
    prop_oneof![
        12 => (guards, writes).prop_map(|(guards, writes)| Op::Commit { guards, writes }),
        1 => (0..6_u8).prop_map(Op::Compact),
        2 => (0..KEYS, 0..8_u8).prop_map(|(scope, back)| Op::Watch { scope, back }),
        4 => any::<u8>().prop_map(Op::Pull),
        1 => (0..6_u8).prop_map(|back| Op::Hold { back }),
        1 => any::<u8>().prop_map(Op::DropHeld),
        1 => Just(Op::Restart),
    ]
}

fn back(model: &Model, n: u8) -> Revision {
    Revision(model.latest().0.0.saturating_sub(n.into()).max(1))
}

/// A cursor and where the model thinks it is.
struct Follower {
    cursor: Cursor,
    scope: Scope,
    told: Revision,
}

struct World<S> {
    store: S,
    model: Model,
    followers: Vec<Follower>,
    held: Vec<(Snapshot, Vec<insula_store::Entry>)>,
}

fn everything(view: &Snapshot) -> Vec<insula_store::Entry> {
    (0..2)
        .flat_map(|n| view.range(&Scope::everywhere(key(n).resource), None, usize::MAX))
        .collect()
}

impl<S: Store> World<S> {
    fn step(&mut self, op: &Op) {
        match op {
            Op::Commit { guards, writes } => self.commit(guards, writes),
            Op::Compact(n) => {
                let upto = back(&self.model, *n);
                let (got, want) = (
                    now(self.store.compact(upto)),
                    self.model.compact(upto.max(self.model.oldest())),
                );
                assert_eq!(got, want);
            }
            Op::Watch { scope: n, back: steps } => {
                let (scope, after) = (scope(*n), back(&self.model, *steps));
                let got = self.store.watch(scope.clone(), after);
                assert_eq!(got.as_ref().err(), self.model.at_revision(after).err().as_ref());
                self.followers.extend(got.ok().map(|cursor| Follower {
                    cursor,
                    scope,
                    told: after,
                }));
            }
            Op::Pull(n) if !self.followers.is_empty() => {
                let n = usize::from(*n) % self.followers.len();
                if !pull(&self.model, &mut self.followers[n]) {
                    self.followers.swap_remove(n);
                }
            }
            Op::Hold { back: steps } => {
                if let Ok(view) = self.store.at_revision(back(&self.model, *steps)) {
                    let view = view.for_server(ServerWork::Tool);
                    let entries = everything(&view);
                    self.held.push((view, entries));
                }
            }
            Op::DropHeld(n) if !self.held.is_empty() => {
                drop(self.held.swap_remove(usize::from(*n) % self.held.len()));
            }
            Op::Pull(_) | Op::DropHeld(_) | Op::Restart => {}
        }
        self.agree();
    }

    fn commit(&mut self, guards: &[(u8, GuardKind)], writes: &[(u8, Option<u8>)]) {
        let current = |key: &ObjectKey| {
            self.model
                .latest()
                .1
                .get(key)
                .map_or(Revision(1), |entry| entry.revision)
        };
        let guards = guards.iter().map(|(n, kind)| match kind {
            GuardKind::Absent => Guard::Absent(key(*n)),
            GuardKind::Exists => Guard::Exists(key(*n)),
            GuardKind::At(off) => Guard::At(key(*n), Revision(current(&key(*n)).0 + u64::from(*off))),
        });
        let writes = writes.iter().map(|(n, value)| match value {
            Some(value) => Write::Put(key(*n), object(*value)),
            None => Write::Delete(key(*n)),
        });
        let txn = Txn {
            guards: guards.collect(),
            writes: writes.collect(),
        };
        let want = self.model.commit(&txn);
        assert_eq!(now(self.store.commit(txn)), want);
    }

    fn agree(&self) {
        let (revision, state) = self.model.latest();
        let view = self.store.latest().for_server(ServerWork::Tool);
        assert_eq!(view.revision(), revision);
        for n in 0..KEYS {
            assert_eq!(view.get(&key(n)).as_ref(), state.get(&key(n)));
            let entries = view.range(&scope(n), None, usize::MAX);
            assert_eq!(entries, self.model.range(&scope(n), revision).unwrap());
            assert_eq!(view.count(&scope(n)), entries.len());
        }
        for steps in 0..8 {
            let at = back(&self.model, steps);
            match (self.store.at_revision(at), self.model.at_revision(at)) {
                (Ok(view), Ok(state)) => {
                    let view = view.for_server(ServerWork::Tool);
                    assert_eq!(everything(&view).len(), state.len());
                    assert!(
                        everything(&view)
                            .iter()
                            .all(|entry| state.get(&entry.key) == Some(entry))
                    );
                }
                (got, want) => assert_eq!(got.err(), want.err(), "at {at}"),
            }
        }
        for (view, entries) in &self.held {
            assert_eq!(&everything(view), entries, "held at {}", view.revision());
        }
    }
}

/// Pulls once and compares. Returns whether the cursor is still good.
fn pull(model: &Model, follower: &mut Follower) -> bool {
    let Follower { cursor, scope, told } = follower;
    let bookmark = cursor.position();
    assert!(bookmark >= *told);
    match (cursor.try_next(), model.changes(scope, *told)) {
        // Idle over a compaction: the model forgot what the cursor knows was nothing; held
        // snapshots keep more, too.
        (Ok(got), Err(Gone::Compacted { .. })) => assert!(got.iter().all(|change| change.revision > *told)),
        (Ok(got), Ok(mut want)) => {
            let mut got: Vec<_> = got.iter().map(|change| as_model(change)).collect();
            // Within a revision the order is the transaction's; the model has none.
            got.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
            want.sort_by(|a, b| (a.revision, &a.key).cmp(&(b.revision, &b.key)));
            assert_eq!(got, want.iter().map(of_model).collect::<Vec<_>>());
            assert!(want.first().is_none_or(|first| bookmark < first.revision));
        }
        (Err(Gone::Compacted { .. }), want) => {
            assert!(want.is_err(), "gone although nothing was compacted");
            return false;
        }
        (got, want) => panic!("{got:?} {want:?}"),
    }
    *told = cursor.position();
    true
}

type Told = (Revision, ObjectKey, Option<Revision>, Option<String>);

fn as_model(change: &insula_store::Change) -> Told {
    let old = change.old.as_ref().map(|old| old.revision);
    (
        change.revision,
        change.key.clone(),
        old,
        change.new.as_ref().map(|new| new.body().concat()),
    )
}

fn of_model(change: &ModelChange) -> Told {
    let old = change.old.as_ref().map(|old| old.revision);
    (
        change.revision,
        change.key.clone(),
        old,
        change.new.as_ref().map(|new| new.object.body().concat()),
    )
}

fn now<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn memory_is_the_model(ops in prop::collection::vec(op(), 1..80)) {
        let mut world =
            World { store: MemoryStore::new(), model: Model::new(Revision(1)), followers: vec![], held: vec![] };
        ops.iter().for_each(|op| world.step(op));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]
    #[test]
    fn the_disk_is_the_model(ops in prop::collection::vec(op(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let open = || EmbeddedStore::open(dir.path(), Options::default()).unwrap();
        let mut world = World { store: open(), model: Model::new(Revision(1)), followers: vec![], held: vec![] };
        for op in &ops {
            if let Op::Restart = op {
                let World { store, model, .. } = world;
                drop(store);
                world = World { store: open(), model, followers: vec![], held: vec![] };
            }
            world.step(op);
        }
    }
}
