//! Delegated authentication and authorization: a Kubernetes server knows the users of tokens
//! (TokenReview) and decides about requests (SubjectAccessReview), where this server cannot.

mod cache;
mod extension;

use crate::ServerBuilder;
use cache::Cache;
use futures_util::future::BoxFuture;
use insula_auth::{Attributes, Decision, UserInfo};
use insula_server::{Config, Delegate};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{
        NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
        SubjectAccessReviewStatus,
    },
};
use kube::{Api, Client, api::PostParams, config::Kubeconfig};
use serde::{Serialize, de::DeserializeOwned};
use std::{env, fmt, future::Future, path::PathBuf, sync::Arc, time::Duration};
use tokio::{sync::Semaphore, time};

/// Variable that names the server to ask: a kubeconfig, or `in-cluster`.
pub(crate) const VARIABLE: &str = "INSULA_DELEGATE";
const IN_CLUSTER: &str = "in-cluster";

/// Time of a question with all attempts, as in kube-apiserver's clients of these reviews.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Pause before another attempt.
const PAUSE: Duration = Duration::from_millis(250);
/// Attempts, as long as there is time.
const ATTEMPTS_MAX: u32 = 3;
/// Questions of one sort at the same time. Others wait: bad tokens cost anybody nothing to make.
const QUESTIONS_MAX: usize = 64;

/// A Kubernetes server to ask about tokens and requests.
///
/// ```no_run
/// # use insula_sdk::{Delegation, Server};
/// let server = Server::builder().delegate(Delegation::in_cluster());
/// ```
///
/// - A bearer token that this server does not know is sent in a TokenReview.
/// - A request in the workspace `root` about which the roles of that workspace say nothing is
///   decided by a SubjectAccessReview. Requests that name no workspace are for `root`. Members of
///   `system:masters` may do everything, and anybody may read `/healthz`, `/livez` and `/readyz`.
/// - Answers count for 10 seconds. If the server gives none within 10 seconds, the request is
///   refused with 503.
/// - If its ConfigMap `extension-apiserver-authentication` in `kube-system` can be read, client
///   certificates of its CA name users here, and its front proxy may name users in headers.
///
/// The credentials need the ClusterRole `system:auth-delegator` there, and the Role
/// `extension-apiserver-authentication-reader` in `kube-system`. The other server may be a
/// workspace of Insula as well.
///
/// Service accounts of this server and impersonated users are never asked about: the other server
/// may have others of their names.
#[derive(Debug, Clone)]
pub struct Delegation(Source);

#[derive(Clone)]
enum Source {
    Kubeconfig(PathBuf),
    InCluster,
    Client(Client),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Kubeconfig(path) => write!(f, "{}", path.display()),
            Source::InCluster => f.write_str(IN_CLUSTER),
            Source::Client(_) => f.write_str("a client"),
        }
    }
}

impl Delegation {
    /// Asks the server of a kubeconfig's present context.
    pub fn kubeconfig(path: impl Into<PathBuf>) -> Self {
        Self(Source::Kubeconfig(path.into()))
    }

    /// Asks the server of the cluster that the program runs in, by the service account of its pod.
    pub fn in_cluster() -> Self {
        Self(Source::InCluster)
    }

    /// Asks the server of a client.
    pub fn client(client: Client) -> Self {
        Self(Source::Client(client))
    }

    /// Returns the server that the variable `INSULA_DELEGATE` names: a kubeconfig, or `in-cluster`.
    pub(crate) fn from_environment() -> Option<Self> {
        let named = env::var_os(VARIABLE).filter(|named| !named.is_empty())?;
        Some(match named == IN_CLUSTER {
            true => Self::in_cluster(),
            false => Self::kubeconfig(named),
        })
    }

    async fn into_client(self) -> Result<Client, String> {
        let config = match self.0 {
            Source::Client(client) => return Ok(client),
            Source::InCluster => kube::Config::incluster().map_err(|error| error.to_string()),
            Source::Kubeconfig(path) => match Kubeconfig::read_from(&path) {
                Ok(read) => {
                    let config = kube::Config::from_custom_kubeconfig(read, &Default::default()).await;
                    config.map_err(|error| error.to_string())
                }
                Err(error) => Err(format!("{}: {error}", path.display())),
            },
        };
        let mut config = config?;
        // Attempts are bounded here.
        config.default_retry = false;
        Client::try_from(config).map_err(|error| error.to_string())
    }

    /// Connects, and completes the settings by those of the other server. Returns the delegate, and
    /// a builder with the task that follows the other server's CA.
    pub(crate) async fn begin(
        self,
        config: &mut Config,
        builder: ServerBuilder,
    ) -> Result<(Arc<dyn Delegate>, ServerBuilder), String> {
        insula_server::install_provider();
        let named = format!("{:?}", self.0);
        let client = self
            .into_client()
            .await
            .map_err(|why| format!("delegate {named}: {why}"))?;
        let builder = match extension::take_over(&client, config).await {
            Ok(Some(files)) => builder.task(move |_| files.follow()),
            Ok(None) => builder,
            Err(why) => {
                tracing::warn!(
                    why,
                    "client certificates and front proxies of the delegate do not count here"
                );
                builder
            }
        };
        Ok((Arc::new(Asked::new(client)), builder))
    }
}

/// A server that is asked, with its last answers.
struct Asked {
    client: Client,
    tokens: Answers<Option<UserInfo>>,
    decisions: Answers<Decision>,
}

