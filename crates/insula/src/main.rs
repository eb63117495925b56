//! Insula's one program: the server and its tools.

mod client;
mod demo;
mod samples;
mod start;
mod steps;
mod story;
mod version;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

// Many small allocations from many threads, freed by others: what mimalloc is good at, and the system's malloc is not.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// One API server for many logical clusters, with conversion rules in place of webhooks.
#[derive(Parser)]
#[command(name = "insula", version, propagate_version = true, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve.
    Start(start::Arguments),
    /// Start a server and show what it does, step by step.
    Demo(demo::Arguments),
    /// Print the version.
    Version(version::Arguments),
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Human,
    /// For machines: one JSON object a line.
    Json,
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Start(arguments) => start::main(arguments),
        Command::Demo(arguments) => demo::main(arguments),
        Command::Version(arguments) => version::main(&arguments),
    }
}

/// Everything asynchronous runs here.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

/// Says on standard error why the program ends.
fn failed(error: impl std::fmt::Display, code: u8) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
