//! `insula export publish`.

use std::{fmt, io::Write, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, bail};
use insula_admission::publication::{self, Acceptance, Published, Step, offered};
use insula_catalog::exports::bind_grant;
use serde_json::Value;

use super::{
    check::{Listed, Trial},
    removal,
    target::{Applied, Target},
    wait,
};
use crate::{
    access::{Subject, bind_right},
    admin::Etag,
    apis::{self, Source},
    connection::Connection,
    files::{FolderOptions, text},
    print::{Cell, Format, Printer, Stdout, Table, Tone, yaml},
};

/// Names a schema `h<eight hexadecimal digits of its content>.<plural>.<group>`, so that the same
/// content has the same name and a change creates a new schema. Rules of a definition's name are
/// published with it; a definition with a conversion webhook and without rules gets a draft of
/// rules, which --apply and --check refuse without --accept-draft. Other resources of the export
/// stay unchanged.
#[derive(clap::Args)]
#[command(after_help = "\
Without --diff and --apply the objects are printed, ready for kubectl apply.

Exit codes:
  0  printed, applied, rolled out, no difference, or all stored objects can be read
  1  an object is refused, versions without rules are incompatible, a draft of rules is not
     accepted, or a removal is not confirmed; with --diff, there is a difference; with --check and
     --apply, an effect on stored objects is not accepted; with --wait, the rollout has stopped
  2  a file or the server cannot be read, or a flag is wrong

-o name prints the objects; with --check, the effects, as --accept takes them.")]
pub(crate) struct Arguments {
    /// CustomResourceDefinitions, and APIConversions of their names. A folder gives its files, - is
    /// standard input.
    #[arg(long = "filename", short = 'f', value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    folders: FolderOptions,
    /// The export's name [default: the group of the definitions].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Show the changes without making them.
    #[arg(long)]
    diff: bool,
    /// Files with the published objects, to compare with by --diff, in place of a server.
    #[arg(long, value_name = "FILE")]
    against: Vec<PathBuf>,
    #[command(flatten)]
    connection: Connection,
    /// Compute what the release does to the stored objects of all consumers, without a change to
    /// the server.
    #[arg(long, conflicts_with_all = ["diff", "against"])]
    check: bool,
    /// Write to the server: schemas and rules first, then the export. Nothing is written if the
    /// release has an effect on stored objects that hurts and is not accepted.
    #[arg(long, conflicts_with_all = ["diff", "against"])]
    apply: bool,
    /// Publish also versions without rules between which fields break.
    #[arg(long)]
    accept_incompatible: bool,
    /// Let the members of this group bind the export in their workspaces: the ClusterRole and
    /// ClusterRoleBinding of `insula access grant --bind` are published with it. May be repeated.
    #[arg(long, value_name = "GROUP", conflicts_with = "check")]
    bindable_by: Vec<String>,
    /// Let this user bind the export; a service account is system:serviceaccount:NAMESPACE:NAME.
    /// May be repeated.
    #[arg(long, value_name = "USER", conflicts_with = "check")]
    bindable_by_user: Vec<String>,
    /// Put drafts of rules into service, which are guessed for definitions with a conversion
    /// webhook and without rules.
    #[arg(long, conflicts_with_all = ["diff", "against"])]
    accept_draft: bool,
    /// Accept an effect that --check names, such as field-removed:widgets.example.io/v2:.spec.size,
    /// or all of a kind, such as field-removed; with =N up to N objects, so that objects that come
    /// later are not covered.
    #[arg(long, value_name = "EFFECT[=N]", value_parser = Acceptance::parse)]
    accept: Vec<Acceptance>,
    /// Remove this version, such as widgets.example.io/v1, although consumers may use it. Without
    /// it, --apply asks at a terminal, and fails elsewhere, as --check does.
    #[arg(long, value_name = "RESOURCE/VERSION", conflicts_with_all = ["diff", "against"])]
    remove: Vec<String>,
    /// Remove versions that no consumer used lately without a question.
    #[arg(long, short, conflicts_with_all = ["diff", "against"])]
    yes: bool,
    #[command(flatten)]
    etag: Etag,
    /// After --apply, wait until every consumer is served by the new schemas.
    #[arg(long, requires = "apply")]
    wait: bool,
    /// The limit of --wait, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
    /// Format of the output [default: yaml; with --diff and --apply, table].
    #[arg(long, short, value_name = "FORMAT", value_enum)]
    output: Option<Format>,
}

