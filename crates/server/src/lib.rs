//! The server around the API: settings, identity, the port, telemetry, start and shutdown.
//!
//! [`build`] wires store, registry, API server, gRPC services and controllers. This crate spawns
//! tasks and reads the clock; crates below it do neither. It holds no rule about objects.

mod accounts;
mod additions;
mod addresses;
mod answer;
mod api_usage;
mod arguments;
mod audit;
mod authority;
mod backup;
mod backup_files;
mod build;
mod certificates;
mod client_certificates;
pub mod config;
mod edge;
mod endpoint;
mod env;
mod error;
mod files;
mod format;
mod grpc;
mod health;
mod host;
mod housekeeping;
mod identity;
mod installation_keys;
mod issuers;
mod kubeconfig;
mod measured_store;
mod memory;
mod metrics;
mod notify;
mod open;
mod outbound;
mod portless;
mod preflight;
mod private;
mod progress;
mod rotating;
mod run;
mod shared_keys;
mod space;
mod starting;
mod static_tokens;
mod telemetry;
mod tls;
mod trace;

pub use additions::{Additions, Started, Task};
pub use answer::{Answer, Answering, ServingEvent, answer};
pub use arguments::Arguments;
pub use build::{App, Background, Parts, build};
pub use config::Config;
pub use env::Env;
pub use error::StartError;
pub use insula_access::delegate::Delegate;
pub use insula_apiserver::discovery::{Build, identify};
pub use insula_edge::port::{Lifecycle, leave_threads, threads};
pub use insula_store_etcd::{MemberStatus, version as etcd_version};
pub use metrics::{Class, CodeClass, CommitOutcome, Effect, GaugeGuard, Metrics};
pub use open::survey_etcd;
pub use outbound::AnyServer;
pub use portless::Portless;
pub use private::keep_private;
pub use progress::{Progress, Step};
pub use run::{Running, run, run_with, start, start_with};
pub use telemetry::LogLevel;
pub use tls::install_provider;
pub use trace::REQUEST_ID;

/// The program's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
