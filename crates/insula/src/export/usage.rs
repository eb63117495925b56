//! `insula export usage`.

use std::process::ExitCode;

use anyhow::{Context, bail};
use serde::Serialize;

use super::target::Target;
use crate::{
    connection::Connection,
    files::text,
    print::{Cell, Format, Printer, Table, Tone},
};

/// Shows how many workspaces used each version of an export lately, and when it was used last. The
/// server counts the requests of consumers, to the hour.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The export [default: all of the workspace].
    name: Option<String>,
    #[command(flatten)]
    connection: Connection,
    /// Format of the output.
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// Use of one version.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    export: String,
    group: String,
    resource: String,
    version: String,
    tenants: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_used: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    counted_since: Option<String>,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let target = Target::server(&arguments.connection)?;
    let exports = match &arguments.name {
        None => target.list("apis.kcp.io/v1alpha2", "apiexports")?,
        Some(name) => match target.get("apis.kcp.io/v1alpha2", "APIExport", name)? {
            Some(export) => vec![export],
            None => bail!("APIExport {name} is not there"),
        },
    };
    let mut rows = Vec::new();
    for export in &exports {
        let optional = |value: &str| (!value.is_empty()).then(|| value.to_owned());
        let usage = export["status"]["usage"].as_array().into_iter().flatten();
        rows.extend(usage.map(|usage| Row {
            export: text(export, "/metadata/name").to_owned(),
            group: text(usage, "/group").to_owned(),
            resource: text(usage, "/resource").to_owned(),
            version: text(usage, "/version").to_owned(),
            tenants: usage["tenants"].as_u64().unwrap_or_default(),
            last_used: optional(text(usage, "/lastUsed")),
            counted_since: optional(text(export, "/status/usageSince")),
        }));
    }
    let mut printer = Printer::stdout();
    if !printer.document(arguments.output, &rows)? {
        let mut table = Table::new(&["EXPORT", "RESOURCE", "VERSION", "TENANTS", "LAST USED", "COUNTED SINCE"]);
        let time = |time: &Option<String>| match time {
            Some(time) => Cell::from(time.as_str()),
            None => Cell::new(Tone::Dim, "-"),
        };
        for row in &rows {
            let resource = match row.group.as_str() {
                "" => row.resource.clone(),
                group => format!("{}.{group}", row.resource),
            };
            table.row(vec![
                row.export.as_str().into(),
                resource.into(),
                row.version.as_str().into(),
                row.tenants.to_string().into(),
                time(&row.last_used),
                time(&row.counted_since),
            ]);
        }
        printer.table(&table)?;
    }
    printer.flush().context("cannot write the answer")?;
    Ok(ExitCode::SUCCESS)
}
