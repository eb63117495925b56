//! The kinds of `apis.kcp.io`.

use super::add_finalizer;
use crate::Strategy;
use insula_api::{Json, Timestamp};

/// Finalizer that keeps a binding until its objects are deleted.
pub(super) const BINDING_FINALIZER: &str = "apis.kcp.io/apibinding-finalizer";

/// APIBindings.
pub(super) struct ApiBindings;

impl Strategy for ApiBindings {
    fn prepare_for_create(&self, new: &mut Json, _now: Timestamp) {
        add_finalizer(new, BINDING_FINALIZER);
    }
}
