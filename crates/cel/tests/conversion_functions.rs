//! Functions that only conversion rules have: their results, errors and costs, and their absence
//! elsewhere.

use insula_cel::{
    AbsenceMode, Activation, Budget, CALL_COST_MAX, Decl, Env, EvalError, ListKind, Outcome, Program, Type,
};
use insula_meter::Meter;
use serde_json::{Value, json};
use std::fmt::Write;

fn declared(name: Option<&str>) -> Decl {
    match name {
        Some("text") => Decl::scalar(Type::String).bounded(Some(20_000), 2),
        Some("int") => Decl::scalar(Type::Int),
        Some("ints") => Decl::list(Decl::scalar(Type::Int), ListKind::Atomic).bounded(Some(100), 2),
        Some("any") => Decl::dynamic().bounded(Some(1_000), 1),
        None => Decl::dynamic(),
        Some(other) => panic!("no type {other}"),
    }
}

fn env(name: Option<&str>) -> Env {
    Env::new(AbsenceMode::Absent).with("self", declared(name)).conversion()
}

fn run(case: &Value) -> String {
    let source = case["expr"].as_str().expect("an expression");
    let program = match Program::compile_in(source, &env(case["self"].as_str())) {
        Ok(program) => program,
        Err(error) => return format!("refused: {}", error.issues[0].message),
    };
    let repeated = case["repeat"].as_array().map(|pieces| {
        let times = pieces[1].as_u64().expect("a count");
        Value::String(pieces[0].as_str().expect("a text").repeat(times as usize))
    });
    let value = repeated.unwrap_or_else(|| case["of"].clone());
    let mut budget = Budget::new(CALL_COST_MAX, &Meter::unbounded());
    let outcome = program.eval(&Activation::new().with("self", &value), &mut budget);
    let most = program.estimate().max;
    assert!(budget.used() <= most, "{source}: cost {} > {most}", budget.used());
    match outcome {
        Ok(Outcome::Value(value)) => format!("= {value}"),
        Ok(Outcome::Absent) => "absent".to_owned(),
        Err(error) => format!("error: {error}"),
    }
}

fn wanted(case: &Value) -> String {
    match (case["error"].as_str(), case["refused"].as_str()) {
        (Some(text), _) => format!("error: {text}"),
        (_, Some(text)) => format!("refused: {text}"),
        _ => format!("= {}", case["want"]),
    }
}

fn cases() -> Vec<Value> {
    serde_saphyr::from_str(include_str!("conversion/functions.yaml")).expect("a table")
}

