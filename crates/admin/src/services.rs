//! The admin services, one file each.

mod access;
mod cluster;
mod conversion;
mod freeze;
mod migration;
mod operation;
mod recompute;
mod workspace;
