//! The audit log: requests over HTTP, gRPC and virtual workspaces, and the reasons of refusals.

use std::{fs, path::Path};

use insula_e2e::{Answer, Client, Server, Setup, Who, until, workspace, workspace_owned_by};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Returns the lines of a log.
fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    // The last line may be incomplete.
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn log(server: &Server) -> std::path::PathBuf {
    server.data_dir().join("audit/audit.log")
}

fn id(answer: &Answer) -> String {
    answer.headers["audit-id"].to_str().unwrap().to_owned()
}

/// Returns the line of the audit log about an answer.
fn audit_line(server: &Server, answer: &Answer) -> Value {
    let id = id(answer);
    until("the request is in the audit log", || {
        lines(&log(server)).into_iter().find(|event| event["auditID"] == *id)
    })
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "hush"}})
}

fn token(server: &Server, user: &str) -> Client {
    server.client(Who::Token(format!("{user}-token")))
}

/// Checks the line of an accepted create of the ConfigMap `a` by alice.
fn assert_write_line(made: &Value, path: &str, cluster: &str) {
    let want = json!({"resource": "configmaps", "namespace": "default", "name": "a", "apiVersion": "v1"});
    assert_eq!(
        (
            &made["objectRef"],
            &made["level"],
            &made["stage"],
            &made["responseStatus"]["code"],
            &made["user"]["username"]
        ),
        (
            &want,
            &json!("Metadata"),
            &json!("ResponseComplete"),
            &json!(201),
            &json!("alice")
        )
    );
    assert_eq!(made["sourceIPs"], json!(["127.0.0.1"]));
    assert_eq!(made["annotations"]["authorization.k8s.io/decision"], "allow");
    assert_eq!(made["annotations"]["kcp.io/path"], *path);
    for key in ["kcp.io/cluster", "tenancy.kcp.io/workspace"] {
        assert_eq!(made["annotations"][key], *cluster, "{key}");
    }
}

