//! The servers on one store, and which of them reconciles a cluster. On etcd each server keeps a
//! record of itself, an internal object of `root`; a store of its own has one server, which needs
//! none.

use crate::Deps;
use futures_util::{
    FutureExt,
    future::{BoxFuture, select},
};
use insula_api::{ClusterName, Json, Object, ObjectKey, Revision, Scope, Timestamp};
use insula_catalog::ids;
use insula_meter::ServerWork;
use insula_store::{CommitError, Entry, Snapshot, Txn, Write, server_of, slot};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{collections::BTreeMap, ops::ControlFlow, pin::pin, sync::Arc};

/// Seconds between two writes of a record.
const PERIOD_SECONDS: u64 = 5;
/// Seconds without a write after which other servers reconcile the clusters of a server.
const AWAY_SECONDS: i64 = 15;
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

/// This run of a server, among the servers on its store.
#[derive(Debug, Clone)]
pub struct Team {
    run: Arc<str>,
    is_alone: bool,
    /// The revisions of the others' records, and the times at which this server saw them first.
    others: Arc<Mutex<BTreeMap<String, (Revision, Timestamp)>>>,
}

impl Team {
    /// Returns a run of a given name, on a store that no other server can use.
    pub fn alone(run: &str) -> Self {
        Team::of_store(run, true)
    }

    /// Returns a run of a given name, on a store that others use as well.
    pub fn member(run: &str) -> Self {
        Team::of_store(run, false)
    }

    fn of_store(run: &str, is_alone: bool) -> Self {
        Team {
            run: run.into(),
            is_alone,
            others: Arc::default(),
        }
    }

    /// The name of the run.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Returns the names of the other servers whose records are written anew. Only the clock of
    /// this server counts: one that is ahead makes no server live longer.
    fn others(&self, snapshot: &Snapshot, now: Timestamp) -> Vec<String> {
        let mut others = self.others.lock();
        let mut present = BTreeMap::new();
        snapshot.for_each(&scope(), |entry| {
            if let Some((server, _)) = &*entry.object.parsed(read)
                && *server.name != *self.run
            {
                let known = others
                    .get(&server.name)
                    .filter(|(revision, _)| *revision == entry.revision);
                let since = known.map_or(now, |(_, since)| *since);
                present.insert(server.name.clone(), (entry.revision, since));
            }
            ControlFlow::Continue(())
        });
        *others = present;
        let fresh = others
            .iter()
            .filter(|(_, (_, since))| now.since(*since) <= AWAY_SECONDS);
        fresh.map(|(name, _)| name.clone()).collect()
    }

    /// Returns true if no other server can use the store.
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }
}

impl Deps {
    /// Returns true if the reconciliation of a cluster falls to this server, of those that have
    /// written their records; `None` is the installation. It saves double work and decides
    /// nothing: servers whose copies differ may each say yes, or no.
    pub fn reconciles(&self, cluster: Option<&ClusterName>) -> bool {
        if self.team.is_alone {
            return true;
        }
        let mut names = self.team.others(
            &self.store.latest().for_server(ServerWork::Reconciler),
            self.clock.now(),
        );
        names.push(self.team.run.to_string());
        server_of(cluster.map_or(0, slot), names.iter()).as_deref() == Some(&*self.team.run)
    }
}

fn read(object: &Object) -> Option<(Server, Timestamp)> {
    let mut value = object.body_value();
    let seen = value["seen"].as_i64()?;
    Some((serde_json::from_value(value["spec"].take()).ok()?, Timestamp(seen)))
}

/// Returns the write of a server's record, as seen at a time.
pub fn record(server: &Server, seen: Timestamp) -> Write {
    let value: Json = json!({
        "apiVersion": ids::INTERNAL_V1, "kind": "Server", "metadata": {"name": server.name},
        "spec": server, "seen": seen.0,
    });
    let object = Object::new(&value, None).expect("it has apiVersion, kind and metadata");
    Write::Put(key(&server.name), Arc::new(object))
}

/// Returns the key of a server's record.
pub fn key(name: &str) -> ObjectKey {
    ObjectKey::cluster_scoped(ids::servers(), ClusterName::root(), name)
}

