//! The catalog of each logical cluster: resources and their compiled APIs, routes of names, exports
//! and their permission claims, and the built-in kinds with their strategies.
//!
//! Everything in this crate is a function of a snapshot and of values. No function reads a role or
//! makes an authorization decision. The crate also converts objects, including the webhook calls
//! that a conversion needs ([`webhook`]).

pub mod aggregation;
pub mod builtin;
pub mod bundle;
mod catalog;
pub mod compile;
mod convert;
mod definitions;
pub mod digest;
pub mod earlier_names;
mod error;
pub mod exports;
pub mod freeze;
pub mod ids;
pub mod indexes;
pub mod issuer_list;
pub mod kind;
pub mod limits;
pub mod locate;
pub mod metering;
pub mod names;
pub mod object;
mod outbound;
pub mod parts;
pub mod payer;
pub mod policies;
mod proof;
pub mod registration;
mod resource;
mod routes;
mod scale;
mod serialization_point;
pub mod stored;
mod strategy;
mod subresource;
mod system;
mod use_marks;
pub mod version_uses;
pub mod webhook;

pub use catalog::Catalog;
pub use error::{Cause, Denial, Error, Named, Result};
pub use kind::{Builtin, CellValue, CompiledConversion, CompiledKind, Gates, Subresource, Table, TableColumn};
pub use object::Part;
pub use outbound::{Call, Endpoint, Nobody, Outbound};
pub use proof::{BlockingExecutor, Proof, Prover};
pub use resource::{Alias, Api, ApiVersion, Column, Names, Origin, Respelled, ScopeKind, Served};
pub use routes::ResourceRoute;
pub use scale::Scale;
pub use serialization_point::SerializationPoint;
pub use strategy::{Custom, OnDelete, Strategy, Traits};
pub use subresource::{
    ObjectChange, SubresourceAnswer, SubresourceBody, SubresourceHandler, SubresourceRequest, SubresourceTypes,
};
pub use system::System;
pub use use_marks::UseMarks;
pub use webhook::PendingCalls;
