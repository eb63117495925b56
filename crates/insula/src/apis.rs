//! APIs from files: schemas and their conversion rules, compiled and checked as in the server.

use std::path::PathBuf;

use anyhow::{anyhow, bail};
use insula_admission::publication::{self, Manifest};
use insula_catalog::{Api, parts};
use insula_conversion::Bundle;
use insula_meter::Meter;
use serde_json::Value;

use crate::files::{self, Document, FolderOptions, text};

/// Files with schemas and rules.
#[derive(clap::Args)]
pub(crate) struct Input {
    /// Schemas (APIResourceSchema, CustomResourceDefinition) and rules (APIConversion,
    /// APIConversionRules, or inside the schema); any number of documents. A folder gives its
    /// files, - is standard input.
    #[arg(long = "filename", short = 'f', value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) folders: FolderOptions,
}

impl Input {
    /// Reads the files.
    pub(crate) fn load(&self) -> anyhow::Result<Manifests> {
        load_with(&self.files, self.folders)
    }
}

/// Contents of the files.
pub(crate) struct Manifests {
    /// Schemas, each with the rules for its name.
    pub(crate) sources: Vec<Source>,
    /// Documents of other kinds.
    pub(crate) others: Vec<Document>,
}

/// A schema, and the rules outside of it.
pub(crate) struct Source {
    pub(crate) schema: Document,
    /// The rules: an APIConversion, or several joined ones.
    pub(crate) conversion: Option<Document>,
    /// APIConversions that name the schema, as they are read.
    parts: Vec<Document>,
}

/// Kinds that describe APIs; objects of other kinds are samples.
const DESCRIBING: [&str; 12] = [
    "APIResourceSchema",
    "CustomResourceDefinition",
    "APIConversion",
    "APIConversionRules",
    "APIExport",
    "APIBinding",
    "APIExportEndpointSlice",
    "Workspace",
    "WorkspaceType",
    "Namespace",
    "ClusterRole",
    "ClusterRoleBinding",
];

/// Reads files and pairs schemas with rules. An APIConversion without a schema is an error, since
/// it cannot be checked.
pub(crate) fn load(paths: &[PathBuf]) -> anyhow::Result<Manifests> {
    load_with(paths, FolderOptions::default())
}

/// Reads files as [`load`] does, of folders as the options say.
pub(crate) fn load_with(paths: &[PathBuf], folders: FolderOptions) -> anyhow::Result<Manifests> {
    let (mut sources, mut conversions, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for document in files::read_with(paths, folders)? {
        match document.text("/kind") {
            "APIResourceSchema" | "CustomResourceDefinition" => sources.push(Source::new(defaulted(document), None)),
            "APIConversion" | "APIConversionRules" => conversions.push(document),
            _ if is_sample(&document) => others.push(document),
            _ => {}
        }
    }
    if sources.is_empty() {
        let skipped = folders.skipped(paths).map(|folder| {
            let folder = folder.display();
            format!("; the folders in {folder} were not read: --recursive reads them, too")
        });
        bail!(
            "no APIResourceSchema and no CustomResourceDefinition among the files{}",
            skipped.unwrap_or_default()
        );
    }
    for conversion in conversions {
        let name = parts::schema_of(&conversion.value).to_owned();
        let names: Vec<String> = sources.iter().map(|source| source.name().to_owned()).collect();
        let source = sources.iter_mut().find(|source| source.name() == name);
        let source = source.ok_or_else(|| {
            anyhow!(
                "{}: {} {name:?} has no schema of its name among the files, which have {}",
                conversion.file,
                conversion.text("/kind"),
                names.join(", ")
            )
        })?;
        source.add(conversion)?;
    }
    for source in &mut sources {
        source.join();
    }
    Ok(Manifests { sources, others })
}

/// Returns true for a sample: an object of an API, and not a description of APIs.
pub(crate) fn is_sample(document: &Document) -> bool {
    !DESCRIBING.contains(&document.text("/kind"))
}

fn defaulted(mut document: Document) -> Document {
    if document.text("/kind") == "CustomResourceDefinition" {
        insula_schema::default_definition(&mut document.value);
    }
    document
}

/// The payer of what a command computes: its user.
static USER: Meter = Meter::unbounded();

impl Source {
    pub(crate) fn new(schema: Document, conversion: Option<Document>) -> Self {
        Source {
            schema,
            conversion,
            parts: Vec::new(),
        }
    }

    fn add(&mut self, conversion: Document) -> anyhow::Result<()> {
        let name = conversion.text("/metadata/name");
        if let Some(other) = self.parts.iter().find(|part| part.text("/metadata/name") == name) {
            bail!("{} and {} both hold the rules of {name:?}", other.file, conversion.file);
        }
        self.parts.push(conversion);
        Ok(())
    }

    /// Joins the APIConversions that name this schema.
    fn join(&mut self) {
        self.parts.sort_by_key(|part| part.text("/metadata/name").to_owned());
        let files: Vec<&str> = self.parts.iter().map(|part| part.file.as_str()).collect();
        let file = files.join(", ");
        let joined = publication::join_files(self.parts.drain(..).map(|part| part.value).collect());
        self.conversion = joined.map(|value| Document { file, value });
    }

    pub(crate) fn name(&self) -> &str {
        self.schema.text("/metadata/name")
    }

    /// Drops the rules, inside the schema, too.
    pub(crate) fn without_rules(&mut self) {
        self.conversion = None;
        publication::without_rules(&mut self.schema.value);
    }

    /// Returns the schema with its rules.
    pub(crate) fn manifest(&self) -> Manifest<'_> {
        Manifest {
            schema: &self.schema.value,
            conversion: self.conversion.as_ref().map(|conversion| &conversion.value),
            meter: &USER,
        }
    }
}

/// Returns the version of an object, if it belongs to this API.
pub(crate) fn version_of<'a>(api: &Api, object: &'a Value) -> Option<&'a str> {
    let api_version = text(object, "/apiVersion");
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    (*api.group == *group && *api.names.kind == *text(object, "/kind")).then_some(version)
}

/// Returns the versions as text: `v1 (stored, hub), v2, v3 (not served)`.
pub(crate) fn versions(bundle: &Bundle) -> String {
    let served: Vec<&str> = bundle.served().collect();
    let one = |version: &str| {
        let notes = [
            (version == bundle.storage()).then_some("stored"),
            (version == bundle.hub() && bundle.hub() != bundle.storage()).then_some("hub"),
            (!served.contains(&version)).then_some("not served"),
        ];
        let notes: Vec<&str> = notes.into_iter().flatten().collect();
        if notes.is_empty() {
            version.to_owned()
        } else {
            format!("{version} ({})", notes.join(", "))
        }
    };
    bundle.versions().map(one).collect::<Vec<_>>().join(", ")
}
