//! The registry: the verbs of the Kubernetes API on the resources that each cluster serves.
//!
//! The path of a write: [`verbs`] read one snapshot, [`prepare`] brings the object into its storage
//! version, `insula_admission` checks it, and the store commits it under guards for everything that
//! the decision read. Every edge (HTTP, virtual workspaces, gRPC, controllers) calls this crate.

mod asking;
mod client;
mod home;
mod metadata;
mod metadata_only;
mod migrate;
mod owners;
pub mod prepare;
pub mod representation;
pub mod verbs;

pub use client::{Intent, Plan};
pub use home::Home;
pub use verbs::{
    Change, Configured, DeleteOptions, Deleted, Deletion, Event, FOREGROUND, FieldValidation, IfAbsent, List,
    ListOptions, ORPHAN, Patch, Preconditions, Propagation, Watch, WatchOptions, WriteOptions, Written, mark_deleted,
};

use insula_admission::quota;
use insula_api::{Clock, Rng};
use insula_catalog::{Catalog, Outbound, Prover};
use insula_store::Store;
use std::sync::Arc;

/// The state that all verbs share. One instance per process.
pub struct Deps {
    /// The store of all objects.
    pub store: Arc<dyn Store>,
    /// The resources that each cluster serves.
    pub catalog: Catalog,
    /// Converted objects.
    pub cache: Arc<representation::Cache>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub rng: Arc<dyn Rng>,
    /// Base URL of this server as clients reach it, e.g. `https://127.0.0.1:6443`.
    pub external_url: String,
    /// The CA certificate that signed the server's certificate, in PEM. Clients within a workspace
    /// trust it. Empty if there is none.
    pub trust: Arc<str>,
    /// True if users have home workspaces.
    pub homes: bool,
    /// The object limit of workspaces whose LogicalCluster names none; 0 is unlimited.
    pub objects_per_workspace: u64,
    /// Seconds that an event is kept after it was written last; 0 for ever.
    pub event_ttl_seconds: u64,
    /// The client for webhooks. The default refuses every call.
    pub outbound: Arc<dyn Outbound>,
    policies: insula_admission::policy::Policies,
    quotas: quota::CreateLocks,
    answers: Arc<insula_catalog::webhook::ResponseCache>,
}

impl Deps {
    /// Creates a registry over a store.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, rng: Arc<dyn Rng>, external_url: String) -> Self {
        Deps {
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
            outbound: Arc::new(insula_catalog::Nobody),
            policies: insula_admission::policy::Policies::default(),
            quotas: quota::CreateLocks::default(),
            answers: Arc::default(),
        }
    }
}
