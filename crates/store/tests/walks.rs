//! Walks over stored objects and their payer.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use insula_api::{ClusterName, Object, ObjectKey, ResourceId, Revision, Scope};
use insula_meter::{Bounds, Ended, Meter, Scheduler, ServerWork, TenantPays};
use insula_store::{Commit, Index, Mvcc, Snapshot};

const OBJECTS: usize = 5_000;

/// An account that is asked some times before the request ends.
struct Looks {
    left: AtomicU64,
    asked: Arc<AtomicU64>,
}

impl Scheduler for Looks {
    fn check(&self, _: u64) -> Result<(), Ended> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        if left == 0 { Err(Ended::Spent) } else { Ok(()) }
    }

    fn ended(&self) -> Option<Ended> {
        (self.left.load(Ordering::Relaxed) == 0).then_some(Ended::Spent)
    }

    fn bound(&self, _: Option<Bounds>) {}

    fn run_without_turns(&self, _: TenantPays, work: &mut dyn FnMut()) {
        work();
    }
}

/// Returns a meter that ends after some looks at the clock, and the number of these looks.
fn meter(looks: u64) -> (Meter, Arc<AtomicU64>) {
    let asked = Arc::new(AtomicU64::new(0));
    let account = Looks {
        left: AtomicU64::new(looks),
        asked: asked.clone(),
    };
    (Meter::new(account), asked)
}

fn widgets() -> ResourceId {
    ResourceId::local("example.io", "widgets")
}

static BY_NOTHING: Index = Index {
    resource: widgets,
    values: |_, _, each| each(""),
};

fn scope() -> Scope {
    Scope::everywhere(widgets())
}

fn filled() -> Arc<Mvcc> {
    let mvcc = Mvcc::new(Revision(1));
    let value = serde_json::json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": "w"}});
    let object = Arc::new(Object::new(&value, None).expect("an object"));
    let key = |n: usize| ObjectKey::cluster_scoped(widgets(), ClusterName::root(), &format!("w{n:05}"));
    let writes = (0..OBJECTS).map(|n| (key(n), Some(object.clone()))).collect();
    mvcc.apply(vec![Commit {
        revision: Revision(2),
        writes,
    }]);
    mvcc
}

type Walk = fn(&Snapshot) -> usize;

fn visited(walk: impl FnOnce(&mut dyn FnMut())) -> usize {
    let mut count = 0;
    walk(&mut || count += 1);
    count
}

/// Every way to walk, by the number of objects that it found.
const WALKS: [(&str, Walk); 7] = [
    ("for_each", |snapshot| {
        visited(|found| {
            snapshot.for_each(&scope(), |_| {
                found();
                ControlFlow::Continue(())
            });
        })
    }),
    ("for_each_wanted", |snapshot| {
        visited(|found| {
            let none = |_: &ObjectKey| false;
            snapshot.for_each_wanted(&scope(), none, |_| ControlFlow::Continue(()));
            snapshot.for_each_wanted(
                &scope(),
                |_| true,
                |_| {
                    found();
                    ControlFlow::Continue(())
                },
            );
        })
    }),
    ("range", |snapshot| snapshot.range(&scope(), None, usize::MAX).len()),
    ("scan", |snapshot| snapshot.scan(scope()).count()),
    ("indexed", |snapshot| snapshot.indexed(&BY_NOTHING, "").len()),
    ("count", |snapshot| snapshot.count(&scope())),
    ("count_after", |snapshot| snapshot.count_after(&scope(), None)),
];

#[test]
fn walks_pay_now_and_then_and_end_with_their_request() {
    for (name, walk) in WALKS {
        let mvcc = filled();
        let (endless, asked) = meter(u64::MAX);
        assert_eq!(walk(&mvcc.latest().charged_to(&endless)), OBJECTS, "{name}");
        let asked = asked.load(Ordering::Relaxed);
        assert!((3..200).contains(&asked), "{name} looked at the clock {asked} times");

        let mvcc = filled();
        let (ending, asked) = meter(2);
        let snapshot = mvcc.latest().charged_to(&ending);
        assert!(walk(&snapshot) < OBJECTS, "{name} goes on");
        let asked = asked.load(Ordering::Relaxed);
        assert!(
            (3..5).contains(&asked),
            "{name} asked {asked} times, and was refused at the third"
        );
        assert_eq!(snapshot.meter().check(), Err(Ended::Spent));
        // What it left nobody takes for the whole.
        let server = mvcc.latest().for_server(ServerWork::Tool);
        assert_eq!(walk(&server), OBJECTS, "{name}");
        assert_eq!(server.count(&scope()), OBJECTS, "{name}");
    }
}

#[test]
fn reads_of_single_objects_pay_nothing() {
    let mvcc = filled();
    let (ended, asked) = meter(0);
    let key = ObjectKey::cluster_scoped(widgets(), ClusterName::root(), "w00007");
    assert!(mvcc.latest().get(&key).is_some());
    assert!(mvcc.latest().charged_to(&ended).get(&key).is_some());
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}
