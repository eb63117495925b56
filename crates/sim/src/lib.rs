//! Simulation of servers on one store, under a seed.
//!
//! A world has one store, three servers with all reconcilers, and clients. One thread does one
//! thing after the other, and the seed says which: a future is polled, a call reaches the store, an
//! answer comes or is lost, a copy of the store is fed, a server crashes, time passes. The same
//! seed gives the same run. After each commit and answer, and when all is at rest, [`history`] and
//! `rest` check what must hold.
//!
//! [`etcd`] does the same one level below: the store on etcd, on a modelled etcd.
#![warn(missing_docs)]

pub mod center;
pub mod client;
pub mod dice;
pub mod etcd;
pub mod faults;
pub mod history;
pub mod level;
pub mod mirror;
pub mod plant;
mod presence;
pub mod report;
mod rest;
pub mod shrink;
pub mod tasks;
pub mod time;
pub mod world;
pub mod yaml;

pub use level::Level;
pub use plant::Plant;
pub use report::{Report, Settings};
pub use shrink::shrink;
pub use world::run;
