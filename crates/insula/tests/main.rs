//! One program of all integration tests: each file by itself would link everything once more.
#![allow(clippy::unwrap_used)]

mod cli;
mod demo;
mod output;
mod suggest_published;
