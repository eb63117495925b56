//! Changes of metadata alone. They need no converter. A client can remove a finalizer from an
//! object that only its stored version can show, or that cannot be written in today's storage
//! version.

use crate::{context::Context, draft::Draft, metadata, owners, prepare::keep_old_metadata};
use insula_api::Json;
use insula_catalog::{
    Result,
    object::{metadata_of, refuse},
    stored,
};
use insula_store::Entry;
use serde_json::{Map, json};

/// The metadata fields that a bundle's rules may read and write.
const RULED: [&str; 2] = ["labels", "annotations"];

/// Returns the parts of an object that need no converter: its metadata, and the type in the
/// request's version.
pub(crate) fn seen(context: &Context<'_>, old: &Entry) -> Json {
    json!({
        "apiVersion": context.served.api_version(&context.version.name),
        "kind": &*context.served.names().kind,
        "metadata": stored::stored_value(old)["metadata"].take(),
    })
}

/// Returns true if a change affects only metadata that the bundle's rules do not see.
pub(crate) fn is_one(context: &Context<'_>, new: &Json, seen: &Json) -> bool {
    let (Some(new), Some(seen)) = (new.as_object(), seen.as_object()) else {
        return false;
    };
    let looked_at = |field: &str| field != "metadata" && !(field == "status" && context.version.status);
    let kept = |of: &Map<String, Json>, by: &Map<String, Json>| {
        of.iter()
            .all(|(field, value)| !looked_at(field) || by.get(field) == Some(value))
    };
    let part = |of: &Map<String, Json>, name: &str| of.get("metadata").and_then(|metadata| metadata.get(name)).cloned();
    let ruled = context.served.api.bundle.rules_see_metadata();
    kept(new, seen) && kept(seen, new) && !(ruled && RULED.iter().any(|name| part(new, name) != part(seen, name)))
}

/// Prepares a change of metadata alone. The rest of the object and its version stay as stored.
pub(crate) fn update(context: &Context<'_>, mut new: Json, old: &Entry) -> Result<Draft> {
    let Context { served, .. } = *context;
    let old_seen = seen(context, old);
    new = json!({"apiVersion": old_seen["apiVersion"], "kind": old_seen["kind"], "metadata": new["metadata"].take()});
    let sent = owners::take(&mut new);
    keep_old_metadata(context, &mut new, &old_seen);
    let mut warnings = metadata::unite_owners(metadata_of(&mut new));
    let mut errors = Vec::new();
    metadata::validate(served, &new["metadata"], &mut errors);
    metadata::validate_update(&new["metadata"], &old_seen["metadata"], &mut errors);
    warnings.extend(metadata::warnings(context.served, &new["metadata"]));
    refuse(served, &old.object.meta.name, errors)?;
    let mut value = old.object.body_value();
    if served.api.bundle.rules_see_metadata() {
        for part in RULED {
            match value["metadata"].get_mut(part).map(Json::take) {
                Some(stored) => metadata_of(&mut new).insert(part.to_owned(), stored),
                None => metadata_of(&mut new).remove(part),
            };
        }
    }
    owners::updated(context, old, old_seen, &mut new, sent);
    value["metadata"] = new["metadata"].take();
    Ok(Draft {
        value,
        residual: old.object.residual().map(|residual| residual.to_vec()),
        written_under: Some(old.object.schema()),
        shown: None,
        warnings,
    })
}