/// Questions of one sort.
struct Answers<V> {
    known: Cache<V>,
    asking: Semaphore,
}

impl<V: Clone> Answers<V> {
    fn new() -> Self {
        Self {
            known: Cache::new(),
            asking: Semaphore::new(QUESTIONS_MAX),
        }
    }

    /// Returns the known answer, or asks for it in time.
    async fn get<F>(&self, key: String, what: &str, ask: impl Fn() -> F) -> Result<V, String>
    where
        F: Future<Output = Result<V, kube::Error>>,
    {
        if let Some(known) = self.known.get(&key) {
            return Ok(known);
        }
        let away = |cause: String| {
            tracing::warn!(cause, "the Kubernetes server that decides about {what} gives no answer");
            format!("the Kubernetes server that decides about {what} gives no answer")
        };
        let asked = async {
            // A closed semaphore would have no permits: it is never closed.
            let _permit = self.asking.acquire().await.map_err(|error| error.to_string())?;
            if let Some(known) = self.known.get(&key) {
                return Ok(known);
            }
            let mut attempt = 1;
            loop {
                match ask().await {
                    Ok(answer) => return Ok(answer),
                    Err(error) if attempt < ATTEMPTS_MAX && may_pass(&error) => time::sleep(PAUSE * attempt).await,
                    Err(error) => return Err(explained(&error)),
                }
                attempt += 1;
            }
        };
        let answer = match time::timeout(TIME_MAX, asked).await {
            Ok(answer) => answer.map_err(away)?,
            Err(_) => return Err(away("it takes too long".to_owned())),
        };
        self.known.put(key, answer.clone());
        Ok(answer)
    }
}

/// Returns true for errors that may be gone at the next attempt.
fn may_pass(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        _ => true,
    }
}

fn explained(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => format!(
            "{}; the credentials of this server need the ClusterRole system:auth-delegator",
            status.message
        ),
        error => error.to_string(),
    }
}

impl Asked {
    fn new(client: Client) -> Self {
        Self {
            client,
            tokens: Answers::new(),
            decisions: Answers::new(),
        }
    }

    async fn create<K>(&self, review: &K) -> Result<K, kube::Error>
    where
        K: kube::Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + fmt::Debug,
    {
        Api::all(self.client.clone())
            .create(&PostParams::default(), review)
            .await
    }
}

impl Delegate for Asked {
    fn user<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<UserInfo>, String>> {
        let ask = move || async move {
            let spec = TokenReviewSpec {
                token: token.to_owned(),
                audiences: None,
            };
            let review = TokenReview {
                spec,
                ..TokenReview::default()
            };
            self.create(&review).await.map(known_user)
        };
        Box::pin(self.tokens.get(token.to_owned(), "tokens", ask))
    }

    fn decide<'a>(&'a self, user: &'a UserInfo, attributes: &'a Attributes) -> BoxFuture<'a, Result<Decision, String>> {
        Box::pin(async move {
            let review = SubjectAccessReview {
                spec: question(user, attributes),
                ..SubjectAccessReview::default()
            };
            let key = serde_json::to_string(&review.spec).map_err(|error| error.to_string())?;
            let review = &review;
            let ask = move || async move {
                let answered = self.create(review).await?;
                Ok(decision(answered.status.unwrap_or_default()))
            };
            self.decisions.get(key, "requests", ask).await
        })
    }
}

/// Returns the user of an answered review.
fn known_user(review: TokenReview) -> Option<UserInfo> {
    let status = review.status.unwrap_or_default();
    if let Some(error) = status.error.filter(|error| !error.is_empty()) {
        tracing::info!(error, "the delegate refused a token");
    }
    let user = status.user.filter(|_| status.authenticated == Some(true))?;
    let name = user.username.filter(|name| !name.is_empty())?;
    let mut known = UserInfo::authenticated(name, user.uid.unwrap_or_default(), user.groups.unwrap_or_default());
    known.extra = user.extra.unwrap_or_default().into_iter().collect();
    Some(known)
}

fn question(user: &UserInfo, attributes: &Attributes) -> SubjectAccessReviewSpec {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let mut spec = SubjectAccessReviewSpec {
        user: some(&user.name),
        uid: some(&user.uid),
        groups: Some(user.groups.clone()),
        extra: (!user.extra.is_empty()).then(|| user.extra.clone()),
        ..SubjectAccessReviewSpec::default()
    };
    match attributes.is_resource_request {
        true => {
            spec.resource_attributes = Some(ResourceAttributes {
                verb: some(attributes.verb.name()),
                group: some(&attributes.group),
                version: some(&attributes.version),
                resource: some(&attributes.resource),
                subresource: some(&attributes.subresource),
                name: some(&attributes.name),
                namespace: some(&attributes.namespace),
                ..ResourceAttributes::default()
            });
        }
        false => {
            spec.non_resource_attributes = Some(NonResourceAttributes {
                verb: some(attributes.verb.name()),
                path: some(&attributes.path),
            });
        }
    }
    spec
}

/// Returns the decision of an answered review. Both at once are a refusal, as in Kubernetes.
fn decision(status: SubjectAccessReviewStatus) -> Decision {
    let reason = |given: Option<String>| format!("delegated: {}", given.unwrap_or_default());
    match (status.allowed, status.denied.unwrap_or_default()) {
        (_, true) => Decision::Deny {
            reason: reason(status.reason),
        },
        (true, false) => Decision::Allow {
            reason: reason(status.reason),
        },
        (false, false) => Decision::NoOpinion,
    }
}
