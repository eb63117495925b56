//! The stages of a request: `Parsed → Authenticated → Located → Authorized`. Each is made from the
//! one before and from nothing else, so that no handler serves a request that was not
//! authenticated and authorised. The last two are the pipeline's, for requests of any protocol.

use crate::{
    impersonate,
    path::{BadPath, Route, parse},
    request::Parsed,
    websocket,
};
use http::Method;
use insula_access::{AccountLookup, Authenticator, PeerCertificate, Unauthenticated, delegate};
use insula_api::{Revision, names::well_known::ROOT};
use insula_auth::{EXTRA_CLUSTER, UserInfo};
use insula_catalog::{Error, locate};
use insula_pipeline::{Authorized, Call, Destination, ReadAt, Refusal, ScopePath, Sender, VirtualWorkspace};
use insula_registry::{Deps, ListOptions};
use std::sync::Arc;

/// A request whose sender is known.
pub struct Authenticated {
    parsed: Parsed,
    sender: Sender,
    /// The revision in which the account of its token was looked up, if that was the latest one.
    seen: Option<Revision>,
}

/// A request that may be served: the only one that handlers take.
pub struct Permitted {
    /// The request.
    pub parsed: Parsed,
    /// Its user, scope and right.
    pub authorized: Authorized,
}

impl Parsed {
    /// Authenticates the sender, and reads the user as whom they act.
    ///
    /// # Errors
    /// 401 for a credential that is not valid, 400 for headers that name nobody or are no text.
    pub async fn authenticate(
        mut self,
        authenticator: &Authenticator,
        registry: &Deps,
    ) -> Result<Authenticated, Refusal> {
        let path = match &self.route {
            Route::Cluster { path, .. } => path.clone(),
            _ => None,
        };
        let work = self.work.clone();
        let workspace = || {
            let (snapshot, path) = (registry.store.latest().charged_to(&work), path?);
            let (cluster, _) = locate::locate_view(&snapshot, &path).ok()?;
            Some((snapshot, cluster))
        };
        let headers = self.headers.get_all(http::header::AUTHORIZATION).iter();
        let protocol = match &self.upgrade {
            Some(_) => websocket::credential(&self.headers),
            None => Ok(None),
        };
        let protocol = protocol.map_err(|why| self.unauthenticated(Unauthenticated::Refused(why.to_owned())))?;
        let credentials = headers
            .map(|value| value.as_bytes())
            .chain(protocol.as_ref().map(|value| value.as_bytes()));
        let named = || {
            let user = impersonate::proxied_user(&self.headers, authenticator.delegate.is_some());
            user.map_err(Unauthenticated::from)
        };
        let reads_any = matches!(read_options(&self), Ok((ReadAt::Any, _)));
        let lookup = AccountLookup::new(reads_any);
        let caller = authenticator.authenticate(self.peer.as_ref(), named, credentials, workspace, &lookup);
        let caller = caller.await.map_err(|why| self.unauthenticated(why))?;
        if let Some(connection) = &self.connection {
            connection.tell(&caller);
        }
        let forwarded = impersonate::forwarded_user(&caller, &self.headers)?;
        self.payer = forwarded.as_ref().unwrap_or(&caller).account_name().into();
        match &authenticator.delegate {
            Some(_) => self.route_to(Some(delegate::cluster().as_str()))?,
            // Kubernetes' aggregator knows neither clusters nor paths of extension servers.
            None => self.route_to(own_cluster(&caller).or(self.is_proxied()?.then_some(ROOT)))?,
        }
        self.record.about(self.attributes.clone());
        self.record
            .known_at(&caller, || self.route.place(&registry.store.latest()));
        let acts_as = match forwarded {
            Some(user) => Some(user),
            None => impersonate::requested_user(&self.headers)?,
        };
        let (user, impersonator) = match acts_as {
            Some(user) => {
                self.record.acts_as(&user);
                (user, Some(caller))
            }
            None => (caller, None),
        };
        let client = self.client;
        Ok(Authenticated {
            parsed: self,
            sender: Sender {
                user,
                impersonator,
                client,
            },
            seen: lookup.seen(),
        })
    }

    /// Routes a request that names no cluster to a cluster.
    fn route_to(&mut self, cluster: Option<&str>) -> Result<(), Refusal> {
        let path = self.uri.path();
        let is_named = match self.route {
            Route::Server(_) | Route::Service(_) | Route::Virtual { .. } => true,
            Route::Cluster { .. } | Route::NoCluster => path.starts_with("/clusters"),
        };
        if let (false, Some(cluster)) = (is_named, cluster) {
            let path = format!("/clusters/{cluster}{path}");
            let route = parse(&path).map_err(|BadPath(text)| Refusal::from(Error::BadRequest(text)))?;
            self.set_route(route);
        }
        Ok(())
    }

