//! Conversion of a 2 kB object of 64 fields (100 for 100 moves) between two versions, by the number
//! of renamed fields.

use divan::Bencher;
use insula_bench::fixtures::{bundle, widget};
use insula_conversion::{Stored, unmetered_budget};

fn main() {
    divan::main();
}

#[divan::bench(args = [0, 1, 10, 100])]
fn get(bencher: Bencher<'_, '_>, moves: usize) {
    let (bundle, object) = (bundle(moves), widget("a", "v1", moves));
    let stored = Stored {
        value: &object,
        version: "v1",
        residual: None,
    };
    bencher.bench_local(|| bundle.get(stored, "v2", &mut unmetered_budget()).expect("converts"));
}

/// A read of an object that the converter owns, as a server has it after parsing.
#[divan::bench(args = [0, 1, 10, 100])]
fn get_owned(bencher: Bencher<'_, '_>, moves: usize) {
    let (bundle, object) = (bundle(moves), widget("a", "v1", moves));
    bencher.with_inputs(|| object.clone()).bench_local_values(|object| {
        bundle
            .get_owned(object, "v1", None, "v2", &mut unmetered_budget())
            .expect("converts")
    });
}

/// A read as in a server: from bytes to bytes.
#[divan::bench(args = [0, 1, 10, 100])]
fn get_from_bytes_to_bytes(bencher: Bencher<'_, '_>, moves: usize) {
    let bundle = bundle(moves);
    let bytes = widget("a", "v1", moves).to_string();
    bencher.bench_local(|| {
        let value = serde_json::from_str(&bytes).expect("parses");
        let value = bundle
            .get_owned(value, "v1", None, "v2", &mut unmetered_budget())
            .expect("converts");
        serde_json::to_vec(&value).expect("prints")
    });
}

#[divan::bench(args = [0, 1, 10, 100])]
fn create(bencher: Bencher<'_, '_>, moves: usize) {
    let (bundle, object) = (bundle(moves), widget("a", "v2", moves));
    bencher.bench_local(|| {
        bundle
            .put(&object, "v2", None, &mut unmetered_budget())
            .expect("converts")
    });
}

/// One field changed through the version that is not stored.
#[divan::bench(args = [0, 1, 10, 100])]
fn update(bencher: Bencher<'_, '_>, moves: usize) {
    let (bundle, old) = (bundle(moves), widget("a", "v1", moves));
    let stored = Stored {
        value: &old,
        version: "v1",
        residual: None,
    };
    let mut new = bundle.get(stored, "v2", &mut unmetered_budget()).expect("converts");
    new["spec"][if moves == 100 { "g099" } else { "f063" }] = "changed".into();
    bencher.bench_local(|| {
        bundle
            .put(&new, "v2", Some(stored), &mut unmetered_budget())
            .expect("converts")
    });
}

#[divan::bench(args = [0, 1, 10, 100])]
fn compile(bencher: Bencher<'_, '_>, moves: usize) {
    bencher.bench_local(|| bundle(divan::black_box(moves)));
}
