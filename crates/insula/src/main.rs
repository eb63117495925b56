//! The program `insula`: the server and its tools.

mod apis;
mod ask;
mod backup;
mod client;
mod conversion;
mod demo;
mod explain;
mod export;
mod files;
mod migrate;
mod print;
mod samples;
mod schema;
mod script;
mod start;
mod steps;
mod version;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

// mimalloc is faster than the malloc of the system for many small allocations that other threads
// free.
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
    /// Start the server.
    Start(start::Arguments),
    /// Start a server and run a demonstration, step by step.
    Demo(demo::Arguments),
    /// Test and suggest conversion rules, without a server.
    #[command(subcommand)]
    Conversion(conversion::Command),
    /// Compare and check schemas, without a server.
    #[command(subcommand)]
    Schema(schema::Command),
    /// Publish APIs for other workspaces to bind.
    #[command(subcommand)]
    Export(export::Command),
    /// Migrate objects of former kinds of definitions to today's.
    #[command(subcommand)]
    Migrate(migrate::Command),
    /// Take, check and restore backups.
    #[command(subcommand)]
    Backup(backup::Command),
    /// Explain the outcome of a request from the audit log.
    Explain(explain::Arguments),
    /// Print the version.
    Version(version::Arguments),
}

/// Format of results.
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
        Command::Migrate(command) => migrate::main(&command),
        Command::Backup(command) => backup::main(&command),
        Command::Explain(arguments) => explain::main(&arguments),
        Command::Version(arguments) => version::main(&arguments),
    }
}

/// Creates the runtime of a command.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

/// Prints an error on standard error, and returns the exit code.
fn failed(error: impl std::fmt::Display, code: u8) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(code)
}

/// Returns the exit code of a tool, after printing its error if it failed.
fn ended(done: anyhow::Result<ExitCode>) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(error) if is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => failed(format!("{error:#}"), 2),
    }
}

/// Returns true if the reader of our output has closed it, as `head` does.
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
