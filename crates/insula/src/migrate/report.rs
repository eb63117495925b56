//! Results of migrations, for people and for programs.

use insula_proto::admin::v1::{Migration, MigrationStep};
use serde::Serialize;
use serde_json::Value;

/// Result of one migration.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) workspace: String,
    pub(super) registration: String,
    pub(super) replacement: String,
    pub(super) former_api_version: String,
    pub(super) api_version: String,
    pub(super) objects: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) hash: String,
    /// `planned`, `migrated`, `undone`, `failed`, or the step that comes next.
    pub(super) state: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) problems: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) manifest: Option<Value>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) kept_in: String,
}

impl Report {
    pub(super) fn for_migration(workspace: &str, migration: &Migration) -> Self {
        Report {
            workspace: workspace.to_owned(),
            registration: migration.registration.clone(),
            replacement: format!("{}/{}", migration.replacement_kind, migration.replacement),
            former_api_version: migration.former_api_version.clone(),
            api_version: migration.api_version.clone(),
            objects: migration.objects,
            hash: migration.hash.clone(),
            ..Report::default()
        }
    }

    /// Returns true if something is left to do that the command cannot.
    pub(super) fn is_open(&self) -> bool {
        self.state == "failed" || !self.problems.is_empty()
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let versions = match self.former_api_version == self.api_version {
            true => self.api_version.clone(),
            false => format!("{} to {}", self.former_api_version, self.api_version),
        };
        let mut lines = vec![format!(
            "{}: {} in {}: {} objects of {versions}, {}",
            self.state, self.registration, self.workspace, self.objects, self.replacement
        )];
        if !self.hash.is_empty() {
            lines.push(format!("  hash {}", self.hash));
        }
        if !self.kept_in.is_empty() {
            lines.push(format!("  kept in {}", self.kept_in));
        }
        lines.extend(self.problems.iter().map(|problem| format!("  ✘ {problem}")));
        lines
    }
}

/// Returns the name of a step as flags spell it.
pub(super) fn name(step: MigrationStep) -> &'static str {
    match step {
        MigrationStep::Export => "export",
        MigrationStep::Replace => "replace",
        MigrationStep::Serve => "serve",
        MigrationStep::Recreate => "recreate",
        MigrationStep::Adopt => "adopt",
        MigrationStep::Verify => "verify",
        MigrationStep::Thaw => "thaw",
        MigrationStep::Unspecified => "unknown",
    }
}
