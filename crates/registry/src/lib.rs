//! Objects with meaning: what each cluster serves, and the verbs on it.
//!
//! The path of a write: [`verbs`] read one snapshot, [`prepare`] brings the object into its stored
//! form, [`admission`] looks at its surroundings, and the store commits it under guards for
//! everything that was decided upon. Every door (HTTP, virtual workspaces, gRPC, controllers) comes
//! through here.

pub mod access;
pub mod accounts;
pub mod admission;
mod asking;
pub mod bundle;
mod catalog;
mod client;
pub mod compile;
mod convert;
pub mod digest;
mod error;
pub mod exports;
pub mod facts;
mod home;
pub mod ids;
mod issuer_list;
pub mod issuers;
pub mod lifecycle;
pub mod locate;
mod metadata;
mod metadata_only;
mod migrate;
pub mod names;
pub mod object;
mod object_limit;
mod outbound;
mod owners;
mod policies;
mod policy;
pub mod prepare;
mod proof;
pub mod quota;
pub mod representation;
mod resource;
pub mod reviews;
mod roles;
pub mod routes;
pub mod rules;
mod serialization_point;
pub mod stored;
pub mod strategies;
mod strategy;
mod system;
pub mod target;
pub mod unauthenticated;
pub mod verbs;
pub mod view;
mod webhook;
pub mod workspace_types;

pub use catalog::Catalog;
pub use client::{Intent, Plan};
pub use error::{Cause, Denial, Error, Named, Result};
pub use home::Home;
pub use object::Part;
pub use outbound::{Call, Endpoint, Outbound};
pub use policy::{ExpressionWarning, type_check};
pub use proof::{BlockingExecutor, Proof, Prover};
pub use resource::{Alias, Api, ApiVersion, Column, Names, Origin, Respelled, Scale, ScopeKind, Served};
pub use routes::ResourceRoute;
pub use serialization_point::SerializationPoint;
pub use strategy::{Custom, OnDelete, Strategy, Traits};
pub use system::System;
pub use target::Target;
pub use verbs::{
    Change, Configured, DeleteOptions, Deleted, Deletion, Event, FOREGROUND, FieldValidation, IfAbsent, List,
    ListOptions, ORPHAN, Patch, Preconditions, Propagation, Watch, WatchOptions, WriteOptions, Written, mark_deleted,
};
pub use view::EventKind;
pub use webhook::PendingCalls;

use insula_api::{Clock, Rng};
use insula_store::Store;
use std::sync::Arc;

/// Everything that the verbs need. One for the process.
pub struct Registry {
    /// Objects in one order.
    pub store: Arc<dyn Store>,
    /// What each cluster serves.
    pub catalog: Catalog,
    /// Converted objects.
    pub cache: Arc<representation::Cache>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub rng: Arc<dyn Rng>,
    /// Base URL of this server as clients reach it, e.g. `https://127.0.0.1:6443`.
    pub external_url: String,
    /// What clients within a workspace trust: the CA that signed the server's certificate, PEM.
    /// Empty if there is none.
    pub trust: Arc<str>,
    /// Whether users have home workspaces.
    pub homes: bool,
    /// How many objects a workspace may have of which nothing else is said; 0 is any number.
    pub objects_per_workspace: u64,
    /// Seconds that an event is kept after it was written last; 0 for ever.
    pub event_ttl_seconds: u64,
    /// Calls webhooks; nobody, if nothing is said.
    pub outbound: Arc<dyn Outbound>,
    policies: policy::Policies,
    quotas: quota::CreateLocks,
    answers: Arc<webhook::ResponseCache>,
}

impl Registry {
    /// A registry over a store.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, rng: Arc<dyn Rng>, external_url: String) -> Self {
        Registry {
            store,
            catalog: Catalog::new(Prover::new(clock.clone())),
            cache: Arc::default(),
            clock,
            rng,
            external_url,
            trust: "".into(),
            homes: true,
            objects_per_workspace: 0,
            event_ttl_seconds: 3600,
            outbound: Arc::new(outbound::Nobody),
            policies: policy::Policies::default(),
            quotas: quota::CreateLocks::default(),
            answers: Arc::default(),
        }
    }
}
