//! `insula schema diff`.

use std::{path::PathBuf, process::ExitCode};

use anyhow::bail;
use clap::ValueEnum;
use insula_catalog::{Api, ApiVersion, ScopeKind};
use serde::Serialize;

use crate::{
    apis,
    print::{Cell, Format, Printer, Table, Tone},
};

/// Pairs APIs by plural and group, and their versions by name. A change is breaking if a valid
/// object may be refused, lose a value or change its meaning.
#[derive(clap::Args)]
#[command(after_help = "\
Exit codes:
  0  compared
  1  a change was found that --fail-on names
  2  a file cannot be read, or a schema does not compile")]
pub(crate) struct Arguments {
    /// A file or folder with the old schemas.
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// A file or folder with the new schemas.
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// Fail if there is such a change.
    #[arg(long, value_enum, value_name = "CHANGE")]
    fail_on: Option<FailOn>,
    /// Format of the output.
    #[arg(long, short, value_enum, default_value = "table")]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FailOn {
    Breaking,
    Any,
}

#[derive(Serialize)]
struct Difference {
    api: String,
    /// The version; empty for changes of the whole API.
    version: String,
    path: String,
    change: String,
    breaking: bool,
    detail: String,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let (old, new) = (compiled(&arguments.old)?, compiled(&arguments.new)?);
    let mut out = Vec::new();
    for before in &old {
        let mut found = Differences {
            api: name(before),
            out: &mut out,
        };
        match new.iter().find(|after| name(after) == name(before)) {
            Some(after) => found.apis(before, after),
            None => found.note("", "", "removed", true, "the whole API"),
        }
    }
    for after in new
        .iter()
        .filter(|after| !old.iter().any(|before| name(before) == name(after)))
    {
        let mut found = Differences {
            api: name(after),
            out: &mut out,
        };
        found.note("", "", "added", false, "the whole API");
    }
    show(&out, arguments.output)?;
    let fails = |difference: &Difference| match arguments.fail_on {
        Some(FailOn::Any) => true,
        Some(FailOn::Breaking) => difference.breaking,
        None => false,
    };
    Ok(ExitCode::from(u8::from(out.iter().any(fails))))
}

fn compiled(path: &PathBuf) -> anyhow::Result<Vec<Api>> {
    let mut compiled = Vec::new();
    for mut source in apis::load(std::slice::from_ref(path))?.sources {
        // Rules are not compared, and need not fit the schemas of an unfinished change.
        source.conversion = None;
        source.without_rules();
        match source.assemble() {
            Ok(api) => compiled.push(api),
            Err(errors) => bail!(
                "{}: {}: {}",
                path.display(),
                source.name(),
                insula_api::aggregate(&errors)
            ),
        }
    }
    Ok(compiled)
}

fn name(api: &Api) -> String {
    let dot = if api.group.is_empty() { "" } else { "." };
    format!("{}{dot}{}", api.names.plural, api.group)
}

struct Differences<'a> {
    api: String,
    out: &'a mut Vec<Difference>,
}

impl Differences<'_> {
    fn note(&mut self, version: &str, path: &str, change: &str, breaking: bool, detail: impl Into<String>) {
        self.out.push(Difference {
            api: self.api.clone(),
            version: version.to_owned(),
            path: path.to_owned(),
            change: change.to_owned(),
            breaking,
            detail: detail.into(),
        });
    }

    fn apis(&mut self, old: &Api, new: &Api) {
        if old.names.kind != new.names.kind {
            self.note(
                "",
                "kind",
                "changed",
                true,
                format!("{} → {}", old.names.kind, new.names.kind),
            );
        }
        let scope = |api: &Api| match api.scope {
            ScopeKind::Cluster => "Cluster",
            ScopeKind::Namespaced => "Namespaced",
        };
        if scope(old) != scope(new) {
            self.note("", "scope", "changed", true, format!("{} → {}", scope(old), scope(new)));
        }
        let (before, after) = (old.bundle.storage(), new.bundle.storage());
        if before != after {
            self.note("", "storage version", "changed", false, format!("{before} → {after}"));
        }
        for gone in old
            .names
            .short_names
            .iter()
            .filter(|name| !new.names.short_names.contains(name))
        {
            self.note("", "short name", "removed", false, gone.as_str());
        }
        for before in &old.versions {
            match new.versions.iter().find(|after| after.name == before.name) {
                Some(after) => self.versions(before, after),
                None => self.note(&before.name, "", "removed", before.served, "the whole version"),
            }
        }
        for after in new
            .versions
            .iter()
            .filter(|after| !old.versions.iter().any(|before| before.name == after.name))
        {
            self.note(&after.name, "", "added", false, "the whole version");
        }
    }

    fn versions(&mut self, old: &ApiVersion, new: &ApiVersion) {
        let version = &*old.name;
        match (old.served, new.served) {
            (true, false) => self.note(version, "", "removed", true, "is not served any more"),
            (false, true) => self.note(version, "", "added", false, "is served"),
            _ => {}
        }
        if old.deprecated.is_none() && new.deprecated.is_some() {
            self.note(
                version,
                "",
                "deprecated",
                false,
                new.deprecated.clone().unwrap_or_default(),
            );
        }
        for (name, before, after) in [
            ("status", old.status, new.status),
            ("scale", old.scale.is_some(), new.scale.is_some()),
        ] {
            match (before, after) {
                (true, false) => self.note(version, "", "removed", true, format!("the subresource {name}")),
                // From now on status is ignored in writes of the object itself.
                (false, true) => self.note(
                    version,
                    "",
                    "added",
                    name == "status",
                    format!("the subresource {name}"),
                ),
                _ => {}
            }
        }
        for gone in old.selectable.iter().filter(|field| !new.selectable.contains(field)) {
            self.note(version, gone, "removed", true, "is not selectable any more");
        }
        for change in insula_schema::diff(old.schema.root(), new.schema.root()) {
            self.note(
                version,
                &change.path,
                &change.kind.to_string(),
                change.breaking,
                change.detail,
            );
        }
    }
}

fn show(differences: &[Difference], format: Format) -> anyhow::Result<()> {
    let mut printer = Printer::stdout();
    if !printer.document(format, &differences)? {
        let mut table = Table::new(&["API", "VERSION", "FIELD", "CHANGE", "BREAKING", "DETAIL"]);
        let or_all = |text: &str| {
            Cell::list(
                Tone::Plain,
                &[text.to_owned()]
                    .into_iter()
                    .filter(|t| !t.is_empty())
                    .collect::<Vec<_>>(),
            )
        };
        for difference in differences {
            let tone = if difference.breaking { Tone::Bad } else { Tone::Good };
            table.row(vec![
                difference.api.as_str().into(),
                or_all(&difference.version),
                or_all(&difference.path),
                difference.change.as_str().into(),
                Cell::new(tone, if difference.breaking { "yes" } else { "no" }),
                difference.detail.as_str().into(),
            ]);
        }
        if !table.is_empty() {
            printer.table(&table)?;
            printer.text("")?;
        }
        let breaking = differences.iter().filter(|difference| difference.breaking).count();
        let tone = if breaking > 0 { Tone::Bad } else { Tone::Good };
        let changes = if differences.len() == 1 { "change" } else { "changes" };
        printer.line(&[Cell::new(
            tone,
            format!("{} {changes}, {breaking} breaking", differences.len()),
        )])?;
    }
    printer.flush()?;
    Ok(())
}
