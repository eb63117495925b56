//! CEL over a 2 kB object: what one expression of a rule costs. An object is bound once for all of its rules. Many
//! evaluations a sample: the clock itself takes 20 ns.

use divan::Bencher;
use insula_bench::fixtures::widget;
use insula_cel::{Activation, Budget, Program};
use serde_json::{Value, json};

fn main() {
    divan::main();
}

fn run(bencher: Bencher<'_, '_>, source: &str, object: &Value) {
    let program = Program::compile(source, &["self"]).expect("compiles");
    let activation = Activation::new().with("self", object);
    bencher.bench_local(|| {
        program
            .eval(&activation, &mut Budget::new(1_000_000))
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
