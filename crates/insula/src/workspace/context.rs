//! `insula ws create-context`: a context of the kubeconfig for one workspace.

use anyhow::{Context, bail};
use serde_json::json;

use crate::{
    connection::{Connection, Resolved},
    kubeconfig::{Edit, Put, Section},
    print,
};

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The context [default: the path of the workspace].
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Replace a context of this name.
    #[arg(long)]
    overwrite: bool,
    /// Keep the current context.
    #[arg(long)]
    keep_current: bool,
}

pub(super) fn run(connection: &Connection, arguments: &Arguments) -> anyhow::Result<()> {
    let resolved = connection.resolve()?;
    let name = match &arguments.name {
        Some(name) => name.clone(),
        None => resolved.url.current()?.to_owned(),
    };
    super::check(&resolved)?;
    print::line(&write(&resolved, &name, arguments.overwrite, arguments.keep_current)?)
}

/// Writes a context for the workspace that was found. Returns the line that says so.
///
/// # Errors
/// The URL names no workspace, or the context exists and is not to be replaced.
pub(super) fn write(resolved: &Resolved, name: &str, overwrite: bool, keep_current: bool) -> anyhow::Result<String> {
    resolved.url.current()?;
    let kubeconfig = &resolved.kubeconfig;
    let is_there = kubeconfig.entry(Section::Contexts, name).is_some();
    if is_there && !overwrite {
        bail!("context {name:?} already exists in kubeconfig, use --overwrite to update it");
    }
    let mut context = resolved.context.clone();
    context.text("user").context("the context has no user")?;
    context.content["cluster"] = json!(name);
    let put = |section, entry| Put {
        section,
        name: name.to_owned(),
        entry,
    };
    let edit = Edit {
        puts: vec![
            put(Section::Clusters, resolved.cluster.clone()),
            put(Section::Contexts, context),
        ],
        current: (!keep_current).then(|| name.to_owned()),
    };
    edit.write(&resolved.paths)?;
    let verb = if is_there { "Updated" } else { "Created" };
    Ok(match keep_current || kubeconfig.current() == name {
        true => format!("{verb} context {name:?}."),
        false => format!("{verb} context {name:?} and switched to it."),
    })
}
