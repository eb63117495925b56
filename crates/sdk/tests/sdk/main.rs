//! Kinds of a program, through real servers.
#![allow(clippy::unwrap_used)]

mod controllers;
mod definition;
mod kinds;
mod program;
mod storage;

use kinds::Robot;

insula_sdk::roundtrip!(robots_lose_nothing_between_versions: Robot);
