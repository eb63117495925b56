//! The admin services, one file each.

mod cluster;
mod conversion;
mod recompute;
mod workspace;
