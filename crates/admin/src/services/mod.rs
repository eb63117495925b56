//! One file a service.

mod cluster;
mod conversion;
mod workspace;
