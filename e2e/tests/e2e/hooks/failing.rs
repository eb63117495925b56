//! Conversion webhooks that fail, and what they can and cannot prevent.

use super::{DEFINITIONS, GROUP, answer, define, object, redirect, server};
use insula_e2e::{Client, Hook, Server, until, workspace};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Returns the paths of broken answers, each with the error that it causes for the object `a`.
fn broken_answers(hook: &Hook, uid: &str) -> Vec<(&'static str, String)> {
    let address = hook.client_config("")["url"].as_str().unwrap().to_owned();
    let post = |path: &str, why: &str| format!("failed: Post \"{address}{path}?timeout=2s\": {why}");
    vec![
        ("/uid", "failed: expected response.uid=".to_owned()),
        (
            "/review",
            "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, \
             got apiextensions.k8s.io/v1, Kind=Review"
                .into(),
        ),
        ("/says-no", "failed: not today".into()),
        ("/silent", "failed: response.result.status was '', not 'Success'".into()),
        ("/fewer", "returned 0 objects, expected 1".into()),
        (
            "/version",
            "returned invalid object at index 0: invalid groupVersion (expected hooks.example.io/v2, \
             received hooks.example.io/v3)"
                .into(),
        ),
        (
            "/kind",
            "returned invalid object at index 0: invalid kind (expected Notes, received Other)".into(),
        ),
        (
            "/name",
            "returned invalid object: must have the same name: a != other".into(),
        ),
        (
            "/object-uid",
            format!("returned invalid object: must have the same UID: {uid} != other"),
        ),
        (
            "/label",
            "returned invalid metadata: metadata.labels: Invalid value: \"a b\"".into(),
        ),
        ("/hang", post("/hang", "context deadline exceeded")),
        ("/huge", post("/huge", "the answer is larger than ")),
        (
            "/elsewhere",
            post(
                "/elsewhere",
                "the server responded with the status code 307 but did not return more information",
            ),
        ),
        (
            "/rejected",
            post(
                "/rejected",
                "the server rejected our request due to an error in our request",
            ),
        ),
        (
            "/busy",
            post("/busy", "the server is currently unable to handle the request"),
        ),
        (
            "/broken",
            post(
                "/broken",
                "an error on the server (\"unknown\") has prevented the request from succeeding",
            ),
        ),
    ]
}

#[test]
fn conversion_webhooks_that_break_the_contract_are_refused() {
    let server = server();
    let hook = Hook::start(&server, answer);
    let (path, _) = workspace(&server.admin(), "hooks");
    let at = server.admin().in_workspace(&path);
    define(&at, "notes", &hook.client_config("/convert"));
    let v1 = format!("/apis/{GROUP}/v1/notes");
    let v2 = format!("/apis/{GROUP}/v2/notes");
    let made = at
        .post(&v1, &object("notes", "v1", "a", json!({"text": "one"})))
        .expect(201);
    let uid = made["metadata"]["uid"].as_str().unwrap();
    let what = "conversion webhook for hooks.example.io/v1, Kind=Notes ";
    for (path, why) in broken_answers(&hook, uid) {
        redirect(&at, "notes", &hook.client_config(path));
        let begun = Instant::now();
        let want = format!("{what}{why}");
        let refused = until("the new converter is asked", || {
            let got = at.get(&format!("{v2}/a"));
            (got.code == 500
                && got.body["message"]
                    .as_str()
                    .is_some_and(|message| message.starts_with(&want)))
            .then_some(got)
        });
        assert_eq!(refused.body["reason"], Value::Null, "{path}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{path}");
        // Such an answer prevents the write. Requests without a conversion succeed.
        let written = at.post(&v2, &object("notes", "v2", "b", json!({"texts": ["two"]})));
        assert_eq!(written.code, 500, "{path}: {}", written.text);
        at.get(&format!("{v1}/b")).expect(404);
        at.get(&format!("{v1}/a")).expect(200);
    }
    // A converter cannot set fields that only the server sets.
    redirect(&at, "notes", &hook.client_config("/owner"));
    let seen = until("the new converter is asked", || {
        let got = at.get(&format!("{v2}/a"));
        (got.code == 200).then_some(got)
    });
    assert_eq!(seen.body["metadata"].get("ownerReferences"), None);
    a_failing_webhook_fails_every_verb(&at, &hook);
    a_failing_webhook_holds_no_workspace(&server, &path, &at);
}

/// Fails to change or delete an object through the version that needs the webhook, as in
/// Kubernetes. The stored version needs none.
fn a_failing_webhook_fails_every_verb(at: &Client, hook: &Hook) {
    let (v1, v2) = (format!("/apis/{GROUP}/v1/notes"), format!("/apis/{GROUP}/v2/notes"));
    redirect(at, "notes", &hook.client_config("/says-no"));
    until("the failing converter is asked", || {
        (at.get(&format!("{v2}/a")).code == 500).then_some(())
    });
    let labelled = json!({"metadata": {"labels": {"example.io/a": "b"}}});
    let failed = [
        at.delete(&format!("{v2}/a")),
        at.delete(&format!("{v2}/a?dryRun=All")),
        at.delete(&v2),
        at.merge(&format!("{v2}/a"), &labelled),
    ];
    for answer in failed {
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert_eq!(answer.code, 500, "{}", answer.text);
        assert!(message.ends_with("Kind=Notes failed: not today"), "{message}");
    }
    let kept = at.get(&format!("{v1}/a")).expect(200);
    assert_eq!(kept["metadata"]["labels"], Value::Null);
    at.merge(&format!("{v1}/a"), &labelled).expect(200);
    at.delete(&format!("{v1}/a")).expect(200);
}

/// Deletes a workspace with an object that only the failing webhook could convert to the storage
/// version.
fn a_failing_webhook_holds_no_workspace(server: &Server, path: &str, at: &Client) {
    let left = object("notes", "v1", "left", json!({"text": "one"}));
    at.post(&format!("/apis/{GROUP}/v1/notes"), &left).expect(201);
    let definition = format!("{DEFINITIONS}/notes.{GROUP}");
    let mut changed = at.get(&definition).expect(200);
    changed["spec"]["versions"][0]["storage"] = json!(false);
    changed["spec"]["versions"][1]["storage"] = json!(true);
    at.put(&definition, &changed).expect(200);
    let root = server.admin().in_workspace("root");
    let name = path.rsplit(':').next().unwrap();
    let workspace = format!("/apis/tenancy.kcp.io/v1alpha1/workspaces/{name}");
    root.delete(&workspace).expect(200);
    until("the workspace is gone", || {
        (root.get(&workspace).code == 404).then_some(())
    });
}
