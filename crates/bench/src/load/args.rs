//! The command line.

use clap::{Parser, ValueEnum};
use std::{path::PathBuf, time::Duration};

/// Measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// Durable creates of 2 kB objects.
    Create,
    /// Reads of one object, in the stored and in the other version.
    Get,
    /// Lists and pages, in the stored and in the other version.
    List,
    /// Reads of one workspace while lists of others are converted for the first time.
    Neighbour,
    /// Reads and creates of one workspace while another one sends as much as it can.
    Crowd,
    #[value(
        help = "What `crowd` starts beside itself: sends as much as it can to a running server until \
                standard input ends"
    )]
    Flood,
    /// One write until the last of many watchers has it.
    Watch,
    /// Workspaces from the request until Ready.
    Workspaces,
    /// An APIBinding from the request until its API answers.
    Bind,
    /// Resident memory of the server for each workspace and each object.
    Memory,
    /// All of it.
    All,
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// A table in Markdown.
    Table,
    /// An array of JSON objects.
    Json,
}

/// Drives an Insula server and prints throughput, percentiles, CPU and memory.
///
/// Starts `insula start` (from INSULA_BIN, or target/release/insula) on a free port with a
/// temporary directory, anew for each number of workspaces.
#[derive(Debug, Parser)]
#[command(name = "insula-load", version)]
pub struct Arguments {
    #[arg(help = "What to measure", value_enum, default_value = "all")]
    pub(crate) what: What,
    /// Workspaces that exist while measuring; several numbers are several runs.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10_000])]
    workspaces: Vec<usize>,
    /// Objects of 2 kB that lists are made of.
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    /// Requests of one measurement at most.
    #[arg(long, default_value_t = 20_000)]
    requests: usize,
    /// Seconds that one measurement takes at most.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Requests in flight; several numbers are several measurements.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64])]
    clients: Vec<usize>,
    /// Watchers of one kind.
    #[arg(long, default_value_t = 1_000)]
    watchers: usize,
    /// HTTP/2 connections for requests; watchers get further ones.
    #[arg(long, default_value_t = 4)]
    pub(crate) connections: usize,
    /// The server's program.
    #[arg(long, env = "INSULA_BIN", default_value = "target/release/insula")]
    pub(crate) binary: PathBuf,
    /// Turns of everything that `crowd` compares; ratios are the median of them.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Use a running server by its administrator's kubeconfig instead. It should be a fresh one.
    #[arg(long, value_name = "KUBECONFIG")]
    pub(crate) server: Option<PathBuf>,
    /// The running server's process, for CPU and memory.
    #[arg(long, requires = "server")]
    pub(crate) pid: Option<u32>,
    /// Rules that only move fields, none that computes with CEL: no write has to be tried in the
    /// other version.
    #[arg(long)]
    pub(crate) moves_only: bool,
    /// Everything small: whether it works, in seconds.
    #[arg(long)]
    quick: bool,
    /// The form of the result.
    #[arg(long, short, value_enum, default_value = "table")]
    pub(crate) output: Output,
}

impl Arguments {
    /// Returns true if a measurement is requested.
    pub(crate) fn wants(&self, what: What) -> bool {
        self.what == What::All || self.what == what
    }

    /// Returns the numbers of workspaces to measure with. A running server is measured once.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        let sizes = if self.quick {
            vec![1, 50]
        } else {
            self.workspaces.clone()
        };
        let sizes: Vec<usize> = sizes.into_iter().map(|size| size.max(1)).collect();
        match self.server {
            Some(_) => sizes.into_iter().take(1).collect(),
            None => sizes,
        }
    }

    pub(crate) fn objects(&self) -> usize {
        if self.quick { 500 } else { self.objects.max(1) }
    }

    pub(crate) fn requests(&self) -> usize {
        if self.quick { 300 } else { self.requests.max(1) }
    }

    pub(crate) fn time(&self) -> Duration {
        Duration::from_secs(if self.quick { 2 } else { self.seconds.max(1) })
    }

    pub(crate) fn clients(&self) -> Vec<usize> {
        if self.quick {
            vec![1, 8]
        } else {
            self.clients.iter().map(|clients| (*clients).max(1)).collect()
        }
    }

    /// Returns the largest number of clients, for measurements of capacity.
    pub(crate) fn many(&self) -> usize {
        self.clients().into_iter().max().unwrap_or(1)
    }

    pub(crate) fn rounds(&self) -> usize {
        if self.quick { 1 } else { self.rounds.max(1) }
    }

    pub(crate) fn watchers(&self) -> usize {
        if self.quick { 20 } else { self.watchers.max(2) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn several_sizes_are_several_runs_but_a_running_server_is_measured_once() {
        let parse = |words: &[&str]| Arguments::try_parse_from(words).expect("parses");
        assert_eq!(parse(&["l", "create", "--workspaces", "0,7"]).sizes(), [1, 7]);
        assert_eq!(parse(&["l", "--server", "f", "--workspaces", "5,7"]).sizes(), [5]);
        assert!(parse(&["l", "list"]).wants(What::List));
        assert!(!parse(&["l", "list"]).wants(What::Get));
        assert!(parse(&["l"]).wants(What::Get));
    }
}
