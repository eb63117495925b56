//! What happened, and why it was refused: the record of a request, gathered on its way and written
//! as Kubernetes writes audit events.
//!
//! ```text
//! Record ── about(attributes) ── known(user) ── located ── decided(trail) ── note ── answered ──> Event ──> Sink
//!                                  └ Policy: how much, which stages
//! ```
//! Nothing here is for clients: reasons name rules, steps and workspaces that an answer must not.

mod event;
mod policy;
mod record;
mod stage;

pub use event::{Event, Facts, NOTE_REASON};
pub use policy::{InvalidPolicy, Level, Policy, Verdict};
pub use record::{Log, Open, Record, Sink};
pub use stage::{Stage, Stages};
