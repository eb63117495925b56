//! Storage of noted uses: the notes of requests become records in the clusters of tenants.

use crate::{
    client::{Intent, Plan, commit},
    deps::Deps,
};
use insula_api::ObjectKey;
use insula_catalog::{
    Error,
    version_uses::{NotedUses, UseRecord, record_of},
};
use insula_store::Pinned;

/// Records in one transaction. Each takes two guards and a write; etcd takes 128 operations.
const BATCH_MAX: usize = 32;
/// Commits of one record before it waits for the next round. Another server writes it at the same
/// time.
const ATTEMPTS_MAX: usize = 4;

/// Stores the uses that requests have noted, and returns the number of records that were left for
/// the next call because the store took no write. A record is written at most once an hour for each
/// version. Several calls at a time store the same notes, so that each returns once all are stored.
pub async fn store_uses(registry: &Deps) -> usize {
    let (mut left, mut last) = (0, None);
    loop {
        let batch = registry.uses.noted(last.as_ref(), BATCH_MAX);
        let Some((route, _)) = batch.last() else { break };
        last = Some(route.clone());
        match store(registry, &batch).await {
            Ok(()) => registry.uses.forget(&batch),
            Err(Error::Conflict { .. }) => {
                for note in &batch {
                    match store_alone(registry, note).await {
                        Ok(()) => registry.uses.forget(std::slice::from_ref(note)),
                        Err(_) => left += 1,
                    }
                }
            }
            Err(error) => {
                tracing::debug!(%error, "uses of versions");
                left += batch.len();
                break;
            }
        }
    }
    left
}

async fn store_alone(registry: &Deps, note: &(ObjectKey, NotedUses)) -> Result<(), Error> {
    let mut outcome = Ok(());
    for _ in 0..ATTEMPTS_MAX {
        outcome = store(registry, std::slice::from_ref(note)).await;
        if !matches!(outcome, Err(Error::Conflict { .. })) {
            break;
        }
    }
    outcome
}

async fn store(registry: &Deps, notes: &[(ObjectKey, NotedUses)]) -> Result<(), Error> {
    let snapshot = registry.store.latest();
    let intents = notes
        .iter()
        .filter_map(|(route, noted)| intents(&snapshot, route, noted));
    let plan = Plan::new(intents.flatten().collect());
    commit(registry, &plan).await.map(drop)
}

/// Returns the write of a record under a guard on its route, which keeps it from appearing after
/// the route is deleted.
fn intents(snapshot: &Pinned, route: &ObjectKey, noted: &NotedUses) -> Option<[Intent; 2]> {
    let route = snapshot.get(route)?;
    let key = record_of(&route.key);
    let present = snapshot.get(&key);
    let known = present.as_ref().map(|present| present.object.parsed(UseRecord::read));
    let known = known.as_ref().and_then(|known| known.as_ref().as_ref());
    let record = UseRecord::merged(known, &route, noted)?.write(&key.name);
    let write = match present {
        None => Intent::Create(key, record),
        Some(present) => {
            let mut value = present.object.body_value();
            value["spec"] = record["spec"].clone();
            Intent::Update(present, value)
        }
    };
    Some([Intent::Expect(route.key, Some(route.revision)), write])
}
