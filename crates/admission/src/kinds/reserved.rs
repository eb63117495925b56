//! Admission of labels and annotations reserved for the server: `internal.….kcp.io/…` and
//! `….internal.….kcp.io/…`.

use crate::kinds::review::{Operation, Review};
use insula_api::{Json, names::annotations};
use insula_catalog::Result;
use std::collections::BTreeSet;

/// `internal.kcp.io/` itself is everybody's, as in kcp, but for the one key of it that has a
/// meaning.
fn is_reserved(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else {
        return false;
    };
    let is_internal = domain.ends_with(".kcp.io") && domain.split('.').any(|part| part == "internal");
    is_internal && (domain != "internal.kcp.io" || annotations::INACTIVE.contains(&key))
}

/// Refuses tenants that set or change a reserved key. Restores reserved keys that the request
/// omits, because a client may PUT a manifest without them.
pub(super) fn review(review: &Review<'_>, new: &mut Json, old: Option<&Json>) -> Result<()> {
    if review.privileged() {
        return Ok(());
    }
    for map in ["labels", "annotations"] {
        let keys = |object: &Json| -> BTreeSet<String> {
            let map = object["metadata"][map].as_object();
            map.into_iter()
                .flatten()
                .map(|(key, _)| key.clone())
                .filter(|key| is_reserved(key))
                .collect()
        };
        let before = old.map(keys).unwrap_or_default();
        for key in keys(new) {
            let kept = old.is_some_and(|old| old["metadata"][map][&key] == new["metadata"][map][&key]);
            if !kept {
                let verb = if review.operation == Operation::Create {
                    "set"
                } else {
                    "changed"
                };
                let why = format!("metadata.{map}[{key}] is the server's and cannot be {verb}: leave it out");
                return Err(review.forbid(new, why));
            }
        }
        if let Some(old) = old {
            for key in before {
                if !new["metadata"][map].is_object() {
                    new["metadata"][map] = Json::Object(serde_json::Map::new());
                }
                new["metadata"][map][&key] = old["metadata"][map][&key].clone();
            }
        }
    }
    Ok(())
}
