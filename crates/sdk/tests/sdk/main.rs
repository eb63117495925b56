//! Kinds of a program, through real servers.
#![allow(clippy::unwrap_used)]

mod controllers;
mod definition;
mod hooks;
mod hostile;
mod kinds;
mod lossy;
mod program;
mod storage;
mod subresources;
mod surface;
mod unservable;
mod versions;
mod watches;

use kinds::Robot;

insula_sdk::roundtrip!(robots_lose_nothing_between_versions: Robot);
