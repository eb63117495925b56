//! APIConversions: rules that compile against the schema or definition of their name. Where there is none yet they wait,
//! and only their form is checked.

use super::{Review, bundle};
use crate::{Result, ids};
use insula_api::{FieldPath, Json, ObjectKey, Scope};

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
    review.catalog.compile(&bundle).map_err(invalid)?;
    Ok(())
}

/// Rules of a schema that somebody may be bound to stay: without them tenants would find their fields in no version but
/// the stored one.
pub(super) fn review_deletion(review: &Review<'_>, old: &Json) -> Result<()> {
    let name = &old["metadata"]["name"];
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
