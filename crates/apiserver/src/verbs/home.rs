//! `GET /clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/~`: the user's home workspace,
//! created by the first request for it.

use super::ResourceRequest;
use insula_api::ClusterName;
use insula_catalog::{Error, ids};
use insula_pipeline::Refusal;
use insula_registry::home::Home;
use insula_store::Entry;

/// Name that stands for the user's own home.
const NAME: &str = "~";

/// Returns true for requests for the user's home.
pub(super) fn is_requested(request: &ResourceRequest<'_>) -> bool {
    request.name == NAME
        && request.target.served.resource_id() == ids::workspaces()
        && request.target.cluster == ClusterName::root()
        && request.request.authorized.scope().view.is_none()
}

/// Returns the Workspace of the user's home.
///
/// # Errors
/// 429 until it is ready, 403 for users who have none.
pub(super) async fn find(request: &mut ResourceRequest<'_>) -> Result<Entry, Refusal> {
    let (registry, user) = (&request.server.registry, request.request.authorized.user());
    let api = &request.target.served.api;
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
    match insula_registry::home::find(registry, &request.request.authorized.scope().snapshot, user) {
        Home::There(entry) => Ok(*entry),
        Home::Taken => Err(refused()),
        Home::Late => Err(Refusal::from(Error::Internal("home workspace creation timeout".into()))),
        Home::Coming => Err(Refusal::HomeIsComing),
        Home::Absent => {
            let right = request.request.authorized.right_to_create()?;
            let right = right.with_decision(&request.server.authenticator).await?;
            request
                .request
                .authorized
                .may_create(right, &request.request.parsed.record)?;
            insula_registry::home::create(registry, user).await?;
            Err(Refusal::HomeIsComing)
        }
    }
}
