//! Random expressions: compiling and evaluating any text neither panics nor differs from run to
//! run.

use insula_cel::{AbsenceMode, Activation, Budget, Decl, Env, Program};
use insula_meter::Meter;
use proptest::prelude::*;
use serde_json::{Value, json};

const TOKENS: &[&str] = &[
    "self",
    "key",
    "x",
    "1",
    "0",
    "2u",
    "1.5",
    "'a'",
    "'é'",
    "b'c'",
    "true",
    "false",
    "null",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    ".",
    "?",
    ".?",
    "[?",
    "+",
    "-",
    "*",
    "/",
    "%",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "in",
    "&&",
    "||",
    "!",
    "has(",
    "size(",
    ".map(x,",
    ".filter(x,",
    ".all(x,",
    ".exists_one(x,",
    ".exists(x, y,",
    ".transformMap(k, v,",
    ".fold(a, x,",
    ".fold(a, k, v,",
    ".zip(self, x, y,",
    ".a",
    ".b",
    ".items",
    ".orValue(",
    ".optMap(x,",
    "optional.of(",
    "optional.none()",
    ".sortBy(x,",
    ".matches(",
    ".split(",
    ".join(",
    ".replace(",
    ".substring(",
    ".indexOf(",
    ".sort()",
    ".sum()",
    ".flatten()",
    ".slice(",
    "int(",
    "string(",
    "double(",
    "timestamp(",
    "duration(",
    "'1h'",
    "quantity(",
    "'1Gi'",
    "sets.contains(",
    ".format([",
    "'%s'",
    "type(",
    "lists.range(",
    "  ",
    "\n",
    "//",
    "\"",
    "`",
    "@",
    "9223372036854775807",
];

fn input() -> Value {
    json!({"a": {"b": "text"}, "b": 3, "items": [{"a": 1}, {"b": "x"}, null], "n": 1.5, "é": [[]]})
}

fn try_all(source: &str) {
    let input = input();
    let rules = Env::new(AbsenceMode::Absent).with("self", Decl::dynamic());
    let rules = rules.with("key", Decl::dynamic()).conversion();
    let modes = [AbsenceMode::Absent, AbsenceMode::Error];
    let compiled = modes.map(|mode| Program::compile_with(source, &["self", "key"], mode));
    let compiled = compiled.into_iter().chain([Program::compile_in(source, &rules)]);
    for program in compiled.flatten() {
        let activation = Activation::new().with("self", &input).with_owned("key", json!("k"));
        let (mut first, mut second) = (
            Budget::new(50_000, &Meter::unbounded()),
            Budget::new(50_000, &Meter::unbounded()),
        );
        let one = program.eval(&activation, &mut first);
        let two = program.eval(&activation, &mut second);
        assert_eq!(one, two, "{source}");
        assert_eq!(first.used(), second.used(), "{source}");
    }
}

/// Expressions without operands.
const LEAVES: &[&str] = &[
    "self",
    "self.a",
    "self.b",
    "self.items",
    "self.n",
    "self.none",
    "key",
    "1",
    "0",
    "1.5",
    "2u",
    "'a'",
    "''",
    "true",
    "null",
    "[]",
    "[1,2]",
    "{'a':1}",
    "duration('1s')",
    "timestamp('2026-01-01T00:00:00Z')",
    "b'x'",
    "self.?a",
    "optional.none()",
    "quantity('1k')",
    "-9223372036854775808",
];

/// Expressions of one operand.
const CALLS: &[&str] = &[
    "size({})",
    "int({})",
    "string({})",
    "double({})",
    "uint({})",
    "bool({})",
    "bytes({})",
    "type({})",
    "-({})",
    "!({})",
    "({}).sum()",
    "({}).sort()",
    "({}).distinct()",
    "({}).flatten()",
    "({}).reverse()",
    "({}).min()",
    "({}).join()",
    "({}).upperAscii()",
    "({}).trim()",
    "({}).getHours()",
    "({}).hasValue()",
    "({}).value()",
    "optional.of({})",
    "optional.ofNonZeroValue({})",
    "[{}]",
    "{{'a': {}}}",
    "has(({}).a)",
    "({}).a",
    "({}).?a",
    "({})[0]",
    "lists.range({})",
    "timestamp({})",
    "duration({})",
    "quantity({})",
    "isQuantity({})",
];

