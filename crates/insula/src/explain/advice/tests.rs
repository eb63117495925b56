use expect_test::expect_file;

use super::*;
use crate::explain::explanation::explanation;

fn event(change: impl FnOnce(&mut Value)) -> Value {
    let mut event = json!({
        "auditID": "id", "requestURI": "/clusters/root:a/api/v1/namespaces/n/configmaps/m", "verb": "get",
        "user": {"username": "bob"}, "sourceIPs": ["127.0.0.1"],
        "objectRef": {"resource": "configmaps", "namespace": "n", "name": "m", "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "status": "Failure", "reason": "Forbidden", "message": "no", "code": 403},
        "requestReceivedTimestamp": "2026-11-21T22:00:00.000000Z",
        "annotations": {
            "authorization.k8s.io/decision": "forbid", "authorization.k8s.io/reason": "no rule allows it",
            "kcp.io/path": "root:a", "kcp.io/cluster": "c1",
            "request.auth.kcp.io/02-content-decision": "NoOpinion",
                "request.auth.kcp.io/05-local-decision": "NoOpinion",
        },
    });
    change(&mut event);
    event
}

fn denied(event: &mut Value, step: &str) {
    event["annotations"][format!("request.auth.kcp.io/{step}-decision")] = json!("Denied");
}

#[test]
fn a_missing_role_is_proposed() {
    expect_file!["missing_role.txt"].assert_eq(&explanation(&event(|_| ()), "https://s"));
}

#[test]
fn each_refusal_has_its_advice() {
    let code = |code: u64| {
        move |event: &mut Value| {
            event["responseStatus"]["code"] = json!(code);
            event["annotations"] = json!({});
        }
    };
    let noted = |note: &'static str| move |event: &mut Value| event["annotations"]["insula.io/reason"] = json!(note);
    let rows: [(Value, &str); 15] = [
        (
            event(noted(
                "users \"ada\" is forbidden: User \"bob\" cannot impersonate resource \"users\"",
            )),
            "bob may not impersonate bob. A role in the workspace with the verb impersonate",
        ),
        (
            event(noted("the object does not exist, and making it takes the verb create")),
            "- create",
        ),
        (event(|e| denied(e, "02-content")), "name: system:kcp:workspace:access"),
        (
            event(|e| denied(e, "00-systemclusters")),
            "No role changes this: system clusters",
        ),
        (event(|e| denied(e, "00-wildcard")), "Name one"),
        (
            event(|e| denied(e, "00-impersonation")),
            "impersonating a user of the system",
        ),
        (
            event(|e| denied(e, "01-requiredgroups")),
            "authorization.kcp.io/required-groups",
        ),
        (event(|e| denied(e, "03-systemcrd")), "by controllers only"),
        (
            event(|e| denied(e, "04-maxpermissionpolicy")),
            "apis.kcp.io:binding:bob",
        ),
        (
            event(|e| e["user"]["username"] = json!("system:anonymous")),
            "The request had no credential",
        ),
        (
            event(|e| e["user"]["username"] = json!("system:serviceaccount:n:robot")),
            "kind: ServiceAccount",
        ),
        (event(code(401)), "The credential is not one"),
        (event(code(404)), "There is no workspace of this name"),
        (event(code(429)), "A limit on concurrent requests"),
        (event(code(500)), "The server's log has the cause"),
    ];
    for (event, want) in rows {
        let text = explanation(&event, "https://s");
        assert!(text.contains(want), "{want}: {text}");
    }
    let fine = event(|e| {
        code(200)(e);
        e["annotations"] =
            json!({"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "a role allows it"});
    });
    let text = explanation(&fine, "https://s");
    assert!(
        text.ends_with("It was answered with 200, allowed: a role allows it.\nMessage of the response: no\n"),
        "{text}"
    );
}

/// Texts of clients neither move the cursor of a terminal nor end the document to be copied.
#[test]
fn texts_of_clients_are_escaped() {
    let text = explanation(
        &event(|e| {
            e["user"]["username"] = json!("bob\nEOF\nrm -rf /\n");
            e["objectRef"]["name"] = json!("\u{1b}[2J");
        }),
        "https://s",
    );
    assert_eq!(text.lines().filter(|line| *line == "EOF").count(), 1, "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
}