/// Without any setting every request leaves a line. A refusal's line has the reason, which its
/// sender does not learn.
#[test]
fn the_audit_log_has_every_refusal_with_its_reason() {
    let server = Server::start();
    let admin = server.admin();
    let (path, cluster) = workspace_owned_by(&server, "alice");
    let (alice, bob) = (
        token(&server, "alice").in_workspace(&path),
        token(&server, "bob").in_workspace(&path),
    );

    let made = audit_line(&server, &alice.post(MAPS, &map("a")));
    assert_write_line(&made, &path, &cluster);

    let denied = bob.get(&format!("{MAPS}/a"));
    assert!(!denied.text.contains("content"), "{}", denied.text);
    let denied = audit_line(&server, &denied);
    assert_eq!(denied["responseStatus"]["reason"], "Forbidden");
    for (key, value) in [
        ("authorization.k8s.io/decision", "forbid"),
        ("authorization.k8s.io/reason", "no access to the workspace"),
        ("request.auth.kcp.io/02-content-decision", "Denied"),
    ] {
        assert_eq!(denied["annotations"][key], value, "{denied}");
    }

    let reason = |answer: Answer, code: u16| -> String {
        assert_eq!(answer.code, code, "{}", answer.text);
        let event = audit_line(&server, &answer);
        assert_eq!(event["responseStatus"]["code"], code);
        event["annotations"]["insula.io/reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let nobody = server.client(Who::Token("guessed".into()));
    assert_eq!(
        reason(nobody.in_workspace(&path).get(MAPS), 401),
        "invalid bearer token"
    );
    assert_eq!(
        reason(admin.in_workspace("root:nowhere").get(MAPS), 404),
        "the logical cluster root has no workspace \"nowhere\""
    );
    assert_eq!(
        reason(token(&server, "alice").in_workspace("nocluster").get(MAPS), 403),
        "there is no logical cluster nocluster"
    );
    let invalid = alice.post(MAPS, &json!({"metadata": {"name": "A"}}));
    assert_eq!(invalid.code, 422);
    assert_eq!(audit_line(&server, &invalid)["responseStatus"]["reason"], "Invalid");
    reason(server.client(Who::Anonymous).get("/metrics"), 403);

    let text = fs::read_to_string(log(&server)).unwrap();
    assert!(
        !text.contains("hush") && !text.contains("guessed"),
        "no content, no credential"
    );
    assert!(!text.contains("/readyz"), "health is not recorded");
}

/// A policy selects the requests and the level of detail. Secrets are never recorded.
#[test]
fn an_audit_policy_selects_requests_and_levels() {
    let dir = tempfile::tempdir().unwrap();
    let (policy, file) = (dir.path().join("policy.yaml"), dir.path().join("requests.log"));
    let rules = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitManagedFields": true, "rules": [
        {"level": "None", "users": ["bob"]},
        {"level": "RequestResponse", "verbs": ["create"]},
        {"level": "Request", "verbs": ["patch", "watch"], "omitStages": ["RequestReceived"]},
    ]});
    fs::write(&policy, rules.to_string()).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let environment = [
        ("POLICY", text(&policy)),
        ("FILE", text(&file)),
        ("MAX_MEGABYTES", "1".to_owned()),
    ];
    let server = Server::with(Setup {
        environment: environment
            .map(|(name, value)| (format!("INSULA_AUDIT_{name}"), value))
            .into(),
        ..Setup::default()
    });
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "audited").0);
    let of = |id: String, count: usize| -> Vec<Value> {
        until("the stages are in the audit log", || {
            let found: Vec<Value> = lines(&file)
                .into_iter()
                .filter(|event| event["auditID"] == *id)
                .collect();
            (found.len() == count).then_some(found)
        })
    };
    let stages = |events: &[Value]| -> Vec<String> {
        events
            .iter()
            .map(|event| event["stage"].as_str().unwrap().to_owned())
            .collect()
    };

    let events = of(id(&client.post(MAPS, &map("a"))), 2);
    assert_eq!(stages(&events), ["RequestReceived", "ResponseComplete"]);
    let place = |event: &Value| ["kcp.io/path", "kcp.io/cluster"].map(|key| event["annotations"][key].clone());
    assert!(place(&events[0])[1].is_string(), "{}", events[0]);
    assert_eq!(place(&events[0]), place(&events[1]));
    assert!(events[0].get("requestObject").is_none(), "{}", events[0]);
    assert_eq!(events[1]["requestObject"]["data"]["a"], "hush");
    assert_eq!(events[1]["responseObject"]["metadata"]["name"], "a");
    assert!(events[1]["responseObject"]["metadata"].get("managedFields").is_none());

    let patched = client.merge(&format!("{MAPS}/a"), &json!({"data": {"b": "c"}}));
    let events = of(id(&patched), 1);
    assert_eq!(events[0]["requestObject"], json!({"data": {"b": "c"}}));
    assert!(events[0].get("responseObject").is_none());

    let watched = client.get(&format!("{MAPS}?watch=true&timeoutSeconds=1"));
    assert_eq!(stages(&of(id(&watched), 2)), ["ResponseStarted", "ResponseComplete"]);

    let secret = json!({"metadata": {"name": "s"}, "stringData": {"a": "sesame"}});
    let events = of(id(&client.post("/api/v1/namespaces/default/secrets", &secret)), 2);
    assert_eq!(
        (&events[1]["level"], &events[1]["objectRef"]["name"]),
        (&json!("Metadata"), &json!("s"))
    );

    client.get(MAPS).expect(200);
    token(&server, "bob").get("/clusters/root/api");
    let (_, _) = (server.signal("-TERM"), server.wait());
    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains("sesame") && !text.contains("\"verb\":\"get\"") && !text.contains("bob"));
}

/// A policy that cannot be used ends the start, with its file, the field and the accepted values.
#[test]
fn an_invalid_audit_policy_fails_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let policy = dir.path().join("policy.yaml");
    fs::write(
        &policy,
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: All}]\n",
    )
    .unwrap();
    let data = dir.path().join("data");
    let mut command = insula_e2e::insula(&["start", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()]);
    let ended = command.env("INSULA_AUDIT_POLICY", &policy).output().unwrap();
    let told = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(2), "{told}");
    assert!(
        told.contains("policy.yaml: rules[0].level: Unsupported value: \"All\""),
        "{told}"
    );
}

