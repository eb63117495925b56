//! `GET /clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/~`: the user's home workspace,
//! created by the first request for it.

use crate::{Objects, Refusal};
use insula_api::ClusterName;
use insula_catalog::{Error, ids};
use insula_registry::home::{self, Home};
use insula_store::Entry;

/// Name that stands for the user's own home.
const NAME: &str = "~";

/// Returns true for requests for the user's home.
pub(crate) fn is_requested(objects: Objects<'_>) -> bool {
    objects.name == NAME
        && objects.target.served.resource_id() == ids::workspaces()
        && objects.target.cluster == ClusterName::root()
        && objects.request.scope().view.is_none()
}

/// Returns the Workspace of the user's home.
///
/// # Errors
/// 429 until it is ready, 403 for users who have none.
pub(crate) async fn find(objects: Objects<'_>) -> Result<Entry, Refusal> {
    let (registry, user) = (objects.registry, objects.request.user());
    let api = &objects.target.served.api;
    if !registry.homes {
        return Err(Refusal::from(api.not_found(NAME)));
    }
    // Programs, and identities scoped to other clusters, have no home.
    let is_person = user.within(Some(&ClusterName::root())).name == user.name && !user.name.starts_with("system:");
    let refused = || {
        let why = format!(
            "User {:?} has no home workspace: workspace access not permitted",
            user.name
        );
        Refusal::from(api.forbidden(NAME, why))
    };
    if !is_person {
        return Err(refused());
    }
    match home::find(registry, &objects.request.scope().snapshot, user) {
        Home::There(entry) => Ok(*entry),
        Home::Taken => Err(refused()),
        Home::Late => Err(Refusal::from(Error::Internal("home workspace creation timeout".into()))),
        Home::Coming => Err(Refusal::HomeIsComing),
        Home::Absent => {
            objects.check_create().await?;
            home::create(registry, user).await?;
            Err(Refusal::HomeIsComing)
        }
    }
}
