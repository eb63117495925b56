//! The tools without a server on ten published definitions (`../shared/testdata/real`): drafts with
//! rules for all versions are accepted as they are, and every command ends soon.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

/// CPU time of a command. A debug build takes several times as long as a release.
const SECONDS_MAX: u32 = 15;

fn folders() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/testdata/real");
    let Ok(entries) = fs::read_dir(&root) else {
        eprintln!("skipped: {} does not exist", root.display());
        return Vec::new();
    };
    let mut folders: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    folders
}

/// Runs the binary with a limit of CPU time: it is killed when it needs more.
fn ran(arguments: &[&str]) -> Output {
    let limited = format!("ulimit -t {SECONDS_MAX}; exec \"$0\" \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &limited, env!("CARGO_BIN_EXE_insula")])
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.code().is_some_and(|code| code < 2),
        "{arguments:?}: {output:?}"
    );
    output
}

/// No suggestion is lost to the proof, and the conversion of a draft is accepted by the commands
/// that take rules.
#[test]
fn drafts_for_published_definitions_are_complete() {
    for folder in folders() {
        let crd = folder.join("crd.yaml");
        let crd = crd.to_str().unwrap();
        let output = ran(&["conversion", "suggest", crd, "-o", "json"]);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let drafts = answer["drafts"]
            .as_array()
            .cloned()
            .unwrap_or_else(|| vec![answer.clone()]);
        for draft in &drafts {
            assert_eq!(draft["refused"], Value::Array(Vec::new()), "{crd}");
            for pair in draft["pairs"].as_array().unwrap() {
                assert_eq!(pair["needsWork"], Value::Null, "{crd}: {pair}");
            }
        }
        let rules = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        fs::write(rules.path(), answer["conversion"].to_string()).unwrap();
        let rules = rules.path().to_str().unwrap();
        ran(&["conversion", "coverage", "-f", crd, "-f", rules]);
        ran(&["conversion", "test", "-f", crd, "-f", rules]);
        ran(&["schema", "lint", "-f", crd]);
        ran(&["schema", "diff", crd, crd]);
    }
}
