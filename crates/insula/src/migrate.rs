//! `insula migrate …`: ThirdPartyResources and their objects become objects of today's APIs.

mod export;
mod import;
mod report;
mod run;
mod source;

use std::{path::PathBuf, process::ExitCode};

use clap::{Subcommand, ValueEnum};

use crate::{connection::ServerFlags, print::Format};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Migrate ThirdPartyResources of one workspace or of many.
    Tpr(Arguments),
}

/// Clients cannot write the objects while they are migrated, and can read them. The migration takes
/// these steps: export (count and hash the objects), replace (orphan the objects, delete the
/// registration, create its replacement), serve, recreate, adopt (rename owners in dependents),
/// verify (count and hash again), thaw. Its state is in the workspace: the same command continues a
/// migration that was interrupted.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  insula migrate tpr --all --dry-run
  insula migrate tpr cron-tab.stable.example.com
  insula migrate tpr cron-tab.stable.example.com --to registration
  insula migrate tpr cron-tab.stable.example.com --to binding --export root:apis:crontabs
  insula migrate tpr --all --workspace root:org --recursive --keep backup
  insula migrate tpr --from registrations.yaml --from crontabs.yaml

Exit codes:
  0  everything that was asked for is migrated, or can be (--dry-run)
  1  objects do not fit, differ afterwards, or could not be imported
  2  a file or the server cannot be read, or a flag is wrong")]
pub(crate) struct Arguments {
    /// ThirdPartyResources, such as cron-tab.stable.example.com.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// All ThirdPartyResources of the workspaces.
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// The replacement of the registrations.
    #[arg(long, value_enum, default_value_t = To::Definition)]
    to: To,
    /// The CustomResourceDefinition that replaces a registration [default: one that accepts any
    /// object].
    #[arg(long, value_name = "FILE")]
    definition: Option<PathBuf>,
    /// The APIExport to bind: path of its workspace, and its name. One that does not exist is
    /// created with an APIResourceSchema that accepts any object.
    #[arg(long, value_name = "PATH:NAME", required_if_eq("to", "binding"))]
    export: Option<String>,
    /// The workspaces [default: the one of the context].
    #[arg(long = "workspace", value_name = "PATH")]
    workspaces: Vec<String>,
    /// The workspaces below these, too.
    #[arg(long)]
    recursive: bool,
    /// A folder that gets the objects as YAML before they are touched.
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Say what would be done, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Turn migrations that have not ended back to where they began.
    #[arg(long, conflicts_with_all = ["dry_run", "until"])]
    undo: bool,
    /// Stop before the step behind this one.
    #[arg(long, value_enum, value_name = "STEP")]
    until: Option<Step>,
    /// Files of `kubectl get … -o yaml` from another cluster, registrations and objects: they are
    /// created first. Owners get the new UIDs.
    #[arg(long = "from", value_name = "FILE", conflicts_with_all = ["names", "all", "undo", "recursive"])]
    from: Vec<PathBuf>,
    #[command(flatten)]
    server: ServerFlags,
    /// Format of the output.
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// The replacement of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum To {
    /// A CustomResourceDefinition.
    Definition,
    /// A ThirdPartyResource of apiextension.k8s.io/v1beta1.
    Registration,
    /// An APIBinding.
    Binding,
}

/// A step of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Step {
    /// The objects are frozen, counted and hashed.
    Export,
    /// The registration is replaced.
    Replace,
    /// The replacement serves.
    Serve,
    /// The objects are written under their new definition.
    Recreate,
    /// The owners are renamed.
    Adopt,
    /// The objects are counted and hashed again.
    Verify,
}

pub(crate) fn main(command: &Command) -> ExitCode {
    match command {
        Command::Tpr(arguments) => crate::ended(run::run(arguments)),
    }
}
