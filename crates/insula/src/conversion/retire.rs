//! `insula conversion retire`: the end of what objects of a definition hold in fields that it has
//! no more.

use std::process::ExitCode;

use insula_proto::admin::v1::RetireFieldRequest;

use crate::{
    admin::{Admin, InWorkspace},
    retired_field::Removal,
};

/// Removes what objects hold in a field that their CustomResourceDefinition has no more, in the
/// workspace of the definition. It counts the objects, and asks.
#[derive(clap::Args)]
#[command(after_help = "\
With an APIConversion, what objects hold in a field that a definition no longer has is kept, and shown \
again if the field returns. `insula export retire` does the same for what an APIExport offers, in all \
workspaces that bind it.

Exit codes:
  0  removed, or nothing held; with --dry-run, counted
  1  the removal is not confirmed, or some objects hold the values still
  2  it was refused")]
pub(crate) struct Arguments {
    /// The definition, such as widgets.example.io: what versions hold that lack the field now. With
    /// a version behind it, widgets.example.io/v1: what that version holds, which may be gone.
    #[arg(value_name = "DEFINITION[/VERSION]")]
    definition: String,
    /// A field that the definition has no more, such as .spec.backup or .spec.users[].mail.
    #[arg(long, value_name = "PATH")]
    field: String,
    /// Count the objects, and change none.
    #[arg(long)]
    dry_run: bool,
    /// Remove without a question.
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    call: InWorkspace,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let admin = Admin::in_workspace(&arguments.call.connection)?;
    let request = RetireFieldRequest {
        workspace: admin.workspace(),
        definition: arguments.definition.clone(),
        field: arguments.field.clone(),
        ..RetireFieldRequest::default()
    };
    let removal = Removal {
        api: &arguments.definition,
        name: &arguments.definition,
        is_dry_run: arguments.dry_run,
        is_confirmed: arguments.yes,
        output: arguments.call.output,
    };
    removal.run(&admin, request)
}
