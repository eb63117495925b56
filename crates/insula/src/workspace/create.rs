//! `insula ws create` and `insula create-workspace`.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::{WORKSPACES, context, enter, refused, type_of};
use crate::{
    admin::DryRun,
    client::{Client, message},
    connection::Connection,
    files::text,
    print::Output,
};

/// Longest wait for a workspace to become ready, as kcp's plugin waits.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
const READY_INTERVAL: Duration = Duration::from_millis(50);

/// Creates a workspace below the current one, and waits until it is ready.
#[derive(clap::Args)]
pub(crate) struct Create {
    #[command(flatten)]
    pub(super) connection: Connection,
    #[command(flatten)]
    pub(super) options: Options,
}

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The workspace to create.
    #[arg(value_name = "NAME")]
    name: String,
    /// The type: a name of this workspace or of those above it, or with its path, as in
    /// root:universal [default: the parent's default].
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Enter the workspace.
    #[arg(long, conflicts_with = "dry_run")]
    enter: bool,
    /// Accept a workspace that exists. Needs an absolute type, or none.
    #[arg(long)]
    ignore_existing: bool,
    /// Labels of the shard to create the workspace on: key=value, commas between.
    #[arg(long, value_name = "LABELS")]
    location_selector: Option<String>,
    /// Create a context of the kubeconfig for the workspace.
    #[arg(long, value_name = "CONTEXT", conflicts_with = "dry_run")]
    create_context: Option<String>,
    #[command(flatten)]
    dry_run: DryRun,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(connection: &Connection, options: &Options) -> anyhow::Result<()> {
    let mut resolved = connection.resolve()?;
    let parent = resolved.url.current()?.to_owned();
    let wanted = manifest(options)?;
    let client = options.dry_run.client(&Client::new(&resolved)?);
    crate::runtime()?.block_on(async {
        let ready = create(&client, &parent, &wanted, options).await?;
        let output = options.output;
        if options.dry_run.dry_run {
            return output.stored(&ready);
        }
        output.note(&format!("{} is ready to use.", reference(&ready)))?;
        let path = format!("{parent}:{}", options.name);
        if let Some(name) = &options.create_context {
            resolved.enter(&path);
            output.note(&context::write(
                &resolved,
                name,
                options.ignore_existing,
                !options.enter,
            )?)?;
        } else if options.enter {
            let entered = enter::go(&client, &resolved, &path, false).await?;
            entered.map_or(Ok(()), |line| output.note(&line))?;
        }
        output.stored(&ready)
    })
}

fn reference(workspace: &Value) -> String {
    let name = text(workspace, "/metadata/name");
    format!("Workspace {name:?} (type {})", type_of(workspace))
}

