//! `insula operation …`: work that outlives the call that started it, such as backups.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Subcommand;
use insula_proto::admin::v1::{
    CancelOperationRequest, CancelOperationResponse, DeleteOperationRequest, DeleteOperationResponse,
    GetOperationRequest, GetOperationResponse, ListOperationsRequest, ListOperationsResponse, Operation,
    WaitOperationRequest, WaitOperationResponse,
};

use crate::{
    admin::{Admin, Answer, OnServer, PAGE_ITEMS, Service, Write, object, of_list, pages, time},
    duration,
    print::{Cell, Progress, Table, Tone},
};

/// Longest wait of one call. The server bounds it, too.
const CALL: Duration = Duration::from_secs(5);

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List operations, the newest first.
    List(List),
    /// Show an operation.
    Show(Named),
    /// Wait until an operation ends.
    Wait(Wait),
    /// Ask an operation to end.
    Cancel(Changed),
    /// Delete the record of an operation that has ended.
    Delete(Changed),
}

#[derive(clap::Args)]
pub(crate) struct List {
    /// Only operations of this workspace, by its path.
    #[arg(
        long,
        short = 'W',
        value_name = "PATH",
        default_value = "",
        hide_default_value = true
    )]
    workspace: String,
    /// Only operations that this method started, such as CreateBackup.
    #[arg(long, value_name = "METHOD", default_value = "", hide_default_value = true)]
    kind: String,
    /// Only operations that have ended, or that have not.
    #[arg(long, value_name = "true|false")]
    done: Option<bool>,
    #[command(flatten)]
    call: OnServer,
}

#[derive(clap::Args)]
pub(crate) struct Named {
    /// The operation.
    #[arg(value_name = "OPERATION")]
    name: String,
    #[command(flatten)]
    call: OnServer,
}

#[derive(clap::Args)]
#[command(after_help = "\
Exit codes:
  0  it has ended and succeeded
  1  it has failed, or has not ended within --timeout
  2  the server cannot be read, or a flag is wrong")]
pub(crate) struct Wait {
    #[command(flatten)]
    named: Named,
    /// Longest wait; 0 shows the operation as it is.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "1h")]
    timeout: Duration,
}

#[derive(clap::Args)]
pub(crate) struct Changed {
    #[command(flatten)]
    named: Named,
    #[command(flatten)]
    write: Write,
}

pub(crate) fn main(command: &Command) -> ExitCode {
    crate::ended(match command {
        Command::List(arguments) => list(arguments),
        Command::Show(arguments) => show(arguments),
        Command::Wait(arguments) => wait(arguments),
        Command::Cancel(arguments) => cancel(arguments),
        Command::Delete(arguments) => delete(arguments),
    })
}

fn list(arguments: &List) -> anyhow::Result<ExitCode> {
    let admin = Admin::on_server(&arguments.call.server)?;
    let operations = pages(|page_token| {
        let request = ListOperationsRequest {
            workspace: arguments.workspace.trim_start_matches(':').to_owned(),
            kind: arguments.kind.clone(),
            done: arguments.done,
            page_size: PAGE_ITEMS,
            page_token,
        };
        let page: ListOperationsResponse = admin.call((Service::Operation, "ListOperations"), &request)?;
        Ok((page.operations, page.next_page_token))
    })?;
    let mut table = Table::new(&["NAME", "KIND", "WORKSPACE", "STATE", "CREATED", "USER", "PROGRESS"]);
    for operation in &operations {
        table.row(vec![
            operation.name.as_str().into(),
            operation.kind.as_str().into(),
            operation.workspace.as_str().into(),
            state(operation),
            time(operation.create_time).into(),
            operation.user.as_str().into(),
            progress(operation).into(),
        ]);
    }
    Answer::new(of_list(&operations))
        .table(table)
        .print(arguments.call.output, 5)
}

fn show(arguments: &Named) -> anyhow::Result<ExitCode> {
    let admin = Admin::on_server(&arguments.call.server)?;
    let request = GetOperationRequest {
        name: arguments.name.clone(),
    };
    let answer: GetOperationResponse = admin.call((Service::Operation, "GetOperation"), &request)?;
    view(&answer.operation.unwrap_or_default()).print(arguments.call.output, usize::MAX)
}

