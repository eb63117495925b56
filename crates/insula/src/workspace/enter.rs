//! Changes of the current workspace.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::{
    WORKSPACES, client_for, current,
    path::{Goal, parse, top},
    refused, type_of,
};
use crate::{
    claims,
    client::{Client, message},
    connection::{Connection, Resolved, ServerFlags, ServerUrl},
    files::text,
    kubeconfig::{Edit, Entry, Put, Section},
    plugin, print,
};

/// Contexts of the kubeconfig, and clusters, with kcp's names.
const CURRENT: &str = "workspace.kcp.io/current";
const PREVIOUS: &str = "workspace.kcp.io/previous";
/// Longest wait for a home workspace that the server creates.
const HOME_TIMEOUT: Duration = Duration::from_secs(30);
const HOME_INTERVAL: Duration = Duration::from_millis(200);

/// Enters the workspace of an argument, or prints the current one.
pub(super) fn run(connection: &Connection, argument: Option<&str>, short: bool) -> anyhow::Result<()> {
    let resolved = connection.resolve()?;
    let home = std::env::var("HOME").ok();
    let goal = parse(argument, home.as_deref());
    let server = resolved.cluster.text("server").unwrap_or_default();
    match &goal {
        Goal::Current => return show(current(resolved.url.workspace(), server, None, short)),
        Goal::Previous => return back(connection, &resolved, short),
        Goal::Top | Goal::Home(_) | Goal::Path(_) => {}
    }
    let client = Client::new(&resolved)?;
    let runtime = crate::runtime()?;
    runtime.block_on(async {
        let path = match goal {
            Goal::Top => {
                let path = top(resolved.url.current()?).to_owned();
                return show(commit(&client, &resolved, &path, None, short).await?);
            }
            Goal::Home(below) => home_path(&client, &resolved, argument, &below).await?,
            Goal::Path(path) => {
                note_root(&path, short);
                resolved.url.resolve(&path)?
            }
            Goal::Current | Goal::Previous => return Ok(()),
        };
        show(go(&client, &resolved, &path, short).await?)?;
        if argument.is_none() && !short {
            let ws = plugin::command("ws");
            eprintln!(
                "Note: '{ws}' now matches 'cd' semantics: go to home workspace. '{ws} -' to go back. '{ws} .' to \
                 print current workspace."
            );
        }
        Ok(())
    })
}

/// Says, as kcp's plugin does, that absolute paths begin with a colon. `insula ws` takes both.
fn note_root(path: &str, short: bool) {
    if plugin::is_plugin() && !short && top(path) == "root" {
        eprintln!(
            "Note: Using 'root:' to define an absolute path is no longer supported. Instead, use ':root' to specify \
             an absolute path."
        );
    }
}

/// Prints the line about a workspace, if there is one.
pub(super) fn show(line: Option<String>) -> anyhow::Result<()> {
    line.map_or(Ok(()), |line| print::line(&line))
}

/// Enters a workspace that exists and that the user may enter. Returns the line about it.
pub(super) async fn go(
    client: &Client,
    resolved: &Resolved,
    path: &str,
    short: bool,
) -> anyhow::Result<Option<String>> {
    let kind = enterable(client, resolved, path).await?;
    commit(client, resolved, path, kind.as_deref(), short).await
}

/// Returns the type of a workspace that the user may enter, if the user may read it.
///
/// # Errors
/// The workspace is not there, or the user may not enter it.
pub(super) async fn enterable(client: &Client, resolved: &Resolved, path: &str) -> anyhow::Result<Option<String>> {
    match presence(client, resolved, path).await? {
        Presence::Open(kind) => Ok(kind),
        Presence::Missing => bail!("workspace {path:?} not found"),
        Presence::Closed => bail!("access to workspace {path:?} denied"),
        Presence::Unknown(why) => bail!("{why}"),
    }
}

/// A workspace as a user sees it.
pub(super) enum Presence {
    /// The user may enter it. The type, if the user may read it.
    Open(Option<String>),
    /// It is not there.
    Missing,
    /// The user may not enter it, or may not know that it is not there.
    Closed,
    /// The server does not know the user. Its message.
    Unknown(String),
}

/// Asks the server for a workspace.
pub(super) async fn presence(client: &Client, resolved: &Resolved, path: &str) -> anyhow::Result<Presence> {
    let there = client_for(client, resolved, path);
    let (code, groups) = there.get("/apis").await?;
    let is_open = match code.as_u16() {
        200 => groups["groups"].as_array().is_some_and(|groups| !groups.is_empty()),
        401 => return Ok(Presence::Unknown(message(&groups))),
        403 | 404 => false,
        _ => return Err(refused(&groups)),
    };
    let (is_missing, kind) = found(client, resolved, path).await?;
    Ok(match (is_open, is_missing) {
        (true, _) => Presence::Open(kind),
        (false, true) => Presence::Missing,
        (false, false) => Presence::Closed,
    })
}

/// Looks a workspace up in its parent. Returns true if it is not there, and its type if the user
/// may read it.
async fn found(client: &Client, resolved: &Resolved, path: &str) -> anyhow::Result<(bool, Option<String>)> {
    if path == "root" {
        return Ok((false, Some("root".to_owned())));
    }
    let Some((parent, name)) = path.rsplit_once(':').filter(|_| !path.starts_with("system:")) else {
        return Ok((false, None));
    };
    let (code, workspace) = client_for(client, resolved, parent)
        .get(&format!("{WORKSPACES}/{name}"))
        .await?;
    Ok(match code.as_u16() {
        200 => (false, Some(type_of(&workspace)).filter(|kind| !kind.is_empty())),
        404 => (true, None),
        _ => (false, None),
    })
}

