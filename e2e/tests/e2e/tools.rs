//! The tools that need no server: their output and exit codes.

use std::{fs, path::Path, process::Output, time::Duration};

use insula_e2e::{Client, insula, run_bounded};
use serde_json::{Value, json};

/// Runs the binary. Returns the exit code, standard output and standard error.
pub(crate) fn ran(arguments: &[&str], stdin: &str) -> (i32, String, String) {
    let Output { status, stdout, stderr } = run_bounded(&mut insula(arguments), stdin, Duration::from_secs(60));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

fn answer(arguments: &[&str], code: i32) -> Value {
    let (got, out, error) = ran(&[arguments, &["-o", "json"]].concat(), "");
    assert_eq!(got, code, "{arguments:?}\n{out}{error}");
    serde_json::from_str(&out).unwrap()
}

pub(crate) fn sample(path: &str) -> String {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/samples/conversions");
    samples.join(path).to_str().unwrap().to_owned()
}

/// Returns a definition whose versions have these fields of `spec`, and these conversion rules.
fn api(fields: &[(&str, Value)], conversions: Value) -> String {
    let versions = fields.iter().enumerate().map(|(i, (name, fields))| {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
        json!({"name": name, "served": true, "storage": i == 0, "schema": {"openAPIV3Schema": schema}})
    });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.io"},
        "spec": {"group": "example.io", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": versions.collect::<Value>()},
    });
    let rules = json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion", "metadata": {"name": "widgets.example.io"},
        "spec": {"conversions": conversions},
    });
    format!("{definition}\n---\n{rules}\n")
}

#[test]
fn conversion_samples_keep_the_round_trip_laws() {
    for folder in fs::read_dir(sample("")).unwrap() {
        let folder = folder.unwrap().path();
        let objects = if folder.join("objects").exists() {
            folder.join("objects")
        } else {
            folder.clone()
        };
        let [folder, objects] = [folder, objects].map(|path| path.to_str().unwrap().to_owned());
        let arguments = [
            "conversion",
            "test",
            "--cases",
            "50",
            "-f",
            &folder,
            "--samples",
            &objects,
        ];
        let reports = answer(&arguments, 0);
        let samples = reports[0]["samples"].as_array().unwrap();
        assert!(
            !samples.is_empty() && samples.iter().all(|sample| sample["trips"] != json!([])),
            "{reports}"
        );
    }
}

