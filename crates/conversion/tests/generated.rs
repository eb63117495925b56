//! The laws over generated APIs: schemas, rules, objects and edits, all from one seed.
//!
//! The test runs 100,000 cases. Any other number:
//! `cargo run -p insula-conversion --example laws -- 1000000 7`.
#![allow(clippy::unwrap_used)]

mod support;

use support::laws::hold;

const SEED: u64 = 2026;
/// Generated APIs of one test, and cases (sequences of up to four writes) for each. Two tests run
/// in parallel.
const APIS: u64 = 1_000;
const CASES: u32 = 50;

fn holds(seed: u64) {
    let result = hold(seed, APIS, CASES).unwrap_or_else(|why| panic!("{why}"));
    assert!(result.writes > APIS * u64::from(CASES), "{result:?}");
}

#[test]
fn the_laws_hold_for_made_up_apis() {
    holds(SEED);
}

#[test]
fn the_laws_hold_for_other_made_up_apis() {
    holds(SEED + 1);
}
