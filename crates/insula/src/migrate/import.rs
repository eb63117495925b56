//! Registrations and objects of another cluster, from the files of `kubectl get … -o yaml`.
//!
//! A second run changes nothing: an object that is there with the same contents counts as created.
//! Objects get new UIDs, so owners are named by them in a second pass. An owner that is not in the
//! files is left out, because the garbage collector would delete the object of an unknown owner.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};
use insula_catalog::registration;
use serde_json::{Value, json};

use super::{Arguments, report::Report, source::accepted};
use crate::{
    client::Client,
    files::{self, text},
    print::Progress,
};

/// Looks for a resource that is about to be served.
const LOOKS_MAX: usize = 100;
/// Metadata that the server sets.
const OWN_METADATA: [&str; 9] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "managedFields",
    "clusterName",
];

/// Creates what the files hold. Returns the names of the registrations, and a report.
pub(super) async fn import(
    client: &Client,
    workspace: &str,
    arguments: &Arguments,
) -> anyhow::Result<(BTreeSet<String>, Report)> {
    let documents = files::read(&arguments.from)?;
    let (registrations, objects): (Vec<Value>, Vec<Value>) = documents
        .into_iter()
        .map(|document| document.value)
        .partition(|value| value["kind"] == "ThirdPartyResource");
    let mut report = Report {
        workspace: workspace.to_owned(),
        registration: format!("{} registrations of files", registrations.len()),
        replacement: "created".into(),
        objects: objects.len() as i64,
        state: if arguments.dry_run { "planned" } else { "imported" }.into(),
        ..Report::default()
    };
    let names: BTreeSet<String> = registrations
        .iter()
        .map(|registration| text(registration, "/metadata/name").to_owned())
        .collect();
    let mut import = Import {
        at: client.at_path(&format!("/clusters/{workspace}")),
        resources: BTreeMap::new(),
        namespaces: BTreeSet::new(),
        uids: BTreeMap::new(),
        problems: Vec::new(),
    };
    if arguments.dry_run {
        import.check(&registrations, &objects);
    } else {
        import.create(&registrations, &objects).await?;
    }
    if !import.problems.is_empty() {
        report.state = "failed".into();
    }
    report.problems = import.problems;
    Ok((names, report))
}

/// A resource that the workspace serves.
#[derive(Clone)]
struct Resource {
    api_version: String,
    /// Path of the objects of all namespaces.
    path: String,
    namespaced: bool,
}

struct Import {
    at: Client,
    /// Resources by `apiVersion` and kind.
    resources: BTreeMap<(String, String), Resource>,
    namespaces: BTreeSet<String>,
    /// New UIDs by former ones.
    uids: BTreeMap<String, String>,
    problems: Vec<String>,
}

impl Import {
    /// Checks the files without a server.
    fn check(&mut self, registrations: &[Value], objects: &[Value]) {
        for registration in registrations {
            if text(registration, "/metadata/name").is_empty() {
                self.problems.push("a registration has no name".into());
            }
        }
        for object in objects {
            for field in ["/apiVersion", "/kind", "/metadata/name"] {
                if text(object, field).is_empty() {
                    let field = field.trim_start_matches('/').replace('/', ".");
                    self.problems.push(format!("{}: {field} is missing", place(object)));
                }
            }
        }
    }

    async fn create(&mut self, registrations: &[Value], objects: &[Value]) -> anyhow::Result<()> {
        for registration in registrations {
            if self.is_served(registration).await? {
                continue;
            }
            let path = format!("/apis/{}/thirdpartyresources", text(registration, "/apiVersion"));
            let (code, answer) = self.at.post(&path, &bare(registration)).await?;
            if code.as_u16() != 409 {
                accepted((code, answer), &place(registration))?;
            }
        }
        let mut progress = Progress::stderr();
        let mut created = Vec::new();
        for (i, object) in objects.iter().enumerate() {
            progress.share(i as u64, objects.len() as u64, "objects created");
            match self.create_one(object).await {
                Ok(there) => created.push((object, there)),
                Err(error) => self.problems.push(format!("{}: {error:#}", place(object))),
            }
        }
        for (object, there) in created {
            if let Err(error) = self.adopt(object, &there).await {
                self.problems.push(format!("{}: {error:#}", place(object)));
            }
        }
        Ok(())
    }

    /// Creates an object without its owners, and returns its path.
    async fn create_one(&mut self, object: &Value) -> anyhow::Result<String> {
        let Resource {
            api_version,
            path,
            namespaced,
        } = self.resource(object).await?;
        let collection = match namespaced {
            true => {
                let (prefix, plural) = path.rsplit_once('/').context("a path")?;
                let namespace = match text(object, "/metadata/namespace") {
                    "" => "default",
                    namespace => namespace,
                };
                self.ensure_namespace(namespace).await?;
                format!("{prefix}/namespaces/{namespace}/{plural}")
            }
            false => path,
        };
        let one = format!("{collection}/{}", text(object, "/metadata/name"));
        let mut wanted = bare(object);
        wanted["apiVersion"] = json!(api_version);
        let (code, answer) = self.at.post(&collection, &wanted).await?;
        let there = match code.as_u16() {
            409 => {
                let there = accepted(self.at.get(&one).await?, "it exists and cannot be read")?;
                if contents(&there) != contents(&wanted) {
                    bail!("an object of this name with other contents is there");
                }
                there
            }
            _ => accepted((code, answer), "cannot be created")?,
        };
        if contents(&there) != contents(&wanted) {
            bail!("the server keeps other contents");
        }
        let former = text(object, "/metadata/uid");
        if !former.is_empty() {
            self.uids
                .insert(former.to_owned(), text(&there, "/metadata/uid").to_owned());
        }
        Ok(one)
    }

