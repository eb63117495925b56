//! Versions without rules between which fields break: the tool asks before it publishes them, the
//! export says which fields, and tables have columns for conditions.

use std::path::Path;

use insula_e2e::{Client, shared, until, workspace};
use serde_json::{Value, json};

use crate::{providers::tenant, tools::ran};

const APIS: &str = "/apis/apis.kcp.io";

/// A definition whose second version has another name and another type for fields of the first.
fn definition() -> Value {
    let version = |name: &str, fields: Value| {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
        json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}})
    };
    let (text, integer) = (json!({"type": "string"}), json!({"type": "integer"}));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "valves.example.io"},
        "spec": {
            "group": "example.io", "scope": "Namespaced",
            "names": {"kind": "Valve", "listKind": "ValveList", "plural": "valves", "singular": "valve"},
            "versions": [
                version("v1", json!({"bore": text, "size": text})),
                version("v2", json!({"diameter": text, "size": integer})),
            ],
        },
    })
}

const BREAKS: [&str; 3] = [
    ".spec.bore: in v1, and not in v2",
    ".spec.diameter: in v2, and not in v1",
    ".spec.size: a string in v1, an integer in v2",
];

fn rules(name: &str) -> Value {
    let path = |field: &str| format!(".spec.{field}");
    let rule = |from: &str, to: &str| json!({"field": path(from), "destination": path(to)});
    let int =
        json!({"field": ".spec.size", "destination": ".spec.size", "transformation": "int(self)", "mayFail": true});
    let text = json!({"field": ".spec.size", "destination": ".spec.size", "transformation": "string(self)"});
    json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion", "metadata": {"name": name},
        "spec": {"conversions": [
            {"from": "v1", "to": "v2", "rules": [rule("bore", "diameter"), int]},
            {"from": "v2", "to": "v1", "rules": [rule("diameter", "bore"), text]},
        ]},
    })
}

/// Returns status, reason and message of the export's condition.
fn compatible(client: &Client, export: &str) -> Option<(String, String, String)> {
    let export = client.get(&format!("{APIS}/v1alpha2/apiexports/{export}")).expect(200);
    let conditions = export["status"]["conditions"].as_array()?;
    let condition = conditions.iter().find(|one| one["type"] == "VersionsCompatible")?;
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason"), text("message")))
}

#[test]
fn the_tools_ask_for_rules() {
    let text = definition().to_string();
    for arguments in [["conversion", "test"], ["export", "publish"]] {
        let all = |more: &[&'static str]| [&arguments[..], &["-f", "-"], more].concat();
        let (code, out, error) = ran(&all(&[]), &text);
        assert_eq!(code, 1, "{arguments:?}: {out}{error}");
        for one in BREAKS {
            assert!(format!("{out}{error}").contains(one), "{arguments:?}: {out}{error}");
        }
        let (code, out, error) = ran(&all(&["--accept-incompatible"]), &text);
        assert_eq!(code, 0, "{arguments:?}: {out}{error}");
        let with_rules = format!("{text}\n---\n{}", rules("valves.example.io"));
        let (code, out, error) = ran(&all(&[]), &with_rules);
        assert_eq!(code, 0, "{arguments:?}: {out}{error}");
    }
    let (_, out, _) = ran(&["export", "publish", "-f", "-", "--accept-incompatible"], &text);
    assert!(out.contains("insula.io/accept-incompatible: \"true\""), "{out}");
}

/// A published API of many fields; skipped where it is absent.
#[test]
fn a_real_release_without_rules_is_not_published_silently() {
    let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/testdata/real/cluster-api-cluster/crd.yaml");
    if !real.exists() {
        eprintln!("skipped: {} is absent", real.display());
        return;
    }
    let (code, out, error) = ran(&["conversion", "test", "-f", real.to_str().unwrap()], "");
    assert_eq!(code, 1, "{out}{error}");
    for one in [
        ".spec.controlPlaneRef.apiGroup: required by v1beta2, and not in v1beta1",
        ".spec.controlPlaneRef.apiVersion: in v1beta1, and not in v1beta2",
    ] {
        assert!(out.contains(one), "{out}");
    }
}

#[test]
fn an_export_says_which_fields_break() {
    let server = shared();
    let admin = server.admin();
    let (path, _) = workspace(&admin, "incompatible");
    let client = admin.in_workspace(&path);
    let text = definition().to_string();
    let kubeconfig = server.kubeconfig();
    let target = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--workspace", &path];
    let publish = |more: &[&str]| {
        let arguments = [&["export", "publish", "-f", "-", "--apply"][..], &target, more].concat();
        ran(&arguments, &text)
    };
    let (code, out, error) = publish(&[]);
    assert_eq!(code, 1, "{out}{error}");
    assert_eq!(client.get(&format!("{APIS}/v1alpha2/apiexports/example.io")).code, 404);
    // Accepted once, it need not be accepted again.
    let (code, out, error) = publish(&["--accept-incompatible"]);
    assert_eq!(code, 0, "{out}{error}");
    let (code, out, error) = publish(&[]);
    assert_eq!(code, 0, "{out}{error}");
    let (status, reason, message) = until("the export says so", || compatible(&client, "example.io"));
    assert_eq!((&*status, &*reason), ("False", "IncompatibilityAccepted"), "{message}");
    assert!(BREAKS.iter().all(|one| message.contains(one)), "{message}");

    // Through kubectl: a warning, and the condition until there are rules.
    let export = client
        .get(&format!("{APIS}/v1alpha2/apiexports/example.io"))
        .expect(200);
    let name = export["spec"]["resources"][0]["schema"].as_str().unwrap().to_owned();
    let schema = format!("{APIS}/v1alpha1/apiresourceschemas/{name}");
    let unset = json!({"metadata": {"annotations": {"insula.io/accept-incompatible": null}}});
    client.merge(&schema, &unset).expect(200);
    let asks = || compatible(&client, "example.io").filter(|(_, reason, _)| reason == "IncompatibleVersions");
    let (_, _, message) = until("the export asks for rules", asks);
    assert!(message.contains("create an APIConversion"), "{message}");
    let other = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "other"},
        "spec": {"resources": [{"group": "example.io", "name": "valves", "schema": name, "storage": {"crd": {}}}]}});
    let answer = client.post(&format!("{APIS}/v1alpha2/apiexports"), &other);
    let warned = answer
        .headers
        .get("warning")
        .map(|warning| warning.to_str().unwrap().to_owned());
    assert!(
        warned.as_ref().is_some_and(|text| text.contains(BREAKS[0])),
        "{warned:?}"
    );
    answer.expect(201);
    client
        .post(&format!("{APIS}/v1alpha1/apiconversions"), &rules(&name))
        .expect(201);
    for export in ["example.io", "other"] {
        until("rules mend it", || {
            compatible(&client, export).filter(|(status, ..)| status == "True")
        });
    }
}

