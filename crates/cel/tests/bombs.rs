//! Hostile expressions: each is refused within 20 ms, or stopped by its budget, on a 2 MiB stack.
//!
//! The stack is real: every case runs on a thread of that size, where an overflow would abort the test process.
//! The 20 ms are asserted in a release build only; a debug build on a busy machine gets slack. Memory is bounded by the
//! budget's accounting, which these cases exhaust; the allocator itself is not measured.
#![allow(clippy::expect_used)]
// Measuring is the point here; the crate itself never reads a clock.
#![allow(clippy::disallowed_methods)]

use insula_cel::{Activation, Budget, CALL_COST_MAX, EvalError, NESTING_MAX, Program};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const STACK_BYTES: usize = 2 * 1024 * 1024;
/// The requirement is for a release build; a debug build of the evaluator is some twenty times slower.
const STOP_WITHIN: Duration = if cfg!(debug_assertions) {
    Duration::from_millis(4_000)
} else {
    Duration::from_millis(20)
};
/// A budget of a million units is about 0.1 s of a release build, as in Kubernetes.
const RUN_WITHIN: Duration = if cfg!(debug_assertions) {
    Duration::from_secs(20)
} else {
    Duration::from_millis(250)
};

fn on_small_stack<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(body)
        .expect("a thread")
        .join()
        .expect("no panic")
}

/// Compiles, and evaluates if that works; says what happened.
fn outcome(source: String, input: Value) -> (String, Duration, bool) {
    on_small_stack(move || {
        let start = Instant::now();
        let program = match Program::compile(&source, &["self"]) {
            Ok(program) => program,
            Err(error) => return (format!("refused: {}", error.issues[0].message), start.elapsed(), true),
        };
        let mut budget = Budget::new(CALL_COST_MAX);
        let text = match program.eval(&Activation::new().with("self", &input), &mut budget) {
            Ok(_) => "value".to_owned(),
            Err(error) => format!("error: {error}"),
        };
        (text, start.elapsed(), false)
    })
}

fn compile_bomb(name: &str, source: String, says: &str) {
    let bytes = source.len();
    let (got, took, refused) = outcome(source, Value::Null);
    assert!(refused && got.contains(says), "{name} ({bytes} bytes): {got}");
    assert!(took < STOP_WITHIN, "{name} ({bytes} bytes) took {took:?}");
}

/// Unusual but within the limits: it must simply work, or fail like any expression.
fn harmless(name: &str, source: String) {
    let (got, took, _) = outcome(source, Value::Null);
    assert!(!got.contains("nesting limit"), "{name}: {got}");
    assert!(took < STOP_WITHIN, "{name} took {took:?}");
}

fn run_bomb(name: &str, source: String, input: Value, says: &[&str]) {
    let (got, took, _) = outcome(source, input);
    assert!(says.iter().any(|s| got.contains(s)), "{name}: {got}");
    assert!(took < RUN_WITHIN, "{name} took {took:?}");
}

const DEEP: &str = "recursion limit";
const COST: &str = "actual cost limit exceeded";
const MEMORY: &str = "memory limit exceeded";

#[test]
fn unbalanced_prefixes_and_parentheses() {
    compile_bomb("!!(!!!", "!!(!!!".repeat(4), "");
    compile_bomb("!!(!!! many", "!!(!!!".repeat(1_000), DEEP);
    compile_bomb("125 bytes", "!!(!!!".repeat(20) + "!!(!!", DEEP);
    for open in [
        "(", "[", "{", "{'a':", "size(", "[[1,", "-(", "!(", "x?(", "a.b(", "a[", "'a'.f(", "{a:[",
    ] {
        compile_bomb(open, open.repeat(500), DEEP);
        compile_bomb(open, open.repeat(1_500), "");
        compile_bomb(open, open.repeat(60), "");
        let close: String = open.chars().rev().filter_map(closing).collect();
        compile_bomb(
            open,
            open.repeat(NESTING_MAX + 1) + "1" + &close.repeat(NESTING_MAX + 1),
            "",
        );
    }
}

