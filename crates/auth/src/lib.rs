//! Authentication and authorization: decisions over facts that the caller provides. No clock, no
//! files, no network.
//!
//! ```text
//! certificate::user(der) ─┐
//! TokenFile::lookup(token)┼─> UserInfo ── permit(user, attributes, facts) ──> Permit | Forbidden
//! service_account::Claims::user() ┤
//! jwt::Issuer::user(token)┘
//! ```
//! Only [`permit`] makes a [`Permit`], after asking every step of the chain in order. A handler
//! that takes a `Permit` cannot run without authorization.
#![warn(missing_docs)]

mod attributes;
pub mod audit;
mod authorize;
pub mod bearer;
pub mod certificate;
pub mod ec_key;
mod identities;
pub mod jwt;
mod rbac;
mod required;
pub mod service_account;
mod token;
mod user;

pub use attributes::{Attributes, Decision, RoleVerb};
pub use authorize::{Forbidden, Permit, STEPS, Step, Trail, authorize, forbidden_message, permit};
pub use identities::{Identities, confined_warrant};
pub use rbac::{ClusterFacts, PolicyRule, Roles, Subject, SubjectKind, grant_refusal, leaves_to, uncovered};
pub use required::{RequiredGroups, RequiredGroupsError};
pub use token::{TokenFile, TokenFileError, TokenLineError};
pub use user::{
    EXTRA_CLUSTER, EXTRA_CREDENTIAL, EXTRA_SCOPES, EXTRA_WARRANT, GROUP_AUTHENTICATED, GROUP_KCP_ADMIN, GROUP_MASTERS,
    GROUP_UNAUTHENTICATED, USER_ANONYMOUS, UserInfo,
};
