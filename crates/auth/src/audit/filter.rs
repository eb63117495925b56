//! Selection of events that were written.

use super::stage::Stage;
use insula_api::{ClusterName, Json};

/// Selects events of the log. What is empty selects all.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// The logical cluster of the requests.
    pub cluster: Option<ClusterName>,
    /// The name of the user, or of the one whom the user acts as.
    pub user: String,
    /// The verb.
    pub verb: String,
    /// The resource in the plural.
    pub resource: String,
    /// The name of the object.
    pub name: String,
    /// Requests that failed alone: with a code of 400 and more, or without an answer.
    pub failed: bool,
}

/// The first code of a failure.
const FAILURES: u64 = 400;

impl Filter {
    /// Returns true if the event is selected.
    pub fn matches(&self, event: &Json) -> bool {
        let is = |at: &str, wanted: &str| wanted.is_empty() || event.pointer(at).is_some_and(|value| value == wanted);
        let code = event.pointer("/responseStatus/code").and_then(Json::as_u64);
        is(
            "/annotations/kcp.io~1cluster",
            self.cluster.as_ref().map_or("", ClusterName::as_str),
        ) && (is("/user/username", &self.user) || is("/impersonatedUser/username", &self.user))
            && is("/verb", &self.verb)
            && is("/objectRef/resource", &self.resource)
            && is("/objectRef/name", &self.name)
            && (!self.failed || code.map_or_else(|| is_last(event), |code| code >= FAILURES))
    }
}

/// Returns true for an event after which nothing follows: the request got no answer.
fn is_last(event: &Json) -> bool {
    let last = [Stage::ResponseComplete, Stage::Panic];
    last.iter().any(|stage| event["stage"] == stage.word())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    type Change = fn(&mut Filter);

    #[test]
    fn each_field_selects() {
        let event = json!({
            "verb": "create", "user": {"username": "admin"}, "impersonatedUser": {"username": "alice"},
            "objectRef": {"resource": "configmaps", "name": "a"}, "responseStatus": {"code": 201},
            "annotations": {"kcp.io/cluster": "c1"},
        });
        let filter = |change: Change| {
            let mut filter = Filter::default();
            change(&mut filter);
            filter.matches(&event)
        };
        let cases: [(Change, bool); 12] = [
            (|_| (), true),
            (|filter| filter.cluster = ClusterName::parse("c1").ok(), true),
            (|filter| filter.cluster = ClusterName::parse("c2").ok(), false),
            (|filter| filter.user = "admin".into(), true),
            (|filter| filter.user = "alice".into(), true),
            (|filter| filter.user = "bob".into(), false),
            (|filter| filter.verb = "create".into(), true),
            (|filter| filter.verb = "get".into(), false),
            (|filter| filter.resource = "secrets".into(), false),
            (|filter| filter.name = "a".into(), true),
            (|filter| filter.name = "b".into(), false),
            (|filter| filter.failed = true, false),
        ];
        for (index, (change, want)) in cases.into_iter().enumerate() {
            assert_eq!(filter(change), want, "{index}");
        }
        let failed = Filter {
            failed: true,
            ..Filter::default()
        };
        assert!(failed.matches(&json!({"responseStatus": {"code": 403}})));
        assert!(failed.matches(&json!({"stage": "ResponseComplete"})));
        assert!(!failed.matches(&json!({"stage": "RequestReceived"})));
    }
}
