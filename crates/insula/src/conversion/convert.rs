//! `insula conversion convert`.
use std::{io::Write, path::PathBuf, process::ExitCode};

use anyhow::{Context, anyhow, bail};
use insula_catalog::Api;
use insula_conversion::unmetered_budget;
use serde_json::Value;

use crate::{
    apis::{self, Manifests},
    files::{Document, FolderOptions},
    print::{Format, Stdout, yaml},
};

/// Objects and definitions may stand in the same files.
#[derive(clap::Args)]
#[command(after_help = "\
Every object is converted as it is, without what a server may keep beside it: what the other version cannot show \
is not in the answer.

Exit codes:
  0  all objects are converted
  1  a rule failed, or rules or schema are refused
  2  a file cannot be read, or no object is of an API among the files")]
pub(crate) struct Arguments {
    /// Schemas, rules and objects. A folder gives its files, - is standard input.
    #[arg(long = "filename", short = 'f', value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    folders: FolderOptions,
    /// The version to convert to.
    #[arg(long, value_name = "VERSION")]
    to: String,
    /// Format of the objects.
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Yaml)]
    output: Format,
    /// Say on standard error how many cost units the expressions took for each object, and how many
    /// they may take.
    #[arg(long)]
    cost: bool,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let Manifests { sources, others } = apis::load_with(&arguments.files, arguments.folders)?;
    if others.is_empty() {
        bail!("no object among the files: name one with -f");
    }
    let mut compiled = Vec::new();
    for source in &sources {
        match source.manifest().compile() {
            Ok(api) => compiled.push(api),
            Err(errors) => {
                errors
                    .iter()
                    .for_each(|error| eprintln!("error: {}: {error}", source.name()));
                return Ok(ExitCode::from(1));
            }
        }
    }
    let mut converted = Vec::new();
    let mut failures = 0;
    for document in &others {
        let api = api_of(&compiled, document)?;
        if api.bundle.schema(&arguments.to).is_none() {
            let known: Vec<&str> = api.bundle.versions().collect();
            bail!(
                "{} has no version {:?}; it has {}",
                api.names.kind,
                arguments.to,
                known.join(", ")
            );
        }
        let mut budget = unmetered_budget();
        match api.bundle.convert(&document.value, &arguments.to, &mut budget) {
            Ok(object) => converted.push(object),
            Err(error) => {
                eprintln!("error: {}: {error}", document.file);
                failures += 1;
            }
        }
        if arguments.cost {
            let name = document.text("/metadata/name");
            eprintln!("{name}: {} of {} cost units", budget.used(), budget.limit());
        }
    }
    write(arguments.output, &converted).context("cannot write the output")?;
    Ok(ExitCode::from(u8::from(failures > 0)))
}

/// Returns the API of an object.
pub(super) fn api_of<'a>(apis: &'a [Api], document: &Document) -> anyhow::Result<&'a Api> {
    let found = apis.iter().find(|api| {
        let version = apis::version_of(api, &document.value);
        version.is_some_and(|version| api.bundle.schema(version).is_some())
    });
    found.ok_or_else(|| match (document.text("/apiVersion"), document.text("/kind")) {
        ("", _) | (_, "") => anyhow!("{}: an object needs apiVersion and kind", document.file),
        (version, kind) => anyhow!("{}: {version} {kind} belongs to no API among the files", document.file),
    })
}

/// Prints objects as kubectl does: as YAML documents, or as a List in JSON.
fn write(format: Format, objects: &[Value]) -> anyhow::Result<()> {
    let mut out = Stdout::new();
    match (format, objects) {
        (Format::Json, [one]) => writeln!(out, "{}", serde_json::to_string_pretty(one)?)?,
        (Format::Json, _) => {
            let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects});
            writeln!(out, "{}", serde_json::to_string_pretty(&list)?)?;
        }
        (Format::Name, _) => {
            for object in objects {
                writeln!(out, "{}", object["metadata"]["name"].as_str().unwrap_or_default())?;
            }
        }
        (Format::Yaml | Format::Table | Format::Wide, _) => {
            for (index, object) in objects.iter().enumerate() {
                if index > 0 {
                    writeln!(out, "---")?;
                }
                write!(out, "{}", yaml(object)?)?;
            }
        }
    }
    Ok(())
}
