//! The features of third-party crates that any crate of the workspace selects, in one place.
//!
//! Every crate has this one among its development dependencies, so that `cargo test -p` selects the
//! features that a build of the workspace selects, and compiles no dependency a second time. The
//! program depends on it, so that it is shipped with what the tests ran. There is no code.
//! `cargo hakari generate` writes the list in `Cargo.toml`; a test of `xtask` compares what cargo
//! selects.