fn explained(server: &Server, id: &str) -> (Option<i32>, String) {
    let data = server.data_dir();
    let mut command = insula_e2e::insula(&["explain", id, "--data-dir", data.to_str().unwrap()]);
    let ended = command.output().unwrap();
    let text = String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap();
    (ended.status.code(), text)
}

/// A refused user shows the operator an id. `insula` explains from it which rule is missing, and
/// creating that rule allows the request.
#[test]
fn explain_names_the_reason_of_a_refusal_and_a_remedy() {
    let server = Server::start();
    let (path, _) = workspace_owned_by(&server, "alice");
    let (alice, bob) = (
        token(&server, "alice").in_workspace(&path),
        token(&server, "bob").in_workspace(&path),
    );
    alice.post(MAPS, &map("a")).expect(201);
    let one = format!("{MAPS}/a");
    let denied = bob.get(&one);
    assert_eq!(denied.code, 403);
    audit_line(&server, &denied);
    let (code, text) = explained(&server, &id(&denied));
    assert_eq!(code, Some(0), "{text}");
    let wanted = format!(
        "bob asked from 127.0.0.1 to get configmaps \"a\" in the namespace \"default\" in the workspace {path}"
    );
    assert!(
        text.contains(&wanted) && text.contains("by the step 02-content"),
        "{text}"
    );
    let (_, manifest) = text.split_once("<<'EOF'\n").unwrap();
    let manifest = manifest.trim_end().strip_suffix("EOF").unwrap();
    for document in manifest.split("---\n") {
        let object: Value = serde_saphyr::from_str(document).unwrap();
        let (kind, base) = (object["kind"].as_str().unwrap(), "/apis/rbac.authorization.k8s.io/v1");
        let below = if kind.starts_with("Cluster") {
            ""
        } else {
            "/namespaces/default"
        };
        let path = format!("{base}{below}/{}s", kind.to_lowercase());
        alice.post(&path, &object).expect(201);
    }
    bob.get(&one).expect(200);
    assert_eq!(bob.get(MAPS).code, 403, "and nothing else");

    let nobody = server
        .client(Who::Token("guessed".into()))
        .in_workspace(&path)
        .get(&one);
    audit_line(&server, &nobody);
    let (_, text) = explained(&server, &id(&nobody));
    assert!(text.contains("401 Unauthorized: invalid bearer token"), "{text}");
    let (code, text) = explained(&server, "00000000-0000-4000-8000-000000000000");
    assert_eq!(code, Some(1), "{text}");
}

/// The line of a write contains the audit annotations of policies, and the violations that they
/// only audit.
#[test]
fn audit_annotations_of_policies_are_in_the_event() {
    let server = Server::start();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "noted").0);
    let base = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic";
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let mut policy = json!({"metadata": {"name": "notes"}, "spec": {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.metadata.name != 'a'"}],
        "auditAnnotations": [{"key": "who", "valueExpression": "'made ' + object.metadata.name"}],
    }});
    let mut binding =
        json!({"metadata": {"name": "notes"}, "spec": {"policyName": "notes", "validationActions": ["Audit"]}});
    for (object, kind, path) in [
        (&mut policy, "ValidatingAdmissionPolicy", "ies"),
        (&mut binding, "ValidatingAdmissionPolicyBinding", "ybindings"),
    ] {
        object["apiVersion"] = json!("admissionregistration.k8s.io/v1");
        object["kind"] = json!(kind);
        client.post(&format!("{base}{path}"), object).expect(201);
    }
    let made = client.post(MAPS, &map("a"));
    assert_eq!(made.code, 201, "{}", made.text);
    let notes = &audit_line(&server, &made)["annotations"];
    assert_eq!(notes["notes/who"], "made a");
    let failures = notes["validation.policy.admission.k8s.io/validation_failure"]
        .as_str()
        .unwrap();
    let failures: Value = serde_json::from_str(failures).unwrap();
    assert_eq!(
        (
            &failures[0]["policy"],
            &failures[0]["binding"],
            &failures[0]["expressionIndex"]
        ),
        (&json!("notes"), &json!("notes"), &json!(0))
    );
}
