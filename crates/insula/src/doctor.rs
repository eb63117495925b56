//! `insula doctor`: what may be wrong with an installation, each finding with its fix.

mod certificates;
mod disk;
mod etcd;
mod files;
mod network;

use std::{path::PathBuf, process::ExitCode};

use insula_server::config::{Config, Sources, load};
use serde::Serialize;

use crate::{
    connection::Connection,
    print::{Cell, Format, Printer, Table, Tone},
};

/// Checks the configuration, certificates, permissions, clock, disk, etcd, port and versions of an
/// installation. Run it on the server's machine, as the server's user; it changes nothing.
#[derive(clap::Args)]
#[command(after_help = "\
Exit codes:
  0  no problem; warnings do not count
  1  a problem
  2  a flag is wrong")]
pub(crate) struct Arguments {
    /// The server's settings, as YAML.
    #[arg(long, value_name = "FILE", env = "INSULA_CONFIG", hide_env_values = true)]
    config: Option<PathBuf>,
    /// The server's data directory [default: dataDir of the settings or INSULA_DATA_DIR, else
    /// .insula].
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: Option<String>,
    #[command(flatten)]
    connection: Connection,
    /// Format of the output.
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    /// Not checked, since something it needs is not there.
    Skipped,
    Warning,
    Problem,
}

#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    detail: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    fix: String,
}

impl Finding {
    fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self::new(check, Verdict::Ok, detail, "")
    }

    fn skipped(check: &'static str, detail: impl Into<String>) -> Self {
        Self::new(check, Verdict::Skipped, detail, "")
    }

    fn warning(check: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(check, Verdict::Warning, detail, fix)
    }

    fn problem(check: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(check, Verdict::Problem, detail, fix)
    }

    fn new(check: &'static str, verdict: Verdict, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            check,
            verdict,
            detail: detail.into(),
            fix: fix.into(),
        }
    }
}

pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    crate::ended(run(arguments))
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut findings = Vec::new();
    let config = match load(sources(arguments)) {
        Ok(config) => {
            findings.push(Finding::ok("configuration", described(&config)));
            config
        }
        Err(error) => {
            let fix = "config/insula.yaml lists every key with its default";
            findings.push(Finding::problem("configuration", error.to_string(), fix));
            Config::default()
        }
    };
    findings.extend(files::check(&config));
    findings.extend(certificates::check(&config.data_dir));
    findings.extend(disk::check(&config.data_dir));
    findings.extend(crate::runtime()?.block_on(network::check(&config, &arguments.connection)));
    print(&findings, arguments.output)?;
    let has_problem = findings.iter().any(|finding| finding.verdict == Verdict::Problem);
    Ok(ExitCode::from(u8::from(has_problem)))
}

fn sources(arguments: &Arguments) -> Sources {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
    };
    let data_dir = arguments.data_dir.clone().map(|value| ("dataDir", value));
    Sources {
        file: arguments.config.clone(),
        environment: std::env::vars_os().filter_map(text).collect(),
        flags: data_dir.into_iter().collect(),
    }
}

fn described(config: &Config) -> String {
    format!(
        "data directory {}, store {}, address {}",
        config.data_dir.display(),
        config.store,
        config.listen
    )
}

fn print(findings: &[Finding], output: Format) -> anyhow::Result<()> {
    let mut printer = Printer::stdout();
    if printer.named(output, &findings, findings.iter().map(|finding| finding.check))? {
        return Ok(printer.flush()?);
    }
    let mut table = Table::new(&["CHECK", "RESULT", "DETAIL"]);
    for finding in findings {
        let (tone, word) = match finding.verdict {
            Verdict::Ok => (Tone::Good, "ok"),
            Verdict::Skipped => (Tone::Dim, "skipped"),
            Verdict::Warning => (Tone::Warn, "warning"),
            Verdict::Problem => (Tone::Bad, "problem"),
        };
        let detail = finding.detail.replace('\n', " ");
        table.row(vec![finding.check.into(), Cell::new(tone, word), detail.into()]);
        if !finding.fix.is_empty() {
            table.row(vec!["".into(), "fix".into(), finding.fix.clone().into()]);
        }
    }
    printer.table(&table)?;
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let (problems, warnings) = (count(Verdict::Problem), count(Verdict::Warning));
    printer.text(&format!("\n{problems} problems, {warnings} warnings"))?;
    Ok(printer.flush()?)
}
