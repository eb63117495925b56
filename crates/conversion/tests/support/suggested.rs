//! Suggestions for schemas in short notation, as lines.

use super::{schema, yaml};
use insula_conversion::proof::Search;
use insula_conversion::{SURE, Suggestion, Suggestions, VersionSchema, suggest};
use insula_meter::Meter;
use insula_schema::Structural;
use serde_json::Value as Json;
use std::sync::Arc;

/// Prints each pair as `old → new` with its expressions, then the fields without a counterpart.
pub fn lines(found: &Suggestions) -> Vec<String> {
    let paths =
        |paths: &[insula_conversion::Path]| paths.iter().map(ToString::to_string).collect::<Vec<_>>().join(" + ");
    let line = |pair: &Suggestion| {
        assert!((0.4..1.0).contains(&pair.confidence), "{pair:?}");
        let step = |guess: &insula_conversion::Guess| {
            let fails = if guess.may_fail { " (may fail)" } else { "" };
            guess.transformation.as_ref().map(|made| match made {
                Json::String(text) => format!("{text}{fails}"),
                other => format!("{other}{fails}"),
            })
        };
        let steps: Vec<String> = pair.forth.iter().filter_map(step).collect();
        let by = if steps.is_empty() {
            String::new()
        } else {
            format!(" by {}", steps.join(" and "))
        };
        let work = if pair.work.is_some() { ", which needs work" } else { "" };
        format!("{} → {}{by}{work}", paths(&pair.old), paths(&pair.new))
    };
    let mut lines: Vec<String> = found.pairs.iter().map(line).collect();
    lines.extend(found.only_old.iter().map(|path| format!("{path} only in old")));
    lines.extend(found.only_new.iter().map(|path| format!("{path} only in new")));
    lines.sort();
    lines
}

/// Returns the suggestions, and the errors that no suggestion causes.
pub fn guessed(old: &Json, new: &Json, names: [&str; 2]) -> (Suggestions, Vec<String>) {
    let parse = |schema: &Json| Arc::new(Structural::parse_trusted(schema).unwrap());
    let (old, new) = (parse(old), parse(new));
    let version = |name: &str, schema| VersionSchema {
        name: name.to_owned(),
        served: true,
        schema,
    };
    let versions = (version(names[0], old), version(names[1], new));
    let mut found = suggest(&versions.0, &versions.1, &Meter::unbounded()).unwrap();
    let how = Search {
        cases: 40,
        ..Search::default()
    };
    let refused = found.try_out(
        "example.io",
        (&versions.0, &versions.1),
        (how, &Meter::unbounded()),
        &mut |_| {},
    );
    (found, refused.iter().map(ToString::to_string).collect())
}

/// Returns the pairs that become rules unasked, or "none".
pub fn sure(old: &str, new: &str) -> String {
    let (mut found, refused) = guessed(&schema(&yaml(old)), &schema(&yaml(new)), ["v1", "v2"]);
    assert!(refused.is_empty(), "{refused:#?}\n{found:#?}");
    found.retain_confident(SURE);
    let mut pairs: Vec<String> = lines(&found).into_iter().filter(|line| line.contains('→')).collect();
    if pairs.is_empty() {
        pairs.push("none".to_owned());
    }
    pairs.join("\n") + "\n"
}
