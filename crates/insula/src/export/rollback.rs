//! `insula export rollback`.

use std::{process::ExitCode, time::Duration};

use insula_admission::publication::{Acceptance, is_open, means_version};
use insula_proto::admin::v1::{RollbackReleaseRequest, RollbackReleaseResponse, VersionRemoval};

use super::{
    check::{consent, line, rest},
    control::Named,
    publish::Waited,
    target::Target,
};
use crate::{
    admin::object,
    client::is_failed_precondition,
    print::{Printer, Table},
};

/// Offers the schemas and rules of the release before the present one again, to all consumers at
/// once. What it does to stored objects is computed like that of any release. `insula export show`
/// lists the releases that an export can go back to.
#[derive(clap::Args)]
#[command(after_help = "\
Exit codes:
  0  rolled back, or --check found nothing that needs a word
  1  an effect on stored objects is not accepted, a removal is not confirmed, or there is no such
     release; with --wait, the rollout has stopped
  2  the server refuses it or cannot be read, or a flag is wrong

-o name prints the objects that are written; with --check, the effects, as --accept takes them.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    named: Named,
    /// The release to go back to [default: the last one before the present].
    #[arg(long, value_name = "RELEASE")]
    to: Option<String>,
    /// Show the objects that would be written and the effects, without a change to the server, as
    /// --dry-run does.
    #[arg(long)]
    check: bool,
    /// Accept an effect that --check names, or all of a kind, such as field-removed; with =N up to
    /// N objects.
    #[arg(long, value_name = "EFFECT[=N]", value_parser = Acceptance::parse)]
    accept: Vec<Acceptance>,
    /// Remove this version, such as widgets.example.io/v2, which the present release added.
    #[arg(long, value_name = "RESOURCE/VERSION")]
    remove: Vec<String>,
    /// Wait until every consumer is served.
    #[arg(long, conflicts_with_all = ["check", "dry_run"])]
    wait: bool,
    /// The limit of --wait, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
}

impl Arguments {
    /// Returns true if nothing is to be changed.
    fn is_check(&self) -> bool {
        self.check || self.named.write.dry_run
    }
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let named = &arguments.named;
    let target = Target::server(&named.call.connection)?;
    let request = RollbackReleaseRequest {
        workspace: target.workspace()?,
        export: named.name.clone(),
        release: arguments.to.clone().unwrap_or_default(),
        confirm_removals: arguments.remove.clone(),
        accepted_effects: arguments.accept.iter().map(Acceptance::text).collect(),
        etag: named.etag.etag.clone(),
        request_id: named.write.request_id.clone(),
        validate_only: arguments.is_check(),
    };
    let answered = target.call("/insula.admin.v1.ApiService/RollbackRelease", &request);
    let answer: RollbackReleaseResponse = match answered {
        Ok(answer) => answer,
        Err(error) if is_failed_precondition(&error) => {
            eprintln!("error: APIExport {}: {error:#}", named.name);
            return Ok(ExitCode::from(1));
        }
        Err(error) => return Err(error.context(format!("APIExport {}", named.name))),
    };
    show(&answer, arguments)?;
    if arguments.is_check() {
        return Ok(ExitCode::from(u8::from(is_refused(&answer, arguments))));
    }
    if arguments.wait {
        let limit = Duration::from_secs(arguments.timeout);
        return Ok(Waited::on(&target, &named.name, limit).exit_code());
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns true if an effect, or a removal, needs somebody's word that is not among the flags, and
/// prints how to give it.
fn is_refused(answer: &RollbackReleaseResponse, arguments: &Arguments) -> bool {
    let mut effects = answer.effects.iter();
    let hurts = effects.any(|effect| {
        let objects = effect.objects.cast_unsigned();
        is_open(&effect.id, consent(effect), objects, &arguments.accept)
    });
    if hurts {
        eprintln!("error: this hurts stored objects: accept each effect by --accept EFFECT[=N]");
    }
    let is_confirmed = |removal: &&VersionRemoval| {
        arguments
            .remove
            .iter()
            .any(|flag| means_version(flag, &removal.version))
    };
    let mut removes = false;
    for VersionRemoval { version, message, .. } in answer.removals.iter().filter(|it| !is_confirmed(it)) {
        eprintln!("error: this would remove {version} ({message}): confirm it by --remove {version}");
        removes = true;
    }
    hurts || removes
}

fn show(answer: &RollbackReleaseResponse, arguments: &Arguments) -> anyhow::Result<()> {
    answer.notes.iter().for_each(|note| eprintln!("note: {note}"));
    let mut printer = Printer::stdout();
    let steps: Vec<serde_json::Value> = answer
        .steps
        .iter()
        .map(|step| serde_json::json!({"kind": step.kind, "name": step.name, "action": step.action}))
        .collect();
    let effects: Vec<serde_json::Value> = answer
        .effects
        .iter()
        .map(|effect| serde_json::json!({"id": effect.id, "objects": effect.objects, "becomes": effect.becomes}))
        .collect();
    let export = answer.export.as_ref().map(object);
    let document = serde_json::json!({"release": answer.release, "steps": steps, "effects": effects, "export": export});
    // A check is about effects, which --accept takes by their names, else about the objects.
    let names: Vec<&str> = match arguments.is_check() {
        true => answer.effects.iter().map(|effect| &*effect.id).collect(),
        false => answer.steps.iter().map(|step| &*step.name).collect(),
    };
    if !printer.named(arguments.named.call.output.format, &document, names)? {
        let mut table = Table::new(&["KIND", "NAME", "ACTION"]);
        for step in &answer.steps {
            table.row(vec![
                step.kind.as_str().into(),
                step.name.as_str().into(),
                step.action.as_str().into(),
            ]);
        }
        printer.table(&table)?;
        for effect in answer.effects.iter().filter(|effect| effect.objects > 0) {
            printer.text(&line(effect, &arguments.accept))?;
        }
        let others = answer.effects.iter().filter(|effect| effect.objects == 0);
        if let Some(others) = rest(others.map(|effect| effect.id.split(':').next().unwrap_or_default())) {
            printer.text(&others)?;
        }
    }
    printer.flush()?;
    Ok(())
}
