//! Objects of generated APIs over their releases: fields go and return, the storage version moves,
//! versions come and go. After each write and each release every version shows what a model says:
//! of each field the value that was written last through a version that has it.
#![allow(clippy::unwrap_used)]

mod support;

use support::releases::hold;

const SEED: u64 = 1;
const APIS: u64 = 300;

#[test]
fn values_outlive_releases() {
    let held = hold(SEED, APIS).unwrap_or_else(|why| panic!("{why}"));
    assert!(held.writes > APIS * 5 && held.reads > APIS * 10, "{held:?}");
}
