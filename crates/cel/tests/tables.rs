//! Runs every expression in `data/*.yaml` and compares value, error, absence and cost.
//!
//! Long texts are written in pieces: `expr: ['size(', ['[', 95], …]` repeats `[` 95 times, and
//! `texts: {self: [x, 4097]}` is a variable of that many `x`. `budget` replaces the cost limit of a
//! call.

use insula_cel::{AbsenceMode, Activation, Budget, CALL_COST_MAX, Outcome, Program};
use insula_meter::Meter;
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;

/// Returns a text, or the concatenation of its pieces: each a text, or a text with a repeat count.
fn text(of: &Value) -> String {
    match of {
        Value::String(text) => text.clone(),
        Value::Array(pieces) => match pieces.as_slice() {
            [Value::String(text), Value::Number(times)] => text.repeat(times.as_u64().expect("a count") as usize),
            pieces => pieces.iter().map(text).collect(),
        },
        other => panic!("no text: {other}"),
    }
}

/// Returns the result as one line (`= value`, `absent`, `error: …` or `refused: …`) and the cost.
fn run(case: &Value) -> (String, u64) {
    let source = &text(&case["expr"]);
    let mode = if case["mode"] == "error" {
        AbsenceMode::Error
    } else {
        AbsenceMode::Absent
    };
    let none = serde_json::Map::new();
    let mut vars = case["vars"].as_object().unwrap_or(&none).clone();
    for (name, pieces) in case["texts"].as_object().unwrap_or(&none) {
        vars.insert(name.clone(), text(pieces).into());
    }
    let absent: Vec<&str> = case["absentVars"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let names: Vec<&str> = vars.keys().map(String::as_str).chain(absent.iter().copied()).collect();
    let program = match Program::compile_with(source, &names, mode) {
        Ok(program) => program,
        Err(error) => return (format!("refused: {}", error.issues[0].message), 0),
    };
    let mut activation = Activation::new();
    for (name, value) in &vars {
        activation = activation.with(name, value);
    }
    for name in absent {
        activation = activation.with_absent(name);
    }
    let limit = case["budget"].as_u64().unwrap_or(CALL_COST_MAX);
    let mut budget = Budget::new(limit, &Meter::unbounded());
    let first = program.eval(&activation, &mut budget);
    let mut again = Budget::new(limit, &Meter::unbounded());
    assert_eq!(
        first,
        program.eval(&activation, &mut again),
        "two evaluations of {source}"
    );
    assert_eq!(budget.used(), again.used(), "cost of two evaluations of {source}");
    let text = match first {
        Ok(Outcome::Value(value)) => format!("= {value}"),
        Ok(Outcome::Absent) => "absent".to_owned(),
        Err(error) => format!("error: {error}"),
    };
    (text, budget.used())
}

fn wanted(case: &Value) -> String {
    if let Some(text) = case["error"].as_str() {
        format!("error: {text}")
    } else if let Some(text) = case["refused"].as_str() {
        format!("refused: {text}")
    } else if case["absent"] == true {
        "absent".to_owned()
    } else {
        assert!(case.get("want").is_some(), "a case says what it wants: {case}");
        format!("= {}", case["want"])
    }
}

#[test]
fn tables_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .expect("the data folder")
        .map(|f| f.expect("an entry").path())
        .collect();
    files.sort();
    let (mut cases, mut failures) = (0, String::new());
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a readable table");
        let table: Value = serde_saphyr::from_str(&text).expect("a table in YAML");
        for case in table.as_array().expect("a list of cases") {
            cases += 1;
            let ((got, cost), want) = (run(case), wanted(case));
            if got != want {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                writeln!(failures, "{name}: {}\n  want {want}\n  got  {got}", case["expr"]).expect("text");
            }
            if let Some(want) = case["cost"].as_u64()
                && want != cost
            {
                writeln!(failures, "{}: want cost {want}, got {cost}", case["expr"]).expect("text");
            }
        }
    }
    assert!(failures.is_empty(), "of {cases} cases:\n{failures}");
    assert!(cases > 300, "only {cases} cases found");
}
