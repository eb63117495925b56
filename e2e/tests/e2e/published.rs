//! Published APIs of other projects (`../shared/testdata/real`), with their schemas as they are and
//! the rules of `config/samples/published`: through the tool, and through a server with two
//! tenants.

use std::{
    fs,
    path::{Path, PathBuf},
};

use insula_e2e::{Client, Kubectl, Server, shared, until, workspace};
use serde_json::{Value, json};

use crate::tools::ran;

/// Objects: the folder, the name of the case and the version that writes it. The folder has the
/// object in other versions, too.
const CASES: [(&str, &str, &str); 11] = [
    ("azuread-accesspolicy", "guests", "v1beta1"),
    ("azuread-application", "portal", "v1beta1"),
    ("cert-manager-certificate", "modern", "v1"),
    ("cert-manager-certificate", "web", "v1alpha2"),
    ("cert-manager-issuer", "letters", "v1beta1"),
    ("cluster-api-cluster", "kcp", "v1beta1"),
    ("cluster-api-cluster", "topo", "v1beta1"),
    ("cluster-api-machine", "worker", "v1beta1"),
    ("karpenter-nodepool", "large", "v1"),
    ("karpenter-nodepool", "spot", "v1beta1"),
    ("tekton-task", "build", "v1beta1"),
];

fn read(path: &Path) -> Value {
    serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// A published API: its definition as its project ships it, and our rules.
struct Published {
    definition: Value,
    definition_file: String,
    rules_file: String,
    /// Folder with objects, `<case>.<version>.yaml`.
    objects: PathBuf,
}

impl Published {
    /// Returns the API of a folder, or `None` where its definition is not at hand.
    fn find(folder: &str) -> Option<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let real = root.join("../../shared/testdata/real").join(folder);
        let rules = root.join("../config/samples/published").join(folder);
        let definition = real.join("crd.yaml");
        if !definition.exists() {
            eprintln!("skipped: {} is not there", definition.display());
            return None;
        }
        // Where the project's own conversion made objects, those are the wanted ones.
        let objects = [&real, &rules].map(|place| place.join("objects"));
        Some(Published {
            definition: read(&definition),
            definition_file: definition.to_str().unwrap().to_owned(),
            rules_file: rules.join("conversion.yaml").to_str().unwrap().to_owned(),
            objects: objects.into_iter().find(|objects| objects.exists()).unwrap(),
        })
    }

    fn text(&self, pointer: &str) -> &str {
        self.definition.pointer(pointer).unwrap().as_str().unwrap()
    }

    /// Returns the versions of which a case has an object, with the object.
    fn objects(&self, case: &str) -> Vec<(String, Value)> {
        let versions = self.definition["spec"]["versions"].as_array().unwrap().iter();
        let objects = versions.filter_map(|version| {
            let version = version["name"].as_str().unwrap();
            let file = self.objects.join(format!("{case}.{version}.yaml"));
            let mut object = file.exists().then(|| read(&file))?;
            object["apiVersion"] = json!(format!("{}/{version}", self.text("/spec/group")));
            object["kind"] = json!(self.text("/spec/names/kind"));
            Some((version.to_owned(), object))
        });
        objects.collect()
    }

    fn path(&self, version: &str) -> String {
        let (group, plural) = (self.text("/spec/group"), self.text("/spec/names/plural"));
        match self.text("/spec/scope") {
            "Namespaced" => format!("/apis/{group}/{version}/namespaces/default/{plural}"),
            _ => format!("/apis/{group}/{version}/{plural}"),
        }
    }
}

/// Returns the APIs that are at hand, each once.
fn published() -> Vec<(&'static str, Published)> {
    let mut folders: Vec<&str> = CASES.iter().map(|(folder, ..)| *folder).collect();
    folders.dedup();
    let found = folders.into_iter().map(|folder| (folder, Published::find(folder)));
    found.filter_map(|(folder, api)| Some((folder, api?))).collect()
}

