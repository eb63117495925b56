//! `insula unbind`: the removal of an APIBinding, after a count of the objects that go with it.

use std::process::ExitCode;

use insula_proto::admin::v1::{UnbindApiRequest, UnbindApiResponse};

use crate::{ask, connection::Connection, print};

/// The method that counts and removes.
const UNBIND: &str = "/insula.admin.v1.ApiService/UnbindApi";

/// Removes an APIBinding, with all objects of its APIs in the workspace. Counts them first, and
/// asks if there are any.
#[derive(clap::Args)]
#[command(after_help = "\
Exit codes:
  0  removed; with --dry-run, counted
  1  the removal of objects is not confirmed
  2  there is no such binding, or it may not be removed")]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// The APIBinding.
    #[arg(value_name = "BINDING")]
    binding: String,
    /// Remove the objects without a question.
    #[arg(long, short)]
    yes: bool,
    /// Count the objects, and remove nothing.
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
}

pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    crate::ended(run(arguments))
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let client = arguments.connection.client()?;
    let runtime = crate::runtime()?;
    let request = |validate_only: bool| UnbindApiRequest {
        workspace: client.workspace().to_owned(),
        binding: arguments.binding.clone(),
        validate_only,
        ..UnbindApiRequest::default()
    };
    let found: UnbindApiResponse = runtime.block_on(client.call(UNBIND, &request(true)))?;
    let counts = found.removed.iter().filter(|it| it.objects > 0).map(|it| {
        let dot = if it.group.is_empty() { "" } else { "." };
        format!("{} {}{dot}{}", it.objects, it.resource, it.group)
    });
    let counts: Vec<String> = counts.collect();
    let name = &arguments.binding;
    if arguments.dry_run {
        let what = if counts.is_empty() {
            "no objects".to_owned()
        } else {
            counts.join(", ")
        };
        print::line(&format!("{what} would go with apibinding {name}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !counts.is_empty() && !arguments.yes {
        let counts = counts.join(", ");
        let is_confirmed = match ask::is_interactive() {
            true => ask::confirm(&format!("Delete {counts} with apibinding {name}?"))?,
            false => {
                eprintln!("error: this would delete {counts} with apibinding {name}: confirm it by --yes");
                false
            }
        };
        if !is_confirmed {
            return Ok(ExitCode::from(1));
        }
    }
    let removed: UnbindApiResponse = runtime.block_on(client.call(UNBIND, &request(false)))?;
    let objects: i64 = removed.removed.iter().map(|it| it.objects).sum();
    print::line(&format!("apibinding {name} removed, with {objects} objects"))?;
    Ok(ExitCode::SUCCESS)
}
