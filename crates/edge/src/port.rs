//! Requests and answers as they pass the port, with the facts that HTTP does not tell.
//!
//! ```text
//! connection ── Arrival ──> edge ──> face ── Answered ──> connection
//! ```
//! The facts are passed by type, beside the request and the answer. The untyped extensions of a
//! request are used where other libraries know no other way, in [`crossing`], and nowhere else.

mod answered;
mod arrival;
mod body;
pub mod crossing;
mod guarded_body;

pub use answered::{Answered, RequestKind, ResourceClass};
pub use arrival::{Afterwards, Arrival, Upgrade};
pub use body::{ObservedBody, Observer};
pub use guarded_body::{Cut, GuardedBody, LastFrame};
