//! Target of a publication with its existing objects: files, or a workspace of a server.

use std::path::PathBuf;

use anyhow::bail;
use insula_admission::publication::{has_same_contents, resource_of, updated};
use insula_catalog::exports::bind_grant;
use insula_proto::Message;
use serde_json::{Value, json};

use crate::{
    client::{Client, message},
    connection::Connection,
    files::{self, text},
};

/// Objects of a page.
const PAGE: usize = 100;
/// Attempts at an update while controllers write the status, as many as of `kubectl apply`.
const ATTEMPTS: usize = 5;

/// Existing objects of the target.
pub(super) enum Target {
    Files(Vec<Value>),
    Server(Box<Connected>),
}

/// A workspace of a server, and the runtime of its client.
pub(super) struct Connected {
    client: Client,
    runtime: tokio::runtime::Runtime,
}

/// Action that was done on an object.
pub(super) enum Applied {
    Created,
    Updated,
    Unchanged,
}

fn path(object: &Value) -> anyhow::Result<(String, String)> {
    let kind = text(object, "/kind");
    let resource = match kind {
        "ClusterRole" => "clusterroles",
        "ClusterRoleBinding" => "clusterrolebindings",
        _ => match resource_of(kind) {
            Some((resource, _)) => resource,
            None => bail!("{kind} is nothing that is published"),
        },
    };
    let collection = format!("/apis/{}/{resource}", text(object, "/apiVersion"));
    let one = format!("{collection}/{}", text(object, "/metadata/name"));
    Ok((collection, one))
}

impl Target {
    pub(super) fn files(paths: &[PathBuf]) -> anyhow::Result<Target> {
        let documents = files::read(paths)?;
        Ok(Target::Files(
            documents.into_iter().map(|document| document.value).collect(),
        ))
    }

    /// Connects to the workspace that flags and variables name.
    pub(super) fn server(connection: &Connection) -> anyhow::Result<Target> {
        let client = connection.client()?;
        let runtime = crate::runtime()?;
        Ok(Target::Server(Box::new(Connected { client, runtime })))
    }

    /// Returns the existing object of a published kind and a name.
    pub(super) fn find(&self, kind: &str, name: &str) -> anyhow::Result<Option<Value>> {
        match resource_of(kind) {
            Some((_, api_version)) => self.get(api_version, kind, name),
            None => Ok(None),
        }
    }

    /// Returns the existing object of a kind and name.
    pub(super) fn get(&self, api_version: &str, kind: &str, name: &str) -> anyhow::Result<Option<Value>> {
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
        match self {
            Target::Files(objects) => {
                let same = |other: &&Value| text(other, "/kind") == kind && text(other, "/metadata/name") == name;
                Ok(objects.iter().find(same).cloned())
            }
            Target::Server(connected) => {
                let Connected { client, runtime } = &**connected;
                let (_, one) = path(&object)?;
                let (code, answer) = runtime.block_on(client.get(&one))?;
                match code.as_u16() {
                    200 => Ok(Some(answer)),
                    // A workspace that is not there is a NotFound as well, of a Workspace.
                    404 if is_of_workspace(&answer) => bail!("{}", missing(client)),
                    404 if answer["reason"] == "NotFound" => Ok(None),
                    _ => bail!("{kind} {name}: {code}: {}", message(&answer)),
                }
            }
        }
    }

    /// Returns the answer at a path of an export's virtual workspace; `None` while no workspace
    /// binds the export.
    pub(super) fn of_consumers(&self, export: &Value, path: &str) -> anyhow::Result<Option<Value>> {
        let Target::Server(connected) = self else {
            bail!("stored objects are on a server: --kubeconfig");
        };
        let Connected { client, runtime } = &**connected;
        let name = text(export, "/metadata/name");
        let slice = format!("/apis/apis.kcp.io/v1alpha1/apiexportendpointslices/{name}");
        let (code, slice) = runtime.block_on(client.get(&slice))?;
        let url = text(&slice, "/status/endpoints/0/url");
        // `https://host:port/services/apiexport/…`
        let view = url.match_indices('/').nth(2).map(|(at, _)| &url[at..]);
        let Some(view) = view.filter(|_| code.is_success()) else {
            return Ok(None);
        };
        let (code, answer) = runtime.block_on(client.at_path(view).get(path))?;
        match code.as_u16() {
            200 => Ok(Some(answer)),
            404 => Ok(None),
            _ => bail!(
                "APIExport {name}, objects of its consumers: {code}: {}",
                message(&answer)
            ),
        }
    }

    /// Returns the path of the workspace.
    pub(super) fn workspace(&self) -> anyhow::Result<String> {
        match self {
            Target::Server(connected) => Ok(connected.client.workspace().to_owned()),
            Target::Files(_) => bail!("stored objects are on a server: --kubeconfig"),
        }
    }

