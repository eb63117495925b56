//! Keys of token issuers: found by OpenID Connect Discovery, cached by their origin, and fetched
//! again when they are old or a token names an unknown key.
//!
//! A request waits at most for one fetch. An issuer that does not answer, or that lacks a requested
//! key, is not called again for a while: anonymous requests decide neither how often it is called
//! nor how long others wait.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Method, Request, request::Builder};
use http_body_util::Full;
use insula_access::issuers::Keyring;
use insula_api::{ClusterName, Json};
use insula_auth::jwt::{Giver, Issuer, Keys};
use tokio::{sync::Mutex as AsyncMutex, time::timeout};

use super::{Targets, Webhook, measured::measured};
use crate::{config::Webhooks, metrics::Purpose};

/// Time of a fetch, which reads two small documents.
const FETCH: Duration = Duration::from_secs(5);
/// Pause between two fetches from one issuer.
const PAUSE: Duration = Duration::from_secs(10);
/// Age at which keys are fetched again when they are used: an issuer revokes a key by removing it
/// from its document.
const FRESH: Duration = Duration::from_secs(300);
/// Age at which keys are not trusted any more, even if their issuer does not answer.
const STALE: Duration = Duration::from_secs(3600);
/// Maximum number of bytes of a document.
const DOCUMENT_BYTES_MAX: usize = 256 << 10;
/// Issuers of workspaces whose keys are cached. Above this number the cache is cleared, and keys
/// are fetched when they are needed.
const SOURCES_MAX: usize = 1024;

/// Origin of keys. Keys of different givers are separate, even if they are equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Origin {
    giver: Giver,
    issuer: Arc<str>,
    discovery_url: Arc<str>,
    certificate_authority: Option<Arc<[u8]>>,
}

/// The keys of one issuer.
#[derive(Default)]
struct Source {
    state: Mutex<State>,
    /// Held by the request that fetches, while others wait for it.
    fetching: AsyncMutex<()>,
}

#[derive(Default, Clone)]
struct State {
    keys: Option<(Arc<Keys>, Instant)>,
    /// Time of the last fetch that failed, or that was made for a token with an unknown key, and
    /// the error if it failed.
    tried: Option<(Instant, Option<String>)>,
}

/// Reason of a fetch.
#[derive(Clone, Copy)]
enum Why {
    /// There are no keys, or they are old.
    Age,
    /// A token names an unknown key. Anybody can write such a token.
    Unknown,
}

/// Cache of the keys of all issuers.
pub(crate) struct IssuerKeys {
    operators: Webhook,
    workspaces: Arc<Webhook>,
    sources: Mutex<HashMap<Origin, Arc<Source>>>,
}

impl IssuerKeys {
    /// Creates an empty cache. Issuers of workspaces are called under the rules of their webhooks.
    pub(crate) fn new(workspaces: Arc<Webhook>) -> Self {
        let settings = Webhooks {
            allow: Targets::everybody(),
            ..workspaces.settings.clone()
        };
        IssuerKeys {
            operators: Webhook::new(&settings, Arc::clone(&workspaces.metrics)),
            workspaces,
            sources: Mutex::default(),
        }
    }

    fn source(&self, issuer: &Issuer) -> Arc<Source> {
        let origin = Origin {
            giver: issuer.giver,
            issuer: Arc::clone(&issuer.url),
            discovery_url: Arc::clone(&issuer.discovery_url),
            certificate_authority: issuer.certificate_authority.clone(),
        };
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if sources.len() >= SOURCES_MAX && !sources.contains_key(&origin) {
            sources.retain(|known, _| known.giver == Giver::Operator);
        }
        Arc::clone(sources.entry(origin).or_default())
    }

    async fn fetch(&self, issuer: &Issuer, cluster: Option<&ClusterName>) -> Result<Keys, String> {
        let root = ClusterName::root();
        let cluster = cluster.unwrap_or(&root);
        let announced = self.announced(issuer, cluster).await?;
        let place = announced["jwks_uri"].as_str();
        let place = place.ok_or_else(|| format!("{} has no jwks_uri", issuer.discovery_url))?;
        let keys = self.send(issuer, cluster, Request::get(place), Bytes::new()).await?;
        Keys::read(&keys)
    }

