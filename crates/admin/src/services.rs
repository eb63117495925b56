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
mod quota;
mod recompute;
mod retry;
mod rules;
mod workspace;

/// Returns the path of a workspace, or `root` for an empty one.
fn or_root(path: &str) -> &str {
    if path.is_empty() { "root" } else { path }
}
