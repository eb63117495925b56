//! The stages of a request: `Parsed → Authenticated → Located → Authorized`. Each is made from the
//! one before and from nothing else, so that no handler serves a request that was not
//! authenticated and authorised.

use crate::{
    impersonate,
    path::{BadPath, Rest, Route, parse},
    query::ReadAt,
    request::{Parsed, RequestScope, VirtualWorkspace},
    unlocated::{self, Sender},
    websocket,
};
use http::Method;
use insula_access::{
    Authenticator, PeerCertificate, Unauthenticated,
    delegate::{self, Delegate},
};
use insula_api::{ClusterName, ClusterPath, Revision, names::well_known::ROOT};
use insula_auth::{Attributes, ClusterFacts, EXTRA_CLUSTER, Forbidden, GROUP_AUTHENTICATED, Permit, UserInfo, permit};
use insula_catalog::{
    Error,
    locate::{self, LogicalClusterView, NotLocated},
};
use insula_pipeline::Refusal;
use insula_registry::{Deps, ListOptions, verbs::Token};
use insula_store::Snapshot;
use std::{sync::Arc, time::Duration};

/// Time that a read waits for a revision that this server has not seen yet (kube-apiserver's watch
/// cache: 3 s).
const REVISION_WAIT: Duration = Duration::from_secs(3);

/// A request whose sender is known.
pub struct Authenticated {
    parsed: Parsed,
    user: UserInfo,
    /// The owner of the credential, where they act as another user.
    impersonator: Option<UserInfo>,
}

/// A request whose cluster exists.
pub struct Located {
    parsed: Parsed,
    user: UserInfo,
    impersonator: Option<UserInfo>,
    scope: RequestScope,
}

/// The server that a path leads to.
pub(crate) enum Destination {
    /// This server.
    Here(Box<Located>),
    /// Another server.
    Mounted(Box<Mounted>),
}

/// A request for a workspace whose content is on another server.
pub(crate) struct Mounted {
    pub(crate) parsed: Parsed,
    pub(crate) user: UserInfo,
    /// Address of the content.
    pub(crate) url: Arc<str>,
    /// The workspace.
    pub(crate) path: ClusterPath,
}

