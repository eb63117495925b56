//! One program of all integration tests: each file by itself would link everything once more.
#![allow(clippy::expect_used)]

mod contract;
mod conversion_functions;
mod cost;
mod fuzz;
mod policies;
mod random;
mod tables;
