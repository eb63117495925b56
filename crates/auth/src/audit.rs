//! Audit of requests: a record gathers facts while a request is handled, and writes events in
//! Kubernetes' format.
//!
//! ```text
//! Record ── about(attributes) ── known(user) ── located ── decided(trail) ── note ── answered
//!                                  └ Policy: level, stages              Event ──> Sink <┘
//! ```
//! Clients never see these facts: reasons name rules, steps and workspaces that answers must not
//! reveal.

mod event;
mod filter;
mod policy;
mod record;
mod stage;

pub use event::{Event, Facts, NOTE_REASON};
pub use filter::Filter;
pub use policy::{InvalidPolicy, Level, Policy, Verdict};
pub use record::{Log, OpenCall, Origin, Record, Sink};
pub use stage::{Stage, Stages};
