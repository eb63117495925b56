//! `insula conversion recompute`: objects that wrong rules wrote, and their repair.

use std::{collections::BTreeSet, path::PathBuf, process::ExitCode};

use anyhow::{Context, bail};
use insula_proto::{
    admin::v1::{FieldDifference, RecomputeRequest, RecomputeResponse, RecomputeState, RecomputedObject},
    value,
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    client::Client,
    connection::Connection,
    files::{self, text},
    print::{Format, Printer, Progress},
};

/// Objects that the table lists; all are counted.
const LISTED_MAX: usize = 10;
/// Fields of an object that the table lists.
const FIELDS_MAX: usize = 10;

/// Each object records the rules by which clients wrote it through a version other than the storage
/// version. Where these are not today's rules, the object is computed again: from what the writer
/// saw then, by today's rules. Fields that were written since stay as they are.
#[derive(clap::Args)]
#[command(after_help = "\
Rules that the server no longer has are given with --old. A second run after --apply finds nothing.

Exit codes:
  0  no object differs, or all are recomputed
  1  an object differs, was written by rules that are not known, or could not be recomputed
  2  a file or the server cannot be read, or a flag is wrong")]
pub(crate) struct Arguments {
    /// APIExports, or APIResourceSchemas that an APIExport offers.
    #[arg(value_name = "EXPORT|SCHEMA", required = true)]
    names: Vec<String>,
    /// Former APIConversions: the rules before the correction. A folder gives its files, - is
    /// standard input.
    #[arg(long = "old", value_name = "FILE")]
    former: Vec<PathBuf>,
    /// Treat objects without a rule record as written by the rules of --old.
    #[arg(long, requires = "former")]
    assume_old: bool,
    /// Store the recomputed objects.
    #[arg(long)]
    apply: bool,
    #[command(flatten)]
    connection: Connection,
    /// Format of the output. The table lists ten objects, the others all.
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// A resource of an export.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ExportedResource {
    export: String,
    group: String,
    resource: String,
}

/// Result for one resource.
#[derive(Serialize)]
struct Report {
    export: String,
    group: String,
    resource: String,
    examined: i64,
    objects: Vec<Object>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    workspace: String,
    cluster: String,
    namespace: String,
    name: String,
    resource_version: String,
    state: &'static str,
    writers: Vec<Writer>,
    changes: Vec<Field>,
    kept: Vec<Field>,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

#[derive(Serialize)]
struct Writer {
    version: String,
    rules: String,
}

#[derive(Serialize)]
struct Field {
    version: String,
    path: String,
    was: Option<Value>,
    is: Option<Value>,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let former = former_rules(&arguments.former)?;
    let client = arguments.connection.client()?;
    let workspace = client.workspace().to_owned();
    let runtime = crate::runtime()?;
    let reports = runtime.block_on(async {
        let at = client.at_path(&format!("/clusters/{workspace}"));
        let mut reports = Vec::new();
        for found in resources(&at, &workspace, &arguments.names).await? {
            let request = RecomputeRequest {
                workspace: workspace.clone(),
                export: found.export,
                group: found.group,
                resource: found.resource,
                former_rules: former.clone(),
                assume_former: arguments.assume_old,
                apply: arguments.apply,
                ..RecomputeRequest::default()
            };
            reports.push(report(&client, request).await?);
        }
        anyhow::Ok(reports)
    })?;
    let mut printer = Printer::stdout();
    if !printer.document(arguments.output, &reports)? {
        for line in reports.iter().flat_map(Report::lines) {
            printer.text(&line)?;
        }
    }
    printer.flush().context("cannot write the answer")?;
    let open = reports.iter().flat_map(|report| &report.objects).any(Object::is_open);
    Ok(ExitCode::from(u8::from(open)))
}

/// Reads the former rules, in the form of messages.
fn former_rules(paths: &[PathBuf]) -> anyhow::Result<Vec<value::Struct>> {
    let mut rules = Vec::new();
    for document in files::read(paths)? {
        if document.text("/kind").starts_with("APIConversion") {
            let map = document.value.as_object().context("an object is a map")?;
            rules.push(value::from_json(map).with_context(|| document.file.clone())?);
        }
    }
    if rules.is_empty() && !paths.is_empty() {
        bail!("--old: there is no APIConversion in the files");
    }
    Ok(rules)
}

/// Finds the resources of exports, and the exports that offer schemas.
async fn resources(client: &Client, workspace: &str, names: &[String]) -> anyhow::Result<BTreeSet<ExportedResource>> {
    let (code, list) = client.get("/apis/apis.kcp.io/v1alpha2/apiexports").await?;
    if !code.is_success() {
        bail!("APIExports of {workspace}: {code}: {}", text(&list, "/message"));
    }
    let exports: Vec<&Value> = list["items"].as_array().into_iter().flatten().collect();
    let mut found = BTreeSet::new();
    for name in names {
        let before = found.len();
        for export in &exports {
            let own = text(export, "/metadata/name");
            let resources = export["spec"]["resources"].as_array().into_iter().flatten();
            let meant = resources.filter(|resource| own == name || text(resource, "/schema") == name);
            found.extend(meant.map(|resource| ExportedResource {
                export: own.to_owned(),
                group: text(resource, "/group").to_owned(),
                resource: text(resource, "/name").to_owned(),
            }));
        }
        if found.len() == before {
            bail!("in {workspace} there is no APIExport {name}, nor one that offers a schema of this name");
        }
    }
    Ok(found)
}

/// Asks for all pages of one resource.
async fn report(client: &Client, mut request: RecomputeRequest) -> anyhow::Result<Report> {
    let mut report = Report {
        export: request.export.clone(),
        group: request.group.clone(),
        resource: request.resource.clone(),
        examined: 0,
        objects: Vec::new(),
    };
    let mut progress = Progress::stderr();
    loop {
        let method = "/insula.admin.v1.ConversionService/Recompute";
        let page: RecomputeResponse = client.call(method, &request).await?;
        report.examined += page.examined;
        for object in page.objects {
            report.objects.push(Object::read(object)?);
        }
        progress.show(&format!("{} {} examined", report.examined, report.resource));
        if page.next_page_token.is_empty() {
            return Ok(report);
        }
        request.page_token = page.next_page_token;
    }
}

impl Object {
    fn read(object: RecomputedObject) -> anyhow::Result<Object> {
        let state = match object.state() {
            RecomputeState::Differs => "differs",
            RecomputeState::Kept => "kept",
            RecomputeState::OtherRules => "otherRules",
            RecomputeState::Unknown => "unknown",
            RecomputeState::Failed => "failed",
            RecomputeState::Recomputed => "recomputed",
            RecomputeState::Unspecified => bail!("the server is newer than this tool: unknown state {}", object.state),
        };
        let fields = |fields: Vec<FieldDifference>| fields.into_iter().map(Field::read).collect::<anyhow::Result<_>>();
        let writers = object.writers.into_iter().map(|writer| Writer {
            version: writer.version,
            rules: writer.rules,
        });
        Ok(Object {
            state,
            writers: writers.collect(),
            changes: fields(object.changes)?,
            kept: fields(object.kept)?,
            workspace: object.workspace,
            cluster: object.cluster,
            namespace: object.namespace,
            name: object.name,
            resource_version: object.resource_version,
            message: object.message,
        })
    }

