//! The shipped binary from outside, one file for each numbered promise. One program, so that it is linked once and its tests share a
//! server.
#![allow(clippy::unwrap_used)]

mod start;
