//! OpenAPI documents of large definitions, compressed and plain. A document assembled from
//! compressed parts was corrupt as soon as one part had more than 32 KiB to flush.

use std::{
    collections::BTreeSet,
    io::Read,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use flate2::read::GzDecoder;
use insula_e2e::{Client, Kubectl, Server, shared, until, workspace};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// Fetches a document with gzip and without, checks that both have the same bytes, and returns it.
fn document(client: &Client, path: &str, accept: &str) -> Bytes {
    let plain = client.get_with(path, &[("accept", accept)]);
    let packed = client.get_with(path, &[("accept", accept), ("accept-encoding", "gzip")]);
    assert_eq!((plain.code, packed.code), (200, 200), "{path}: {:.300}", plain.text);
    assert_eq!(packed.headers["content-encoding"], "gzip", "{path}");
    let mut unpacked = Vec::new();
    let read = GzDecoder::new(&*packed.bytes).read_to_end(&mut unpacked);
    read.unwrap_or_else(|error| panic!("{path}: {error} after {} bytes", unpacked.len()));
    assert!(
        plain.bytes == unpacked,
        "{path}: the compressed document is another one"
    );
    plain.bytes
}

/// Checks that every document of a workspace is complete. Returns the definitions and the paths of
/// version 2.
fn documents(client: &Client) -> (BTreeSet<String>, BTreeSet<String>) {
    let index = client.get("/openapi/v3").expect(200);
    for (path, place) in index["paths"].as_object().unwrap() {
        let url = place["serverRelativeURL"].as_str().unwrap();
        let (_, hash) = url.split_once('?').unwrap();
        let bytes = document(client, &format!("/openapi/v3/{path}?{hash}"), "application/json");
        let found: Value = serde_json::from_slice(&bytes).unwrap();
        assert!(found["paths"].is_object(), "{path}");
    }
    assert!(document(client, "/openapi/v2", PROTOBUF).len() > 1000);
    let whole: Value = serde_json::from_slice(&document(client, "/openapi/v2", "application/json")).unwrap();
    let keys = |field: &str| whole[field].as_object().unwrap().keys().cloned().collect();
    (keys("definitions"), keys("paths"))
}

/// Installs a definition. Returns false where its name is taken or reserved.
fn install(client: &Client, definition: &Value) -> bool {
    let answer = client.post(DEFINITIONS, definition);
    let name = definition["metadata"]["name"].as_str().unwrap();
    if answer.code != 201 {
        assert!(
            name.ends_with(".kcp.io") || answer.code == 409,
            "{name}: {:.500}",
            answer.text
        );
        return false;
    }
    until("the definition is established", || {
        let found = client.get(&format!("{DEFINITIONS}/{name}")).expect(200);
        let mut conditions = found["status"]["conditions"].as_array().into_iter().flatten().cloned();
        conditions
            .any(|one| one["type"] == "Established" && one["status"] == "True")
            .then_some(())
    });
    true
}

/// Returns the paths under which version 2 must contain a definition.
fn paths(definition: &Value) -> Vec<String> {
    let spec = &definition["spec"];
    let place = if spec["scope"] == "Cluster" {
        ""
    } else {
        "namespaces/{namespace}/"
    };
    let (group, plural) = (
        spec["group"].as_str().unwrap(),
        spec["names"]["plural"].as_str().unwrap(),
    );
    let served = spec["versions"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|version| version["served"] == true);
    let path = |version: &Value| format!("/apis/{group}/{}/{place}{plural}", version["name"].as_str().unwrap());
    served.map(path).collect()
}

/// Runs kubectl commands on an object of a large kind.
fn kubectl(server: &Server, workspace: &str, resource: &str, object: &Value) {
    let Some(kubectl) = Kubectl::for_server(server) else {
        return;
    };
    let run = |arguments: &[&str], stdin: &str, codes: &[i32], told: &str| {
        let ran = kubectl.run(workspace, arguments, stdin);
        assert!(
            codes.contains(&ran.code) && ran.text.contains(told),
            "{arguments:?}: {} {}",
            ran.code,
            ran.text
        );
    };
    let text = object.to_string();
    run(&["explain", resource], "", &[0], "FIELDS:");
    run(
        &["apply", "--dry-run=server", "-f", "-"],
        &text,
        &[0],
        "created (server dry run)",
    );
    run(&["diff", "-f", "-"], &text, &[1], "+");
}

/// Returns the files below a folder whose names end in `.yaml` and that contain a definition.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.path() {
            path if path.is_dir() => found.extend(files(&path)),
            path => found.push(path),
        }
    }
    found.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    found.sort();
    found
}

