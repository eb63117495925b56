//! Upgrade of a store of format 2 before it is served: internal objects get their present names.
//!
//! ```text
//! wait   on etcd, until no server of an earlier program is seen on the store
//! mark   on etcd, by a key that earlier programs cannot read; the embedded store marks itself with
//!        its first write
//! move   each object to its present key, in transactions with guards on both keys, until a
//!        snapshot of the latest revision has none under an earlier key
//! ```
//! A start that was interrupted leaves objects under both names, and the next one moves the rest.
//! Servers that start at the same time move together: one of two conflicts, and looks again.
//!
//! Format 3 differs on etcd alone, in the layout of keys, and its servers go on beside those of
//! this program: when none of them is seen any more, the mark begins the layout of format 4, and
//! the store moves the objects beside everything else.
//!
//! A server of an earlier program that was not seen cannot follow etcd beyond the mark: it serves
//! the state before, and answers writes with 503. What it had decided before may still be
//! committed. An object that it creates under an earlier name is moved by the next start, or
//! deleted if the present name has an object by then: programs of this format decided that one.

use std::{sync::Arc, time::Duration};

use insula_api::{Clock, Revision, Scope};
use insula_catalog::earlier_names;
use insula_meter::ServerWork;
use insula_registry::servers::{self, GONE_SECONDS};
use insula_store::{CommitError, Entry, FORMAT, Guard, Snapshot, Store, Txn, Write};
use insula_store_etcd::EtcdStore;
use tokio::time::Instant;

use crate::StartError;

/// Maximum number of objects that a transaction moves. Each takes two guards and two writes.
const MOVED_OBJECTS_MAX: usize = 60;
/// Maximum number of bytes that a transaction moves, unless one object is larger.
const MOVED_BYTES_MAX: usize = 1 << 20;

/// Times of the wait for servers of earlier programs.
struct Wait {
    /// Pause between two looks at their records.
    look: Duration,
    /// Time without a new record after which a server counts as gone.
    gone: Duration,
}

const WAIT: Wait = Wait {
    look: Duration::from_secs(1),
    gone: Duration::from_secs(GONE_SECONDS.unsigned_abs()),
};

/// Upgrades a store that an earlier program has written.
pub(crate) async fn upgrade(
    store: &dyn Store,
    etcd: Option<&EtcdStore>,
    clock: &dyn Clock,
    name: &str,
) -> Result<(), StartError> {
    let failed = |cause: String| StartError::Store {
        store: name.to_owned(),
        cause,
    };
    if let Some(etcd) = etcd.filter(|etcd| etcd.format().is_none()) {
        wait_for_earlier_servers(store, clock, WAIT).await.map_err(failed)?;
        etcd.mark_format().await.map_err(failed)?;
    }
    match move_objects(store).await.map_err(failed)? {
        0 => {}
        objects => tracing::info!(objects, "the store is upgraded; earlier versions refuse it now"),
    }
    Ok(())
}

/// Marks a store of an earlier format that this program serves as it is, once no server of an
/// earlier program is seen on it.
pub(crate) async fn mark_later(store: Arc<dyn Store>, etcd: Arc<EtcdStore>, clock: Arc<dyn Clock>) {
    while etcd.format().is_some_and(|format| format < FORMAT) {
        let marked = match wait_for_earlier_servers(&*store, &*clock, WAIT).await {
            Ok(()) => etcd.mark_format().await,
            Err(reason) => Err(reason),
        };
        match marked {
            Ok(()) => {
                tracing::info!(
                    format = FORMAT,
                    "the store is marked; servers of earlier versions refuse it now"
                );
                return;
            }
            Err(reason) => tracing::debug!(reason, "the store keeps its format"),
        }
        tokio::time::sleep(WAIT.gone).await;
    }
}

/// Waits until every server of an earlier program is gone, which its record shows by its age.
///
/// # Errors
/// A server writes its record anew: it runs.
async fn wait_for_earlier_servers(store: &dyn Store, clock: &dyn Clock, wait: Wait) -> Result<(), String> {
    let begun = Instant::now();
    let mut first_look = None;
    loop {
        let present = servers::earlier(&latest(store).await?, clock.now());
        let seen = first_look.get_or_insert_with(|| present.clone());
        if let Some((server, _)) = present.iter().find(|server| !seen.contains(server)) {
            let (url, version) = (&server.url, &server.version);
            return Err(format!(
                "the server {url} (version {version}) uses this store and cannot read what this version writes: \
                 end all servers of earlier versions, then start this one"
            ));
        }
        // A clock that is ahead makes no server live longer.
        if present.is_empty() || begun.elapsed() > wait.gone {
            return Ok(());
        }
        if begun.elapsed() < wait.look {
            let names: Vec<&str> = present.iter().map(|(server, _)| &*server.url).collect();
            tracing::warn!(
                servers = names.join(", "),
                "waiting for servers of earlier versions to be gone"
            );
        }
        tokio::time::sleep(wait.look).await;
    }
}

/// Moves all objects that have an earlier name, and returns their number.
async fn move_objects(store: &dyn Store) -> Result<usize, String> {
    let mut moved = 0;
    loop {
        let snapshot = latest(store).await?;
        let batch = next_batch(&snapshot);
        if batch.is_empty() {
            return Ok(moved);
        }
        if moved == 0 {
            tracing::info!("moving internal objects to their present names");
        }
        match store.commit(transaction(&snapshot, &batch)).await {
            Ok(_) => moved += batch.len(),
            // Another server moved some of them.
            Err(CommitError::Conflict { .. }) => {}
            Err(error) => return Err(format!("moving internal objects to their present names: {error}")),
        }
    }
}

async fn latest(store: &dyn Store) -> Result<Snapshot, String> {
    let latest = store.snapshot(Revision(0)).await.map_err(|error| error.to_string())?;
    Ok(latest.for_server(ServerWork::Migration))
}

/// Returns the next objects that have an earlier name, as many as one transaction moves.
fn next_batch(snapshot: &Snapshot) -> Vec<Entry> {
    let found = earlier_names::resources().flat_map(|resource| {
        let scope = Scope::everywhere(resource);
        snapshot.range(&scope, None, MOVED_OBJECTS_MAX)
    });
    let mut bytes = 0;
    let fits = |entry: &Entry| {
        bytes += entry.object.size();
        bytes <= MOVED_BYTES_MAX || bytes == entry.object.size()
    };
    found.take(MOVED_OBJECTS_MAX).take_while(fits).collect()
}

fn transaction(snapshot: &Snapshot, batch: &[Entry]) -> Txn {
    let mut txn = Txn::default();
    for entry in batch {
        let key = earlier_names::present_key(&entry.key);
        txn.guards.push(Guard::At(entry.key.clone(), entry.revision));
        txn.writes.push(Write::Delete(entry.key.clone()));
        match snapshot.get(&key) {
            Some(present) => txn.guards.push(Guard::At(key, present.revision)),
            None => {
                txn.guards.push(Guard::Absent(key.clone()));
                let object = earlier_names::present_object(&entry.key, Arc::clone(&entry.object));
                txn.writes.push(Write::Put(key, object));
            }
        }
    }
    txn
}

#[cfg(test)]
mod tests;