    /// Returns true for an object that wants something to be done.
    fn is_open(&self) -> bool {
        matches!(self.state, "differs" | "otherRules" | "failed")
    }

    fn lines(&self) -> Vec<String> {
        let name = match self.namespace.as_str() {
            "" => self.name.clone(),
            namespace => format!("{namespace}/{}", self.name),
        };
        let writers: Vec<String> = self
            .writers
            .iter()
            .map(|writer| match writer.rules.as_str() {
                "" => format!("as {}", writer.version),
                rules => format!("as {} by {rules}", writer.version),
            })
            .collect();
        let what = match self.state {
            "differs" => "differs",
            "kept" => "written since, stays",
            "otherRules" => "other rules, give them with --old",
            "unknown" => "does not record its rules",
            "recomputed" => "recomputed",
            _ => self.message.as_str(),
        };
        let mut lines = vec![format!(
            "  {name} in {}, written {}: {what}",
            self.workspace,
            writers.join(", ")
        )];
        lines.extend(
            self.changes
                .iter()
                .take(FIELDS_MAX)
                .map(|field| format!("    {}", field.line())),
        );
        if self.changes.len() > FIELDS_MAX {
            lines.push(format!("    and {} more fields", self.changes.len() - FIELDS_MAX));
        }
        let kept = self.kept.iter().take(FIELDS_MAX);
        lines.extend(kept.map(|field| format!("    stays: {}", field.line())));
        lines
    }
}

impl Field {
    fn read(field: FieldDifference) -> anyhow::Result<Field> {
        let value = |text: &str| match text {
            "" => Ok(None),
            text => serde_json::from_str(text).map(Some).context("the answer is malformed"),
        };
        Ok(Field {
            was: value(&field.was)?,
            is: value(&field.is)?,
            version: field.version,
            path: field.path,
        })
    }

    fn line(&self) -> String {
        let value = |value: &Option<Value>| value.as_ref().map_or_else(|| "absent".to_owned(), Value::to_string);
        format!(
            "{} {}: {} → {}",
            self.version,
            self.path,
            value(&self.was),
            value(&self.is)
        )
    }
}

impl Report {
    fn count(&self, state: &str) -> usize {
        self.objects.iter().filter(|object| object.state == state).count()
    }

    /// Formats the outcome, a line each.
    fn lines(&self) -> Vec<String> {
        let clusters: BTreeSet<&String> = self.objects.iter().map(|object| &object.cluster).collect();
        let counts = [
            ("differs", "differ"),
            ("recomputed", "recomputed"),
            ("otherRules", "written by rules that are not known"),
            ("failed", "not recomputed"),
            ("kept", "written since"),
            ("unknown", "without a record of their rules"),
        ];
        let counts = counts.iter().map(|(state, words)| (self.count(state), words));
        let counts: Vec<String> = counts
            .filter(|(count, _)| *count > 0)
            .map(|(count, words)| format!("{count} {words}"))
            .collect();
        let api = format!("{}.{}", self.resource, self.group);
        if counts.is_empty() {
            return vec![format!(
                "{api}: all {} objects are as today's rules make them",
                self.examined
            )];
        }
        let mut lines = vec![format!(
            "{api}: of {} objects {}, in {} workspaces",
            self.examined,
            counts.join(", "),
            clusters.len()
        )];
        lines.extend(self.objects.iter().take(LISTED_MAX).flat_map(Object::lines));
        if self.objects.len() > LISTED_MAX {
            lines.push(format!(
                "  and {} more: -o json lists all",
                self.objects.len() - LISTED_MAX
            ));
        }
        lines
    }
}
