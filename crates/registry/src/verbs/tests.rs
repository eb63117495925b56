//! Tests of generated names, of retries, and of the webhook calls of selectors.

use super::*;
use crate::{
    calls,
    deps::Deps,
    representation::{
        Show,
        tests::{served, target, workspace},
    },
};
use futures_util::{FutureExt, future::BoxFuture};
use insula_access::Target;
use insula_api::{FieldSelector, Json, Object, Revision, Rng};
use insula_auth::{UserInfo, audit::Record};
use insula_catalog::{Call, Error, Origin, Outbound, Part, Served, compile, ids, stored};
use insula_meter::ServerWork;
use insula_store::{MemoryStore, Txn, Write};
use parking_lot::Mutex;
use serde_json::json;
use std::sync::Arc;

/// A generator that returns the same name a given number of times.
struct Stubborn(Mutex<usize>);

impl Rng for Stubborn {
    fn fill(&self, buffer: &mut [u8]) {
        let mut left = self.0.lock();
        let is_name = buffer.len() == 8;
        buffer.fill(if *left > 0 || !is_name { 7 } else { 8 });
        *left -= usize::from(is_name && *left > 0);
    }
}

fn options(user: &UserInfo) -> WriteOptions<'_> {
    WriteOptions {
        user,
        dry_run: false,
        field_validation: FieldValidation::Warn,
        body_bytes: 0,
        keys: SentKeys::default(),
        manager: "test".into(),
        record: Record::default(),
    }
}

/// Creates an object whose generated name is taken `taken` times, and returns its name or the
/// error.
fn made(taken: usize) -> std::result::Result<String, Error> {
    let mut deps = workspace(Arc::new(MemoryStore::new()), "one");
    let target = target(&served(), "one");
    let user = UserInfo::authenticated("alice", "", Vec::new());
    let options = options(&user);
    let body = json!({"apiVersion": "example.io/v2", "kind": "Engine", "metadata": {"generateName": "a-"}});
    let create_one = |deps: &Deps| {
        let created = create(deps, &target, body.clone(), &options).now_or_never();
        let created = created.expect("at once");
        created.map(|written| written.entry.key.name.to_string())
    };
    let first = create_one(&deps).expect("is free");
    deps.rng = Arc::new(Stubborn(Mutex::new(taken)));
    create_one(&deps).inspect(|name| assert_ne!(*name, first))
}

#[test]
fn eight_names_are_tried() {
    let name = made(7).expect("the eighth is free");
    let random = name.strip_prefix("a-").expect("begins as it was told");
    let letters = |c: char| "bcdfghjklmnpqrstvwxz2456789".contains(c);
    assert!(random.len() == 5 && random.chars().all(letters), "{name}");
    assert!(matches!(made(8), Err(Error::NoFreeName { .. })));
}

#[test]
fn a_conflict_on_the_route_is_not_tried_again() {
    let deps = workspace(Arc::new(MemoryStore::new()), "one");
    let mut target = target(&served(), "one");
    let user = UserInfo::authenticated("alice", "", Vec::new());
    let options = options(&user);
    let body = json!({"apiVersion": "example.io/v2", "kind": "Engine", "metadata": {"name": "a"}});
    let created = create(&deps, &target, body, &options).now_or_never();
    created.expect("at once").expect("the name is free");
    // The route that the request was resolved by is not as it was.
    let route = ids::resource_route(&target.cluster, "example.io", "engines");
    target.served.guard = Some((route, Revision(1)));
    let attempts = Mutex::new(0);
    let patch = |old: &Json| {
        *attempts.lock() += 1;
        let mut new = old.clone();
        new["spec"] = json!({"padding": "x"});
        Ok(new)
    };
    let change = Change::Patch(&patch);
    let refused = update(&deps, &target, "a", change, Part::Main, &options).now_or_never();
    assert!(matches!(refused.expect("at once"), Err(Error::Conflict { .. })));
    assert_eq!(*attempts.lock(), 1);
}

/// A conversion webhook that records the number of objects of each call.
#[derive(Default)]
struct CountingWebhook(Mutex<Vec<usize>>);

