//! The work of a command: workspaces, their registrations, and the migrations that have not ended.

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use insula_proto::{
    admin::v1::{
        ListMigrationsRequest, ListMigrationsResponse, Migration, MigrationSource, NewBinding, NewDefinition,
        NewRegistration, migration_source::Replacement,
    },
    value,
};
use serde_json::{Value, json};

use super::{Arguments, To};
use crate::{
    client::Client,
    files::{self, text},
};

/// The groups of registrations.
const GROUPS: [(&str, &str); 2] = [
    ("extensions", "extensions/v1beta1"),
    ("apiextension.k8s.io", "apiextension.k8s.io/v1beta1"),
];

/// Work in one workspace.
pub(super) struct Work {
    pub(super) workspace: String,
    /// Migrations that have begun.
    pub(super) begun: Vec<Migration>,
    /// Registrations that wait.
    pub(super) sources: Vec<MigrationSource>,
}

/// Returns the answer of a request that succeeded.
pub(super) fn accepted((code, answer): (http::StatusCode, Value), what: &str) -> anyhow::Result<Value> {
    match code.is_success() {
        true => Ok(answer),
        false => bail!("{what}: {code}: {}", text(&answer, "/message")),
    }
}

/// Returns the paths of the workspaces, with those below them if wanted.
pub(super) async fn workspaces(client: &Client, arguments: &Arguments) -> anyhow::Result<Vec<String>> {
    let mut waiting = match arguments.workspaces.is_empty() {
        true => vec![client.workspace().to_owned()],
        false => arguments.workspaces.clone(),
    };
    let mut found = Vec::new();
    waiting.reverse();
    while let Some(path) = waiting.pop() {
        if arguments.recursive {
            let at = client.at_path(&format!("/clusters/{path}"));
            let listed = at.get("/apis/tenancy.kcp.io/v1alpha1/workspaces").await?;
            let listed = accepted(listed, &format!("workspaces of {path}"))?;
            let items = listed["items"].as_array().into_iter().flatten();
            let ready = items.filter(|item| text(item, "/status/phase") == "Ready");
            waiting.extend(ready.map(|item| format!("{path}:{}", text(item, "/metadata/name"))));
        }
        found.push(path);
    }
    Ok(found)
}

/// Finds what the arguments name in a workspace, or what was imported.
pub(super) async fn work(
    client: &Client,
    arguments: &Arguments,
    workspace: &str,
    imported: Option<&BTreeSet<String>>,
) -> anyhow::Result<Work> {
    let request = ListMigrationsRequest {
        workspace: workspace.to_owned(),
        page_size: 1000,
        ..ListMigrationsRequest::default()
    };
    let method = "/insula.admin.v1.MigrationService/ListMigrations";
    let listed: ListMigrationsResponse = client.call(method, &request).await?;
    let is_wanted = |name: &str| match imported {
        Some(names) => names.contains(name),
        None => arguments.all || arguments.names.iter().any(|wanted| wanted == name),
    };
    let mut begun = listed.migrations;
    begun.retain(|migration| is_wanted(&migration.registration));
    let mut work = Work {
        workspace: workspace.to_owned(),
        begun,
        sources: Vec::new(),
    };
    if arguments.undo {
        return Ok(work);
    }
    let at = client.at_path(&format!("/clusters/{workspace}"));
    for (group, api_version) in GROUPS {
        let is_second = group != GROUPS[0].0;
        if is_second && arguments.to == To::Registration {
            continue;
        }
        let listed = at.get(&format!("/apis/{api_version}/thirdpartyresources")).await?;
        let listed = accepted(listed, &format!("ThirdPartyResources of {workspace}"))?;
        for registration in listed["items"].as_array().into_iter().flatten() {
            let name = text(registration, "/metadata/name");
            let is_begun = work
                .begun
                .iter()
                .any(|migration| migration.registration == name || migration.replacement == name);
            if is_wanted(name) && !is_begun {
                work.sources.push(source(arguments, workspace, group, name)?);
            }
        }
    }
    Ok(work)
}