fn closing(open: char) -> Option<char> {
    match open {
        '(' => Some(')'),
        '[' => Some(']'),
        '{' => Some('}'),
        _ => None,
    }
}

#[test]
fn fifty_thousand_parentheses() {
    compile_bomb("50k", "(".repeat(50_000), "limit");
    compile_bomb("50k closed", "(".repeat(50_000) + "1" + &")".repeat(50_000), "limit");
}

#[test]
fn a_megabyte_of_plus_one() {
    compile_bomb("1 MB", "1".to_owned() + &"+1".repeat(500_000), "limit");
}

#[test]
fn ten_thousand_element_list() {
    compile_bomb("10k elements", format!("[{}]", "1,".repeat(10_000)), "limit");
    compile_bomb("5k elements", format!("[{}]", "1,".repeat(5_000)), "tokens");
}

#[test]
fn chains_of_every_kind() {
    for (first, link) in [
        ("1", "+1"),
        ("1", "-1"),
        ("1", "*1"),
        ("1", "==1"),
        ("self", ".a"),
        ("self", "[0]"),
        ("self", ".?a"),
        ("'a'", ".trim()"),
        ("true", "&&true"),
        ("true", "||true"),
        ("true", "&&true||true"),
        ("1", " in[1]"),
        ("true?1:", "true?1:"),
        ("1", "-"),
        ("1", "<1"),
        ("[1]", ".map(x,x)"),
    ] {
        let tail = if link.ends_with(':') || link == "-" { "1" } else { "" };
        harmless(link, format!("{first}{}{tail}", link.repeat(40)));
        harmless(link, format!("{first}{}{tail}", link.repeat(240)));
        harmless(link, format!("{first}{}{tail}", link.repeat(499)));
        compile_bomb(link, format!("{first}{}{tail}", link.repeat(1_990)), "");
    }
    harmless("!", "!".repeat(96) + "true");
    compile_bomb("!", "!".repeat(97) + "true", DEEP);
    compile_bomb("-", "-".repeat(1_000) + "1", DEEP);
    compile_bomb("-!", "-!".repeat(500) + "1", DEEP);
    compile_bomb("! !", "! ".repeat(500) + "true", DEEP);
}

#[test]
fn nesting_up_to_the_limit_evaluates() {
    for (open, middle, close) in [
        ("(", "1", ")"),
        ("[", "1", "]"),
        ("{1:", "1", "}"),
        ("size([", "1", "])"),
        ("-(", "1", ")"),
        ("!(", "true", ")"),
        ("[1].map(x,", "1", ")"),
        ("[1].all(x,", "true", ")"),
        ("dyn(", "1", ")"),
        ("optional.of(1).optFlatMap(x,", "optional.of(x)", ")"),
        ("(true?", "1", ":1)"),
        ("(1+", "1", ")"),
        ("has(self.a)||(", "true", ")"),
        ("(false||(true&&", "true", "))"),
    ] {
        let weight = open.matches(['(', '[', '{', '!', '-', '?']).count();
        for depth in [10, NESTING_MAX / weight] {
            let (got, took, _) = outcome(open.repeat(depth) + middle + &close.repeat(depth), Value::Null);
            assert_eq!(got, "value", "{depth} levels of {open}");
            assert!(took < STOP_WITHIN, "{depth} levels of {open} took {took:?}");
        }
    }
}

#[test]
fn targets_that_macros_name_twice() {
    let mut source = "optional.of(1)".to_owned();
    for _ in 0..60 {
        source += ".optMap(x, x)";
    }
    compile_bomb("a row of optMap", source, "too large");
    let mut nested = "x".to_owned();
    for _ in 0..40 {
        nested = format!("optional.of(optional.of(1).optMap(x, {nested})).optMap(x, x)");
    }
    compile_bomb("optMap in targets of optMap", nested, "too large");
}

