//! The representation of stored objects in the version of a client.
//!
//! Objects that are stored in the requested version, under the schema that serves it, pass through
//! as bytes. All others are converted once for each (object, revision, version) and kept in a
//! [`Cache`] of bounded size. Large requests are converted in pieces that alternate between tenants
//! ([`Workers`]).

pub(crate) mod cache;
mod scheduler;
mod show;
#[cfg(test)]
pub(crate) mod tests;

pub use cache::{CACHE_BYTES_MAX, Cache, ConversionMeasures};
pub use scheduler::{Pay, Work, Workers};
pub(crate) use show::prefetch;
pub use show::{Show, is_stored, stored_value};
