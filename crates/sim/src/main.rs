//! `insula-sim`: runs worlds until one fails.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "output and time of the tool itself, outside of every world"
)]

use clap::Parser;
use insula_sim::{Plant, Report, Settings, faults::FAULTS, run, shrink};
use std::{
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Runs simulated worlds, each of a seed.
#[derive(Parser)]
struct Arguments {
    /// Runs the world of this seed alone.
    #[arg(long)]
    seed: Option<u64>,
    /// First seed.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Number of seeds.
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// Runs seeds for so many minutes instead.
    #[arg(long)]
    minutes: Option<u64>,
    /// Steps with clients and faults.
    #[arg(long, default_value_t = 20_000)]
    steps: usize,
    /// Servers on the store.
    #[arg(long, default_value_t = 3)]
    servers: usize,
    /// Worlds at once.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Gives the store a fault, which must be noticed; `all` for one after the other.
    #[arg(long)]
    plant: Option<String>,
    /// Prints all steps.
    #[arg(long)]
    trace: bool,
    /// Leaves a fault out; may be repeated.
    #[arg(long, value_parser = insula_sim::faults::FAULTS)]
    without: Vec<String>,
    /// Looks for a smaller run of a seed that fails.
    #[arg(long)]
    shrink: bool,
    /// Runs each seed twice and compares.
    #[arg(long)]
    check_determinism: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let found = match arguments.plant.as_deref() {
        Some("all") => plants(&arguments),
        Some(name) => match name.parse() {
            Ok(plant) => plants_in(&arguments, vec![plant]),
            Err(why) => {
                eprintln!("--plant: {why}");
                false
            }
        },
        None => seeds(&arguments, None).is_none(),
    };
    if found { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn plants(arguments: &Arguments) -> bool {
    plants_in(arguments, Plant::all())
}

/// Runs worlds with each fault. Returns true if all were noticed.
fn plants_in(arguments: &Arguments, plants: Vec<Plant>) -> bool {
    let mut all = true;
    for plant in plants {
        let begun = Instant::now();
        let noticed = seeds(arguments, Some(plant.clone()));
        println!(
            "{plant}: {} after {} s",
            if noticed.is_some() { "noticed" } else { "NOT NOTICED" },
            begun.elapsed().as_secs()
        );
        all &= noticed.is_some();
    }
    all
}

/// Runs seeds until one fails. Returns that seed.
fn seeds(arguments: &Arguments, plant: Option<Plant>) -> Option<u64> {
    let begun = Instant::now();
    let next = AtomicU64::new(arguments.seed.unwrap_or(arguments.first));
    let failed = AtomicU64::new(0);
    let time = arguments.minutes.map(|minutes| Duration::from_secs(60 * minutes));
    let last = match (arguments.seed, time) {
        (Some(seed), _) => seed,
        (None, Some(_)) => u64::MAX,
        (None, None) => arguments.first + arguments.seeds - 1,
    };
    let (steps, seeds, commits) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let outcomes: [AtomicU64; 4] = Default::default();
    thread::scope(|scope| {
        for _ in 0..arguments.threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let is_over = time.is_some_and(|time| begun.elapsed() > time);
                    if seed > last || is_over || failed.load(Ordering::Relaxed) > 0 {
                        return;
                    }
                    let settings = Settings {
                        seed,
                        steps: arguments.steps,
                        servers: arguments.servers,
                        without: without(arguments),
                        plant: plant.clone(),
                        whole_trace: arguments.trace,
                    };
                    let report = once(&settings, arguments.check_determinism);
                    add(&steps, report.steps);
                    add(&commits, report.commits);
                    outcomes
                        .iter()
                        .zip(report.outcomes)
                        .for_each(|(sum, count)| add(sum, count));
                    seeds.fetch_add(1, Ordering::Relaxed);
                    if report.failure.is_some() || arguments.trace {
                        if report.failure.is_some() {
                            failed.store(seed, Ordering::Relaxed);
                        }
                        tell(&settings, &report);
                    }
                    if report.failure.is_some() && arguments.shrink {
                        tell_smallest(&settings);
                    }
                }
            });
        }
    });
    let (steps, seeds, commits) = (steps.into_inner(), seeds.into_inner(), commits.into_inner());
    let [written, read, refused, unknown] = outcomes.map(AtomicU64::into_inner);
    if plant.is_none() {
        println!(
            "{seeds} seeds, {steps} steps, {commits} commits in {} s",
            begun.elapsed().as_secs()
        );
        println!("requests: {written} wrote, {read} read, {refused} were refused, {unknown} are unknown");
    }
    Some(failed.into_inner()).filter(|seed| *seed > 0)
}

fn without(arguments: &Arguments) -> Vec<&'static str> {
    let named = |name: &&&str| arguments.without.iter().any(|without| without == **name);
    FAULTS.iter().filter(named).copied().collect()
}

/// Prints the command of the smallest run of the seed that fails, and its steps.
fn tell_smallest(settings: &Settings) {
    let smallest = shrink(settings, run);
    tell(&smallest, &run(&smallest));
    let Settings {
        seed, steps, servers, ..
    } = smallest;
    let without: String = smallest
        .without
        .iter()
        .map(|name| format!(" --without {name}"))
        .collect();
    println!("insula-sim --seed {seed} --steps {steps} --servers {servers}{without}");
}

fn add(sum: &AtomicU64, count: usize) {
    sum.fetch_add(u64::try_from(count).unwrap_or_default(), Ordering::Relaxed);
}

fn once(settings: &Settings, twice: bool) -> Report {
    let mut report = run(settings);
    if twice && run(settings).hash != report.hash && report.failure.is_none() {
        report.failure = Some("two runs of the seed differ".to_owned());
    }
    report
}

fn tell(settings: &Settings, report: &Report) {
    if settings.plant.is_none() {
        for step in &report.trace {
            println!("  {step}");
        }
    }
    let failure = report.failure.as_deref().unwrap_or_default();
    println!("seed {}, step {}: {failure}", settings.seed, report.steps);
}
