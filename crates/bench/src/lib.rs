//! Benchmarks (`cargo bench -p insula-bench`) and the load generator `insula-load`.
//!
//! `benches/` measure functions inside this process; [`load`] drives the shipped binary over its
//! real port. `docs/benchmarks.md` has the figures and the way to measure them. This crate is no
//! part of the product.

pub mod fixtures;
pub mod load;
