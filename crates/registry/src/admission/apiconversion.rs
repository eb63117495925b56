//! APIConversions: rules that compile against the schema or definition of their name. Where there is none yet they wait,
//! and only their form is checked.

use super::{Review, bundle};
use crate::{Result, ids};
use insula_api::{FieldPath, Json, ObjectKey};

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
