//! Extension servers of APIServices, as requests and checks share them: the connection to them,
//! the permits of requests, and the results of the checks.

mod outages;
mod permits;

pub use outages::Outages;
pub(crate) use permits::{Kind, Permit};

use crate::openapi::Extension;
use axum::body::Body;
use dashmap::DashMap;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use insula_api::{ClusterName, Json, ObjectKey};
use insula_catalog::aggregation::Backend;
use permits::Permits;
use std::{collections::BTreeSet, sync::Arc};

/// Bytes of all discovery documents whose resources are kept.
const KNOWN_BYTES_MAX: usize = 32 << 20;

/// Sends requests to extension servers.
pub trait ExtensionServers: Send + Sync {
    /// Returns the answer of an extension server to a request, under the certificate of the front
    /// proxy of a cluster. The answer to an upgrade holds the connection.
    fn send<'a>(
        &'a self,
        home: &'a ClusterName,
        backend: &'a Backend,
        request: Request<Body>,
    ) -> BoxFuture<'a, Result<Response<Body>, Unreachable>>;
}

/// The reason why an extension server gave no answer. It tells nothing of the network behind this
/// server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreachable {
    /// Message for the owner of the APIService.
    pub message: String,
    /// True if the name of the server has no address that may be called.
    pub is_unknown: bool,
}

/// Extension servers of all workspaces.
pub struct Extensions {
    pub(crate) servers: Arc<dyn ExtensionServers>,
    pub(crate) permits: Permits,
    /// Counts of the servers that failed a check after they had passed one.
    pub outages: Outages,
    /// Results of the checks by APIService.
    known: DashMap<ObjectKey, Arc<Known>>,
}

/// The documents of an extension server at its last check.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// Resources in the form of aggregated discovery.
    pub(crate) resources: Vec<Json>,
    /// Bytes of the documents.
    pub(crate) bytes: usize,
    /// Hash of the OpenAPI v3 document, if the server has one.
    pub(crate) openapi: Option<String>,
    /// Its part of the OpenAPI v2 document, if the server has one.
    pub(crate) openapi_v2: Option<Arc<Extension>>,
    /// True if the last check passed.
    pub(crate) is_current: bool,
}

impl Extensions {
    /// Returns extension servers without results of checks. `per_workspace` limits the requests of
    /// one workspace that wait for an answer, `total` those of all.
    pub fn new(servers: Arc<dyn ExtensionServers>, per_workspace: usize, total: usize) -> Self {
        Extensions {
            servers,
            permits: Permits::new(per_workspace, total),
            outages: Outages::default(),
            known: DashMap::new(),
        }
    }

    /// Returns the documents of an APIService; empty ones before its first check.
    pub(crate) fn known(&self, key: &ObjectKey) -> Arc<Known> {
        let known = self.known.get(key).map(|known| Arc::clone(&known));
        known.unwrap_or_default()
    }

    /// Forgets the documents of APIServices that are gone.
    pub(crate) fn forget_others(&self, present: &BTreeSet<&ObjectKey>) {
        if self.known.len() > present.len() {
            self.known.retain(|key, _| present.contains(key));
        }
    }

    /// Keeps the documents of a check. Without room for its resources the server is shown as stale.
    pub(crate) fn keep(&self, key: &ObjectKey, mut known: Known) {
        let others = self.known.iter().filter(|other| other.key() != key);
        let bytes: usize = others.map(|other| other.bytes).sum();
        if bytes + known.bytes > KNOWN_BYTES_MAX {
            known = Known {
                openapi: known.openapi.take(),
                ..Known::default()
            };
        }
        self.known.insert(key.clone(), Arc::new(known));
    }

    /// Marks the documents of an APIService whose server failed a check.
    pub(crate) fn mark_stale(&self, key: &ObjectKey) {
        if let Some(mut known) = self.known.get_mut(key) {
            let stale = Known {
                is_current: false,
                ..Known::clone(&known)
            };
            *known = Arc::new(stale);
        }
    }
}