impl CountingWebhook {
    fn take(&self) -> Vec<usize> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl Outbound for CountingWebhook {
    fn post(&self, call: Call) -> BoxFuture<'_, Result<Vec<u8>, String>> {
        let mut review: Json = serde_json::from_slice(&call.body).expect("a review is JSON");
        let mut objects = review["request"]["objects"].take();
        let list = objects.as_array_mut().expect("objects");
        self.0.lock().push(list.len());
        for object in list {
            object["apiVersion"] = review["request"]["desiredAPIVersion"].clone();
        }
        let response = json!({
            "uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": objects,
        });
        let answer = json!({"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": response});
        Box::pin(async move { Ok(answer.to_string().into_bytes()) })
    }
}

/// Returns an API that a webhook converts, with `spec.size` selectable. `v1` is stored.
fn served_with_webhook() -> Served {
    let version = |name: &str| {
        let spec = json!({"type": "object", "properties": {"size": {"type": "string"}}});
        json!({"name": name, "served": true, "storage": name == "v1", "selectableFields": [{"jsonPath": ".spec.size"}],
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
    };
    let spec = json!({
        "group": "example.io", "scope": "Cluster",
        "names": {"plural": "engines", "singular": "engine", "kind": "Engine", "listKind": "EngineList"},
        "versions": [version("v1"), version("v2")],
        "conversion": {"strategy": "Webhook", "webhook": {
            "clientConfig": {"url": "https://a.example/convert"}, "conversionReviewVersions": ["v1"]}},
    });
    let definition = compile::Definition {
        spec: &spec,
        accepted_names: None,
        rules: None,
        strategy: insula_conversion::LossPolicy::Lossless,
        strict_scale: false,
    };
    let api = compile::compile(&definition, None).expect("the definition compiles");
    Served::system(Arc::new(api))
}

/// Returns a workspace with engines that a webhook converts. Those at `large` have the size 1, the
/// others 0.
fn engines(count: usize, large: impl Fn(usize) -> bool) -> (Deps, Target, Arc<CountingWebhook>) {
    let mut deps = workspace(Arc::new(MemoryStore::new()), "one");
    let webhook = Arc::new(CountingWebhook::default());
    deps.outbound = webhook.clone();
    let target = target(&served_with_webhook(), "one");
    let writes = (0..count).map(|index| {
        let name = format!("engine-{index:04}");
        let size = if large(index) { "1" } else { "0" };
        let value = json!({
            "apiVersion": "example.io/v1", "kind": "Engine", "metadata": {"name": name}, "spec": {"size": size},
        });
        let object = Object::new(&value, None).expect("an object");
        Write::Put(
            target.key(&name),
            Arc::new(object.written_under(target.served.api.fingerprint)),
        )
    });
    // A transaction holds 127 writes.
    for chunk in writes.collect::<Vec<_>>().chunks(100) {
        let txn = Txn {
            guards: Vec::new(),
            writes: chunk.to_vec(),
        };
        let committed = deps.store.commit(txn).now_or_never();
        committed.expect("at once").expect("is written");
    }
    (deps, target, webhook)
}

fn page(deps: &Deps, target: &Target, limit: usize, terms: &[(&str, &str)]) -> List {
    let terms = terms
        .iter()
        .map(|(field, value)| (field.to_string(), value.to_string(), true));
    let options = ListOptions {
        fields: FieldSelector { terms: terms.collect() },
        limit,
        ..ListOptions::default()
    };
    let listed = list(
        deps,
        &deps.store.latest().for_server(ServerWork::Tool),
        target,
        &options,
    )
    .now_or_never();
    listed.expect("at once").expect("lists")
}

fn names(list: &List) -> Vec<&str> {
    list.entries.iter().map(|entry| &*entry.key.name).collect()
}

#[test]
fn a_list_of_one_name_calls_the_webhook_for_one_object() {
    let (deps, target, webhook) = engines(100, |_| true);
    let found = page(&deps, &target, 10, &[("metadata.name", "engine-0007")]);
    let shown = calls::attach(&deps, &target);
    let mut out = Vec::new();
    let mut stream = Show::new(&deps.cache, &shown, found.entries.iter());
    stream.append(&mut out).now_or_never().expect("at once").expect("shows");
    assert_eq!((names(&found), webhook.take()), (vec!["engine-0007"], vec![1]));
    let terms = [("spec.size", "1"), ("metadata.name", "engine-0007")];
    let found = page(&deps, &target, 10, &terms);
    assert_eq!((names(&found), webhook.take()), (vec!["engine-0007"], vec![1]));
}

#[test]
fn a_page_is_selected_from_as_many_objects_as_it_needs() {
    let (deps, target, webhook) = engines(100, |_| true);
    let found = page(&deps, &target, 10, &[("spec.size", "1")]);
    assert_eq!((found.entries.len(), found.next.is_some()), (10, true));
    assert_eq!(webhook.take(), [11], "the page and one more");
    // Few matches: each batch has twice as many objects as the one before.
    let (deps, target, webhook) = engines(1_600, |index| index % 800 == 799);
    let found = page(&deps, &target, 1, &[("spec.size", "1")]);
    assert_eq!((names(&found), found.next.is_some()), (vec!["engine-0799"], true));
    assert_eq!(webhook.take(), [2, 4, 8, 16, 32, 64, 128, 256, 500, 500, 90]);
    let found = page(&deps, &target, 0, &[("spec.size", "1")]);
    assert_eq!((found.entries.len(), found.next), (2, None));
    assert_eq!(webhook.take(), [500, 500, 500, 100]);
}

#[test]
fn an_initial_state_is_selected_in_batches() {
    let (deps, target, webhook) = engines(600, |index| index == 599);
    let options = WatchOptions {
        fields: FieldSelector {
            terms: vec![("spec.size".into(), "1".into(), true)],
        },
        ..WatchOptions::default()
    };
    let snapshot = deps.store.latest().for_server(ServerWork::Tool);
    let begun = watch_with_state(&deps, &snapshot, &target, options).now_or_never();
    let mut watch = begun.expect("at once").expect("begins");
    assert_eq!(webhook.take(), [500, 100]);
    let events = watch.next(&deps).now_or_never().expect("at once").expect("events");
    assert_eq!(events.len(), 1);
}

/// Writes the LogicalCluster of the workspace, frozen or as it is.
fn write_logical_cluster(deps: &Deps, cluster: &insula_api::ClusterName, frozen: Option<&str>) {
    let key = ids::logical_cluster(cluster);
    let entry = deps.store.latest().get(&key).expect("the workspace exists");
    let mut value = entry.object.body_value();
    if let Some(reason) = frozen {
        value["metadata"]["annotations"]["insula.io/frozen"] = json!(reason);
    }
    let object = Object::new(&value, None).expect("an object");
    let txn = Txn {
        guards: Vec::new(),
        writes: vec![Write::Put(key, Arc::new(object))],
    };
    let committed = deps.store.commit(txn).now_or_never().expect("at once");
    committed.expect("takes it");
}

/// A generator that writes the LogicalCluster of the workspace when it is first asked for a uid:
/// between the snapshot of a create and its commit.
struct Meddler(Deps, insula_api::ClusterName, Mutex<usize>);

impl Rng for Meddler {
    fn fill(&self, buffer: &mut [u8]) {
        buffer.fill(7);
        let mut asked = self.2.lock();
        *asked += 1;
        if *asked == 1 {
            write_logical_cluster(&self.0, &self.1, None);
        }
    }
}

/// The second attempt has the body of the first one, through the stored version and another.
#[test]
fn a_create_that_conflicts_is_made_again_as_it_was_sent() {
    for version in ["v1", "v2"] {
        let store = Arc::new(MemoryStore::new());
        let mut deps = workspace(store.clone(), "one");
        let mut target = target(&served(), "one");
        target.version = version.into();
        target.served.origin = Origin::Bound {
            binding: "engines".into(),
        };
        let meddler = Arc::new(Meddler(workspace(store, "two"), target.cluster.clone(), Mutex::new(0)));
        deps.rng = meddler.clone();
        let user = UserInfo::authenticated("alice", "", Vec::new());
        let options = options(&user);
        let size = if version == "v1" { json!("3") } else { json!(3) };
        let body = json!({
            "apiVersion": format!("example.io/{version}"), "kind": "Engine",
            "metadata": {"name": "a"}, "spec": {"size": size, "padding": "x"},
        });
        let created = create(&deps, &target, body.clone(), &options).now_or_never();
        let entry = created.expect("at once").expect("is tried again").entry;
        let asked = *meddler.2.lock();
        assert!(asked >= 2, "{version}: {asked} uids");
        let seen = stored::value(&target.served, &entry, version).expect("converts");
        assert_eq!(
            (&seen["apiVersion"], &seen["spec"]),
            (&body["apiVersion"], &body["spec"])
        );
        let managers = seen["metadata"]["managedFields"].as_array().expect("managers");
        assert_eq!(managers.len(), 1, "{version}");
    }
}

/// A freeze that comes between the decision of a write and its commit refuses the write.
#[test]
fn no_write_slips_past_a_freeze() {
    let deps = workspace(Arc::new(MemoryStore::new()), "one");
    let target = target(&served(), "one");
    let user = UserInfo::authenticated("alice", "", vec!["system:masters".to_owned()]);
    let options = options(&user);
    let engine = |name: &str| json!({"apiVersion": "example.io/v2", "kind": "Engine", "metadata": {"name": name}});
    let make = |name: &str| {
        let created = create(&deps, &target, engine(name), &options).now_or_never();
        created.expect("at once")
    };
    let first = make("a").expect("the name is free");
    let freeze_at = Mutex::new(None);
    let attempts = Mutex::new(0);
    let patch = |old: &Json| {
        *attempts.lock() += 1;
        if let Some(reason) = freeze_at.lock().take() {
            write_logical_cluster(&deps, &target.cluster, reason);
        }
        let mut new = old.clone();
        new["spec"] = json!({"padding": format!("{}", attempts.lock())});
        Ok(new)
    };
    let written = || {
        let change = Change::Patch(&patch);
        let written = update(&deps, &target, "a", change, Part::Main, &options).now_or_never();
        written.expect("at once")
    };
    // Another write of the LogicalCluster costs an attempt, and no conflict.
    *freeze_at.lock() = Some(None);
    let second = written().expect("is not frozen");
    assert_eq!(*attempts.lock(), 2);
    *freeze_at.lock() = Some(Some("moving house"));
    let refused = written().expect_err("is frozen").to_string();
    assert!(refused.contains("is frozen and read-only: moving house"), "{refused}");
    let now = deps.store.latest().get(&first.entry.key).expect("is there");
    assert_eq!(now.revision, second.entry.revision, "nothing was written");
    for refused in [
        make("b").expect_err("is frozen"),
        delete(&deps, &target, "a", &DeleteOptions::default(), &options)
            .now_or_never()
            .expect("at once")
            .expect_err("is frozen"),
    ] {
        assert!(matches!(refused, Error::Forbidden { .. }), "{refused}");
    }
}

/// A definition that its controller has not seen is validated whole, and compared with the old one.
#[test]
fn an_error_of_an_object_and_of_its_change_is_told_once() {
    let deps = workspace(Arc::new(MemoryStore::new()), "one");
    let mut target = target(&served(), "one");
    let found = deps.catalog.resolve(
        &deps.store.latest().for_server(ServerWork::Tool),
        &target.cluster,
        "apiextensions.k8s.io",
        "customresourcedefinitions",
    );
    (target.served, target.version) = (found.expect("is built in"), "v1".into());
    let user = UserInfo::authenticated("alice", "", Vec::new());
    let options = options(&user);
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "sacks.example.io"},
        "spec": {"group": "example.io", "scope": "Cluster", "names": {"plural": "sacks", "kind": "Sack"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]},
    });
    let created = create(&deps, &target, definition, &options).now_or_never();
    created.expect("at once").expect("it is valid");
    let patch = |old: &Json| {
        let mut new = old.clone();
        new["spec"]["preserveUnknownFields"] = json!(true);
        Ok(new)
    };
    let change = Change::Patch(&patch);
    let refused = update(&deps, &target, "sacks.example.io", change, Part::Main, &options).now_or_never();
    let Err(Error::Invalid { errors, .. }) = refused.expect("at once") else {
        panic!("such a definition cannot preserve unknown fields");
    };
    let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(fields, ["spec.preserveUnknownFields"]);
}
