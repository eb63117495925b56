//! Insula's one program: the server and its tools.

mod apis;
mod backup;
mod client;
mod conversion;
mod demo;
mod explain;
mod export;
mod files;
mod print;
mod samples;
mod schema;
mod script;
mod start;
mod steps;
mod version;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

// Many small allocations from many threads, freed by others: what mimalloc is good at, and the
// system's malloc is not.
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
    /// Try conversion rules: no server is needed.
    #[command(subcommand)]
    Conversion(conversion::Command),
    /// Compare schemas, and look them over: no server is needed.
    #[command(subcommand)]
    Schema(schema::Command),
    /// Publish APIs for other workspaces to bind.
    #[command(subcommand)]
    Export(export::Command),
    /// Take, check and restore backups.
    #[command(subcommand)]
    Backup(backup::Command),
    /// Say what became of a request and why it was refused, from the audit log.
    Explain(explain::Arguments),
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
        Command::Conversion(command) => conversion::main(&command),
        Command::Schema(command) => schema::main(&command),
        Command::Export(command) => export::main(command),
        Command::Backup(command) => backup::main(&command),
        Command::Explain(arguments) => explain::main(&arguments),
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

/// How a tool ends: with what it found, or with why it could not look.
fn ended(done: anyhow::Result<ExitCode>) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(error) if is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => failed(format!("{error:#}"), 2),
    }
}

/// Whether the reader of our output has gone, as `head` does.
fn is_closed(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    cause.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
