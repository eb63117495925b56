//! Real definitions (`../shared/testdata/crds`) in use: installed, explained, filled with objects,
//! protected from invalid ones. Without the definitions the tests print the reason and pass.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use insula_e2e::{Breakage, Client, Generator, Kubectl, shared, until, workspace};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Seeds of one version's objects. A seed also determines the share of optional fields.
const SEEDS: u64 = 12;
/// Broken objects of one version that the test sends.
const BREAKAGES_MAX: usize = 25;

/// Returns the definitions of one project, by file.
fn definitions(project: &str) -> Vec<(PathBuf, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/testdata/crds")
        .join(project);
    let Ok(files) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: no definitions at {}", folder.display());
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        (path, serde_saphyr::from_str(&text).unwrap())
    };
    files.into_iter().map(read).collect()
}

/// One served version of a definition.
struct Version<'a> {
    definition: &'a Value,
    version: &'a Value,
}

impl Version<'_> {
    fn group_version(&self) -> String {
        let spec = &self.definition["spec"];
        format!(
            "{}/{}",
            spec["group"].as_str().unwrap(),
            self.version["name"].as_str().unwrap()
        )
    }

    fn path(&self) -> String {
        let spec = &self.definition["spec"];
        let place = if spec["scope"] == "Cluster" {
            ""
        } else {
            "namespaces/default/"
        };
        format!(
            "/apis/{}/{place}{}",
            self.group_version(),
            spec["names"]["plural"].as_str().unwrap()
        )
    }

    fn schema(&self) -> &Value {
        &self.version["schema"]["openAPIV3Schema"]
    }

    /// Returns a generated object. The first seeds set only required fields, the last ones nearly
    /// all.
    fn object(&self, seed: u64) -> Value {
        let mut generator = Generator::new(seed, seed * 90 / SEEDS);
        let mut object = generator.value(self.schema(), 0);
        object["apiVersion"] = self.group_version().into();
        object["kind"] = self.definition["spec"]["names"]["kind"].clone();
        object["metadata"] = json!({"name": format!("seed-{seed}")});
        object
    }
}

/// Returns true for a cause that can come from constraints that the generator does not know: rules
/// in CEL, junctors, and the fields that they require.
fn beyond_the_generator(version: &Version<'_>, cause: &Value) -> bool {
    let told = cause["message"].as_str().unwrap_or_default();
    let text = version.schema().to_string();
    let rules = text.contains("x-kubernetes-validations") || text.contains("oneOf") || text.contains("anyOf");
    rules && !told.contains("must be of type") && !told.contains("Unsupported value") && !told.contains("should match")
}

/// Checks that the server accepts objects of all seeds, unless a rule refuses one. Returns the
/// accepted object with the most fields.
fn accepted(client: &Client, version: &Version<'_>) -> Value {
    let mut found = Vec::new();
    for seed in 0..SEEDS {
        let object = version.object(seed);
        let answer = client.post(&format!("{}?fieldValidation=Strict", version.path()), &object);
        if answer.code == 201 {
            // Strict validation refuses unknown fields, so comparing the kind is enough.
            assert_eq!(answer.body["kind"], object["kind"]);
            client.delete(&format!("{}/seed-{seed}", version.path())).expect(200);
            found.push(object);
            continue;
        }
        assert_eq!(
            answer.code,
            422,
            "{} seed {seed}: {}\n{object}",
            version.path(),
            answer.text
        );
        for cause in answer.body["details"]["causes"].as_array().into_iter().flatten() {
            let text = &answer.text;
            assert!(
                beyond_the_generator(version, cause),
                "{} seed {seed}: {cause}\n{text}\n{object}",
                version.path()
            );
        }
    }
    let largest = found.into_iter().max_by_key(|object| object.to_string().len());
    largest.unwrap_or_else(|| panic!("no object of {} is accepted", version.path()))
}

/// Checks that each broken object is refused and that the refusal names the field. A broken status
/// goes to the status subresource.
fn broken_are_refused(client: &Client, version: &Version<'_>, object: &Value) -> usize {
    let path = version.path();
    client.post(&path, object).expect(201);
    let live = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap());
    let has_status = version.version["subresources"]["status"].is_object();
    let breakages = Generator::new(0, 0).breakages(version.schema(), object);
    let step = breakages.len().div_ceil(BREAKAGES_MAX).max(1);
    let sent = breakages.iter().step_by(step);
    let count = sent.len();
    for Breakage { object, field, message } in sent {
        let refused = match field.starts_with("status") && has_status {
            true => client.merge(&format!("{live}/status"), &json!({"status": object["status"]})),
            false => client.post(&path, object),
        };
        let refused = refused.expect(422);
        let causes = refused["details"]["causes"].as_array().unwrap();
        let named = causes.iter().any(|cause| {
            cause["field"] == *field && cause["message"].as_str().is_some_and(|told| told.contains(message))
        });
        assert!(named, "{path}: want {field}: {message} in {refused:#}\n{object}");
    }
    let mut unknown = object.clone();
    unknown["xyzzy"] = 1.into();
    let refused = client
        .post(&format!("{path}?fieldValidation=Strict"), &unknown)
        .expect(400);
    assert!(
        refused["message"].as_str().unwrap().contains("unknown field \"xyzzy\""),
        "{refused}"
    );
    client.delete(&live).expect(200);
    count
}

