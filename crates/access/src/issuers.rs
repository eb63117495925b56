//! Users for whom others vouch: issuers that the operator configures, and those that a workspace's
//! type names (WorkspaceAuthenticationConfiguration), whose users count in that workspace alone.
//!
//! Nothing is kept for a workspace: what a configuration compiles to is kept with its object, and
//! keys are the server's matter, by where they come from.

use crate::{Unauthenticated, workspace_types};
use futures_util::future::BoxFuture;
use insula_api::{Clock, ClusterName, Object, ObjectKey};
use insula_auth::{
    EXTRA_CLUSTER, EXTRA_SCOPES, UserInfo,
    jwt::{Issuer, JwtError, Keys},
};
pub use insula_catalog::issuer_list::read_all;
use insula_catalog::{ids, issuer_list};
use insula_meter::Meter;
use insula_store::Snapshot;
use parking_lot::RwLock;
use std::{fmt, sync::Arc};

/// A workspace in a state.
pub type At = (Snapshot, ClusterName);

/// Pays for the rules of the operator's issuers, which no tenant has written.
static OPERATOR: Meter = Meter::unbounded();

/// Has the keys of issuers, or gets them.
pub trait Keyring: Send + Sync {
    /// The keys of an issuer, on behalf of a workspace if it is the one that names it; with
    /// `known`, newer ones than those. Waits for a bounded time. An error is for the log.
    fn keys<'a>(
        &'a self,
        issuer: &'a Issuer,
        cluster: Option<&'a ClusterName>,
        known: Option<&'a Arc<Keys>>,
    ) -> BoxFuture<'a, Result<Arc<Keys>, String>>;
}

/// Knows users by tokens of other issuers.
pub struct Issuers {
    /// Those of the operator, for the whole server, as they are now.
    configured: RwLock<Arc<Vec<Issuer>>>,
    keyring: Arc<dyn Keyring>,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Issuers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let configured = self.configured.read();
        f.debug_list()
            .entries(configured.iter().map(|issuer| &issuer.url))
            .finish()
    }
}

impl Issuers {
    /// The operator's issuers, and whoever has keys.
    pub fn new(configured: Vec<Issuer>, keyring: Arc<dyn Keyring>, clock: Arc<dyn Clock>) -> Self {
        Issuers {
            configured: RwLock::new(Arc::new(configured)),
            keyring,
            clock,
        }
    }

    /// Has the operator's issuers be these from now on.
    pub fn configure(&self, configured: Vec<Issuer>) {
        *self.configured.write() = Arc::new(configured);
    }

    /// Returns the operator's issuers as they are now.
    pub fn configured(&self) -> Arc<Vec<Issuer>> {
        Arc::clone(&self.configured.read())
    }

    /// Returns the user of a token from the issuer `named`, if the server or the workspace knows
    /// that issuer.
    pub async fn user(
        &self,
        token: &str,
        named: &str,
        at: impl FnOnce() -> Option<At>,
    ) -> Option<Result<UserInfo, Unauthenticated>> {
        let mut last = None;
        let configured = self.configured();
        for issuer in configured.iter().filter(|issuer| *issuer.url == *named) {
            match self.vouched(issuer, None, token, &OPERATOR).await {
                Ok(user) => return Some(Ok(user)),
                Err(why) => last = Some(Err(why)),
            }
        }
        let Some((snapshot, cluster)) = at() else { return last };
        let own = of_workspace(&snapshot, &cluster);
        for issuer in own.iter().filter(|issuer| *issuer.url == *named) {
            match self.vouched(issuer, Some(&cluster), token, snapshot.meter()).await {
                Ok(mut user) => {
                    for (key, value) in [
                        (EXTRA_CLUSTER, cluster.to_string()),
                        (EXTRA_SCOPES, format!("cluster:{cluster}")),
                    ] {
                        user.extra.insert(key.to_owned(), vec![value]);
                    }
                    return Some(Ok(user));
                }
                Err(why) => last = Some(Err(why)),
            }
        }
        last
    }

    async fn vouched(
        &self,
        issuer: &Issuer,
        cluster: Option<&ClusterName>,
        token: &str,
        meter: &Meter,
    ) -> Result<UserInfo, Unauthenticated> {
        let absent =
            |why: String| Unauthenticated::Refused(format!("[invalid bearer token, no keys of {}: {why}]", issuer.url));
        let wrong = |why: JwtError| Unauthenticated::Refused(format!("[invalid bearer token, {why}]"));
        let keys = self.keyring.keys(issuer, cluster, None).await.map_err(absent)?;
        match issuer.user(token, &keys, self.clock.now(), meter) {
            Err(JwtError::UnknownKey) => {
                let newer = self.keyring.keys(issuer, cluster, Some(&keys)).await.map_err(absent)?;
                issuer.user(token, &newer, self.clock.now(), meter).map_err(wrong)
            }
            answered => answered.map_err(wrong),
        }
    }
}

/// The issuers that may vouch for users of a workspace: those that its type names, from the type's
/// own cluster.
fn of_workspace(snapshot: &Snapshot, cluster: &ClusterName) -> Vec<Arc<Issuer>> {
    let Some(found) = workspace_types::of_cluster(snapshot, cluster) else {
        return Vec::new();
    };
    let resource = ids::workspaceauthenticationconfigurations;
    let configurations = found.view.authentication.iter().filter_map(|name| {
        let entry = snapshot.get(&ObjectKey::cluster_scoped(resource(), found.cluster.clone(), name))?;
        Some(entry.object.parsed(Configuration::read))
    });
    configurations.flat_map(|found| found.issuers.clone()).collect()
}

/// A parsed WorkspaceAuthenticationConfiguration.
struct Configuration {
    issuers: Vec<Arc<Issuer>>,
}

impl Configuration {
    fn read(object: &Object) -> Self {
        let issuers = issuer_list::usable(&object.body_value());
        let issuers = issuers.into_iter().map(Arc::new).collect();
        Configuration { issuers }
    }
}
