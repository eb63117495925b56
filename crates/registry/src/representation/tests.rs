//! Tests of order, errors, fairness, cancellation and at-most-once conversion, with workers that
//! run on the test's command.

use super::{Cache, Show, Work, Workers};
use crate::{Change, Deps, FieldValidation, SentKeys, WriteOptions, verbs};
use futures_util::{FutureExt, future::join};
use insula_access::{
    Target,
    view::{ViaExport, ViewScope},
};
use insula_api::{Clock, ClusterName, Json, Object, ObjectKey, Revision, Rng, ShownLabel, Timestamp};
use insula_auth::UserInfo;
use insula_catalog::{
    Origin, Part, Result, Served, compile,
    exports::ExportName,
    ids,
    registration::{DefinitionKind, DefinitionName},
};
use insula_store::{Entry, MemoryStore, Store, Txn, Write};
use parking_lot::Mutex;
use serde_json::json;
use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake},
};

/// Padding in bytes that makes thirty objects a piece.
const PADDING: usize = 2_100;
const PIECE: u64 = 30;

/// Workers that run on the test's command: the queued work, and the tenants charged for each piece.
#[derive(Clone, Default)]
struct Hands(Arc<Mutex<Vec<Work>>>, Arc<Mutex<Vec<String>>>);

impl Hands {
    fn cache(&self, width: usize) -> Arc<Cache> {
        let hands = self.clone();
        let paid = self.1.clone();
        Arc::new(Cache::new(Workers {
            width,
            start: Arc::new(move |work| hands.0.lock().push(work)),
            pay: Arc::new(move |tenant, work| {
                paid.lock().push(tenant.to_string());
                work();
            }),
        }))
    }

    fn waiting(&self) -> usize {
        self.0.lock().len()
    }

    fn work(&self) {
        let all: Vec<_> = std::mem::take(&mut *self.0.lock());
        all.into_iter().for_each(|work| work());
    }
}

/// Returns an API with two versions. `v2` has the size as a number, so not every string converts.
pub(crate) fn served() -> Served {
    let version = |name: &str, kind: &str| {
        let spec = json!({"type": "object", "properties": {"size": {"type": kind}, "padding": {"type": "string"}}});
        json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema":
            {"type": "object", "properties": {"spec": spec}}}})
    };
    let spec = json!({
        "group": "example.io", "scope": "Cluster",
        "names": {"plural": "engines", "singular": "engine", "kind": "Engine", "listKind": "EngineList"},
        "versions": [version("v1", "string"), version("v2", "integer")],
    });
    let rule = |from: &str, to: &str, expression: &str| {
        let size = ".spec.size";
        let rules = json!([{"field": size, "destination": size, "transformation": expression, "mayFail": true}]);
        json!({"from": from, "to": to, "rules": rules})
    };
    let rules = json!({"conversions": [rule("v1", "v2", "int(self)"), rule("v2", "v1", "string(self)")]});
    let definition = compile::Definition {
        spec: &spec,
        accepted_names: None,
        rules: Some(&rules),
        strategy: insula_conversion::LossPolicy::Lossless,
        strict_scale: false,
    };
    Served::system(Arc::new(
        compile::compile(&definition, None).expect("the definition compiles"),
    ))
}

pub(crate) fn target(served: &Served, tenant: &str) -> Target {
    let cluster = ClusterName::parse(tenant).expect("a name");
    Target::for_the_server(cluster, served.clone(), "v2".into())
}

fn entry(target: &Target, at: usize, size: &str) -> Entry {
    let name = format!("engine-{at:04}");
    let value = json!({
        "apiVersion": "example.io/v1", "kind": "Engine", "metadata": {"name": name},
        "spec": {"size": size, "padding": "x".repeat(PADDING)},
    });
    let object = Object::new(&value, None)
        .expect("an object")
        .written_under(target.served.api.fingerprint);
    Entry {
        key: ObjectKey {
            name: name.as_str().into(),
            ..target.key("")
        },
        object: Arc::new(object),
        revision: Revision(at as u64 + 1),
        created: Revision(at as u64 + 1),
    }
}

