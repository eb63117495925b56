//! The store on etcd, on a modelled etcd: several stores as in production, under losses that a real
//! etcd shows once in a year.
//!
//! Everything is one thread, and its clock moves when nobody has anything to do, so that a seed
//! gives one run. Requests pass the code of etcd's client and its messages, and no network.
//! `insula-sim --etcd` runs it.

pub(crate) mod faults;
mod history;
mod model;
mod runtime;
mod service;
mod wire;
mod world;

pub use faults::FAULTS;

use crate::{Report, Settings};
use std::thread;

/// Size of the stack of a world: a request and its answer are polled in one another.
const STACK_BYTES: usize = 32 << 20;

/// Runs a world. Its steps are operations of clients.
///
/// # Panics
/// There is no thread for it.
pub fn run(settings: &Settings) -> Report {
    thread::scope(|scope| {
        let deep = thread::Builder::new().stack_size(STACK_BYTES);
        let world = deep.spawn_scoped(scope, || world::run(settings));
        world.expect("a thread starts").join().expect("panics are failures")
    })
}
