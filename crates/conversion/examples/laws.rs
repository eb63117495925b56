//! Checks the laws over generated APIs:
//! `cargo run --release -p insula-conversion --example laws -- CASES [SEED]`. Exits with 1 and
//! prints the shortest sequence of writes if a law does not hold.

#[path = "../tests/support/mod.rs"]
mod support;

use std::process::ExitCode;

/// Cases of one API.
const CASES_EACH: u32 = 50;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let (Some(Ok(cases)), seed) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: laws CASES [SEED]");
        return ExitCode::from(2);
    };
    let seed = seed.and_then(Result::ok).unwrap_or(2026);
    match support::laws::hold(seed, cases.div_ceil(u64::from(CASES_EACH)), CASES_EACH) {
        Ok(result) => {
            eprintln!(
                "seed {seed}: {} cases, {} writes hold, {} refused by rules that may fail",
                result.cases, result.writes, result.refused
            );
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
