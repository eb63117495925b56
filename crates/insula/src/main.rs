//! The program `insula`: the server and its tools.

mod access;
mod admin;
mod apis;
mod ask;
mod backup;
mod bind;
mod boot;
mod claims;
mod client;
mod complete;
mod completion;
mod connection;
mod conversion;
#[cfg(test)]
mod counterparts;
mod demo;
mod docs;
mod doctor;
mod duration;
mod explain;
mod export;
mod files;
mod kubeconfig;
mod man;
mod migrate;
mod offers;
mod operation;
mod plugin;
mod print;
mod retired_field;
mod sample_sets;
mod samples;
mod schema;
mod script;
mod self_contained;
mod server;
mod start;
mod status;
mod steps;
mod unbind;
mod version;
mod workspace;

use std::{process::ExitCode, time::SystemTime};

use backup::ServerUrl;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

// mimalloc is faster than the malloc of the system for many small allocations that other threads
// free.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// One API server for many logical clusters, with conversion rules in place of webhooks.
#[derive(Parser)]
#[command(name = "insula", version = version::SHORT, propagate_version = true, after_help = "\
get, apply and delete are kubectl's: `insula ws PATH` selects the workspace that kubectl works in.
Every command that talks to a server takes kubectl's flags, and the variables that its --help shows.

Exit codes: 0 done, 1 a negative answer (a finding, a difference, nothing found), 2 an error.")]
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
    /// Change, show and create workspaces.
    #[command(visible_alias = "workspace", alias = "workspaces")]
    Ws(workspace::Arguments),
    /// Create a workspace, and wait until it is ready.
    CreateWorkspace(workspace::Create),
    /// List the APIs that you may bind.
    Apis(offers::Arguments),
    /// Bind an API of another workspace.
    Bind(bind::Arguments),
    /// Remove a binding, with its objects, which are counted first.
    Unbind(unbind::Arguments),
    /// List, accept and reject permission claims of bound APIs.
    Claims(claims::Arguments),
    /// Grant, revoke and list access to a workspace.
    Access(access::Arguments),
    /// Write a self-contained kubeconfig for a workspace.
    Kubeconfig(self_contained::Arguments),
    /// Publish APIs for other workspaces to bind.
    #[command(subcommand)]
    Export(export::Command),
    /// Migrate objects of former kinds of definitions to today's.
    #[command(subcommand)]
    Migrate(migrate::Command),
    /// Take, check and restore backups.
    #[command(subcommand)]
    Backup(backup::Command),
    /// Compact the store, show members and settings of the server, and change the level of its log.
    #[command(subcommand)]
    Server(server::Command),
    /// List, await and cancel operations of the server, such as backups.
    #[command(subcommand)]
    Operation(operation::Command),
    /// Test and suggest conversion rules, without a server.
    #[command(subcommand)]
    Conversion(conversion::Command),
    /// Compare and check schemas, without a server.
    #[command(subcommand)]
    Schema(schema::Command),
    /// Scaffold API servers of your own, on the library insula-sdk.
    #[command(subcommand)]
    Boot(boot::Command),
    /// Explain the outcome of a request from the audit log.
    Explain(explain::Arguments),
    /// Show the server, its health, and the current workspace.
    Status(status::Arguments),
    /// Check an installation; each finding has its fix.
    Doctor(doctor::Arguments),
    /// List, print and try samples of APIs with conversion rules.
    #[command(subcommand)]
    Samples(sample_sets::Command),
    /// Install the program as a set of kubectl plugins.
    #[command(subcommand)]
    Plugin(plugin::Command),
    /// Print a script that completes commands in a shell.
    Completion(completion::Arguments),
    /// Serve the documents of this version to a browser, with a search.
    Docs(docs::Arguments),
    /// Print the manual, or write the pages of all commands.
    Man(man::Arguments),
    /// Print the version.
    Version(version::Arguments),
}

/// Commands that users may look for here.
const KUBECTLS: [&str; 7] = ["get", "apply", "create", "delete", "describe", "edit", "patch"];

fn main() -> ExitCode {
    insula_server::identify(version::BUILD);
    let arguments = plugin::arguments(std::env::args_os());
    if arguments.get(1).is_some_and(|first| first == complete::COMPLETE) {
        let words: Vec<String> = arguments
            .iter()
            .skip(2)
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        return complete::main(Cli::command(), &words);
    }
    if let Some(word) = arguments
        .get(1)
        .and_then(|word| word.to_str())
        .filter(|word| KUBECTLS.contains(word))
    {
        return failed(
            format!("{word} is kubectl's: `kubectl {word}` works in the workspace of `insula ws`"),
            2,
        );
    }
    let parsed = Cli::command()
        .bin_name(plugin::program())
        .try_get_matches_from(arguments);
    let parsed = parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, ServerUrl::of_matches(&matches))));
    match parsed {
        Ok((cli, url)) => run(cli.command, url),
        Err(error) if plugin::is_plugin() && error.use_stderr() => {
            failed(error.to_string().trim_start_matches("error: "), 1)
        }
        Err(error) => error.exit(),
    }
}

fn run(command: Command, url: ServerUrl) -> ExitCode {
    match command {
        Command::Start(arguments) => start::main(arguments),
        Command::Demo(arguments) => demo::main(arguments),
        Command::Ws(arguments) => workspace::main(&arguments),
        Command::CreateWorkspace(arguments) => workspace::create(&arguments),
        Command::Apis(arguments) => offers::main(&arguments),
        Command::Bind(arguments) => bind::main(&arguments),
        Command::Unbind(arguments) => unbind::main(&arguments),
        Command::Claims(arguments) => claims::main(&arguments),
        Command::Access(arguments) => access::main(&arguments),
        Command::Kubeconfig(arguments) => self_contained::main(&arguments),
        Command::Export(command) => export::main(command),
        Command::Migrate(command) => migrate::main(&command),
        Command::Backup(command) => backup::main(&command, url),
        Command::Server(command) => server::main(&command),
        Command::Operation(command) => operation::main(&command),
        Command::Conversion(command) => conversion::main(&command),
        Command::Schema(command) => schema::main(&command),
        Command::Boot(command) => boot::main(command),
        Command::Explain(arguments) => explain::main(&arguments),
        Command::Status(arguments) => status::main(&arguments),
        Command::Doctor(arguments) => doctor::main(&arguments),
        Command::Samples(command) => sample_sets::main(&command),
        Command::Plugin(command) => plugin::main(&command),
        Command::Completion(arguments) => completion::main(&arguments),
        Command::Docs(arguments) => docs::main(&arguments),
        Command::Man(arguments) => man::main(&arguments),
        Command::Version(arguments) => version::main(&arguments),
    }
}

/// Creates the runtime of a command.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    insula_server::threads().enable_all().build()
}

/// Returns the time of this machine.
fn now() -> insula_api::Timestamp {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    insula_api::Timestamp(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// Prints an error on standard error, and returns the exit code. kcp's plugins have one code.
fn failed(error: impl std::fmt::Display, code: u8) -> ExitCode {
    eprintln!("{}: {error}", plugin::error_word());
    ExitCode::from(if plugin::is_plugin() { 1 } else { code })
}

/// Returns the exit code of a tool, after printing its error if it failed.
fn ended(done: anyhow::Result<ExitCode>) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(error) if print::is_reader_gone(&error) => ExitCode::SUCCESS,
        Err(error) => failed(format!("{error:#}"), 2),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
