//! Storage of metered amounts: the counters of requests become records, which grow and expire.

use crate::{
    client::{Intent, Plan, commit},
    deps::Deps,
};
use insula_api::{ClusterName, Json, Scope};
use insula_catalog::{
    Error, Result, ids,
    metering::{Amounts, added, is_expired, record_of},
};
use insula_meter::ServerWork;
use std::ops::ControlFlow;

/// Attempts at one record, which another server writes at the same time.
const ATTEMPTS: usize = 8;
/// Records that expire in one transaction.
const BATCH: usize = 50;

/// Stores the amounts that requests have counted since the last call. Amounts that the store does
/// not take are counted again.
///
/// # Errors
/// The last of the errors by which amounts were not stored.
pub async fn store(deps: &Deps) -> Result<()> {
    let mut outcome = Ok(());
    for (cluster, amounts) in deps.cache.metering.take() {
        if let Err(error) = store_one(deps, &cluster, &amounts).await {
            deps.cache.metering.put_back(&cluster, &amounts);
            outcome = Err(error);
        }
    }
    outcome
}

async fn store_one(deps: &Deps, cluster: &ClusterName, amounts: &Amounts) -> Result<()> {
    let now = deps.clock.now();
    let key = record_of(cluster, now);
    let mut outcome = Ok(());
    for _ in 0..ATTEMPTS {
        let snapshot = deps.store.latest();
        let known = snapshot.get(&key);
        let value: Option<Json> = known.as_ref().map(|entry| entry.object.body_value());
        let record = added(value.as_ref(), &key, now, amounts);
        let intent = match known {
            Some(entry) => Intent::Update(entry, record),
            None => Intent::Create(key.clone(), record),
        };
        outcome = commit(deps, &Plan::new(vec![intent])).await.map(drop);
        if !matches!(outcome, Err(Error::Conflict { .. })) {
            break;
        }
    }
    outcome
}

/// Deletes the records that are too old.
///
/// # Errors
/// The store refuses, or another server deletes the same records.
pub async fn expire(deps: &Deps) -> Result<()> {
    let snapshot = deps.store.latest().for_server(ServerWork::Housekeeping);
    let now = deps.clock.now();
    let mut expired = Vec::new();
    snapshot.for_each(&Scope::cluster(ids::meterings(), ClusterName::bound_crds()), |entry| {
        if is_expired(entry, now) {
            expired.push(Intent::Delete(entry.clone()));
        }
        ControlFlow::Continue(())
    });
    for batch in expired.chunks(BATCH) {
        commit(deps, &Plan::new(batch.to_vec())).await?;
    }
    Ok(())
}
