//! Admission of APIConversions: their rules compile against the schema or definition of the same
//! name. If neither exists yet, only the form of the rules is checked.

use crate::kinds::{
    review::{Review, Rules},
    usage::{self, Usage},
};
use insula_api::{FieldPath, Json, ObjectKey, Scope};
use insula_catalog::{Api, Result, bundle, ids};
use std::sync::Arc;

/// Most warnings that an answer surely has room for.
const WARNINGS_MAX: usize = 8;

pub(super) const RULES: Rules = Rules {
    write: |review, new, old| self::review(review, new, old),
    deletion: review_deletion,
    ..Rules::new("apis.kcp.io", &["apiconversions"])
};

fn review(review: &Review<'_>, new: &Json, old: Option<&Json>) -> Result<()> {
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
    let api = review.catalog.prove(&bundle).map_err(invalid)?;
    warn_of_misfits(review, &api);
    Ok(())
}

/// Warns of values that one version accepts and another one shows although its schema refuses them:
/// one warning for each kind, with the smallest object.
pub(super) fn warn_of_misfits(review: &Review<'_>, api: &Arc<Api>) {
    if let Ok(searched) = review.catalog.proof(api) {
        if searched.misfits.len() > WARNINGS_MAX {
            review.warn(format!(
                "{} kinds of values that one version accepts and another refuses; the condition Fitting lists them all",
                searched.misfits.len()
            ));
        }
        for misfit in &searched.misfits {
            review.warn(misfit.to_string());
        }
    }
}

/// Refuses to delete rules that convert stored objects or that belong to a schema of an export.
/// Without them consumers would find their fields in no version but the stored one.
fn review_deletion(review: &Review<'_>, old: &Json) -> Result<()> {
    let name = &old["metadata"]["name"];
    let usage = usage(review, name.as_str().unwrap_or_default());
    if !usage.is_empty() {
        let why = format!(
            "{} are read by these rules: nothing would take their place",
            usage.message(review.snapshot)
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

/// Counts the objects that are served by a bundle with these rules.
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
