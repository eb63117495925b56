//! Who asks and what is known of a cluster when it is decided whether they may: shared by every door.

use crate::{locate, roles::RolesAt};
use bytes::Bytes;
use insula_api::ClusterName;
use insula_auth::{ClusterFacts, TokenFile, UserInfo, bearer, certificate};
use insula_store::Snapshot;
use std::sync::{Arc, OnceLock};

/// The certificate (DER) that a client showed on its connection, already verified against our CA.
///
/// Whose it is gets read once for the connection, not for each of its requests.
#[derive(Debug, Clone)]
pub struct PeerCertificate(Arc<Peer>);

#[derive(Debug)]
struct Peer {
    der: Bytes,
    user: OnceLock<Result<UserInfo, Unauthenticated>>,
}

impl PeerCertificate {
    /// The certificate of a new connection.
    pub fn new(der: Bytes) -> Self {
        PeerCertificate(Arc::new(Peer {
            der,
            user: OnceLock::new(),
        }))
    }

    fn user(&self) -> &Result<UserInfo, Unauthenticated> {
        let read = || certificate::user(&self.0.der).map_err(|error| Unauthenticated(error.to_string()));
        self.0.user.get_or_init(read)
    }
}

/// Turns credentials into users.
#[derive(Debug, Default)]
pub struct Authenticator {
    /// Static tokens.
    pub tokens: TokenFile,
}

/// A credential was shown that is no good. What was wrong with it is for the log, not for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unauthenticated(pub String);

impl Authenticator {
    /// The user of a request: by client certificate, else by bearer token, else anonymous. A bad credential is refused and
    /// never falls back to anonymous.
    pub fn authenticate<'a>(
        &self,
        peer: Option<&PeerCertificate>,
        authorization: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<UserInfo, Unauthenticated> {
        if let Some(peer) = peer {
            return peer.user().clone();
        }
        match bearer::token(authorization).map_err(|error| Unauthenticated(error.to_string()))? {
            None => Ok(UserInfo::anonymous()),
            Some(token) => self.by_token(token),
        }
    }

    /// Whose a token is.
    pub fn by_token(&self, token: &str) -> Result<UserInfo, Unauthenticated> {
        let known = self.tokens.lookup(token).cloned();
        known.ok_or_else(|| Unauthenticated("unknown token".to_owned()))
    }
}

/// What the decision may know about a cluster.
pub fn facts(snapshot: &Snapshot, cluster: &ClusterName) -> ClusterFacts {
    let owner = locate::logical_cluster(snapshot, cluster).and_then(|view| view.owner.clone());
    ClusterFacts {
        cluster: Some(cluster.clone()),
        admin_users: owner.map(|name| name.to_string()).into_iter().collect(),
        roles: Some(Arc::new(RolesAt::new(snapshot, cluster))),
        ..ClusterFacts::default()
    }
}
