//! The record of a project: its APIs, as `insula boot` has written them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::names;
use crate::print;

/// File of the record, in the root of a project.
pub(super) const RECORD: &str = "insula-boot.yaml";
const HEADER: &str = "# The APIs of this project. `insula boot` reads and writes this file.\n";

/// A project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Project {
    /// Name of the package and its program.
    pub(super) name: String,
    /// Domain of all groups.
    pub(super) domain: String,
    #[serde(default)]
    pub(super) kinds: Vec<Kind>,
}

/// A kind in its versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Kind {
    /// Group without the domain.
    pub(super) group: String,
    pub(super) kind: String,
    pub(super) plural: String,
    pub(super) cluster_scoped: bool,
    /// In the order in which they were added. The first is the one that is stored.
    pub(super) versions: Vec<String>,
    pub(super) controller: bool,
    pub(super) subresources: Vec<String>,
}

impl Kind {
    /// Returns the module of the kind.
    pub(super) fn module(&self) -> String {
        names::module(&self.kind)
    }
}

impl Project {
    /// Reads the project of the current folder, or of the nearest folder above it that has one.
    ///
    /// # Errors
    /// No folder has a record, or it is not one.
    pub(super) fn find(from: &Path) -> anyhow::Result<(PathBuf, Self)> {
        let root = from.ancestors().find(|folder| folder.join(RECORD).is_file());
        let Some(root) = root else {
            bail!(
                "neither {} nor a folder above it has {RECORD}: begin a project with \
                 `insula boot init repo --domain DOMAIN`",
                from.display()
            );
        };
        let path = root.join(RECORD);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let project = serde_saphyr::from_str(&text).with_context(|| format!("{} is not a record", path.display()))?;
        Ok((root.to_owned(), project))
    }

    /// Returns the text of the record.
    ///
    /// # Errors
    /// Never in practice: all of it is text.
    pub(super) fn record(&self) -> anyhow::Result<String> {
        Ok(format!("{HEADER}{}", print::yaml(self)?))
    }

    /// Returns a group with the domain.
    pub(super) fn full_group(&self, group: &str) -> String {
        format!("{group}.{}", self.domain)
    }

    /// Returns a kind of the project.
    ///
    /// # Errors
    /// The project has no such kind; the message names those that it has.
    pub(super) fn kind(&self, group: &str, kind: &str) -> anyhow::Result<usize> {
        let found = self.kinds.iter().position(|own| own.group == group && own.kind == kind);
        found.with_context(|| {
            let own: Vec<String> = self
                .kinds
                .iter()
                .map(|own| format!("{} of {}", own.kind, own.group))
                .collect();
            let own = if own.is_empty() {
                "none".to_owned()
            } else {
                own.join(", ")
            };
            format!("the project has no kind {kind} in the group {group} (its kinds: {own})")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_is_written() {
        let project = Project {
            name: "fleet".into(),
            domain: "example.com".into(),
            kinds: vec![Kind {
                group: "fleet".into(),
                kind: "Foo".into(),
                plural: "foos".into(),
                cluster_scoped: false,
                versions: vec!["v1".into()],
                controller: true,
                subresources: vec!["restart".into()],
            }],
        };
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(RECORD), project.record().unwrap()).unwrap();
        let below = folder.path().join("src");
        fs::create_dir(&below).unwrap();
        assert_eq!(Project::find(&below).unwrap(), (folder.path().to_owned(), project));
        let error = Project::find(Path::new("/")).unwrap_err().to_string();
        assert!(error.contains("insula boot init repo"), "{error}");
    }
}
