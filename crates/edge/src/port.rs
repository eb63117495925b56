//! The port: TLS, connections and their limits, and the facts about requests that HTTP does not
//! tell.
//!
//! ```text
//! connection ── Arrival ──> edge ──> face ── Answered ──> connection
//! ```
//! The facts are passed by type, beside the request and the answer. The untyped extensions of a
//! request are used where other libraries know no other way, in [`crossing`], and nowhere else.

#[expect(clippy::disallowed_methods, reason = "computations are bounded in real time")]
mod account;
mod answered;
mod arrival;
mod body;
mod connection_limits;
#[expect(clippy::disallowed_methods, reason = "connections live in real time")]
mod connections;
mod content_type;
pub mod crossing;
pub mod descriptors;
mod drain_body;
mod exchange;
mod guarded_body;
mod handover;
mod lifecycle;
#[expect(
    clippy::disallowed_methods,
    reason = "the port sweeps its connections while it serves"
)]
pub mod listen;
mod metrics;
#[expect(
    clippy::disallowed_methods,
    reason = "threads are shared by the CPU time that passes"
)]
mod priority;
mod socket;
pub mod tls;

pub use answered::{Answered, DryRun, RequestKind, RequestScope, RequestedResource, ResourceClass};
pub use arrival::{Afterwards, Arrival, ClientKind, Upgrade};
pub use body::{ObservedBody, Observer};
pub use connection_limits::ConnectionLimits;
pub use content_type::{is_call, is_protobuf};
pub use drain_body::UnreadBody;
pub use guarded_body::{Cut, GuardedBody, LastFrame};
pub use handover::leave_threads;
pub use lifecycle::Lifecycle;
pub use metrics::{ClosedFor, PortMetrics};
pub use priority::{PriorityRuntimes, threads};
