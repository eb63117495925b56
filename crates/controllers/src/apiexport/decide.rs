//! Decision about one export.

use super::{compatible, world::World};
use crate::{
    loaded::Loaded,
    namespace::fresh_namespace,
    write::{count_generation, drop_condition, sort_conditions, text, unchanged},
};
use insula_api::{
    Condition, Json,
    kinds::ApiExport,
    names::{annotations, api_versions},
    set_condition,
};
use insula_catalog::digest;
use insula_registry::{Intent, Plan};
use serde_json::json;

/// Seconds until an identity that another export has is checked again.
const TAKEN_SECONDS: u64 = 10;

pub(super) fn decide(world: &World) -> Plan {
    let (Some(export), Some(alive)) = (&world.export, &world.alive) else {
        return Plan::rest();
    };
    if export.is_deleting() {
        return Plan::rest();
    }
    let mut value = export.value.clone();
    let mut intents = alive.clone();
    let named = export.view.spec.identity.secret_ref.is_some();
    let secret = match (&world.secret, named) {
        (Some(secret), _) => Some(secret.object.body_value()),
        (None, true) => None,
        (None, false) => match make_secret(world) {
            Some((secret, made)) => {
                intents.extend(made);
                Some(secret)
            }
            // Its namespace is being deleted: try again when it is gone.
            None => {
                return Plan {
                    intents: Vec::new(),
                    again_after: Some(5),
                };
            }
        },
    };
    if !named {
        let key = &world.secret_key;
        value["spec"]["identity"] = json!({"secretRef": {"namespace": &*key.namespace, "name": &*key.name}});
        count_generation(&mut value);
    }
    let validity = verify(world, &mut value, secret.as_ref());
    // Exports that name one secret are decided one after the other.
    if value["status"]["identityHash"] != export.value["status"]["identityHash"] {
        intents.push(Intent::Sign(world.identities.clone()));
    }
    set_condition(&mut value, &validity, world.now);
    match compatible::condition(&world.schemas) {
        Some(condition) => {
            set_condition(&mut value, &condition, world.now);
        }
        None => drop_condition(&mut value, compatible::KIND),
    }
    sort_conditions(&mut value);
    intents.extend(slice(world, export));
    intents.push(export.update(value));
    // Guard also a plan that only creates the slice.
    intents.push(unchanged(export.entry.key.clone(), Some(&export.entry)));
    Plan {
        intents,
        again_after: world.taken.then_some(TAKEN_SECONDS),
    }
}

fn make_secret(world: &World) -> Option<(Json, Vec<Intent>)> {
    let key = &world.secret_key;
    let secret = digest::identity_secret(&key.name, &world.fresh_key);
    let mut made = vec![match &world.namespace {
        Some(namespace) if namespace.object.meta.is_deleting() => return None,
        Some(namespace) => unchanged(world.namespace_key.clone(), Some(namespace)),
        None => Intent::Create(world.namespace_key.clone(), fresh_namespace(&key.namespace)),
    }];
    made.push(Intent::Create(key.clone(), secret.clone()));
    Some((secret, made))
}

/// Writes the identity once; it never changes afterwards. Returns the condition `IdentityValid`.
fn verify(world: &World, value: &mut Json, secret: Option<&Json>) -> Condition {
    let fails = |message: String| Condition::fails("IdentityValid", "IdentityVerificationFailed", message);
    let key = &world.secret_key;
    let Some(secret) = secret else {
        return fails(format!(
            "secret {}/{} does not exist: create it with data key \"key\", or leave out spec.identity to have one made",
            key.namespace, key.name
        ));
    };
    let Some(hash) = digest::identity_of_secret(secret) else {
        return fails(format!("secret {}/{} is missing data.key", key.namespace, key.name));
    };
    let known = text(value, "/status/identityHash");
    if !known.is_empty() && known != hash {
        return fails(format!(
            "hash mismatch: identity secret hash {hash:?} must match status.identityHash {known:?}"
        ));
    }
    if world.taken {
        return fails(format!(
            "secret {}/{} is the identity of an APIExport of another workspace already: name a secret of its own, or \
                delete the other export first",
            key.namespace, key.name
        ));
    }
    if known.is_empty() {
        if !value["status"].is_object() {
            value["status"] = json!({});
        }
        value["status"]["identityHash"] = json!(hash);
    }
    Condition::holds("IdentityValid")
}

/// Returns the creation of the endpoint slice of the export's own name, if it is missing.
fn slice(world: &World, export: &Loaded<ApiExport>) -> Option<Intent> {
    let skips = export.view.metadata.annotation(annotations::SKIP_ENDPOINT_SLICE);
    if world.slice.is_some() || skips.is_some() {
        return None;
    }
    let name = &*export.entry.key.name;
    let slice = json!({
        "apiVersion": api_versions::APIS_V1ALPHA1, "kind": "APIExportEndpointSlice",
        "metadata": {"name": name, "ownerReferences": [{
            "apiVersion": api_versions::APIS_V1ALPHA1, "kind": "APIExport", "name": name,
            "uid": export.entry.object.meta.uid.to_string(),
        }]},
        "spec": {"export": {"path": world.path.as_str(), "name": name}},
    });
    Some(Intent::Create(world.slice_key.clone(), slice))
}
