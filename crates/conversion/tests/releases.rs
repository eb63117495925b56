//! Objects of generated APIs over their releases: fields go and return, the storage version moves,
//! versions come and go. After each write and each release every version shows what a model says:
//! of each field the value that was written last through a version that has it.

use crate::support::releases::{hold, hold_one};

/// Seeds of generated APIs: 100 of each take about 20 seconds of one core.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=10;
const APIS: u64 = 100;

/// Numbers of APIs of these and other seeds that did not hold once, beside those of the range.
const MENDED: &[(u64, u64)] = &[
    (2, 485),
    (3, 590),
    (5, 499),
    (10, 378),
    (12, 18),
    (12, 235),
    (12, 491),
    (13, 212),
    (13, 419),
    (13, 591),
    (13, 592),
    (14, 311),
    (14, 378),
    (14, 597),
    (15, 192),
    (25, 815),
    (27, 650),
];

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

#[test]
fn values_outlive_releases_that_took_some() {
    for (seed, number) in MENDED {
        let held = hold_one(*seed, *number).unwrap_or_else(|why| panic!("seed {seed}, number {number}: {why}"));
        assert!(
            held.writes > 3 && held.reads > 3,
            "seed {seed}, number {number}: {held:?}"
        );
    }
}
