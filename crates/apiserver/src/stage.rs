//! The stages of a request: `Parsed → Authenticated → Located → Authorized`. Each can be made only
//! from the one before, so that nothing is served to somebody who was not asked for their name and
//! their right.

use crate::{
    impersonate,
    limits::Budget,
    path::{BadPath, ResourcePath, Rest, Route, parse},
    query::{At, Query},
    reply::Reply,
    unlocated::{self, Sender},
    views::{VirtualWorkspace, named_alone},
    websocket::{self, Upgrade},
};
use axum::body::Body;
use http::{HeaderMap, Method, Request, Uri};
use insula_api::{ClusterName, ClusterPath, Revision};
use insula_auth::{
    Attributes, ClusterFacts, EXTRA_CLUSTER, Forbidden, GROUP_AUTHENTICATED, Permit, UserInfo, audit::Record, permit,
};
use insula_registry::{
    Error, Registry,
    access::{self, Authenticator, OnAuthenticated, PeerCertificate},
    locate::{self, NotLocated},
    verbs::Token,
};
use insula_store::Snapshot;
use std::{sync::Arc, time::Duration};

/// How long a read waits for a revision that this server has not seen yet (kube-apiserver's watch
/// cache: 3 s).
const REVISION_WAIT: Duration = Duration::from_secs(3);

/// A request whose path makes sense.
pub struct Parsed {
    /// HTTP method.
    pub method: Method,
    /// Path and query as they came.
    pub uri: Uri,
    /// What the path names.
    pub route: Route,
    /// Query parameters.
    pub query: Query,
    /// Headers.
    pub headers: HeaderMap,
    /// Body, unread.
    pub body: Body,
    /// The certificate that came with the connection.
    pub(crate) peer: Option<PeerCertificate>,
    connection: Option<OnAuthenticated>,
    /// A wish to go on as a WebSocket.
    pub(crate) upgrade: Option<Upgrade>,
    /// What is told of it afterwards.
    pub(crate) record: Record,
    /// On whose account it is answered: who showed the credential, whomever they act as. Empty
    /// until that is known.
    pub(crate) payer: Arc<str>,
    /// The bytes that it holds.
    pub(crate) budget: Budget,
}

/// A request whose sender is known.
pub struct Authenticated {
    parsed: Parsed,
    user: UserInfo,
    /// The user who showed the credential, where they act as another.
    behind: Option<UserInfo>,
}

/// A request whose cluster exists.
pub struct Located {
    parsed: Parsed,
    user: UserInfo,
    behind: Option<UserInfo>,
    place: RequestScope,
}

/// Where the path of a request leads.
pub(crate) enum Destination {
    /// To what this server serves.
    Here(Box<Located>),
    /// To another server.
    Mounted(Box<Mounted>),
}

/// A request for a workspace whose content is elsewhere.
pub(crate) struct Mounted {
    pub(crate) parsed: Parsed,
    pub(crate) user: UserInfo,
    /// Where the content is.
    pub(crate) url: Arc<str>,
    /// The workspace.
    pub(crate) path: ClusterPath,
}

/// Where a request goes.
#[derive(Clone)]
pub struct RequestScope {
    /// The latest state, which decides about the request: where its path leads, and who may do what
    /// there.
    pub snapshot: Snapshot,
    /// The state that lists answer from, which may be an older one. It decides nothing.
    pub read: Snapshot,
    /// The cluster; `None` outside of any and for the wildcard.
    pub cluster: Option<ClusterName>,
    /// The path that the client used.
    pub path: Option<ClusterPath>,
    /// What is asked for in the cluster.
    pub rest: Rest,
    /// What the request looks through, where it is not in the cluster.
    pub view: Option<VirtualWorkspace>,
}

