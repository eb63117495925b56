//! Parts of the program that a simulation runs.

use crate::{Plant, Report, Settings, etcd, faults, world};

/// A part of the program that a world has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Servers with all reconcilers, on one modelled store.
    Servers,
    /// Stores on a modelled etcd.
    Etcd,
}

impl Level {
    /// Runs a world.
    pub fn run(self, settings: &Settings) -> Report {
        match self {
            Level::Servers => world::run(settings),
            Level::Etcd => etcd::run(settings),
        }
    }

    /// Returns the names of its faults, by which a run can leave them out.
    pub fn faults(self) -> &'static [&'static str] {
        match self {
            Level::Servers => &faults::FAULTS,
            Level::Etcd => &etcd::FAULTS,
        }
    }

    /// Returns the faults that it can be given, to see that they are noticed.
    pub fn plants(self) -> Vec<Plant> {
        match self {
            Level::Servers => Plant::all(),
            Level::Etcd => Plant::of_etcd(),
        }
    }
}