#[test]
fn a_failing_rule_is_reported_with_an_object() {
    let text = json!({"type": "string"});
    let rule = json!({"field": ".spec.a", "destination": ".spec.b", "transformation": "int(self)"});
    let manifests = api(
        &[("v1", json!({"a": text})), ("v2", json!({"b": {"type": "integer"}}))],
        json!([{"from": "v1", "to": "v2", "rules": [rule]}]),
    );
    let (code, out, _) = ran(&["conversion", "test", "-f", "-"], &manifests);
    assert_eq!(code, 1);
    assert!(
        out.contains("refused")
            && out.contains("spec.conversions[0].rules[0].transformation")
            && out.contains(r#""kind":"Widget","metadata":{"name":"a"},"spec":{"a":"#),
        "{out}"
    );
    assert!(out.ends_with("1 finding\n") && !out.contains('\x1b'), "{out}");
}

#[test]
fn refused_or_lossy_samples_are_findings() {
    let folder = tempfile::tempdir().unwrap();
    let objects = folder.path().join("objects.yaml");
    fs::write(
        &objects,
        "apiVersion: samples.example.io/v1\nkind: Engine\nmetadata: {name: a}\nspec: {size: huge}\n",
    )
    .unwrap();
    let computed = sample("computed");
    let samples = objects.to_str().unwrap();
    let reports = answer(
        &[
            "conversion",
            "test",
            "--cases",
            "0",
            "-f",
            &computed,
            "--samples",
            samples,
        ],
        1,
    );
    let problems = &reports[0]["samples"][2]["problems"];
    assert!(
        problems[0].as_str().unwrap().starts_with("refused: converting"),
        "{reports}"
    );

    // Without rules, a plain definition loses the fields that the stored version lacks.
    fs::write(
        &objects,
        "apiVersion: samples.example.io/v2\nkind: Engine\nmetadata: {name: a}\nspec: {mode: Fast}\n",
    )
    .unwrap();
    let schema = sample("computed/schema.yaml");
    let reports = answer(&["conversion", "test", "-f", &schema, "--samples", samples], 1);
    assert_eq!(
        reports[0]["samples"][0]["trips"][0]["lost"],
        json!([".spec.mode"]),
        "{reports}"
    );
}

#[test]
fn unreadable_input_exits_with_2() {
    for (arguments, stdin, why) in [
        (vec!["conversion", "test", "-f", "/nowhere"], "", "cannot read /nowhere"),
        (
            vec!["conversion", "test", "-f", "-"],
            "{",
            "standard input is neither YAML nor JSON",
        ),
        (vec!["conversion", "test", "-f", "-"], "a: b", "no APIResourceSchema"),
        (vec!["conversion", "test"], "", "--filename"),
        (
            vec!["conversion", "coverage", "-f", "-"],
            "{kind: APIConversion}\n---\n{kind: CustomResourceDefinition, metadata: {name: a}}",
            "no schema of its name",
        ),
    ] {
        let (code, out, error) = ran(&arguments, stdin);
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}");
        assert!(error.contains(why), "{arguments:?}: {error}");
    }
}

#[test]
fn objects_are_converted() {
    let (rules, schema) = (sample("computed/rules.yaml"), sample("computed/schema.yaml"));
    let object = "{apiVersion: samples.example.io/v1, kind: Engine, metadata: {name: a}, spec: {size: '7'}}";
    let arguments = [
        "conversion",
        "convert",
        "--to",
        "v2",
        "-f",
        &rules,
        "-f",
        &schema,
        "-f",
        "-",
    ];
    let (code, out, _) = ran(&arguments, object);
    let wanted =
        "apiVersion: samples.example.io/v2\nkind: Engine\nmetadata:\n  name: a\nspec:\n  liters: 7\n  mode: Fast\n";
    assert_eq!((code, out.as_str()), (0, wanted));
    let (code, out, error) = ran(&[arguments.as_slice(), &["--cost"]].concat(), object);
    assert_eq!((code, out.as_str()), (0, wanted));
    assert_eq!(error, "a: 2 of 10000000 cost units\n");
    let (code, out, error) = ran(&arguments, &object.replace('7', "x"));
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(error.contains("conversions[0].rules[0]"), "{error}");
    let (code, _, error) = ran(&["conversion", "convert", "--to", "v9", "-f", &sample("computed")], "");
    assert_eq!(code, 2);
    assert!(error.contains("Engine has no version \"v9\"; it has v1, v2"), "{error}");
}

#[test]
fn coverage_lists_the_outcome_of_every_field() {
    let computed = sample("computed");
    let coverage = answer(&["conversion", "coverage", "-f", &computed], 0);
    let fate = |direction: usize, path: &str| {
        let fields = coverage[0]["directions"][direction]["fields"].as_array().unwrap();
        fields.iter().find(|field| field["path"] == path).unwrap().clone()
    };
    let wanted =
        json!({"path": ".spec.size", "fate": "computed", "to": [".spec.liters"], "rules": ["conversions[0].rules[0]"]});
    assert_eq!(fate(0, ".spec.size"), wanted);
    assert_eq!(fate(1, ".spec.comment")["fate"], "preserved");
    assert_eq!(fate(1, ".spec.scratch")["fate"], "dropped");
    assert_eq!(
        coverage[0]["directions"][0]["made"],
        json!([{"path": ".spec.mode", "by": "constant", "rule": "conversions[0].rules[1]"}])
    );
    answer(&["conversion", "coverage", "-f", &computed, "--fail-on", "dropped"], 1);
}