/// A request that may be served: the only one that handlers take.
pub struct Authorized {
    /// The request.
    pub parsed: Parsed,
    /// The user.
    pub user: Arc<UserInfo>,
    /// The user as the cluster sees them in which they write: with the warrant of the virtual
    /// workspace that let them in.
    pub(crate) writer: Arc<UserInfo>,
    /// The state and the cluster.
    pub scope: RequestScope,
    /// The request in the terms of authorisation.
    pub(crate) attributes: Arc<Attributes>,
    /// The right that was granted.
    pub permit: Permit,
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
        let workspace = || {
            let (snapshot, path) = (registry.store.latest(), path?);
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
        let caller = authenticator.authenticate(self.peer.as_ref(), named, credentials, workspace);
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
        self.record.known(&caller);
        let acts_as = match forwarded {
            Some(user) => Some(user),
            None => impersonate::requested_user(&self.headers)?,
        };
        match acts_as {
            Some(user) => {
                self.record.acts_as(&user);
                Ok(Authenticated {
                    parsed: self,
                    user,
                    impersonator: Some(caller),
                })
            }
            None => Ok(Authenticated {
                parsed: self,
                user: caller,
                impersonator: None,
            }),
        }
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
    /// Returns a request of a sender whom the edge has authenticated already. `impersonator` is the
    /// owner of the credential, where that is another.
    pub(crate) fn known(parsed: Parsed, user: UserInfo, impersonator: Option<UserInfo>) -> Self {
        parsed.record.about(parsed.attributes.clone());
        parsed.record.known(impersonator.as_ref().unwrap_or(&user));
        if impersonator.is_some() {
            parsed.record.acts_as(&user);
        }
        Authenticated {
            parsed,
            user,
            impersonator,
        }
    }

    /// The account whose limits the request counts against.
    pub fn payer(&self) -> &Arc<str> {
        &self.parsed.payer
    }

    /// The request, the user, and the owner of the credential where that is another.
    pub(crate) fn into_parts(self) -> (Parsed, UserInfo, Option<UserInfo>) {
        (self.parsed, self.user, self.impersonator)
    }

    /// Finds the cluster, and the state that the request sees.
    ///
    /// # Errors
    /// 400 for parameters of a read that make no sense, the refusal of a revision that cannot be
    /// read, and of a workspace that cannot be entered.
    pub(crate) async fn locate(self, registry: &Deps) -> Result<Destination, Refusal> {
        let Authenticated {
            parsed,
            mut user,
            impersonator,
        } = self;
        let (at, list_options) = read_options(&parsed)?;
        let read = snapshot(registry, at, parsed.query.get("continue")).await?;
        // Rights that were taken away do not come back with an old revision.
        let snapshot = match at {
            ReadAt::Exactly(_) => snapshot(registry, ReadAt::Latest, None).await?,
            ReadAt::Latest | ReadAt::Any | ReadAt::NotOlderThan(_) => read.clone(),
        };
        let sender = Sender {
            user: &user,
            impersonator: impersonator.as_ref(),
        };
        let (cluster, logical_cluster) = match find_cluster(&parsed, &snapshot, sender)? {
            FoundCluster::Here(cluster, view) => (cluster, view),
            FoundCluster::Mounted { url, path } => {
                return Ok(Destination::Mounted(Box::new(Mounted {
                    parsed,
                    user,
                    url,
                    path,
                })));
            }
        };
        let (path, rest) = match &parsed.route {
            Route::Server(path) | Route::Service(path) => (None, Rest::Other(path.clone())),
            Route::NoCluster => (None, Rest::Other(parsed.uri.path().to_owned())),
            Route::Cluster { path, rest } => (path.clone(), rest.clone()),
            Route::Virtual { rest, .. } => (None, rest.clone()),
        };
        let view = match &parsed.route {
            Route::Virtual { workspace, .. } => Some(VirtualWorkspace::from(workspace)),
            _ => None,
        };
        parsed.record.located(cluster.as_ref(), path.as_ref());
        let scope = RequestScope {
            snapshot,
            read,
            list_options,
            cluster,
            logical_cluster,
            path,
            rest,
            view,
        };
        let home = match &scope.view {
            Some(view) => view.home(),
            None => scope.cluster.as_ref(),
        };
        if let (Some(_), Some(cluster)) = (&impersonator, home) {
            impersonate::confine(&mut user, cluster);
        }
        Ok(Destination::Here(Box::new(Located {
            parsed,
            user,
            impersonator,
            scope,
        })))
    }
}

/// The cluster that a path leads to.
enum FoundCluster {
    /// A cluster of this server with its LogicalCluster; `None` outside of any and for the
    /// wildcard.
    Here(Option<ClusterName>, Option<Arc<LogicalClusterView>>),
    /// A mount: its content is on another server.
    Mounted { url: Arc<str>, path: ClusterPath },
}

/// Finds the cluster of a route. Virtual workspaces do not check that theirs exists: they tell it
/// to those alone whom the cluster lets in.
fn find_cluster(parsed: &Parsed, snapshot: &Snapshot, sender: Sender<'_>) -> Result<FoundCluster, Refusal> {
    let path = match &parsed.route {
        Route::Cluster { path: Some(path), .. } => path,
        Route::Virtual { cluster, .. } => {
            if let Some(cluster) = cluster
                .as_ref()
                .filter(|cluster| locate::awaits_deletion(snapshot, cluster))
            {
                let why = NotLocated::UnknownCluster(cluster.clone());
                return Err(unlocated::refusal(parsed, snapshot, sender, &why));
            }
            let view = cluster
                .as_ref()
                .and_then(|cluster| locate::logical_cluster(snapshot, cluster));
            return Ok(FoundCluster::Here(cluster.clone(), view));
        }
        Route::Server(_) | Route::Service(_) | Route::NoCluster | Route::Cluster { path: None, .. } => {
            return Ok(FoundCluster::Here(None, None));
        }
    };
    let is_itself = sender.impersonator.is_none() && sender.user.is_in(GROUP_AUTHENTICATED);
    match locate::locate_view(snapshot, path) {
        // Impersonation ends where a workspace is on another server, which takes no more than
        // names.
        Err(NotLocated::Mounted { url }) if is_itself => Ok(FoundCluster::Mounted {
            url,
            path: path.clone(),
        }),
        _ if unlocated::is_health(parsed) && !path.split_first().0.is_system() => Ok(FoundCluster::Here(None, None)),
        Ok((cluster, view)) => Ok(FoundCluster::Here(Some(cluster), view)),
        Err(NotLocated::UnknownCluster(cluster)) if unlocated::shows_as_empty(parsed, path, sender) => {
            Ok(FoundCluster::Here(Some(cluster), None))
        }
        Err(why) => Err(unlocated::refusal(parsed, snapshot, sender, &why)),
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

/// Returns the state at which a read looks; `token` is that of the page that it goes on from.
///
/// # Errors
/// 410 for a revision that is compacted, 504 for one that this server has not seen, 503 for a store
/// that does not answer.
pub async fn snapshot(registry: &Deps, at: ReadAt, token: Option<&str>) -> Result<Snapshot, Refusal> {
    let store = &registry.store;
    let failed = |error: insula_store::SnapshotError| Refusal::from(Error::Unavailable(error.to_string()));
    match at {
        ReadAt::Any => Ok(store.latest()),
        ReadAt::Latest => store.snapshot(Revision(0)).await.map_err(failed),
        ReadAt::NotOlderThan(revision) => match tokio::time::timeout(REVISION_WAIT, store.snapshot(revision)).await {
            Ok(found) => found.map_err(failed),
            Err(_) => {
                let current = store.latest().revision();
                Err(Refusal::from(Error::RevisionTooLarge {
                    wanted: revision,
                    current,
                }))
            }
        },
        ReadAt::Exactly(revision) => store.at_revision(revision).map_err(|gone| match gone {
            insula_store::Gone::Compacted { .. } => Refusal::from(Token::expired(token)),
            insula_store::Gone::Future { asked, latest } => Refusal::from(Error::RevisionTooLarge {
                wanted: asked,
                current: latest,
            }),
        }),
    }
}

impl Located {
    /// Asks the chain of authorizers, and the delegate where the chain leaves it to one.
    ///
    /// # Errors
    /// 403, 404 for a virtual workspace that does not exist, and 503 for a delegate that does not
    /// answer.
    pub async fn authorize(self, delegate: Option<&dyn Delegate>) -> Result<Authorized, Refusal> {
        let Located {
            parsed,
            user,
            impersonator,
            scope,
        } = self;
        let attributes = Attributes {
            cluster: scope.cluster.clone(),
            ..parsed.attributes.clone()
        };
        let (required, mut facts) = required_right(&scope, &attributes)?;
        add_decision(
            delegate.filter(|_| impersonator.is_none()),
            &user,
            &required,
            &mut facts,
        )
        .await?;
        let refused = |forbidden: Forbidden| {
            tracing::info!(user = user.name, reason = forbidden.reason, "forbidden");
            parsed.record.decided(false, &forbidden.reason, &forbidden.trail);
            Refusal::forbidden(insula_auth::forbidden_message(&user, &attributes), &attributes)
        };
        if let Some(caller) = &impersonator {
            impersonate::allowed(caller, &user, required.cluster.as_ref(), &facts).map_err(|refused| {
                let (impersonation, forbidden) = *refused;
                parsed.record.decided(false, &forbidden.reason, &forbidden.trail);
                parsed.record.refused(&forbidden.message);
                Refusal::forbidden(forbidden.message, &impersonation)
            })?;
        }
        let permit = permit(&user, required, &facts).map_err(refused)?;
        parsed.record.decided(true, permit.reason(), permit.trail());
        let user = Arc::new(user);
        let writer = match &scope.view {
            Some(view) => {
                view.check(&scope, &user, &attributes).map_err(|refusal| {
                    tracing::info!(user = user.name, reason = refusal.reason(), "forbidden");
                    parsed.record.decided(false, refusal.reason(), permit.trail());
                    refusal.refusal(&user, &attributes)
                })?;
                Arc::new(view.warranted(&scope, &user, &attributes))
            }
            None => user.clone(),
        };
        Ok(Authorized {
            parsed,
            user,
            writer,
            scope,
            attributes: Arc::new(attributes),
            permit,
        })
    }
}

/// Returns the right that a request needs, with the facts to decide about it: its own attributes,
/// or the right to use the virtual workspace that it goes through.
pub(crate) fn required_right(
    scope: &RequestScope,
    attributes: &Attributes,
) -> Result<(Attributes, ClusterFacts), Refusal> {
    let required = match &scope.view {
        Some(view) => view.required_right(attributes).ok_or(Refusal::NotServed)?,
        None => attributes.clone(),
    };
    let facts = match &required.cluster {
        Some(cluster) => scope.facts(cluster),
        None => ClusterFacts::default(),
    };
    Ok((required, facts))
}

/// Adds the decision of the delegate to the facts, where it is left to one.
pub(crate) async fn add_decision(
    delegate: Option<&dyn Delegate>,
    user: &UserInfo,
    required: &Attributes,
    facts: &mut ClusterFacts,
) -> Result<(), Refusal> {
    let decided = delegate::add_decision(delegate, user, required, facts).await;
    decided.map_err(|why| Refusal::from(Error::Unavailable(why)))
}
