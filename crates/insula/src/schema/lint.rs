//! `insula schema lint`.

use std::process::ExitCode;

use clap::ValueEnum;
use insula_admission::publication::{self, Finding, Severity};

use crate::{
    apis::Input,
    print::{Cell, Format, Printer, Table, Tone},
};

/// Errors are what a server refuses. Warnings are worth changing: bounds that a rule misses, rules
/// that may cost nearly too much, required fields that another version cannot fill. Notes are worth
/// knowing.
#[derive(clap::Args)]
#[command(after_help = "\
Findings:
  invalid           a server would refuse the schema                             error
  unbounded         a rule reads a list, map or text that nothing bounds         warning
  cost              a rule may cost more than half of what one may               warning
  default-missing   a field is required that another version does not have       warning
  list-keys         items of a list of objects have no keys                      note
  int-or-string     expressions see a value of any type                          note
  preserve-unknown  whatever is sent is kept                                     note

Exit codes:
  0  nothing as grave as --fail-on
  1  something as grave was found
  2  a file cannot be read, or a flag is wrong")]
pub(crate) struct Arguments {
    #[command(flatten)]
    input: Input,
    /// Fail on findings of this severity and above.
    #[arg(long, value_enum, value_name = "SEVERITY", default_value = "warning")]
    fail_on: FailOn,
    /// Format of the output.
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FailOn {
    Note,
    Warning,
    Error,
}

impl From<FailOn> for Severity {
    fn from(fail_on: FailOn) -> Self {
        match fail_on {
            FailOn::Note => Severity::Note,
            FailOn::Warning => Severity::Warning,
            FailOn::Error => Severity::Error,
        }
    }
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut findings = Vec::new();
    for source in arguments.input.load()?.sources {
        findings.extend(publication::lint(source.name(), source.manifest()));
    }
    show(&findings, arguments.output)?;
    let fail_on = Severity::from(arguments.fail_on);
    let grave = findings.iter().any(|finding| finding.severity >= fail_on);
    Ok(ExitCode::from(u8::from(grave)))
}

fn show(findings: &[Finding], format: Format) -> anyhow::Result<()> {
    let mut printer = Printer::stdout();
    if !printer.document(format, &findings)? {
        let mut table = Table::new(&["API", "VERSIONS", "FINDING", "FIELD", "WHY"]);
        for finding in findings {
            let tone = match finding.severity {
                Severity::Error => Tone::Bad,
                Severity::Warning => Tone::Warn,
                Severity::Note => Tone::Dim,
            };
            table.row(vec![
                finding.api.as_str().into(),
                Cell::list(Tone::Plain, &finding.versions),
                Cell::new(tone, finding.finding.as_str()),
                finding.path.as_str().into(),
                finding.message.as_str().into(),
            ]);
        }
        if !table.is_empty() {
            printer.table(&table)?;
            printer.text("")?;
        }
        let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
        let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
        let tone = match (errors, warnings) {
            (0, 0) => Tone::Good,
            (0, _) => Tone::Warn,
            _ => Tone::Bad,
        };
        let line = format!("{errors} errors, {warnings} warnings, {} notes", count(Severity::Note));
        printer.line(&[Cell::new(tone, line)])?;
    }
    printer.flush()?;
    Ok(())
}
