//! `insula export usage`.

use std::process::ExitCode;

use anyhow::{Context, bail};
use insula_proto::admin::v1::{Consumer, ListConsumersRequest};
use serde::Serialize;
use serde_json::Value;

use super::{read::all_consumers, target::Target};
use crate::{
    admin::Admin,
    connection::Connection,
    files::text,
    print::{Cell, Format, Printer, Table, Tone},
};

/// Shows how many workspaces used each version of an export lately, and when it was used last. The
/// server counts the requests of consumers, to the hour. `-o wide`, json and yaml name the
/// workspaces by their paths, which needs the verb list on apiexports/content.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The export [default: all of the workspace].
    name: Option<String>,
    #[command(flatten)]
    connection: Connection,
    /// Format of the output.
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
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
    /// The paths of the workspaces that used it, as far as the caller may see them.
    #[serde(skip_serializing_if = "Option::is_none")]
    workspaces: Option<Vec<String>>,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let target = Target::server(&arguments.connection)?;
    let admin = Admin::in_workspace(&arguments.connection)?;
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
        let consumers = match arguments.output {
            Format::Table | Format::Name => None,
            Format::Wide | Format::Json | Format::Yaml => named(&admin, text(export, "/metadata/name")),
        };
        let usage = export["status"]["usage"].as_array().into_iter().flatten();
        rows.extend(usage.map(|usage| Row {
            export: text(export, "/metadata/name").to_owned(),
            group: text(usage, "/group").to_owned(),
            resource: text(usage, "/resource").to_owned(),
            version: text(usage, "/version").to_owned(),
            tenants: usage["tenants"].as_u64().unwrap_or_default(),
            last_used: optional(text(usage, "/lastUsed")),
            counted_since: optional(text(export, "/status/usageSince")),
            workspaces: consumers.as_ref().map(|consumers| used_by(consumers, usage)),
        }));
    }
    print(&rows, arguments.output)?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the consumers of an export. Callers who may not list them get the counts alone.
fn named(admin: &Admin, export: &str) -> Option<Vec<Consumer>> {
    let request = ListConsumersRequest {
        export: export.to_owned(),
        ..ListConsumersRequest::default()
    };
    match all_consumers(admin, &request) {
        Ok(consumers) => Some(consumers),
        Err(error) => {
            eprintln!("warning: APIExport {export}: its workspaces cannot be named: {error:#}");
            None
        }
    }
}

/// Returns the paths of the workspaces that used a version.
fn used_by(consumers: &[Consumer], usage: &Value) -> Vec<String> {
    let resource = match text(usage, "/group") {
        "" => text(usage, "/resource").to_owned(),
        group => format!("{}.{group}", text(usage, "/resource")),
    };
    let version = format!("{resource}/{}", text(usage, "/version"));
    let users = consumers
        .iter()
        .filter(|consumer| consumer.versions.iter().any(|used| used.version == version));
    users.map(|consumer| consumer.workspace.clone()).collect()
}

fn print(rows: &[Row], format: Format) -> anyhow::Result<()> {
    let mut printer = Printer::stdout();
    let resource = |row: &Row| match row.group.as_str() {
        "" => row.resource.clone(),
        group => format!("{}.{group}", row.resource),
    };
    // The names that --remove and `export retire` take.
    let names = rows.iter().map(|row| format!("{}/{}", resource(row), row.version));
    if !printer.named(format, &rows, names)? {
        let mut table = Table::new(&[
            "EXPORT",
            "RESOURCE",
            "VERSION",
            "TENANTS",
            "LAST USED",
            "COUNTED SINCE",
            "WORKSPACES",
        ]);
        let time = |time: &Option<String>| match time {
            Some(time) => Cell::from(time.as_str()),
            None => Cell::new(Tone::Dim, "-"),
        };
        for row in rows {
            table.row(vec![
                row.export.as_str().into(),
                resource(row).into(),
                row.version.as_str().into(),
                row.tenants.to_string().into(),
                time(&row.last_used),
                time(&row.counted_since),
                Cell::list(Tone::Plain, row.workspaces.as_deref().unwrap_or_default()),
            ]);
        }
        if format != Format::Wide {
            table.keep_columns(6);
        }
        printer.table(&table)?;
    }
    printer.flush().context("cannot write the answer")
}
