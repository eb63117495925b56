//! Limits on the requests of one workspace, in the place of the server's: an annotation of the
//! LogicalCluster that only the platform writes.

use insula_api::Json;
use serde_json::{Map, json};

/// Limits of one workspace, for all of its users together. `None` leaves the server's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkspaceLimits {
    /// Requests in flight.
    pub requests: Option<usize>,
    /// Requests in a second.
    pub rate: Option<usize>,
    /// Open watches.
    pub watches: Option<usize>,
    /// Bytes in flight of requests and answers.
    pub bytes: Option<usize>,
}

/// Names in the annotation, in the order of the fields.
const NAMES: [&str; 4] = ["requestsInFlight", "requestsPerSecond", "watches", "bytesInFlight"];

impl WorkspaceLimits {
    /// Reads the value of the annotation. Ignores what is no number above 0.
    pub fn read(text: &str) -> Self {
        let value: Json = serde_json::from_str(text).unwrap_or_default();
        let [requests, rate, watches, bytes] = NAMES.map(|name| {
            let limit = value[name].as_u64().and_then(|limit| usize::try_from(limit).ok());
            limit.filter(|limit| *limit > 0)
        });
        WorkspaceLimits {
            requests,
            rate,
            watches,
            bytes,
        }
    }

    /// Returns the value of the annotation; `None` if all limits are the server's.
    pub fn write(&self) -> Option<String> {
        let limits = [self.requests, self.rate, self.watches, self.bytes];
        let some = NAMES
            .iter()
            .zip(limits)
            .filter_map(|(name, limit)| Some(((*name).to_owned(), json!(limit?))));
        let some: Map<String, Json> = some.collect();
        (!some.is_empty()).then(|| Json::Object(some).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_read_as_they_were_written() {
        let own = WorkspaceLimits {
            rate: Some(5),
            bytes: Some(1 << 30),
            ..WorkspaceLimits::default()
        };
        assert_eq!(own.write().as_deref().map(WorkspaceLimits::read), Some(own));
        assert_eq!(WorkspaceLimits::default().write(), None);
        for nothing in [
            "",
            "x",
            "[]",
            r#"{"watches": 0}"#,
            r#"{"watches": "5"}"#,
            r#"{"watches": -1}"#,
        ] {
            assert_eq!(WorkspaceLimits::read(nothing), WorkspaceLimits::default(), "{nothing}");
        }
    }
}
