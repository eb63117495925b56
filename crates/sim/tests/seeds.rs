//! Worlds of a few seeds. `cargo run --release -p insula-sim -- --minutes 10` runs more.

use insula_sim::{Level, Plant, Report, Settings};
use std::thread;

const STEPS: usize = 1_000;
/// Operations of clients on a modelled etcd.
const OPERATIONS: usize = 400;

fn world(seed: u64, plant: Option<Plant>) -> Report {
    world_of(Level::Servers, seed, plant)
}

fn world_of(level: Level, seed: u64, plant: Option<Plant>) -> Report {
    let steps = match level {
        Level::Servers => STEPS,
        Level::Etcd => OPERATIONS,
    };
    level.run(&Settings {
        seed,
        steps,
        servers: 3,
        without: Vec::new(),
        plant,
        whole_trace: false,
    })
}

/// Runs seeds on two threads.
fn worlds(seeds: std::ops::Range<u64>) -> Vec<(u64, Report)> {
    let half = seeds.start.midpoint(seeds.end);
    thread::scope(|scope| {
        let halves = [seeds.start..half, half..seeds.end];
        let run = |seeds: std::ops::Range<u64>| seeds.map(|seed| (seed, world(seed, None))).collect::<Vec<_>>();
        let running = halves.map(|seeds| scope.spawn(move || run(seeds)));
        running
            .into_iter()
            .flat_map(|half| half.join().expect("no panic"))
            .collect()
    })
}

#[test]
fn servers_on_one_store_keep_what_they_promise() {
    let mut outcomes = [0; 4];
    for (seed, report) in worlds(1..21) {
        let trace = report.trace.join("\n");
        assert_eq!(report.failure, None, "seed {seed}, step {}:\n{trace}", report.steps);
        outcomes
            .iter_mut()
            .zip(report.outcomes)
            .for_each(|(sum, count)| *sum += count);
    }
    // Worlds in which nothing is written, read, refused or lost would prove nothing.
    assert!(outcomes.iter().all(|count| *count > 20), "{outcomes:?}");
}

#[test]
fn a_seed_gives_one_run() {
    let (first, again) = (worlds(5..7), worlds(5..7));
    for ((seed, first), (_, again)) in first.iter().zip(&again) {
        assert_eq!(first.hash, again.hash, "seed {seed}");
    }
    assert_ne!(first[0].1.hash, first[1].1.hash);
}

#[test]
fn faults_of_the_store_are_noticed() {
    for plant in [
        "acks-early",
        "skips-commits",
        "tears-commits",
        "no-absence",
        "no-guard-export",
    ] {
        let plant: Plant = plant.parse().expect("a fault");
        let noticed = (1..9).find_map(|seed| world(seed, Some(plant.clone())).failure);
        assert!(noticed.is_some(), "{plant}");
    }
}

#[test]
fn stores_on_a_modelled_etcd_keep_what_they_promise() {
    let mut outcomes = [0; 4];
    for seed in 1..17 {
        let report = world_of(Level::Etcd, seed, None);
        let trace = report.trace.join("\n");
        assert_eq!(report.failure, None, "seed {seed}:\n{trace}");
        outcomes
            .iter_mut()
            .zip(report.outcomes)
            .for_each(|(sum, count)| *sum += count);
    }
    assert!(outcomes.iter().all(|count| *count > 20), "{outcomes:?}");
}

#[test]
fn a_seed_gives_one_run_on_a_modelled_etcd() {
    let hashes = || {
        (3..6)
            .map(|seed| world_of(Level::Etcd, seed, None).hash)
            .collect::<Vec<_>>()
    };
    let first = hashes();
    assert_eq!(first, hashes());
    assert_ne!(first[0], first[1]);
}

#[test]
fn faults_of_etcd_are_noticed() {
    for plant in Level::Etcd.plants() {
        let noticed = (1..20).find_map(|seed| world_of(Level::Etcd, seed, Some(plant.clone())).failure);
        assert!(noticed.is_some(), "{plant}");
    }
}
