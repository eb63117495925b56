//! Checks generated APIs over their releases:
//! `cargo run --release -p insula-conversion --example releases -- APIS [SEED [NUMBER]]`, all or
//! one of them. Exits with 1 and prints a short history if a version shows something else than was
//! written.

#[path = "../tests/support/mod.rs"]
mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let (Some(Ok(apis)), seed) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: releases APIS [SEED [NUMBER]]");
        return ExitCode::from(2);
    };
    let seed = seed.and_then(Result::ok).unwrap_or(2026);
    let one = arguments.next().and_then(Result::ok);
    let held = match one {
        Some(number) => support::releases::hold_one(seed, number),
        None => support::releases::hold(seed, apis),
    };
    match held {
        Ok(held) => {
            eprintln!(
                "seed {seed}: {apis} APIs, {} releases, {} writes, {} reads hold",
                held.releases, held.writes, held.reads
            );
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
