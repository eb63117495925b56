//! `GET /clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/~`: the home workspace of whoever
//! asks, made when it is asked for the first time.

use crate::{handle::ResourceRequest, reply::Reply, status};
use insula_api::ClusterName;
use insula_registry::{Error, Home, ids};
use insula_store::Entry;

/// The name that means everybody's own.
const NAME: &str = "~";

/// Whether a request for one object is for a home.
pub(crate) fn is_asked(request: &ResourceRequest<'_>) -> bool {
    request.name == NAME
        && request.target.served.resource_id() == ids::workspaces()
        && request.target.cluster == ClusterName::root()
        && request.request.place.view.is_none()
}

/// The home, as a Workspace; 429 until it is ready.
pub(crate) async fn find(request: &mut ResourceRequest<'_>) -> Result<Entry, Reply> {
    let (registry, user) = (&request.server.registry, &request.request.user);
    let api = &request.target.served.api;
    if !registry.homes {
        return Err(Reply::error(&api.not_found(NAME)));
    }
    // Programs and borrowed identities that count elsewhere are nobody who lives somewhere.
    let is_somebody = user.within(Some(&ClusterName::root())).name == user.name && !user.name.starts_with("system:");
    let refused = || {
        let why = format!(
            "User {:?} has no home workspace: workspace access not permitted",
            user.name
        );
        Reply::from(status::forbidden(&api.named(), NAME, &why))
    };
    if !is_somebody {
        return Err(refused());
    }
    match registry.home(&request.request.place.snapshot, user) {
        Home::There(entry) => Ok(*entry),
        Home::Taken => Err(refused()),
        Home::Late => Err(Reply::error(&Error::Internal("home workspace creation timeout".into()))),
        Home::Coming => Err(Reply::HomeIsComing),
        Home::Absent => {
            request.request.may_create()?;
            registry.make_home(user).await?;
            Err(Reply::HomeIsComing)
        }
    }
}