/// Returns the path of the home workspace, or one below it. A workspace `home` below the current
/// one comes first.
async fn home_path(
    client: &Client,
    resolved: &Resolved,
    argument: Option<&str>,
    below: &str,
) -> anyhow::Result<String> {
    if argument == Some("home")
        && let Some(current) = resolved.url.workspace()
    {
        let one = format!("{WORKSPACES}/home");
        let (code, _) = client_for(client, resolved, current).get(&one).await?;
        if code == 200 {
            return Ok(format!("{current}:home"));
        }
    }
    let root = client_for(client, resolved, "root");
    let begun = Instant::now();
    loop {
        let (code, home) = root.get(&format!("{WORKSPACES}/~")).await?;
        if code == 200 {
            let url = ServerUrl::parse(text(&home, "/spec/URL"));
            let path = url.workspace().context("the home workspace has no URL")?;
            return resolved.url.resolve(&format!(":{path}{below}"));
        }
        // The server asks to come again while it creates the workspace.
        if code != 429 || begun.elapsed() > HOME_TIMEOUT {
            return Err(refused(&home));
        }
        tokio::time::sleep(HOME_INTERVAL).await;
    }
}

/// Writes the new current workspace, and returns the line about it.
async fn commit(
    client: &Client,
    resolved: &Resolved,
    path: &str,
    kind: Option<&str>,
    short: bool,
) -> anyhow::Result<Option<String>> {
    let url = resolved.url.for_workspace(path);
    let mut edit = Edit {
        puts: keep_previous(resolved)?,
        current: Some(CURRENT.to_owned()),
    };
    let mut cluster = resolved.cluster.clone();
    cluster.content["server"] = json!(url);
    let mut context = resolved.context.clone();
    context.content["cluster"] = json!(CURRENT);
    edit.puts.push(put(Section::Clusters, CURRENT, cluster));
    edit.puts.push(put(Section::Contexts, CURRENT, context));
    edit.write(&resolved.paths)?;
    for variable in ["INSULA_WORKSPACE", "INSULA_CONTEXT", "INSULA_SERVER"] {
        if std::env::var_os(variable).is_some() {
            eprintln!("note: {variable} is set: insula goes on where it says, kubectl in {path}");
        }
    }
    warn_of_claims(&client.at_url(&url)).await;
    Ok(current(Some(path), &url, kind, short))
}

/// Returns the entries that keep the kubeconfig's current context as the previous one.
fn keep_previous(resolved: &Resolved) -> anyhow::Result<Vec<Put>> {
    let kubeconfig = &resolved.kubeconfig;
    let Some(mut was) = kubeconfig.entry(Section::Contexts, kubeconfig.current()) else {
        return Ok(Vec::new());
    };
    let mut puts = Vec::new();
    if was.text("cluster") == Some(CURRENT) {
        let cluster = kubeconfig.entry(Section::Clusters, CURRENT);
        let cluster = cluster.with_context(|| format!("cluster {CURRENT:?} not found in kubeconfig"))?;
        puts.push(put(Section::Clusters, PREVIOUS, cluster));
        was.content["cluster"] = json!(PREVIOUS);
    }
    puts.push(put(Section::Contexts, PREVIOUS, was));
    Ok(puts)
}

/// Swaps the current and the previous context.
fn back(connection: &Connection, resolved: &Resolved, short: bool) -> anyhow::Result<()> {
    let kubeconfig = &resolved.kubeconfig;
    let previous = kubeconfig.entry(Section::Contexts, PREVIOUS);
    let mut previous = previous.context("no previous workspace found in kubeconfig")?;
    let mut puts = keep_previous(resolved)?;
    let name = previous.text("cluster").unwrap_or_default().to_owned();
    let cluster = kubeconfig.entry(Section::Clusters, &name);
    let cluster = cluster.with_context(|| format!("cluster {name:?} not found in kubeconfig"))?;
    let server = cluster.text("server").unwrap_or_default().to_owned();
    if name == PREVIOUS {
        previous.content["cluster"] = json!(CURRENT);
        puts.push(put(Section::Clusters, CURRENT, cluster));
    }
    puts.push(put(Section::Contexts, CURRENT, previous));
    let edit = Edit {
        puts,
        current: Some(CURRENT.to_owned()),
    };
    edit.write(&resolved.paths)?;
    let flags = ServerFlags {
        kubeconfig: connection.server.kubeconfig.clone(),
        ..ServerFlags::default()
    };
    match flags.client() {
        Ok(client) => crate::runtime()?.block_on(warn_of_claims(&client)),
        Err(error) => eprintln!("error checking APIBindings: {error:#}"),
    }
    show(current(ServerUrl::parse(&server).workspace(), &server, None, short))
}

fn put(section: Section, name: &str, entry: Entry) -> Put {
    Put {
        section,
        name: name.to_owned(),
        entry,
    }
}

/// Warns of permission claims that the workspace has not answered. Nothing here is an error: the
/// workspace is entered.
async fn warn_of_claims(client: &Client) {
    let listed: anyhow::Result<Value> = async {
        let (code, list) = client.get(claims::BINDINGS).await?;
        match code.as_u16() {
            200 => Ok(list),
            403 | 404 => Ok(Value::Null),
            _ => bail!("{}", message(&list)),
        }
    }
    .await;
    match listed {
        Ok(list) => {
            for binding in list["items"].as_array().into_iter().flatten() {
                claims::unanswered(binding).iter().for_each(|line| eprintln!("{line}"));
            }
        }
        Err(error) => eprintln!("error checking APIBindings: {error:#}"),
    }
}
