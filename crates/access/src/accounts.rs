//! Tokens of service accounts: given out on request (`serviceaccounts/<name>/token`), and read
//! where they are shown (`pkg/registry/core/serviceaccount/storage/token.go`,
//! `pkg/serviceaccount`).

use crate::{
    AccountLookup, Target, Unauthenticated,
    reviews::{self, texts},
};
use insula_api::{Clock, ClusterName, FieldError, FieldPath, Json, ObjectKey, ResourceId, Rng, Timestamp, Uid};
use insula_auth::{
    UserInfo,
    service_account::{Claims, ISSUER, Reference, ServiceAccount, Verifier},
};
use insula_catalog::{Error, Named, Result, ids};
use insula_store::{Entry, Snapshot, Store};
use serde_json::json;
use std::{fmt, sync::Arc};

/// Group and version of a TokenRequest.
pub const TOKEN_REQUEST: (&str, &str) = ("authentication.k8s.io/v1", "TokenRequest");

const SECONDS_DEFAULT: i64 = 3600;
const SECONDS_MIN: i64 = 600;
const SECONDS_MAX: i64 = 1 << 32;

/// Signs claims; a text says why not.
pub type Sign = Arc<dyn Fn(&Claims) -> std::result::Result<String, String> + Send + Sync>;

/// Lifetime of tokens in Secrets, in seconds: a hundred years. They end with the Secret or the
/// account.
const SECRET_TOKEN_SECONDS: i64 = 100 * 365 * 86_400;

/// Returns the claims of the token that a Secret holds for an account.
pub fn secret_claims(secret: &Entry, account: &Entry, now: Timestamp, rng: &dyn Rng) -> Claims {
    let account = ServiceAccount {
        cluster: account.key.cluster.to_string(),
        namespace: account.key.namespace.to_string(),
        secret: Some(reference(secret)),
        account: reference(account),
    };
    let id = Uid::random(rng).to_string();
    Claims::new(account, vec![ISSUER.to_owned()], id, now, SECRET_TOKEN_SECONDS)
}

/// Gives out tokens, and reads them.
pub struct Accounts {
    /// Reads what `sign` signed, here or on another server.
    pub verifier: Verifier,
    /// Signs.
    pub sign: Sign,
    /// Store of the accounts.
    pub store: Arc<dyn Store>,
    /// When.
    pub clock: Arc<dyn Clock>,
}

impl fmt::Debug for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accounts").field("verifier", &self.verifier).finish()
    }
}

/// Context of a TokenRequest.
pub struct Asked<'a> {
    /// The state in which the account is looked up.
    pub snapshot: &'a Snapshot,
    /// The account's resource, cluster and namespace.
    pub target: &'a Target,
    /// The account's name.
    pub name: &'a str,
    /// The program, for `managedFields`.
    pub manager: &'a str,
}

impl Accounts {
    /// The user of a token that is for one of `audiences`, and for which of them it is.
    ///
    /// The store is read for tokens alone that this installation signed.
    ///
    /// # Errors
    /// The token does not count, its account or Secret is gone, or the store does not answer.
    pub async fn user(
        &self,
        token: &str,
        audiences: &[String],
        lookup: &AccountLookup,
    ) -> std::result::Result<(UserInfo, Vec<String>), Unauthenticated> {
        let claims = self.verifier.verify(token, audiences, self.clock.now());
        let claims = claims.map_err(|why| Unauthenticated::Refused(format!("[invalid bearer token, {why}]")))?;
        let gone = || {
            Unauthenticated::Refused("[invalid bearer token, service account token has been invalidated]".to_owned())
        };
        let account = &claims.account;
        let cluster = ClusterName::parse(&account.cluster).map_err(|_| gone())?;
        let snapshot = lookup.snapshot(&*self.store).await?;
        let same = |resource: ResourceId, reference: &Reference| {
            let key = in_namespace(resource, &cluster, &account.namespace, &reference.name);
            let found = snapshot.get(&key).filter(|entry| !entry.object.meta.is_deleting());
            found.is_some_and(|entry| entry.object.meta.uid.to_string() == reference.uid)
        };
        let secret = account.secret.as_ref();
        if !same(ids::serviceaccounts(), &account.account) || secret.is_some_and(|secret| !same(ids::secrets(), secret))
        {
            return Err(gone());
        }
        let user = claims.user(&cluster);
        let mut audiences = audiences.to_vec();
        audiences.retain(|audience| claims.aud.contains(audience));
        Ok((user, audiences))
    }