#[test]
fn unterminated_and_strange_text() {
    compile_bomb("40 KB string", "'".to_owned() + &"a".repeat(40_000), "limit");
    compile_bomb("10 KB string", "'".to_owned() + &"a".repeat(10_000), "Syntax error");
    compile_bomb("quotes", "'\"".repeat(2_000), "");
    compile_bomb("controls", "\u{0}\u{1}\u{7f}".repeat(600), "Syntax error");
    compile_bomb("multibyte", "é".repeat(900), "Syntax error");
    compile_bomb("many strange", "é(".repeat(2_000), "limit");
    compile_bomb("colons", ":".repeat(2_000), "");
    compile_bomb("question marks", "?".repeat(1_999), "");
    compile_bomb("dots", ".".repeat(1_999), "");
    compile_bomb("commas in a call", format!("size({})", ",".repeat(1_900)), "");
    compile_bomb("backslashes", "'".to_owned() + &"\\".repeat(9_000), "");
    compile_bomb("braces", "a{".repeat(900), "");
}

fn numbers(count: usize) -> Value {
    (0..count).map(|n| json!(n)).collect::<Vec<_>>().into()
}

#[test]
fn nested_map_is_stopped_by_its_cost() {
    let list = "[1,2,3,4,5,6,7,8,9,10]";
    let mut source = "1".to_owned();
    for depth in 0..8 {
        source = format!("{list}.map(x{depth}, {source})");
    }
    run_bomb("nested map", source, Value::Null, &[COST, MEMORY]);
    run_bomb(
        "cross",
        "self.all(a, self.all(b, self.all(c, a + b + c >= 0)))".to_owned(),
        numbers(1_000),
        &[COST],
    );
    run_bomb(
        "43 bytes",
        "self.map(x,self.map(y,self.map(z,[x,y,z])))".to_owned(),
        numbers(1_000),
        &[COST, MEMORY],
    );
    run_bomb(
        "exists",
        "self.exists(a, self.exists(b, a + b < 0))".to_owned(),
        numbers(5_000),
        &[COST],
    );
    run_bomb(
        "range",
        "lists.range(100000000000)".to_owned(),
        Value::Null,
        &[MEMORY, COST],
    );
    run_bomb(
        "ranges",
        "lists.range(400000).map(x, lists.range(400000))".to_owned(),
        Value::Null,
        &[MEMORY, COST],
    );
}

/// `optional.of(seed).optFlatMap(a, optional.of(a + a).optFlatMap(b, … ))`: doubles at each of `times` levels.
fn doubling(seed: &str, times: usize) -> String {
    let mut source = format!("optional.of({seed}).optFlatMap(v0, ");
    for i in 0..times {
        source += &format!("optional.of(v{i} + v{i}).optFlatMap(v{}, ", i + 1);
    }
    source + &format!("optional.of(size(v{times}))") + &")".repeat(times + 1)
}

#[test]
fn string_and_list_doubling_is_stopped_by_memory() {
    run_bomb("strings", doubling("'0123456789'", 40), Value::Null, &[MEMORY, COST]);
    run_bomb("lists", doubling("[1]", 40), Value::Null, &[MEMORY, COST]);
    run_bomb("bytes", doubling("b'0123456789'", 40), Value::Null, &[MEMORY, COST]);
    let mut shared = "optional.of([1]).optFlatMap(v0, ".to_owned();
    for i in 0..40 {
        shared += &format!("optional.of([v{i}, v{i}]).optFlatMap(v{}, ", i + 1);
    }
    // The value is small, since it is shared; its JSON would not be.
    run_bomb(
        "shared lists",
        shared + "optional.of(v40)" + &")".repeat(41),
        Value::Null,
        &[MEMORY, COST],
    );
}

