//! What an export lets its provider see and do in the clusters that bind it.
//!
//! A view is a function of a snapshot: of the export, of a cluster's bindings to it, and of the
//! claim that routes a resource there. Nothing is copied and nothing is kept for an export or a
//! consumer, so what is taken away is gone with the write that takes it. Each write asks again in
//! the state that it is decided on, and what let it through is a guard of its commit
//! (CVE-2025-29922 was a door without that).

mod offer;
mod right;
mod schemas;
mod served;
mod view_scope;
mod watching;

pub use right::{AccessRequest, Denied, Grant};
pub use schemas::schemas_behind;
pub use view_scope::{AllClusters, By, ViaExport, ViewScope};
pub(crate) use watching::Sighted;

pub(crate) use offer::ExportOffer;

use crate::exports::{ExportName, ExportView};
use insula_store::Snapshot;
use offer::Binding;
use std::sync::Arc;

impl ExportName {
    /// What it offers and claims.
    fn said(&self, snapshot: &Snapshot) -> Option<Arc<ExportView>> {
        Some(snapshot.get(&self.key())?.object.parsed(ExportView::read))
    }

    /// Whether there is such an export.
    pub fn exists(&self, snapshot: &Snapshot) -> bool {
        snapshot.get(&self.key()).is_some()
    }

    fn is_bound_by(&self, binding: &Binding) -> bool {
        binding.cluster == *self.cluster.as_str() && binding.export == *self.name
    }
}
