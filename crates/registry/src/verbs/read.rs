//! Get and list: reads of one snapshot with key ranges, selectors and pages.

use crate::{Deps, calls, representation};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use insula_access::{Target, view::ViewScope};
use insula_api::{ClusterName, FieldSelector, Json, LabelSelector, ObjectKey, Revision};
use insula_catalog::{Error, Result, ids};
use insula_store::{Entry, Snapshot};
use std::ops::ControlFlow;

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
    /// `cluster/namespace/name`.
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
    start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of \
    the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or \
    deleted between the time the first chunk was returned and now may show up in the list.";

/// Returns one object.
///
/// # Errors
/// The object does not exist, or the view scope hides it (404).
pub fn get(deps: &Deps, snapshot: &Snapshot, target: &Target, name: &str) -> Result<Entry> {
    let mut looking = target.looking(&deps.catalog, snapshot);
    snapshot
        .get(&target.key(name))
        .filter(|entry| looking.sees_entry(entry))
        .ok_or_else(|| target.served.api.not_found(name))
}

/// Returns an object in the target's version, and calls its conversion webhook if it has one.
///
/// # Errors
/// The object cannot be converted, or its webhook failed.
pub async fn show(deps: &Deps, target: &Target, entry: &Entry) -> Result<Json> {
    let target = calls::attach(deps, target);
    calls::prefetch(&target, std::iter::once(entry)).await;
    representation::value(&target.serving(&entry.key), entry, &target.version)
}

/// Returns a page of objects as they are. For a token of an older revision, see
/// [`list_at`].
///
/// # Errors
/// A selector or the token is invalid, or an object cannot be converted for a field selector.
pub fn list(deps: &Deps, snapshot: &Snapshot, target: &Target, options: &ListOptions) -> Result<List> {
    list_at(deps, snapshot, snapshot, target, options)
}

