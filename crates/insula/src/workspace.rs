//! `insula ws`: the current workspace of a kubeconfig, with the grammar of kcp's `kubectl ws`.

mod context;
mod create;
mod enter;
mod explain;
mod manage;
mod path;
mod pick;
mod tree;

use std::{process::ExitCode, time::Duration};

use anyhow::bail;
use clap::Subcommand;
use serde_json::Value;

pub(crate) use create::Create;
use enter::Presence;

use crate::{
    client::{Client, message},
    connection::{Connection, Resolved},
    files::text,
};

/// Longest wait for an answer about a workspace that is written into a kubeconfig.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Collection of the workspaces below one.
const WORKSPACES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaces";

/// Changes the current workspace: the context `workspace.kcp.io/current` of the kubeconfig, which
/// kubectl then uses. The context before stays as `workspace.kcp.io/previous`.
#[derive(clap::Args)]
#[command(after_help = "\
Paths:
  .            the current workspace: print it
  -            the previous one
  ..           the parent; ..:.. its parent, ..:b a sibling
  ~, home      your home workspace, also without a path
  :            the top of the current tree
  :root:a      absolute, as root:a and /root/a
  a, a:b, a/b  below the current one

Exit codes:
  0  done
  2  there is no such workspace, access is denied, or the kubeconfig cannot be used; 1 as a plugin")]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Option<Command>,
    /// The workspace to enter [default: your home workspace].
    #[arg(value_name = "WORKSPACE")]
    path: Option<String>,
    /// Print the path only. Without a path or with one it enters a workspace as well: prompts of
    /// shells take `ws . --short`.
    #[arg(long, global = true)]
    short: bool,
    /// Choose from the tree; at a terminal only.
    #[arg(long, short)]
    interactive: bool,
}

#[derive(Subcommand)]
#[allow(clippy::large_enum_variant, reason = "a program parses one command")]
enum Command {
    /// Enter a workspace, also one that is called like a command.
    #[command(visible_alias = "cd")]
    Use {
        /// The workspace.
        #[arg(value_name = "WORKSPACE")]
        path: String,
    },
    /// Print the current workspace.
    Current,
    /// Print the tree below the current workspace.
    Tree(tree::Arguments),
    /// Create a workspace, and wait until it is ready.
    Create(create::Options),
    /// Stop all writes to a workspace.
    Freeze(manage::Freeze),
    /// Allow writes to a frozen workspace again.
    Thaw(manage::Thaw),
    /// Explain why a workspace is not ready, or what its deletion waits for.
    Explain(explain::Arguments),
    /// Take the deletion of a workspace back.
    Undelete(manage::Undelete),
    /// Show or set the limits of a workspace.
    Limits(manage::Limits),
    /// Show what a workspace stores and requests.
    Usage(manage::Usage),
    /// Create a context of the kubeconfig for the current workspace.
    CreateContext(context::Arguments),
}

pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    crate::ended(run(arguments))
}

/// Runs `insula create-workspace`.
pub(crate) fn create(arguments: &Create) -> ExitCode {
    crate::ended(create::run(&arguments.connection, &arguments.options).map(|()| ExitCode::SUCCESS))
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let connection = &arguments.connection;
    let short = arguments.short;
    if arguments.command.is_some() && arguments.path.is_some() {
        bail!("a workspace and a command: use one of them");
    }
    let done = match &arguments.command {
        Some(Command::Freeze(arguments)) => return manage::freeze(connection, arguments),
        Some(Command::Thaw(arguments)) => return manage::thaw(connection, arguments),
        Some(Command::Explain(arguments)) => return explain::run(connection, arguments),
        Some(Command::Undelete(arguments)) => return manage::undelete(connection, arguments),
        Some(Command::Limits(arguments)) => return manage::limits(connection, arguments),
        Some(Command::Usage(arguments)) => return manage::usage(connection, arguments),
        None if arguments.interactive && arguments.path.is_some() => {
            bail!("interactive mode does not accept arguments")
        }
        None if arguments.interactive => pick::run(connection, short),
        None => enter::run(connection, arguments.path.as_deref(), short),
        Some(Command::Use { path }) => enter::run(connection, Some(path), short),
        Some(Command::Current) => enter::run(connection, Some("."), short),
        Some(Command::Tree(tree)) if tree.interactive => pick::run(connection, short),
        Some(Command::Tree(tree)) => tree::run(connection, tree),
        Some(Command::Create(options)) => create::run(connection, options),
        Some(Command::CreateContext(context)) => context::run(connection, context),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Returns a client of the workspace at a path.
fn client_for(client: &Client, resolved: &Resolved, path: &str) -> Client {
    client.at_url(&resolved.url.for_workspace(path))
}

/// Asks for a workspace before it is written into a kubeconfig. Warns where the server cannot be
/// asked, and where the user may not enter: others may grant it later.
///
/// # Errors
/// The workspace is not there, or the server does not accept the credentials.
pub(crate) fn check(resolved: &Resolved) -> anyhow::Result<()> {
    let path = resolved.url.current()?;
    let asked = Client::new(resolved).and_then(|client| {
        let client = client.within(CHECK_TIMEOUT);
        crate::runtime()?.block_on(enter::presence(&client, resolved, path))
    });
    match asked {
        Ok(Presence::Open(_)) => {}
        Ok(Presence::Missing) => bail!("workspace {path:?} not found"),
        Ok(Presence::Unknown(why)) => bail!("{} does not accept the credentials: {why}", resolved.url.base()),
        Ok(Presence::Closed) => eprintln!("warning: the user may not enter workspace {path:?}, or it is not there"),
        Err(error) => eprintln!("warning: nobody knows if workspace {path:?} is there: {error:#}"),
    }
    Ok(())
}

/// Returns the type of a workspace as kcp prints it: `root:universal`.
fn type_of(workspace: &Value) -> String {
    let (path, name) = (text(workspace, "/spec/type/path"), text(workspace, "/spec/type/name"));
    match path {
        "" => name.to_owned(),
        path => format!("{path}:{name}"),
    }
}

/// Returns the line about the current workspace in the words of kcp's plugin; `None` for the short
/// one of a URL without a workspace.
fn current(workspace: Option<&str>, url: &str, kind: Option<&str>, short: bool) -> Option<String> {
    match (workspace, short) {
        (Some(path), true) => Some(path.to_owned()),
        (None, true) => None,
        (None, false) => Some(format!("Current workspace is the URL {url:?}.")),
        (Some(path), false) => {
            let kind = kind.map(|kind| format!(" (type {kind})")).unwrap_or_default();
            Some(format!("Current workspace is '{path}'{kind}."))
        }
    }
}

/// Returns the error of a refused request.
fn refused(answer: &Value) -> anyhow::Error {
    anyhow::anyhow!("{}", message(answer))
}