impl Arguments {
    /// Returns the consent to removals.
    fn consent(&self) -> removal::Consent<'_> {
        removal::Consent {
            named: &self.remove,
            unused: self.yes,
        }
    }

    /// Returns the existing objects to compare with: those of the server where a flag needs it.
    fn target(&self) -> anyhow::Result<Target> {
        let needs_server = self.check || self.apply || self.connection.is_given();
        match needs_server && self.against.is_empty() {
            true => Target::server(&self.connection),
            false => Target::files(&self.against),
        }
    }

    /// Returns those who may bind the export.
    fn binders(&self) -> Vec<Subject> {
        let groups = self.bindable_by.iter().map(|name| Subject::group(name));
        groups
            .chain(self.bindable_by_user.iter().map(|name| Subject::user(name)))
            .collect()
    }
}

/// Way to accept versions between which fields break.
const ACCEPT: &str = "write rules (insula conversion suggest drafts them), or accept it by --accept-incompatible";

/// Ways to review and to accept a draft of rules.
const REVIEW: &str = "review it (without --apply the command prints it, with --check it tries it on the stored \
                      objects) and give the rules by --filename, or accept it by --accept-draft";

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let sources = apis::load_with(&arguments.files, arguments.folders)?.sources;
    let mut published: Vec<Published> = sources.iter().map(publish).collect::<anyhow::Result<_>>()?;
    let name = export_name(arguments, &published)?;
    let target = arguments.target()?;
    let existing = target.get("apis.kcp.io/v1alpha2", "APIExport", &name)?;
    arguments.etag.check(&format!("APIExport {name}"), existing.as_ref())?;
    let find = |kind: &str, name: &str| target.find(kind, name);
    for api in &mut published {
        publication::keep_rules(&find, existing.as_ref(), api)?;
    }
    publication::review(&find, &mut published, arguments.accept_incompatible, ACCEPT)?;
    let tries = arguments.check || arguments.apply;
    if tries && !arguments.accept_draft {
        publication::refuse_drafts(&mut published, REVIEW);
    }
    let mut export = publication::export(&name, existing.as_ref(), &published);
    for api in &published {
        let print_remark = |kind: &str, text: &dyn fmt::Display| eprintln!("{kind}: {}: {text}", api.name());
        api.remarks.iter().for_each(|remark| print_remark("note", remark));
        api.errors.iter().for_each(|error| print_remark("error", error));
    }
    let refused = published.iter().any(|api| !api.errors.is_empty());
    if tries {
        let mut hurts = check(&target, existing.as_ref(), &published, arguments)?;
        if !arguments.apply {
            let removals = publication::removals(&find, existing.as_ref(), &published)?;
            hurts |= !removal::is_confirmed(&removals, &arguments.consent())?;
        }
        if hurts || refused || !arguments.apply {
            return Ok(ExitCode::from(u8::from(hurts || refused)));
        }
    }
    let rights = bind_right::objects(&name, &arguments.binders());
    if !arguments.diff && !arguments.apply {
        print(arguments.output.unwrap_or(Format::Yaml), &published, &export, &rights)?;
        return Ok(ExitCode::from(u8::from(refused)));
    }
    if arguments.apply {
        let removals = publication::removals(&find, existing.as_ref(), &published)?;
        if !removal::confirm(&removals, &arguments.consent(), &mut export)? {
            return Ok(ExitCode::from(1));
        }
    }
    let steps = if arguments.apply {
        let objects = objects(&published, &export, &rights);
        apply(
            &target,
            &publication::with_words(objects, &accepted(&published, arguments)),
            existing.as_ref().filter(|_| !arguments.etag.etag.is_empty()),
        )?
    } else {
        let mut steps = publication::steps(&find, &published, existing.as_ref(), &export)?;
        steps.extend(right_steps(&target, &rights)?);
        steps
    };
    show(&steps, arguments.output.unwrap_or(Format::Table))?;
    if arguments.wait {
        let waited = Waited::on(&target, &name, Duration::from_secs(arguments.timeout));
        if waited == Waited::Stopped {
            return Ok(waited.exit_code());
        }
    }
    let differs = arguments.diff && steps.iter().any(|step| step.action != "unchanged");
    Ok(ExitCode::from(u8::from(refused || differs)))
}