    /// Names the owners of an object by their new UIDs.
    async fn adopt(&mut self, object: &Value, path: &str) -> anyhow::Result<()> {
        let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        for owner in owners {
            match self.uids.get(text(owner, "/uid")) {
                Some(uid) => {
                    let mut owner = owner.clone();
                    owner["uid"] = json!(uid);
                    known.push(owner);
                }
                None => unknown.push(format!("{} {}", text(owner, "/kind"), text(owner, "/name"))),
            }
        }
        for owner in unknown {
            eprintln!(
                "warning: {}: its owner {owner} is not in the files: left out",
                place(object)
            );
        }
        if known.is_empty() {
            return Ok(());
        }
        let patch = json!({"metadata": {"ownerReferences": known}});
        accepted(self.at.patch(path, &patch).await?, "its owners cannot be written").map(drop)
    }

    async fn ensure_namespace(&mut self, name: &str) -> anyhow::Result<()> {
        if !self.namespaces.insert(name.to_owned()) {
            return Ok(());
        }
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let (code, answer) = self.at.post("/api/v1/namespaces", &namespace).await?;
        match code.as_u16() {
            409 => Ok(()),
            _ => accepted((code, answer), &format!("namespace {name}")).map(drop),
        }
    }

    /// Returns true if the kind of a registration is served: it was migrated before.
    async fn is_served(&self, registration: &Value) -> anyhow::Result<bool> {
        let wanted =
            registration::wanted(registration).with_context(|| format!("{} names no kind", place(registration)))?;
        let version = text(&wanted, "/versions/0/name");
        let api_version = format!("{}/{}", text(&wanted, "/group"), flat(version));
        let kind = text(&wanted, "/names/kind");
        Ok(self.served(&api_version, kind).await?.is_some())
    }

    /// Returns a resource of a version, if it is served.
    async fn served(&self, api_version: &str, kind: &str) -> anyhow::Result<Option<Resource>> {
        let root = match api_version.matches('/').count() {
            0 => format!("/api/{api_version}"),
            1 => format!("/apis/{api_version}"),
            _ => format!("/thirdparty/{api_version}"),
        };
        let (_, served) = self.at.get(&root).await?;
        let mut served = served["resources"].as_array().into_iter().flatten();
        let found = served.find(|one| text(one, "/kind") == kind && !text(one, "/name").contains('/'));
        Ok(found.map(|one| Resource {
            api_version: api_version.to_owned(),
            path: format!("{root}/{}", text(one, "/name")),
            namespaced: one["namespaced"] == true,
        }))
    }

    /// Finds the resource of an object, as soon as it is served. A version with a slash has lost it
    /// once its registration was migrated.
    async fn resource(&mut self, object: &Value) -> anyhow::Result<Resource> {
        let (api_version, kind) = (text(object, "/apiVersion"), text(object, "/kind"));
        let key = (api_version.to_owned(), kind.to_owned());
        if let Some(found) = self.resources.get(&key) {
            return Ok(found.clone());
        }
        let group = api_version.split('/').next().unwrap_or_default();
        let today = format!("{group}/{}", flat(api_version));
        let spellings = [api_version, &today];
        let spellings = &spellings[..if api_version.matches('/').count() > 1 { 2 } else { 1 }];
        for _ in 0..LOOKS_MAX {
            for spelling in spellings {
                if let Some(found) = self.served(spelling, kind).await? {
                    self.resources.insert(key, found.clone());
                    return Ok(found);
                }
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        bail!("{kind} of {api_version} is not served: give its ThirdPartyResource, too")
    }
}

/// Returns the last part of a version: `stable/v1` is `v1` today.
fn flat(version: &str) -> &str {
    version.rsplit('/').next().unwrap_or(version)
}

/// Returns an object without what its former server set, and without owners.
fn bare(object: &Value) -> Value {
    let mut bare = object.clone();
    if let Some(metadata) = bare["metadata"].as_object_mut() {
        metadata.retain(|field, _| !OWN_METADATA.contains(&field.as_str()) && field != "ownerReferences");
    }
    bare
}

/// Returns what two objects are compared by: everything but metadata, and labels and annotations of
/// clients.
fn contents(object: &Value) -> Value {
    let mut contents = bare(object);
    contents["apiVersion"] = Value::Null;
    let mut annotations = contents["metadata"]["annotations"].take();
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.remove("kcp.io/cluster");
    }
    let labels = contents["metadata"]["labels"].take();
    contents["metadata"] = json!({"labels": labels});
    if annotations
        .as_object()
        .is_some_and(|annotations| !annotations.is_empty())
    {
        contents["metadata"]["annotations"] = annotations;
    }
    contents
}

fn place(object: &Value) -> String {
    let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
    match text(object, "/metadata/namespace") {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}