#[test]
fn the_table_holds() {
    let mut wrong = String::new();
    for case in cases() {
        let (got, want) = (run(&case), wanted(&case));
        if got != want {
            writeln!(wrong, "{case}\n  want {want}\n  got  {got}").expect("text");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn other_expressions_do_not_have_them() {
    for mode in [AbsenceMode::Absent, AbsenceMode::Error] {
        let env = Env::new(mode).with("self", Decl::dynamic());
        for source in [
            "math.round(1.5)",
            "json.encode(self)",
            "durations.format(duration('1s'))",
            "fold.x([1].fold(sum, x, 0, sum + x))",
            "zip.x([1].zip([2], x, y, x + y))",
        ] {
            let error = Program::compile_in(source, &env).expect_err(source);
            let name = source.split('.').next().unwrap_or_default();
            assert!(
                error.to_string().contains(&format!("undeclared reference to '{name}'")),
                "{source}: {error}"
            );
        }
    }
}

#[test]
fn types_prove_which_calls_cannot_fail() {
    for (source, ty, can_fail) in [
        ("math.round(1.5)", "int", false),
        ("math.greatest(self, 3)", "int", false),
        ("math.greatest(self, 3, 9)", "int", false),
        ("math.greatest(self)", "ints", true),
        ("math.abs(self)", "int", true),
        ("durations.format(duration('1s'))", "int", false),
        ("durations.fromSeconds(self)", "int", true),
        ("json.encode(self)", "text", false),
        ("json.encode(self)", "any", false),
        ("json.decode(self)", "text", true),
        ("yaml.encode(self)", "any", false),
        ("yaml.decode(self)", "text", true),
        ("self.fold(all, x, '', all + string(x))", "ints", false),
        ("self.fold(sum, x, 0, sum + x)", "ints", true),
        ("self.fold(sum, x, 0, x)", "any", true),
        ("self.fold(last, x, 0, dyn(x))", "ints", true),
        ("self.zip(self, x, y, [x, y])", "ints", false),
        ("self.zip([1], x, y, [x, y][1])", "ints", true),
    ] {
        let program = Program::compile_in(source, &env(Some(ty))).expect(source);
        assert_eq!(program.can_fail(), can_fail, "{source}");
    }
}

fn ints(count: usize) -> Value {
    (0..count).collect()
}

/// The greatest cost is known for an accumulator that grows by what each round adds; one that grows
/// with itself has none.
#[test]
fn folds_have_a_price() {
    let most = |source: &str| {
        Program::compile_in(source, &env(Some("ints")))
            .expect(source)
            .estimate()
            .max
    };
    let run = |source: &str, budget: &mut Budget| {
        let program = Program::compile_in(source, &env(Some("ints"))).expect(source);
        program.eval(&Activation::new().with("self", &ints(100)), budget)
    };
    for source in [
        "self.fold(sum, x, 0, sum + x)",
        "self.fold(all, x, '', all + string(x))",
        "self.fold(all, x, '', x > 50 ? all + 'abc' : 'none')",
        "self.fold(all, x, [], all + [x])",
        "self.fold(all, x, [0], all + [all[size(all) - 1] + x])",
        "self.fold(all, x, [], all + [x]).fold(sum, x, 0, sum + x)",
        "self.fold(all, x, '', all + self.fold(inner, y, '', inner + 'a'))",
        "self.zip(self, x, y, x + y)",
    ] {
        let mut budget = Budget::new(CALL_COST_MAX, &Meter::unbounded());
        run(source, &mut budget).expect(source);
        let most = most(source);
        assert!(budget.used() <= most, "{source}: cost {} > {most}", budget.used());
        assert!(most < 3_000_000, "{source}: {most}");
    }
    for source in [
        "self.fold(all, x, 'a', all + all)",
        "self.fold(all, x, [1], all + all)",
        "self.fold(all, x, [1], all + all.map(y, y + 1))",
        "self.fold(all, x, 'a', x > 0 ? all + all : '0123456789')",
        "self.fold(a, x, '', a + self.fold(b, y, a, b + self.fold(c, z, b, c + b)))",
    ] {
        assert!(most(source) > u64::MAX / 1_000, "{source}: {}", most(source));
        let mut budget = Budget::new(CALL_COST_MAX, &Meter::unbounded());
        let failed = run(source, &mut budget);
        assert!(
            matches!(failed, Err(EvalError::CostExceeded | EvalError::MemoryExceeded)),
            "{source}: {failed:?}"
        );
    }
}

/// Each walks its step three times, so that many of them in each other have no price.
#[test]
fn folds_in_folds_are_estimated_at_once() {
    let source = (0..20).fold("''".to_owned(), |inner, n| {
        format!("self.fold(a{n}, x{n}, {inner}, a{n} + 'b')")
    });
    Program::compile_in(&source, &env(Some("ints"))).expect("it compiles");
    let source = (0..20).fold("'b'".to_owned(), |inner, n| {
        format!("self.fold(a{n}, x{n}, '', a{n} + {inner})")
    });
    let program = Program::compile_in(&source, &env(Some("ints"))).expect("it compiles");
    assert_eq!(program.estimate().max, u64::MAX);
}

/// The memory of an accumulator is free when the next round has made another.
#[test]
fn growing_texts_take_the_memory_of_one() {
    let declared = Decl::list(Decl::scalar(Type::Int), ListKind::Atomic).bounded(Some(2_000), 2);
    let env = Env::new(AbsenceMode::Absent).with("self", declared).conversion();
    let program =
        Program::compile_in("size(self.fold(all, x, '', all + '0123456789abcdef'))", &env).expect("it compiles");
    let mut budget = Budget::new(10 * CALL_COST_MAX, &Meter::unbounded()).growing();
    budget.extend_for(1_000_000);
    let outcome = program.eval(&Activation::new().with("self", &ints(2_000)), &mut budget);
    assert_eq!(outcome.expect("it runs"), Outcome::Value(json!(32_000)));
}

/// An accumulator frees no more than was charged for it: rounds that make short texts for nothing
/// leave no room for large ones.
#[test]
fn folds_give_back_no_more_than_was_charged() {
    let large = "'0123456789abcdef'";
    let grown = (0..6).fold(large.to_owned(), |text, _| format!("{text} + {text}"));
    let source =
        format!("self.map(x, self.fold(short, y, '', string(y)) + {grown}).map(z, self.map(y, z + string(y)))");
    let declared = Decl::list(Decl::scalar(Type::Int), ListKind::Atomic).bounded(Some(500), 2);
    let env = Env::new(AbsenceMode::Absent).with("self", declared).conversion();
    let program = Program::compile_in(&source, &env).expect("it compiles");
    let mut budget = Budget::new(10 * CALL_COST_MAX, &Meter::unbounded()).growing();
    budget.extend_for(10_000_000);
    let failed = program.eval(&Activation::new().with("self", &ints(500)), &mut budget);
    assert_eq!(failed, Err(EvalError::MemoryExceeded));
}

/// An object that is repeated many times exhausts the budget, and never the memory.
#[test]
fn large_values_are_charged() {
    let item = json!({"text": "x".repeat(60_000)});
    let repeated = "[self, self, self, self, self, self, self, self]";
    for function in ["json.encode", "yaml.encode"] {
        let nested = format!("{function}([{}])", [repeated; 32].join(", "));
        let program = Program::compile_in(&nested, &env(Some("any"))).expect("it compiles");
        let failed = program.eval(
            &Activation::new().with("self", &item),
            &mut Budget::new(CALL_COST_MAX, &Meter::unbounded()),
        );
        assert!(
            matches!(failed, Err(EvalError::CostExceeded | EvalError::MemoryExceeded)),
            "{failed:?}"
        );
    }
}

/// Aliases that repeat aliases are bounded before they are read.
#[test]
fn aliases_are_charged() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let below = vec![format!("*a{}", level - 1); 10].join(", ");
        writeln!(text, "a{level}: &a{level} [{below}]").expect("text");
    }
    let text = Value::String(text);
    let program = Program::compile_in("yaml.decode(self)", &env(Some("text"))).expect("it compiles");
    let failed = program.eval(
        &Activation::new().with("self", &text),
        &mut Budget::new(CALL_COST_MAX, &Meter::unbounded()),
    );
    assert!(failed.is_err(), "{failed:?}");
}

#[test]
fn large_texts_are_charged() {
    let many = Value::String(format!("[{}0]", "0,".repeat(1_000_000)));
    for source in ["size(json.decode(self))", "size(yaml.decode(self))"] {
        let program = Program::compile_in(source, &env(Some("text"))).expect("it compiles");
        let failed = program.eval(
            &Activation::new().with("self", &many),
            &mut Budget::new(CALL_COST_MAX, &Meter::unbounded()),
        );
        assert!(
            matches!(failed, Err(EvalError::CostExceeded | EvalError::MemoryExceeded)),
            "{failed:?}"
        );
    }
}