/// A request that may be served: the only thing that handlers take.
pub struct Authorized {
    /// The request.
    pub parsed: Parsed,
    /// Who.
    pub user: Arc<UserInfo>,
    /// The same as the cluster sees them in which they write: one that let them in vouches for
    /// them.
    pub(crate) writer: Arc<UserInfo>,
    /// Where.
    pub place: RequestScope,
    /// What was permitted.
    pub permit: Permit,
}

impl Parsed {
    /// Reads the request line.
    pub fn new(request: Request<Body>) -> Result<Parsed, Reply> {
        let route = parse(request.uri().path()).map_err(|BadPath(text)| Reply::error(&Error::BadRequest(text)))?;
        Ok(Self::routed(request, route))
    }

    /// A gRPC call. It names its workspace in its message; one whose credential counts in that
    /// workspace alone says it before.
    pub(crate) fn call(request: Request<Body>, workspace: Option<ClusterPath>) -> Parsed {
        let path = request.uri().path().to_owned();
        let route = match workspace {
            Some(workspace) => Route::Cluster {
                path: Some(workspace),
                rest: Rest::Other(path),
            },
            None => Route::Service(path),
        };
        Self::routed(request, route)
    }

    fn routed(request: Request<Body>, route: Route) -> Parsed {
        let (mut parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let peer = parts.extensions.get::<PeerCertificate>().cloned();
        let connection = parts.extensions.remove::<OnAuthenticated>();
        let upgrade = Upgrade::asked(&mut parts);
        let record = parts.extensions.remove::<Record>().unwrap_or_default();
        Parsed {
            method: parts.method,
            uri: parts.uri,
            route,
            query,
            headers: parts.headers,
            body,
            peer,
            connection,
            upgrade,
            record,
            payer: Arc::default(),
            budget: Budget::default(),
        }
    }

    /// Finds out who asks, and as whom.
    pub async fn authenticate(
        mut self,
        authenticator: &Authenticator,
        registry: &Registry,
    ) -> Result<Authenticated, Reply> {
        let path = match &self.route {
            Route::Cluster { path, .. } => path.clone(),
            _ => None,
        };
        let at = || {
            let (snapshot, path) = (registry.store.latest(), path?);
            let cluster = locate::locate(&snapshot, &path).ok()?;
            Some((snapshot, cluster))
        };
        let given = self.headers.get_all(http::header::AUTHORIZATION).iter();
        let hidden = self.upgrade.as_ref().and_then(|_| websocket::credential(&self.headers));
        let credentials = given.map(|value| value.as_bytes()).chain(hidden.as_deref());
        let caller = authenticator
            .authenticate(self.peer.as_ref(), credentials, at)
            .await
            .map_err(|why| {
                tracing::info!(%why, "authentication failed");
                self.record.about(attributes(&self, None));
                self.record.refused(why);
                Reply::unauthorized()
            })?;
        if let Some(connection) = &self.connection {
            connection.tell(&caller);
        }
        self.payer = caller.account_name().into();
        self.go_home(&caller)?;
        self.record.about(attributes(&self, None));
        self.record.known(&caller);
        match impersonate::asked(&self.headers)? {
            Some(user) => {
                self.record.acts_as(&user);
                Ok(Authenticated {
                    parsed: self,
                    user,
                    behind: Some(caller),
                })
            }
            None => Ok(Authenticated {
                parsed: self,
                user: caller,
                behind: None,
            }),
        }
    }
}

impl Parsed {
    /// Whoever comes from a cluster and names none means their own, as in kcp: programs know the
    /// server's address alone.
    fn go_home(&mut self, caller: &UserInfo) -> Result<(), Reply> {
        let path = self.uri.path();
        let named = match self.route {
            Route::Server(_) | Route::Service(_) | Route::Virtual { .. } => true,
            Route::Cluster { .. } | Route::NoCluster => path.starts_with("/clusters"),
        };
        if let (false, Some([home])) = (named, caller.extra.get(EXTRA_CLUSTER).map(Vec::as_slice)) {
            let path = format!("/clusters/{home}{path}");
            self.route = parse(&path).map_err(|BadPath(text)| Reply::error(&Error::BadRequest(text)))?;
        }
        Ok(())
    }
}

impl Authenticated {
    /// On whose account the request is answered.
    pub fn payer(&self) -> &Arc<str> {
        &self.parsed.payer
    }