#[test]
fn schemas_are_compared_field_by_field() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, fields: Value| {
        let path = folder.path().join(name);
        fs::write(&path, api(&[("v1", fields)], json!([]))).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let text = json!({"type": "string"});
    let old = write(
        "old.yaml",
        json!({"a": text, "b": text, "c": {"type": "string", "maxLength": 5}}),
    );
    let new = write("new.yaml", json!({"a": {"type": "integer"}, "c": text, "d": text}));
    let wider = write("wider.yaml", json!({"a": text, "b": text, "c": text, "d": text}));
    let changes = answer(&["schema", "diff", &old, &new, "--fail-on", "breaking"], 1);
    let change = |i: usize| {
        format!(
            "{} {} {}",
            changes[i]["path"], changes[i]["change"], changes[i]["breaking"]
        )
        .replace('"', "")
    };
    let all: Vec<String> = (0..4).map(change).collect();
    assert_eq!(
        all,
        [
            ".spec.a type true",
            ".spec.b removed true",
            ".spec.c widened false",
            ".spec.d added false"
        ]
    );
    answer(&["schema", "diff", &old, &new], 0);
    answer(&["schema", "diff", &old, &wider, "--fail-on", "breaking"], 0);
    answer(&["schema", "diff", &old, &wider, "--fail-on", "any"], 1);
    assert_eq!(
        answer(&["schema", "diff", &old, &old, "--fail-on", "any"], 0),
        json!([])
    );
    let (code, out, _) = ran(&["schema", "diff", &old, &new], "");
    assert!(
        code == 0 && out.ends_with("4 changes, 2 breaking\n") && out.contains("string → integer"),
        "{out}"
    );
}

#[test]
fn schema_lint_reports_unbounded_lists() {
    let names = json!({"type": "array", "items": {"type": "string"},
        "x-kubernetes-validations": [{"rule": "self.all(n, n != '')"}]});
    let (code, out, _) = ran(
        &["schema", "lint", "-f", "-", "-o", "json"],
        &api(&[("v1", json!({"names": names}))], json!([])),
    );
    let findings: Value = serde_json::from_str(&out).unwrap();
    let kinds: Vec<&str> = findings
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["finding"].as_str().unwrap())
        .collect();
    assert_eq!(code, 1);
    assert!(kinds.contains(&"unbounded"), "{out}");
    let port = json!({"x-kubernetes-int-or-string": true});
    let manifests = api(&[("v1", json!({"port": port}))], json!([]));
    let (code, out, _) = ran(&["schema", "lint", "-f", "-"], &manifests);
    assert!(code == 0 && out.ends_with("0 errors, 0 warnings, 1 notes\n"), "{out}");
    assert_eq!(
        ran(&["schema", "lint", "-f", "-", "--fail-on", "note"], &manifests).0,
        1
    );
}

