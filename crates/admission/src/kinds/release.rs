//! Effects of schemas and rules that no export offers yet: those of the release that they will be
//! part of, where an export of the workspace offers another schema of their resource.

use crate::{
    kinds::{review::Review, trial},
    publication::Acceptance,
};
use insula_api::{Json, ResourceId, Scope};
use insula_catalog::{Api, ids};
use std::{ops::ControlFlow, sync::Arc};

/// Warns of what a schema with its rules does to the stored objects of those who are served by
/// another one, aside from what is accepted.
pub(super) fn warn_of_effects(review: &Review<'_>, schema: &str, api: &Arc<Api>, accepted: &[Acceptance]) {
    let scope = Scope::cluster(ids::apiexports(), review.cluster.clone());
    review.snapshot.for_each(&scope, |export| {
        if trial::spend(review, export).is_err() {
            return ControlFlow::Break(());
        }
        let export = export.object.body_value();
        let resources = export["spec"]["resources"].as_array().into_iter().flatten();
        let is_another = |offered: &&Json| {
            offered["group"] == *api.group && offered["name"] == *api.names.plural && offered["schema"] != schema
        };
        let offered = resources
            .filter(is_another)
            .find_map(|offered| offered["schema"].as_str());
        let before = offered.and_then(|offered| review.catalog.stored(review.snapshot, review.cluster, offered));
        if let (Some(before), Some(identity)) = (before, export["status"]["identityHash"].as_str()) {
            let objects = ResourceId {
                group: api.group.as_ref().into(),
                resource: api.names.plural.as_ref().into(),
                identity: identity.into(),
            };
            trial::warn_of_effects(review, (&before, api), &Scope::everywhere(objects), accepted);
        }
        ControlFlow::Continue(())
    });
}
