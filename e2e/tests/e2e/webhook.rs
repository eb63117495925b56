//! `insula conversion webhook`, a converter for a Kubernetes cluster, from the cluster's side.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStderr},
};

use insula_e2e::{Apiextensions, Client, Server, Who, insula, until};
use serde_json::{Value, json};

use crate::tools::{ran, sample};

/// A webhook that runs until the test ends.
struct Webhook {
    process: Child,
    stderr: BufReader<ChildStderr>,
    url: String,
}

impl Webhook {
    fn start(folder: &str, certificate: &Path, key: &Path) -> Self {
        let mut command = insula(&["conversion", "webhook", "-f", folder, "--listen", "127.0.0.1:0"]);
        let mut process = command
            .arg("--tls-cert")
            .arg(certificate)
            .arg("--tls-key")
            .arg(key)
            .spawn()
            .unwrap();
        let stderr = BufReader::new(process.stderr.take().unwrap());
        let mut webhook = Self {
            process,
            stderr,
            url: String::new(),
        };
        assert!(webhook.line().starts_with("converts "));
        webhook.url = webhook.line().strip_prefix("answering on ").unwrap().to_owned();
        webhook
    }

    /// Returns its next line.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Returns its answer to an API server that trusts `server`'s authority.
    fn review(&self, server: &Server, to: &str, object: &Value) -> Result<Value, String> {
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(insula_e2e::tls(&server.data_dir(), &Who::Anonymous))
            .https_only()
            .enable_http1()
            .build();
        let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build(connector);
        let review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": {"uid": "7", "desiredAPIVersion": format!("samples.example.io/{to}"), "objects": [object]}});
        let request = http::Request::post(format!("{}/convert", self.url))
            .body(review.to_string())
            .unwrap();
        let answer = insula_e2e::runtime().block_on(async {
            let response = client.request(request).await.map_err(|error| format!("{error:?}"))?;
            assert_eq!(response.status(), 200);
            let body = http_body_util::BodyExt::collect(response.into_body()).await;
            Ok::<_, String>(body.unwrap().to_bytes())
        })?;
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["response"]["uid"], "7");
        Ok(answer["response"].clone())
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn engine() -> Value {
    json!({"apiVersion": "samples.example.io/v2", "kind": "Engine", "metadata": {"name": "v8"},
        "spec": {"liters": 6, "label": "loud", "mode": "Slow", "comment": "only v2 knows"}})
}

/// Runs `insula conversion check`, and returns its exit code and its directions.
fn check(folder: &str, arguments: &[&str]) -> (i32, Value, String) {
    let fixed = ["conversion", "check", "-f", folder, "--objects", "40", "-o", "json"];
    let (code, out, error) = ran(&[&fixed, arguments].concat(), "");
    (code, serde_json::from_str(&out).unwrap_or_default(), error)
}

#[test]
fn rules_are_compared_with_a_webhook() {
    let server = insula_e2e::shared();
    let pki = |name: &str| server.data_dir().join("pki").join(name);
    let folder = sample("field-to-field");
    let webhook = Webhook::start(&folder, &pki("server.crt"), &pki("server.key"));
    let authority = pki("ca.crt");
    let trusting = |url: &str| {
        let authority = authority.to_str().unwrap();
        check(&folder, &["--against", url, "--certificate-authority", authority])
    };
    let (code, directions, error) = trusting(&webhook.url);
    assert_eq!(code, 0, "{directions}{error}");
    let counts = |direction: &Value| direction["objects"] == direction["agree"] && direction["objects"] != 0;
    let directions = directions.as_array().unwrap();
    assert!(directions.len() == 2 && directions.iter().all(counts), "{directions:?}");
    // A certificate that is not trusted, and nobody.
    let (code, _, error) = check(&folder, &["--against", &webhook.url]);
    assert!(code == 2 && error.contains(&webhook.url), "{error}");
    let url = webhook.url.clone();
    drop(webhook);
    let (code, _, error) = trusting(&url);
    assert!(code == 2 && error.contains("Connection refused"), "{error}");
}

#[test]
fn rules_are_compared_with_a_command() {
    let folder = sample("field-to-field");
    let told = |status: &str| format!("printf '{{\"response\":{{\"result\":{status},\"convertedObjects\":[]}}}}'");
    let (code, directions, _) = check(
        &folder,
        &["--against", &told("{\"status\":\"Failed\",\"message\":\"no\"}")],
    );
    assert_eq!((code, &directions[0]["agree"]), (1, &json!(0)), "{directions}");
    // The smallest object that there is.
    let difference = json!({"object": {"apiVersion": "samples.example.io/v1", "kind": "Person"}, "field": "",
        "rules": "converts it", "other": "refuses it: no"});
    assert_eq!(directions[0]["difference"], difference);
    for (command, why) in [
        (
            told("{\"status\":\"Success\"}"),
            "the answer has 0 objects instead of 41",
        ),
        (
            "cat".to_owned(),
            "the answer is no ConversionReview: it has no response.result.status",
        ),
        ("echo no".to_owned(), "the answer is no ConversionReview"),
        ("exit 7".to_owned(), "exit status: 7"),
    ] {
        let (code, _, error) = check(&folder, &["--against", &command]);
        assert!(code == 2 && error.contains(why), "{command}: {error}");
    }
}

#[test]
fn the_conversion_webhook_round_trips_objects() {
    let server = insula_e2e::shared();
    let pki = |name: &str| server.data_dir().join("pki").join(name);
    let folder = sample("computed");
    let webhook = Webhook::start(&folder, &pki("server.crt"), &pki("server.key"));
    let convert = |to: &str, object: &Value| webhook.review(&server, to, object).unwrap();
    let engine = engine();
    let mut stored = convert("v1", &engine)["convertedObjects"][0].clone();
    assert_eq!(stored["spec"], json!({"size": "6", "label": "loud"}));
    stored["spec"]["size"] = json!("8");
    let back = convert("v2", &stored)["convertedObjects"][0].clone();
    assert_eq!(
        back["spec"],
        json!({"liters": 8, "label": "loud", "mode": "Slow", "comment": "only v2 knows"})
    );
    assert_eq!(back["metadata"], engine["metadata"]);
    stored["spec"]["size"] = json!("huge");
    let failed = convert("v2", &stored);
    let message = failed["result"]["message"].as_str().unwrap();
    assert!(
        failed["result"]["status"] == "Failed" && message.starts_with("Engine v8: converting"),
        "{failed}"
    );

    let key = pki("server.key");
    let key = key.to_str().unwrap();
    let (code, _, error) = ran(
        &[
            "conversion",
            "webhook",
            "-f",
            &folder,
            "--tls-cert",
            key,
            "--tls-key",
            key,
        ],
        "",
    );
    assert!(code == 5 && error.contains("cannot be used for TLS"), "{code} {error}");
}

#[test]
fn a_changed_certificate_is_reloaded() {
    let server = insula_e2e::shared();
    let files = tempfile::tempdir().unwrap();
    let [certificate, key] = ["tls.crt", "tls.key"].map(|name| files.path().join(name));
    let put = |name: &str| {
        for (kind, to) in [("crt", &certificate), ("key", &key)] {
            fs::copy(server.data_dir().join("pki").join(format!("{name}.{kind}")), to).unwrap();
        }
    };
    // An administrator's certificate names no server, so that no client trusts it for one.
    put("shard-admin");
    let mut webhook = Webhook::start(&sample("computed"), &certificate, &key);
    let error = webhook.review(&server, "v1", &engine()).unwrap_err();
    assert!(error.contains("InvalidCertificate"), "{error}");

    put("server");
    let mut line = webhook.line();
    // The two files do not change at once.
    if line.starts_with("warning: ") {
        line = webhook.line();
    }
    assert_eq!(line, "the certificate has changed");
    let answer = webhook.review(&server, "v1", &engine()).unwrap();
    assert_eq!(answer["result"]["status"], "Success");
}

fn engines(version: &str) -> String {
    format!("/apis/samples.example.io/{version}/engines")
}

fn v8(version: &str) -> String {
    format!("{}/v8", engines(version))
}

/// Writes each version and reads the other. v2 keeps the fields that only it has.
fn write_both_versions(kube: &Client) {
    kube.merge(&v8("v1"), &json!({"spec": {"size": "8"}})).expect(200);
    let both = json!({"liters": 8, "label": "loud", "mode": "Slow", "comment": "only v2 knows"});
    assert_eq!(kube.get(&v8("v2")).expect(200)["spec"], both);
    kube.merge(
        &v8("v2"),
        &json!({"metadata": {"labels": {"a": "b"}}, "spec": {"label": "quiet"}}),
    )
    .expect(200);
    let stored = kube.get(&v8("v1")).expect(200);
    assert_eq!(stored["spec"], json!({"size": "8", "label": "quiet"}));
    assert_eq!(stored["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(
        stored["metadata"]["uid"],
        kube.get(&v8("v2")).expect(200)["metadata"]["uid"]
    );
}

/// Lists more objects: one review converts all of them, in order.
fn list_many(kube: &Client) {
    for n in 0..20 {
        let small = json!({"apiVersion": "samples.example.io/v1", "kind": "Engine",
            "metadata": {"name": format!("e{n:02}")}, "spec": {"size": n.to_string()}});
        kube.post(&engines("v1"), &small).expect(201);
    }
    let list = kube.get(&engines("v2")).expect(200);
    let liters: Vec<&Value> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| &e["spec"]["liters"])
        .collect();
    let wanted: Vec<Value> = (0..20).chain([8]).map(Value::from).collect();
    assert_eq!(liters, wanted.iter().collect::<Vec<_>>());
}

/// Kubernetes' own handling of the answers. Its server is built from Go's module proxy
/// (docs/tools.md says how), so this runs only where it has been built.
#[test]
fn kubernetes_converts_with_the_webhook() {
    let server = insula_e2e::shared();
    let Some(kubernetes) = Apiextensions::start(&server) else {
        return;
    };
    let pki = |name: &str| server.data_dir().join("pki").join(name);
    let folder = sample("computed");
    let webhook = Webhook::start(&folder, &pki("server.crt"), &pki("server.key"));
    let schema = fs::read_to_string(Path::new(&folder).join("schema.yaml")).unwrap();
    let mut definition: Value = serde_saphyr::from_str(&schema).unwrap();
    let authority = k8s_openapi::ByteString(fs::read(pki("ca.crt")).unwrap());
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"],
        "clientConfig": {"url": format!("{}/convert", webhook.url), "caBundle": authority}}});
    let kube = kubernetes.client();
    kube.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition)
        .expect(201);
    let created = until("engines are served", || {
        let answer = kube.post(&engines("v2"), &engine());
        (answer.code != 404).then_some(answer)
    });
    assert_eq!(created.expect(201)["spec"], engine()["spec"]);

    // Stored as v1, and shown there with an annotation for the fields that v1 lacks.
    let stored = kube.get(&v8("v1")).expect(200);
    assert_eq!(stored["spec"], json!({"size": "6", "label": "loud"}));
    assert!(
        stored["metadata"]["annotations"]["insula.io/residual"].is_string(),
        "{stored}"
    );
    assert_eq!(kube.get(&v8("v2")).expect(200)["metadata"]["annotations"], Value::Null);

    write_both_versions(kube);
    list_many(kube);
    // A refusal names the rule that cannot convert the object. The object can still be written
    // through v1, read in v2, and deleted.
    kube.merge(&v8("v1"), &json!({"spec": {"size": "huge"}})).expect(200);
    let failed = kube.get(&v8("v2"));
    let message = failed.body["message"].as_str().unwrap_or_default();
    assert!(
        failed.code == 500
            && message
                .starts_with("conversion webhook for samples.example.io/v1, Kind=Engine failed: Engine v8: converting"),
        "{}",
        failed.text
    );
    kube.delete(&v8("v1")).expect(200);
}
