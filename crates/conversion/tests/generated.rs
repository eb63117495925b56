//! The laws over made-up APIs: schemas, rules, objects and edits, all from one seed.
//!
//! The test runs 100,000 cases. Any other number:
//! `cargo run -p insula-conversion --example laws -- 1000000 7`.
#![allow(clippy::unwrap_used)]

mod support;

use support::laws::hold;

const SEED: u64 = 2026;
/// Made-up APIs of one test, and cases (stories of up to four writes) for each. Two tests run side
/// by side.
const WORLDS: u64 = 1_000;
const CASES: u32 = 50;

fn holds(seed: u64) {
    let told = hold(seed, WORLDS, CASES).unwrap_or_else(|why| panic!("{why}"));
    assert!(told.writes > WORLDS * u64::from(CASES), "{told:?}");
}

#[test]
fn the_laws_hold_for_made_up_apis() {
    holds(SEED);
}

#[test]
fn the_laws_hold_for_other_made_up_apis() {
    holds(SEED + 1);
}