fn entries(target: &Target, count: usize) -> Vec<Entry> {
    (0..count).map(|at| entry(target, at, &at.to_string())).collect()
}

/// Returns the sizes that a client of `v2` sees, up to the first object that cannot be shown.
async fn shown(cache: &Arc<Cache>, target: &Target, entries: &[Entry]) -> Result<Vec<i64>> {
    let mut shown = Show::new(cache, target, entries.iter());
    let mut sizes = Vec::new();
    for _ in entries {
        let mut out = Vec::new();
        shown.append(&mut out).await?;
        let object: Json = serde_json::from_slice(&out).expect("JSON");
        assert_eq!(object["apiVersion"], "example.io/v2");
        sizes.extend(object["spec"]["size"].as_i64());
    }
    Ok(sizes)
}

fn all(count: usize) -> Vec<i64> {
    (0..count as i64).collect()
}

fn poll_once(future: std::pin::Pin<&mut impl Future>) -> bool {
    future
        .poll(&mut Context::from_waker(std::task::Waker::noop()))
        .is_ready()
}

/// Blocks this thread until a future is ready.
fn wait<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_piece_is_converted_where_it_is_asked_for_and_more_by_workers_in_order() {
    let (hands, served) = (Hands::default(), served());
    let (cache, target) = (hands.cache(2), target(&served, "one"));
    let few = entries(&target, PIECE as usize);
    assert_eq!(
        shown(&cache, &target, &few).now_or_never().expect("at once").unwrap(),
        all(few.len())
    );
    assert_eq!(hands.waiting(), 0);

    let many = entries(&target, 1_000);
    let mut list = pin!(shown(&cache, &target, &many));
    assert!(!poll_once(list.as_mut()));
    assert_eq!(hands.waiting(), 2, "workers");
    hands.work();
    assert_eq!(list.now_or_never().expect("done").unwrap(), all(1_000));

    let before = cache.conversions();
    assert_eq!(
        shown(&cache, &target, &many).now_or_never().expect("kept").unwrap(),
        all(1_000)
    );
    assert_eq!(cache.conversions(), before, "all are kept");
}

#[test]
fn objects_of_a_claim_are_shown_with_its_label_by_one_conversion() {
    let served = served();
    let (cache, plain) = (Arc::new(Cache::default()), target(&served, "one"));
    let label = ShownLabel::new("claimed/by".into(), "a".into());
    let export = ExportName {
        cluster: plain.cluster.clone(),
        name: "engines".into(),
    };
    let through = ViaExport {
        export,
        verb: None,
        user: Arc::default(),
        asked: Arc::default(),
        label: Some(Arc::new(label)),
    };
    let through_claim = |target: &Target| {
        let mut target = target.clone();
        target.view_scope = ViewScope::ViaExport(through.clone());
        target
    };
    let claimed = through_claim(&plain);
    let many = entries(&plain, 40);
    let labels = |target: &Target| -> Vec<Json> {
        let mut shown = Show::new(&cache, target, many.iter());
        let values = many.iter().map(|_| {
            let mut out = Vec::new();
            shown.append(&mut out).now_or_never().expect("at once").expect("shows");
            serde_json::from_slice::<Json>(&out).expect("JSON")["metadata"]["labels"].take()
        });
        values.collect()
    };
    assert_eq!(labels(&claimed), vec![json!({"claimed/by": "a"}); 40]);
    assert_eq!(cache.conversions(), 40);
    assert_eq!(labels(&plain), vec![Json::Null; 40], "the label is nobody else's");
    assert_eq!(labels(&claimed), vec![json!({"claimed/by": "a"}); 40]);
    assert_eq!(cache.conversions(), 40, "all are kept");
    let stored = Target::for_the_server(plain.cluster.clone(), served, "v1".into());
    assert_eq!(labels(&through_claim(&stored)), vec![json!({"claimed/by": "a"}); 40]);
    assert_eq!(cache.conversions(), 40, "stored objects need none");
}

