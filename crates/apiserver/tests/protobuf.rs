//! Protobuf against Kubernetes' own Go types: `e2e/clients/messages` prints the table of fields,
//! and objects of every kind as Go encodes them. What it prints anew is skipped, with a message,
//! where Go or its packages are missing.

use base64::{Engine, engine::general_purpose::STANDARD};
use insula_api::Json;
use insula_apiserver::protobuf::{decode, encode};
use serde_json::json;
use std::{path::Path, process::Command};

/// Objects of each kind.
const SAMPLES: &str = "40";
/// Another seed than that of the samples in `tests/data`.
const SEED: &str = "2";

/// Runs the program; `None` with a message where it cannot be built.
fn messages(arguments: &[&str]) -> Option<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/clients/messages");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("messages-{}", arguments[0]));
    let mut build = Command::new("go");
    let built = build
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(source)
        .output();
    let why = match built {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Some(error.to_string()),
    };
    if let Some(why) = why {
        eprintln!("skipped: no program of Kubernetes' types: {why}");
        return None;
    }
    let output = Command::new(program).args(arguments).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).expect("is text"))
}

/// To take the fields of another version of Kubernetes, change `go.mod` there and print the table
/// into the file.
#[test]
fn the_table_of_fields_is_that_of_kubernetes() {
    if let Some(table) = messages(&["table"]) {
        let own = include_str!("../src/protobuf/messages.txt");
        let mut pairs = table.lines().zip(own.lines());
        assert_eq!(pairs.find(|(theirs, own)| theirs != own), None);
        assert_eq!(table.lines().count(), own.lines().count());
    }
}

/// Objects of every kind with random fields, in JSON and in protobuf, as the program printed them.
const RECORDED: &str = include_str!("data/protobuf/samples.tsv");

/// Returns a field of bytes.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let (mut length, mut out) = (content.len(), vec![number << 3 | 2]);
    while length > 0x7f {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    [&out, content].concat()
}

/// Returns `k8s\0` and a `runtime.Unknown`, whose two encodings are empty.
fn envelope(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    let fields = [field(1, &meta), field(2, message), field(3, b""), field(4, b"")];
    [&b"k8s\0"[..], &fields.concat()].concat()
}

/// Removes what Go prints for a nil list, map, time or JSON.
fn without_nulls(value: Json) -> Json {
    match value {
        Json::Object(map) => {
            let held = map.into_iter().filter(|(_, value)| !value.is_null());
            held.map(|(key, value)| (key, without_nulls(value))).collect()
        }
        Json::Array(list) => list.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// Returns the path of the first difference, and both values.
fn difference(read: &Json, wanted: &Json) -> Option<String> {
    let inner = |key: String, (read, wanted)| difference(read, wanted).map(|path| format!(".{key}{path}"));
    match (read, wanted) {
        (Json::Object(a), Json::Object(b)) if a.keys().eq(b.keys()) => a
            .iter()
            .zip(b.values())
            .find_map(|((key, a), b)| inner(key.clone(), (a, b))),
        (Json::Array(a), Json::Array(b)) if a.len() == b.len() => {
            let mut pairs = a.iter().zip(b).enumerate();
            pairs.find_map(|(index, pair)| inner(index.to_string(), pair))
        }
        _ => (read != wanted).then(|| format!(": {read} instead of {wanted}")),
    }
}

/// Compares with Go: its bytes are read as its JSON, and its JSON is written as its bytes.
fn compare(sample: &str) {
    let [api_version, kind, text, bytes] = *sample.split('\t').collect::<Vec<_>>() else {
        panic!("{sample}");
    };
    let mut object: Json = serde_json::from_str(text).expect("is JSON");
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    let bytes = envelope(api_version, kind, &STANDARD.decode(bytes).expect("is base64"));
    let read = decode(&bytes).expect("is read");
    assert_eq!(
        difference(&without_nulls(read.clone()), &without_nulls(object.clone())),
        None,
        "{sample}"
    );
    assert_eq!(encode(&object).expect("is written"), bytes, "{sample}");
    // What is read may be stored without the nulls.
    assert_eq!(encode(&read).expect("is written"), bytes, "{sample}");
}

#[test]
fn recorded_objects_are_read_and_written_as_go_does() {
    assert!(RECORDED.lines().count() > 60);
    RECORDED.lines().for_each(compare);
}

#[test]
fn objects_of_every_kind_are_read_and_written_as_go_does() {
    if let Some(samples) = messages(&["samples", SEED, SAMPLES]) {
        assert!(samples.lines().count() > 2000);
        samples.lines().for_each(compare);
    }
}
