//! `insula ws tree`: workspaces below the current one.

use std::fmt::Write;

use anyhow::bail;
use serde::Serialize;
use serde_json::Value;

use super::{WORKSPACES, client_for, enter::enterable, refused};
use crate::{
    client::Client,
    connection::{Connection, Resolved, ServerUrl},
    files::text,
    print::{self, Format},
};

/// Requests at a time.
const CONCURRENT: usize = 16;
/// Maximum depth of a tree; a mount that leads back to its parent must end.
const DEPTH_MAX: usize = 64;

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Print whole paths.
    #[arg(long, short)]
    full: bool,
    /// Choose a workspace of the tree, and enter it; at a terminal only.
    #[arg(long, short)]
    pub(super) interactive: bool,
    /// Print the phase of each workspace, and of its logical cluster, as -o wide.
    #[arg(long)]
    wide: bool,
    /// Format of the output.
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

impl Arguments {
    fn is_wide(&self) -> bool {
        self.wide || self.output == Format::Wide
    }
}

/// A workspace and those below it.
#[derive(Debug, Serialize)]
pub(super) struct Node {
    pub(super) name: String,
    /// The path by names.
    pub(super) path: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    phase: String,
    /// The phase of its logical cluster; read for `--wide`.
    #[serde(skip_serializing_if = "String::is_empty")]
    logical_cluster: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    mounted: bool,
    /// The workspace of its URL.
    #[serde(skip)]
    cluster: String,
    pub(super) children: Vec<Node>,
}

pub(super) fn run(connection: &Connection, arguments: &Arguments) -> anyhow::Result<()> {
    let resolved = connection.resolve()?;
    let Some(current) = resolved.url.workspace().map(str::to_owned) else {
        // kcp's plugin takes this for no error. Programs read a tree, and get an error.
        if !matches!(arguments.output, Format::Table | Format::Wide) {
            resolved.url.current()?;
        }
        let url = resolved.cluster.text("server").unwrap_or_default();
        return print::line(&format!(
            "current context URL {url:?} does not point directly to a kcp workspace"
        ));
    };
    let client = Client::new(&resolved)?;
    let tree = crate::runtime()?.block_on(read(&client, &resolved, &current, arguments.is_wide()))?;
    match arguments.output {
        Format::Table | Format::Wide if arguments.is_wide() => print::raw(&aligned(&drawn(&tree, arguments))),
        Format::Table | Format::Wide => print::line(&drawn(&tree, arguments)),
        Format::Name => print::line(&paths(&tree).join("\n")),
        Format::Json => print::line(&serde_json::to_string_pretty(&tree)?),
        Format::Yaml => print::raw(&print::yaml(&tree)?),
    }
}

/// Reads the tree below a workspace, level by level.
pub(super) async fn read(client: &Client, resolved: &Resolved, top: &str, wide: bool) -> anyhow::Result<Node> {
    let mut root = Node {
        name: top.rsplit(':').next().unwrap_or(top).to_owned(),
        path: top.to_owned(),
        phase: String::new(),
        logical_cluster: String::new(),
        mounted: false,
        cluster: top.to_owned(),
        children: Vec::new(),
    };
    let mut level = vec![&mut root];
    for depth in 0..DEPTH_MAX {
        let clusters: Vec<String> = level.iter().map(|node| node.cluster.clone()).collect();
        let mut below = Vec::new();
        for chunk in clusters.chunks(CONCURRENT) {
            below.extend(listed(client, resolved, chunk, wide).await?);
        }
        let mut next = Vec::new();
        for (node, (code, list, logical_cluster)) in level.into_iter().zip(below) {
            node.logical_cluster = logical_cluster;
            match code {
                200 => {}
                // Below the top, a workspace that the user may not enter is a leaf.
                _ if depth > 0 => continue,
                // At the top, it is not there, or has no workspaces below it.
                404 => {
                    enterable(client, resolved, top).await?;
                    continue;
                }
                _ => return Err(refused(&list)),
            }
            let items = list["items"].as_array().into_iter().flatten();
            node.children = items.filter_map(|item| child(&node.path, item)).collect();
            next.extend(node.children.iter_mut().filter(|child| !child.mounted));
        }
        if next.is_empty() {
            return Ok(root);
        }
        level = next;
    }
    bail!("the tree is deeper than {DEPTH_MAX} workspaces");
}

