//! Bindings of roles to subjects.

use std::collections::BTreeMap;

use anyhow::bail;
use insula_api::names::labels;
use serde::Serialize;
use serde_json::{Value, json};

use super::{ENTER, GROUP, ROLES, Subject};
use crate::{
    client::{Client, message},
    files::text,
    print::{self, Format, Output, Printer, Table},
};

const VERSION: &str = "rbac.authorization.k8s.io/v1";
const BASE: &str = "/apis/rbac.authorization.k8s.io/v1";
const CLUSTER_BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/rolebindings";

/// Levels of access that AccessService knows by the label of a binding.
const LEVELS: [&str; 4] = ["access", "view", "edit", "admin"];

/// A role of a subject.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Held {
    #[serde(flatten)]
    pub(super) subject: Subject,
    role: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    binding: String,
}

/// Binds a ClusterRole to a subject, and returns the binding as it is stored. A role of [`ROLES`]
/// replaces the others that were granted by this command.
pub(super) async fn grant(
    client: &Client,
    subject: &Subject,
    role: &str,
    namespace: Option<&str>,
) -> anyhow::Result<Value> {
    let short = if role == ENTER { "access" } else { role };
    let name = |role: &str| subject.binding_name(role);
    let (kind, collection) = match namespace {
        Some(namespace) => ("RoleBinding", format!("{BASE}/namespaces/{namespace}/rolebindings")),
        None => ("ClusterRoleBinding", CLUSTER_BINDINGS.to_owned()),
    };
    let mut metadata = json!({"name": name(short)});
    if LEVELS.contains(&short) {
        metadata["labels"] = json!({labels::ACCESS: short});
    }
    let binding = json!({
        "apiVersion": VERSION, "kind": kind, "metadata": metadata,
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [subject.manifest()],
    });
    let (mut code, mut answer) = client.post(&collection, &binding).await?;
    if answer["reason"] == "AlreadyExists" {
        (code, answer) = client.get(&format!("{collection}/{}", name(short))).await?;
    }
    if !code.is_success() {
        bail!("{kind} {}: {}", name(short), message(&answer));
    }
    for other in ROLES.iter().filter(|other| ROLES.contains(&role) && **other != role) {
        delete(client, &format!("{collection}/{}", name(other))).await?;
    }
    Ok(answer)
}

/// Deletes an object. Returns false for one that is not there.
pub(super) async fn delete(client: &Client, path: &str) -> anyhow::Result<bool> {
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
    let (code, answer) = client.delete(path, &options).await?;
    match code.as_u16() {
        200..=299 => Ok(true),
        404 => Ok(false),
        _ => bail!("{}", message(&answer)),
    }
}

/// Returns all bindings of the workspace, those of the whole workspace first.
async fn bindings(client: &Client) -> anyhow::Result<Vec<Value>> {
    let mut found = Vec::new();
    for collection in [CLUSTER_BINDINGS, BINDINGS] {
        let (code, list) = client.get(collection).await?;
        if !code.is_success() {
            bail!("{}", message(&list));
        }
        found.extend(list["items"].as_array().into_iter().flatten().cloned());
    }
    Ok(found)
}

/// Takes a subject out of every binding. Returns the bindings that had it, as they were.
pub(super) async fn revoke(client: &Client, subject: &Subject) -> anyhow::Result<Vec<Value>> {
    let mut changed = Vec::new();
    for binding in bindings(client).await? {
        let subjects = binding["subjects"].as_array().cloned().unwrap_or_default();
        let others: Vec<&Value> = subjects
            .iter()
            .filter(|other| Subject::read(other).as_ref() != Some(subject))
            .collect();
        if others.len() == subjects.len() {
            continue;
        }
        let name = text(&binding, "/metadata/name");
        let path = match text(&binding, "/metadata/namespace") {
            "" => format!("{CLUSTER_BINDINGS}/{name}"),
            namespace => format!("{BASE}/namespaces/{namespace}/rolebindings/{name}"),
        };
        if others.is_empty() {
            delete(client, &path).await?;
            changed.push(binding);
            continue;
        }
        let rest = json!({"metadata": {"resourceVersion": binding["metadata"]["resourceVersion"]}, "subjects": others});
        let (code, answer) = client.patch(&path, &rest).await?;
        if !code.is_success() {
            bail!("{}", message(&answer));
        }
        changed.push(binding);
    }
    Ok(changed)
}

/// Returns all roles of all subjects.
pub(super) async fn all_roles(client: &Client) -> anyhow::Result<Vec<Held>> {
    let mut held = Vec::new();
    for binding in bindings(client).await? {
        for subject in binding["subjects"].as_array().into_iter().flatten() {
            held.extend(Subject::read(subject).map(|subject| Held {
                subject,
                role: text(&binding, "/roleRef/name").to_owned(),
                namespace: text(&binding, "/metadata/namespace").to_owned(),
                binding: text(&binding, "/metadata/name").to_owned(),
            }));
        }
    }
    Ok(held)
}

pub(super) async fn list(client: &Client, Output { format: output }: Output) -> anyhow::Result<()> {
    let held = all_roles(client).await?;
    match output {
        Format::Json => return print::line(&serde_json::to_string_pretty(&held)?),
        Format::Yaml => return print::raw(&print::yaml(&held)?),
        Format::Table | Format::Wide | Format::Name => {}
    }
    // Subject → may enter, roles.
    let mut rows: BTreeMap<Subject, (bool, Vec<String>)> = BTreeMap::new();
    for Held {
        subject,
        role,
        namespace,
        ..
    } in held
    {
        let (enters, roles) = rows.entry(subject).or_default();
        match (role.as_str(), namespace.as_str()) {
            (ENTER, _) => *enters = true,
            (_, "") => roles.push(role),
            (_, namespace) => roles.push(format!("{role} ({namespace})")),
        }
    }
    if output == Format::Name {
        return rows.keys().try_for_each(|subject| print::line(&subject.name));
    }
    let mut table = Table::new(&["SUBJECT", "KIND", "ENTERS", "ROLES"]);
    for (Subject { kind, name }, (enters, roles)) in rows {
        let enters = if enters { "yes" } else { "no" };
        table.row(vec![name.into(), kind.into(), enters.into(), roles.join(", ").into()]);
    }
    let mut printer = Printer::stdout();
    printer.table(&table)?;
    Ok(printer.flush()?)
}