/// Outcome of --wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waited {
    /// Every consumer is served by the release.
    Complete,
    /// The rollout has stopped, or takes too long.
    Stopped,
}

impl Waited {
    /// Waits for the release that an export offers, and prints the outcome.
    pub(super) fn on(target: &Target, name: &str, limit: Duration) -> Waited {
        match wait::until_rolled_out(target, name, limit) {
            Ok(consumers) => {
                eprintln!("note: {consumers} consumers are served by the release");
                Waited::Complete
            }
            Err(error) => {
                eprintln!("error: APIExport {name}: {error:#}");
                Waited::Stopped
            }
        }
    }

    /// Returns the exit code.
    pub(super) fn exit_code(self) -> ExitCode {
        match self {
            Waited::Complete => ExitCode::SUCCESS,
            Waited::Stopped => ExitCode::from(1),
        }
    }
}

/// Plans one API.
fn publish(source: &Source) -> anyhow::Result<Published> {
    if source.schema.text("/spec/names/plural").is_empty() {
        bail!("{}: {:?} names no plural", source.schema.file, source.name());
    }
    Ok(publication::publish(source.manifest()))
}

/// Tries the new schemas on the stored objects, and prints the outcome; without --check, only what
/// is refused. Returns true if an effect hurts that is not accepted. An API that waits for
/// somebody's word is tried like others; one that no server takes cannot be. Standard output gets
/// one document: where --apply goes on, that of its steps.
fn check(
    target: &Target,
    existing: Option<&Value>,
    published: &[Published],
    arguments: &Arguments,
) -> anyhow::Result<bool> {
    let Some(export) = existing else { return Ok(false) };
    let known = published
        .iter()
        .filter(|api| offered(export, api).is_some() && api.compile().is_ok());
    let trial = |api: &Published| Trial::run(target, export, api, &accepted(published, arguments));
    let trials: Vec<Trial> = known.map(trial).collect::<anyhow::Result<_>>()?;
    let fails = trials.iter().any(Trial::fails);
    if !arguments.check && !fails {
        return Ok(false);
    }
    let listed = match arguments.output {
        Some(Format::Wide) => Listed::All,
        _ => Listed::Reaching,
    };
    let mut lines = trials.iter().flat_map(|trial| trial.lines(listed));
    let is_document = matches!(arguments.output, Some(Format::Json | Format::Yaml | Format::Name));
    if is_document && arguments.apply && !fails {
        // The document of this run is that of the objects that are written.
        lines.for_each(|line| eprintln!("{line}"));
        return Ok(false);
    }
    let mut printer = Printer::stdout();
    let effects = trials.iter().flat_map(Trial::effects);
    if !printer.named(arguments.output.unwrap_or(Format::Table), &trials, effects)? {
        lines.try_for_each(|line| printer.text(&line))?;
    }
    printer.flush().context("cannot write the answer")?;
    if fails {
        eprintln!("error: this release hurts stored objects: change it, or accept each effect by --accept EFFECT[=N]");
    }
    Ok(fails)
}

/// Returns the words for effects: those of the flags, and of the annotations in the files.
fn accepted(published: &[Published], arguments: &Arguments) -> Vec<Acceptance> {
    let files = published.iter().flat_map(|api| &api.accepted);
    arguments.accept.iter().chain(files).cloned().collect()
}

fn export_name(arguments: &Arguments, published: &[Published]) -> anyhow::Result<String> {
    if let Some(name) = &arguments.name {
        return Ok(name.clone());
    }
    let mut groups: Vec<&str> = published.iter().map(|api| api.group.as_str()).collect();
    groups.dedup();
    match groups.as_slice() {
        [one] if !one.is_empty() => Ok((*one).to_owned()),
        _ => bail!("several groups ({}): name the export with --name", groups.join(", ")),
    }
}