/// Lists the workspaces below each of some, at once. With `wide` it reads their phase, too.
async fn listed(
    client: &Client,
    resolved: &Resolved,
    clusters: &[String],
    wide: bool,
) -> anyhow::Result<Vec<(u16, Value, String)>> {
    let mut tasks = Vec::new();
    for cluster in clusters {
        let client = client_for(client, resolved, cluster);
        tasks.push(tokio::spawn(async move {
            let (code, list) = client.get(WORKSPACES).await?;
            if !wide {
                return anyhow::Ok((code.as_u16(), list, String::new()));
            }
            let (_, own) = client.get("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster").await?;
            let phase = own["status"]["phase"].as_str().unwrap_or("Unknown");
            anyhow::Ok((code.as_u16(), list, phase.to_owned()))
        }));
    }
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await??);
    }
    Ok(answers)
}

/// Returns the node of a workspace; `None` for one that is being deleted.
fn child(parent: &str, workspace: &Value) -> Option<Node> {
    if !workspace["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    let name = text(workspace, "/metadata/name").to_owned();
    let path = format!("{parent}:{name}");
    let url = ServerUrl::parse(text(workspace, "/spec/URL"));
    Some(Node {
        cluster: url.workspace().unwrap_or(&path).to_owned(),
        path,
        name,
        phase: text(workspace, "/status/phase").to_owned(),
        logical_cluster: String::new(),
        mounted: !workspace["spec"]["mount"].is_null(),
        children: Vec::new(),
    })
}

/// Returns all paths of a tree, parents first.
pub(super) fn paths(node: &Node) -> Vec<&str> {
    let mut found = vec![node.path.as_str()];
    found.extend(node.children.iter().flat_map(paths));
    found
}

fn drawn(tree: &Node, arguments: &Arguments) -> String {
    let mut out = ".\n".to_owned();
    draw(tree, arguments, "", true, &mut out);
    out
}

fn draw(node: &Node, arguments: &Arguments, indent: &str, is_last: bool, out: &mut String) {
    let edge = if is_last { "└──" } else { "├──" };
    let name = if arguments.full { &node.path } else { &node.name };
    let mount = if node.mounted { " [m]" } else { "" };
    let phases = match arguments.is_wide() && !node.mounted {
        true => {
            let phase = if node.phase.is_empty() { "-" } else { &node.phase };
            format!("\tws={phase}\tlc={}", node.logical_cluster)
        }
        false => String::new(),
    };
    // A String takes every write.
    let _ = writeln!(out, "{indent}{edge} {name}{mount}{phases}");
    let indent = format!("{indent}{}", if is_last { "    " } else { "│   " });
    for (index, child) in node.children.iter().enumerate() {
        draw(child, arguments, &indent, index + 1 == node.children.len(), out);
    }
}

/// Aligns cells that tabs separate, two spaces apart.
fn aligned(text: &str) -> String {
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter(|row| row.len() > column + 1);
        cells.map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths = [width(0), width(1)];
    let mut out = String::new();
    for row in &rows {
        for (column, cell) in row.iter().enumerate() {
            let pad = match column + 1 < row.len() {
                true => widths.get(column).copied().unwrap_or_default() + 2,
                false => 0,
            };
            let _ = write!(out, "{cell:<pad$}");
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn node(path: &str, phase: &str, children: Vec<Node>) -> Node {
        Node {
            name: path.rsplit(':').next().unwrap().to_owned(),
            path: path.to_owned(),
            phase: phase.to_owned(),
            logical_cluster: "Ready".to_owned(),
            mounted: path.ends_with("mount"),
            cluster: path.to_owned(),
            children,
        }
    }

    #[test]
    fn trees_are_drawn_as_kcp_draws_them() {
        let a = node(
            "root:a",
            "Ready",
            vec![node("root:a:c", "Ready", vec![]), node("root:a:mount", "Ready", vec![])],
        );
        let tree = node("root", "", vec![a, node("root:b", "Scheduling", vec![])]);
        let arguments = |full, wide| Arguments {
            full,
            wide,
            interactive: false,
            output: Format::Table,
        };
        expect![[r#"
            .
            └── root
                ├── a
                │   ├── c
                │   └── mount [m]
                └── b
        "#]]
        .assert_eq(&drawn(&tree, &arguments(false, false)));
        expect![[r#"
            .
            └── root              ws=-           lc=Ready
                ├── root:a        ws=Ready       lc=Ready
                │   ├── root:a:c  ws=Ready       lc=Ready
                │   └── root:a:mount [m]
                └── root:b        ws=Scheduling  lc=Ready
        "#]]
        .assert_eq(&aligned(&drawn(&tree, &arguments(true, true))));
        assert_eq!(paths(&tree), ["root", "root:a", "root:a:c", "root:a:mount", "root:b"]);
    }
}