    /// Calls a method of the admin API.
    pub(super) fn call<A: Message + Default>(&self, method: &str, request: &impl Message) -> anyhow::Result<A> {
        let Target::Server(connected) = self else {
            bail!("stored objects are on a server: --kubeconfig");
        };
        let Connected { client, runtime } = &**connected;
        runtime.block_on(client.call(method, request))
    }

    /// Returns all objects of a resource in the workspace.
    pub(super) fn list(&self, api_version: &str, resource: &str) -> anyhow::Result<Vec<Value>> {
        let Target::Server(connected) = self else {
            bail!("this needs a server: --kubeconfig");
        };
        let Connected { client, runtime } = &**connected;
        let (mut items, mut next) = (Vec::new(), String::new());
        loop {
            let path = format!("/apis/{api_version}/{resource}?limit={PAGE}&continue={next}");
            let (code, page) = runtime.block_on(client.get(&path))?;
            if !code.is_success() {
                bail!("{resource}: {code}: {}", message(&page));
            }
            next = text(&page, "/metadata/continue").to_owned();
            items.extend(page["items"].as_array().into_iter().flatten().cloned());
            if next.is_empty() {
                return Ok(items);
            }
        }
    }

    /// Deletes an object that has not changed since it was read.
    pub(super) fn delete(&self, object: &Value) -> anyhow::Result<()> {
        let Target::Server(connected) = self else {
            bail!("this needs a server: --kubeconfig");
        };
        let Connected { client, runtime } = &**connected;
        let (_, one) = path(object)?;
        let meta = &object["metadata"];
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]},
        });
        let (code, answer) = runtime.block_on(client.delete(&one, &options))?;
        if !code.is_success() {
            let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
            bail!("{kind} {name}: {code}: {}", message(&answer));
        }
        Ok(())
    }

    /// Returns the bindings of all consumers of an export.
    pub(super) fn bindings_of(&self, export: &Value) -> anyhow::Result<Vec<Value>> {
        let bindings = self.of_consumers(export, "/clusters/*/apis/apis.kcp.io/v1alpha2/apibindings")?;
        let name = text(export, "/metadata/name");
        let mut bindings = bindings
            .and_then(|list| list["items"].as_array().cloned())
            .unwrap_or_default();
        bindings.retain(|binding| text(binding, "/spec/reference/export/name") == name);
        Ok(bindings)
    }

    /// Creates the object, or updates it. Controllers write its status at any time: an update that
    /// met such a write is repeated, and one that met a change of what it writes is not. `seen` is
    /// the state that the caller expects; `None` for any.
    pub(super) fn apply(&self, object: &Value, seen: Option<&Value>) -> anyhow::Result<Applied> {
        let Target::Server(connected) = self else {
            bail!("--apply needs a server: --kubeconfig");
        };
        let Connected { client, runtime } = &**connected;
        let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
        let (collection, one) = path(object)?;
        let mut before: Option<Value> = seen.cloned();
        let mut attempts = ATTEMPTS;
        loop {
            attempts -= 1;
            let found = self.get(text(object, "/apiVersion"), kind, name)?;
            let is_other = |seen: &Value| found.as_ref().is_none_or(|there| !is_same(there, seen));
            if before.as_ref().is_some_and(is_other) {
                bail!("{kind} {name}: somebody else changed it at the same time: run the command again");
            }
            let (code, answer, applied) = match &found {
                Some(there) if is_same(there, object) => return Ok(Applied::Unchanged),
                Some(there) if is_right(object) => bail!("{}", bind_grant::other_grant(there)),
                Some(there) => {
                    let new = updated(there.clone(), object);
                    let (code, answer) = runtime.block_on(client.put(&one, &new))?;
                    (code, answer, Applied::Updated)
                }
                None => {
                    let (code, answer) = runtime.block_on(client.post(&collection, object))?;
                    (code, answer, Applied::Created)
                }
            };
            if code.is_success() {
                return Ok(applied);
            }
            if text(&answer, "/reason") != "Conflict" || attempts == 0 {
                bail!("{kind} {name}: {code}: {}", message(&answer));
            }
            before = found;
        }
    }
}

/// Returns true for a part of the right to bind an export, in contrast to what an export offers.
fn is_right(object: &Value) -> bool {
    resource_of(text(object, "/kind")).is_none()
}

fn is_same(there: &Value, wanted: &Value) -> bool {
    match is_right(wanted) {
        true => bind_grant::grants_the_same(there, wanted),
        false => has_same_contents(there, wanted),
    }
}

fn is_of_workspace(answer: &Value) -> bool {
    answer["details"]["kind"] == "workspaces"
}

fn missing(client: &Client) -> String {
    format!(
        "there is no workspace {}, or you may not enter it: `insula ws tree` lists those that you see",
        client.workspace()
    )
}
