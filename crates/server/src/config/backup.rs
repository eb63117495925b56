//! Settings of backups.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Backups that the server keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BackupConfig {
    /// The directory; `None` means `backups` in the data directory.
    pub directory: Option<PathBuf>,
    /// Backups that are kept at most.
    pub max_backups: usize,
    /// Megabytes of all backups at most.
    pub max_megabytes: u64,
}

impl Default for BackupConfig {
    fn default() -> Self {
        Self {
            directory: None,
            max_backups: 64,
            max_megabytes: 10_240,
        }
    }
}
