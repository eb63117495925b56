//! Texts that the tools without a server print, as recorded in `output/`. `cargo xtask bless`
//! records them anew.

use std::{
    fs::File,
    path::Path,
    process::{Command, Stdio},
};

use expect_test::{ExpectFile, expect_file};

/// Runs the binary in the root of the repository, with a file as standard input. Compares its
/// output, and the exit code below it.
fn check(arguments: &str, input: Option<&str>, want: ExpectFile) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let input = input.map(|file| File::open(root.join(file)).unwrap());
    let output = Command::new(env!("CARGO_BIN_EXE_insula"))
        .args(arguments.split_whitespace())
        .current_dir(&root)
        .stdin(input.map_or_else(Stdio::null, Stdio::from))
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let code = output.status.code().unwrap();
    let got = format!(
        "$ insula {arguments}\n{}{}exit code {code}\n",
        text(&output.stdout),
        text(&output.stderr)
    );
    want.assert_eq(&got);
}

#[test]
fn coverage_lists_every_field_with_its_outcome() {
    check(
        "conversion coverage -f config/samples/conversions/computed",
        None,
        expect_file!["output/coverage.txt"],
    );
}

#[test]
fn a_rule_set_that_holds_is_reported_with_its_samples() {
    check(
        "conversion test --cases 50 -f config/samples/conversions/computed",
        None,
        expect_file!["output/test.txt"],
    );
}

#[test]
fn a_rule_that_fails_is_reported_with_an_object_that_shows_it() {
    check(
        "conversion test -f -",
        Some("crates/insula/tests/output/failing.yaml"),
        expect_file!["output/test_failing.txt"],
    );
}

#[test]
fn suggestions_are_rules_with_their_confidence() {
    check(
        "conversion suggest config/samples/conversions/numbers-and-text/schema.yaml",
        None,
        expect_file!["output/suggest.txt"],
    );
    check(
        "conversion suggest config/samples/conversions/moves/schema.yaml -o table",
        None,
        expect_file!["output/suggest_table.txt"],
    );
}

#[test]
fn schemas_are_compared_field_by_field() {
    check(
        "schema diff crates/insula/tests/output/old.yaml crates/insula/tests/output/new.yaml --fail-on breaking",
        None,
        expect_file!["output/diff.txt"],
    );
}

#[test]
fn findings_of_lint_name_their_field() {
    check(
        "schema lint -f crates/insula/tests/output/new.yaml",
        None,
        expect_file!["output/lint.txt"],
    );
}
