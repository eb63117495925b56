//! Times of the objects that an effect reaches.

use insula_api::Json;
use serde::Serialize;

/// Times of the objects that an effect reaches, as RFC 3339 in UTC; empty if none is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Times {
    /// Creation of the oldest.
    pub since: String,
    /// The last write of any by a client.
    #[serde(rename = "last_write")]
    pub written: String,
}

impl Times {
    pub(super) fn of_object(value: &Json) -> Self {
        let metadata = &value["metadata"];
        let managers = metadata["managedFields"].as_array().into_iter().flatten();
        let written = managers.filter_map(|manager| manager["time"].as_str()).max();
        Times {
            since: metadata["creationTimestamp"].as_str().unwrap_or_default().to_owned(),
            written: written.unwrap_or_default().to_owned(),
        }
    }

    /// Adds the times of other objects.
    pub fn add(&mut self, other: &Times) {
        // The order of such texts is that of the times.
        if self.since.is_empty() || !other.since.is_empty() && other.since < self.since {
            self.since.clone_from(&other.since);
        }
        if other.written > self.written {
            self.written.clone_from(&other.written);
        }
    }
}