#[test]
fn without_workers_who_asks_converts() {
    let served = served();
    let (cache, target) = (Arc::new(Cache::default()), target(&served, "one"));
    let many = entries(&target, 300);
    assert_eq!(
        shown(&cache, &target, &many).now_or_never().expect("at once").unwrap(),
        all(300)
    );
}

#[test]
fn the_first_object_in_order_that_cannot_be_shown_is_told_and_the_rest_is_left() {
    let (hands, served) = (Hands::default(), served());
    let (cache, target) = (hands.cache(2), target(&served, "one"));
    let mut many = entries(&target, 1_000);
    many[70] = entry(&target, 70, "large");
    many[40] = entry(&target, 40, "larger");
    let mut list = pin!(shown(&cache, &target, &many));
    assert!(!poll_once(list.as_mut()));
    hands.work();
    let told = list.now_or_never().expect("done").unwrap_err().to_string();
    assert!(
        told.contains("\"engine-0040\"") && told.contains("v2") && told.contains("spec.size"),
        "{told}"
    );
    assert_eq!(cache.conversions(), 2 * PIECE, "pieces behind it are left");
}

#[test]
fn two_lists_at_once_convert_each_object_once() {
    let (hands, served) = (Hands::default(), served());
    let (cache, target) = (hands.cache(2), target(&served, "one"));
    let many = entries(&target, 400);
    let mut both = pin!(join(shown(&cache, &target, &many), shown(&cache, &target, &many)));
    assert!(!poll_once(both.as_mut()));
    hands.work();
    let (one, other) = both.now_or_never().expect("done");
    assert_eq!((one.unwrap(), other.unwrap()), (all(400), all(400)));
    assert_eq!(cache.conversions(), 400);
}

#[test]
fn on_real_threads_too_each_object_is_converted_once_and_a_failure_is_everybodys() {
    let served = served();
    let start = Arc::new(|work| {
        std::thread::Builder::new().spawn(work).expect("a thread");
    });
    let workers = Workers {
        width: 3,
        start,
        ..Workers::none()
    };
    let cache = Arc::new(Cache::new(workers));
    let target = target(&served, "one");
    let mut many = entries(&target, 600);
    let lists = || futures_util::future::join_all((0..8).map(|_| shown(&cache, &target, &many)));
    for list in wait(lists()) {
        assert_eq!(list.unwrap(), all(600));
    }
    assert_eq!(cache.conversions(), 600);
    many[555] = entry(&target, 555, "large");
    let lists = || futures_util::future::join_all((0..8).map(|_| shown(&cache, &target, &many)));
    for list in wait(lists()) {
        assert!(list.unwrap_err().to_string().contains("engine-0555"));
    }
}

#[test]
fn a_small_request_waits_for_pieces_and_not_for_lists() {
    let (hands, served) = (Hands::default(), served());
    let cache = hands.cache(1);
    let (large, small) = (target(&served, "large"), target(&served, "small"));
    let (many, few) = (entries(&large, 300), entries(&small, PIECE as usize + 1));
    let mut lists: Vec<_> = (0..3).map(|_| Box::pin(shown(&cache, &large, &many))).collect();
    for list in &mut lists {
        assert!(!poll_once(list.as_mut()));
    }
    let mut page = pin!(shown(&cache, &small, &few));
    assert!(!poll_once(page.as_mut()));
    // Two pieces of the small list, each after one piece of a large list.
    let before = cache.conversions();
    for turn in 0..4 {
        assert!(!poll_once(page.as_mut()), "turn {turn}");
        assert!(cache.convert_next());
    }
    assert!(poll_once(page.as_mut()));
    assert!(cache.conversions() - before <= 4 * PIECE);
    assert_eq!(
        *hands.1.lock(),
        ["large", "small", "large", "small"],
        "each pays for its own"
    );
}

