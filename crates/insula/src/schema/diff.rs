//! `insula schema diff`.

use std::{path::PathBuf, process::ExitCode};

use anyhow::bail;
use clap::ValueEnum;
use insula_admission::publication::{Difference, differences};
use insula_catalog::Api;

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
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FailOn {
    Breaking,
    Any,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let (old, new) = (compiled(&arguments.old)?, compiled(&arguments.new)?);
    let out = differences(&old, &new);
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
        source.without_rules();
        match source.manifest().assemble() {
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
