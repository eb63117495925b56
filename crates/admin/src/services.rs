//! The admin services, one file each.

mod access;
mod api;
mod backup;
mod cluster;
mod conversion;
mod freeze;
mod maintenance;
mod migration;
mod object;
mod operation;
mod positions;
mod quota;
mod recompute;
mod retry;
mod rules;
mod workspace;

use crate::session::Session;
use insula_proto::admin::v1::ResponseHeader;

/// Returns the path of a workspace, or `root` for an empty one.
fn or_root(path: &str) -> &str {
    if path.is_empty() { "root" } else { path }
}

/// Returns the header of the answer to a write: of the latest state, which has the write.
fn header_after(session: &Session) -> Option<ResponseHeader> {
    session.header_at(session.api.registry.store.latest().revision())
}
