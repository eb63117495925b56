//! The pages of a list: options, results and continue tokens.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use insula_access::Target;
use insula_api::{ClusterName, FieldSelector, Json, LabelSelector, ObjectKey, Revision};
use insula_catalog::{Error, Result};
use insula_store::Entry;

/// The options of a list.
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    /// Labels that must match.
    pub labels: LabelSelector,
    /// Fields that must match.
    pub fields: FieldSelector,
    /// Objects in a page; 0 for all.
    pub limit: usize,
    /// The token of the previous page.
    pub next: Option<String>,
}

/// A page of a list.
#[derive(Debug)]
pub struct List {
    /// The objects, in key order.
    pub entries: Vec<Entry>,
    /// The revision that all pages show.
    pub revision: Revision,
    /// The token of the next page.
    pub next: Option<String>,
    /// The number of objects after this page; only without selectors.
    pub remaining: Option<usize>,
}

/// A continue token: the start of a page, and the revision of all pages (`None`: the present).
#[derive(Debug, PartialEq, Eq)]
pub struct Token {
    /// The list's revision.
    pub revision: Option<Revision>,
    /// `namespace/name` of the last object of the page before; across clusters
    /// `cluster/namespace/name`, and of all exporters `identity/cluster/namespace/name`.
    pub start: String,
    /// The number of objects that follow at that revision, if the previous page reported it.
    pub left: Option<usize>,
}

impl Token {
    /// Encodes the token as opaque text. Any token only selects a position within the list of its
    /// request.
    pub fn encode(&self) -> String {
        let rv = self.revision.map_or(-1, |revision| revision.0 as i64);
        let mut token = serde_json::json!({"v": "meta.k8s.io/v1", "rv": rv, "start": self.start});
        if let Some(left) = self.left {
            token["left"] = left.into();
        }
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    /// Reads a token that a client sent.
    ///
    /// # Errors
    /// The text is not a valid token (400).
    pub fn decode(text: &str) -> Result<Token> {
        let bad = |why: &str| Error::BadRequest(format!("continue key is not valid: {why}"));
        let bytes = URL_SAFE_NO_PAD
            .decode(text.trim_end_matches('='))
            .map_err(|e| bad(&e.to_string()))?;
        let value: Json = serde_json::from_slice(&bytes).map_err(|e| bad(&e.to_string()))?;
        let start = value["start"].as_str().ok_or_else(|| bad("no start"))?;
        if value["v"] != "meta.k8s.io/v1" || start.contains("..") || !start.contains('/') {
            return Err(bad("unknown form"));
        }
        let revision = match value["rv"].as_i64() {
            Some(-1) => None,
            Some(rv) if rv > 0 => Some(Revision(rv as u64)),
            _ => return Err(bad("no revision")),
        };
        Ok(Token {
            revision,
            start: start.to_owned(),
            left: value["left"].as_u64().and_then(|left| usize::try_from(left).ok()),
        })
    }

    /// Returns the token of the page that begins after an object.
    pub(super) fn after(last: &ObjectKey, target: &Target, revision: Revision, left: Option<usize>) -> Token {
        let mut start = format!("{}/{}", last.namespace, last.name);
        if target.is_across() {
            start = format!("{}/{start}", last.cluster);
        }
        if target.is_of_all_exporters() {
            start = format!("{}/{start}", last.resource.identity);
        }
        Token {
            revision: Some(revision),
            start,
            left,
        }
    }

    /// Returns the key at which a token's page starts. A namespaced list stays in its namespace for
    /// any token.
    pub(super) fn start_key(&self, target: &Target) -> Result<ObjectKey> {
        let unknown = || Error::BadRequest("continue key is not valid: unknown form".into());
        let (identity, start) = match target.is_of_all_exporters() {
            true => self.start.split_once('/').ok_or_else(unknown)?,
            false => (&*target.served.identity, self.start.as_str()),
        };
        let (cluster, start) = match target.is_across() {
            true => {
                let (cluster, start) = start.split_once('/').ok_or_else(unknown)?;
                (ClusterName::parse(cluster).map_err(|_| unknown())?, start)
            }
            false => (target.cluster.clone(), start),
        };
        let (namespace, name) = start.split_once('/').unwrap_or(("", start));
        let mut key = target.key(name);
        key.resource.identity = identity.into();
        key.cluster = cluster;
        if target.namespace.is_none() || target.is_across() {
            key.namespace = namespace.into();
        }
        Ok(key)
    }

    /// Returns the error for a list at a compacted revision. A list with a token gets a new token
    /// that continues in the present. Objects that changed meanwhile may be missing or appear
    /// twice, and the message says so.
    pub fn expired(token: Option<&str>) -> Error {
        let Some(token) = token.and_then(|token| Token::decode(token).ok()) else {
            return Error::Expired {
                message: "The resourceVersion for the provided list is too old.".into(),
                next: None,
            };
        };
        let next = Some(
            Token {
                revision: None,
                left: None,
                ..token
            }
            .encode(),
        );
        Error::Expired {
            message: INCONSISTENT.into(),
            next,
        }
    }
}

const INCONSISTENT: &str = "The provided continue parameter is too old to display a consistent list result. You can \
    start a new list without the continue parameter, or use the continue token in this response to retrieve the \
    remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were \
    created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_and_forgeries_do_not() {
        for token in [
            Token {
                revision: Some(Revision(7)),
                start: "ns/a".into(),
                left: Some(3),
            },
            Token {
                revision: None,
                start: "/a".into(),
                left: None,
            },
        ] {
            assert_eq!(Token::decode(&token.encode()).expect("decodes"), token);
        }
        for forged in [
            "",
            "x",
            "e30",
            &Token {
                revision: Some(Revision(1)),
                start: "../a".into(),
                left: None,
            }
            .encode(),
        ] {
            assert!(Token::decode(forged).is_err(), "{forged}");
        }
    }
}
