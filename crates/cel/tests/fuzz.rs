//! Fuzzing with cut and mixed expressions of the tables: each result compiles and evaluates within
//! its budget, or fails cleanly.
//!
//! A short run by default. `FUZZ_SECONDS=60 FUZZ_SEED=7 cargo test -p insula-cel --test fuzz
//! --release` runs longer; a failure names the seed and the expression.
// The test reads a clock to end in time; the crate itself never reads one.
#![allow(clippy::disallowed_methods)]

use insula_cel::{
    AbsenceMode, Activation, Budget, CompileError, Decl, Env, Estimate, Field, ListKind, Program, Type, print,
};
use insula_meter::Meter;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Cost units of one evaluation in this test.
const COST_MAX: u64 = 20_000;
const ROUNDS: u64 = 3_000;

/// A seeded random generator, with the same sequence on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end.max(1) as u64)).unwrap_or(0)
    }

    fn one<'t, T>(&mut self, of: &'t [T]) -> &'t T {
        &of[self.below(of.len())]
    }
}

/// Returns the expressions of the tables with their values.
fn corpus() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the tables")
        .map(|f| f.expect("an entry").path())
        .collect();
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).expect("a table");
        let table: Value = serde_saphyr::from_str(&text).expect("a table in YAML");
        for case in table.as_array().into_iter().flatten() {
            if let Some(source) = case["expr"].as_str() {
                cases.push((source.to_owned(), case["vars"]["self"].clone()));
            }
        }
    }
    cases
}

/// Splits a source into words, texts and punctuation.
fn pieces(source: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let length = match c {
            '\'' | '"' => rest[1..].find(c).map_or(rest.len(), |end| end + 2),
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        let (piece, after) = rest.split_at(length);
        pieces.push(piece);
        rest = after;
    }
    pieces
}

fn mutated(random: &mut Random, corpus: &[(String, Value)]) -> String {
    let mut text: Vec<&str> = pieces(&random.one(corpus).0);
    for _ in 0..=random.below(4) {
        let other = pieces(&random.one(corpus).0);
        if other.is_empty() {
            continue;
        }
        let at = random.below(text.len() + 1);
        match random.below(6) {
            0 if at < text.len() => {
                text.remove(at);
            }
            1 => text.insert(at, random.one::<&str>(&other)),
            2 if at < text.len() => text[at] = random.one::<&str>(&other),
            3 => {
                let from = random.below(other.len() + 1);
                let until = from + random.below(other.len() - from + 1);
                text.splice(at..at, other[from..until].iter().copied());
            }
            4 => text.truncate(at),
            _ => {
                let doubled = text[..at].to_vec();
                text.extend(doubled);
            }
        }
    }
    text.concat()
}

/// Returns an environment with variables of every kind of declaration.
fn typed() -> Env {
    let field = |name: &str, decl: Decl| Field {
        name: name.into(),
        written: name.into(),
        decl,
    };
    let inner = Decl::object(
        "inner",
        vec![
            field("a", Decl::scalar(Type::Int)),
            field("b", Decl::scalar(Type::String)),
        ],
    );
    let items = |kind| Decl::list(inner.clone(), kind);
    let decl = Decl::object(
        "outer",
        vec![
            field("a", Decl::scalar(Type::Int)),
            field("b", Decl::scalar(Type::String)),
            field("items", items(ListKind::Map(vec!["a".to_owned()]))),
            field("list", items(ListKind::Atomic)),
            field("map", Decl::map(Decl::scalar(Type::String))),
            field("name", Decl::scalar(Type::Timestamp)),
            field("any", Decl::dynamic()),
        ],
    );
    Env::new(AbsenceMode::Error)
        .with("self", decl)
        .with("x", Decl::dynamic())
}

fn places_are_inside(source: &str, error: &CompileError, seed: u64) {
    let lines: Vec<&str> = source.split('\n').collect();
    assert!(
        !error.issues.is_empty(),
        "seed {seed}: {source:?} is refused without a reason"
    );
    for issue in &error.issues {
        assert!(!issue.message.is_empty(), "seed {seed}: {source:?}");
        let line = match (issue.line as usize).checked_sub(1) {
            Some(line) => lines.get(line),
            None => continue,
        };
        let length = line.map(|l| l.chars().count() + 1);
        let inside = length.is_some_and(|length| issue.column as usize <= length);
        assert!(inside, "seed {seed}: {source:?}: {issue:?}");
    }
    let text = error.to_string();
    let failing_constant = error.refusal().starts_with("program instantiation failed: ");
    assert!(
        text.starts_with("ERROR: ") || failing_constant,
        "seed {seed}: {source:?}"
    );
}

/// Evaluates twice, compares the results and returns the cost.
fn evaluate(source: &str, program: &Program, value: &Value, seed: u64) -> u64 {
    let other = json!([1, "a", {"b": null}]);
    let activation = Activation::new().with("self", value).with("x", &other);
    let (mut first, mut second) = (
        Budget::new(COST_MAX, &Meter::unbounded()),
        Budget::new(COST_MAX, &Meter::unbounded()),
    );
    let one = program.eval(&activation, &mut first);
    let two = program.eval(&activation, &mut second);
    assert!(
        first.used() <= COST_MAX,
        "seed {seed}: {source:?} cost {}",
        first.used()
    );
    assert_eq!(first.used(), second.used(), "seed {seed}: the cost of {source:?}");
    assert_eq!(one, two, "seed {seed}: the value of {source:?}");
    first.used()
}

#[test]
fn mixed_expressions_keep_within_their_bounds() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("FUZZ_SEED").unwrap_or(1).max(1);
    let until = number("FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let (corpus, typed) = (corpus(), typed());
    let mut random = Random(seed);
    let (mut rounds, mut programs) = (0_u64, 0_u64);
    while until.map_or(rounds < ROUNDS, |until| Instant::now() < until) {
        rounds += 1;
        let source = mutated(&mut random, &corpus);
        let value = &random.one(&corpus).1;
        for mode in [AbsenceMode::Absent, AbsenceMode::Error] {
            match Program::compile_with(&source, &["self", "x"], mode) {
                Ok(program) => {
                    programs += 1;
                    evaluate(&source, &program, value, seed);
                    let printed = print(&source).expect("what compiles is printed");
                    let again = print(&printed);
                    assert_eq!(again.as_ref(), Ok(&printed), "seed {seed}: {source:?}");
                }
                Err(error) => places_are_inside(&source, &error, seed),
            }
        }
        match Program::compile_in(&source, &typed) {
            Ok(program) => {
                let cost = evaluate(&source, &program, value, seed);
                let Estimate { min, max } = program.estimate();
                assert!(min <= max, "seed {seed}: {source:?}");
                // Kubernetes' estimates are too low for selections from optionals and for formats.
                let known = ["optional", "?", "opt", "validate"]
                    .iter()
                    .any(|word| source.contains(word));
                assert!(
                    known || cost <= max,
                    "seed {seed}: {source:?} cost {cost}, estimated {max}"
                );
            }
            Err(error) => places_are_inside(&source, &error, seed),
        }
    }
    assert!(programs * 20 > rounds, "only {programs} programs of {rounds} rounds");
}
