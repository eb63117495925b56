//! The admin services, one file each.

mod cluster;
mod conversion;
mod migration;
mod operation;
mod recompute;
mod workspace;