    /// The request, the user, and who acts as that user.
    pub(crate) fn into_parts(self) -> (Parsed, UserInfo, Option<UserInfo>) {
        (self.parsed, self.user, self.behind)
    }

    /// Finds the cluster, and the state that the request sees.
    pub(crate) async fn locate(self, registry: &Registry) -> Result<Destination, Reply> {
        let Authenticated {
            parsed,
            mut user,
            behind,
        } = self;
        let token = parsed.query.get("continue");
        let read = snapshot(registry, read_at(&parsed)?, token).await?;
        // Rights that were taken away do not come back with an old revision.
        let snapshot = match read_at(&parsed)? {
            At::Exactly(_) => snapshot(registry, At::Latest, None).await?,
            At::Latest | At::Any | At::NotOlderThan(_) => read.clone(),
        };
        let (cluster, path, rest) = match &parsed.route {
            Route::Server(path) | Route::Service(path) => (None, None, Rest::Other(path.clone())),
            Route::NoCluster => (None, None, Rest::Other(parsed.uri.path().to_owned())),
            Route::Cluster { path: None, rest } => (None, None, rest.clone()),
            Route::Cluster { path: Some(path), rest } => {
                let cluster = match locate::locate(&snapshot, path) {
                    // Acting as another ends where a workspace is on another server, which knows
                    // nobody by less than a name.
                    Err(NotLocated::Mounted { url }) if behind.is_none() && user.is_in(GROUP_AUTHENTICATED) => {
                        let path = path.clone();
                        return Ok(Destination::Mounted(Box::new(Mounted {
                            parsed,
                            user,
                            url,
                            path,
                        })));
                    }
                    _ if unlocated::is_health(&parsed) && !path.split_first().0.is_system() => None,
                    Ok(cluster) => Some(cluster),
                    Err(why) => {
                        let (user, behind) = (&user, behind.as_ref());
                        let sender = Sender { user, behind };
                        return Err(unlocated::refusal(&parsed, &snapshot, sender, &why));
                    }
                };
                (cluster, Some(path.clone()), rest.clone())
            }
            // Whether there is such a cluster is told to those alone whom it lets in.
            Route::Virtual { cluster, rest, .. } => (cluster.clone(), None, rest.clone()),
        };
        let view = match &parsed.route {
            Route::Virtual { workspace, .. } => Some(VirtualWorkspace::of(workspace)),
            _ => None,
        };
        parsed.record.located(cluster.as_ref(), path.as_ref());
        let place = RequestScope {
            snapshot,
            read,
            cluster,
            path,
            rest,
            view,
        };
        let home = match &place.view {
            Some(view) => view.home(),
            None => place.cluster.as_ref(),
        };
        if let (Some(_), Some(cluster)) = (&behind, home) {
            impersonate::confine(&mut user, cluster);
        }
        Ok(Destination::Here(Box::new(Located {
            parsed,
            user,
            behind,
            place,
        })))
    }
}

/// Reads say which state they look at; writes decide on the latest.
fn read_at(parsed: &Parsed) -> Result<At, Reply> {
    let (Route::Cluster {
        rest: Rest::Resource(path),
        ..
    }
    | Route::Virtual {
        rest: Rest::Resource(path),
        ..
    }) = &parsed.route
    else {
        return Ok(At::Latest);
    };
    if parsed.method != Method::GET {
        return Ok(At::Latest);
    }
    let at = if path.watch_prefix || parsed.query.flag("watch") {
        // A watch looks for its own state when it knows that it may.
        Ok(At::Latest)
    } else if path.name.is_some() {
        parsed.query.get_at()
    } else {
        parsed.query.list().map(|(_, at)| at)
    };
    at.map_err(|error| Reply::error(&error))
}

/// The state at which a read looks; `token` is that of the page that it goes on from.
pub async fn snapshot(registry: &Registry, at: At, token: Option<&str>) -> Result<Snapshot, Reply> {
    let store = &registry.store;
    let failed = |error: insula_store::SnapshotError| Reply::error(&Error::Unavailable(error.to_string()));
    match at {
        At::Any => Ok(store.latest()),
        At::Latest => store.snapshot(Revision(0)).await.map_err(failed),
        At::NotOlderThan(revision) => match tokio::time::timeout(REVISION_WAIT, store.snapshot(revision)).await {
            Ok(found) => found.map_err(failed),
            Err(_) => {
                let current = store.latest().revision();
                Err(Reply::error(&Error::RevisionTooLarge {
                    wanted: revision,
                    current,
                }))
            }
        },
        At::Exactly(revision) => store.at(revision).map_err(|gone| match gone {
            insula_store::Gone::Compacted { .. } => Reply::error(&Token::expired(token)),
            insula_store::Gone::Future { asked, latest } => Reply::error(&Error::RevisionTooLarge {
                wanted: asked,
                current: latest,
            }),
        }),
    }
}

impl Located {
    /// Asks the chain.
    pub fn authorize(self) -> Result<Authorized, Reply> {
        let Located {
            parsed,
            user,
            behind,
            place,
        } = self;
        let asked = attributes(&parsed, place.cluster.clone());
        let refused = |forbidden: Forbidden| {
            tracing::info!(user = user.name, reason = forbidden.reason, "forbidden");
            parsed.record.decided(false, &forbidden.reason, &forbidden.trail);
            Reply::forbidden(&insula_auth::forbidden_message(&user, &asked), &asked)
        };
        let (question, facts) = place.question(&asked)?;
        if let Some(caller) = &behind {
            impersonate::allowed(caller, &user, question.cluster.as_ref(), &facts).map_err(|refused| {
                let (wish, forbidden) = *refused;
                parsed.record.decided(false, &forbidden.reason, &forbidden.trail);
                parsed.record.refused(&forbidden.message);
                Reply::forbidden(&forbidden.message, &wish)
            })?;
        }
        let permit = permit(&user, question, &facts).map_err(refused)?;
        parsed.record.decided(true, permit.reason(), permit.trail());
        let user = Arc::new(user);
        let writer = match &place.view {
            Some(view) => {
                view.lets(&place, &user, &asked).map_err(|closed| {
                    tracing::info!(user = user.name, reason = closed.why(), "forbidden");
                    parsed.record.decided(false, closed.why(), permit.trail());
                    closed.reply(&user, &asked)
                })?;
                Arc::new(view.warranted(&place, &user, &asked))
            }
            None => user.clone(),
        };
        Ok(Authorized {
            parsed,
            user,
            writer,
            place,
            permit,
        })
    }
}

impl RequestScope {
    /// What is asked of the chain: what the request is about, or, of one that looks at clusters
    /// from outside, whether it may look.
    fn question(&self, asked: &Attributes) -> Result<(Attributes, ClusterFacts), Reply> {
        let asked = match &self.view {
            Some(view) => view.question(asked).ok_or(Reply::NotFoundPage)?,
            None => asked.clone(),
        };
        let facts = match &asked.cluster {
            Some(cluster) => access::facts(&self.snapshot, cluster),
            None => ClusterFacts::default(),
        };
        Ok((asked, facts))
    }
}

impl Authorized {
    /// Whether the caller may create what the path names, where a patch comes to that.
    pub fn may_create(&self) -> Result<(), Reply> {
        let asked = Attributes {
            verb: "create".into(),
            ..attributes(&self.parsed, self.place.cluster.clone())
        };
        let (question, facts) = self.place.question(&asked)?;
        permit(&self.user, question, &facts).map_err(|forbidden| {
            let record = &self.parsed.record;
            record.decided(false, &forbidden.reason, &forbidden.trail);
            record.refused("the object does not exist, and making it takes the verb create");
            Reply::forbidden(&insula_auth::forbidden_message(&self.user, &asked), &asked)
        })?;
        match &self.place.view {
            Some(view) => view.lets(&self.place, &self.user, &asked).map_err(|closed| {
                self.parsed.record.decided(false, closed.why(), self.permit.trail());
                closed.reply(&self.user, &asked)
            }),
            None => Ok(()),
        }
    }
}

/// What a request asks for, in the words of authorisation. The identity that a resource may be
/// named with says whose API is meant, and is no part of its name there: roles and policies would
/// not know it.
pub(crate) fn attributes(parsed: &Parsed, cluster: Option<ClusterName>) -> Attributes {
    let method = parsed.method.as_str().to_ascii_lowercase();
    match &parsed.route {
        Route::Cluster {
            rest: Rest::Resource(path),
            ..
        }
        | Route::Virtual {
            rest: Rest::Resource(path),
            ..
        } => {
            let ResourcePath {
                group,
                version,
                namespace,
                resource,
                name,
                subresource,
                ..
            } = path.clone();
            let is_namespace = resource == "namespaces" && group.is_empty();
            let verb = verb(parsed, path);
            let name = name.unwrap_or_default();
            // Who may list or watch objects of certain names may do so if the request says that it
            // is about one of them.
            let selected = (name.is_empty() && matches!(verb, "list" | "watch"))
                .then(|| parsed.query.selected_name())
                .flatten();
            Attributes {
                verb: verb.into(),
                group,
                version,
                resource: named_alone(&resource).to_owned(),
                subresource: subresource.unwrap_or_default(),
                // A namespace's own requests are judged inside it, as Kubernetes does.
                namespace: namespace.unwrap_or_else(|| if is_namespace { name.clone() } else { String::new() }),
                name: selected.unwrap_or(name),
                path: String::new(),
                cluster,
                is_resource_request: true,
            }
        }
        Route::Cluster { rest, .. } | Route::Virtual { rest, .. } => Attributes {
            verb: method,
            path: path_of(rest),
            cluster,
            ..Attributes::default()
        },
        Route::Server(path) | Route::Service(path) => Attributes {
            verb: method,
            path: path.clone(),
            ..Attributes::default()
        },
        Route::NoCluster => Attributes {
            verb: method,
            path: parsed.uri.path().to_owned(),
            ..Attributes::default()
        },
    }
}

fn path_of(rest: &Rest) -> String {
    match rest {
        Rest::CoreVersions => "/api".into(),
        Rest::Groups => "/apis".into(),
        Rest::Group(group) => format!("/apis/{group}"),
        Rest::GroupVersion { group, version } if group.is_empty() => format!("/api/{version}"),
        Rest::GroupVersion { group, version } => format!("/apis/{group}/{version}"),
        Rest::OpenApiV2 => "/openapi/v2".into(),
        Rest::OpenApiV3(None) => "/openapi/v3".into(),
        Rest::OpenApiV3(Some(path)) => format!("/openapi/v3/{path}"),
        Rest::Other(path) => path.clone(),
        Rest::Resource(_) => String::new(),
    }
}

/// Kubernetes' verb of a request for objects.
pub fn verb(parsed: &Parsed, path: &ResourcePath) -> &'static str {
    match parsed.method {
        Method::GET | Method::HEAD if path.watch_prefix || (path.name.is_none() && parsed.query.flag("watch")) => {
            "watch"
        }
        Method::GET | Method::HEAD if path.name.is_none() => "list",
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if path.name.is_none() => "deletecollection",
        Method::DELETE => "delete",
        _ => "",
    }
}