/// Creates the workspace, or finds it, and waits until it is ready, unless nothing is made.
async fn create(client: &Client, parent: &str, wanted: &Value, options: &Options) -> anyhow::Result<Value> {
    let (code, mut answer) = client.post(WORKSPACES, wanted).await?;
    let one = format!("{WORKSPACES}/{}", options.name);
    let is_there = code == 409 && answer["reason"] == "AlreadyExists" && options.ignore_existing;
    if is_there {
        let (code, found) = client.get(&one).await?;
        if !code.is_success() {
            return Err(refused(&found));
        }
        answer = found;
        let given = type_of(wanted);
        if !given.is_empty() && given != type_of(&answer) {
            bail!(
                "workspace {:?} cannot be created with type {given}, it already exists with different type {}",
                options.name,
                type_of(&answer)
            );
        }
    } else if !code.is_success() {
        let why = message(&answer);
        let fix = match &options.kind {
            _ if answer["reason"] == "AlreadyExists" => ": --ignore-existing accepts it",
            Some(kind) if why.contains("cannot be resolved") && !kind.contains(':') => {
                "; name a type of another workspace with its path, as --type root:org:special"
            }
            Some(_) if why.contains("cannot be resolved") => "; it is not there, or you may not use it",
            _ => "",
        };
        bail!("{why}; in workspace {parent}{fix}");
    }
    let what = if is_there { "already exists" } else { "created" };
    if options.dry_run.dry_run {
        let remark = options.dry_run.remark();
        options
            .output
            .note(&format!("{} {what}{remark}.", reference(&answer)))?;
        return Ok(answer);
    }
    let is_ready = |workspace: &Value| text(workspace, "/status/phase") == "Ready";
    match (is_ready(&answer), is_there) {
        (true, true) => options.output.note(&format!("{} {what}.", reference(&answer)))?,
        (true, false) => {}
        (false, _) => options
            .output
            .note(&format!("{} {what}. Waiting for it to be ready...", reference(&answer)))?,
    }
    let begun = Instant::now();
    while !is_ready(&answer) {
        if begun.elapsed() > READY_TIMEOUT {
            bail!(
                "workspace {:?} is not ready after {} s: {}",
                options.name,
                READY_TIMEOUT.as_secs(),
                why(&answer)
            );
        }
        tokio::time::sleep(READY_INTERVAL).await;
        let (code, found) = client.get(&one).await?;
        if !code.is_success() {
            return Err(refused(&found));
        }
        answer = found;
    }
    Ok(answer)
}

/// Returns the phase, and the conditions that do not hold.
fn why(workspace: &Value) -> String {
    let conditions = workspace["status"]["conditions"].as_array().into_iter().flatten();
    let open = conditions.filter(|condition| condition["status"] != "True");
    let open = open.map(|it| format!("; {}: {}", text(it, "/type"), text(it, "/message")));
    format!(
        "its phase is {}{}",
        text(workspace, "/status/phase"),
        open.collect::<String>()
    )
}

fn manifest(options: &Options) -> anyhow::Result<Value> {
    let mut workspace = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": options.name}, "spec": {},
    });
    if let Some(kind) = &options.kind {
        if options.ignore_existing && kind != "root" && !kind.starts_with("root:") {
            bail!("--ignore-existing must not be used with non-absolute type path");
        }
        workspace["spec"]["type"] = match kind.rsplit_once(':') {
            Some((path, name)) => json!({"path": path, "name": name.to_lowercase()}),
            None => json!({"name": kind.to_lowercase()}),
        };
    }
    if let Some(selector) = &options.location_selector {
        let labels: Option<BTreeMap<&str, &str>> = selector.split(',').map(|pair| pair.split_once('=')).collect();
        let labels = labels.with_context(|| format!("invalid location selector: {selector:?} is not key=value"))?;
        workspace["spec"]["location"] = json!({"selector": {"matchLabels": labels}});
    }
    Ok(workspace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::print::Format;

    fn options(kind: &str, selector: Option<&str>, ignore_existing: bool) -> Options {
        Options {
            name: "a".to_owned(),
            kind: Some(kind.to_owned()).filter(|kind| !kind.is_empty()),
            enter: false,
            ignore_existing,
            location_selector: selector.map(str::to_owned),
            create_context: None,
            dry_run: DryRun { dry_run: false },
            output: Output { format: Format::Table },
        }
    }

    #[test]
    fn types_and_selectors_are_split() {
        let spec = |options: &Options| manifest(options).unwrap()["spec"].clone();
        assert_eq!(spec(&options("", None, true)), json!({}));
        assert_eq!(spec(&options("Team", None, false))["type"], json!({"name": "team"}));
        let kind = json!({"path": "root:org", "name": "team"});
        assert_eq!(spec(&options("root:org:Team", None, true))["type"], kind);
        let labels = json!({"selector": {"matchLabels": {"a": "b", "c": "d"}}});
        assert_eq!(spec(&options("", Some("a=b,c=d"), false))["location"], labels);
        manifest(&options("", Some("a"), false)).unwrap_err();
        manifest(&options("team", None, true)).unwrap_err();
    }
}
