//! `insula unbind`: the removal of an APIBinding, after a count of the objects that go with it, and
//! the way back within its grace period.

use std::process::ExitCode;

use insula_proto::admin::v1::{UnbindApiRequest, UnbindApiResponse, UndeleteBindingRequest, UndeleteBindingResponse};

use serde_json::Value;

use crate::{
    admin::{Etag, Write, object, time},
    ask,
    client::Client,
    connection::Connection,
    print::Output,
};

/// The method that counts and removes.
const UNBIND: &str = "/insula.admin.v1.ApiService/UnbindApi";
/// The method that takes a deletion back.
const UNDELETE: &str = "/insula.admin.v1.ApiService/UndeleteBinding";

/// Removes an APIBinding, with all objects of its APIs in the workspace. Counts them first, and
/// asks if there are any. If the export or the workspace gives deleted bindings a grace period,
/// the objects stay until its end, and --undelete takes the deletion back.
#[derive(clap::Args)]
#[command(after_help = "\
Exit codes:
  0  removed, or taken back; with --dry-run, counted
  1  the removal of objects is not confirmed
  2  there is no such binding, or it may not be removed or taken back")]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// The APIBinding.
    #[arg(value_name = "BINDING")]
    binding: String,
    /// Remove the objects without a question.
    #[arg(long, short, conflicts_with = "dry_run")]
    yes: bool,
    #[command(flatten)]
    etag: Etag,
    #[command(flatten)]
    write: Write,
    /// Remove the objects without a grace period, or end the one that runs.
    #[arg(long)]
    now: bool,
    /// Take the deletion back, within its grace period: the binding and its objects are as before.
    #[arg(long, conflicts_with_all = ["yes", "now"])]
    undelete: bool,
    #[command(flatten)]
    output: Output,
}

pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    crate::ended(run(arguments))
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let client = arguments.connection.client()?;
    let runtime = crate::runtime()?;
    if arguments.undelete {
        return undelete(&client, &runtime, arguments);
    }
    let request = |validate_only: bool| UnbindApiRequest {
        workspace: client.workspace().to_owned(),
        binding: arguments.binding.clone(),
        immediately: arguments.now,
        etag: arguments.etag.etag.clone(),
        // The count is a call of its own.
        request_id: match validate_only {
            true => String::new(),
            false => arguments.write.request_id.clone(),
        },
        validate_only,
    };
    let (name, output) = (&arguments.binding, arguments.output);
    // With --yes nobody reads the count, and a repetition finds no binding to count.
    if !arguments.yes {
        let found: UnbindApiResponse = runtime.block_on(client.call(UNBIND, &request(true)))?;
        let counts = counts(&found);
        let end = found.delete_time.map(|end| format!(" at {}", time(Some(end))));
        let end = end.unwrap_or_default();
        if arguments.write.dry_run {
            let what = if counts.is_empty() { "no objects" } else { &counts };
            output.note(&format!("{what} would go with apibinding {name}{end}"))?;
            output.stored(&named(name, object(&found)))?;
            return Ok(ExitCode::SUCCESS);
        }
        if !counts.is_empty() && !is_confirmed(&format!("{counts} with apibinding {name}{end}"))? {
            return Ok(ExitCode::from(1));
        }
    }
    let removed: UnbindApiResponse = runtime.block_on(client.call(UNBIND, &request(false)))?;
    let objects: i64 = removed.removed.iter().map(|it| it.objects).sum();
    output.note(&match removed.delete_time {
        Some(end) => format!(
            "apibinding {name} is deleted, and its {objects} objects are kept until {}\nTake that back by `insula \
             unbind {name} --undelete`, or end the wait by `insula unbind {name} --now`.",
            time(Some(end))
        ),
        None => format!("apibinding {name} removed, with {objects} objects"),
    })?;
    output.stored(&named(name, object(&removed)))?;
    Ok(ExitCode::SUCCESS)
}

/// Asks for a deletion: at a terminal by a question, else by an error that names the flag.
fn is_confirmed(what: &str) -> anyhow::Result<bool> {
    if ask::is_interactive() {
        return Ok(ask::confirm(&format!("Delete {what}?"))?);
    }
    eprintln!("error: this would delete {what}: confirm it by --yes");
    Ok(false)
}

/// Returns the answer about a binding, with its name.
fn named(name: &str, mut answer: Value) -> Value {
    answer["name"] = name.into();
    answer
}

/// Returns the objects that go with a binding, as `2 widgets.example.io, 1 gears.example.io`.
fn counts(found: &UnbindApiResponse) -> String {
    let counts = found.removed.iter().filter(|it| it.objects > 0).map(|it| {
        let dot = if it.group.is_empty() { "" } else { "." };
        format!("{} {}{dot}{}", it.objects, it.resource, it.group)
    });
    counts.collect::<Vec<_>>().join(", ")
}

fn undelete(client: &Client, runtime: &tokio::runtime::Runtime, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let request = UndeleteBindingRequest {
        workspace: client.workspace().to_owned(),
        binding: arguments.binding.clone(),
        etag: arguments.etag.etag.clone(),
        request_id: arguments.write.request_id.clone(),
        validate_only: arguments.write.dry_run,
    };
    let answer: UndeleteBindingResponse = runtime.block_on(client.call(UNDELETE, &request))?;
    let name = &arguments.binding;
    let output = arguments.output;
    output.note(&match arguments.write.dry_run {
        true => format!(
            "apibinding {name} would be back; its grace period ends {}",
            time(answer.delete_time)
        ),
        false => format!("apibinding {name} is back"),
    })?;
    output.stored(&named(name, object(&answer)))?;
    Ok(ExitCode::SUCCESS)
}
