//! Protobuf against Kubernetes' own Go types: `e2e/clients/messages` prints the table of fields,
//! and objects of every kind as Go encodes them. Skipped, with a message, where Go or its packages
//! are missing.

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

#[test]
fn objects_of_every_kind_are_read_and_written_as_go_does() {
    let Some(samples) = messages(&["samples", SEED, SAMPLES]) else {
        return;
    };
    assert!(samples.lines().count() > 2000);
    for sample in samples.lines() {
        let [api_version, kind, text, message] = *sample.split('\t').collect::<Vec<_>>() else {
            panic!("{sample}");
        };
        let mut object: Json = serde_json::from_str(text).expect("is JSON");
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        let written = encode(&object).expect("is written");
        let message = STANDARD.decode(message).expect("is base64");
        // The message stands behind its type, before the two empty encodings.
        assert!(written[..written.len() - 4].ends_with(&message), "{sample}");
        let read = decode(&written).expect("is read");
        assert_eq!(encode(&read).expect("is written"), written, "{sample}");
    }
}