fn explained(kubectl: &Kubectl, workspace: &str, version: &Version<'_>) {
    let (plural, api_version) = (
        version.definition["spec"]["names"]["plural"].as_str().unwrap(),
        version.group_version(),
    );
    let arguments = [
        "explain",
        plural,
        "--recursive",
        &format!("--api-version={api_version}"),
    ];
    let ran = kubectl.run(workspace, &arguments, "");
    assert_eq!(ran.code, 0, "{api_version} {plural}: {}", ran.text);
    for field in version.schema()["properties"].as_object().unwrap().keys() {
        assert!(
            ran.text.contains(field.as_str()),
            "{api_version} {plural} lacks {field}: {}",
            ran.text
        );
    }
}

/// Runs a project's definitions through all steps of their use.
fn used(project: &str) {
    let definitions = definitions(project);
    if definitions.is_empty() {
        return;
    }
    let server = shared();
    let admin = server.admin();
    let (place, _) = workspace(&admin, project);
    let client = admin.in_workspace(&place);
    for (file, definition) in &definitions {
        let answer = client.post(&format!("{DEFINITIONS}?fieldValidation=Strict"), definition);
        assert_eq!(answer.code, 201, "{}: {}", file.display(), answer.text);
    }
    let kubectl = Kubectl::for_server(&server);
    for (_, definition) in &definitions {
        let name = definition["metadata"]["name"].as_str().unwrap();
        until("the definition is established", || {
            let found = client.get(&format!("{DEFINITIONS}/{name}")).expect(200);
            let conditions = found["status"]["conditions"].as_array()?;
            conditions
                .iter()
                .any(|c| c["type"] == "Established" && c["status"] == "True")
                .then_some(())
        });
        for version in definition["spec"]["versions"].as_array().unwrap() {
            let version = Version { definition, version };
            if let Some(kubectl) = &kubectl {
                explained(kubectl, &place, &version);
            }
            let object = accepted(&client, &version);
            let broken = broken_are_refused(&client, &version, &object);
            eprintln!(
                "{}: accepted up to {} bytes, refused {broken}",
                version.path(),
                object.to_string().len()
            );
        }
    }
}

#[test]
fn definitions_of_cert_manager_are_used() {
    used("cert-manager");
}

#[test]
fn definitions_of_crossplane_are_used() {
    used("crossplane");
}

/// The server serves kcp's own kinds already, and no definition can replace them.
#[test]
fn definitions_of_kcp_groups_are_reserved() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "reserved").0);
    for (file, definition) in definitions("kcp") {
        // A definition may use those of kcp's kinds that no workspace serves.
        let spec = &definition["spec"];
        let version = Version {
            definition: &definition,
            version: &spec["versions"][0],
        };
        if client.get(&version.path()).code == 404 {
            continue;
        }
        let refused = client.post(DEFINITIONS, &definition);
        let reasons = ["is a reserved group", "is served by every workspace already"];
        let told = reasons.iter().any(|reason| refused.text.contains(reason));
        assert!(refused.code == 403 && told, "{}: {}", file.display(), refused.text);
    }
}

/// Annotations by which kcp's programs tell bound definitions from a tenant's own are nobody's.
#[test]
fn annotations_of_bound_definitions_are_reserved() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "marked").0);
    let definition = |annotations: Value| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "marks.example.io", "annotations": annotations},
            "spec": {"group": "example.io", "scope": "Cluster", "names": {"plural": "marks", "kind": "Mark"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
    };
    let refused = client.post(DEFINITIONS, &definition(json!({"apis.kcp.io/bound-crd": "t"})));
    let why = "customresourcedefinitions.apiextensions.k8s.io \"marks.example.io\" is forbidden: \
               apis.kcp.io/bound-crd is a reserved annotation";
    assert_eq!((refused.code, refused.body["message"].as_str()), (403, Some(why)));
    client
        .post(DEFINITIONS, &definition(json!({"apis.kcp.io.example.io/mine": "t"})))
        .expect(201);
}

/// Writes beside changes of their definition succeed: the server routes them anew, as a client of
/// Kubernetes expects that sent no resourceVersion.
#[test]
fn writes_succeed_while_their_definition_changes() {
    const CHANGES: usize = 60;
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "rerouted").0);
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "belts.example.io"},
        "spec": {"group": "example.io", "scope": "Cluster", "names": {"plural": "belts", "kind": "Belt"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    client.post(DEFINITIONS, &definition).expect(201);
    let belts = "/apis/example.io/v1/belts";
    until("belts are served", || (client.get(belts).code == 200).then_some(()));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..CHANGES {
                let change = json!({"spec": {"names": {"shortNames": [format!("b{i}")]}}});
                client
                    .merge(&format!("{DEFINITIONS}/belts.example.io"), &change)
                    .expect(200);
            }
            done.store(true, Ordering::Relaxed);
        });
        for writer in 0..3 {
            let (client, done) = (client.clone(), &done);
            scope.spawn(move || {
                for i in 0.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let name = format!("belt-{writer}-{i}");
                    let belt = json!({"apiVersion": "example.io/v1", "kind": "Belt", "metadata": {"name": name}});
                    client.post(belts, &belt).expect(201);
                    let change = json!({"spec": {"teeth": i}});
                    client.merge(&format!("{belts}/{name}"), &change).expect(200);
                }
            });
        }
    });
}
