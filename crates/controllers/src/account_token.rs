//! Tokens in Secrets of the type `kubernetes.io/service-account-token`: clients from before
//! TokenRequest create such a Secret and wait until the server fills it
//! (`pkg/controller/serviceaccount/tokens_controller.go`).

use crate::{runtime::Reconciler, write::alive};
use insula_access::accounts::{self, Sign};
use insula_api::{Json, Object, ObjectKey, ResourceId, Scope, names::annotations};
use insula_catalog::{
    builtin::{TOKEN_SECRET, secret_data},
    ids,
};
use insula_registry::{Deps, Intent, Plan};
use insula_store::{Change, Entry, Snapshot};
use serde_json::json;
use std::sync::Arc;

/// Fills Secrets with tokens, and deletes them with their accounts.
pub(crate) struct AccountTokens {
    registry: Arc<Deps>,
}

/// World of a Secret for a token.
pub(crate) struct World {
    secret: Entry,
    value: Json,
    /// The account that the Secret names, if it exists with the UID that the Secret has.
    account: Option<Entry>,
    /// A fresh token of that account, if the Secret has none.
    token: Option<String>,
    trust: Arc<str>,
}

impl AccountTokens {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        AccountTokens { registry }
    }

    fn token(&self, sign: &Sign, secret: &Entry, account: &Entry) -> Option<String> {
        let claims = accounts::secret_claims(secret, account, self.registry.clock.now(), self.registry.rng.as_ref());
        let signed = sign(&claims);
        if let Err(why) = &signed {
            let (workspace, secret) = (&secret.key.cluster, &*secret.key.name);
            tracing::error!(%workspace, secret, "a token is not signed: {why}");
        }
        signed.ok()
    }
}

/// Returns the account that a Secret is for, if it is for a token.
fn account_of(secret: &Json) -> Option<&str> {
    let name = secret["metadata"]["annotations"][annotations::ACCOUNT_NAME].as_str();
    name.filter(|_| secret["type"] == TOKEN_SECRET)
}

fn has(secret: &Json, field: &str) -> bool {
    secret["data"][field].as_str().is_some_and(|value| !value.is_empty())
}

impl Reconciler for AccountTokens {
    type Key = ObjectKey;
    type World = Option<World>;

    fn name(&self) -> &'static str {
        "account-token"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![ids::secrets(), ids::serviceaccounts()]
    }

    /// Returns the Secret, or for an account that comes or goes the Secrets of its namespace.
    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<ObjectKey> {
        let key = &change.key;
        let is_token = |object: &Object| account_of(&object.body_value()).is_some();
        match (key.resource == ids::secrets(), &change.new, &change.old) {
            (true, Some(secret), _) if is_token(secret) => vec![key.clone()],
            (false, Some(_), None) | (false, None, Some(_)) => {
                let scope = Scope::namespace(ids::secrets(), key.cluster.clone(), &key.namespace);
                let secrets = snapshot.range(&scope, None, usize::MAX).into_iter();
                let tokens = secrets.filter(|secret| is_token(&secret.object));
                tokens.map(|secret| secret.key).collect()
            }
            _ => Vec::new(),
        }
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> Option<World> {
        let sign = self.registry.sign_account.as_ref()?;
        alive(snapshot, &key.cluster)?;
        let secret = snapshot.get(key).filter(|entry| !entry.object.meta.is_deleting())?;
        let value = secret.object.body_value();
        let account = ObjectKey {
            resource: ids::serviceaccounts(),
            name: account_of(&value)?.into(),
            ..key.clone()
        };
        let known = value["metadata"]["annotations"][annotations::ACCOUNT_UID].as_str();
        let account = snapshot.get(&account).filter(|entry| {
            let uid = entry.object.meta.uid.to_string();
            known.is_none_or(|known| known.is_empty() || known == uid)
        });
        let lacks = account.as_ref().filter(|_| !has(&value, "token"));
        Some(World {
            token: lacks.and_then(|account| self.token(sign, &secret, account)),
            trust: self.registry.trust.present(),
            secret,
            value,
            account,
        })
    }

    fn decide(&self, world: &Option<World>) -> Plan {
        let Some(world) = world else {
            return Plan::rest();
        };
        let Some(account) = &world.account else {
            return Plan::new(vec![Intent::Delete(world.secret.clone())]);
        };
        let mut value = world.value.clone();
        value["metadata"]["annotations"][annotations::ACCOUNT_UID] = json!(account.object.meta.uid.to_string());
        if !value["data"].is_object() {
            value["data"] = json!({});
        }
        if let Some(token) = &world.token {
            value["data"]["token"] = json!(secret_data(token));
        }
        if !world.trust.is_empty() && !has(&value, "ca.crt") {
            value["data"]["ca.crt"] = json!(secret_data(&world.trust));
        }
        value["data"]["namespace"] = json!(secret_data(&world.secret.key.namespace));
        if value == world.value {
            return Plan::rest();
        }
        Plan::new(vec![
            Intent::Update(world.secret.clone(), value),
            Intent::Expect(account.key.clone(), Some(account.revision)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::TestControlPlane;
    use serde_json::{Value, json};
    use std::sync::Arc;

    const SECRET: &str = "{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token,
        metadata: {name: old, namespace: default, annotations: {kubernetes.io/service-account.name: robot}}}";

    #[tokio::test]
    async fn a_secret_lives_as_long_as_its_account() {
        let mut rig = TestControlPlane::new().await;
        Arc::get_mut(&mut rig.registry).expect("one owner").sign_account =
            Some(Arc::new(|claims| Ok(format!("for {}", claims.sub))));
        let org = rig.workspace("root", "org").await;
        let robot = "{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot, namespace: default}}";
        let secret = |rig: &TestControlPlane| rig.get(&org, "v1", "secrets", "default/old");
        rig.create(&org, "serviceaccounts", robot).await;
        rig.create(&org, "secrets", SECRET).await;
        rig.settle().await;
        let filled = secret(&rig).expect("is there");
        // base64 of `for system:serviceaccount:default:robot`, and of `default`
        assert_eq!(
            filled["data"],
            json!({"token": "Zm9yIHN5c3RlbTpzZXJ2aWNlYWNjb3VudDpkZWZhdWx0OnJvYm90", "namespace": "ZGVmYXVsdA=="})
        );
        let account = rig
            .get(&org, "v1", "serviceaccounts", "default/robot")
            .expect("is there");
        let uid = |object: &Value| object["metadata"]["uid"].clone();
        let known = |secret: &Value| secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"].clone();
        assert_eq!(known(&filled), uid(&account));
        rig.delete(&org, "v1", "serviceaccounts", "default/robot")
            .await
            .expect("goes");
        rig.settle().await;
        assert_eq!(secret(&rig), None);
        rig.create(&org, "secrets", SECRET).await;
        rig.settle().await;
        assert_eq!(secret(&rig), None, "an account that never was");
        assert_eq!(rig.settle().await, 0, "and then it rests");
    }
}
