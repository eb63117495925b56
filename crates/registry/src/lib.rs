//! Objects with meaning: the verbs on what each cluster serves.
//!
//! The path of a write: [`verbs`] read one snapshot, [`prepare`] brings the object into its stored
//! form, `insula_admission` looks at its surroundings, and the store commits it under guards for
//! everything that was decided upon. Every edge (HTTP, virtual workspaces, gRPC, controllers) comes
//! through here, and finds the crates below under their old paths, too.

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

pub use insula_access::{EventKind, Target, accounts, issuers, lifecycle, reviews};
pub use insula_admission::{ExpressionWarning, quota, type_check};
pub use insula_catalog::{
    Alias, Api, ApiVersion, BlockingExecutor, Call, Catalog, Cause, Column, Custom, Denial, Endpoint, Error, Named,
    Names, OnDelete, Origin, Outbound, Part, PendingCalls, Proof, Prover, ResourceRoute, Respelled, Result, Scale,
    ScopeKind, SerializationPoint, Served, Strategy, System, Traits, compile, exports, ids, locate, names,
};

/// Credentials and the facts of an access decision (`insula_access`).
pub mod access {
    pub use insula_access::{Authenticator, OnAuthenticated, PeerCertificate, Unauthenticated, facts, facts_with};
}

/// Rules of our own kinds (`insula_admission`), and the values that they share with controllers.
pub mod admission {
    pub use insula_access::workspace_types as types;
    pub use insula_admission::kinds::check_schema;
    pub use insula_catalog::{bundle, digest};
}

/// Views of clusters (`insula_access`) and what an export may do in them (`insula_catalog`).
pub mod view {
    pub use insula_access::view::{AllClusters, By, ViaExport, ViewScope};
    pub use insula_catalog::exports::{AccessRequest, Denied, Grant, schemas_behind};
}

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
    policies: insula_admission::policy::Policies,
    quotas: quota::CreateLocks,
    answers: Arc<insula_catalog::webhook::ResponseCache>,
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
            outbound: Arc::new(insula_catalog::Nobody),
            policies: insula_admission::policy::Policies::default(),
            quotas: quota::CreateLocks::default(),
            answers: Arc::default(),
        }
    }
}
