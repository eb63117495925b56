//! Settings of a run, and its result.

use crate::plant::Plant;
use insula_api::ObjectKey;

/// Settings of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Everything that happens follows from it.
    pub seed: u64,
    /// Steps with clients and faults.
    pub steps: usize,
    /// Servers on the store.
    pub servers: usize,
    /// Faults that the world does not have, of [`crate::faults::FAULTS`].
    pub without: Vec<&'static str>,
    /// The fault that the store has.
    pub plant: Option<Plant>,
    /// True to keep all steps, and what each poll is of.
    pub whole_trace: bool,
}

/// The result of a run.
#[derive(Debug)]
pub struct Report {
    /// The promise that is broken.
    pub failure: Option<String>,
    /// The last steps.
    pub trace: Vec<String>,
    /// Hash of everything that happened.
    pub hash: u64,
    /// Steps, and commits in them.
    pub steps: usize,
    /// Commits.
    pub commits: usize,
    /// Requests by what they came to: written, read, refused, unknown.
    pub outcomes: [usize; 4],
}

/// Shows a key in a trace; `†` for a deletion.
pub(crate) fn shown(key: &ObjectKey, is_there: bool) -> String {
    let end = if is_there { "" } else { "†" };
    format!("{}/{}/{}{end}", key.resource.resource, key.cluster, key.name)
}