/// Returns an export without what the server writes, which would be refused, or out of date, when
/// the document is applied.
fn declared(export: &Value) -> Value {
    let mut export = export.clone();
    if let Some(fields) = export.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = export["metadata"].as_object_mut() {
        metadata.retain(|field, _| matches!(field.as_str(), "name" | "labels" | "annotations"));
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|name, _| !name.starts_with("kcp.io/"));
        }
        metadata.retain(|_, value| value.as_object().is_none_or(|map| !map.is_empty()));
    }
    export
}

/// Returns the objects in the order of writing: those who may bind come last, when there is
/// something to bind.
fn objects(published: &[Published], export: &Value, rights: &[Value]) -> Vec<Value> {
    let objects = published.iter().flat_map(Published::objects);
    objects.chain([export.clone()]).chain(rights.iter().cloned()).collect()
}

/// Returns what --apply would do for the rights to bind.
fn right_steps(target: &Target, rights: &[Value]) -> anyhow::Result<Vec<Step>> {
    let step = |object: &Value| {
        let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
        let there = target.get(text(object, "/apiVersion"), kind, name)?;
        let action = match there {
            Some(there) if bind_grant::grants_the_same(&there, object) => "unchanged",
            Some(_) => "update",
            None => "create",
        };
        Ok(Step {
            kind: kind.to_owned(),
            name: name.to_owned(),
            action,
            detail: Vec::new(),
        })
    };
    rights.iter().map(step).collect()
}

fn print(format: Format, published: &[Published], export: &Value, rights: &[Value]) -> anyhow::Result<()> {
    let objects = objects(published, &declared(export), rights);
    let mut out = Stdout::new();
    match format {
        Format::Json => {
            let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects});
            writeln!(out, "{}", serde_json::to_string_pretty(&list)?)?;
        }
        Format::Yaml => {
            for object in &objects {
                write!(out, "---\n{}", yaml(object)?)?;
            }
        }
        Format::Table | Format::Wide | Format::Name => {
            let step = |object: &Value| Step {
                kind: text(object, "/kind").to_owned(),
                name: text(object, "/metadata/name").to_owned(),
                action: "made",
                detail: Vec::new(),
            };
            show(&objects.iter().map(step).collect::<Vec<_>>(), format)?;
        }
    }
    Ok(())
}

/// Writes objects. `seen` is the export in the state that the caller expects; `None` for any.
fn apply(target: &Target, objects: &[Value], seen: Option<&Value>) -> anyhow::Result<Vec<Step>> {
    let mut steps = Vec::new();
    for object in objects {
        let seen = seen.filter(|_| text(object, "/kind") == "APIExport");
        let action = match target.apply(object, seen)? {
            Applied::Created => "created",
            Applied::Updated => "updated",
            Applied::Unchanged => "unchanged",
        };
        steps.push(Step {
            kind: text(object, "/kind").to_owned(),
            name: text(object, "/metadata/name").to_owned(),
            action,
            detail: Vec::new(),
        });
    }
    Ok(steps)
}

fn show(steps: &[Step], format: Format) -> anyhow::Result<()> {
    let mut printer = Printer::stdout();
    if !printer.document(format, &steps)? {
        let mut table = Table::new(&["KIND", "NAME", "ACTION", "DETAIL"]);
        for step in steps {
            let tone = match step.action {
                "unchanged" => Tone::Dim,
                "create" | "created" | "made" => Tone::Good,
                _ => Tone::Warn,
            };
            let mut detail = step.detail.iter();
            let first = detail.next().map(String::as_str).unwrap_or_default();
            table.row(vec![
                step.kind.as_str().into(),
                step.name.as_str().into(),
                Cell::new(tone, step.action),
                first.into(),
            ]);
            for more in detail {
                table.row(vec!["".into(), "".into(), "".into(), more.as_str().into()]);
            }
        }
        printer.table(&table)?;
    }
    printer.flush().context("cannot write the answer")
}
