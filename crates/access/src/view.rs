//! Access of an export's provider to the clusters that bind the export.
//!
//! A view is a function of a snapshot: of the export, of a cluster's bindings to it, and of the
//! route of a resource there. Nothing is copied and nothing is kept for an export or a
//! consumer, so what is taken away is gone with the write that takes it. Each write asks again in
//! the state that it is decided on, and what let it through is a guard of its commit
//! (CVE-2025-29922 was a door without that).

mod view_scope;
mod watching;

pub use view_scope::{AllClusters, By, Exporters, ViaExport, ViewScope, WrittenObject};
pub use watching::{EventKind, Sighted};
