//! One program of all integration tests: each file by itself would link everything once more.
#![allow(clippy::unwrap_used)]

mod conformance;
mod cost;
mod crash;
mod damage;
mod faults;
mod history;
mod model;
mod open;
mod space;
mod walks;
