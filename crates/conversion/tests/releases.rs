//! Objects of generated APIs over their releases: fields go and return, the storage version moves,
//! versions come and go. After each write and each release every version shows what a model says:
//! of each field the value that was written last through a version that has it.
#![allow(clippy::unwrap_used)]

mod support;

use support::releases::hold;

/// Seeds of generated APIs: 100 of each take about 20 seconds of one core.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=10;
const APIS: u64 = 100;

#[test]
fn values_outlive_releases() {
    let check = |seed| {
        let held = hold(seed, APIS).unwrap_or_else(|why| panic!("{why}"));
        assert!(held.writes > APIS * 5 && held.reads > APIS * 10, "{held:?}");
    };
    std::thread::scope(|scope| {
        for seed in SEEDS {
            scope.spawn(move || check(seed));
        }
    });
}
