//! The one use of the untyped extensions of requests, for libraries that know no other way: hyper
//! tells there that a connection can change its protocol, and tonic hands a service nothing but the
//! request.

use super::{Afterwards, Upgrade};
use axum::body::Body;
use http::Request;
use hyper::upgrade::OnUpgrade;
use std::sync::Arc;

/// The sender of a call, as a service gets it. One type is it: the caller of the gRPC face.
pub trait Carried: Send + Sync + 'static {}

/// Takes from a request the way to another protocol; `None` where its connection cannot change it
/// (HTTP/2), or where the request names none.
pub fn take_upgrade<B>(request: &mut Request<B>, afterwards: impl FnOnce() -> Afterwards) -> Option<Upgrade> {
    let connection = request.extensions_mut().remove::<OnUpgrade>()?;
    Some(Upgrade {
        connection,
        afterwards: afterwards(),
    })
}

/// Gives a request its caller, before tonic passes it on to a service.
pub fn pass_caller<C: Carried>(request: &mut Request<Body>, caller: Arc<C>) {
    request.extensions_mut().insert(caller);
}

/// Returns the caller of a request that tonic has passed on; `None` for a call without one.
pub fn caller<C: Carried, T>(request: &tonic::Request<T>) -> Option<&Arc<C>> {
    request.extensions().get::<Arc<C>>()
}
