//! `insula apis`: the APIs that the workspace can bind.

mod requests;

use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;
use insula_api::ClusterPath;
use insula_proto::admin::v1::{
    ApiRequestState, GetApiRequest, GetApiResponse, ListApisRequest, ListApisResponse, OfferedApi, PermissionClaim,
    VersionedResource,
};
use serde::Serialize;

use crate::{
    admin::Admin,
    client::Client,
    connection::Connection,
    print::{Cell, Format, Output, Printer, Table, Tone},
};

/// APIs of a page.
const PAGE: i32 = 500;

/// Lists the APIs of all workspaces that you may bind in the current workspace, with their
/// versions, owners and documents.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Exit codes:
  0  printed
  1  there is nothing to list
  2  the server refuses or cannot be reached, or a flag is wrong"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// List also APIs that you may not bind yet, and whose owners list them for everybody.
    #[arg(long)]
    all: bool,
    /// Format of the output.
    #[arg(long, short, value_enum, global = true, default_value_t = Format::Table)]
    output: Format,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Show one API: resources, versions, permission claims, and how to bind it.
    Show {
        /// The export, with the absolute path of its workspace: root:provider:widgets.
        #[arg(value_name = "WORKSPACE:NAME")]
        export: String,
    },
    /// Ask the owner of an API for the right to bind it.
    Request(requests::Request),
    /// List the requests for the exports of the workspace, or with --mine your own.
    Requests(requests::List),
    /// Approve a request: the user who asks, or a group of theirs, gets the right to bind.
    Approve(requests::Approve),
    /// Deny a request.
    Deny(requests::Decide),
}

/// An API, for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    export: &'a str,
    workspace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    title: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    docs: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    owner: &'a str,
    resources: Vec<Resource<'a>>,
    permission_claims: Vec<RequestedClaim<'a>>,
    bindable: bool,
    requestable: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    request: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    binding: &'a str,
}

#[derive(Serialize)]
struct Resource<'a> {
    group: &'a str,
    resource: &'a str,
    kind: &'a str,
    versions: Vec<Version<'a>>,
}

#[derive(Serialize)]
struct Version<'a> {
    name: &'a str,
    deprecated: bool,
}

#[derive(Serialize)]
struct RequestedClaim<'a> {
    group: &'a str,
    resource: &'a str,
    verbs: &'a [String],
}

impl<'a> Row<'a> {
    fn new(api: &'a OfferedApi) -> Self {
        let version = |version: &'a insula_proto::admin::v1::OfferedVersion| Version {
            name: &version.name,
            deprecated: version.deprecated,
        };
        let resource = |resource: &'a VersionedResource| Resource {
            group: &resource.group,
            resource: &resource.resource,
            kind: &resource.kind,
            versions: resource.versions.iter().map(version).collect(),
        };
        let claim = |claim: &'a PermissionClaim| RequestedClaim {
            group: &claim.group,
            resource: &claim.resource,
            verbs: &claim.verbs,
        };
        Row {
            export: &api.export,
            workspace: &api.workspace,
            title: &api.title,
            description: &api.description,
            docs: &api.docs,
            owner: &api.owner,
            resources: api.resources.iter().map(resource).collect(),
            permission_claims: api.claims.iter().map(claim).collect(),
            bindable: api.bindable,
            requestable: api.requestable,
            request: api.request.as_ref().map_or("", |request| &request.name),
            binding: &api.binding,
        }
    }
}

pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    crate::ended(run(arguments))
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let output = Output {
        format: arguments.output,
    };
    let admin = || Admin::in_workspace(&arguments.connection);
    match &arguments.command {
        Some(Command::Request(request)) => requests::request(&admin()?, output, request),
        Some(Command::Requests(list)) => requests::list(&admin()?, output, list),
        Some(Command::Approve(approve)) => requests::approve(&admin()?, output, approve),
        Some(Command::Deny(decide)) => requests::deny(&admin()?, output, decide),
        Some(Command::Show { export }) => offers(arguments, Some(export)),
        None => offers(arguments, None),
    }
}

/// Shows one API, or lists all.
fn offers(arguments: &Arguments, export: Option<&str>) -> anyhow::Result<ExitCode> {
    let resolved = arguments.connection.resolve()?;
    let workspace = resolved.url.current()?.to_owned();
    let client = Client::new(&resolved)?;
    let mut printer = Printer::stdout();
    let code = crate::runtime()?.block_on(async {
        match export {
            Some(export) => {
                let api = get(&client, &workspace, export).await?;
                if !printer.named(arguments.output, &Row::new(&api), [reference(&api)])? {
                    show(&mut printer, &api)?;
                }
                anyhow::Ok(ExitCode::SUCCESS)
            }
            None => {
                let apis = list(&client, &workspace, arguments.all).await?;
                let rows: Vec<Row<'_>> = apis.iter().map(Row::new).collect();
                match printer.named(arguments.output, &rows, apis.iter().map(reference))? {
                    true => return Ok(ExitCode::SUCCESS),
                    false if apis.is_empty() => eprintln!("note: there is no API that you may bind in {workspace}"),
                    false => printer.table(&table(&apis, arguments.output))?,
                }
                Ok(ExitCode::from(u8::from(apis.is_empty())))
            }
        }
    })?;
    printer.flush()?;
    Ok(code)
}

/// Returns the export as `insula bind apiexport` takes it.
fn reference(api: &OfferedApi) -> String {
    format!("{}:{}", api.workspace, api.export)
}

