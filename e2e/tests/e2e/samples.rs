//! The samples of `config/samples/conversions`. The server admits them as printed, and tenants read
//! the objects that the samples show.

use std::{
    fs,
    path::{Path, PathBuf},
};

use insula_e2e::{Client, Kubectl, shared, until, workspace};
use serde_json::{Value, json};

/// Returns folders with a `conversion.yaml`; the guide that prints the others runs them.
fn folders() -> Vec<PathBuf> {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/samples/conversions");
    let mut folders: Vec<PathBuf> = fs::read_dir(samples).unwrap().map(|e| e.unwrap().path()).collect();
    folders.retain(|folder| folder.join("conversion.yaml").exists());
    folders.sort();
    folders
}

fn read(path: &Path) -> Value {
    serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Publishes the schema of a folder, and binds it in the tenant's workspace.
fn bind(provider: (&Client, &str), tenant: &Client, folder: &Path) {
    let schema = read(&folder.join("schema.yaml"));
    let plural = schema["spec"]["names"]["plural"].as_str().unwrap();
    let object = |version: &str, kind: &str, spec: Value| {
        let api_version = format!("apis.kcp.io/{version}");
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": plural}, "spec": spec})
    };
    let export = json!({"latestResourceSchemas": [schema["metadata"]["name"]]});
    let export = object("v1alpha1", "APIExport", export);
    provider
        .0
        .post("/apis/apis.kcp.io/v1alpha1/apiexports", &export)
        .expect(201);
    let binding = json!({"reference": {"export": {"path": provider.1, "name": plural}}});
    let binding = object("v1alpha2", "APIBinding", binding);
    let bindings = "/apis/apis.kcp.io/v1alpha2/apibindings";
    tenant.post(bindings, &binding).expect(201);
    until("the sample is bound", || {
        let found = tenant.get(&format!("{bindings}/{plural}")).expect(200);
        (found["status"]["phase"] == "Bound").then_some(())
    });
}

/// Writes the object of a case through one version, and compares it with the case in all versions.
fn show(kubectl: &Kubectl, tenant: &str, folder: &Path, case: &str, writer: &str) {
    let schema = read(&folder.join("schema.yaml"));
    let plural = schema["spec"]["names"]["plural"].as_str().unwrap();
    let file = |version: &str| folder.join(format!("objects/{case}.{version}.yaml"));
    let run = |arguments: &[&str]| {
        let ran = kubectl.run(tenant, arguments, "");
        assert_eq!(ran.code, 0, "kubectl {arguments:?}: {}", ran.text);
        ran.text
    };
    let written = read(&file(writer));
    let name = written["metadata"]["name"].as_str().unwrap();
    run(&["apply", "-f", file(writer).to_str().unwrap()]);
    let resource = format!("{plural}.{writer}.samples.example.io");
    let status = json!({"status": written["status"]}).to_string();
    run(&[
        "patch",
        &resource,
        name,
        "--subresource=status",
        "--type=merge",
        "-p",
        &status,
    ]);
    for version in schema["spec"]["versions"].as_array().unwrap() {
        let version = version["name"].as_str().unwrap();
        let resource = format!("{plural}.{version}.samples.example.io");
        let text = run(&["get", &resource, name, "--output=json"]);
        // Of deprecated versions kubectl warns, too.
        let object = text.find('{').zip(text.rfind('}')).map(|(from, to)| &text[from..=to]);
        let shown: Value = serde_json::from_str(object.unwrap_or_default()).unwrap();
        let want = read(&file(version));
        for part in ["spec", "status"] {
            assert_eq!(
                shown[part], want[part],
                "{case} written as {writer}, {part} read as {version}"
            );
        }
    }
    run(&["delete", &resource, name, "--timeout=20s"]);
}

#[test]
fn conversion_samples_are_converted_as_documented() {
    let server = shared();
    let Some(kubectl) = Kubectl::for_server(&server) else {
        return;
    };
    let admin = server.admin();
    let ((provider, _), (tenant, _)) = (workspace(&admin, "samples"), workspace(&admin, "samples-tenant"));
    let mut arguments = vec!["apply".to_owned()];
    let mut names = Vec::new();
    for folder in folders() {
        names.push(
            read(&folder.join("schema.yaml"))["metadata"]["name"]
                .as_str()
                .unwrap()
                .to_owned(),
        );
        for file in ["schema.yaml", "conversion.yaml"] {
            arguments.push(format!("--filename={}", folder.join(file).display()));
        }
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ran = kubectl.run(&provider, &arguments, "");
    assert_eq!(ran.code, 0, "{}", ran.text);
    let at = admin.in_workspace(&provider);
    for name in &names {
        let rules = format!("/apis/apis.kcp.io/v1alpha1/apiconversions/{name}");
        until("the rules are valid", || {
            let found = at.get(&rules).expect(200);
            let conditions = found["status"]["conditions"].as_array()?;
            let valid = conditions.iter().find(|c| c["type"] == "Valid")?;
            (valid["status"] == "True").then_some(())
        });
    }
    for (name, cases) in [
        ("certificates", [("web", "v1alpha1"), ("rich-of-v1", "v1")]),
        ("routes", [("shop", "v1"), ("rich-of-v2", "v2")]),
    ] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../config/samples/conversions")
            .join(name);
        bind((&at, &provider), &admin.in_workspace(&tenant), &folder);
        for (case, writer) in cases {
            show(&kubectl, &tenant, &folder, case, writer);
        }
    }
}