/// Returns the records at a state.
fn known(snapshot: &Snapshot) -> impl Iterator<Item = (Server, Timestamp)> {
    let entries = snapshot.range(&scope(), None, usize::MAX).into_iter();
    entries.filter_map(|entry| read(&entry.object))
}

/// Returns the servers that were seen in the last minute, `own` among them.
pub fn list(snapshot: &Snapshot, now: Timestamp, own: Server) -> Vec<(Server, Timestamp)> {
    let mut servers: Vec<(Server, Timestamp)> = known(snapshot)
        .filter(|(server, seen)| now.since(*seen) <= GONE_SECONDS && server.name != own.name)
        .collect();
    servers.push((own, now));
    servers.sort_unstable_by(|(one, _), (other, _)| one.name.cmp(&other.name));
    servers
}

/// Returns the servers that were seen in the last minute and store objects in an earlier format,
/// with the times at which they were seen.
pub fn earlier(snapshot: &Snapshot, now: Timestamp) -> Vec<(Server, Timestamp)> {
    known(snapshot)
        .filter(|(server, seen)| server.format < insula_store::FORMAT && now.since(*seen) <= GONE_SECONDS)
        .collect()
}

/// Keeps the record of a server, and removes those of servers that are long gone. When the server
/// is leaving, removes its own: others reconcile its clusters at once.
pub async fn keep(
    registry: Arc<Deps>,
    server: Server,
    sleep: impl Fn(u64) -> BoxFuture<'static, ()>,
    leaving: impl Future<Output = ()>,
) {
    let mut leaving = pin!(leaving.fuse());
    loop {
        let now = registry.clock.now();
        let snapshot = registry.store.latest().for_server(ServerWork::Housekeeping);
        let entries = snapshot.range(&scope(), None, usize::MAX);
        let is_old = |entry: &&Entry| read(&entry.object).is_none_or(|(_, seen)| now.since(seen) > KEPT_SECONDS);
        let old = entries.iter().filter(is_old).take(SWEEP_MAX);
        let mut writes: Vec<Write> = old.map(|entry| Write::Delete(entry.key.clone())).collect();
        writes.push(record(&server, now));
        tell(commit(&registry, writes).await);
        if let futures_util::future::Either::Right(_) = select(sleep(PERIOD_SECONDS), &mut leaving).await {
            return tell(commit(&registry, vec![Write::Delete(key(&server.name))]).await);
        }
    }
}

async fn commit(registry: &Deps, writes: Vec<Write>) -> Result<(), CommitError> {
    let guards = Vec::new();
    registry.store.commit(Txn { guards, writes }).await.map(drop)
}

fn tell(done: Result<(), CommitError>) {
    if let Err(error) = done {
        tracing::debug!(%error, "the record of this server is not written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use insula_store::{MemoryStore, Store};

    fn write(store: &MemoryStore, write: Write) {
        let txn = Txn {
            guards: Vec::new(),
            writes: vec![write],
        };
        store
            .commit(txn)
            .now_or_never()
            .expect("at once")
            .expect("it is stored");
    }

    /// A server counts while it writes, by the clock of who looks, whatever its own clock says.
    #[test]
    fn a_server_with_a_wrong_clock_counts_as_long_as_it_writes() {
        let store = MemoryStore::new();
        let server = |name: &str| Server {
            name: name.to_owned(),
            url: String::new(),
            version: String::new(),
            started: 0,
            format: 3,
        };
        let team = Team::member("own");
        let others = |now: i64| team.others(&store.latest().for_server(ServerWork::Tool), Timestamp(now));
        for (name, ahead) in [("own", 0), ("fast", 100_000), ("slow", -100_000)] {
            write(&store, record(&server(name), Timestamp(1_000_000 + ahead)));
        }
        assert_eq!(others(1_000_000), ["fast", "slow"]);
        assert_eq!(others(1_000_000 + AWAY_SECONDS), ["fast", "slow"]);
        write(&store, record(&server("slow"), Timestamp(900_005)));
        assert_eq!(others(1_000_001 + AWAY_SECONDS), ["slow"]);
        write(&store, record(&server("fast"), Timestamp(1_100_005)));
        assert_eq!(others(1_000_005 + AWAY_SECONDS), ["fast", "slow"]);
        write(&store, Write::Delete(key("slow")));
        assert_eq!(others(1_000_006 + AWAY_SECONDS), ["fast"]);
    }
}