/// Returns a page of objects at an older state, `snapshot`, for a caller who may read them now.
/// With a token, `snapshot` must be the state at the token's revision (see [`Token`]). A view
/// scope shows only objects that it showed then and still shows, so an old revision does not
/// restore revoked rights.
///
/// # Errors
/// The resource or the workspace of that name was another one then (410). A selector or the
/// token is invalid, or an object cannot be converted for a field selector.
pub fn list_at(
    deps: &Deps,
    now: &Snapshot,
    snapshot: &Snapshot,
    target: &Target,
    options: &ListOptions,
) -> Result<List> {
    check_fields(target, &options.fields)?;
    let is_past = snapshot.revision() < now.revision();
    if is_past && (snapshot.revision() < served_since(now, target) || has_new_owner(now, snapshot, target)) {
        return Err(Token::expired(options.next.as_deref()));
    }
    let token = options.next.as_deref().map(Token::decode).transpose()?;
    let after = token.as_ref().map(|token| start_key(target, token)).transpose()?;
    let limit = if options.limit == 0 { usize::MAX } else { options.limit };
    let all = options.labels.is_empty() && options.fields.is_empty();
    let (mut entries, mut more, mut failed) = (Vec::new(), false, None);
    let mut looking = target.looking(&deps.catalog, snapshot);
    let mut today = is_past.then(|| target.looking(&deps.catalog, now));
    let mut sees = |entry: &Entry| {
        looking.sees_entry(entry)
            && today
                .as_mut()
                .is_none_or(|today| today.still_sees(&entry.key, &entry.object))
    };
    for scope in target.ranges(now) {
        snapshot.for_each_after(&scope, after.as_ref(), |entry| {
            let selected = match (all, sees(entry)) {
                (_, false) => Ok(false),
                (true, true) => Ok(true),
                (false, true) => selects(target, &options.labels, &options.fields, entry),
            };
            match selected {
                Ok(true) if entries.len() == limit => more = true,
                Ok(true) => entries.push(entry.clone()),
                Ok(false) => {}
                Err(error) => failed = Some(error),
            }
            match more || failed.is_some() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        if more {
            break;
        }
    }
    let last = if more { entries.last() } else { None };
    let remaining = last
        // A caller who sees only a part must not learn the total.
        .filter(|_| all && matches!(target.view_scope, ViewScope::Within))
        .map(|last| match &token {
            None => snapshot.count(&target.scope()).saturating_sub(entries.len()),
            Some(Token { left: Some(left), .. }) => left.saturating_sub(entries.len()),
            Some(_) => snapshot.count_after(&target.scope(), Some(&last.key)),
        });
    let next = last.map(|last| {
        let start = match target.is_across() {
            true => format!("{}/{}/{}", last.key.cluster, last.key.namespace, last.key.name),
            false => format!("{}/{}", last.key.namespace, last.key.name),
        };
        Token {
            revision: Some(snapshot.revision()),
            start,
            left: remaining,
        }
        .encode()
    });
    Ok(List {
        entries,
        revision: snapshot.revision(),
        next,
        remaining,
    })
}

/// Returns the revision at which the resource's route was created in the cluster. Objects of an
/// earlier resource of the same name are not part of its history. In kube-apiserver, too, the
/// history begins with the definition.
pub(super) fn served_since(now: &Snapshot, target: &Target) -> Revision {
    let claim = target.served.guard.as_ref();
    claim
        .and_then(|(claim, _)| now.get(claim))
        .map_or(Revision(0), |claim| claim.created)
}

/// Returns true if another cluster had this name at the older state. Home workspaces are named
/// after their users, so names recur.
fn has_new_owner(now: &Snapshot, then: &Snapshot, target: &Target) -> bool {
    let uid = |snapshot: &Snapshot| {
        let logical = snapshot.get(&ids::logical_cluster(&target.cluster))?;
        Some(logical.object.meta.uid)
    };
    !target.is_across() && uid(then).is_some_and(|was| uid(now) != Some(was))
}

/// Returns the key at which a token's page starts. A namespaced list stays in its namespace for any
/// token.
fn start_key(target: &Target, token: &Token) -> Result<ObjectKey> {
    let (cluster, start) = match target.is_across() {
        true => {
            let unknown = || Error::BadRequest("continue key is not valid: unknown form".into());
            let (cluster, start) = token.start.split_once('/').ok_or_else(unknown)?;
            (ClusterName::parse(cluster).map_err(|_| unknown())?, start)
        }
        false => (target.cluster.clone(), token.start.as_str()),
    };
    let (namespace, name) = start.split_once('/').unwrap_or(("", start));
    let mut key = target.key(name);
    key.cluster = cluster;
    if target.namespace.is_none() || target.is_across() {
        key.namespace = namespace.into();
    }
    Ok(key)
}

/// Returns true if an object satisfies both selectors. Fields outside metadata are read in the
/// requested version.
pub(crate) fn selects(target: &Target, labels: &LabelSelector, fields: &FieldSelector, entry: &Entry) -> Result<bool> {
    let meta = &entry.object.meta;
    if !labels.matches(&meta.labels) {
        return Ok(false);
    }
    let mut shown: Option<Json> = None;
    for (field, want, equal) in &fields.terms {
        let value = match field.as_str() {
            "metadata.name" => meta.name.to_string(),
            "metadata.namespace" => meta.namespace.to_string(),
            path => {
                let object = match shown.take() {
                    Some(object) => object,
                    None => representation::value(&target.serving(&entry.key), entry, &target.version)?,
                };
                let object = &*shown.insert(object);
                let strategy = &target.served.api.strategy;
                strategy
                    .selectable(object, path)
                    .unwrap_or_else(|| text_at(object, path))
            }
        };
        if (value == *want) != *equal {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns a scalar as text in the format of Go's `fmt.Sprint`, or an empty text if there is none.
fn text_at(body: &Json, path: &str) -> String {
    let mut at = body;
    for segment in path.split('.') {
        at = &at[segment];
    }
    match at {
        Json::String(text) => text.clone(),
        Json::Null => String::new(),
        other => other.to_string(),
    }
}

/// Refuses fields that the resource does not select by.
pub(crate) fn check_fields(target: &Target, fields: &FieldSelector) -> Result<()> {
    let namespaced = target.served.api.scope == insula_catalog::ScopeKind::Namespaced;
    let built_in = target.served.api.strategy.traits().built_in;
    let selectable = &target.api_version()?.selectable;
    for (field, _, _) in &fields.terms {
        let known = field == "metadata.name"
            || (field == "metadata.namespace" && (namespaced || built_in))
            || selectable.contains(field);
        if !known {
            return Err(Error::BadRequest(if built_in && selectable.is_empty() {
                format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            } else {
                format!("field label not supported: {field}")
            }));
        }
    }
    Ok(())
}

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
