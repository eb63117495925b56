//! Calls to external servers: the webhooks that a workspace configures.
//!
//! This crate composes the requests. The server decides which addresses are allowed, and limits
//! transport and concurrency. No layer below the server opens a connection.

use futures_util::future::BoxFuture;
use insula_api::ClusterName;
use std::sync::Arc;

/// A POST request with a JSON body.
#[derive(Debug, Clone)]
pub struct Call {
    /// Cluster that the call is charged to: each workspace has its own share of calls.
    pub cluster: ClusterName,
    /// Address of the server.
    pub endpoint: Endpoint,
    /// Request body.
    pub body: Vec<u8>,
    /// Timeout in seconds; None selects the operator's default.
    pub timeout_seconds: Option<u32>,
    /// Limit on the size of the response, in bytes.
    pub answer_bytes_max: usize,
}

/// The address and trusted certificates of a webhook's client configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// An `https` URL.
    pub url: Arc<str>,
    /// Certificate authorities for the server's certificate, as PEM; None trusts the authorities of
    /// the machine.
    pub ca_bundle: Option<Arc<[u8]>>,
}

/// A client that sends requests to external servers.
pub trait Outbound: Send + Sync {
    /// Sends a call and returns the body of the response.
    ///
    /// # Errors
    /// Returns a message for the tenant. It reveals nothing of the network behind this server.
    fn post(&self, call: Call) -> BoxFuture<'_, Result<Vec<u8>, String>>;
}

/// A client that refuses every call.
pub struct Nobody;

impl Outbound for Nobody {
    fn post(&self, _: Call) -> BoxFuture<'_, Result<Vec<u8>, String>> {
        Box::pin(async { Err("this server calls no webhooks".to_owned()) })
    }
}
