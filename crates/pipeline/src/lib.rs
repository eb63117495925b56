//! The way of a request from the edge to the verbs, in no wire format.
//!
//! ```text
//! Call ── locate ──> Located ── authorize ──> Authorized ── enter, resolve ──> Objects ── verb
//! ```
//! Each stage is made from the one before and from nothing else, so that no face serves a request
//! that was not authorized. What is answered instead of done is a [`Refusal`]: each face has one
//! `match` for it (`insula_apiserver::status`, `insula_admin::status`).

mod authorize;
mod call;
mod create_right;
mod enter;
mod home;
pub mod impersonation;
mod locate;
mod objects;
mod refusal;
mod resolve;
mod scope;
pub mod third_party;
mod unlocated;
mod virtual_workspace;

pub use authorize::Authorized;
pub use call::{Call, ObjectPath, ReadAt, Sender, without_identity};
pub use create_right::CreateRight;
pub use enter::{Entered, TenantLimits};
pub use locate::{Destination, Located, Mounted, locate, snapshot};
pub use objects::Objects;
pub use refusal::{Clusters, Forbidden, Refusal};
pub use resolve::Resolved;
pub use scope::{Scope, ScopePath};
pub use virtual_workspace::VirtualWorkspace;
