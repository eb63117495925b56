//! Keys that all servers on one etcd have: the store knows their fingerprints, so that a server
//! with keys of its own is refused at its start. Clients would trust one server and not the other,
//! and a service account's token would count at every second request.

use std::sync::Arc;

use insula_api::{ClusterName, Json, Object, ObjectKey, Revision};
use insula_catalog::ids;
use insula_store::{CommitError, Guard, Store, Txn, Write};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::StartError;

/// Name of the record, of which there is one.
const NAME: &str = "keys";

/// Fingerprints of a server's keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fingerprints {
    /// That of the CA's key; empty for a CA whose key the server does not have.
    pub(crate) authority: String,
    /// That of the key that signs tokens of service accounts.
    pub(crate) accounts: String,
    /// That of the key that signed them before, if it counts.
    #[serde(default)]
    pub(crate) accounts_before: Option<String>,
}

/// The record of an installation.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    keys: Fingerprints,
    /// URL of the server that wrote it.
    url: String,
}

/// Outcome of comparing the keys of a server with those that the store knows.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// They are the server's.
    Same,
    /// The server's are written: the first ones, or the next ones.
    Write,
    /// They are others.
    Refuse,
}

fn decide(known: Option<&Fingerprints>, own: &Fingerprints, accepts_new: bool) -> Decision {
    let Some(known) = known else { return Decision::Write };
    let is_rotated = own.accounts_before.as_ref() == Some(&known.accounts);
    match known.authority == own.authority && (known.accounts == own.accounts || is_rotated) {
        true if known == own => Decision::Same,
        true => Decision::Write,
        false if accepts_new => Decision::Write,
        false => Decision::Refuse,
    }
}

/// Compares the keys of this server with those of the installation, whose first server writes them.
///
/// # Errors
/// They are others, unless `accepts_new`, or the store does not answer.
pub(crate) async fn check(
    store: &dyn Store,
    store_name: &str,
    own: &Fingerprints,
    url: &str,
    accepts_new: bool,
) -> Result<(), StartError> {
    let failed = |cause: String| StartError::Store {
        store: store_name.to_owned(),
        cause,
    };
    let key = ObjectKey::cluster_scoped(ids::installation_keys(), ClusterName::root(), NAME);
    loop {
        let snapshot = store.snapshot(Revision(0)).await;
        let found = snapshot.map_err(|error| failed(error.to_string()))?.get(&key);
        let known: Option<Record> = found
            .as_ref()
            .map(|entry| serde_json::from_value(entry.object.body_value()["spec"].take()))
            .transpose()
            .map_err(|error| failed(format!("the record of the installation's keys cannot be read: {error}")))?;
        match decide(known.as_ref().map(|known| &known.keys), own, accepts_new) {
            Decision::Same => return Ok(()),
            Decision::Refuse => {
                let other = known.map(|known| known.url).unwrap_or_default();
                return Err(StartError::OtherKeys {
                    store: store_name.to_owned(),
                    other,
                });
            }
            Decision::Write => {}
        }
        let guard = match &found {
            Some(entry) => Guard::At(key.clone(), entry.revision),
            None => Guard::Absent(key.clone()),
        };
        match store
            .commit(Txn::one(guard, Write::Put(key.clone(), record(own, url))))
            .await
        {
            Ok(_) => return Ok(()),
            // Another server starts.
            Err(CommitError::Conflict { .. }) => {}
            Err(error) => return Err(failed(error.to_string())),
        }
    }
}

fn record(keys: &Fingerprints, url: &str) -> Arc<Object> {
    let record = Record {
        keys: keys.clone(),
        url: url.to_owned(),
    };
    let value: Json = json!({
        "apiVersion": ids::INTERNAL_V1, "kind": "InstallationKeys", "metadata": {"name": NAME}, "spec": record,
    });
    Arc::new(Object::new(&value, None).expect("it has apiVersion, kind and metadata"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(authority: &str, accounts: &str, before: Option<&str>) -> Fingerprints {
        Fingerprints {
            authority: authority.to_owned(),
            accounts: accounts.to_owned(),
            accounts_before: before.map(str::to_owned),
        }
    }

    #[test]
    fn keys_of_the_installation_and_their_next_ones_count() {
        let known = keys("ca", "b", Some("a"));
        for (own, want) in [
            (keys("ca", "b", Some("a")), Decision::Same),
            (keys("ca", "b", None), Decision::Write),
            (keys("ca", "c", Some("b")), Decision::Write),
            (keys("ca", "c", None), Decision::Refuse),
            (keys("ca", "a", None), Decision::Refuse),
            (keys("other", "b", Some("a")), Decision::Refuse),
            (keys("", "b", Some("a")), Decision::Refuse),
        ] {
            assert_eq!(decide(Some(&known), &own, false), want, "{own:?}");
            let accepted = if want == Decision::Same {
                Decision::Same
            } else {
                Decision::Write
            };
            assert_eq!(decide(Some(&known), &own, true), accepted, "{own:?}");
            assert_eq!(decide(None, &own, false), Decision::Write);
        }
    }
}
