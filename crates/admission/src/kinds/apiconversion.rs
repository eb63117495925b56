//! APIConversions: rules that compile against the schema or definition of their name. Where there
//! is none yet they wait, and only their form is checked.

use crate::kinds::{
    Review,
    usage::{self, Usage},
};
use insula_api::{FieldPath, Json, ObjectKey, Scope};
use insula_catalog::{Result, bundle, ids};

pub(super) fn review(review: &Review<'_>, new: &Json, old: Option<&Json>) -> Result<()> {
    if old.is_some_and(|old| old["spec"] == new["spec"]) {
        return Ok(());
    }
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    let invalid = |errors| review.served.api.invalid(name, errors);
    insula_conversion::parse_rules(&new["spec"], &FieldPath::new("spec")).map_err(invalid)?;
    let find = |resource| {
        let key = ObjectKey::cluster_scoped(resource, review.cluster.clone(), name);
        review.snapshot.get(&key).map(|entry| entry.object.body_value())
    };
    let bundle = match (find(ids::apiresourceschemas()), find(ids::customresourcedefinitions())) {
        (Some(schema), _) => bundle::of_schema(&schema, Some(new)),
        (None, Some(definition)) => bundle::of_definition(&definition, new),
        (None, None) => return Ok(()),
    };
    review.catalog.prove(&bundle).map_err(invalid)?;
    Ok(())
}

/// Rules that stored objects are read by stay, and those of a schema that somebody may be bound to:
/// without them tenants would find their fields in no version but the stored one.
pub(super) fn review_deletion(review: &Review<'_>, old: &Json) -> Result<()> {
    let name = &old["metadata"]["name"];
    let usage = usage(review, name.as_str().unwrap_or_default());
    if !usage.is_empty() {
        let why = format!(
            "{} are read by these rules: nothing would take their place",
            usage.words(review.snapshot)
        );
        return Err(review.forbid(old, why));
    }
    let exports = review.snapshot.range(
        &Scope::cluster(ids::apiexports(), review.cluster.clone()),
        None,
        usize::MAX,
    );
    let offers = |export: &Json| {
        export["spec"]["resources"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|resource| resource["schema"] == *name)
    };
    let Some(export) = exports.iter().find(|export| offers(&export.object.body_value())) else {
        return Ok(());
    };
    let why = format!(
        "APIExport {:?} offers the schema of this name, and its versions convert by these rules: take the schema out of \
         the export's spec.resources first",
        export.key.name
    );
    Err(review.forbid(old, why))
}

/// The objects that are served by a bundle which these rules are part of.
fn usage(review: &Review<'_>, name: &str) -> Usage {
    let key = ObjectKey::cluster_scoped(ids::apiresourceschemas(), review.cluster.clone(), name);
    match review.snapshot.get(&key) {
        Some(schema) => usage::of_schema(review.snapshot, &schema.object.meta.uid.to_string()),
        None => Usage::claimed(
            review.snapshot,
            |entry, claim| {
                entry.key.cluster == *review.cluster
                    && claim.bundle.is_some()
                    && claim.definition.as_deref() == Some(name)
            },
            |_| true,
        ),
    }
}
