//! WorkspaceTypes: reserved names, and references that say where.

use super::Review;
use crate::Result;
use insula_api::{ClusterName, FieldError, FieldPath, Json};

pub(super) fn review(review: &Review<'_>, new: &Json) -> Result<()> {
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    if matches!(name, "any" | "system") {
        let at = FieldPath::new("metadata").child("name");
        let error = FieldError::invalid(&at, &Json::from(name), "name is reserved");
        return Err(review.forbid(new, error.to_string()));
    }
    if name == "root" && *review.cluster != ClusterName::root() {
        return Err(review.forbid(new, "root workspace type can only be created in root cluster"));
    }
    let spec = &new["spec"];
    let has_path = |reference: &Json| reference["path"].as_str().is_some_and(|path| !path.is_empty());
    if spec["defaultChildWorkspaceType"].is_object() && !has_path(&spec["defaultChildWorkspaceType"]) {
        return Err(review.forbid(new, ".spec.defaultChildWorkspaceType.path must be set"));
    }
    let lists = [
        ("limitAllowedChildren.types", &spec["limitAllowedChildren"]["types"]),
        ("limitAllowedParents.types", &spec["limitAllowedParents"]["types"]),
        ("extend.with", &spec["extend"]["with"]),
    ];
    for (field, list) in lists {
        for (i, reference) in list.as_array().into_iter().flatten().enumerate() {
            if !has_path(reference) {
                return Err(review.forbid(new, format!(".spec.{field}[{i}].path must be set")));
            }
        }
    }
    Ok(())
}