/// All real definitions in one workspace. Those whose name is taken there go into a workspace of
/// their own.
#[test]
fn openapi_documents_of_real_definitions_are_complete() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/testdata");
    if !folder.exists() {
        eprintln!("skipped: no definitions at {}", folder.display());
        return;
    }
    let read = |path: PathBuf| serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut rest: Vec<Value> = files(&folder).into_iter().map(read).collect();
    rest.retain(|object: &Value| object["kind"] == "CustomResourceDefinition");
    assert!(rest.len() > 40, "{}", rest.len());
    let server = shared();
    let admin = server.admin();
    while !rest.is_empty() {
        let (path, _) = workspace(&admin, "openapi");
        let client = admin.in_workspace(&path);
        let (installed, left): (Vec<Value>, Vec<Value>) = rest.into_iter().partition(|one| install(&client, one));
        let (_, shown) = documents(&client);
        for path in installed.iter().flat_map(paths) {
            assert!(shown.contains(&path), "{path}");
        }
        if installed
            .iter()
            .any(|one| one["metadata"]["name"] == "certificates.cert-manager.io")
        {
            let object = json!({"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": {"name": "a"},
                "spec": {"secretName": "a", "issuerRef": {"name": "a"}}});
            kubectl(&server, &path, "certificates.spec", &object);
        }
        // The server refuses its own kinds everywhere.
        rest = left;
        rest.retain(|one| !one["metadata"]["name"].as_str().unwrap().ends_with(".kcp.io"));
    }
}

/// Returns a definition with this number of bytes of nearly incompressible text.
fn large(plural: &str, bytes: usize) -> Value {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ bytes as u64;
    let mut word = || {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        format!("{state:016x}")
    };
    let mut field = || -> Value {
        let text: Vec<String> = (0..60).map(|_| word()).collect();
        json!({"type": "string", "description": text.join(" ")})
    };
    let fields: serde_json::Map<String, Value> = (0..bytes / 1100).map(|n| (format!("field{n}"), field())).collect();
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
    let kind = plural.trim_end_matches('s');
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.large.example.io")},
        "spec": {
            "group": "large.example.io", "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind, "kind": kind.to_uppercase(),
                "listKind": format!("{}List", kind.to_uppercase())},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// The same with generated definitions, whose parts compress to some 30 KiB, 40 KiB, 100 KiB and
/// more.
#[test]
fn openapi_documents_of_large_definitions_are_complete() {
    let server = shared();
    let admin = server.admin();
    let (path, _) = workspace(&admin, "openapi");
    let client = admin.in_workspace(&path);
    for (plural, bytes) in [
        ("towns", 60_000),
        ("cities", 80_000),
        ("regions", 200_000),
        ("lands", 900_000),
    ] {
        let definition = large(plural, bytes);
        assert!(install(&client, &definition));
        let (_, shown) = documents(&client);
        assert!(paths(&definition).iter().all(|path| shown.contains(path)), "{plural}");
    }
    let object = json!({"apiVersion": "large.example.io/v1", "kind": "LAND", "metadata": {"name": "a"},
        "spec": {"field1": "x"}});
    kubectl(&server, &path, "lands.spec", &object);
}
