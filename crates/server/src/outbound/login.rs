//! The provider of the console's sign-ins: an issuer that the operator configured, its discovery
//! document, and forms that are posted to it as the client that the settings name.
//!
//! Strangers begin sign-ins. So the document is kept for a while, and so is the failure to get it;
//! forms are posted a few at a time, and beyond that not at all.

use std::{
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{
    HeaderValue, Request, Uri,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use insula_access::{Authenticator, issuers::Issuers};
use insula_api::{Clock, ClusterName, Json, Timestamp};
use insula_auth::jwt::Issuer;
use insula_console::{Endpoints, Form, Login, Provider, encoded, escaped};
use tokio::{
    sync::{Mutex, Semaphore},
    time::timeout,
};

use super::IssuerKeys;
use crate::{config::ConsoleLogin, files};

/// Time of a call, which reads a small document.
const CALL: Duration = Duration::from_secs(5);
/// Seconds for which a document is used.
const FRESH_SECONDS: i64 = 300;
/// Seconds between two attempts to get it.
const PAUSE_SECONDS: i64 = 10;
/// Forms in flight.
const FORMS_MAX: usize = 16;

/// The provider of the console's sign-ins.
pub(crate) struct LoginProvider {
    authenticator: Arc<Authenticator>,
    keys: Arc<IssuerKeys>,
    issuer: String,
    client_id: String,
    secret_file: Option<PathBuf>,
    clock: Arc<dyn Clock>,
    /// The addresses of the last attempt, and until when they are used.
    known: RwLock<Option<(Option<Arc<Announced>>, Timestamp)>>,
    /// Held by the request that fetches the document.
    fetching: Mutex<()>,
    forms: Semaphore,
}

/// The parts of a discovery document that a sign-in needs.
#[derive(Debug, PartialEq, Eq)]
struct Announced {
    endpoints: Arc<Endpoints>,
    /// True for a provider that takes the secret of a client in the form alone.
    secret_in_form: bool,
}

impl LoginProvider {
    /// Returns the sign-in of the settings at the URL of a server, if they name a provider.
    pub(crate) fn login(
        settings: &ConsoleLogin,
        url: &str,
        (authenticator, keys): (&Arc<Authenticator>, Arc<IssuerKeys>),
        clock: &Arc<dyn Clock>,
    ) -> Option<Login> {
        let (issuer, client_id) = (settings.issuer.clone()?, settings.client_id.clone()?);
        let provider = LoginProvider {
            authenticator: Arc::clone(authenticator),
            keys,
            issuer: issuer.clone(),
            client_id: client_id.clone(),
            secret_file: settings.client_secret_file.clone(),
            clock: Arc::clone(clock),
            known: RwLock::default(),
            fetching: Mutex::default(),
            forms: Semaphore::new(FORMS_MAX),
        };
        Some(Login {
            issuer,
            client_id,
            scopes: settings.scopes.clone(),
            url: url.to_owned(),
            provider: Arc::new(provider),
        })
    }

    fn known(&self) -> Option<Option<Arc<Announced>>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let (announced, until) = known.as_ref()?;
        (self.clock.now() < *until).then(|| announced.clone())
    }

    /// Returns what the provider announces.
    async fn announced(&self) -> Option<Arc<Announced>> {
        if let Some(known) = self.known() {
            return known;
        }
        let _fetching = self.fetching.lock().await;
        if let Some(known) = self.known() {
            return known;
        }
        let fetched = bounded(self.fetch()).await;
        let seconds = if fetched.is_ok() { FRESH_SECONDS } else { PAUSE_SECONDS };
        let announced = self.logged(fetched).map(Arc::new);
        let until = Timestamp(self.clock.now().0 + seconds);
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Some((announced.clone(), until));
        announced
    }

    async fn fetch(&self) -> Result<Announced, String> {
        let issuers = self.issuers();
        let issuer = self.find(&issuers)?;
        let document = self.keys.announced(issuer, &ClusterName::root()).await?;
        Announced::read(&document)
    }

    fn issuers(&self) -> Arc<Vec<Issuer>> {
        let issuers = self.authenticator.issuers.as_ref();
        issuers.map(Issuers::configured).unwrap_or_default()
    }

    fn find<'a>(&self, issuers: &'a [Issuer]) -> Result<&'a Issuer, String> {
        let found = issuers.iter().find(|issuer| *issuer.url == *self.issuer);
        found.ok_or_else(|| "authenticationConfig has no such issuer any more".to_owned())
    }

    /// Reads the secret of the client, if it has one. The file is read for each form: a secret that
    /// changes needs no other start.
    fn secret(&self) -> Result<Option<String>, String> {
        let Some(path) = &self.secret_file else { return Ok(None) };
        let secret = files::read_secret(path).map_err(|error| error.to_string())?;
        let secret = secret.ok_or_else(|| format!("there is no {}", path.display()))?;
        Ok(Some(secret.trim().to_owned()))
    }

    async fn post_form(&self, url: &str, mut form: Form) -> Result<Json, String> {
        let announced = self.announced().await.ok_or("its addresses are not known")?;
        let issuers = self.issuers();
        let issuer = self.find(&issuers)?;
        let mut request = Request::post(url).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        match self.secret()? {
            Some(secret) if !announced.secret_in_form => {
                request = request.header(AUTHORIZATION, basic(&self.client_id, &secret)?);
            }
            secret => {
                form.push(("client_id", self.client_id.clone()));
                form.extend(secret.map(|secret| ("client_secret", secret)));
            }
        }
        let pairs: Vec<(&str, &str)> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let body = Bytes::from(encoded(&pairs));
        let answer = self.keys.send(issuer, &ClusterName::root(), request, body).await?;
        // A revocation is answered with nothing.
        match answer.is_empty() {
            true => Ok(Json::Null),
            false => serde_json::from_slice(&answer).map_err(|_| format!("{url} answers no JSON")),
        }
    }

    /// Returns a result, and logs a failure, which strangers do not see.
    fn logged<T>(&self, result: Result<T, String>) -> Option<T> {
        let warn = |why: &String| tracing::warn!(issuer = %self.issuer, why, "a sign-in of the console failed");
        result.inspect_err(warn).ok()
    }
}