#[test]
fn suggested_rules_pass_their_own_test() {
    let folder = tempfile::tempdir().unwrap();
    let text = json!({"type": "string"});
    let schema = |name: &str, version: &str, fields: Value| {
        let path = folder.path().join(name);
        let manifests = api(&[(version, fields)], json!([]));
        fs::write(&path, manifests.split("\n---\n").next().unwrap()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let old = schema("old.yaml", "v1", json!({"firstName": text, "size": text}));
    let name = json!({"type": "object", "properties": {"first": text}});
    let new = schema("new.yaml", "v2", json!({"name": name, "size": {"type": "integer"}}));
    let (code, rules, error) = ran(&["conversion", "suggest", &old, &new], "");
    assert_eq!(code, 0, "{rules}{error}");
    assert!(
        rules.contains("#  99% .spec.firstName → .spec.name.first (same words)"),
        "{rules}"
    );
    assert!(
        rules.contains("transformation: int(self)\n      mayFail: true"),
        "{rules}"
    );
    // Guessed rules can be tried at once, on a schema with both versions.
    let both = folder.path().join("both.yaml");
    let of = |path: &str| -> Value { serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap() };
    let (mut one, mut other) = (of(&old), of(&new));
    other["spec"]["versions"][0]["storage"] = json!(false);
    one["spec"]["versions"]
        .as_array_mut()
        .unwrap()
        .push(other["spec"]["versions"][0].take());
    fs::write(&both, one.to_string()).unwrap();
    let (code, out, error) = ran(&["conversion", "test", "-f", both.to_str().unwrap(), "-f", "-"], &rules);
    assert_eq!(code, 0, "{out}{error}");
    // With a single file, from the stored version to the last.
    let (code, again, _) = ran(&["conversion", "suggest", both.to_str().unwrap()], "");
    assert_eq!((code, again), (0, rules));
    let (code, _, error) = ran(&["conversion", "suggest", &old, &old], "");
    assert!(code == 2 && error.contains("--from and --to"), "{error}");
}

/// `insula export publish` of one folder with a definition, into one workspace.
struct Publisher {
    folder: tempfile::TempDir,
    kubeconfig: String,
    workspace: String,
}

impl Publisher {
    /// Writes a definition of two versions; `name` is the schema of the field that moves.
    fn write(&self, name: Value) {
        let fields = [
            ("v1", json!({"firstName": name, "hint": {"type": "string"}})),
            ("v2", json!({"name": {"type": "object", "properties": {"first": name}}})),
        ];
        let manifests = api(&fields, json!([]));
        let mut definition: Value = serde_json::from_str(manifests.split("\n---\n").next().unwrap()).unwrap();
        definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://converter.example.io/convert"}}});
        fs::write(self.folder.path().join("widgets.yaml"), definition.to_string()).unwrap();
    }

    /// Returns the arguments of the command with some flags.
    fn arguments<'a>(&'a self, how: &[&'a str]) -> Vec<&'a str> {
        let folder = self.folder.path().to_str().unwrap();
        let target = ["--kubeconfig", &self.kubeconfig, "--workspace", &self.workspace];
        [&["export", "publish", "-f", folder], how, &target[..]].concat()
    }

    /// Runs the command with `--diff` or `--apply`, and returns its steps.
    fn publish(&self, how: &[&str], code: i32) -> Value {
        answer(&self.arguments(how), code)
    }

    /// Runs the command, which refuses a draft, and checks that it names the draft's guesses.
    fn assert_draft_is_refused(&self, how: &[&str]) {
        let (code, out, error) = ran(&self.arguments(how), "");
        assert_eq!((code, out.as_str()), (1, ""), "{how:?}: {error}");
        for part in [
            "error: ",
            "its rules are a draft, guessed in place of a conversion webhook",
            "--accept-draft",
            "v1 .spec.firstName",
            "v2 .spec.name.first",
            "v1 .spec.hint is preserved",
        ] {
            assert!(error.contains(part), "{how:?}: {part:?} is missing in {error}");
        }
    }
}

/// Returns kind and action of each step.
fn actions(steps: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let step = |step: &Value| format!("{} {}", text(&step["kind"]), text(&step["action"]));
    steps.as_array().unwrap().iter().map(step).collect()
}

fn assert_unchanged(steps: &Value) {
    assert!(actions(steps).iter().all(|action| action.ends_with("unchanged")));
}

#[test]
fn export_publish_creates_and_updates_an_export() {
    let server = insula_e2e::shared();
    let admin = server.admin();
    let (workspace, _) = insula_e2e::workspace(&admin, "provider");
    let client = admin.in_workspace(&workspace);
    let publisher = Publisher {
        folder: tempfile::tempdir().unwrap(),
        kubeconfig: server.kubeconfig().to_str().unwrap().to_owned(),
        workspace,
    };
    publisher.write(json!({"type": "string"}));
    let name = publish_first(&publisher, &client);
    edit_rules(&publisher, &client, &name);
    publish_change(&publisher, &client, &name);
}

/// Publishes a schema, rules and an export. Returns the schema's name.
fn publish_first(publisher: &Publisher, client: &Client) -> String {
    let wanted = ["APIResourceSchema create", "APIConversion create", "APIExport create"];
    assert_eq!(actions(&publisher.publish(&["--diff"], 1)), wanted);
    for how in [
        &["--check"][..],
        &["--apply"],
        &["--apply", "--check", "--wait", "--yes"],
    ] {
        publisher.assert_draft_is_refused(how);
    }
    for kind in [
        "v1alpha1/apiresourceschemas",
        "v1alpha1/apiconversions",
        "v1alpha2/apiexports",
    ] {
        let list = client.get(&format!("/apis/apis.kcp.io/{kind}")).expect(200);
        assert_eq!(list["items"], json!([]), "a refused draft leaves nothing behind");
    }
    let applied = publisher.publish(&["--apply", "--accept-draft"], 0);
    assert_eq!(actions(&applied), wanted.map(|action| format!("{action}d")));
    let name = applied[0]["name"].as_str().unwrap();
    assert!(name.starts_with('h') && name.ends_with(".widgets.example.io"), "{name}");
    assert_unchanged(&publisher.publish(&["--diff"], 0));
    let rules = client
        .get(&format!("/apis/apis.kcp.io/v1alpha1/apiconversions/{name}"))
        .expect(200);
    assert_eq!(
        rules["spec"]["conversions"][0]["rules"][0]["destination"], ".spec.name.first",
        "{rules}"
    );
    assert_eq!(
        rules["spec"]["conversions"][0]["preserve"],
        json!([".spec.hint"]),
        "{rules}"
    );
    name.to_owned()
}

/// Edits drafted rules: they are not drafted again, neither for this schema nor for the next.
fn edit_rules(publisher: &Publisher, client: &Client, name: &str) {
    let path = format!("/apis/apis.kcp.io/v1alpha1/apiconversions/{name}");
    let rules = client.get(&path).expect(200);
    let drop = json!({"spec": {"conversions": [
        {"from": "v1", "to": "v2", "rules": rules["spec"]["conversions"][0]["rules"], "drop": [".spec.hint"]},
        rules["spec"]["conversions"][1]]}});
    client
        .merge(&format!("/apis/apis.kcp.io/v1alpha1/apiconversions/{name}"), &drop)
        .expect(200);
    assert_unchanged(&publisher.publish(&["--diff"], 0));
}

/// Changes the definition's content: that creates a new schema, and the export moves to it.
fn publish_change(publisher: &Publisher, client: &Client, name: &str) {
    publisher.write(json!({"type": "string", "maxLength": 9}));
    let steps = publisher.publish(&["--diff"], 1);
    assert_eq!(
        steps[0]["detail"],
        json!([
            "v1 .spec.firstName narrowed: maxLength 9 added (breaking)",
            "v2 .spec.name.first narrowed: maxLength 9 added (breaking)"
        ])
    );
    assert_eq!(actions(&publisher.publish(&["--apply"], 0))[2], "APIExport updated");
    let export = client
        .get("/apis/apis.kcp.io/v1alpha2/apiexports/example.io")
        .expect(200);
    let resources = export["spec"]["resources"].as_array().unwrap();
    let path = format!(
        "/apis/apis.kcp.io/v1alpha1/apiconversions/{}",
        resources[0]["schema"].as_str().unwrap()
    );
    assert_eq!(
        client.get(&path).expect(200)["spec"]["conversions"][0]["drop"],
        json!([".spec.hint"])
    );
    assert!(resources.len() == 1 && resources[0]["schema"] != name, "{export}");
}
