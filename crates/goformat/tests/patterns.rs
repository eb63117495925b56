//! Patterns and Go's verdicts about them: our own table, and the larger one of real definitions
//! (`../shared/testdata/patterns.tsv`), without which that test prints so and passes.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use insula_goformat::regexp::{Finder, Limits, Syntax, Work};
use insula_meter::Meter;
use std::path::Path;

/// Reads rows of a pattern, Go's verdict, and pairs of a text and a further column, in JSON's
/// quotes where they have quotes.
fn check(table: &str) {
    let (mut rows, mut wrong) = (0, Vec::new());
    for line in table.lines().skip(1) {
        let columns: Vec<String> = line
            .split('\t')
            .map(|c| serde_json::from_str(c).unwrap_or_else(|_| c.to_owned()))
            .collect();
        let [pattern, verdict, texts @ ..] = columns.as_slice() else {
            panic!("{line}");
        };
        rows += 1;
        let compiled = Syntax::parse(pattern, &Limits::USUAL)
            .and_then(|syntax| Finder::compile_within(&syntax, Limits::USUAL.compiled_bytes));
        let got = compiled.as_ref().map_or_else(ToString::to_string, |_| "ok".to_owned());
        if got != *verdict {
            wrong.push(format!("{pattern}: {got}, Go says {verdict}"));
        }
        let Ok(compiled) = compiled else { continue };
        for pair in texts.chunks_exact(2) {
            let [text, want] = pair else { continue };
            let work = &mut Work::for_object(&Meter::unbounded());
            let matched = compiled.regexp().is_match(text, work).unwrap();
            let found = compiled.find_at(text, 0, work).unwrap();
            assert_eq!(matched, found.is_some(), "{pattern} in {text:?}");
            // The place of the match, or only that there is one.
            let got = match (want.as_str(), &found) {
                ("true" | "false", found) => found.is_some().to_string(),
                (_, Some(range)) => format!("{}-{}", range.start, range.end),
                (_, None) => "none".to_owned(),
            };
            if got != *want {
                wrong.push(format!("{pattern} in {text:?}: {got}, Go says {want}"));
            }
        }
    }
    assert!(
        rows > 50 && wrong.is_empty(),
        "{} of {rows}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn our_patterns_have_the_verdicts_of_go() {
    check(include_str!("data/patterns.tsv"));
}

#[test]
fn patterns_of_real_definitions_have_the_verdicts_of_go() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/testdata/patterns.tsv");
    match std::fs::read_to_string(&path) {
        Ok(table) => check(&table),
        Err(_) => println!("skipped: no patterns at {}", path.display()),
    }
}
