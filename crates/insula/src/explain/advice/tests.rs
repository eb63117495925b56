use expect_test::expect;

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
fn a_role_that_is_missing_is_written_down() {
    expect![[r#"
        2026-11-21T22:00:00.000000Z: bob asked from 127.0.0.1 to get configmaps "m" in the namespace "n" in the workspace root:a (logical cluster c1).
        It was refused with 403, since no step allowed it: no rule allows it.
        The answer said: no

        What the steps of authorisation said, in their order by number:
          02-content             no opinion
          05-local               no opinion

        No role that bob has in the workspace says so. Its owner, or an administrator, gives them one with:

        kubectl --server https://s/clusters/root:a apply -f - <<'EOF'
        apiVersion: rbac.authorization.k8s.io/v1
        kind: Role
        metadata:
          name: get-configmaps-bob
          namespace: "n"
        rules:
        - apiGroups:
          - ""
          resourceNames:
          - m
          resources:
          - configmaps
          verbs:
          - get
        ---
        apiVersion: rbac.authorization.k8s.io/v1
        kind: RoleBinding
        metadata:
          name: get-configmaps-bob
          namespace: "n"
        roleRef:
          apiGroup: rbac.authorization.k8s.io
          kind: Role
          name: get-configmaps-bob
        subjects:
        - apiGroup: rbac.authorization.k8s.io
          kind: User
          name: bob
        EOF
    "#]].assert_eq(&explanation(&event(|_| ()), "https://s"));
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
            "bob may not act as bob. A role in the workspace with the verb impersonate",
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
            "acting as one of the system's own",
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
            "No credential was shown",
        ),
        (
            event(|e| e["user"]["username"] = json!("system:serviceaccount:n:robot")),
            "kind: ServiceAccount",
        ),
        (event(code(401)), "The credential is not one"),
        (event(code(404)), "Nobody has a workspace"),
        (event(code(429)), "A limit on what is open"),
        (event(code(500)), "The server's log has the story"),
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
        text.ends_with("It was answered with 200, allowed: a role allows it.\nThe answer said: no\n"),
        "{text}"
    );
}

/// Texts of clients neither move the cursor of a terminal nor end the document to be copied.
#[test]
fn texts_of_clients_are_only_text() {
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