#[test]
fn rules_for_published_apis_pass_the_tool() {
    for (folder, api) in published() {
        let files = ["-f", &api.definition_file, "-f", &api.rules_file];
        let (code, out, error) = ran(&[&["conversion", "test"], &files[..]].concat(), "");
        assert_eq!(code, 0, "{folder}:\n{out}{error}");
        for (_, case, writer) in CASES.iter().filter(|(of, ..)| *of == folder) {
            let objects = api.objects(case);
            let written = objects.iter().find(|(version, _)| version == writer).unwrap();
            for (version, want) in &objects {
                let arguments = ["conversion", "convert", "--to", version, "-o", "json", "-f", "-"];
                let (code, out, error) = ran(&[&arguments, &files[..]].concat(), &written.1.to_string());
                assert_eq!(code, 0, "{folder}, {case}:\n{out}{error}");
                let got: Value = serde_json::from_str(&out).unwrap();
                assert_eq!(got["spec"], want["spec"], "{folder}, {case}: {writer} as {version}");
            }
        }
    }
}

/// Publishes an API with its rules, as an author does.
fn publish(server: &Server, provider: &str, api: &Published) {
    let kubeconfig = server.kubeconfig();
    let name = api.text("/spec/names/plural");
    let arguments = [
        "export",
        "publish",
        "-f",
        &api.definition_file,
        "-f",
        &api.rules_file,
        "--name",
        name,
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
        "--workspace",
        provider,
        "--apply",
    ];
    let (code, out, error) = ran(&arguments, "");
    assert_eq!(code, 0, "{name}:\n{out}{error}");
}

fn bind(tenant: &Client, provider: &str, api: &Published) {
    let name = api.text("/spec/names/plural");
    let bindings = "/apis/apis.kcp.io/v1alpha2/apibindings";
    let binding = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": name},
        "spec": {"reference": {"export": {"path": provider, "name": name}}},
    });
    tenant.post(bindings, &binding).expect(201);
    until("the API is bound", || {
        let found = tenant.get(&format!("{bindings}/{name}")).expect(200);
        (found["status"]["phase"] == "Bound").then_some(())
    });
}

/// Asserts that a tenant reads an object in every version as its case shows it.
fn assert_reads(tenant: &Client, api: &Published, name: &str, want: &[(String, Value)], when: &str) {
    for (version, want) in want {
        let got = tenant.get(&format!("{}/{name}", api.path(version))).expect(200);
        assert_eq!(got["spec"], want["spec"], "{name} as {version}, {when}");
    }
}

/// Two tenants bind each API. The first writes each object in the version of its case, and then
/// through every other version; the second writes it in the others.
#[test]
fn tenants_use_published_apis_in_every_version() {
    let server = shared();
    let admin = server.admin();
    let apis = published();
    let (provider, _) = workspace(&admin, "published");
    let [one, two] = ["one", "two"].map(|name| admin.in_workspace(&workspace(&admin, name).0));
    for (_, api) in &apis {
        publish(&server, &provider, api);
        bind(&one, &provider, api);
        bind(&two, &provider, api);
    }
    for (folder, case, writer) in CASES {
        let Some((_, api)) = apis.iter().find(|(of, _)| *of == folder) else {
            continue;
        };
        let objects = api.objects(case);
        let object = |version: &str| objects.iter().find(|(of, _)| of == version).unwrap().1.clone();
        one.post(&api.path(writer), &object(writer)).expect(201);
        assert_reads(&one, api, case, &objects, "once written");
        for (version, _) in &objects {
            let path = format!("{}/{case}", api.path(version));
            let mut edited = one.get(&path).expect(200);
            edited["metadata"]["annotations"]["edited-through"] = json!(version);
            one.put(&path, &edited).expect(200);
            assert_reads(&one, api, case, &objects, &format!("written through {version}"));
        }
        for (version, _) in objects.iter().filter(|(version, _)| *version != writer) {
            let mut other = object(version);
            let name = format!("{case}-{version}");
            other["metadata"]["name"] = json!(name);
            two.post(&api.path(version), &other).expect(201);
            let got = two.get(&format!("{}/{name}", api.path(version))).expect(200);
            assert_eq!(got["spec"], other["spec"], "{name}");
        }
        assert_reads(&one, api, case, &objects, "beside another tenant");
    }
}