    /// Answers a TokenRequest.
    ///
    /// # Errors
    /// There is no such account, or the request is wrong.
    pub fn token(&self, rng: &dyn Rng, asked: &Asked<'_>, mut request: Json) -> Result<Json> {
        let Asked {
            snapshot,
            target,
            name,
            manager,
        } = asked;
        let namespace = target.namespace.as_deref().unwrap_or_default();
        check_names(&request, name, namespace)?;
        let account = snapshot.get(&target.key(name));
        let account = account.ok_or_else(|| target.served.api.not_found(name))?;
        let mut owned = match &request["spec"] {
            given @ Json::Object(_) => given.clone(),
            _ => json!({}),
        };
        let (now, spec) = (self.clock.now(), &mut request["spec"]);
        let seconds = default_spec(spec)?;
        owned["expirationSeconds"] = json!(seconds);
        let mut owner = reviews::owner(&owned, TOKEN_REQUEST.0, manager, now);
        owner["subresource"] = json!("token");
        let account = ServiceAccount {
            cluster: target.cluster.to_string(),
            namespace: namespace.to_owned(),
            secret: bound(snapshot, target, namespace, &spec["boundObjectRef"])?,
            account: reference(&account),
        };
        let (audiences, id) = (texts(&spec["audiences"]), Uid::random(rng).to_string());
        let claims = Claims::new(account, audiences, id, now, seconds);
        let token = (self.sign)(&claims).map_err(Error::Internal)?;
        Ok(json!({
            "kind": TOKEN_REQUEST.1,
            "apiVersion": TOKEN_REQUEST.0,
            "metadata": {
                "name": name, "namespace": namespace, "uid": claims.account.account.uid,
                "creationTimestamp": now.to_string(), "managedFields": [owner],
            },
            "spec": spec,
            "status": {"token": token, "expirationTimestamp": Timestamp(claims.exp).to_string()},
        }))
    }
}

fn in_namespace(resource: ResourceId, cluster: &ClusterName, namespace: &str, name: &str) -> ObjectKey {
    ObjectKey {
        resource,
        cluster: cluster.clone(),
        namespace: namespace.into(),
        name: name.into(),
    }
}

fn reference(entry: &Entry) -> Reference {
    Reference {
        name: entry.key.name.to_string(),
        uid: entry.object.meta.uid.to_string(),
    }
}

/// A body may repeat what the path says, and nothing else.
fn check_names(request: &Json, name: &str, namespace: &str) -> Result<()> {
    for (field, want) in [("name", name), ("namespace", namespace)] {
        let given = &request["metadata"][field];
        if given.as_str().is_some_and(|given| !given.is_empty() && given != want) {
            let why = format!("must match the service account {field} if specified");
            let at = FieldPath::new("metadata").child(field);
            return Err(invalid(name, FieldError::invalid(&at, given, why)));
        }
    }
    Ok(())
}

/// Fills in what was not said, and gives the seconds that the token is to last.
fn default_spec(spec: &mut Json) -> Result<i64> {
    if !spec.is_object() {
        *spec = json!({});
    }
    let audiences = texts(&spec["audiences"]);
    spec["audiences"] = match audiences.is_empty() {
        true => json!([ISSUER]),
        false => json!(audiences),
    };
    if !spec["boundObjectRef"].is_object() {
        spec["boundObjectRef"] = Json::Null;
    }
    if spec["expirationSeconds"].is_null() {
        spec["expirationSeconds"] = json!(SECONDS_DEFAULT);
    }
    let at = FieldPath::new("spec").child("expirationSeconds");
    let wrong = |why: &str| invalid("", FieldError::invalid(&at, &spec["expirationSeconds"], why));
    match spec["expirationSeconds"].as_i64() {
        Some(seconds) if seconds < SECONDS_MIN => Err(wrong("may not specify a duration less than 10 minutes")),
        Some(seconds) if seconds <= SECONDS_MAX => Ok(seconds),
        Some(_) => Err(wrong("may not specify a duration larger than 2^32 seconds")),
        None => Err(Error::BadRequest(
            "spec.expirationSeconds must be a whole number".into(),
        )),
    }
}

/// The object with which the token ends. There are no Pods and no Nodes here.
fn bound(snapshot: &Snapshot, target: &Target, namespace: &str, wanted: &Json) -> Result<Option<Reference>> {
    if wanted.is_null() {
        return Ok(None);
    }
    let text = |field: &str| wanted[field].as_str().unwrap_or_default();
    let (version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
    if (version, kind) != ("v1", "Secret") {
        let version = insula_catalog::object::group_version(version);
        return Err(Error::BadRequest(format!(
            "cannot bind token to object of type {version}, Kind={kind}"
        )));
    }
    let named = |resource: &str| Named {
        group: "".into(),
        resource: resource.into(),
    };
    let secret = snapshot.get(&in_namespace(ids::secrets(), &target.cluster, namespace, name));
    let secret = secret.ok_or_else(|| Error::NotFound {
        resource: named("secrets"),
        name: name.to_owned(),
    })?;
    let (found, uid) = (reference(&secret), text("uid"));
    if !uid.is_empty() && uid != found.uid {
        return Err(Error::Conflict {
            resource: named("Secret"),
            name: name.to_owned(),
            detail: format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have \
                 been deleted and then recreated"
            ),
        });
    }
    Ok(Some(found))
}

fn invalid(name: &str, error: FieldError) -> Error {
    Error::Invalid {
        subject: Named {
            group: ids::AUTHENTICATION.into(),
            resource: TOKEN_REQUEST.1.into(),
        },
        name: name.to_owned(),
        errors: vec![error],
    }
}
