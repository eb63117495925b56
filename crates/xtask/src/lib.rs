//! What `cargo xtask` does, as functions: the floors of the house, the tools that tests need, the
//! test run itself.
//!
//! Nothing here is part of the product.

pub mod floors;
pub mod homes;
pub mod report;
pub mod suite;
pub mod tidy;
pub mod tools;
pub mod workspace;
