//! Trial of new schemas and rules on the stored objects of all consumers, before they are offered.

use anyhow::bail;
use insula_admission::publication::Published;
use insula_catalog::Api;
use insula_conversion::object_budget;
use serde::Serialize;
use serde_json::Value;

use super::target::Target;
use crate::files::text;

/// Objects of a page.
const PAGE: usize = 100;
/// Failures that are listed; all are counted.
const LISTED_MAX: usize = 10;

/// Outcome of the trial of one API.
#[derive(Debug, Default, Serialize)]
pub(super) struct Trial {
    /// Name of the new schema.
    schema: String,
    /// Objects that were tried.
    objects: usize,
    /// Objects that a served version could not show.
    failed: usize,
    /// Logical clusters with such objects.
    clusters: Vec<String>,
    /// The first failures.
    failures: Vec<Failure>,
}

/// An object that a served version could not show.
#[derive(Debug, Serialize)]
struct Failure {
    cluster: String,
    object: String,
    version: String,
    why: String,
}

impl Trial {
    /// Tries a new schema and its rules on the objects of all consumers: each object, as it shows
    /// in the version in which it is stored, is converted to every served version.
    pub(super) fn run(target: &Target, export: &Value, offered: Option<&str>, new: &Published) -> anyhow::Result<Self> {
        let mut trial = Trial {
            schema: new.name().to_owned(),
            ..Trial::default()
        };
        let Some(stored) = offered.map(|offered| storage_version(target, offered)).transpose()? else {
            return Ok(trial);
        };
        let api = match new.compile() {
            Ok(api) => api,
            Err(errors) => bail!("{}: {}", new.name(), insula_api::aggregate(&errors)),
        };
        let path = format!("/clusters/*/apis/{}/{stored}/{}", new.group, new.plural);
        let mut next = String::new();
        loop {
            let Some(page) = target.of_consumers(export, &format!("{path}?limit={PAGE}&continue={next}"))? else {
                return Ok(trial);
            };
            for object in page["items"].as_array().into_iter().flatten() {
                trial.add(&api, object);
            }
            next = text(&page, "/metadata/continue").to_owned();
            if next.is_empty() {
                return Ok(trial);
            }
        }
    }

    fn add(&mut self, api: &Api, object: &Value) {
        self.objects += 1;
        let versions = api.bundle.served().chain([api.bundle.storage()]);
        let failed = versions.into_iter().find_map(|version| {
            let converted = api.bundle.convert(object, version, &mut object_budget());
            converted.err().map(|error| (version.to_owned(), error.to_string()))
        });
        let Some((version, why)) = failed else { return };
        self.failed += 1;
        let cluster = object["metadata"]["annotations"]["kcp.io/cluster"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if !self.clusters.contains(&cluster) {
            self.clusters.push(cluster.clone());
        }
        if self.failures.len() < LISTED_MAX {
            let names = [text(object, "/metadata/namespace"), text(object, "/metadata/name")];
            let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
            self.failures.push(Failure {
                cluster,
                object: names.join("/"),
                version,
                why,
            });
        }
    }

    /// Returns true if an object could not be read after the release.
    pub(super) fn fails(&self) -> bool {
        self.failed > 0
    }

    /// Formats the outcome, a line each.
    pub(super) fn lines(&self) -> Vec<String> {
        let Trial { schema, objects, .. } = self;
        if !self.fails() {
            return vec![format!(
                "{schema}: all {objects} stored objects can be read in every served version"
            )];
        }
        let mut lines = vec![format!(
            "{schema}: {} of {objects} stored objects could not be read, in {} workspaces",
            self.failed,
            self.clusters.len()
        )];
        lines.extend(self.failures.iter().map(|failure| {
            format!(
                "  {} in {} as {}: {}",
                failure.object, failure.cluster, failure.version, failure.why
            )
        }));
        if self.failed > self.failures.len() {
            lines.push(format!("  and {} more", self.failed - self.failures.len()));
        }
        lines
    }
}

/// Returns the storage version of a schema that is offered now.
fn storage_version(target: &Target, schema: &str) -> anyhow::Result<String> {
    let found = target.get("apis.kcp.io/v1alpha1", "APIResourceSchema", schema)?;
    let found = found.unwrap_or_default();
    let versions = found["spec"]["versions"].as_array().into_iter().flatten();
    let mut stored = versions.filter(|version| version["storage"] == true);
    match stored.next() {
        Some(version) => Ok(text(version, "/name").to_owned()),
        None => bail!("APIResourceSchema {schema}, which is offered now, is not there"),
    }
}
