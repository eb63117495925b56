//! Limits on the requests and the storage of one workspace, in the place of the server's: an
//! annotation of the LogicalCluster that only the platform writes.

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
    /// Bytes of stored objects; 0 is no limit.
    pub storage: Option<u64>,
}

/// Name of the storage in the annotation, where -1 is no limit.
const STORAGE: &str = "storageBytes";

/// Names of the others in the annotation, in the order of the fields.
const NAMES: [&str; 4] = ["requestsInFlight", "requestsPerSecond", "watches", "bytesInFlight"];

impl WorkspaceLimits {
    /// Reads the value of the annotation. Ignores what is no limit.
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
            storage: match value[STORAGE].as_i64() {
                Some(-1) => Some(0),
                limit => limit
                    .and_then(|limit| u64::try_from(limit).ok())
                    .filter(|limit| *limit > 0),
            },
        }
    }

    /// Returns the value of the annotation; `None` if all limits are the server's.
    pub fn write(&self) -> Option<String> {
        let limits = [self.requests, self.rate, self.watches, self.bytes];
        let some = NAMES
            .iter()
            .zip(limits)
            .filter_map(|(name, limit)| Some(((*name).to_owned(), json!(limit?))));
        let mut some: Map<String, Json> = some.collect();
        if let Some(bytes) = self.storage {
            let limit = if bytes == 0 { json!(-1) } else { json!(bytes) };
            some.insert(STORAGE.to_owned(), limit);
        }
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
        for storage in [None, Some(0), Some(5 << 30)] {
            let own = WorkspaceLimits { storage, ..own };
            assert_eq!(own.write().as_deref().map(WorkspaceLimits::read), Some(own));
        }
        assert_eq!(WorkspaceLimits::default().write(), None);
        for nothing in [
            "",
            "x",
            "[]",
            r#"{"watches": 0}"#,
            r#"{"watches": "5"}"#,
            r#"{"watches": -1}"#,
            r#"{"storageBytes": 0}"#,
            r#"{"storageBytes": -2}"#,
        ] {
            assert_eq!(WorkspaceLimits::read(nothing), WorkspaceLimits::default(), "{nothing}");
        }
    }
}