impl Provider for LoginProvider {
    fn endpoints(&self) -> BoxFuture<'_, Option<Arc<Endpoints>>> {
        Box::pin(async move {
            let announced = self.announced().await?;
            Some(Arc::clone(&announced.endpoints))
        })
    }

    fn post<'a>(&'a self, url: &'a str, form: Form) -> BoxFuture<'a, Option<Json>> {
        Box::pin(async move {
            let Ok(_permit) = self.forms.try_acquire() else {
                return self.logged(Err(format!("{FORMS_MAX} sign-ins wait for the provider")));
            };
            self.logged(bounded(self.post_form(url, form)).await)
        })
    }
}

impl Announced {
    fn read(document: &Json) -> Result<Self, String> {
        let address = |name: &str| match document[name].as_str() {
            None => Ok(None),
            Some(url) => match url.parse::<Uri>() {
                // A browser follows one of them: no other scheme than this.
                Ok(uri) if uri.scheme_str() == Some("https") && !url.contains('#') => Ok(Some(url.to_owned())),
                _ => Err(format!("{name} {url:?} is no https URL")),
            },
        };
        let required = |name: &str| address(name)?.ok_or_else(|| format!("the provider announces no {name}"));
        let methods = document["token_endpoint_auth_methods_supported"].as_array();
        let takes = |method: &str| methods.is_some_and(|all| all.iter().any(|one| one == method));
        Ok(Announced {
            endpoints: Arc::new(Endpoints {
                authorization: required("authorization_endpoint")?,
                token: required("token_endpoint")?,
                revocation: address("revocation_endpoint")?,
                names_itself: document["authorization_response_iss_parameter_supported"] == true,
            }),
            secret_in_form: takes("client_secret_post") && !takes("client_secret_basic"),
        })
    }
}

async fn bounded<T>(call: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    match timeout(CALL, call).await {
        Ok(done) => done,
        Err(_) => Err("context deadline exceeded".to_owned()),
    }
}

/// Returns the credential of a client (RFC 6749, section 2.3.1).
fn basic(client_id: &str, secret: &str) -> Result<HeaderValue, String> {
    let pair = STANDARD.encode(format!("{}:{}", escaped(client_id), escaped(secret)));
    let mut value = HeaderValue::from_str(&format!("Basic {pair}")).map_err(|error| error.to_string())?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_of_a_provider_are_https() {
        let good = json!({
            "authorization_endpoint": "https://a/auth?x=1", "token_endpoint": "https://a/token",
            "authorization_response_iss_parameter_supported": true,
            "token_endpoint_auth_methods_supported": ["client_secret_post", "none"],
        });
        let read = Announced::read(&good).expect("it is good");
        assert!(read.secret_in_form && read.endpoints.names_itself);
        assert_eq!(read.endpoints.revocation, None);
        for (name, url) in [
            ("authorization_endpoint", "javascript:alert(1)"),
            ("authorization_endpoint", "http://a/auth"),
            ("authorization_endpoint", "https://a/auth#x"),
            ("authorization_endpoint", "//a/auth"),
            ("token_endpoint", "http://169.254.169.254/token"),
            ("token_endpoint", "file:///etc/passwd"),
            ("revocation_endpoint", "ftp://a"),
        ] {
            let mut bad = good.clone();
            bad[name] = url.into();
            let refused = Announced::read(&bad).expect_err(url);
            assert!(refused.contains(name), "{refused}");
        }
        let refused = Announced::read(&json!({"token_endpoint": "https://a"})).expect_err("it lacks one");
        assert!(refused.contains("no authorization_endpoint"), "{refused}");
    }

    #[test]
    fn a_client_s_credential_is_escaped() {
        let value = basic("a:b", "c d").expect("a value");
        assert!(value.is_sensitive());
        let pair = value.to_str().expect("text").strip_prefix("Basic ").expect("basic");
        assert_eq!(STANDARD.decode(pair).expect("base64"), b"a%3Ab:c%20d");
    }
}
