//! The servers on one store. On etcd each server keeps a record of itself, an internal object of
//! `root`; a store of its own has one server, which needs none.

use insula_api::{ClusterName, Json, Object, ObjectKey, Scope, Timestamp};
use insula_catalog::ids;
use insula_registry::Deps;
use insula_store::{Entry, Snapshot, Txn, Write};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{sync::Arc, time::Duration};

/// Pause between two writes of a record.
const PERIOD: Duration = Duration::from_secs(20);
/// Seconds without a write after which a server counts as gone.
pub const GONE_SECONDS: i64 = 60;
/// Seconds after which the record of a server that is gone is removed.
const KEPT_SECONDS: i64 = 3600;
/// Records that one round removes.
const SWEEP_MAX: usize = 50;

/// A server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Name of the run.
    pub name: String,
    /// URL.
    pub url: String,
    /// Version.
    pub version: String,
    /// Time of the start, in seconds since 1970.
    pub started: i64,
    /// Format in which it stores objects ([`insula_store::FORMAT`]).
    #[serde(default = "format_without_field")]
    pub format: u64,
}

/// Returns the format of servers whose records name none.
fn format_without_field() -> u64 {
    2
}

fn scope() -> Scope {
    Scope::cluster(ids::servers(), ClusterName::root())
}

fn read(entry: &Entry) -> Option<(Server, Timestamp)> {
    let mut value = entry.object.body_value();
    let seen = value["seen"].as_i64()?;
    Some((serde_json::from_value(value["spec"].take()).ok()?, Timestamp(seen)))
}

fn write(server: &Server, seen: Timestamp) -> Write {
    let value: Json = json!({
        "apiVersion": ids::INTERNAL_V1, "kind": "Server", "metadata": {"name": server.name},
        "spec": server, "seen": seen.0,
    });
    let object = Object::new(&value, None).expect("it has apiVersion, kind and metadata");
    let key = ObjectKey::cluster_scoped(ids::servers(), ClusterName::root(), &server.name);
    Write::Put(key, Arc::new(object))
}

/// Returns the servers that were seen in the last minute, `own` among them.
pub(crate) fn list(snapshot: &Snapshot, now: Timestamp, own: Server) -> Vec<(Server, Timestamp)> {
    let known = snapshot.range(&scope(), None, usize::MAX);
    let known = known.iter().filter_map(read);
    let mut servers: Vec<(Server, Timestamp)> = known
        .filter(|(server, seen)| now.since(*seen) <= GONE_SECONDS && server.name != own.name)
        .collect();
    servers.push((own, now));
    servers.sort_unstable_by(|(one, _), (other, _)| one.name.cmp(&other.name));
    servers
}

/// Returns the servers that were seen in the last minute and store objects in an earlier format,
/// with the times at which they were seen.
pub fn earlier(snapshot: &Snapshot, now: Timestamp) -> Vec<(Server, Timestamp)> {
    let known = snapshot.range(&scope(), None, usize::MAX);
    let known = known.iter().filter_map(read);
    known
        .filter(|(server, seen)| server.format < insula_store::FORMAT && now.since(*seen) <= GONE_SECONDS)
        .collect()
}

/// Keeps the record of a server for ever, and removes those of servers that are long gone.
pub async fn keep(registry: Arc<Deps>, server: Server) {
    loop {
        let now = registry.clock.now();
        let known = registry.store.latest().range(&scope(), None, usize::MAX);
        let is_old = |entry: &&Entry| read(entry).is_none_or(|(_, seen)| now.since(seen) > KEPT_SECONDS);
        let old = known.iter().filter(is_old).take(SWEEP_MAX);
        let mut writes: Vec<Write> = old.map(|entry| Write::Delete(entry.key.clone())).collect();
        writes.push(write(&server, now));
        let guards = Vec::new();
        if let Err(error) = registry.store.commit(Txn { guards, writes }).await {
            tracing::debug!(%error, "the record of this server is not written");
        }
        tokio::time::sleep(PERIOD).await;
    }
}
