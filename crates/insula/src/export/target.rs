//! Where things are published, and what is there: files, or a workspace of a server.

use std::path::{Path, PathBuf};

use anyhow::bail;
use serde_json::{Value, json};

use crate::{
    client::Client,
    files::{self, text},
};

/// What is there already.
pub(super) enum Target {
    Files(Vec<Value>),
    Server(Box<Connected>),
}

/// A workspace of a server, and what requests to it run on.
pub(super) struct Connected {
    client: Client,
    runtime: tokio::runtime::Runtime,
}

/// What was done to an object.
pub(super) enum Applied {
    Created,
    Updated,
    Unchanged,
}

fn path(object: &Value) -> anyhow::Result<(String, String)> {
    let resource = match text(object, "/kind") {
        "APIResourceSchema" => "apiresourceschemas",
        "APIConversion" => "apiconversions",
        "APIConversionRules" => "apiconversionrules",
        "APIExport" => "apiexports",
        other => bail!("{other} is nothing that is published"),
    };
    let collection = format!("/apis/{}/{resource}", text(object, "/apiVersion"));
    let one = format!("{collection}/{}", text(object, "/metadata/name"));
    Ok((collection, one))
}

/// Whether what is there says what is wanted. Of a schema, a server adds how names are validated.
pub(super) fn says_the_same(there: &Value, wanted: &Value) -> bool {
    let mut spec = there["spec"].clone();
    let asks = wanted["spec"].get("nameValidation").is_some();
    if let Some(spec) = spec
        .as_object_mut()
        .filter(|_| !asks && wanted["kind"] == "APIResourceSchema")
    {
        spec.remove("nameValidation");
    }
    spec == wanted["spec"]
}

impl Target {
    pub(super) fn files(paths: &[PathBuf]) -> anyhow::Result<Target> {
        let documents = files::read(paths)?;
        Ok(Target::Files(
            documents.into_iter().map(|document| document.value).collect(),
        ))
    }

    /// A workspace by its path, or where the kubeconfig points.
    pub(super) fn server(kubeconfig: &Path, context: Option<&str>, workspace: Option<&str>) -> anyhow::Result<Target> {
        let client = Client::from_kubeconfig(kubeconfig, context)?;
        let client = match workspace {
            Some(workspace) => client.at(&format!("/clusters/{workspace}")),
            None => client,
        };
        let runtime = crate::runtime()?;
        Ok(Target::Server(Box::new(Connected { client, runtime })))
    }

    /// The object of this kind and name that is there.
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
                    404 if answer["reason"] == "NotFound" => Ok(None),
                    _ => bail!("{kind} {name}: {code}: {}", said(&answer)),
                }
            }
        }
    }

    /// Makes the object be there as it is given.
    pub(super) fn apply(&self, object: &Value) -> anyhow::Result<Applied> {
        let Target::Server(connected) = self else {
            bail!("--apply needs a server: --kubeconfig");
        };
        let Connected { client, runtime } = &**connected;
        let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
        let (collection, one) = path(object)?;
        let found = self.get(text(object, "/apiVersion"), kind, name)?;
        let (code, answer, applied) = match found {
            Some(there) if says_the_same(&there, object) => return Ok(Applied::Unchanged),
            Some(there) => {
                let mut new = there;
                new["spec"] = object["spec"].clone();
                let (code, answer) = runtime.block_on(client.put(&one, &new))?;
                (code, answer, Applied::Updated)
            }
            None => {
                let (code, answer) = runtime.block_on(client.post(&collection, object))?;
                (code, answer, Applied::Created)
            }
        };
        if !code.is_success() {
            bail!("{kind} {name}: {code}: {}", said(&answer));
        }
        Ok(applied)
    }
}

fn said(answer: &Value) -> String {
    match answer["message"].as_str() {
        Some(message) => message.to_owned(),
        None => answer.to_string(),
    }
}
