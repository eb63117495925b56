//! Calls to other people's servers: webhooks that a workspace names.
//!
//! The registry says what to send; who may be called, over what, and how many at once is the
//! server's business. Below it nobody opens a connection.

use futures_util::future::BoxFuture;
use insula_api::ClusterName;
use std::sync::Arc;

/// A body of JSON to be posted.
#[derive(Debug, Clone)]
pub struct Call {
    /// Whose call it is: each workspace has its own share of calls.
    pub cluster: ClusterName,
    /// Where to.
    pub endpoint: Endpoint,
    /// What to send.
    pub body: Vec<u8>,
    /// How long it may take, in seconds; nothing leaves it to the operator.
    pub timeout_seconds: Option<u32>,
    /// Bytes of the answer at most.
    pub answer_bytes_max: usize,
}

/// What a client configuration names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// An `https` URL.
    pub url: Arc<str>,
    /// Who may sign the server's certificate, as PEM; nothing means the certificates that the
    /// machine trusts.
    pub ca_bundle: Option<Arc<[u8]>>,
}

/// Posts to other people's servers.
pub trait Outbound: Send + Sync {
    /// The answer's body. An error is for the tenant to read: it tells nothing of the network
    /// behind this server.
    fn post(&self, call: Call) -> BoxFuture<'_, Result<Vec<u8>, String>>;
}

/// Where nobody may be called.
pub struct Nobody;

impl Outbound for Nobody {
    fn post(&self, _: Call) -> BoxFuture<'_, Result<Vec<u8>, String>> {
        Box::pin(async { Err("this server calls no webhooks".to_owned()) })
    }
}
