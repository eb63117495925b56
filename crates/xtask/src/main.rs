//! `cargo xtask`: the chores of this repository.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};
use xtask::{
    console::{self, Packing},
    dist, floors, report, site, suite,
    tidy::{self, Mode},
    workspace::Workspace,
};

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
    /// Fetch what the tests need, build the server, run every test, and print how long each step
    /// took
    Test {
        /// Run only the end-to-end tests whose name contains this text, and build no other tests
        #[arg(long, value_name = "PATTERN")]
        only: Option<String>,
    },
    /// Check line widths, sizes of files and functions, terms, comments and commit subjects
    Tidy {
        /// Print every finding, also those that `crates/xtask/tidy.exceptions` allows
        #[arg(long)]
        all: bool,
        /// Lower the numbers in `crates/xtask/tidy.exceptions` to what is there now
        #[arg(long, conflicts_with = "all")]
        bless: bool,
        /// Write `crates/xtask/tidy.exceptions` anew, so that it allows what is there now
        #[arg(long, conflicts_with_all = ["all", "bless"])]
        accept: bool,
    },
    /// Print the layers of crates, and which crate may depend on which
    Floors,
    /// Update recorded expectations: the numbers of `crates/xtask/tidy.exceptions`, which only go
    /// down, and the expected output of snapshot tests
    Bless {
        /// Update only the expectations of tests whose name contains this text
        #[arg(value_name = "PATTERN")]
        only: Option<String>,
    },
    /// Write the reference of the gRPC API, `docs/api/grpc.md`, and record its additions
    Proto,
    /// Pack the web console from its sources, with Node
    Console {
        /// Compare the packed files with what the sources give, and write nothing
        #[arg(long)]
        check: bool,
    },
    /// Build static programs with checksums, a bill of materials and packages, in `target/dist`
    Dist {
        /// Build only this target, such as x86_64-unknown-linux-musl
        #[arg(long, value_name = "TARGET")]
        target: Option<String>,
        /// Pack this program in place of one that is built
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
        /// Put the release into this folder, which is empty or missing
        #[arg(long, value_name = "DIRECTORY")]
        out: Option<PathBuf>,
        /// Say which targets can be built here and what is missing for the others
        #[arg(long, conflicts_with_all = ["target", "program", "out"])]
        plan: bool,
    },
    /// Build in release mode and run the load generator's quick mode
    Bench,
    /// Make the site of the documents, and its pictures, which `insula docs` serves
    Docs {
        /// Compare the files with what the documents give, and write nothing
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let chore = Args::parse().chore;
    let result = Workspace::load().and_then(|workspace| run(chore, &workspace));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: Chore, workspace: &Workspace) -> Result<()> {
    match chore {
        Chore::Test { only } => suite::run(workspace, only.as_deref()),
        Chore::Proto => suite::proto(&workspace.root),
        Chore::Console { check } => console::run(&workspace.root, Packing::new(check)),
        Chore::Docs { check } => site::run(&workspace.root, Packing::new(check)),
        Chore::Dist {
            target,
            program,
            out,
            plan,
        } => {
            let options = dist::Options {
                target,
                program,
                out,
                plan,
            };
            dist::run(&workspace.root, &options)
        }
        Chore::Bench => suite::bench(&workspace.root),
        Chore::Bless { only } => {
            tidy::run(&workspace.root, Mode::Lower)?;
            suite::proto(&workspace.root)?;
            suite::bless(&workspace.root, only.as_deref())
        }
        Chore::Floors => report::say(&floors::picture()),
        Chore::Tidy { all, bless, accept } => {
            let mode = match (all, bless, accept) {
                (true, _, _) => Mode::All,
                (_, true, _) => Mode::Lower,
                (_, _, true) => Mode::Accept,
                _ => Mode::Check,
            };
            tidy::run(&workspace.root, mode)
        }
    }
}