/// Definitions that their projects publish are published here: as they are, and with the rules that
/// `suggest` drafts for them.
#[test]
fn published_definitions_are_published_with_and_without_drafts() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/testdata/published");
    let Ok(folders) = root.read_dir() else {
        eprintln!("skipped: {} is not there", root.display());
        return;
    };
    let server = shared();
    let providers = ["plain", "drafted"].map(|name| workspace(&server.admin(), name).0);
    let kubeconfig = server.kubeconfig();
    let dir = tempfile::tempdir().unwrap();
    let mut refused = Vec::new();
    let mut files: Vec<PathBuf> = folders.map(|folder| folder.unwrap().path().join("crd.yaml")).collect();
    files.retain(|file| file.exists());
    files.sort();
    for file in &files {
        let file = file.to_str().unwrap();
        let (_, drafted, error) = ran(&["conversion", "suggest", file], "");
        let draft = dir.path().join("draft.yaml");
        fs::write(&draft, &drafted).unwrap();
        let rules = ["-f", draft.to_str().unwrap()];
        for (provider, rules) in providers.iter().zip([&[][..], &rules[..]]) {
            let publish = [
                "export",
                "publish",
                "--apply",
                "--accept-incompatible",
                "--accept-draft",
            ];
            let to = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--workspace", provider];
            let (code, _, why) = ran(&[&publish[..], &["-f", file], rules, &to[..]].concat(), "");
            if code != 0 {
                refused.push(format!("{file} {rules:?}: {why}{error}"));
            }
        }
    }
    assert!(
        refused.is_empty() && files.len() >= 33,
        "{}\n{}",
        files.len(),
        refused.join("\n")
    );
}

/// Returns the definition of gears with these fields of `spec` in v1, v2 and so on; the last is
/// stored.
fn gears(fields: &[Value]) -> Value {
    let versions = fields.iter().enumerate().map(|(i, fields)| {
        let spec = json!({"type": "object", "properties": fields});
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
        json!({"name": format!("v{}", i + 1), "served": true, "schema": schema})
    });
    let mut versions: Vec<Value> = versions.collect();
    let last = versions.len() - 1;
    for (i, version) in versions.iter_mut().enumerate() {
        version["storage"] = json!(i == last);
    }
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gears.release.example.io"},
        "spec": {"group": "release.example.io", "scope": "Cluster", "names": {"plural": "gears", "kind": "Gear"},
            "versions": versions}})
}

/// Returns the rules of gears, with this expression from v1 to v2.
fn gear_rules(to_new: &str) -> Value {
    json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion",
    "metadata": {"name": "gears.release.example.io"},
    "spec": {"conversions": [
        {"from": "v1", "to": "v2", "rules": [{"from": to_new, "to": "spec.teeth", "mayFail": true}]},
        {"from": "v2", "to": "v1", "rules": [{"from": "string(v2.spec.teeth)", "to": "spec.size"}]},
    ]}})
}

/// Creates two consumers with two gears each, one of which has no size in numbers.
fn consumers_with_gears(admin: &Client, provider: &str) {
    let binding = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "gears"},
        "spec": {"reference": {"export": {"path": provider, "name": "release.example.io"}}},
    });
    let gears = "/apis/release.example.io/v1/gears";
    for sizes in [["12", "8"], ["16", "large"]] {
        let tenant = admin.in_workspace(&workspace(admin, "gears").0);
        tenant
            .post("/apis/apis.kcp.io/v1alpha2/apibindings", &binding)
            .expect(201);
        until("gears are served", || (tenant.get(gears).code == 200).then_some(()));
        for size in sizes {
            let gear = json!({"apiVersion": "release.example.io/v1", "kind": "Gear",
                "metadata": {"name": format!("gear-{size}")}, "spec": {"size": size}});
            tenant.post(gears, &gear).expect(201);
        }
    }
}

