//! `insula conversion webhook`: who converts for a Kubernetes cluster, as the cluster sees it.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStderr},
};

use insula_e2e::{Server, Who, insula};
use serde_json::{Value, json};

use crate::tools::{ran, sample};

/// A webhook that runs until the test ends.
struct Webhook {
    process: Child,
    said: BufReader<ChildStderr>,
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
        let said = BufReader::new(process.stderr.take().unwrap());
        let mut webhook = Self {
            process,
            said,
            url: String::new(),
        };
        assert!(webhook.says().starts_with("converts "));
        webhook.url = webhook.says().strip_prefix("answering on ").unwrap().to_owned();
        webhook
    }

    /// Its next line.
    fn says(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// What it answers to an API server that trusts `server`'s authority.
    fn asked(&self, server: &Server, to: &str, object: &Value) -> Result<Value, String> {
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

#[test]
fn a_review_is_answered_and_nothing_is_lost_on_the_way() {
    let server = insula_e2e::shared();
    let pki = |name: &str| server.data_dir().join("pki").join(name);
    let folder = sample("computed");
    let webhook = Webhook::start(&folder, &pki("server.crt"), &pki("server.key"));
    let convert = |to: &str, object: &Value| webhook.asked(&server, to, object).unwrap();
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
fn a_certificate_is_taken_up_when_its_files_change() {
    let server = insula_e2e::shared();
    let files = tempfile::tempdir().unwrap();
    let [certificate, key] = ["tls.crt", "tls.key"].map(|name| files.path().join(name));
    let put = |name: &str| {
        for (kind, to) in [("crt", &certificate), ("key", &key)] {
            fs::copy(server.data_dir().join("pki").join(format!("{name}.{kind}")), to).unwrap();
        }
    };
    // An administrator's certificate names no server, so that nobody who calls one trusts it.
    put("shard-admin");
    let mut webhook = Webhook::start(&sample("computed"), &certificate, &key);
    let error = webhook.asked(&server, "v1", &engine()).unwrap_err();
    assert!(error.contains("InvalidCertificate"), "{error}");

    put("server");
    let mut said = webhook.says();
    // The two files do not change at once.
    if said.starts_with("warning: ") {
        said = webhook.says();
    }
    assert_eq!(said, "the certificate has changed");
    let answer = webhook.asked(&server, "v1", &engine()).unwrap();
    assert_eq!(answer["result"]["status"], "Success");
}
