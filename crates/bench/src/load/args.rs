//! The command line.

use clap::{
    Arg, Command, Parser, ValueEnum,
    builder::{EnumValueParser, PossibleValue, TypedValueParser},
    error::ErrorKind,
};
use std::{ffi::OsStr, path::PathBuf, time::Duration};

/// A measurement, or the flood that one of them needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Measurement {
    /// Durable creates of 2 kB objects.
    Create,
    /// Reads of one object, in the stored and in the other version.
    Get,
    /// Lists and pages, in the stored and in the other version.
    List,
    /// Reads of one workspace while lists of others are converted for the first time.
    NoisyTenant,
    /// Reads and creates of one workspace while another one sends requests as fast as it can.
    Contention,
    /// The load that `contention` starts: requests as fast as possible to a running server, until
    /// standard input ends.
    Flood,
    /// One write, until the last of many watchers has its event.
    Watch,
    /// Workspaces from the request until Ready.
    Workspaces,
    /// An APIBinding from the request until its API answers.
    Bind,
    /// Resident memory of the server for each workspace and each object.
    Memory,
    /// Starts of the program on a store with objects, spread over the tenants, until the first
    /// read. All servers are ended and started one after the other, also while others serve.
    Restart,
    /// Creates at several servers on one etcd, of which one is ended and started again, and then
    /// stands still.
    Outage,
    /// All measurements.
    All,
}

/// Former names of measurements, with the current ones.
const RENAMED: [(&str, &str); 2] = [("crowd", "contention"), ("neighbour", "noisy-tenant")];

/// Parser of a measurement. Refuses a former name with the current one.
#[derive(Clone)]
struct MeasurementParser;

impl TypedValueParser for MeasurementParser {
    type Value = Measurement;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Measurement, clap::Error> {
        match RENAMED.iter().find(|(former, _)| value == *former) {
            Some((former, current)) => {
                let message = format!("`{former}` is now called `{current}`\n");
                Err(clap::Error::raw(ErrorKind::InvalidValue, message).with_cmd(command))
            }
            None => EnumValueParser::new().parse_ref(command, arg, value),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(
            Measurement::value_variants()
                .iter()
                .filter_map(ValueEnum::to_possible_value),
        ))
    }
}

/// Format of the results.
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
    /// The measurement.
    #[arg(value_parser = MeasurementParser, default_value = "all")]
    pub(crate) measurement: Measurement,
    /// Workspaces that exist during the measurement; several numbers are several runs.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10_000])]
    workspaces: Vec<usize>,
    /// Objects of 2 kB in a list.
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    /// Limit of the requests of one measurement.
    #[arg(long, default_value_t = 20_000)]
    requests: usize,
    /// Limit of the duration of one measurement, in seconds.
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
    /// Rounds of `contention`; ratios are medians of the rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Store of the servers: embedded, memory, or etcd://HOST:PORT. An etcd should be a fresh one.
    #[arg(long, default_value = "embedded", conflicts_with = "server")]
    pub(crate) store: String,
    /// Servers on one etcd, which the connections are spread over.
    #[arg(long, default_value_t = 1)]
    servers: usize,
    /// Use a running server by its administrator's kubeconfig instead. It should be a fresh one.
    #[arg(long, value_name = "KUBECONFIG")]
    pub(crate) server: Option<PathBuf>,
    /// The running server's process, for CPU and memory.
    #[arg(long, requires = "server")]
    pub(crate) pid: Option<u32>,
    /// Use rules that only move fields, without CEL, so that the server need not convert an object
    /// when it is written.
    #[arg(long)]
    pub(crate) moves_only: bool,
    /// Small numbers of everything, to check in seconds that all measurements work.
    #[arg(long)]
    quick: bool,
    /// Format of the results.
    #[arg(long, short, value_enum, default_value = "table")]
    pub(crate) output: Output,
}

impl Arguments {
    /// Returns true if a measurement is requested.
    pub(crate) fn wants(&self, measurement: Measurement) -> bool {
        self.measurement == Measurement::All || self.measurement == measurement
    }

    /// Returns the URL of the etcd that the store is on.
    pub(crate) fn etcd(&self) -> Option<String> {
        let members = self.store.strip_prefix("etcd://")?;
        let first = members.split(',').next().unwrap_or(members);
        Some(format!("http://{first}"))
    }

    /// Returns the number of servers to start. A store of its own has one.
    pub(crate) fn servers(&self) -> usize {
        if self.etcd().is_some() { self.servers.max(1) } else { 1 }
    }

    /// Returns the numbers of workspaces to measure with. A running server and an etcd, which keep
    /// what was made before, are measured once.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        let sizes = if self.quick {
            vec![1, 50]
        } else {
            self.workspaces.clone()
        };
        let sizes: Vec<usize> = sizes.into_iter().map(|size| size.max(1)).collect();
        match self.server.is_some() || self.etcd().is_some() {
            true => sizes.into_iter().take(1).collect(),
            false => sizes,
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
    fn a_former_name_is_refused_with_the_current_one() {
        for (former, current) in RENAMED {
            let error = Arguments::try_parse_from(["l", former]).expect_err("it is refused");
            assert!(error.to_string().contains(&format!("`{current}`")), "{error}");
            assert!(Arguments::try_parse_from(["l", current]).is_ok(), "{current}");
        }
    }

    #[test]
    fn several_sizes_are_several_runs_but_a_running_server_is_measured_once() {
        let parse = |words: &[&str]| Arguments::try_parse_from(words).expect("parses");
        assert_eq!(parse(&["l", "create", "--workspaces", "0,7"]).sizes(), [1, 7]);
        assert_eq!(parse(&["l", "--server", "f", "--workspaces", "5,7"]).sizes(), [5]);
        let on_etcd = parse(&[
            "l",
            "--store",
            "etcd://h:1,h:2",
            "--servers",
            "3",
            "--workspaces",
            "5,7",
        ]);
        assert_eq!((on_etcd.sizes(), on_etcd.servers()), (vec![5], 3));
        assert_eq!(on_etcd.etcd().as_deref(), Some("http://h:1"));
        assert_eq!(parse(&["l", "--servers", "3"]).servers(), 1);
        assert!(parse(&["l", "list"]).wants(Measurement::List));
        assert!(!parse(&["l", "list"]).wants(Measurement::Get));
        assert!(parse(&["l"]).wants(Measurement::Get));
    }
}
