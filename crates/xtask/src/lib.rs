//! Chores of `cargo xtask`, as functions: the layers of crates, the tools for tests, the test run,
//! the documents as a site, and the rules for text.
//!
//! Nothing here is part of the product.

pub mod console;
pub mod dist;
pub mod floors;
pub mod homes;
pub mod pictures;
pub mod report;
pub mod site;
pub mod suite;
pub mod tidy;
pub mod tools;
pub mod workspace;
