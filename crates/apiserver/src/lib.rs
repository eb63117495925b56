//! HTTP in, registry out: paths, typed stages, negotiation, discovery, OpenAPI, tables, watches,
//! Status.
//!
//! A request walks `Parsed → Authenticated → Located → Authorized` ([`request_stages`]) and then
//! [`dispatch`] calls one verb of the registry. Nothing here decides about objects.

pub mod aggregation;
mod apply;
mod audit;
pub mod body;
pub mod call;
pub mod discovery;
pub mod dispatch;
mod documents;
mod edge;
mod extensions;
#[cfg(test)]
mod fixtures;
mod gzip;
pub mod health;
mod hosts;
mod impersonate;
mod measured;
mod metered;
mod mounts;
mod named_identity;
pub mod negotiate;
mod no_workspace;
pub mod openapi;
pub mod path;
pub mod protobuf;
pub mod query;
mod reauthorize;
mod render;
pub mod reply;
pub mod request;
pub mod request_stages;
mod server;
pub mod status;
pub mod table;
mod third_party;
pub mod verbs;
mod virtual_workspace;
mod watch_encoder;
pub mod websocket;

pub use extensions::{ExtensionServers, Extensions, Outages, Unreachable};
pub use health::HealthReports;
pub use hosts::HostPattern;
pub use impersonate::{NotActing, acting, proxied_user};
pub use mounts::{Forward, Nowhere};
pub use named_identity::IdentityError;
pub use server::ApiServer;

/// This program's version.
const VERSION: &str = env!("CARGO_PKG_VERSION");
