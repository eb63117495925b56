//! `insula samples`: APIs with conversion rules to look at and to try.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use clap::Subcommand;
use serde_json::{Value, json};

use crate::{
    client::{Client, message},
    connection::Connection,
    files::text,
    print::{self, Format, Printer, Table},
};

/// Longest wait until a sample is served.
const BOUND_TIMEOUT: Duration = Duration::from_secs(30);
const BOUND_INTERVAL: Duration = Duration::from_millis(50);

/// A folder of `config/samples/conversions`.
struct Sample {
    name: &'static str,
    about: &'static str,
    /// An APIResourceSchema.
    schema: &'static str,
    /// Its APIConversion.
    rules: &'static str,
    /// An object of one of the versions.
    object: &'static str,
}

// `SAMPLES`: build.rs lists the folders, so that none is missing.
include!(concat!(env!("OUT_DIR"), "/samples.rs"));

#[derive(Subcommand)]
#[allow(clippy::large_enum_variant, reason = "a program parses one command")]
pub(crate) enum Command {
    /// List the samples.
    List {
        /// Format of the output.
        #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
        output: Format,
    },
    /// Print the files of a sample.
    Show {
        /// The sample.
        name: String,
    },
    /// Publish and bind a sample in the workspace, and create its object.
    Apply {
        #[command(flatten)]
        connection: Connection,
        /// The sample.
        name: String,
    },
}

pub(crate) fn main(command: &Command) -> ExitCode {
    let done = match command {
        Command::List { output } => list(*output),
        Command::Show { name } => show(name),
        Command::Apply { connection, name } => apply(connection, name),
    };
    crate::ended(done.map(|()| ExitCode::SUCCESS))
}

fn find(name: &str) -> anyhow::Result<&'static Sample> {
    let found = SAMPLES.iter().find(|sample| sample.name == name);
    found.with_context(|| {
        let names: Vec<&str> = SAMPLES.iter().map(|sample| sample.name).collect();
        format!("there is no sample {name:?}: take {}", names.join(", "))
    })
}

fn list(output: Format) -> anyhow::Result<()> {
    let row = |sample: &Sample| json!({"name": sample.name, "about": sample.about});
    let rows: Vec<Value> = SAMPLES.iter().map(row).collect();
    match output {
        Format::Json => print::line(&serde_json::to_string_pretty(&rows)?),
        Format::Yaml => print::raw(&print::yaml(&rows)?),
        Format::Name => SAMPLES.iter().try_for_each(|sample| print::line(sample.name)),
        Format::Table | Format::Wide => {
            let mut table = Table::new(&["NAME", "SHOWS"]);
            for sample in &SAMPLES {
                table.row(vec![sample.name.into(), sample.about.into()]);
            }
            let mut printer = Printer::stdout();
            printer.table(&table)?;
            Ok(printer.flush()?)
        }
    }
}

fn show(name: &str) -> anyhow::Result<()> {
    let sample = find(name)?;
    let Sample {
        schema, rules, object, ..
    } = sample;
    print::raw(&format!("{schema}---\n{rules}---\n{object}"))
}

fn apply(connection: &Connection, name: &str) -> anyhow::Result<()> {
    let sample = find(name)?;
    let parse = |text: &str| serde_saphyr::from_str::<Value>(text).context("the sample is malformed");
    let (schema, rules) = (parse(sample.schema)?, parse(sample.rules)?);
    let object = parse(sample.object)?;
    let names = &schema["spec"]["names"];
    let (plural, group) = (text(names, "/plural"), text(&schema, "/spec/group"));
    let export = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": plural},
        "spec": {"resources": [{"group": group, "name": plural, "schema": schema["metadata"]["name"],
            "storage": {"crd": {}}}]},
    });
    let binding = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": plural},
        "spec": {"reference": {"export": {"name": plural}}},
    });
    let resolved = connection.resolve()?;
    resolved.url.current()?;
    let client = Client::new(&resolved)?;
    let is_namespaced = text(&schema, "/spec/scope") == "Namespaced";
    let within = if is_namespaced { "/namespaces/default" } else { "" };
    crate::runtime()?.block_on(async {
        for (resource, object) in [
            ("apiresourceschemas", &schema),
            ("apiconversions", &rules),
            ("apiexports", &export),
            ("apibindings", &binding),
        ] {
            let version = text(object, "/apiVersion");
            create(&client, &format!("/apis/{version}/{resource}"), object).await?;
        }
        until_bound(&client, plural).await?;
        let version = text(&object, "/apiVersion");
        create(&client, &format!("/apis/{version}{within}/{plural}"), &object).await
    })?;
    let served = schema["spec"]["versions"].as_array().into_iter().flatten();
    for version in served.filter(|version| version["served"] == true) {
        print::line(&format!(
            "kubectl get {plural}.{}.{group} -o yaml",
            text(version, "/name")
        ))?;
    }
    Ok(())
}

/// Creates an object. One that is there stays.
async fn create(client: &Client, collection: &str, object: &Value) -> anyhow::Result<()> {
    let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
    let (code, answer) = client.post(collection, object).await?;
    let what = match code.as_u16() {
        201 => "created",
        409 if answer["reason"] == "AlreadyExists" => "unchanged",
        _ => bail!("{kind} {name}: {}", message(&answer)),
    };
    eprintln!("{kind} {name} {what}");
    Ok(())
}

async fn until_bound(client: &Client, binding: &str) -> anyhow::Result<()> {
    let begun = Instant::now();
    let path = format!("/apis/apis.kcp.io/v1alpha2/apibindings/{binding}");
    loop {
        let (_, found) = client.get(&path).await?;
        if text(&found, "/status/phase") == "Bound" {
            return Ok(());
        }
        if begun.elapsed() > BOUND_TIMEOUT {
            bail!("APIBinding {binding} is not bound: kubectl describe apibinding {binding} says why");
        }
        tokio::time::sleep(BOUND_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn every_folder_of_samples_is_listed() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/samples/conversions");
        let folders = fs::read_dir(root).unwrap().map(|entry| entry.unwrap());
        let mut names: Vec<String> = folders
            .filter(|folder| folder.path().join("conversion.yaml").exists())
            .map(|folder| folder.file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert!(names.len() >= 18, "{names:?}");
        let listed: Vec<&str> = SAMPLES.iter().map(|sample| sample.name).collect();
        assert_eq!(listed, names);
    }
}
