//! One program of all integration tests: each file by itself would link everything once more.
#![allow(clippy::unwrap_used)]

mod admission;
mod declarations;
mod definitions;
mod limits;
mod objects;
mod published;
mod recordings;
mod rules;
