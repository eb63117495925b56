//! `insula explain ID`: the outcome of a request, the step that refused it, and advice to get it
//! allowed. Reads the audit log, which operators have and tenants do not.

mod advice;
mod explanation;
mod find;

use std::{path::PathBuf, process::ExitCode};

use anyhow::bail;
use serde_json::Value;

use crate::print::{self, Format};

#[derive(clap::Args)]
#[command(after_help = "\
The id is in the header Audit-Id of every response; kubectl shows it with -v=8.

Exit codes:
  0  the request was found
  1  no such request is in the log
  2  the log cannot be read")]
pub(crate) struct Arguments {
    /// The Audit-Id of the response.
    id: String,
    /// The server's data directory: its log is in audit/audit.log.
    #[arg(long, value_name = "DIRECTORY", default_value = ".insula", env = "INSULA_DATA_DIR")]
    data_dir: PathBuf,
    /// The log, if it is elsewhere; rotated files beside it are read, too.
    #[arg(long, value_name = "FILE", env = "INSULA_AUDIT_FILE")]
    log: Option<PathBuf>,
    /// Format of the output. JSON has an event of the log a line.
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    crate::ended(run(arguments))
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let log = arguments.log.clone();
    let log = log.unwrap_or_else(|| arguments.data_dir.join("audit").join("audit.log"));
    if arguments.id.is_empty() {
        bail!("an empty id: the header Audit-Id of the response has it");
    }
    let events = find::soon(&log, &arguments.id)?;
    let Some(last) = events.last() else {
        eprintln!(
            "error: no request {} in {} and its rotated files; the audit policy may not record it, or its file was \
             removed",
            arguments.id,
            log.display()
        );
        return Ok(ExitCode::FAILURE);
    };
    let text = match arguments.output {
        Format::Json => events.iter().map(|event| format!("{event}\n")).collect(),
        Format::Yaml => print::yaml(&events)?,
        Format::Name => format!("{}\n", arguments.id),
        Format::Table | Format::Wide => explanation::explanation(last, &server(arguments)),
    };
    print::raw(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the URL of the server in the administrator's kubeconfig, for commands to copy.
fn server(arguments: &Arguments) -> String {
    let text = std::fs::read_to_string(arguments.data_dir.join("admin.kubeconfig")).unwrap_or_default();
    let config: Value = serde_saphyr::from_str(&text).unwrap_or_default();
    let clusters = config["clusters"].as_array().into_iter().flatten();
    let base = clusters.into_iter().find(|cluster| cluster["name"] == "base");
    let address = base.and_then(|base| base["cluster"]["server"].as_str());
    address.unwrap_or("https://SERVER").to_owned()
}
