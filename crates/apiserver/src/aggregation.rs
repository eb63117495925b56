//! Aggregated APIs: requests for the group versions of APIServices are proxied to extension
//! servers, with the name of the user under a certificate of the workspace's front proxy.
//!
//! ```text
//! Authorized ─▶ APIService of the group version ─▶ permits ─▶ X-Remote-User … ─▶ extension server
//!                                                             body, watch, upgrade: streamed ◀─┘
//! ```
//! The request was authenticated, authorized and counted as every other one. A tenant chooses the
//! extension server, so that nothing of it is trusted: headers that name a user are removed in both
//! directions, redirects are refused, answers have a time limit, and the requests of a workspace
//! that wait for its extension servers have a limit of their own.

mod body;
mod check;
mod documents;
mod headers;
mod proxy;

pub use check::keep_checking;
pub(crate) use documents::{add_to_aggregated, add_to_groups, add_to_index, openapi_v2, services, with_group};
pub(crate) use headers::SANDBOX;
pub(crate) use proxy::{Stream, document, find, path_of, proxy};