#[test]
fn large_results_are_stopped_by_memory() {
    let big = json!("x".repeat(1_000_000));
    let copies = format!("[{}]", vec!["self"; 900].join(","));
    run_bomb("copies of an input", copies, big.clone(), &[MEMORY]);
    run_bomb(
        "replace",
        "self.replace('x', self)".to_owned(),
        big.clone(),
        &[MEMORY, COST],
    );
    run_bomb(
        "replace nothing",
        "self.replace('', self)".to_owned(),
        big.clone(),
        &[MEMORY, COST],
    );
    run_bomb("split", "self.split('')".to_owned(), big.clone(), &[MEMORY, COST]);
    run_bomb(
        "join",
        "lists.range(1000).map(x, self).join(self)".to_owned(),
        big.clone(),
        &[MEMORY, COST],
    );
    run_bomb(
        "format",
        "lists.range(1000).map(x, '%s%s'.format([self, self]))".to_owned(),
        big.clone(),
        &[MEMORY, COST],
    );
    run_bomb(
        "wide format",
        "'%.1000000000f'.format([1.0])".to_owned(),
        Value::Null,
        &["error while parsing precision"],
    );
    run_bomb(
        "upper",
        "lists.range(1000).map(x, self.upperAscii())".to_owned(),
        big,
        &[MEMORY, COST],
    );
}

#[test]
fn sorting_and_sets_are_stopped_by_cost() {
    let list = numbers(20_000);
    run_bomb("distinct", "self.distinct()".to_owned(), list.clone(), &[COST]);
    run_bomb(
        "sorts",
        "self.map(x, self.sort())".to_owned(),
        list.clone(),
        &[COST, MEMORY],
    );
    run_bomb(
        "contains",
        "sets.contains(self, self)".to_owned(),
        list.clone(),
        &[COST],
    );
    run_bomb(
        "in",
        "self.all(x, -1 in self || true)".to_owned(),
        list.clone(),
        &[COST],
    );
    run_bomb("equality", "self.all(x, self == self)".to_owned(), list, &[COST]);
}

#[test]
fn matching_is_linear_and_paid_for() {
    let text = json!("a".repeat(3_000_000));
    run_bomb(
        "(a+)+$",
        "self.matches('(a+)+$')".to_owned(),
        text.clone(),
        &["value", COST],
    );
    run_bomb(
        "(a|a)*b",
        "self.matches('(a|a)*b')".to_owned(),
        text.clone(),
        &["value", COST],
    );
    run_bomb(
        "dynamic",
        "self.matches('(a+)' + '+$')".to_owned(),
        text.clone(),
        &["value", COST],
    );
    run_bomb(
        "often",
        "lists.range(1000).all(x, self.matches('a$'))".to_owned(),
        text,
        &[COST],
    );
    run_bomb(
        "many dynamic patterns",
        "lists.range(100000).all(x, !'b'.matches('[a-z]{1,100}' + string(x)))".to_owned(),
        Value::Null,
        &[COST],
    );
}

#[test]
fn huge_patterns_are_refused() {
    compile_bomb(
        "(.{1,1000}){1000}",
        "'a'.matches('(.{1,1000}){1000}')".to_owned(),
        "invalid matches argument",
    );
    compile_bomb(
        "((a{1000}){1000}){1000}",
        "'a'.matches('((a{1000}){1000}){1000}')".to_owned(),
        "invalid matches argument",
    );
    compile_bomb(
        "long",
        format!("'a'.matches('{}')", "a?".repeat(3_000)),
        "invalid matches argument",
    );
    compile_bomb(
        "nested",
        format!("'a'.matches('{}a{}')", "(".repeat(1_500), ")".repeat(1_500)),
        "invalid matches argument",
    );
    compile_bomb(
        "unicode",
        "'a'.matches('\\\\pL{1000}')".to_owned(),
        "invalid matches argument",
    );
    let pattern = json!("x*".repeat(500_000));
    run_bomb(
        "1 MB pattern",
        "'a'.matches(self)".to_owned(),
        pattern,
        &["exceeds 4096 bytes", COST],
    );
}

#[test]
fn one_budget_bounds_many_evaluations() {
    let program = Program::compile("self.map(x, x + 1)", &["self"]).expect("an expression");
    let list = numbers(100);
    let mut budget = Budget::new(10_000);
    let activation = Activation::new().with("self", &list);
    let stopped = (0..100)
        .map(|_| program.eval(&activation, &mut budget))
        .position(|r| r == Err(EvalError::CostExceeded));
    assert!(stopped.is_some_and(|n| n > 1), "stopped after {stopped:?}");
    assert!(budget.exhausted());
    assert_eq!(budget.used(), 10_000);
}
