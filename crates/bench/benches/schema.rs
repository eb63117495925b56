//! Cost of a structural schema of 64 leaves: admission of one object, and the compilation that all
//! tenants share.

use divan::Bencher;
use insula_bench::fixtures::{sixty_four_leaves, widget, widget_schema};
use insula_meter::Meter;
use insula_schema::{Structural, default, drop_nulls, openapi_v3, prune, validate};

fn main() {
    divan::main();
}

#[divan::bench]
fn compile_64_leaves(bencher: Bencher<'_, '_>) {
    let (schema, _) = sixty_four_leaves();
    bencher.bench_local(|| Structural::parse_trusted(&schema).expect("compiles"));
}

#[divan::bench]
fn prune_default_validate_64_leaves(bencher: Bencher<'_, '_>) {
    let (schema, object) = sixty_four_leaves();
    let schema = Structural::parse_trusted(&schema).expect("compiles");
    bencher.with_inputs(|| object.clone()).bench_local_values(|mut object| {
        prune(&mut object, &schema);
        drop_nulls(&mut object, &schema);
        default(&mut object, &schema);
        assert!(validate(&object, &schema, &Meter::unbounded()).is_empty());
        object
    });
}

#[divan::bench]
fn prune_default_validate_2_kb(bencher: Bencher<'_, '_>) {
    let schema = Structural::parse_trusted(&widget_schema("v1", 0)).expect("compiles");
    let object = widget("a", "v1", 0);
    bencher.with_inputs(|| object.clone()).bench_local_values(|mut object| {
        prune(&mut object, &schema);
        drop_nulls(&mut object, &schema);
        default(&mut object, &schema);
        assert!(validate(&object, &schema, &Meter::unbounded()).is_empty());
        object
    });
}

/// Validation with a rule over two fields, for comparison with the schema alone.
#[divan::bench]
fn validate_with_a_rule(bencher: Bencher<'_, '_>) {
    let mut schema = widget_schema("v1", 0);
    schema["x-kubernetes-validations"] = serde_json::json!([
        {"rule": "self.spec.f001 != self.spec.f002", "message": "must differ"},
    ]);
    let schema = Structural::parse_trusted(&schema).expect("compiles");
    let object = widget("a", "v1", 0);
    bencher.bench_local(|| validate(&object, &schema, &Meter::unbounded()));
}

#[divan::bench]
fn openapi(bencher: Bencher<'_, '_>) {
    let (schema, _) = sixty_four_leaves();
    bencher.bench_local(|| openapi_v3(&schema));
}