/// Expressions of two operands.
const PAIRS: &[&str] = &[
    "({}).map(x, {})",
    "({}).filter(x, {})",
    "({}).all(x, {})",
    "({}).exists(x, {})",
    "({}).exists_one(x, {})",
    "({}).transformList(i, x, {})",
    "({}).transformMap(i, x, {})",
    "({}).transformMapEntry(i, x, {})",
    "({}).orValue({})",
    "({}).or({})",
    "({}).optMap(x, {})",
    "({}).optFlatMap(x, {})",
    "({}).split({})",
    "({}).indexOf({})",
    "({}).lastIndexOf({})",
    "({}).contains({})",
    "({}).matches({})",
    "({}).format({})",
    "({}).replace('a', {})",
    "({}).substring({})",
    "({}).charAt({})",
    "({}).slice(0, {})",
    "({})[{}]",
    "({})[?{}]",
    "sets.contains({}, {})",
    "sets.equivalent({}, {})",
    "[{}, {}]",
    "{{{}: {}}}",
    "({}).sortBy(x, {})",
    "({}).fold(a, x, dyn(0), {})",
    "({}).fold(x, y, dyn([]), dyn(x) + {})",
    "({}).fold(x, k, v, {}, v)",
    "({}).zip([1, 'a'], x, y, {})",
    "[1, 'a'].zip({}, x, y, {})",
    "({}).compareTo({})",
    "({}).add({})",
    "({}) ? ({}) : null",
    "[?({}), ({})]",
];

/// Generates expressions that parse, to reach the evaluator.
fn well_formed() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(LEAVES).prop_map(str::to_owned);
    leaf.prop_recursive(5, 40, 3, |inner| {
        let operators = prop::sample::select(vec!["+", "-", "*", "/", "%", "==", "!=", "<", ">=", "in", "&&", "||"]);
        let calls = prop::sample::select(CALLS);
        let pairs = prop::sample::select(PAIRS);
        prop_oneof![
            (inner.clone(), operators, inner.clone()).prop_map(|(a, op, b)| format!("dyn({a}) {op} dyn({b})")),
            (calls, inner.clone()).prop_map(|(shape, a)| fill(shape, &[&a])),
            (pairs, inner.clone(), inner).prop_map(|(shape, a, b)| fill(shape, &[&a, &b])),
        ]
    })
}

fn fill(shape: &str, parts: &[&str]) -> String {
    let mut text = shape.replace("{{", "\u{1}").replace("}}", "\u{2}");
    for part in parts {
        // `dyn` lets all of them pass the checker and reach the evaluator.
        let part = format!("dyn({part})").replace('{', "\u{1}").replace('}', "\u{2}");
        text = text.replacen("{}", &part, 1);
    }
    text.replace('\u{1}', "{").replace('\u{2}', "}")
}

/// Guards the generator: expressions that do not compile would test nothing.
#[test]
fn most_well_formed_expressions_compile_and_many_have_a_value() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let input = input();
    let (mut compiled, mut valued) = (0, 0);
    for _ in 0..500 {
        let source = well_formed().new_tree(&mut runner).expect("a tree").current();
        let rules = Env::new(AbsenceMode::Absent).with("self", Decl::dynamic());
        let rules = rules.with("key", Decl::dynamic()).conversion();
        let Ok(program) = Program::compile_in(&source, &rules) else {
            continue;
        };
        compiled += 1;
        let activation = Activation::new().with("self", &input).with_owned("key", json!("k"));
        valued += i32::from(
            program
                .eval(&activation, &mut Budget::new(50_000, &Meter::unbounded()))
                .is_ok(),
        );
    }
    assert!(compiled > 350, "{compiled} of 500 compile");
    assert!(valued > 50, "{valued} of 500 have a value");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_tokens_never_panic(tokens in prop::collection::vec(prop::sample::select(TOKENS), 0..40)) {
        try_all(&tokens.concat());
    }

    #[test]
    fn random_text_never_panics(text in "\\PC{0,60}") {
        try_all(&text);
    }

    #[test]
    fn well_formed_expressions_never_panic(source in well_formed()) {
        try_all(&source);
    }
}