fn source(arguments: &Arguments, workspace: &str, group: &str, name: &str) -> anyhow::Result<MigrationSource> {
    let replacement = match arguments.to {
        To::Definition => Replacement::Definition(NewDefinition {
            manifest: definition(arguments, name)?,
        }),
        To::Registration => Replacement::Registration(NewRegistration {}),
        To::Binding => {
            let (export_workspace, export) = export(arguments)?;
            Replacement::Binding(NewBinding {
                export_workspace: export_workspace.to_owned(),
                export: export.to_owned(),
                name: String::new(),
            })
        }
    };
    Ok(MigrationSource {
        workspace: workspace.to_owned(),
        group: group.to_owned(),
        name: name.to_owned(),
        replacement: Some(replacement),
    })
}

/// Returns the definition of the file that fits a registration; the server checks that it does.
fn definition(arguments: &Arguments, name: &str) -> anyhow::Result<Option<value::Struct>> {
    let Some(file) = &arguments.definition else {
        return Ok(None);
    };
    let documents = files::read(std::slice::from_ref(file))?;
    let mut definitions: Vec<&Value> = documents
        .iter()
        .map(|document| &document.value)
        .filter(|value| value["kind"] == "CustomResourceDefinition")
        .collect();
    if definitions.len() > 1 {
        let group = name.split_once('.').map_or(name, |(_, group)| group);
        definitions.retain(|value| text(value, "/spec/group") == group || text(value, "/metadata/name") == name);
    }
    let definition = definitions
        .first()
        .with_context(|| format!("{}: there is no CustomResourceDefinition for {name}", file.display()))?;
    let map = definition.as_object().context("a definition is a map")?;
    Ok(Some(value::from_json(map)?))
}

/// Returns the workspace and the name of `--export`.
pub(super) fn export(arguments: &Arguments) -> anyhow::Result<(&str, &str)> {
    let export = arguments.export.as_deref().unwrap_or_default();
    export
        .rsplit_once(':')
        .with_context(|| format!("--export {export:?}: write <path of the workspace>:<name>"))
}

/// Creates the APIExport of `--export` with a schema for a registration, if it does not exist.
pub(super) async fn ensure_export(client: &Client, arguments: &Arguments, manifest: &Value) -> anyhow::Result<()> {
    let (workspace, name) = export(arguments)?;
    let at = client.at_path(&format!("/clusters/{workspace}"));
    let collection = "/apis/apis.kcp.io/v1alpha2/apiexports";
    let (code, answer) = at.get(&format!("{collection}/{name}")).await?;
    if code.as_u16() != 404 {
        accepted((code, answer), &format!("APIExport {name} of {workspace}"))?;
        return Ok(());
    }
    let mut spec = manifest["spec"].clone();
    let (group, plural) = (
        text(&spec, "/group").to_owned(),
        text(&spec, "/names/plural").to_owned(),
    );
    for version in spec["versions"].as_array_mut().into_iter().flatten() {
        let schema = version["schema"]["openAPIV3Schema"].take();
        version["schema"] = schema;
    }
    let schema_name = format!("migrated.{plural}.{group}");
    let schema = json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
        "metadata": {"name": schema_name}, "spec": spec});
    let schemas = "/apis/apis.kcp.io/v1alpha1/apiresourceschemas";
    let (code, answer) = at.post(schemas, &schema).await?;
    if code.as_u16() != 409 {
        accepted(
            (code, answer),
            &format!("APIResourceSchema {schema_name} of {workspace}"),
        )?;
    }
    let export = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": name},
        "spec": {"resources": [
            {"group": group, "name": plural, "schema": schema_name, "storage": {"crd": {}}}]}});
    accepted(
        at.post(collection, &export).await?,
        &format!("APIExport {name} of {workspace}"),
    )?;
    // The identity comes from a controller.
    for _ in 0..100 {
        let there = accepted(at.get(&format!("{collection}/{name}")).await?, "APIExport")?;
        if !text(&there, "/status/identityHash").is_empty() {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    bail!("APIExport {name} of {workspace} gets no identity")
}
