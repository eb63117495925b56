//! Every behaviour that `docs/compatibility.md` promises names existing tests.

use std::path::Path;

/// Returns the cells of each row: behaviour, state, remarks, tests.
fn rows(document: &str) -> impl Iterator<Item = Vec<&str>> {
    let rows = document.lines().filter(|line| line.starts_with('|'));
    rows.filter(|line| !line.starts_with("| |") && !line.starts_with("|--"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
}

/// Texts between backticks.
fn named(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Returns true for the name of a script, of a file of end-to-end tests, or of any file.
fn exists(root: &Path, test: &str) -> bool {
    let places = [
        format!("e2e/scripts/{test}.txt"),
        format!("e2e/tests/e2e/{test}.rs"),
        test.to_owned(),
    ];
    places.iter().any(|place| root.join(place).is_file())
}

#[test]
fn every_row_names_existing_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let document = std::fs::read_to_string(root.join("docs/compatibility.md")).expect("the document is there");
    let mut wrong = Vec::new();
    // Its last table is about the tests of others.
    let promises = document
        .split("## Run against others' tests")
        .next()
        .unwrap_or_default();
    for row in rows(promises) {
        let [what, state, _, tests] = row[..] else {
            wrong.push(format!("{} has {} cells, not 4", row[0], row.len()));
            continue;
        };
        if !["yes", "part", "no"].contains(&state) {
            wrong.push(format!("{what}: the state {state:?} is none"));
        }
        if state != "no" && named(tests).next().is_none() {
            wrong.push(format!("{what}: no test is named"));
        }
        let absent = named(tests).filter(|test| !exists(&root, test));
        wrong.extend(absent.map(|test| format!("{what}: there is no {test}")));
    }
    assert!(wrong.is_empty(), "docs/compatibility.md:\n  {}", wrong.join("\n  "));
}
