//! `insula status`: the server, its version and health, and the current workspace.

use std::process::ExitCode;

use anyhow::bail;
use insula_proto::admin::v1::{GetInfoRequest, GetInfoResponse, Storage, StorageShare};
use serde::Serialize;

use crate::{
    client::Client,
    connection::{Connection, Resolved},
    files::text,
    print::{Cell, Format, Printer, Tone},
};

/// Workspaces, and owners, that a line names.
const SHOWN_MAX: usize = 3;

/// Shows the server, its version and health, who you are there, and the current workspace.
#[derive(clap::Args)]
#[command(after_help = "\
Exit codes:
  0  the server is ready
  1  the server answers, and is not ready
  2  the server cannot be reached, or a flag is wrong")]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// Format of the output.
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    pub(crate) server: String,
    pub(crate) ready: bool,
    /// Checks that fail.
    failing: Vec<String>,
    pub(crate) version: String,
    pub(crate) kubernetes: String,
    store: String,
    user: String,
    groups: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<Workspace>,
    /// Storage and its largest users; unknown to users who may not read the metrics of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    storage: Option<Stored>,
    /// The version of this program.
    pub(crate) client: &'static str,
}

#[derive(Debug, Serialize)]
struct Workspace {
    path: String,
    phase: String,
    /// Workspaces directly below it; unknown to users who may not list them.
    #[serde(skip_serializing_if = "Option::is_none")]
    below: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    objects: i64,
    bytes: i64,
    /// Bytes that one workspace and one owner may store; none for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_workspace: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_owner: Option<i64>,
    /// The largest first.
    workspaces: Vec<StoredShare>,
    owners: Vec<StoredShare>,
}

#[derive(Debug, Serialize)]
struct StoredShare {
    name: String,
    objects: i64,
    bytes: i64,
}

impl From<Storage> for Stored {
    fn from(storage: Storage) -> Self {
        let limit = |bytes: i64| (bytes > 0).then_some(bytes);
        let share = |share: StorageShare| StoredShare {
            name: if share.path.is_empty() { share.name } else { share.path },
            objects: share.objects,
            bytes: share.bytes,
        };
        Stored {
            objects: storage.objects,
            bytes: storage.bytes,
            bytes_per_workspace: limit(storage.bytes_per_workspace),
            bytes_per_owner: limit(storage.bytes_per_owner),
            workspaces: storage.workspaces.into_iter().map(share).collect(),
            owners: storage.owners.into_iter().map(share).collect(),
        }
    }
}

pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    crate::ended(run(arguments))
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let resolved = arguments.connection.resolve()?;
    let status = crate::runtime()?.block_on(read(&resolved))?;
    let mut printer = Printer::stdout();
    if !printer.document(arguments.output, &status)? {
        for (name, cell) in lines(&status) {
            printer.line(&[format!("{name:<12}").into(), cell])?;
        }
    }
    printer.flush()?;
    Ok(ExitCode::from(u8::from(!status.ready)))
}

/// Reads the status of a server.
///
/// # Errors
/// The server does not answer.
pub(crate) async fn read(resolved: &Resolved) -> anyhow::Result<Status> {
    let client = Client::new(resolved)?;
    let (code, health) = client.at_url(resolved.url.base()).get("/readyz?verbose").await?;
    let failing = health.as_str().unwrap_or_default().lines();
    let failing = failing.filter_map(|line| line.strip_prefix("[-]")).map(str::to_owned);
    let mut status = Status {
        server: resolved.url.base().to_owned(),
        ready: code.is_success(),
        failing: failing.collect(),
        client: insula_server::VERSION,
        ..Status::default()
    };
    let info: anyhow::Result<GetInfoResponse> = client
        .call("/insula.admin.v1.ClusterService/GetInfo", &GetInfoRequest {})
        .await;
    match info {
        Ok(info) => {
            status.version = info.version;
            status.kubernetes = info.kubernetes_version;
            status.store = info.store;
            let caller = info.caller.unwrap_or_default();
            (status.user, status.groups) = (caller.username, caller.groups);
            status.storage = info.storage.map(Stored::from);
        }
        // A server of another kind, or one that refuses the credentials.
        Err(_) => {
            let (code, version) = client.at_url(resolved.url.base()).get("/version").await?;
            if !code.is_success() {
                bail!("{} answers {code}: check the credentials of the context", status.server);
            }
            text(&version, "/gitVersion").clone_into(&mut status.kubernetes);
        }
    }
    if let Some(path) = resolved.url.workspace() {
        status.workspace = Some(workspace(&client, path).await?);
    }
    Ok(status)
}