    /// Fetches the discovery document of an issuer.
    pub(super) async fn announced(&self, issuer: &Issuer, cluster: &ClusterName) -> Result<Json, String> {
        let request = Request::get(&*issuer.discovery_url);
        let announced = self.send(issuer, cluster, request, Bytes::new()).await?;
        let announced: Json =
            serde_json::from_slice(&announced).map_err(|_| format!("{} is not JSON", issuer.discovery_url))?;
        match announced["issuer"] == *issuer.url {
            true => Ok(announced),
            false => Err(format!(
                "{} is the announcement of another issuer",
                issuer.discovery_url
            )),
        }
    }

    /// Sends a request to a server of an issuer, and returns the answer.
    pub(super) async fn send(
        &self,
        issuer: &Issuer,
        cluster: &ClusterName,
        request: Builder,
        body: Bytes,
    ) -> Result<Vec<u8>, String> {
        let by = match issuer.giver {
            Giver::Operator => &self.operators,
            Giver::Workspace => &*self.workspaces,
        };
        let request = request.body(Full::new(body));
        let request = request.map_err(|_| "the URL of the issuer cannot be understood".to_owned())?;
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let failed = |why: String| {
            let name = if method == Method::POST { "Post" } else { "Get" };
            format!("{name} {:?}: {why}", uri.to_string())
        };
        if uri.scheme_str() != Some("https") {
            return Err(failed("https is the only scheme that is spoken".to_owned()));
        }
        let ca = issuer.certificate_authority.as_ref();
        let sent = by.send(cluster, ca, request, DOCUMENT_BYTES_MAX);
        let sent = measured(&by.metrics, Purpose::Issuer, &method, &uri, sent).await;
        sent.map_err(failed)
    }

    /// Fetches the keys, unless the issuer was called lately, and returns the keys that are known
    /// then.
    async fn renewed(
        &self,
        source: &Source,
        issuer: &Issuer,
        cluster: Option<&ClusterName>,
        why: Why,
    ) -> Result<Arc<Keys>, String> {
        let mut state = source.state();
        if !state.rests() {
            let fetched = match timeout(FETCH, self.fetch(issuer, cluster)).await {
                Ok(fetched) => fetched,
                Err(_) => Err("context deadline exceeded".to_owned()),
            };
            let now = Instant::now();
            state = source.settle(|state| match fetched {
                Ok(keys) => {
                    state.keys = Some((Arc::new(keys), now));
                    state.tried = matches!(why, Why::Unknown).then_some((now, None));
                }
                Err(why) => {
                    tracing::warn!(issuer = %issuer.url, why, "the keys of an issuer cannot be fetched");
                    state.tried = Some((now, Some(why)));
                }
            });
        }
        let why = state
            .tried
            .as_ref()
            .and_then(|(_, why)| why.clone())
            .unwrap_or_default();
        state.usable().ok_or(why)
    }
}

impl Source {
    fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn settle(&self, change: impl FnOnce(&mut State)) -> State {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        state.clone()
    }
}

impl State {
    /// Returns true while the issuer must not be called.
    fn rests(&self) -> bool {
        self.tried.as_ref().is_some_and(|(at, _)| at.elapsed() < PAUSE)
    }

    fn usable(&self) -> Option<Arc<Keys>> {
        let (keys, at) = self.keys.as_ref()?;
        (at.elapsed() < STALE).then(|| Arc::clone(keys))
    }

    fn is_fresh(&self) -> bool {
        self.keys.as_ref().is_some_and(|(_, at)| at.elapsed() < FRESH)
    }
}

impl Keyring for IssuerKeys {
    fn keys<'a>(
        &'a self,
        issuer: &'a Issuer,
        cluster: Option<&'a ClusterName>,
        known: Option<&'a Arc<Keys>>,
    ) -> BoxFuture<'a, Result<Arc<Keys>, String>> {
        Box::pin(async move {
            let source = self.source(issuer);
            let is_new = |keys: &Arc<Keys>| known.is_none_or(|known| !Arc::ptr_eq(known, keys));
            let state = source.state();
            if let Some(keys) = state.usable().filter(is_new) {
                // Old keys stay in use while one request fetches newer ones.
                return match source.fetching.try_lock() {
                    Ok(_fetching) if !state.is_fresh() => self.renewed(&source, issuer, cluster, Why::Age).await,
                    _ => Ok(keys),
                };
            }
            let _fetching = source.fetching.lock().await;
            match source.state().usable().filter(is_new) {
                Some(keys) => Ok(keys),
                None => {
                    let why = if known.is_some() { Why::Unknown } else { Why::Age };
                    self.renewed(&source, issuer, cluster, why).await
                }
            }
        })
    }
}
