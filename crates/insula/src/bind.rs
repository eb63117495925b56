//! `insula bind apiexport`: an APIBinding, and the wait until it serves.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use clap::Subcommand;
use insula_api::ClusterPath;
use insula_catalog::exports::bind_grant;
use serde_json::{Value, json};

use crate::{
    admin::{DryRun, Etag},
    claims::{self, BINDINGS, State, Which},
    client::{Client, message},
    connection::{Connection, Resolved},
    duration,
    files::text,
    print::Output,
};

/// Collection of the APIExports of a workspace.
const EXPORTS: &str = "/apis/apis.kcp.io/v1alpha2/apiexports";
const INTERVAL: Duration = Duration::from_millis(50);
/// Reasons of conditions that waiting does not change.
const FINAL_REASONS: [&str; 2] = ["NamingConflicts", "APIExportNotFound"];

/// Binds APIs of other workspaces.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Bind an APIExport in the workspace, and wait until its APIs are served.
    Apiexport(Export),
}

#[derive(clap::Args)]
#[command(after_help = "\
Exit codes:
  0  bound
  2  there is no such export, it may not be bound, or it is not bound in time; 1 as a plugin")]
struct Export {
    /// The export, with the absolute path of its workspace: root:provider:widgets.
    #[arg(value_name = "WORKSPACE:NAME")]
    export: String,
    /// The APIBinding [default: the name of the export].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Longest wait until it is bound.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    timeout: Duration,
    /// Permission claims to accept, as secrets.core or gateways.example.io, commas between.
    #[arg(
        long = "accept-permission-claim",
        value_name = "RESOURCE.GROUP",
        value_delimiter = ','
    )]
    accept: Vec<String>,
    /// Permission claims to reject.
    #[arg(
        long = "reject-permission-claim",
        value_name = "RESOURCE.GROUP",
        value_delimiter = ','
    )]
    reject: Vec<String>,
    /// Accept all permission claims, with the verbs that the export asks for.
    #[arg(long, conflicts_with_all = ["accept", "reject", "reject_all_permission_claims"])]
    accept_all_permission_claims: bool,
    /// Reject all permission claims.
    #[arg(long, conflicts_with_all = ["accept", "reject"])]
    reject_all_permission_claims: bool,
    #[command(flatten)]
    dry_run: DryRun,
    #[command(flatten)]
    output: Output,
}

pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    let Command::Apiexport(export) = &arguments.command;
    crate::ended(run(&arguments.connection, export).map(|()| ExitCode::SUCCESS))
}

fn run(connection: &Connection, arguments: &Export) -> anyhow::Result<()> {
    let reference = arguments.export.strip_prefix(':').unwrap_or(&arguments.export);
    let parts = reference
        .rsplit_once(':')
        .filter(|(path, _)| ClusterPath::parse(path).is_ok());
    let Some((path, name)) = parts else {
        bail!(
            "fully qualified reference to workspace where APIExport exists is required. The format is \
             `<logical-cluster-name>:<apiexport>` or `<full>:<path>:<to>:<apiexport>`"
        );
    };
    let answers = answers(arguments)?;
    let resolved = connection.resolve()?;
    resolved.url.current()?;
    let client = Client::new(&resolved)?;
    let binding = arguments.name.as_deref().unwrap_or(name);
    crate::runtime()?.block_on(async {
        check_claims(&client, &resolved, (path, name), &answers).await?;
        let checking = arguments.dry_run.client(&client);
        let made = create(&checking, &resolved, (path, name), binding).await?;
        if arguments.dry_run.dry_run {
            let remark = arguments.dry_run.remark();
            arguments
                .output
                .note(&format!("apibinding {binding} created{remark}"))?;
            return arguments.output.stored(&made);
        }
        arguments.output.note(&format!(
            "apibinding {binding} created. Waiting to successfully bind ..."
        ))?;
        let mut bound = wait(&client, binding, arguments.timeout).await?;
        if !answers.is_empty() {
            let answered = claims::answer(&client, binding, &answers, &Etag::default()).await;
            bound = answered.with_context(|| {
                format!(
                    "{binding} is bound, without an answer to claims; give it with `insula claims accept {binding}`"
                )
            })?;
        }
        arguments.output.note(&format!("{binding} created and bound."))?;
        arguments.output.stored(&bound)
    })
}