async fn workspace(client: &Client, path: &str) -> anyhow::Result<Workspace> {
    let (code, own) = client.get("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster").await?;
    let phase = match code.as_u16() {
        200 => text(&own, "/status/phase").to_owned(),
        404 => "not found".to_owned(),
        _ => "may not be read".to_owned(),
    };
    let (code, list) = client.get("/apis/tenancy.kcp.io/v1alpha1/workspaces?limit=1").await?;
    let below = code.is_success().then(|| {
        let first = list["items"].as_array().map_or(0, Vec::len) as u64;
        first + list["metadata"]["remainingItemCount"].as_u64().unwrap_or_default()
    });
    Ok(Workspace {
        path: path.to_owned(),
        phase,
        below,
    })
}

fn lines(status: &Status) -> Vec<(&'static str, Cell)> {
    let health = match (status.ready, status.failing.as_slice()) {
        (true, _) => Cell::new(Tone::Good, "ready"),
        (false, []) => Cell::new(Tone::Bad, "not ready"),
        (false, failing) => Cell::new(Tone::Bad, format!("not ready: {}", failing.join(", "))),
    };
    let version = match status.version.as_str() {
        "" => status.kubernetes.clone(),
        version => format!("{version} (Kubernetes {})", status.kubernetes),
    };
    let mut lines = vec![
        ("server", status.server.clone().into()),
        ("health", health),
        ("version", version.into()),
        ("client", status.client.into()),
    ];
    if !status.store.is_empty() {
        lines.push(("store", status.store.clone().into()));
        lines.push(("user", format!("{} ({})", status.user, status.groups.join(", ")).into()));
    }
    if let Some(Workspace { path, phase, below }) = &status.workspace {
        let below = below.map(|count| format!(", {count} below it")).unwrap_or_default();
        lines.push(("workspace", format!("{path}: {phase}{below}").into()));
    }
    if let Some(stored) = &status.storage {
        lines.push((
            "stored",
            format!("{} in {} objects", size(stored.bytes), stored.objects).into(),
        ));
        let largest = |shares: &[StoredShare], limit: Option<i64>| {
            let shares = shares.iter().take(SHOWN_MAX);
            let shares: Vec<String> = shares
                .map(|share| format!("{} {}", share.name, size(share.bytes)))
                .collect();
            let limit = limit
                .map(|limit| format!(" (of {} each)", size(limit)))
                .unwrap_or_default();
            (!shares.is_empty()).then(|| Cell::from(shares.join(", ") + &limit))
        };
        let workspaces = largest(&stored.workspaces, stored.bytes_per_workspace);
        lines.extend(workspaces.map(|cell| ("", cell)));
        let owners = largest(&stored.owners, stored.bytes_per_owner);
        lines.extend(owners.map(|cell| ("by owner", cell)));
    }
    lines
}

/// Formats a number of bytes with one digit after the point.
fn size(bytes: i64) -> String {
    let mut rest = bytes as f64;
    for unit in ["B", "KiB", "MiB"] {
        if rest < 1024.0 {
            return format!("{rest:.1} {unit}").replace(".0 ", " ");
        }
        rest /= 1024.0;
    }
    format!("{rest:.1} GiB")
}