/// Whoever asks is told all at once: versions that break, and what the release does to objects.
#[test]
fn a_check_shows_effects_besides_versions_that_break() {
    let server = shared();
    let admin = server.admin();
    let (path, _) = workspace(&admin, "checked");
    let kubeconfig = server.kubeconfig();
    let target = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--workspace", &path];
    let publish = |how: &str, definition: &Value| {
        let arguments = [&["export", "publish", "-f", "-", how][..], &target].concat();
        let (code, out, error) = ran(&arguments, &definition.to_string());
        (code, format!("{out}{error}"))
    };
    let mut first = definition();
    first["spec"]["versions"].as_array_mut().unwrap().pop();
    first["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["seat"] =
        json!({"type": "string"});
    let (code, said) = publish("--apply", &first);
    assert_eq!(code, 0, "{said}");
    let (_, client) = tenant(&admin, &path, ("example.io", "valves"));
    let valve = json!({"apiVersion": "example.io/v1", "kind": "Valve", "metadata": {"name": "main"},
        "spec": {"seat": "brass"}});
    client
        .post("/apis/example.io/v1/namespaces/default/valves", &valve)
        .expect(201);
    for how in ["--check", "--apply"] {
        let (code, said) = publish(how, &definition());
        assert_eq!(code, 1, "{how}: {said}");
        for one in BREAKS
            .iter()
            .chain(&["refused: field-removed:valves.example.io/v1:.spec.seat: 1 object"])
        {
            assert!(said.contains(one), "{how}: {said}");
        }
    }
}

/// `kubectl get` shows conditions in columns, after those of kcp.
#[test]
fn conditions_are_columns() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "columns").0);
    let table = ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    for (resource, wanted) in [
        ("v1alpha1/apiconversions", "Name Age Valid Lossless Fitting Covered"),
        ("v1alpha1/apiexports", "Name Age Ready Valid Compatible RolledOut"),
        ("v1alpha2/apiexports", "Name Age Valid Compatible RolledOut"),
        ("v1alpha1/apibindings", "Name Age Ready Valid RolledOut"),
        ("v1alpha2/apibindings", "Name Age Ready Valid RolledOut"),
    ] {
        let answer = client.get_with(&format!("{APIS}/{resource}"), &[table]).expect(200);
        let columns = answer["columnDefinitions"].as_array().unwrap().iter();
        let names: Vec<&str> = columns.map(|column| column["name"].as_str().unwrap()).collect();
        assert_eq!(names.join(" "), wanted, "{resource}");
    }
    let mut definition = definition();
    definition["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["diameter"] =
        json!({"type": "string", "enum": ["10mm"]});
    client
        .post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition)
        .expect(201);
    client
        .post(&format!("{APIS}/v1alpha1/apiconversions"), &rules("valves.example.io"))
        .expect(201);
    let cells = until("the status is there", || {
        let answer = client
            .get_with(&format!("{APIS}/v1alpha1/apiconversions"), &[table])
            .expect(200);
        let cells = answer["rows"][0]["cells"].clone();
        (cells[2] != "" && !cells[2].is_null()).then_some(cells)
    });
    let shown: Vec<&str> = (2..5).map(|i| cells[i].as_str().unwrap()).collect();
    assert_eq!(shown, ["True", "True", "False"], "{cells}");
}
