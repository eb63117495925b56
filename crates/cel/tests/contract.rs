//! Guarantees to other crates besides values: references, error messages with positions, limits,
//! sharing between threads.

use insula_cel::{
    AbsenceMode, Activation, Budget, CALL_COST_MAX, EvalError, OBJECT_COST_MAX, Outcome, Program, SOURCE_BYTES_MAX,
};
use insula_meter::{Bounds, Ended, Meter, Scheduler, TenantPays};
use serde_json::json;

/// Renders references in order of appearance: `self.spec.name?` for a tested path.
fn references(source: &str) -> String {
    let program = Program::compile(source, &["self", "v1", "key"]).expect("an expression");
    let shown = program.references().iter().map(|r| {
        let path: String = r.path.iter().map(|p| format!("/{p}")).collect();
        format!("{}{path}{}", r.variable, if r.tested { "?" } else { "" })
    });
    shown.collect::<Vec<_>>().join(" ")
}

#[test]
fn references_are_the_paths_read() {
    for (source, want) in [
        ("1 + 1", ""),
        ("self", "self"),
        ("self.spec.firstName", "self/spec/firstName"),
        ("self['a.b/c'].d", "self/a.b/c/d"),
        ("self.a__dot__b", "self/a.b"),
        ("self.a[0].b", "self/a"),
        ("self.a[key].b", "self/a key"),
        ("self.colors.map(c, c.name)", "self/colors"),
        ("has(self.a)", "self/a?"),
        ("has(self.a.b)", "self/a/b?"),
        ("has(self.a) ? self.a : 1", "self/a"),
        ("self.a + (has(self.a) ? 1 : 2)", "self/a"),
        ("self.?a.b", "self/a/b?"),
        ("self.?a.orValue(self.b)", "self/a? self/b"),
        ("self.a.orValue(1)", "self/a?"),
        ("self.a[key].orValue(1)", "self/a? key"),
        ("self.?a.or(self.b).value()", "self/a? self/b?"),
        ("self.a.optMap(x, x + v1.b)", "self/a? v1/b"),
        ("self.a == self.a", "self/a"),
        ("[1].map(self, self)", ""),
        (
            "{'name': key, 'feeling': v1.colors[key].feeling, 'day': v1.day}",
            "key v1/colors v1/day",
        ),
    ] {
        assert_eq!(references(source), want, "{source}");
    }
}

#[test]
fn errors_show_their_place() {
    for (source, want) in [
        (
            "self.a + x",
            "ERROR: <input>:1:10: undeclared reference to 'x' (in container '')\n | self.a + x\n | .........^",
        ),
        (
            "foo(1)",
            "ERROR: <input>:1:4: undeclared reference to 'foo' (in container '')\n | foo(1)\n | ...^",
        ),
        (
            "self.x == x",
            "ERROR: <input>:1:11: undeclared reference to 'x' (in container '')\n | self.x == x\n | ..........^",
        ),
        (
            "1 +\n  y",
            "ERROR: <input>:2:3: undeclared reference to 'y' (in container '')\n |   y\n | ..^",
        ),
        (
            "1 +",
            "ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', \
            'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | 1 +\n | ...^",
        ),
        (
            "1 + 1.5",
            "ERROR: <input>:1:3: found no matching overload for '_+_' applied to '(int, double)'\n | 1 + 1.5\n | ..^",
        ),
    ] {
        let error = Program::compile(source, &["self"]).expect_err(source);
        assert_eq!(error.to_string(), want, "{source}");
    }
}

#[test]
fn a_program_is_shared_between_threads() {
    fn shareable<T: Send + Sync + std::fmt::Debug>(_: &T) {}
    shareable(&Program::compile("'a'.matches('b')", &[]).expect("an expression"));
}

