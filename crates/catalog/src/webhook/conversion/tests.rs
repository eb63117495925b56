use super::*;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

/// A webhook that responds with the result of a function and records its calls.
struct Says<F> {
    answer: F,
    calls: Mutex<Vec<(crate::Call, Json)>>,
}

impl<F: Fn(&Json) -> Json + Send + Sync> Outbound for Says<F> {
    fn post(&self, call: crate::Call) -> BoxFuture<'_, Result<Vec<u8>, String>> {
        let review: Json = serde_json::from_slice(&call.body).expect("a review is JSON");
        let answer = (self.answer)(&review).to_string().into_bytes();
        self.calls.lock().push((call, review));
        Box::pin(async { Ok(answer) })
    }
}

struct Zero;

impl Rng for Zero {
    fn fill(&self, buffer: &mut [u8]) {
        buffer.fill(0);
    }
}

fn webhook(reviews: Json) -> Arc<Webhook> {
    let conversion = json!({"strategy": "Webhook", "webhook": {
        "clientConfig": {"url": "https://a.example/convert"}, "conversionReviewVersions": reviews}});
    Webhook::read(&"e.io".into(), &conversion).expect("it is a webhook")
}

fn pending_call(name: &str, to: &str) -> PendingCall {
    PendingCall::Convert {
        webhook: webhook(json!(["v1"])),
        object: json!({"apiVersion": "e.io/v1", "kind": "Foo", "metadata": {"name": name, "labels": {"a": "b"}}}),
        to: to.into(),
    }
}

fn answers(pending_calls: &[PendingCall], answer: impl Fn(&Json) -> Json + Send + Sync) -> (Vec<String>, Vec<Json>) {
    let outbound = Says {
        answer,
        calls: Mutex::default(),
    };
    let cluster = ClusterName::bound_crds();
    let mut told = vec![String::new(); pending_calls.len()];
    for review in reviews(pending_calls, &Zero) {
        let answers = futures_util::FutureExt::now_or_never(review.send(&outbound, &cluster)).expect("nothing waits");
        for (index, answer) in answers {
            told[index] = answer.map_or_else(|why| why.to_string(), |object| object.to_string());
        }
    }
    let calls = outbound.calls.into_inner().into_iter().map(|(_, review)| review);
    (told, calls.collect())
}

/// Returns the objects of a review in the desired version.
fn obliging(review: &Json) -> Json {
    let mut objects = review["request"]["objects"].clone();
    for object in objects.as_array_mut().into_iter().flatten() {
        object["apiVersion"] = review["request"]["desiredAPIVersion"].clone();
    }
    json!({"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": {
        "uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": objects}})
}

#[test]
fn questions_into_one_version_are_one_review() {
    let pending_calls = [
        pending_call("a", "v2"),
        pending_call("b", "v3"),
        pending_call("c", "v2"),
    ];
    let (told, calls) = answers(&pending_calls, obliging);
    let sizes: Vec<(&Json, usize)> = calls
        .iter()
        .map(|review| {
            let request = &review["request"];
            (
                &request["desiredAPIVersion"],
                request["objects"].as_array().map_or(0, Vec::len),
            )
        })
        .collect();
    assert_eq!(sizes, [(&json!("e.io/v2"), 2), (&json!("e.io/v3"), 1)]);
    for (told, (name, to)) in told.iter().zip([("a", "v2"), ("b", "v3"), ("c", "v2")]) {
        let want = json!({"apiVersion": format!("e.io/{to}"), "kind": "Foo",
            "metadata": {"name": name, "labels": {"a": "b"}}});
        assert_eq!(*told, want.to_string());
    }
}

#[test]
fn one_bad_object_spoils_its_review_and_no_other() {
    let pending_calls = [
        pending_call("a", "v2"),
        pending_call("b", "v2"),
        pending_call("c", "v3"),
    ];
    let (told, _) = answers(&pending_calls, |review| {
        let mut answer = obliging(review);
        if review["request"]["desiredAPIVersion"] == "e.io/v2" {
            answer["response"]["convertedObjects"][1]["metadata"]["name"] = json!("other");
        }
        answer
    });
    let why = "conversion webhook for e.io/v1, Kind=FooList returned invalid converted object at index 1: must have the \
               same name: b != other";
    assert_eq!(told[..2], [why, why]);
    assert!(told[2].starts_with('{'), "{}", told[2]);
}

#[test]
fn metadata_comes_back_but_for_labels_and_annotations() {
    let original = json!({"name": "a", "finalizers": ["f"], "labels": {"a": "b"}, "annotations": {"x": "y"}});
    for (converted, want) in [
        (json!({}), Ok(json!({"name": "a", "finalizers": ["f"]}))),
        (
            json!({"finalizers": [], "labels": {"c": "d"}, "annotations": null}),
            Ok(json!({"name": "a", "finalizers": ["f"], "labels": {"c": "d"}})),
        ),
        (
            json!([]),
            Err("invalid metadata of type []interface {} in converted object"),
        ),
        (
            json!({"labels": {"a": 1}}),
            Err("metadata.labels[a] must be a string, but is int64 in converted object"),
        ),
        (
            json!({"annotations": "a"}),
            Err("invalid metadata.annotations of type string in converted object"),
        ),
    ] {
        assert_eq!(
            restored(&original, Some(&converted)),
            want.map_err(str::to_owned),
            "{converted}"
        );
    }
    assert!(restored(&original, None).is_err());
}

#[test]
fn the_first_review_version_that_is_known_is_spoken() {
    for (versions, want) in [
        (json!(["v9", "v1beta1", "v1"]), "v1beta1"),
        (json!(["v1", "v1beta1"]), "v1"),
    ] {
        assert_eq!(webhook(versions).review, want);
    }
    assert_eq!(Webhook::read(&"e.io".into(), &json!({"strategy": "None"})), None);
    // Kubernetes does not check the uid of a v1beta1 review.
    let PendingCall::Convert { object, to, .. } = pending_call("a", "v2") else {
        panic!("it is about a conversion");
    };
    let older = PendingCall::Convert {
        webhook: webhook(json!(["v1beta1"])),
        object,
        to,
    };
    let (told, _) = answers(&[older], |review| {
        let mut answer = obliging(review);
        answer["response"]["uid"] = json!("another");
        answer
    });
    assert!(told[0].starts_with('{'), "{}", told[0]);
}

#[test]
fn services_go_by_their_names() {
    let service = |path: Json| json!({"service": {"name": "s", "namespace": "n", "path": path, "port": 8443}});
    for (config, want) in [
        (service(json!("/convert")), "https://s.n.svc:8443/convert"),
        (service(Json::Null), "https://s.n.svc:8443/"),
        (json!({"url": "https://a/b"}), "https://a/b"),
    ] {
        assert_eq!(
            endpoint(&config).map(|endpoint| endpoint.url.to_string()).as_deref(),
            Some(want)
        );
    }
    let empty = endpoint(&json!({"url": "https://a", "caBundle": ""})).expect("a URL is enough");
    assert_eq!(empty.ca_bundle, None);
}