/// Returns the answers that the flags give.
fn answers(arguments: &Export) -> anyhow::Result<Vec<(Which, State)>> {
    let mut answers = Vec::new();
    for (claims, state) in [
        (&arguments.accept, State::Accepted),
        (&arguments.reject, State::Rejected),
    ] {
        for claim in claims {
            if !claim.contains('.') {
                bail!("invalid permission claim {claim:?}: write it as resource.group, as in secrets.core");
            }
            answers.push((Which::resource(claim), state));
        }
    }
    if let Some(both) = arguments.accept.iter().find(|claim| arguments.reject.contains(claim)) {
        bail!("accepted permission claim {both} conflicts with rejected permission claim {both}");
    }
    if arguments.accept_all_permission_claims {
        answers.push((Which::All, State::Accepted));
    }
    if arguments.reject_all_permission_claims {
        answers.push((Which::All, State::Rejected));
    }
    Ok(answers)
}

/// Refuses answers to claims that the export does not make, before anything is written. An export
/// that the user may bind and not read is checked once it is bound.
async fn check_claims(
    client: &Client,
    resolved: &Resolved,
    (path, name): (&str, &str),
    answers: &[(Which, State)],
) -> anyhow::Result<()> {
    if answers.is_empty() {
        return Ok(());
    }
    let provider = client.at_url(&resolved.url.for_workspace(path));
    let (code, export) = provider.get(&format!("{EXPORTS}/{name}")).await?;
    match code.as_u16() {
        200 => claims::check(&export["spec"]["permissionClaims"], answers),
        _ => Ok(()),
    }
}

async fn create(
    client: &Client,
    resolved: &Resolved,
    (path, name): (&str, &str),
    binding: &str,
) -> anyhow::Result<Value> {
    let wanted = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": binding},
        "spec": {"reference": {"export": {"path": path, "name": name}}},
    });
    let (code, answer) = client.post(BINDINGS, &wanted).await?;
    if code.is_success() {
        return Ok(answer);
    }
    let mut why = message(&answer);
    if answer["reason"] == "AlreadyExists" {
        let (_, there) = client.get(&format!("{BINDINGS}/{binding}")).await?;
        let export = &there["spec"]["reference"]["export"];
        let (path, name) = (text(export, "/path"), text(export, "/name"));
        why += &format!("; it binds {path}:{name}: choose another --name, or delete it first");
    } else if is_nowhere(client, resolved, path).await? {
        let nowhere = format!("; there is no workspace {path}, or you may not read it");
        // The way to the right has several lines, and stays last.
        let end = why.find(&format!("; {}", bind_grant::WAY)).unwrap_or(why.len());
        why.insert_str(end, &nowhere);
    }
    bail!("failed to create APIBinding: {why}")
}

/// Returns true if the export's workspace is not there, or the user may not know.
async fn is_nowhere(client: &Client, resolved: &Resolved, path: &str) -> anyhow::Result<bool> {
    let provider = client.at_url(&resolved.url.for_workspace(path));
    let (code, _) = provider.get(&format!("{EXPORTS}?limit=1")).await?;
    Ok(code == 404)
}

/// Waits until the binding is bound, and returns it.
///
/// # Errors
/// It cannot be bound, or not in time. The message has the conditions that do not hold.
async fn wait(client: &Client, binding: &str, timeout: Duration) -> anyhow::Result<Value> {
    let begun = Instant::now();
    loop {
        let (code, found) = client.get(&format!("{BINDINGS}/{binding}")).await?;
        if !code.is_success() {
            bail!("could not bind {binding}: {}", message(&found));
        }
        if text(&found, "/status/phase") == "Bound" {
            return Ok(found);
        }
        let conditions = found["status"]["conditions"].as_array().into_iter().flatten();
        let open = conditions.filter(|condition| condition["status"] != "True");
        let is_final = open.clone().any(|it| FINAL_REASONS.contains(&text(it, "/reason")));
        if is_final || begun.elapsed() > timeout {
            bail!("could not bind {binding}: {}", why(open.cloned().collect()));
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

fn why(conditions: Vec<Value>) -> String {
    let mut messages: Vec<&str> = conditions.iter().map(|it| text(it, "/message")).collect();
    messages.retain(|message| !message.is_empty());
    messages.dedup();
    match messages.as_slice() {
        [] => "timed out waiting for the condition".to_owned(),
        messages => messages.join("; "),
    }
}
