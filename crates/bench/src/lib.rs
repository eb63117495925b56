//! Benchmarks (`cargo bench -p insula-bench`) and the load generator `insula-load`.
//!
//! `benches/` measure functions inside this process; [`load`] drives the shipped binary over its
//! real port. What the figures are, and how they were taken, is in `docs/benchmarks.md`. Nothing
//! here is part of the product.

pub mod fixtures;
pub mod load;
