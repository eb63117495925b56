//! `insula-sim`: runs worlds until one fails.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "output and time of the tool itself, outside of every world"
)]

use clap::Parser;
use insula_sim::{Level, Plant, Report, Settings, shrink};
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
    #[arg(long)]
    without: Vec<String>,
    /// Runs stores on a modelled etcd, and no more of their servers.
    #[arg(long)]
    etcd: bool,
    /// Looks for a smaller run of a seed that fails.
    #[arg(long)]
    shrink: bool,
    /// Runs each seed twice and compares.
    #[arg(long)]
    check_determinism: bool,
}

impl Arguments {
    fn level(&self) -> Level {
        match self.etcd {
            true => Level::Etcd,
            false => Level::Servers,
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let faults = arguments.level().faults();
    if let Some(unknown) = arguments.without.iter().find(|name| !faults.contains(&name.as_str())) {
        eprintln!("--without {unknown}: one of {}", faults.join(", "));
        return ExitCode::FAILURE;
    }
    let found = match arguments.plant.as_deref() {
        Some("all") => plants_in(&arguments, arguments.level().plants()),
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
                    let report = once(arguments.level(), &settings, arguments.check_determinism);
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
                        tell_smallest(arguments.level(), &settings);
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
    arguments.level().faults().iter().filter(named).copied().collect()
}

/// Prints the command of the smallest run of the seed that fails, and its steps.
fn tell_smallest(level: Level, settings: &Settings) {
    let run = |settings: &Settings| level.run(settings);
    let smallest = shrink(settings, level.faults(), run);
    tell(&smallest, &run(&smallest));
    let Settings {
        seed, steps, servers, ..
    } = smallest;
    let without: String = smallest
        .without
        .iter()
        .map(|name| format!(" --without {name}"))
        .collect();
    let level = if level == Level::Etcd { " --etcd" } else { "" };
    println!("insula-sim{level} --seed {seed} --steps {steps} --servers {servers}{without}");
}

fn add(sum: &AtomicU64, count: usize) {
    sum.fetch_add(u64::try_from(count).unwrap_or_default(), Ordering::Relaxed);
}

fn once(level: Level, settings: &Settings, twice: bool) -> Report {
    let mut report = level.run(settings);
    if twice && level.run(settings).hash != report.hash && report.failure.is_none() {
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
