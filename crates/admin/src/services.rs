//! The admin services, one file each.

mod cluster;
mod conversion;
mod migration;
mod recompute;
mod workspace;
