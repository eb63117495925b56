//! `insula schema lint`.

use std::process::ExitCode;

use clap::ValueEnum;
use insula_catalog::Api;
use serde::Serialize;

use crate::{
    apis::{self, Input},
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
    fail_on: Severity,
    /// Format of the output.
    #[arg(long, short, value_enum, default_value = "table")]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    Note,
    Warning,
    Error,
}

#[derive(Serialize)]
struct Finding {
    api: String,
    /// Versions with the finding.
    versions: Vec<String>,
    severity: Severity,
    finding: String,
    path: String,
    message: String,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut findings = Vec::new();
    for mut source in apis::load(&arguments.input.files)?.sources {
        // Rules have to write required fields, and are refused otherwise.
        let ruled = source.conversion.is_some() || source.rules().is_ok_and(|rules| rules.is_some());
        source.conversion = None;
        source.without_rules();
        let name = source.name().to_owned();
        let compiled = source.assemble();
        let mut errors = source.schema_errors();
        match &compiled {
            Err(others) if errors.is_empty() => errors.extend(others.iter().cloned()),
            _ => {}
        }
        findings.extend(errors.into_iter().map(|error| Finding {
            api: name.clone(),
            versions: Vec::new(),
            severity: Severity::Error,
            finding: "invalid".to_owned(),
            path: error.field.to_string(),
            message: error.body(),
        }));
        // Findings need a schema that compiles.
        if let Ok(api) = compiled {
            of_api(&name, &api, ruled, &mut findings);
        }
    }
    show(&findings, arguments.output)?;
    let grave = findings.iter().any(|finding| finding.severity >= arguments.fail_on);
    Ok(ExitCode::from(u8::from(grave)))
}

fn of_api(name: &str, api: &Api, ruled: bool, findings: &mut Vec<Finding>) {
    let stored = &api.versions[api.storage];
    for version in &api.versions {
        let mut lints = insula_schema::lint(version.schema.root());
        // A field that another version cannot fill is missing whichever of the two is stored.
        for other in api.versions.iter().filter(|other| !ruled && other.name != version.name) {
            if other.name == stored.name || version.name == stored.name {
                lints.extend(insula_schema::lint_between(other.schema.root(), version.schema.root()));
            }
        }
        for lint in lints {
            let (path, kind) = (lint.path, lint.kind.to_string());
            let same = |finding: &&mut Finding| {
                finding.api == name
                    && finding.path == path
                    && finding.finding == kind
                    && finding.message == lint.message
            };
            if let Some(known) = findings.iter_mut().find(same) {
                if !known.versions.iter().any(|known| **known == *version.name) {
                    known.versions.push(version.name.to_string());
                }
                continue;
            }
            findings.push(Finding {
                api: name.to_owned(),
                versions: vec![version.name.to_string()],
                severity: if lint.kind.warns() {
                    Severity::Warning
                } else {
                    Severity::Note
                },
                finding: kind,
                path,
                message: lint.message,
            });
        }
    }
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
