//! Cost of one CEL expression of a rule over a 2 kB object. An object is bound once for all of its
//! rules. A sample has many evaluations, since reading the clock takes 20 ns.
//!
//! Also the time until hostile expressions are stopped: less than 20 ms each.

// Their descriptions are used only in the tests that they come from.
#[allow(dead_code)]
#[path = "../../cel/tests/exhaustion/cases.rs"]
mod cases;

use divan::Bencher;
use insula_bench::fixtures::widget;
use insula_cel::{Activation, Budget, CALL_COST_MAX, Program};
use insula_meter::Meter;
use serde_json::{Value, json};

fn main() {
    divan::main();
}

fn run(bencher: Bencher<'_, '_>, source: &str, object: &Value) {
    let program = Program::compile(source, &["self"]).expect("compiles");
    let activation = Activation::new().with("self", object);
    bencher.bench_local(|| {
        program
            .eval(&activation, &mut Budget::new(1_000_000, &Meter::unbounded()))
            .expect("evaluates")
    });
}

#[divan::bench(sample_size = 200)]
fn field_access(bencher: Bencher<'_, '_>) {
    run(bencher, "self.spec.f050", &widget("a", "v1", 0));
}

#[divan::bench(sample_size = 200)]
fn two_comparisons(bencher: Bencher<'_, '_>) {
    run(
        bencher,
        "self.spec.f001 != self.spec.f002 && size(self.spec.f003) <= 63",
        &widget("a", "v1", 0),
    );
}

#[divan::bench(sample_size = 200)]
fn text_function(bencher: Bencher<'_, '_>) {
    run(bencher, "self.spec.f001.upperAscii()", &widget("a", "v1", 0));
}

#[divan::bench(sample_size = 200)]
fn map_over_10(bencher: Bencher<'_, '_>) {
    let items: Vec<Value> = (0..10).map(|i| json!({"name": format!("n{i}"), "size": i})).collect();
    run(bencher, "self.items.map(i, i.name)", &json!({"items": items}));
}

#[divan::bench(sample_size = 200)]
fn map_literal(bencher: Bencher<'_, '_>) {
    run(
        bencher,
        "{'name': self.spec.f001, 'mode': self.spec.f002}",
        &widget("a", "v1", 0),
    );
}

#[divan::bench]
fn compile(bencher: Bencher<'_, '_>) {
    let source = "self.spec.f001 != self.spec.f002 && size(self.spec.f003) <= 63";
    bencher.bench_local(|| Program::compile(divan::black_box(source), &["self"]).expect("compiles"));
}

fn hostile() -> Vec<&'static str> {
    cases::cases().iter().map(|case| case.name).collect()
}

#[divan::bench(args = hostile(), sample_count = 20, sample_size = 1)]
fn hostile_expression(bencher: Bencher<'_, '_>, name: &str) {
    let case = cases::cases().into_iter().find(|c| c.name == name);
    let case = case.expect("named by itself");
    let program = Program::compile(&case.source, &["self"]).expect("compiles");
    let activation = Activation::new().with("self", &case.input);
    bencher.bench_local(|| {
        program
            .eval(&activation, &mut Budget::new(CALL_COST_MAX, &Meter::unbounded()))
            .is_ok()
    });
}
