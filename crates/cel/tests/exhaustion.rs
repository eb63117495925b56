//! Hostile expressions: each is refused within 20 ms, or stopped by its budget, on a 2 MiB stack.
//!
//! The stack is real: every case runs on a thread of that size, where an overflow would abort the
//! test process. The 20 ms are asserted in a release build only; debug builds get slack. The
//! budget's accounting bounds the memory, and these cases exhaust it; `exhaustion_memory.rs`
//! measures the process.
#![allow(clippy::expect_used)]
// These tests measure time; the crate itself never reads a clock.
#![allow(clippy::disallowed_methods)]

#[path = "exhaustion/cases.rs"]
mod cases;

use cases::{Case, numbers};
use insula_cel::{Activation, Budget, CALL_COST_MAX, EvalError, NESTING_MAX, Program};
use insula_meter::Meter;
use serde_json::Value;
use std::time::{Duration, Instant};

const STACK_BYTES: usize = 2 * 1024 * 1024;
/// Limit for a refusal. The requirement is for a release build; a debug build of the evaluator is
/// about twenty times slower.
const STOP_WITHIN: Duration = if cfg!(debug_assertions) {
    Duration::from_millis(4_000)
} else {
    Duration::from_millis(20)
};
/// Limit for an evaluation. A million units take less than 20 ms in a release build, most of them
/// half of that; the rest is slack for a busy machine.
const RUN_WITHIN: Duration = if cfg!(debug_assertions) {
    Duration::from_secs(20)
} else {
    Duration::from_millis(100)
};

fn on_small_stack<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(body)
        .expect("a thread")
        .join()
        .expect("no panic")
}

/// Compiles and, if that works, evaluates. Returns the result as text, the time, and true if it
/// compiled.
fn outcome(source: String, input: Value) -> (String, Duration, bool) {
    on_small_stack(move || {
        let start = Instant::now();
        let program = match Program::compile(&source, &["self"]) {
            Ok(program) => program,
            Err(error) => return (format!("refused: {}", error.issues[0].message), start.elapsed(), true),
        };
        let mut budget = Budget::new(CALL_COST_MAX, &Meter::unbounded());
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

/// Checks an unusual expression within the limits: it works, or fails like any expression.
fn harmless(name: &str, source: String) {
    let (got, took, _) = outcome(source, Value::Null);
    assert!(!got.contains("nesting limit"), "{name}: {got}");
    assert!(took < STOP_WITHIN, "{name} took {took:?}");
}

const DEEP: &str = "recursion limit";

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
        format!("'a'.matches('{}')", "[a-z]{1,900}".repeat(60)),
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
}

#[test]
fn running_expressions_are_stopped() {
    for case in cases::cases() {
        let Case {
            name,
            source,
            input,
            says,
        } = case;
        let (got, took, _) = outcome(source, input);
        assert!(says.iter().any(|s| got.contains(s)), "{name}: {got}");
        assert!(took < RUN_WITHIN, "{name} took {took:?}");
    }
}

#[test]
fn one_budget_bounds_many_evaluations() {
    let program = Program::compile("self.map(x, x + 1)", &["self"]).expect("an expression");
    let list = numbers(100);
    let mut budget = Budget::new(10_000, &Meter::unbounded());
    let activation = Activation::new().with("self", &list);
    let stopped = (0..100)
        .map(|_| program.eval(&activation, &mut budget))
        .position(|r| r == Err(EvalError::CostExceeded));
    assert!(stopped.is_some_and(|n| n > 1), "stopped after {stopped:?}");
    assert!(budget.exhausted());
    assert_eq!(budget.used(), 10_000);
}
