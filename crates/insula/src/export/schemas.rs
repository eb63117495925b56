//! `insula export schemas`.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
};

use anyhow::Context;
use serde::Serialize;
use serde_json::Value;

use super::target::Target;
use crate::{
    ask,
    connection::Connection,
    files::text,
    print::{Cell, Format, Printer, Table, Tone},
};

/// Labels of an APIConversion that name the schema it is for, where that is not its own name.
const SCHEMA_LABELS: [&str; 2] = ["apis.kcp.io/apiresourceschema", "apis.kcp.dev/apiresourceschema"];

/// Lists the APIResourceSchemas and APIConversions of a workspace with their users: exports that
/// offer them, and consumers that are bound to them. Those without a user can be deleted; the
/// server deletes its own copies for consumers by itself.
#[derive(clap::Args)]
#[command(after_help = "\
Exit codes:
  0  listed, or deleted
  1  the deletion is not confirmed, or the server refuses it
  2  the server cannot be read, or a flag is wrong")]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// List only objects without a user.
    #[arg(long)]
    unused: bool,
    /// Delete the objects without a user, after a question.
    #[arg(long, requires = "unused")]
    delete: bool,
    /// Delete without a question.
    #[arg(long, short, requires = "delete")]
    yes: bool,
    /// Format of the output.
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// A schema, or rules, with its users.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    kind: String,
    name: String,
    /// Exports that offer it.
    exports: Vec<String>,
    /// Number of consumers that are bound to it.
    consumers: usize,
    /// Definition of the workspace that rules are for.
    #[serde(skip_serializing_if = "Option::is_none")]
    definition: Option<String>,
    #[serde(skip)]
    object: Value,
}

impl Row {
    fn is_unused(&self) -> bool {
        self.exports.is_empty() && self.consumers == 0 && self.definition.is_none()
    }
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let target = Target::server(&arguments.connection)?;
    let mut rows = rows(&target)?;
    if arguments.unused {
        rows.retain(Row::is_unused);
    }
    print(&rows, arguments.output)?;
    if !arguments.delete || rows.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    if !arguments.yes {
        if !ask::is_interactive() {
            eprintln!("error: {} objects would be deleted: confirm it by --yes", rows.len());
            return Ok(ExitCode::from(1));
        }
        if !ask::confirm(&format!("Delete {} objects?", rows.len()))? {
            return Ok(ExitCode::from(1));
        }
    }
    delete(&target, &rows)
}

/// Deletes objects that still have no user. Rules come before their schema, whose deletion changes
/// the status of its rules.
fn delete(target: &Target, listed: &[Row]) -> anyhow::Result<ExitCode> {
    let mut failed = false;
    // The question may have taken time: an export may offer a schema again.
    let still: BTreeSet<String> = rows(target)?.iter().filter(|row| row.is_unused()).map(uid).collect();
    for row in listed.iter().rev() {
        if !still.contains(&uid(row)) {
            eprintln!("note: {} {} has a user now, or is gone", row.kind, row.name);
            continue;
        }
        match target.delete(&row.object) {
            Ok(()) => eprintln!("note: {} {} is deleted", row.kind, row.name),
            Err(error) => {
                eprintln!("error: {error:#}");
                failed = true;
            }
        }
    }
    Ok(ExitCode::from(u8::from(failed)))
}

fn uid(row: &Row) -> String {
    text(&row.object, "/metadata/uid").to_owned()
}

/// Returns all schemas, and then all rules, each with its users.
fn rows(target: &Target) -> anyhow::Result<Vec<Row>> {
    // Exports come last: an export that is created meanwhile shows.
    let schemas = target.list("apis.kcp.io/v1alpha1", "apiresourceschemas")?;
    let conversions = target.list("apis.kcp.io/v1alpha1", "apiconversions")?;
    let definitions = target.list("apiextensions.k8s.io/v1", "customresourcedefinitions")?;
    let exports = target.list("apis.kcp.io/v1alpha2", "apiexports")?;
    let (mut offers, mut bound) = (BTreeMap::<String, Vec<String>>::new(), BTreeMap::<String, usize>::new());
    for export in &exports {
        for resource in export["spec"]["resources"].as_array().into_iter().flatten() {
            let schema = text(resource, "/schema").to_owned();
            let name = text(export, "/metadata/name").to_owned();
            offers.entry(schema).or_default().push(name);
        }
        for binding in target.bindings_of(export)? {
            for resource in binding["status"]["boundResources"].as_array().into_iter().flatten() {
                *bound.entry(text(resource, "/schema/UID").to_owned()).or_default() += 1;
            }
        }
    }
    let mut rows: Vec<Row> = Vec::new();
    for object in schemas {
        let name = text(&object, "/metadata/name").to_owned();
        rows.push(Row {
            kind: "APIResourceSchema".to_owned(),
            exports: offers.get(&name).cloned().unwrap_or_default(),
            consumers: bound.get(text(&object, "/metadata/uid")).copied().unwrap_or_default(),
            definition: None,
            name,
            object: with_kind(object, "APIResourceSchema"),
        });
    }
    let schemas = rows.len();
    for object in conversions {
        let of = schema_of(&object);
        let schema = rows[..schemas].iter().find(|row| row.name == of);
        let is_defined = definitions.iter().any(|it| text(it, "/metadata/name") == of);
        rows.push(Row {
            kind: "APIConversion".to_owned(),
            name: text(&object, "/metadata/name").to_owned(),
            // Rules may come before their schema.
            exports: offers.get(&of).cloned().unwrap_or_default(),
            consumers: schema.map_or(0, |schema| schema.consumers),
            definition: is_defined.then_some(of),
            object: with_kind(object, "APIConversion"),
        });
    }
    Ok(rows)
}

/// Sets kind and version, which items of a list lack.
fn with_kind(mut object: Value, kind: &str) -> Value {
    object["apiVersion"] = "apis.kcp.io/v1alpha1".into();
    object["kind"] = kind.into();
    object
}

/// Returns the name of the schema or definition that rules are for.
fn schema_of(conversion: &Value) -> String {
    let labels = &conversion["metadata"]["labels"];
    let labelled = SCHEMA_LABELS.iter().find_map(|label| labels[*label].as_str());
    labelled
        .unwrap_or_else(|| text(conversion, "/metadata/name"))
        .to_owned()
}

fn print(rows: &[Row], format: Format) -> anyhow::Result<()> {
    let mut printer = Printer::stdout();
    if !printer.document(format, &rows)? {
        let mut table = Table::new(&["KIND", "NAME", "EXPORTS", "CONSUMERS", "DEFINITION"]);
        for row in rows {
            table.row(vec![
                row.kind.as_str().into(),
                row.name.as_str().into(),
                Cell::list(Tone::Plain, &row.exports),
                row.consumers.to_string().into(),
                match &row.definition {
                    Some(definition) => definition.as_str().into(),
                    None => Cell::new(Tone::Dim, "-"),
                },
            ]);
        }
        printer.table(&table)?;
    }
    printer.flush().context("cannot write the answer")
}
