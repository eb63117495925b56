//! Admission of WorkspaceTypes: names are not reserved, references have a path, and the author may
//! bind the default exports.

use crate::kinds::review::{Review, Rules, annotate_path};
use insula_api::{ClusterName, FieldError, FieldPath, Json};
use insula_catalog::Result;

pub(super) const RULES: Rules = Rules {
    write: |review, new, old| {
        self::review(review, new, old)?;
        annotate_path(review, new);
        Ok(())
    },
    ..Rules::new("tenancy.kcp.io", &["workspacetypes"])
};

fn review(review: &Review<'_>, new: &Json, old: Option<&Json>) -> Result<()> {
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
    bindable(review, new, old)
}

/// Checks that the author may bind the added default exports, because workspaces of the type bind
/// them without a further check. Bindings of the old object are not checked again. An export need
/// not exist, and the answer does not reveal whether it does.
fn bindable(review: &Review<'_>, new: &Json, old: Option<&Json>) -> Result<()> {
    let bindings = |object: &Json| {
        let list = object["spec"]["defaultAPIBindings"].as_array();
        list.cloned().unwrap_or_default()
    };
    let known = old.map(bindings).unwrap_or_default();
    for added in bindings(new).iter().filter(|binding| !known.contains(binding)) {
        let (path, export) = (
            added["path"].as_str().unwrap_or_default(),
            added["export"].as_str().unwrap_or_default(),
        );
        let may = |place: ClusterName| review.may_bind(&place, export);
        if !insula_access::workspace_types::is_built_in(path, export)
            && !review.privileged()
            && !review.place_of(path).is_some_and(may)
        {
            let why =
                format!("unable to create or update WorkspaceType: no permission to bind to export {path}:{export}");
            return Err(review.forbid(new, why));
        }
    }
    Ok(())
}
