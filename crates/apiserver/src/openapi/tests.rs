use super::{cache::CACHE_BYTES_MAX, *};
use crate::fixtures;
use futures_util::FutureExt;
use http_body_util::BodyExt;
use insula_meter::{Bounds, Scheduler, TenantPays};

/// The definition of the scenario `crd-openapi-v3`.
fn golden() -> Vec<Served> {
    let schema = json!({
        "type": "object", "description": "Widget is a thing", "required": ["spec"],
        "properties": {
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}}},
            "spec": {
                "type": "object", "description": "What is wanted",
                "properties": {
                    "size": {"type": "integer", "format": "int32", "minimum": 1, "default": 1},
                    "colour": {"type": "string", "nullable": true, "enum": ["red", "green"]},
                    "port": {"x-kubernetes-int-or-string": true},
                    "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                    "extra": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "map": {"type": "object", "additionalProperties": {"type": "number"}},
                    "template": {"type": "object", "x-kubernetes-embedded-resource": true,
                                 "x-kubernetes-preserve-unknown-fields": true},
                },
                "oneOf": [{"required": ["colour"]}, {"required": ["port"]}],
            },
            "status": {"type": "object", "properties": {"size": {"type": "integer"}}},
        },
    });
    let mut widgets = fixtures::widgets(json!([{
        "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
    }]));
    widgets["group"] = json!("golden.example.com");
    vec![fixtures::served(&widgets)]
}

fn plain(cache: &Cache, wanted: &Wanted<'_>) -> Json {
    let document = cache
        .document(wanted, &FREE)
        .now_or_never()
        .expect("nobody else makes parts")
        .expect("nothing ends it");
    let chunks: Vec<bytes::Bytes> = document.plain().collect::<Result<_, _>>().expect("is whole");
    serde_json::from_slice(&chunks.concat()).expect("documents are JSON")
}

fn parsed(wanted: &Wanted<'_>) -> Json {
    plain(&Cache::default(), wanted)
}

/// Collects the body of an answer.
fn whole(answer: http::Response<axum::body::Body>) -> http::Response<bytes::Bytes> {
    let (head, body) = answer.into_parts();
    let body = body.collect().now_or_never().expect("the body waits for nothing");
    http::Response::from_parts(head, body.expect("is whole").to_bytes())
}

fn second(cache: &Cache, served: &[Served], headers: &http::HeaderMap) -> http::Response<bytes::Bytes> {
    let answer = serve::v2(cache, served, &[], headers, &FREE).now_or_never();
    whole(answer.expect("nobody else makes parts").expect("is not limited"))
}

fn third(
    cache: &Cache,
    served: &[Served],
    path: &str,
    conditions: serve::Conditions<'_>,
) -> Option<http::Response<bytes::Bytes>> {
    let answer = serve::v3(cache, served, path, conditions).now_or_never();
    answer
        .expect("nobody else makes parts")
        .expect("is not limited")
        .map(whole)
}

/// A user without limits.
static FREE: std::sync::LazyLock<serve::Payer> = std::sync::LazyLock::new(|| serve::Payer {
    user: "ann".into(),
    budget: Default::default(),
    meter: insula_meter::Meter::unbounded(),
});

/// The account of a request that has used its CPU time, which nobody knows before it is asked.
struct Spent;

impl Scheduler for Spent {
    fn check(&self, _: u64) -> Result<(), Ended> {
        Err(Ended::Spent)
    }

    fn ended(&self) -> Option<Ended> {
        None
    }

    fn bound(&self, _: Option<Bounds>) {}

    fn run_without_turns(&self, pays: TenantPays, work: &mut dyn FnMut()) {
        assert_eq!(pays, TenantPays::ByRunner, "the task of the connection is charged");
        work();
    }
}

#[test]
fn documents_count_for_the_cpu_time_of_their_request() {
    let (served, cache) = (golden(), Cache::default());
    let payer = serve::Payer {
        user: "ann".into(),
        budget: Default::default(),
        meter: insula_meter::Meter::new(Spent),
    };
    let third = v3(&served, "apis/golden.example.com/v1", false).expect("is served");
    for wanted in [third, super::v2(&served, &[], V2::Json)] {
        let made = cache.document(&wanted, &payer).now_or_never();
        assert_eq!(made.expect("nobody else makes parts").err(), Some(Ended::Spent));
        let made = cache.document(&wanted, &FREE).now_or_never();
        assert!(made.expect("nobody else makes parts").is_ok());
    }
}

