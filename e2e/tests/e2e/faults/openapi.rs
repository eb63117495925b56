//! OpenAPI documents of large definitions, compressed and plain. A document assembled from
//! compressed parts was corrupt as soon as one part had more than 32 KiB to flush.

use std::{
    collections::BTreeSet,
    io::Read,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use flate2::read::GzDecoder;
use insula_e2e::{Client, Kubectl, Server, Setup, shared, until, workspace};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const READERS: usize = 20;
/// Memory that documents for many readers may take.
const GROWN_MIB_MAX: u64 = 60;
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

/// Returns a definition of three versions with 2,400 fields each, whose texts compress well.
fn wide(plural: &str) -> Value {
    let text = json!({"type": "string", "description": "x".repeat(50)});
    let fields = |prefix: &str, count: usize, value: &Value| {
        let fields = (0..count).map(|n| (format!("{prefix}{n}"), value.clone()));
        json!({"type": "object", "properties": serde_json::Map::from_iter(fields)})
    };
    let schema = json!({"openAPIV3Schema": fields("f", 60, &fields("g", 40, &text))});
    let version = |n: usize| json!({"name": format!("v{n}"), "served": true, "storage": n == 1, "schema": schema});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.wide.example.io")},
        "spec": {
            "group": "wide.example.io", "scope": "Namespaced",
            "names": {"plural": plural, "kind": plural.to_uppercase()},
            "versions": [version(1), version(2), version(3)],
        },
    })
}

/// Returns a line of the status of a process, in MiB.
#[cfg(target_os = "linux")]
fn status(server: &Server, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let number = line.trim_start_matches(':').trim().trim_end_matches(" kB");
    number.parse::<u64>().unwrap() >> 10
}

/// A document is made once for all who wait for it, an API at a time, and sent from the same bytes.
/// Each reader had its own copies of all schemas and of the whole document: gigabytes.
#[test]
#[cfg(target_os = "linux")]
fn documents_for_many_readers_use_bounded_memory() {
    let server = Server::with(Setup {
        flags: vec!["--store".to_owned(), "memory".to_owned()],
        ..Setup::default()
    });
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "openapi").0);
    for plural in ["as", "bs", "cs", "ds"] {
        assert!(install(&client, &wide(plural)));
    }
    let index = client.get("/openapi/v3").expect(200);
    let versions = ["v1", "v2", "v3"].map(|version| {
        let place = &index["paths"][format!("apis/wide.example.io/{version}")];
        place["serverRelativeURL"].as_str().unwrap().to_owned()
    });
    let [first, second, third] = versions.each_ref().map(String::as_str);
    for paths in [["/openapi/v2"; 3], [first, second, third]] {
        let before = status(&server, "VmRSS");
        // Resets the highest memory so far.
        std::fs::write(format!("/proc/{}/clear_refs", server.pid()), "5").unwrap();
        let readers = (0..READERS).map(|n| {
            let (client, path) = (client.clone(), paths[n % 3].to_owned());
            let client = if n % 2 == 0 { client.over_http1() } else { client };
            std::thread::spawn(move || client.try_send("GET", &path, &[], Bytes::new()))
        });
        let readers: Vec<_> = readers.collect();
        let mut whole = 0;
        // One that gets no answer in time fails the test by the memory that it costs.
        for answer in readers.into_iter().filter_map(|reader| reader.join().unwrap().ok()) {
            if answer.code == 200 {
                let length = answer.headers["content-length"].to_str().unwrap();
                assert_eq!(length, answer.bytes.len().to_string());
                assert!(answer.body["paths"].is_object(), "{:.200}", answer.text);
                whole += 1;
            } else {
                assert_eq!(answer.code, 429, "{}", answer.text);
                assert!(answer.headers.contains_key("retry-after"));
            }
        }
        let grown = status(&server, "VmHWM").saturating_sub(before);
        eprintln!("{READERS} readers of {paths:?}, {whole} answered: +{grown} MiB");
        assert!(grown < GROWN_MIB_MAX, "{before} MiB before, and {grown} MiB more");
        assert!(whole > 0);
    }
}
