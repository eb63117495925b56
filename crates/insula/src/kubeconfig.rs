//! Kubeconfigs: read and merged as kubectl does, and edited in place.
//!
//! Documents stay untyped, so that fields of other programs survive an edit. Of several files the
//! first one with an entry counts: `A:B` with `user: x` in both gives the user of `A`.

mod edit;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use serde_json::{Value, json};

pub(crate) use edit::{Edit, Put, text, write_document};

/// Maximum number of bytes of a kubeconfig.
const BYTES_MAX: u64 = 4 << 20;
/// Fields of clusters and users that name files.
const FILE_FIELDS: [&str; 4] = ["certificate-authority", "client-certificate", "client-key", "tokenFile"];

/// A list of a kubeconfig.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Clusters,
    Contexts,
    Users,
}

impl Section {
    /// Returns the name of the list, and of the field of its entries.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Clusters => ("clusters", "cluster"),
            Self::Contexts => ("contexts", "context"),
            Self::Users => ("users", "user"),
        }
    }
}

/// Paths of the kubeconfigs, the first one first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Paths(Vec<PathBuf>);

impl Paths {
    /// Returns the given path, else those of `KUBECONFIG`, else `~/.kube/config`.
    pub(crate) fn find(given: Option<&Path>) -> anyhow::Result<Self> {
        if let Some(given) = given {
            return Ok(Self(vec![given.to_owned()]));
        }
        let listed = std::env::var_os("KUBECONFIG").unwrap_or_default();
        let listed: Vec<PathBuf> = std::env::split_paths(&listed)
            .filter(|path| !path.as_os_str().is_empty())
            .collect();
        if !listed.is_empty() {
            return Ok(Self(listed));
        }
        match std::env::var_os("HOME") {
            Some(home) => Ok(Self(vec![PathBuf::from(home).join(".kube/config")])),
            None => bail!("there is no kubeconfig: name one with --kubeconfig or KUBECONFIG"),
        }
    }

    /// Returns the file that gets new entries: the first one that exists, else the first.
    fn default_file(&self) -> &Path {
        let existing = self.0.iter().find(|path| path.exists());
        existing.or(self.0.first()).map_or(Path::new(""), PathBuf::as_path)
    }
}

/// One file.
#[derive(Debug)]
struct File {
    path: PathBuf,
    /// Comment lines before the document, kept by edits.
    header: String,
    document: Value,
}

/// An entry of a list, and the folder that its paths are relative to. The default is empty.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entry {
    pub(crate) content: Value,
    pub(crate) folder: PathBuf,
    /// Its name and file, for messages: `"bob" in FILE`.
    pub(crate) origin: String,
}

impl Entry {
    /// Returns a text field; `None` if it is missing or empty.
    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        self.content[field].as_str().filter(|text| !text.is_empty())
    }

    /// Returns the content with absolute paths.
    pub(crate) fn absolute(&self) -> Value {
        let mut content = self.content.clone();
        for field in FILE_FIELDS {
            if let Some(path) = self.text(field) {
                let path = self.folder.join(path);
                content[field] = json!(std::path::absolute(&path).unwrap_or(path));
            }
        }
        content
    }
}

/// The merged files.
#[derive(Debug)]
pub(crate) struct Kubeconfig {
    files: Vec<File>,
}

impl Kubeconfig {
    /// Reads all files that exist.
    ///
    /// # Errors
    /// No file exists, or one is no kubeconfig.
    pub(crate) fn load(paths: &Paths) -> anyhow::Result<Self> {
        let mut files = Vec::new();
        for path in &paths.0 {
            files.extend(File::read(path)?);
        }
        if files.is_empty() {
            let named: Vec<String> = paths.0.iter().map(|path| path.display().to_string()).collect();
            bail!(
                "there is no kubeconfig {}: name one with --kubeconfig or KUBECONFIG",
                named.join(", ")
            );
        }
        Ok(Self { files })
    }

    /// Returns a kubeconfig without entries.
    pub(crate) fn none() -> Self {
        Self { files: Vec::new() }
    }

    /// Returns the name of the current context; empty without one.
    pub(crate) fn current(&self) -> &str {
        let mut set = self
            .files
            .iter()
            .filter_map(|file| file.document["current-context"].as_str());
        set.find(|name| !name.is_empty()).unwrap_or_default()
    }

    /// Returns an entry of a list.
    pub(crate) fn entry(&self, section: Section, name: &str) -> Option<Entry> {
        let (_, field) = section.names();
        self.files.iter().find_map(|file| {
            let content = file.find(section, name)?.get(field).cloned();
            let folder = file.path.parent().unwrap_or(Path::new("")).to_owned();
            Some(Entry {
                content: content.unwrap_or_else(|| json!({})),
                folder,
                origin: format!("{name:?} in {}", file.path.display()),
            })
        })
    }

    /// Returns the names of a list, in order.
    pub(crate) fn names(&self, section: Section) -> Vec<&str> {
        let entries = self.files.iter().flat_map(|file| file.list(section));
        entries.filter_map(|entry| entry["name"].as_str()).collect()
    }
}

impl File {
    /// Reads a file. Returns `None` for a missing one.
    fn read(path: &Path) -> anyhow::Result<Option<Self>> {
        let unreadable = || format!("cannot read {}", path.display());
        let text = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(unreadable),
            Ok(found) if found.len() > BYTES_MAX => bail!("{} is larger than 4 MiB", path.display()),
            Ok(_) => fs::read_to_string(path).with_context(unreadable)?,
        };
        let document: Value = match text.trim().is_empty() {
            true => json!({}),
            false => {
                serde_saphyr::from_str(&text).with_context(|| format!("{} is not a kubeconfig", path.display()))?
            }
        };
        let document = if document.is_null() { json!({}) } else { document };
        if !document.is_object() {
            bail!("{} is not a kubeconfig", path.display());
        }
        let comments = text.lines().take_while(|line| line.starts_with('#'));
        let header = comments.flat_map(|line| [line, "\n"]).collect();
        Ok(Some(Self {
            path: path.to_owned(),
            header,
            document,
        }))
    }

    fn list(&self, section: Section) -> impl Iterator<Item = &Value> {
        self.document[section.names().0].as_array().into_iter().flatten()
    }

    fn find(&self, section: Section, name: &str) -> Option<&Value> {
        self.list(section).find(|entry| entry["name"] == name)
    }
}

#[cfg(test)]
mod tests;