#[test]
fn who_goes_leaves_no_work() {
    let (hands, served) = (Hands::default(), served());
    let (cache, target) = (hands.cache(1), target(&served, "one"));
    let many = entries(&target, 1_000);
    let mut list = Box::pin(shown(&cache, &target, &many));
    assert!(!poll_once(list.as_mut()));
    assert!(cache.convert_next());
    drop(list);
    hands.work();
    assert_eq!(cache.conversions(), PIECE, "the piece that was in hand");
    assert_eq!(
        shown(&cache, &target, &many[..PIECE as usize])
            .now_or_never()
            .expect("kept")
            .unwrap(),
        all(PIECE as usize)
    );
    // No claim is left, so the next request converts.
    let mut next = pin!(shown(&cache, &target, &many));
    assert!(!poll_once(next.as_mut()));
    hands.work();
    assert_eq!(next.now_or_never().expect("done").unwrap(), all(1_000));
}

#[test]
fn other_content_under_a_revision_that_is_taken_is_another_object() {
    let served = served();
    let (cache, target) = (Arc::new(Cache::default()), target(&served, "one"));
    for size in ["1", "2", "1"] {
        let dry = [entry(&target, 0, size)];
        let got = shown(&cache, &target, &dry).now_or_never().expect("at once").unwrap();
        assert_eq!(got, [size.parse::<i64>().unwrap()]);
    }
}

/// Returns the state over one workspace in memory with objects of `v1` and `v2`.
pub(crate) fn workspace(store: Arc<MemoryStore>, tenant: &str) -> Deps {
    struct Still;
    impl Clock for Still {
        fn now(&self) -> Timestamp {
            Timestamp(0)
        }
    }
    impl Rng for Still {
        fn fill(&self, buffer: &mut [u8]) {
            buffer.fill(7);
        }
    }
    let cluster = ClusterName::parse(tenant).expect("a name");
    let logical =
        json!({"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster", "metadata": {"name": "cluster"}});
    let write = Write::Put(
        ids::logical_cluster(&cluster),
        Arc::new(Object::new(&logical, None).expect("an object")),
    );
    let txn = Txn {
        guards: Vec::new(),
        writes: vec![write],
    };
    store.commit(txn).now_or_never().expect("at once").expect("is written");
    Deps::new(store, Arc::new(Still), Arc::new(Still), String::new())
}

#[test]
fn what_was_written_in_a_version_is_read_there_without_a_conversion() {
    let deps = workspace(Arc::new(MemoryStore::new()), "one");
    let served = Served {
        origin: Origin::Local {
            definition: DefinitionName {
                kind: DefinitionKind::CustomResource,
                name: "engines.example.io".into(),
            },
        },
        ..served()
    };
    let target = target(&served, "one");
    let user = UserInfo::authenticated("alice", "", Vec::new());
    let options = WriteOptions {
        user: &user,
        dry_run: false,
        field_validation: FieldValidation::Warn,
        body_bytes: 0,
        keys: SentKeys::default(),
        manager: "test".into(),
        record: insula_auth::audit::Record::default(),
    };
    let body = json!({
        "apiVersion": "example.io/v2", "kind": "Engine", "metadata": {"name": "a"}, "spec": {"size": 7, "more": 1},
    });
    let created = verbs::create(&deps, &target, body.clone(), &options)
        .now_or_never()
        .expect("at once")
        .expect("creates");
    let mut body = body;
    body["spec"]["size"] = json!(8);
    body["metadata"]["resourceVersion"] = json!(created.entry.revision.to_string());
    let change = Change::Replace(body);
    let updated = verbs::update(&deps, &target, "a", change, Part::Main, &options)
        .now_or_never()
        .expect("at once")
        .expect("updates");
    for written in [created, updated] {
        let read = |cache: &Arc<Cache>| {
            let mut out = Vec::new();
            let mut shown = Show::new(cache, &target, std::iter::once(&written.entry));
            shown.append(&mut out).now_or_never().expect("at once").expect("shows");
            String::from_utf8(out).expect("UTF-8")
        };
        assert_eq!(read(&deps.cache), read(&Arc::default()), "as a conversion shows it");
    }
    assert_eq!(deps.cache.conversions(), 0);
}
