//! `cargo xtask`: the chores of this repository.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::{floors, report, suite, tidy, workspace::Workspace};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "The chores of this repository",
    disable_version_flag = true
)]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Find or fetch what the tests need, build the binary, run every test, and print how long each
    /// step took
    Test {
        /// Run only tests whose name contains this
        #[arg(long, value_name = "FILTER")]
        only: Option<String>,
    },
    /// Print the floors, and which crate may name which
    Floors,
    /// Check widths, sizes, terms, doc comments and commit subjects
    Tidy {
        /// Lower the numbers of `crates/xtask/tidy.exceptions` to what is there
        #[arg(long)]
        bless: bool,
    },
}

fn main() -> ExitCode {
    let result = match Args::parse().chore {
        Chore::Test { only } => Workspace::load().and_then(|workspace| suite::run(&workspace, only.as_deref())),
        Chore::Floors => report::say(&floors::picture()),
        Chore::Tidy { bless } => Workspace::load().and_then(|workspace| tidy::run(&workspace.root, bless)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
