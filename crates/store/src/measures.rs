//! Measures of a store, for metrics.

use insula_api::{Revision, measure::Distribution};

/// Measures of a store at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Measures {
    /// The latest revision that this process has applied.
    pub revision: Revision,
    /// The oldest revision that can be requested.
    pub floor: Revision,
    /// Keys in memory: those of objects, and of objects whose deletion is in the history.
    pub keys: usize,
    /// Changes in the history.
    pub history_changes: usize,
    /// Estimated size of the history in bytes.
    pub history_bytes: usize,
    /// Compactions since the start.
    pub compactions: u64,
    /// The file, of a store that has one.
    pub file: Option<FileMeasures>,
}

/// Measures of the file of a store.
#[derive(Debug, Clone, PartialEq)]
pub struct FileMeasures {
    /// Length in bytes.
    pub bytes: u64,
    /// Seconds of each flush to the disk.
    pub syncs: Distribution,
}
