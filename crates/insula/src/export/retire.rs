//! `insula export retire`: the end of a version, and of what objects hold in fields that their API
//! has no more.

use std::process::ExitCode;

use clap::ValueEnum;
use insula_proto::admin::v1::{RetireFieldRequest, RetireVersionRequest, RetireVersionResponse, RetirementStep};

use super::control::Named;
use crate::{
    admin::{Admin, Answer, Service, object},
    print::Table,
    retired_field::Removal,
};

/// Retires a version of an offered API, a step at a time: with a new schema and the present rules.
/// With --field, retires what objects hold in a field that the API has no more, in all workspaces.
#[derive(clap::Args)]
#[command(after_help = "\
Deprecate a version first: its users get warnings. `insula export usage -o wide` names the \
workspaces that use it still.

What objects hold in a field that a release takes away is kept, and shown again if the field \
returns. --field counts the objects, asks, and removes it from them for good.

Exit codes:
  0  retired; with --dry-run, checked or counted
  1  the removal of values is not confirmed, or some objects hold them still
  2  it was refused")]
pub(crate) struct Retire {
    #[command(flatten)]
    named: Named,
    /// The version, such as widgets.example.io/v1; with --field also the API, widgets.example.io.
    #[arg(id = "retired", value_name = "RESOURCE/VERSION")]
    version: String,
    /// The step.
    #[arg(long, value_enum, value_name = "STEP", required_unless_present = "field")]
    step: Option<Step>,
    /// The warning for users of a deprecated version [default: one that names the newer version].
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    warning: String,
    /// Go on although workspaces used the version lately.
    #[arg(long)]
    confirm: bool,
    /// A field that the API has no more, such as .spec.backup or .spec.users[].mail.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["step", "warning", "confirm", "etag", "request_id"])]
    field: Option<String>,
    /// Remove what objects hold in the field without a question.
    #[arg(long, short, requires = "field")]
    yes: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Step {
    /// Users of the version get a warning.
    Deprecate,
    /// Clients can no longer use it. Its schema and rules stay.
    StopServing,
    /// It goes, with its rules.
    Remove,
}

pub(super) fn run(arguments: &Retire) -> anyhow::Result<ExitCode> {
    match (&arguments.field, arguments.step) {
        (Some(path), _) => field(arguments, path),
        (None, Some(step)) => version(arguments, step),
        (None, None) => anyhow::bail!("give --step or --field"),
    }
}

fn version(arguments: &Retire, step: Step) -> anyhow::Result<ExitCode> {
    let named = &arguments.named;
    let admin = Admin::in_workspace(&named.call.connection)?;
    let step = match step {
        Step::Deprecate => RetirementStep::Deprecate,
        Step::StopServing => RetirementStep::StopServing,
        Step::Remove => RetirementStep::Remove,
    };
    let request = RetireVersionRequest {
        workspace: admin.workspace(),
        export: named.name.clone(),
        version: arguments.version.clone(),
        step: step.into(),
        warning: arguments.warning.clone(),
        confirm: arguments.confirm,
        etag: named.etag.etag.clone(),
        request_id: named.write.request_id.clone(),
        validate_only: named.write.dry_run,
    };
    let answer: RetireVersionResponse = admin.call((Service::Api, "RetireVersion"), &request)?;
    for removal in &answer.removals {
        eprintln!("note: {}: {}", removal.version, removal.message);
    }
    let mut table = Table::new(&["KIND", "NAME", "ACTION"]);
    for step in &answer.steps {
        table.row(vec![
            step.kind.as_str().into(),
            step.name.as_str().into(),
            step.action.as_str().into(),
        ]);
    }
    let mut document = object(&answer);
    document["name"] = named.name.as_str().into();
    Answer::new(document).table(table).print(named.call.output, usize::MAX)
}

/// Removes what objects hold in a field, in all workspaces.
fn field(arguments: &Retire, path: &str) -> anyhow::Result<ExitCode> {
    let named = &arguments.named;
    let admin = Admin::in_workspace(&named.call.connection)?;
    let request = RetireFieldRequest {
        workspace: admin.workspace(),
        export: named.name.clone(),
        resource: arguments.version.clone(),
        field: path.to_owned(),
        ..RetireFieldRequest::default()
    };
    let removal = Removal {
        api: &arguments.version,
        name: &named.name,
        is_dry_run: named.write.dry_run,
        is_confirmed: arguments.yes,
        output: named.call.output,
    };
    removal.run(&admin, request)
}