/// Reads all pages.
async fn list(client: &Client, workspace: &str, listed: bool) -> anyhow::Result<Vec<OfferedApi>> {
    let (mut apis, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListApisRequest {
            workspace: workspace.to_owned(),
            listed,
            page_size: PAGE,
            page_token,
        };
        let page: ListApisResponse = client.call("/insula.admin.v1.ApiService/ListApis", &request).await?;
        apis.extend(page.apis);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(apis);
        }
    }
}

/// Splits an export into the path of its workspace and its name.
fn parts(export: &str) -> anyhow::Result<(&str, &str)> {
    let reference = export.strip_prefix(':').unwrap_or(export);
    let parts = reference.rsplit_once(':');
    match parts.filter(|(path, _)| ClusterPath::parse(path).is_ok()) {
        Some(parts) => Ok(parts),
        None => {
            bail!("{export:?} names no workspace: write the path of its workspace, too, as in root:provider:widgets")
        }
    }
}

async fn get(client: &Client, workspace: &str, export: &str) -> anyhow::Result<OfferedApi> {
    let (path, name) = parts(export)?;
    let request = GetApiRequest {
        workspace: workspace.to_owned(),
        export_workspace: path.to_owned(),
        export: name.to_owned(),
    };
    let answer: GetApiResponse = client.call("/insula.admin.v1.ApiService/GetApi", &request).await?;
    Ok(answer.api.unwrap_or_default())
}

fn full(group: &str, resource: &str) -> String {
    match group {
        "" => resource.to_owned(),
        group => format!("{resource}.{group}"),
    }
}

/// Returns the versions of a resource, with a remark on deprecated ones.
fn versions(resource: &VersionedResource) -> String {
    let one = |version: &insula_proto::admin::v1::OfferedVersion| match version.deprecated {
        true => format!("{} (deprecated)", version.name),
        false => version.name.clone(),
    };
    resource.versions.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Returns the state of an API in the workspace.
fn state(api: &OfferedApi) -> Cell {
    match (api.binding.as_str(), api.bindable, &api.request) {
        ("", true, _) => Cell::new(Tone::Good, "may bind"),
        ("", false, Some(request)) if request.state() != ApiRequestState::Granted => {
            let (tone, state) = requests::state(request);
            Cell::new(tone, format!("request {state}"))
        }
        ("", false, _) if api.requestable => Cell::new(Tone::Warn, "may ask"),
        ("", false, _) => Cell::new(Tone::Warn, "ask its owner"),
        (binding, ..) => Cell::new(Tone::Dim, format!("bound by {binding}")),
    }
}

fn or_dash(text: &str) -> Cell {
    match text {
        "" => Cell::new(Tone::Dim, "-"),
        text => text.into(),
    }
}

/// Returns the claims of an export.
fn claims(api: &OfferedApi) -> Vec<String> {
    let claims = api.claims.iter();
    claims
        .map(|claim| format!("{}: {}", full(&claim.group, &claim.resource), claim.verbs.join(" ")))
        .collect()
}

/// Returns the table of the APIs; only the wide one has what their owners say about them.
fn table(apis: &[OfferedApi], format: Format) -> Table {
    let columns = [
        "API",
        "RESOURCES",
        "TITLE",
        "OWNER",
        "STATE",
        "DESCRIPTION",
        "DOCUMENTS",
        "CLAIMS",
    ];
    let mut table = Table::new(&columns);
    for api in apis {
        let mut resources = api.resources.iter().map(|resource| {
            let name = full(&resource.group, &resource.resource);
            format!("{name} {}", versions(resource))
        });
        table.row(vec![
            reference(api).into(),
            or_dash(&resources.next().unwrap_or_default()),
            or_dash(&api.title),
            or_dash(&api.owner),
            state(api),
            or_dash(&api.description),
            or_dash(&api.docs),
            Cell::list(Tone::Plain, &claims(api)),
        ]);
        for more in resources {
            let mut row = vec![Cell::from(""); columns.len()];
            row[1] = more.into();
            table.row(row);
        }
    }
    if format != Format::Wide {
        table.keep_columns(5);
    }
    table
}

fn show(printer: &mut Printer<impl std::io::Write>, api: &OfferedApi) -> anyhow::Result<()> {
    let export = reference(api);
    let mut line = |name: &str, cell: Cell| match cell.is_empty() {
        true => Ok(()),
        false => printer.line(&[format!("{name:<12}").into(), cell]),
    };
    line("API", export.as_str().into())?;
    line("Title", api.title.as_str().into())?;
    line("Description", api.description.as_str().into())?;
    line("Owner", api.owner.as_str().into())?;
    line("Documents", api.docs.as_str().into())?;
    for resource in &api.resources {
        let name = full(&resource.group, &resource.resource);
        line("Resource", format!("{name}: {}", versions(resource)).into())?;
    }
    for claim in &api.claims {
        let name = full(&claim.group, &claim.resource);
        line("Claim", format!("{name}: {}", claim.verbs.join(", ")).into())?;
    }
    line("State", state(api))?;
    if let Some(request) = &api.request {
        line("Request", request.name.as_str().into())?;
        line("Answer", request.message.as_str().into())?;
    }
    if api.requestable && api.request.is_none() && api.binding.is_empty() {
        let command = format!("insula apis request {export} --reason TEXT");
        line("To ask", command.into())?;
    }
    if api.bindable && api.binding.is_empty() {
        line("To bind it", format!("insula bind apiexport {export}").into())?;
    }
    Ok(())
}
