//! Admission of APIServices: the server's own groups and the group versions that the workspace
//! serves by itself stay where they are, and the number of extension servers has a limit.

use super::review::{Review, Rules};
use insula_api::{FieldError, FieldPath, Json, names::groups};
use insula_catalog::{Result, aggregation, ids};

pub(super) const RULES: Rules = Rules {
    write: |review, new, old| self::review(review, new, old),
    ..Rules::new(groups::APIREGISTRATION, &["apiservices"])
};

fn review(review: &Review<'_>, new: &Json, old: Option<&Json>) -> Result<()> {
    let is_remote = |object: &Json| object["spec"]["service"].is_object();
    if !is_remote(new) || old.is_some_and(is_remote) {
        return Ok(());
    }
    let text = |field: &str| new["spec"][field].as_str().unwrap_or_default();
    let (group, version) = (text("group"), text("version"));
    let is_own = review.catalog.system().iter().any(|one| **one.group() == *group);
    let is_reserved = group == ids::INTERNAL || group.ends_with(&format!(".{}", ids::INTERNAL));
    let spec = FieldPath::new("spec");
    let refused = |field: &str, why: String| {
        let name = new["metadata"]["name"].as_str().unwrap_or_default();
        let error = FieldError::invalid(&spec.child(field), &new["spec"][field], why);
        Err(review.served.api.invalid(name, vec![error]))
    };
    if is_own || is_reserved {
        let why = "this server serves the group by itself, and no extension server takes it over: choose another group";
        return refused("group", why.to_owned());
    }
    if aggregation::serves(review.catalog, review.snapshot, review.cluster, (group, version)) {
        let why = format!(
            "the workspace serves {group}/{version} by itself: remove its CustomResourceDefinitions, \
             ThirdPartyResources and APIBindings first, or choose another version"
        );
        return refused("version", why);
    }
    if aggregation::count(review.snapshot, review.cluster) >= aggregation::SERVERS_MAX {
        let max = aggregation::SERVERS_MAX;
        let why = format!("the workspace has {max} APIServices with a service, and may have no more: delete one first");
        return Err(review.forbid(new, why));
    }
    Ok(())
}