#[test]
fn the_index_names_documents_by_their_content() {
    let served = golden();
    let index = index(&served, false);
    let document = v3(&served, "apis/golden.example.com/v1", false).expect("is served");
    let url = format!("/openapi/v3/apis/golden.example.com/v1?hash={}", document.hash);
    assert_eq!(
        index["paths"]["apis/golden.example.com/v1"],
        json!({"serverRelativeURL": url})
    );
    let paths = |index: &Json| index["paths"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(paths(&index), ["api", "apis", "apis/golden.example.com/v1", "version"]);
    let group = "apis/golden.example.com";
    assert!(paths(&super::index(&served, true)).iter().any(|path| path == group));
    assert!(v3(&served, group, false).is_none());
    let document = parsed(&v3(&served, group, true).expect("is served"));
    let answer = &document["paths"]["/apis/golden.example.com/"]["get"]["responses"]["200"];
    let schema = &answer["content"]["application/json"]["schema"]["$ref"];
    let name = schema
        .as_str()
        .and_then(|schema| schema.strip_prefix(super::COMPONENTS))
        .unwrap();
    assert!(document["components"]["schemas"][name].is_object(), "{document}");
    let document = v3(&served, "apis/golden.example.com/v1", false).expect("is served");
    assert!(v3(&served, "apis/golden.example.com/v2", false).is_none());
    let again = v3(&served, "/apis/golden.example.com/v1/", false).map(|again| again.hash);
    assert_eq!(again.as_ref(), Some(&document.hash));
    let other = vec![fixtures::served(&fixtures::widgets(
        json!([{"name": "v1", "served": true, "storage": true}]),
    ))];
    assert_ne!(super::index(&other, false), index);
}

#[test]
fn kubectl_finds_what_it_looks_for() {
    let document = parsed(&v3(&golden(), "apis/golden.example.com/v1", false).expect("is served"));
    let item = &document["paths"]["/apis/golden.example.com/v1/namespaces/{namespace}/widgets/{name}"];
    let gvk = json!({"group": "golden.example.com", "version": "v1", "kind": "Widget"});
    assert_eq!(item["patch"]["x-kubernetes-group-version-kind"], gvk);
    let parameters = item["patch"]["parameters"].as_array().expect("a list");
    assert!(
        parameters
            .iter()
            .any(|p| p["name"] == "fieldValidation" && p["in"] == "query")
    );
    let schema = &document["components"]["schemas"]["com.example.golden.v1.Widget"];
    assert_eq!(schema["x-kubernetes-group-version-kind"], json!([gvk]));
    assert_eq!(schema["properties"]["spec"]["description"], "What is wanted");
}

/// Every reference leads somewhere, in both versions.
#[test]
fn references_resolve() {
    fn targets(value: &Json, found: &mut Vec<String>) {
        match value {
            Json::Object(map) => map.iter().for_each(|(key, value)| match value {
                Json::String(target) if key == "$ref" => found.push(target.trim_start_matches('#').to_owned()),
                value => targets(value, found),
            }),
            Json::Array(list) => list.iter().for_each(|value| targets(value, found)),
            _ => {}
        }
    }
    let served = golden();
    let v3 = v3(&served, "apis/golden.example.com/v1", false).expect("is served");
    for document in [parsed(&v3), parsed(&v2(&served, &[], V2::Json))] {
        let mut found = Vec::new();
        targets(&document, &mut found);
        assert!(found.len() > 20);
        for target in found {
            assert!(document.pointer(&target).is_some(), "{target}");
        }
    }
}

#[test]
fn version_2_says_the_same_in_older_words() {
    let document = parsed(&v2(&golden(), &[], V2::Json));
    let patch = &document["paths"]["/apis/golden.example.com/v1/namespaces/{namespace}/widgets/{name}"]["patch"];
    assert_eq!(patch["operationId"], "patchGoldenExampleComV1NamespacedWidget");
    assert_eq!(
        patch["consumes"],
        json!([
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/apply-patch+yaml"
        ])
    );
    assert_eq!(patch["parameters"][0]["in"], "body");
    assert_eq!(
        patch["responses"]["200"]["schema"],
        json!({"$ref": "#/definitions/com.example.golden.v1.Widget"})
    );
    let spec = &document["definitions"]["com.example.golden.v1.Widget"]["properties"]["spec"];
    assert!(spec["oneOf"].is_null() && spec["properties"]["size"]["type"] == "integer");
}

#[test]
fn the_cache_is_bounded() {
    // No two pieces alike, and none that gets much smaller.
    let mut state = 1u64;
    let mut noise = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    let large: Vec<u8> = (0..CACHE_BYTES_MAX / 4).map(|_| noise()).collect();
    let made: Made = [Piece::compress(&large), Piece::compress(b"")].into();
    let cache = Cache::default();
    for i in 0..10 {
        cache.keep(&i.to_string(), made.clone());
    }
    let kept = cache.kept();
    assert!(kept.bytes <= CACHE_BYTES_MAX && kept.parts.len() == kept.order.len() && !kept.order.is_empty());
}

/// A new API is one more part; the others stay as they were.
#[test]
fn a_change_makes_its_own_part_of_version_2() {
    let (cache, mut served) = (Cache::default(), golden());
    for form in [V2::Json, V2::Protobuf] {
        cache
            .document(&v2(&served, &[], form), &FREE)
            .now_or_never()
            .expect("is made")
            .expect("nothing ends it");
    }
    assert_eq!(cache.kept().order.len(), 2);
    served.push(fixtures::served(&fixtures::widgets(
        json!([{"name": "v1", "served": true, "storage": true}]),
    )));
    let both = v2(&served, &[], V2::Json);
    let document = plain(&cache, &both);
    assert_eq!(cache.kept().order.len(), 3);
    let widgets = document["definitions"].as_object().expect("a map").keys();
    assert_eq!(widgets.filter(|name| name.ends_with(".Widget")).count(), 2);
}

#[test]
fn documents_are_kept_by_their_hash() {
    use http::{HeaderMap, header};
    fn conditions<'a>(headers: &'a HeaderMap, hash: Option<&'a str>) -> serve::Conditions<'a> {
        serve::Conditions {
            payer: &FREE,
            headers,
            hash,
            base: "/clusters/root",
            all_groups: false,
            now: insula_api::Timestamp(0),
        }
    }
    let (cache, served, path) = (Cache::default(), golden(), "apis/golden.example.com/v1");
    let hash = v3(&served, path, false).expect("is served").hash;
    let get = |headers: &HeaderMap, hash| third(&cache, &served, path, conditions(headers, hash)).expect("is served");
    let none = HeaderMap::new();
    let plain = get(&none, None);
    assert_eq!(
        (plain.status().as_u16(), plain.headers().get(header::CACHE_CONTROL)),
        (200, None)
    );
    assert_eq!(plain.headers()[header::ETAG], format!("\"{hash}\""));
    let for_ever = get(&none, Some(&hash));
    assert_eq!(for_ever.headers()[header::CACHE_CONTROL], "public, immutable");
    assert_eq!(for_ever.headers()[header::EXPIRES], "Fri, 01 Jan 1971 00:00:00 GMT");
    let moved = get(&none, Some("0123"));
    assert_eq!(moved.status(), 301);
    assert_eq!(
        moved.headers()[header::LOCATION],
        format!("/clusters/root/openapi/v3/{path}?hash={hash}")
    );
    let known = HeaderMap::from_iter([(header::IF_NONE_MATCH, plain.headers()[header::ETAG].clone())]);
    let same = get(&known, None);
    assert_eq!((same.status().as_u16(), same.body().len()), (304, 0));
    let gzip = HeaderMap::from_iter([(header::ACCEPT_ENCODING, header::HeaderValue::from_static("gzip"))]);
    let packed = get(&gzip, None);
    assert_eq!(
        (
            &packed.headers()[header::CONTENT_ENCODING],
            &packed.headers()[header::ETAG]
        ),
        (
            &header::HeaderValue::from_static("gzip"),
            &plain.headers()[header::ETAG]
        )
    );
    assert!(packed.body().len() < plain.body().len() / 4);
    let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
        .parse()
        .expect("a value");
    let protobuf = HeaderMap::from_iter([(header::ACCEPT, protobuf)]);
    let answer = second(&cache, &served, &protobuf);
    assert_eq!(answer.headers()[header::CONTENT_TYPE], V2::Protobuf.content_type());
    assert!(answer.body().starts_with(b"\x0a\x032.0"), "a gnostic document");
    assert_ne!(answer.headers()[header::ETAG], plain.headers()[header::ETAG]);
    assert_eq!(
        serve::index(index(&served, false).to_string().into(), &protobuf).headers()[header::CONTENT_TYPE],
        "application/json"
    );
    assert!(third(&cache, &served, "apis/none/v1", conditions(&none, None)).is_none());
}

#[test]
fn documents_are_written_as_their_reader_wishes() {
    use http::{HeaderMap, header};
    let (cache, served) = (Cache::default(), golden());
    let (old, dots) = (
        "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    );
    // The header, and what version 2 and version 3 are written in; 406 where that is nothing.
    let rows = [
        ("", Some("application/json"), true),
        ("*/*", Some("application/json"), true),
        ("application/*", Some("application/json"), true),
        ("application/json", Some("application/json"), true),
        (old, Some(dots), false),
        (dots, Some(dots), false),
        (&format!("application/json;q=0.5, {old}"), Some(dots), true),
        (&format!("application/json, {old}"), Some("application/json"), true),
        ("text/html, application/json;q=0.1", Some("application/json"), true),
        ("application/yaml", None, false),
        ("text/*", None, false),
        (
            "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
            None,
            false,
        ),
    ];
    for (accept, version_2, version_3) in rows {
        let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().expect("a header"))]);
        let answer = second(&cache, &served, &headers);
        let got = answer
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|form| form.to_str().ok());
        assert_eq!(got, version_2, "{accept}");
        let conditions = serve::Conditions {
            payer: &FREE,
            headers: &headers,
            hash: None,
            base: "",
            all_groups: false,
            now: insula_api::Timestamp(0),
        };
        let third = third(&cache, &served, "apis/golden.example.com/v1", conditions).expect("is served");
        for (answer, has) in [(answer, version_2.is_some()), (third, version_3)] {
            let code = if has { 200 } else { 406 };
            assert_eq!(
                (answer.status().as_u16(), answer.body().is_empty()),
                (code, !has),
                "{accept}"
            );
        }
    }
}

