//! Authentication, and the facts of authorization: credentials and their users, roles, reviews of
//! access, lifecycle controllers of workspaces, and views of other clusters through exports.
//!
//! Every answer is a function of one snapshot. Nothing is kept for a user, a cluster or an export,
//! so that a change of a role or a binding is effective with the revision that makes it.

pub mod accounts;
mod aggregated;
mod authenticator;
pub mod delegate;
pub mod issuers;
pub mod lifecycle;
mod lookup;
pub mod reviews;
pub mod roles;
pub mod rules;
pub mod static_tokens;
mod target;
mod unauthenticated;
pub mod view;
mod workspace_names;
pub mod workspace_types;

pub use authenticator::{Authenticator, OnAuthenticated, PeerCertificate, PeerRoles};
pub use lookup::AccountLookup;
pub use roles::{facts, facts_with};
pub use target::Target;
pub use unauthenticated::Unauthenticated;
pub use view::EventKind;
pub use workspace_names::{WorkspaceNames, may_enter};
