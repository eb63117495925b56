use super::*;
use crate::{Call, Endpoint, Outbound, webhook::Webhook};
use insula_api::Rng;
use serde_json::json;
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

/// A webhook that responds once it is opened and records its calls.
#[derive(Default)]
struct Gate(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    calls: Vec<usize>,
    open: bool,
    fails: bool,
}

impl Gate {
    fn open(&self) {
        self.0.lock().open = true;
    }

    /// Returns the number of objects of each call.
    fn calls(&self) -> Vec<usize> {
        self.0.lock().calls.clone()
    }
}

impl Outbound for Gate {
    fn post(&self, call: Call) -> BoxFuture<'_, Result<Vec<u8>, String>> {
        let mut review: Json = serde_json::from_slice(&call.body).expect("a review is JSON");
        let mut objects = review["request"]["objects"].take();
        let list = objects.as_array_mut().expect("a list");
        self.0.lock().calls.push(list.len());
        for object in list {
            object["apiVersion"] = review["request"]["desiredAPIVersion"].clone();
        }
        let answer = json!({"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": {
            "uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": objects}});
        let done = poll_fn(move |_| {
            let seen = self.0.lock();
            match (seen.open, seen.fails) {
                (false, _) => Poll::Pending,
                (true, true) => Poll::Ready(Err("not now".to_owned())),
                (true, false) => Poll::Ready(Ok(answer.to_string().into_bytes())),
            }
        });
        Box::pin(done)
    }
}

struct Zero;

impl Rng for Zero {
    fn fill(&self, buffer: &mut [u8]) {
        buffer.fill(0);
    }
}

struct World {
    response_cache: Arc<ResponseCache>,
    gate: Arc<Gate>,
}

impl World {
    fn new() -> World {
        World {
            response_cache: Arc::default(),
            gate: Arc::default(),
        }
    }

    /// Starts a watcher that converts objects of these names at time `now`.
    fn watcher(&self, names: &'static [&'static str], now: i64) -> Pin<Box<dyn Future<Output = Vec<String>> + Send>> {
        let endpoint = Endpoint {
            url: "https://a.example/convert".into(),
            ca_bundle: None,
        };
        let conversion = json!({"strategy": "Webhook", "webhook": {
            "clientConfig": {"url": *endpoint.url}, "conversionReviewVersions": ["v1"]}});
        let webhook = Webhook::read(&"e.io".into(), &conversion).expect("it is a webhook");
        let pending_call = |name: &&str| {
            let pending_call = PendingCall::Convert {
                webhook: webhook.clone(),
                object: json!({"apiVersion": "e.io/v1", "kind": "Foo", "metadata": {"name": name}}),
                to: "v2".into(),
            };
            (pending_call.key(), pending_call)
        };
        let open: Vec<_> = names.iter().map(pending_call).collect();
        let wanted: Vec<Key> = open.iter().map(|(key, _)| *key).collect();
        let caller = Caller {
            outbound: self.gate.clone(),
            rng: Arc::new(Zero),
        };
        let response_cache = self.response_cache.clone();
        let told = async move {
            let answers = response_cache
                .request(&ClusterName::bound_crds(), open, caller, Timestamp(now))
                .await;
            let answers: HashMap<Key, Answer> = answers.into_iter().collect();
            let tell = |answer: &Answer| match answer {
                Ok(object) => object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
                Err(why) => why.to_string(),
            };
            wanted.iter().map(|key| tell(&answers[key])).collect()
        };
        Box::pin(told)
    }
}

/// Polls a watcher once and returns its responses if they are ready.
fn look(watcher: &mut Pin<Box<dyn Future<Output = Vec<String>> + Send>>) -> Option<Vec<String>> {
    watcher.as_mut().now_or_never()
}

#[test]
fn watchers_of_the_same_changes_ask_once() {
    let world = World::new();
    let (mut one, mut two, mut more) = (
        world.watcher(&["a"], 0),
        world.watcher(&["a"], 0),
        world.watcher(&["b", "a"], 0),
    );
    for watcher in [&mut one, &mut two, &mut more] {
        assert_eq!(look(watcher), None);
    }
    assert_eq!(world.gate.calls(), [1, 1], "a for the first, b for the third");
    world.gate.open();
    assert_eq!(look(&mut two), Some(vec!["a".to_owned()]));
    assert_eq!(look(&mut one), Some(vec!["a".to_owned()]));
    assert_eq!(look(&mut more), Some(vec!["b".to_owned(), "a".to_owned()]));
    assert_eq!(
        look(&mut world.watcher(&["b"], KEPT_SECONDS)),
        Some(vec!["b".to_owned()])
    );
    assert_eq!(world.gate.calls().len(), 2, "what was said is kept");
    assert_eq!(
        look(&mut world.watcher(&["b"], KEPT_SECONDS + 1)),
        Some(vec!["b".to_owned()])
    );
    assert_eq!(world.gate.calls().len(), 3, "but not for long");
}

#[test]
fn who_goes_leaves_the_question_to_those_who_stay() {
    let world = World::new();
    let (mut one, mut two) = (world.watcher(&["a"], 0), world.watcher(&["a"], 0));
    assert_eq!((look(&mut one), look(&mut two)), (None, None));
    drop(one);
    world.gate.open();
    assert_eq!(look(&mut two), Some(vec!["a".to_owned()]));
    assert_eq!(world.gate.calls(), [1]);
    let alone = World::new();
    let mut first = alone.watcher(&["a"], 0);
    assert_eq!(look(&mut first), None);
    drop(first);
    alone.gate.open();
    assert_eq!(look(&mut alone.watcher(&["a"], 0)), Some(vec!["a".to_owned()]));
    assert_eq!(alone.gate.calls(), [1, 1], "nobody asked on");
}

#[test]
fn failures_are_told_and_not_kept() {
    let world = World::new();
    let (mut one, mut two) = (world.watcher(&["a"], 0), world.watcher(&["a"], 0));
    assert_eq!((look(&mut one), look(&mut two)), (None, None));
    world.gate.0.lock().fails = true;
    world.gate.open();
    let why = "conversion webhook for e.io/v1, Kind=Foo failed: not now".to_owned();
    assert_eq!(look(&mut one), Some(vec![why.clone()]));
    assert_eq!(look(&mut two), Some(vec![why]));
    world.gate.0.lock().fails = false;
    assert_eq!(look(&mut world.watcher(&["a"], 0)), Some(vec!["a".to_owned()]));
    assert_eq!(world.gate.calls(), [1, 1]);
}

#[test]
fn what_is_kept_has_a_bound() {
    let mut shelf = CachedResponses::default();
    let place = |n: u8| (ClusterName::bound_crds(), [n; 32]);
    let large: Answer = Ok(Arc::new(json!("x".repeat(KEPT_BYTES_MAX / 2))));
    for n in 0..4 {
        let in_flight = futures_util::future::ready(Answers::default()).boxed().shared();
        shelf.begin(place(n), in_flight.downgrade().expect("is new"), Timestamp(0));
        shelf.settle(place(n), &large);
        shelf.forget(Timestamp(0));
    }
    assert!(shelf.bytes <= KEPT_BYTES_MAX, "{}", shelf.bytes);
    assert_eq!(shelf.slots.len(), 1, "the youngest");
    shelf.forget(Timestamp(KEPT_SECONDS + 1));
    assert_eq!((shelf.bytes, shelf.slots.len(), shelf.order.len()), (0, 0, 0));
}