/// Applies schema and rules of a draft, and then its export as a dry run, which warns of the gear
/// that could not be read.
fn kubectl_warns(server: &Server, provider: &str, drafted: &str) {
    let Some(kubectl) = Kubectl::for_server(server) else {
        return;
    };
    let (exports, others): (Vec<&str>, Vec<&str>) = drafted
        .split("\n---\n")
        .partition(|document| document.contains("kind: APIExport\n"));
    let applied = kubectl.run(provider, &["apply", "-f", "-"], &others.join("\n---\n"));
    assert_eq!(applied.code, 0, "{}", applied.text);
    let tried = kubectl.run(provider, &["apply", "--dry-run=server", "-f", "-"], exports[0]);
    let told = "1 of 4 stored objects, in 1 workspace, could not be read: gear-large in root:";
    assert!(
        tried.code == 0 && tried.text.contains(told) && tried.text.contains(".spec.teeth"),
        "{}",
        tried.text
    );
}

/// A release whose rules some stored objects cannot follow is found by `--check` before it is made,
/// and stays unpublished; corrected, it is published, and `--wait` returns when all consumers have
/// it.
#[test]
fn a_release_is_tried_on_stored_objects_first() {
    let server = shared();
    let admin = server.admin();
    let (provider, _) = workspace(&admin, "release");
    let kubeconfig = server.kubeconfig();
    let dir = tempfile::tempdir().unwrap();
    let run = |documents: &[Value], flags: &[&str]| {
        let file = dir.path().join("gears.yaml");
        let texts: Vec<String> = documents.iter().map(Value::to_string).collect();
        fs::write(&file, texts.join("\n---\n")).unwrap();
        let to = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--workspace", &provider];
        ran(
            &[&["export", "publish", "-f", file.to_str().unwrap()], &to[..], flags].concat(),
            "",
        )
    };
    let text = json!({"type": "string"});
    let one = gears(&[json!({"size": text})]);
    let two = gears(&[json!({"size": text}), json!({"teeth": {"type": "integer"}})]);
    let (code, out, error) = run(&[one], &["--apply", "--wait"]);
    assert_eq!(code, 0, "{out}{error}");
    consumers_with_gears(&admin, &provider);
    let wrong = [two.clone(), gear_rules("int(v1.spec.size)")];
    let (code, out, error) = run(&wrong, &["--check"]);
    assert_eq!(code, 1, "{out}{error}");
    assert!(
        out.contains("1 of 4 stored objects could not be read, in 1 workspaces"),
        "{out}"
    );
    assert!(out.contains("  gear-large in "), "{out}");
    let (code, out, error) = run(&wrong, &["--check", "--apply"]);
    assert_eq!(code, 1, "nothing is published: {out}{error}");
    let export = admin
        .in_workspace(&provider)
        .get("/apis/apis.kcp.io/v1alpha2/apiexports/release.example.io");
    let export = export.expect(200);
    let before = export["spec"]["resources"][0]["schema"].clone();

    let (_, drafted, _) = run(&wrong, &[]);
    kubectl_warns(&server, &provider, &drafted);
    let right = [
        two,
        gear_rules("v1.spec.size.matches('^[0-9]{1,9}$') ? int(v1.spec.size) : 0"),
    ];
    let (code, out, error) = run(&right, &["--check", "--apply", "--wait", "--timeout", "60"]);
    assert_eq!(code, 0, "{out}{error}");
    assert!(out.contains("all 4 stored objects can be read"), "{out}");
    assert!(error.contains("2 consumers are served by the release"), "{error}");
    let export = admin
        .in_workspace(&provider)
        .get("/apis/apis.kcp.io/v1alpha2/apiexports/release.example.io");
    assert_ne!(export.expect(200)["spec"]["resources"][0]["schema"], before);
}