    /// Records the refusal of a credential.
    fn unauthenticated(&self, why: Unauthenticated) -> Refusal {
        tracing::info!(%why, "authentication failed");
        self.record.about(self.attributes.clone());
        self.record.refused(&why);
        match why {
            Unauthenticated::Refused(_) => Refusal::Unauthenticated,
            Unauthenticated::Malformed(why) => Refusal::from(Error::BadRequest(why)),
            Unauthenticated::Unavailable(why) => Refusal::from(Error::Unavailable(why)),
        }
    }

    fn is_proxied(&self) -> Result<bool, Refusal> {
        match self.peer.as_ref().is_some_and(PeerCertificate::is_front_proxy) {
            true => Ok(impersonate::proxied_user(&self.headers, false)?.is_some()),
            false => Ok(false),
        }
    }
}

/// Returns the cluster of a service account. Requests that name no cluster are for it, as in kcp:
/// programs know the server's address alone.
fn own_cluster(caller: &UserInfo) -> Option<&str> {
    match caller.extra.get(EXTRA_CLUSTER).map(Vec::as_slice) {
        Some([own]) => Some(own),
        _ => None,
    }
}

impl Authenticated {
    /// Returns a request of a sender whom the edge has authenticated already.
    pub(crate) fn known(parsed: Parsed, sender: Sender) -> Self {
        parsed.record.about(parsed.attributes.clone());
        parsed
            .record
            .known(sender.impersonator.as_ref().unwrap_or(&sender.user));
        if sender.impersonator.is_some() {
            parsed.record.acts_as(&sender.user);
        }
        let seen = None;
        Authenticated { parsed, sender, seen }
    }

    /// The account whose limits the request counts against.
    pub fn payer(&self) -> &Arc<str> {
        &self.parsed.payer
    }

    /// The request and its sender.
    pub(crate) fn into_parts(self) -> (Parsed, Sender) {
        (self.parsed, self.sender)
    }

    /// Finds the cluster, and the state that the request sees.
    ///
    /// # Errors
    /// Parameters of a read that make no sense, and the refusals of [`insula_pipeline::locate`].
    pub(crate) async fn locate(self, registry: &Deps) -> Result<(Parsed, Destination), Refusal> {
        let Authenticated {
            mut parsed,
            sender,
            seen,
        } = self;
        let (at, list_options) = read_options(&parsed)?;
        let at = match (at, seen) {
            // That state has all that was acknowledged before the request came.
            (ReadAt::Latest, Some(seen)) => ReadAt::NotOlderThan(seen),
            (at, _) => at,
        };
        parsed.list_options = list_options;
        let call = parsed.call_at(at);
        let destination = insula_pipeline::locate(registry, sender, call, &parsed.record).await?;
        Ok((parsed, destination))
    }
}

impl Parsed {
    /// Returns the request without its wire format.
    fn call_at(&mut self, at: ReadAt) -> Call {
        let scope = match &self.route {
            Route::Server(_) | Route::Service(_) | Route::NoCluster => ScopePath::Outside,
            Route::Cluster { path: None, .. } => ScopePath::Everywhere,
            Route::Cluster { path: Some(path), .. } => ScopePath::Cluster(path.clone()),
            Route::Virtual { workspace, cluster, .. } => ScopePath::View {
                workspace: VirtualWorkspace::from(workspace),
                cluster: cluster.clone(),
            },
        };
        Call {
            scope,
            attributes: std::mem::take(&mut self.attributes),
            at,
            token: self.query.get("continue").map(str::to_owned),
            meter: self.work.clone(),
        }
    }
}

/// Returns the state that a request reads, and the parameters of a GET of a collection. Writes
/// decide on the latest state; a watch chooses its own once it is authorised.
fn read_options(parsed: &Parsed) -> Result<(ReadAt, Option<ListOptions>), Error> {
    match parsed.resource_path() {
        Some(path) if parsed.method == Method::GET && !(path.watch_prefix || parsed.query.flag("watch")) => {
            match &path.name {
                Some(_) => Ok((parsed.query.get_at()?, None)),
                None => parsed.query.list().map(|(options, at)| (at, Some(options))),
            }
        }
        _ => Ok((ReadAt::Latest, None)),
    }
}