fn wait(arguments: &Wait) -> anyhow::Result<ExitCode> {
    let named = &arguments.named;
    let admin = Admin::on_server(&named.call.server)?;
    let operation = ended(&admin, &named.name, arguments.timeout)?;
    view(&operation).print(named.call.output, usize::MAX)?;
    let is_good = operation.done && operation.error.is_none();
    Ok(ExitCode::from(u8::from(!is_good)))
}

fn cancel(arguments: &Changed) -> anyhow::Result<ExitCode> {
    let named = &arguments.named;
    let admin = Admin::on_server(&named.call.server)?;
    let request = CancelOperationRequest {
        name: named.name.clone(),
        validate_only: arguments.write.dry_run,
        request_id: arguments.write.request_id.clone(),
    };
    let answer: CancelOperationResponse = admin.call((Service::Operation, "CancelOperation"), &request)?;
    view(&answer.operation.unwrap_or_default()).print(named.call.output, usize::MAX)
}

fn delete(arguments: &Changed) -> anyhow::Result<ExitCode> {
    let named = &arguments.named;
    let admin = Admin::on_server(&named.call.server)?;
    let request = DeleteOperationRequest {
        name: named.name.clone(),
        validate_only: arguments.write.dry_run,
        request_id: arguments.write.request_id.clone(),
    };
    let _: DeleteOperationResponse = admin.call((Service::Operation, "DeleteOperation"), &request)?;
    let view = Answer::new(serde_json::json!({"name": named.name}));
    view.text(format!("{} is deleted", named.name))
        .print(named.call.output, usize::MAX)
}

/// Waits until an operation ends, or for a time, and shows its progress. Returns it as it is then.
pub(crate) fn ended(admin: &Admin, name: &str, limit: Duration) -> anyhow::Result<Operation> {
    let begun = Instant::now();
    let mut shown = Progress::stderr();
    loop {
        let left = limit.saturating_sub(begun.elapsed()).min(CALL);
        let request = WaitOperationRequest {
            name: name.to_owned(),
            timeout: Some(insula_proto::Duration {
                seconds: i64::try_from(left.as_secs())?,
                nanos: i32::try_from(left.subsec_nanos())?,
            }),
        };
        let method = (Service::Operation, "WaitOperation");
        let answer: WaitOperationResponse = admin.call_within(method, &request, left + CALL)?;
        let operation = answer.operation.unwrap_or_default();
        if operation.done || begun.elapsed() >= limit {
            return Ok(operation);
        }
        shown.show(&format!("{name}: {}", progress(&operation)));
    }
}

/// Returns the view of an operation.
pub(crate) fn view(operation: &Operation) -> Answer {
    let error = operation.error.clone().unwrap_or_default();
    let document = object(operation);
    let result = document["result"].as_object().into_iter().flatten();
    let result: Vec<String> = result.map(|(field, value)| format!("{field}: {value}")).collect();
    Answer::new(document).lines([
        ("name", operation.name.clone()),
        ("kind", operation.kind.clone()),
        ("workspace", operation.workspace.clone()),
        ("user", operation.user.clone()),
        ("created", time(operation.create_time)),
        ("state", word(operation).1.to_owned()),
        ("progress", progress(operation)),
        ("error", error.message),
        ("result", result.join(", ")),
    ])
}

fn word(operation: &Operation) -> (Tone, &'static str) {
    match (operation.done, &operation.error) {
        (false, _) if operation.cancel_requested => (Tone::Warn, "cancelling"),
        (false, _) => (Tone::Plain, "running"),
        (true, Some(error)) if error.reason == "Cancelled" => (Tone::Warn, "cancelled"),
        (true, Some(_)) => (Tone::Bad, "failed"),
        (true, None) => (Tone::Good, "done"),
    }
}

fn state(operation: &Operation) -> Cell {
    let (tone, word) = word(operation);
    Cell::new(tone, word)
}

fn progress(operation: &Operation) -> String {
    let progress = operation.progress.clone().unwrap_or_default();
    match progress.total {
        0 => progress.text,
        total => format!("{} of {total} {}", progress.done, progress.text),
    }
}