/// Compares with the recorded answers of a real server, where they are at hand: operations, bodies,
/// schemas without texts.
#[test]
fn golden_openapi() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/golden/scenarios/crd-openapi-v3.golden.json"
    );
    let Ok(text) = std::fs::read_to_string(file) else {
        eprintln!("skipped: {file} is absent");
        return;
    };
    let recorded: Json = serde_json::from_str(&text).expect("recordings are JSON");
    let document = parsed(&v3(&golden(), "apis/golden.example.com/v1", false).expect("is served"));
    assert_eq!(document["info"], recorded["frame"]["body.info"]);
    let want = recorded["operations"]["body.paths"].as_object().expect("a map");
    let got = document["paths"].as_object().expect("a map");
    assert_eq!(got.keys().collect::<Vec<_>>(), want.keys().collect::<Vec<_>>());
    for step in ["operations", "request-and-response-bodies"] {
        for (path, item) in recorded[step]["body.paths"].as_object().expect("a map") {
            for (method, operation) in item
                .as_object()
                .expect("a map")
                .iter()
                .filter(|(key, _)| *key != "parameters")
            {
                for (field, want) in operation.as_object().expect("a map") {
                    assert_eq!(&document["paths"][path][method][field], want, "{path} {method} {field}");
                }
            }
        }
    }
    let widget = "com.example.golden.v1.Widget";
    let mut got = document["components"]["schemas"][widget].clone();
    strip_texts(&mut got);
    assert_eq!(
        got,
        recorded["schemas-without-texts"]["body.components"]["schemas"][widget]
    );
    let names = recorded["schemas-without-texts"]["body.components"]["schemas"]
        .as_object()
        .expect("a map")
        .keys();
    // Sharded lists are not served.
    let names: Vec<_> = names.filter(|name| !name.contains("Shard")).collect();
    assert_eq!(
        document["components"]["schemas"]
            .as_object()
            .expect("a map")
            .keys()
            .collect::<Vec<_>>(),
        names
    );
}

fn strip_texts(value: &mut Json) {
    match value {
        Json::Object(map) => {
            if map.get("description").is_some_and(Json::is_string) {
                map.remove("description");
            }
            map.values_mut().for_each(strip_texts);
        }
        Json::Array(list) => list.iter_mut().for_each(strip_texts),
        _ => {}
    }
}
