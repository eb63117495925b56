//! `insula workspace explain`: the reasons for which a workspace is not ready.

use std::process::ExitCode;

use insula_proto::admin::v1::{ExplainWorkspaceRequest, ExplainWorkspaceResponse};

use crate::{
    admin::{Admin, Answer, Service, object},
    connection::Connection,
    print::{Output, Table},
};

/// Explains why a workspace is not ready, or what its deletion waits for, each obstacle with its
/// cause and its fix.
#[derive(clap::Args)]
#[command(after_help = "\
Exit codes:
  0  it is ready
  1  it is not ready
  2  the server cannot be read, or a flag is wrong")]
pub(super) struct Arguments {
    /// The workspace [default: the current one].
    #[arg(value_name = "WORKSPACE")]
    path: Option<String>,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(connection: &Connection, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let admin = Admin::in_workspace(connection)?;
    let workspace = admin.workspace_at(arguments.path.as_deref())?;
    let request = ExplainWorkspaceRequest {
        workspace: workspace.clone(),
    };
    let answer: ExplainWorkspaceResponse = admin.call((Service::Workspace, "ExplainWorkspace"), &request)?;
    let mut document = object(&answer);
    document["name"] = workspace.clone().into();
    let phase = answer.workspace.unwrap_or_default().phase;
    let left = answer.remaining.iter();
    let left = left.map(|objects| format!("{} {}", objects.count, objects.resource));
    let view = Answer::new(document).lines([
        ("workspace", workspace),
        ("phase", phase),
        ("ready", if answer.ready { "yes" } else { "no" }.to_owned()),
        ("initializers", answer.initializers.join(", ")),
        ("terminators", answer.terminators.join(", ")),
        ("finalizers", answer.finalizers.join(", ")),
        ("objects left", left.collect::<Vec<_>>().join(", ")),
    ]);
    let mut table = Table::new(&["SUBJECT", "CAUSE", "FIX"]);
    for finding in &answer.findings {
        table.row(vec![
            finding.subject.as_str().into(),
            finding.cause.as_str().into(),
            finding.fix.as_str().into(),
        ]);
    }
    let view = if answer.findings.is_empty() {
        view
    } else {
        view.table(table)
    };
    let view = match answer.partial {
        true => view.text("You may not read the workspace from within: causes in there are not shown."),
        false => view,
    };
    view.print(arguments.output, usize::MAX)?;
    Ok(ExitCode::from(u8::from(!answer.ready)))
}
