//! The state that all verbs share: the store, the catalog, the clock, randomness and limits.

use crate::{Team, heavy::HeavyWork, representation::cache::Cache};
use insula_access::accounts::Sign;
use insula_admission::{quota, storage_limit::StorageLimits};
use insula_api::{Clock, Rng};
use insula_catalog::{Catalog, Outbound, Prover, version_uses::VersionUses};
use insula_store::Store;
use std::sync::{Arc, PoisonError, RwLock};

/// The state that all verbs share. A process has one instance, and passes it to every verb.
pub struct Deps {
    /// The store of all objects.
    pub store: Arc<dyn Store>,
    /// The resources that each cluster serves.
    pub catalog: Catalog,
    /// Converted objects.
    pub cache: Arc<Cache>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub rng: Arc<dyn Rng>,
    /// Base URL of this server as clients reach it, e.g. `https://127.0.0.1:6443`.
    pub external_url: String,
    /// The CA that clients within a workspace trust.
    pub trust: Trust,
    /// The CAs that extension servers trust; `None` publishes none.
    pub extension_trust: Option<Arc<ExtensionTrust>>,
    /// Signs tokens of service accounts for Secrets; `None` leaves such Secrets unfilled.
    pub sign_account: Option<Sign>,
    /// True if users have home workspaces.
    pub homes: bool,
    /// The object limit of workspaces whose LogicalCluster names none; 0 is unlimited.
    pub objects_per_workspace: u64,
    /// Turns for the long computations of writes.
    pub heavy: HeavyWork,
    /// The limits of what workspaces and owners store.
    pub storage: StorageLimits,
    /// Seconds for which the deletion of a workspace may be taken back; 0 for none.
    pub workspace_grace_seconds: u64,
    /// Seconds that an event is kept after it was written last; 0 for ever.
    pub event_ttl_seconds: u64,
    /// The client for webhooks. The default refuses every call.
    pub outbound: Arc<dyn Outbound>,
    /// Uses of API versions by tenants that are not stored yet.
    pub uses: VersionUses,
    /// This server among those on the store.
    pub team: Team,
    pub(crate) policies: insula_admission::policy::Policies,
    pub(crate) create_locks: quota::CreateLocks,
    pub(crate) responses: Arc<insula_catalog::webhook::ResponseCache>,
}

/// The CA certificate that signed the server's certificate, in PEM; empty if there is none. It is
/// another one when the files of the server's certificate change; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Trust(Arc<RwLock<Arc<str>>>);

impl Trust {
    /// Returns the present CA.
    pub fn present(&self) -> Arc<str> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the CA.
    pub fn set(&self, pem: &str) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = pem.into();
    }
}

/// The CAs by which extension servers recognise requests, as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtensionTrust {
    /// CA of the front proxies' certificates.
    pub front_proxy: String,
    /// CA of users' certificates.
    pub clients: String,
}

impl Deps {
    /// Returns the state over a store, with an empty cache and the default limits. Webhooks are
    /// refused until the caller sets `outbound`.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, rng: Arc<dyn Rng>, external_url: String) -> Self {
        Deps {
            store,
            catalog: Catalog::new(Prover::default()),
            cache: Arc::default(),
            clock,
            rng,
            external_url,
            trust: Trust::default(),
            extension_trust: None,
            sign_account: None,
            homes: true,
            objects_per_workspace: 0,
            heavy: HeavyWork::default(),
            storage: StorageLimits::default(),
            workspace_grace_seconds: 0,
            event_ttl_seconds: 3600,
            outbound: Arc::new(insula_catalog::Nobody),
            uses: VersionUses::default(),
            team: Team::alone("server"),
            policies: insula_admission::policy::Policies::default(),
            create_locks: quota::CreateLocks::default(),
            responses: Arc::default(),
        }
    }
}