#[test]
fn variables_are_those_given() {
    let program = Program::compile("self.a", &["self", "unused"]).expect("an expression");
    assert_eq!(program.source(), "self.a");
    assert_eq!(program.absence_mode(), AbsenceMode::Absent);
    let missing = program.eval(&Activation::new(), &mut Budget::new(100, &Meter::unbounded()));
    assert_eq!(missing, Err(EvalError::NoSuchAttribute("self".into())));
    let (first, second) = (json!({"a": 1}), json!({"a": 2}));
    let activation = Activation::new().with("self", &first).with("self", &second);
    assert_eq!(
        program.eval(&activation, &mut Budget::new(100, &Meter::unbounded())),
        Ok(Outcome::Value(json!(2)))
    );
    let optional = Program::compile_with("old.orValue(3)", &["old"], AbsenceMode::Error).expect("an expression");
    let seven = json!(7);
    for (value, want) in [(None, 3), (Some(&seven), 7)] {
        let activation = Activation::new().with_optional("old", value);
        assert_eq!(
            optional.eval(&activation, &mut Budget::new(100, &Meter::unbounded())),
            Ok(Outcome::Value(json!(want)))
        );
    }
}

#[test]
fn a_call_is_bounded_within_an_object() {
    let list: serde_json::Value = (0..2_000).collect::<Vec<_>>().into();
    let program = Program::compile("self.all(a, self.all(b, a + b >= 0))", &["self"]).expect("an expression");
    let mut budget = Budget::new(OBJECT_COST_MAX, &Meter::unbounded());
    let activation = Activation::new().with("self", &list);
    for call in 1..=10 {
        assert_eq!(program.eval(&activation, &mut budget), Err(EvalError::CostExceeded));
        assert_eq!(budget.used(), call * CALL_COST_MAX);
    }
    assert!(budget.exhausted());
    assert_eq!(budget.remaining(), 0);
}

#[test]
fn the_longest_source_compiles() {
    let source = format!("'{}'", "a".repeat(SOURCE_BYTES_MAX - 2));
    assert!(Program::compile(&source, &[]).is_ok());
    assert!(Program::compile(&(source + " "), &[]).is_err());
}

/// The account of a request whose time is over.
struct Over;

impl Scheduler for Over {
    fn check(&self, _: u64) -> Result<(), Ended> {
        Err(Ended::Late)
    }

    fn ended(&self) -> Option<Ended> {
        Some(Ended::Late)
    }

    fn bound(&self, _: Option<Bounds>) {}

    fn run_without_turns(&self, _: TenantPays, work: &mut dyn FnMut()) {
        work();
    }
}

#[test]
fn an_evaluation_ends_soon_after_it_is_interrupted() {
    let stopped = Err(EvalError::Interrupted);
    let yes = Ok(Outcome::Value(json!(true)));
    // The meter is paid now and then: short evaluations end before.
    for (source, stop, want) in [
        ("lists.range(9000).all(x, x >= 0)", false, &yes),
        ("lists.range(99).all(x, x >= 0)", true, &yes),
        ("lists.range(9000).all(x, x >= 0)", true, &stopped),
        ("[1, 2].all(x, lists.range(4500).all(y, y >= 0))", true, &stopped),
        (
            "{'a': 1}.all(k, lists.range(9000).exists(y, y == 8999))",
            true,
            &stopped,
        ),
        ("lists.range(9000).map(x, x).size() == 9000", true, &stopped),
        ("lists.range(9000).transformMap(i, x, x).size() == 9000", true, &stopped),
        // `||` does not absorb the interruption.
        ("lists.range(9000).all(x, x >= 0) || true", true, &stopped),
        ("self == 'a' && self.matches('a')", true, &yes),
    ] {
        let program = Program::compile(source, &["self"]).expect("an expression");
        let meter = if stop { Meter::new(Over) } else { Meter::unbounded() };
        let mut budget = Budget::new(OBJECT_COST_MAX, &meter);
        let input = json!("a");
        let got = program.eval(&Activation::new().with("self", &input), &mut budget);
        assert_eq!(&got, want, "{source}");
    }
}

#[test]
fn the_first_hundred_errors_are_told_and_the_others_counted() {
    for (wrong, told, end) in [
        (1, 1, None),
        (100, 100, None),
        (101, 100, Some("1 more errors were truncated")),
        (170, 100, Some("70 more errors were truncated")),
    ] {
        let names: Vec<String> = (0..wrong).map(|n| format!("x{n}")).collect();
        let source = format!("[{}]", names.join(", "));
        let error = Program::compile(&source, &[]).expect_err("names of nothing");
        assert_eq!(error.issues.len(), told, "{wrong}");
        let text = error.to_string();
        assert_eq!(text.matches("undeclared reference to").count(), told, "{wrong}");
        let last = text.lines().last().filter(|line| !line.starts_with(" |"));
        assert_eq!(last, end, "{wrong}");
    }
}
