//! The facts about a request that its head and its body do not tell.

use crate::guard::fair_share::ConnectionMeter;
use futures_util::future::BoxFuture;
use hyper::upgrade::OnUpgrade;
use insula_access::{OnAuthenticated, PeerCertificate};
use insula_auth::audit::Record;
use insula_meter::Meter;
use std::{net::IpAddr, sync::Arc};

/// The facts about a request that its head and its body do not tell. They go with the request as an
/// argument. A request that the server makes for itself has few of them.
#[derive(Default)]
pub struct Arrival {
    /// Address of the peer.
    pub address: Option<IpAddr>,
    /// Name of the server in the TLS handshake.
    pub server_name: Option<Arc<str>>,
    /// Certificate of the peer.
    pub certificate: Option<PeerCertificate>,
    /// Notified of the account that the request authenticates.
    pub authenticated: Option<OnAuthenticated>,
    /// Charges the tenant of the connection for CPU time.
    pub meter: Option<Arc<ConnectionMeter>>,
    /// Pays for the work of the request.
    pub work: Meter,
    /// The way to another protocol, of a request that names one on a connection that can change it.
    pub upgrade: Option<Upgrade>,
    /// Record of the request in the audit log.
    pub record: Record,
    /// Kind of the client.
    pub client: ClientKind,
}

/// Kind of the client that sends a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientKind {
    /// A program with an API of its own choice.
    #[default]
    Program,
    /// A page of the web console in the session of a viewer, which takes whatever version it finds
    /// to show an object.
    Session,
}

/// A connection that may change its protocol after the answer.
pub struct Upgrade {
    /// Completes with the connection.
    pub connection: OnUpgrade,
    /// Runs what follows.
    pub afterwards: Afterwards,
}

/// Runs a task after the answer as a part of the request's connection. Made by the owner of the
/// connection.
#[derive(Clone)]
pub struct Afterwards(Arc<dyn Fn(BoxFuture<'static, ()>) + Send + Sync>);

impl Afterwards {
    /// Wraps a function that runs a future.
    pub fn new(run: impl Fn(BoxFuture<'static, ()>) + Send + Sync + 'static) -> Self {
        Afterwards(Arc::new(run))
    }

    /// Runs a future.
    pub fn run(&self, rest: BoxFuture<'static, ()>) {
        (self.0)(rest);
    }
}
