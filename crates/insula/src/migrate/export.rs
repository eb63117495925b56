//! The objects of a migration as YAML, before they are touched.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;
use insula_proto::admin::v1::Migration;
use serde_json::Value;

use super::source::accepted;
use crate::{client::Client, files::text, print};

/// Objects of a page.
const PAGE: usize = 500;

/// Writes the objects of a frozen migration to `<folder>/<workspace>/<resource>.yaml`, which
/// `kubectl create -f` and `--from` read. The file is complete, or not there.
pub(super) async fn keep(
    client: &Client,
    folder: &Path,
    workspace: &str,
    migration: &Migration,
) -> anyhow::Result<PathBuf> {
    let folder = folder.join(workspace.replace(':', "/"));
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let path = folder.join(format!("{}.yaml", migration.resource));
    if path.exists() {
        // An earlier run has written it, and nobody has written the objects since.
        return Ok(path);
    }
    let part = path.with_extension("part");
    let unwritable = || format!("cannot write {}", part.display());
    let mut file = BufWriter::new(File::create(&part).with_context(unwritable)?);
    let at = client.at_path(&format!("/clusters/{workspace}{}", objects(migration)));
    let mut token = String::new();
    loop {
        let page = at.get(&format!("?limit={PAGE}&continue={token}")).await?;
        let page = accepted(page, &format!("{} of {workspace}", migration.resource))?;
        for item in page["items"].as_array().into_iter().flatten() {
            let mut item: Value = item.clone();
            item["apiVersion"] = Value::from(migration.former_api_version.as_str());
            write!(file, "---\n{}", print::yaml(&item)?).with_context(unwritable)?;
        }
        token = text(&page, "/metadata/continue").to_owned();
        if token.is_empty() {
            break;
        }
    }
    let file = file
        .into_inner()
        .map_err(|error| error.into_error())
        .with_context(unwritable)?;
    file.sync_all().with_context(unwritable)?;
    fs::rename(&part, &path).with_context(unwritable)?;
    Ok(path)
}

/// Returns the path of all objects, by their former version.
fn objects(migration: &Migration) -> String {
    let plural = migration.resource.split('.').next().unwrap_or_default();
    let api_version = &migration.former_api_version;
    match api_version.matches('/').count() {
        1 => format!("/apis/{api_version}/{plural}"),
        _ => format!("/thirdparty/{api_version}/{plural}"),
    }
}
