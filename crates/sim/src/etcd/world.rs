//! A world of stores on one modelled etcd, with clients and faults.

use crate::{
    Report, Settings,
    dice::Dice,
    etcd::{
        history::{Attempt, Executed, History, PREFIX, Seen, Shown, Watched, mark_in},
        runtime::Runtime,
        service::Etcd,
        wire::Wires,
    },
};
use insula_api::{ClusterName, Object, ObjectKey, ResourceId, Revision, Scope};
use insula_meter::ServerWork;
use insula_store::{Guard, Snapshot, Store, Txn, Write};
use insula_store_etcd::{Connect, EtcdStore, Options};
use parking_lot::Mutex;
use serde_json::json;
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};
use tokio::sync::{oneshot, watch};

const MEMBERS: usize = 3;
const CLIENTS: usize = 6;
/// Workspaces, and names in each: so few that transactions meet.
const CLUSTERS: [&str; 3] = ["root", "2xj8k1p0q9z7w3ab", "zzzzzzzzzzzzzzzz"];
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Greatest number of objects that a transaction writes.
const WRITES_MAX: usize = 4;
/// Greatest pause of a client between two operations, in milliseconds.
const PAUSE_MAX: usize = 100;
/// Greatest time until the slots begin, where they do not at once, in milliseconds.
const SLOTS_MAX: usize = 5_000;
/// Time between two comparisons with etcd.
const AUDIT: Duration = Duration::from_secs(5);
/// Time without faults at the end, in which every store has to come to rest.
const REST: Duration = Duration::from_secs(120);

/// A store that follows etcd.
struct Server {
    store: Arc<EtcdStore>,
    /// Owner of its futures.
    owner: usize,
    /// How its driver ended.
    end: Mutex<Option<Result<(), String>>>,
    /// True once the server has crashed.
    crashed: watch::Sender<bool>,
}

/// The world.
pub(crate) struct World {
    pub(crate) etcd: Arc<Etcd>,
    pub(crate) wires: Arc<Wires>,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) dice: Dice,
    servers: Mutex<Vec<Arc<Server>>>,
    pub(crate) history: Mutex<History>,
    trace: Mutex<Vec<String>>,
    /// Operations of clients that are left.
    left: Mutex<usize>,
    /// Time between two comparisons of a store with etcd. In some worlds there is none, so that
    /// nothing is noticed by it alone.
    audit: Duration,
}

/// Runs a world to its end.
pub(crate) fn run(settings: &Settings) -> Report {
    let (dice, runtime) = (Dice::new(settings.seed), Runtime::new());
    let etcd = Etcd::new(MEMBERS, settings.plant.clone(), dice.fork(), runtime.clone());
    let (order, audits) = (dice.fork(), dice.chance(50));
    let world = Arc::new(World {
        wires: Arc::new(Wires {
            etcd: etcd.clone(),
            runtime: runtime.clone(),
            dice: dice.fork(),
            losses: Mutex::default(),
        }),
        etcd,
        runtime: runtime.clone(),
        dice,
        servers: Mutex::default(),
        history: Mutex::default(),
        trace: Mutex::default(),
        left: Mutex::new(settings.steps),
        audit: if audits { AUDIT } else { Duration::MAX },
    });
    let lived = Arc::new(Mutex::new(None));
    let (life, end) = (Box::pin(world.clone().live(settings.clone())), lived.clone());
    runtime.spawn("the world", async move {
        let outcome = life.await;
        *end.lock() = Some(outcome);
    });
    let ran = runtime.run(&order, || lived.lock().is_some());
    let lived = lived.lock().take();
    let failure = ran.and(lived.unwrap_or(Ok(()))).err();
    world.report(settings, failure)
}

impl World {
    async fn live(self: Arc<Self>, settings: Settings) -> Result<(), String> {
        for number in 0..settings.servers {
            let server = self.clone().start(number).await;
            self.servers.lock().push(server);
        }
        if self.dice.chance(50) {
            self.begin_slots().await?;
        } else {
            let world = self.clone();
            self.runtime.spawn("the slots", async move {
                world.runtime.pause_below(&world.dice, SLOTS_MAX).await;
                // One that fails is tried again by a fault.
                let _ = world.begin_slots().await;
            });
        }
        let faults = self.runtime.new_owner();
        self.runtime
            .spawn_for(faults, "faults", super::faults::play(self.clone(), settings));
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            let (done, end) = oneshot::channel();
            let client = self.clone().client(self.dice.fork());
            self.runtime.spawn("a client", async move {
                client.await;
                // Nobody else receives it.
                let _ = done.send(());
            });
            clients.push(end);
        }
        for client in clients {
            client.await.map_err(|_| "a client ended")?;
        }
        self.runtime.end(faults);
        super::faults::heal(&self);
        self.runtime.pause(REST).await;
        self.rest().await?;
        self.check()?;
        match self.dice.chance(30) {
            true => self.roll_back().await,
            false => Ok(()),
        }
    }

    /// Checks that every store works, and shows all that there is.
    async fn rest(self: &Arc<Self>) -> Result<(), String> {
        for number in 0..self.servers() {
            let server = self.server(number);
            if let Some(end) = &*server.end.lock() {
                return Err(format!("server {number} ended: {end:?}"));
            }
            let (mark, txn) = self.draft(&self.dice, &server.store);
            match self.commit(number, mark, Txn { guards: vec![], ..txn }).await {
                Some(Ok(_)) => {}
                other => return Err(format!("server {number} is at rest, and writes nothing: {other:?}")),
            }
            self.look(number)
                .await
                .map_err(|error| format!("server {number} is at rest, and shows nothing: {error}"))?;
        }
        // What the last one wrote reaches the others.
        self.runtime.pause(REST).await;
        let now = Revision(self.etcd.with(|state| state.revision).unsigned_abs());
        for number in 0..self.servers() {
            let reached = self.server(number).store.latest().revision();
            if reached < now {
                return Err(format!("server {number} is at rest at {reached}, and etcd is at {now}"));
            }
        }
        Ok(())
    }

    /// Takes the last revisions from etcd, as if it was restored from a backup, and writes others.
    /// Checks that no store goes on with it.
    async fn roll_back(&self) -> Result<(), String> {
        let known = self.history.lock().known.0;
        let to = known.saturating_sub(1 + self.dice.below(20) as u64).max(1);
        self.tell(format!("etcd is rolled back to {to}"));
        let others = self.dice.below(60);
        self.etcd.with(|state| {
            state.roll_back(i64::try_from(to).unwrap_or(1));
            (0..others).for_each(|_| state.put(b"/other"));
        });
        self.runtime.pause(REST).await;
        for number in 0..self.servers() {
            let end = self.server(number).end.lock().clone();
            if !matches!(&end, Some(Err(reason)) if reason.contains("restart")) {
                return Err(format!(
                    "server {number} goes on with an etcd that was rolled back: {end:?}"
                ));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let history = self.history.lock();
        let keys = history.keys();
        let executed = self.etcd.with(|state| Executed::read(state, &keys));
        history.check(&executed)
    }

    fn report(&self, settings: &Settings, failure: Option<String>) -> Report {
        let history = self.history.lock();
        let mut outcomes = [0; 4];
        for attempt in &history.attempts {
            let index = match &attempt.outcome {
                Some(Ok(_)) => 0,
                Some(Err(insula_store::CommitError::Unknown(_))) | None => 3,
                Some(Err(_)) => 2,
            };
            outcomes[index] += 1;
        }
        outcomes[1] = history.seen.len();
        let trace = std::mem::take(&mut *self.trace.lock());
        let mut hash = DefaultHasher::new();
        trace.hash(&mut hash);
        let shown = match settings.whole_trace {
            true => trace,
            false => trace[trace.len().saturating_sub(40)..].to_vec(),
        };
        Report {
            failure,
            trace: shown,
            hash: hash.finish(),
            steps: settings.steps,
            commits: outcomes[0],
            outcomes,
        }
    }

    /// Writes a line of the trace, which is part of the hash of the run.
    pub(crate) fn tell(&self, line: String) {
        self.trace.lock().push(line);
    }

    pub(crate) fn servers(&self) -> usize {
        self.servers.lock().len()
    }

    fn server(&self, number: usize) -> Arc<Server> {
        self.servers.lock()[number].clone()
    }

    pub(crate) fn store(&self, number: usize) -> Arc<EtcdStore> {
        self.server(number).store.clone()
    }

    /// Opens a store, however often it takes, and a watch of everything.
    async fn start(self: Arc<Self>, number: usize) -> Arc<Server> {
        let endpoints: Vec<String> = (0..MEMBERS).map(|member| member.to_string()).collect();
        loop {
            let (wires, runtime) = (self.wires.clone(), self.runtime.clone());
            let connect: Connect = Arc::new(move |endpoint| wires.channel(endpoint.parse().unwrap_or_default()));
            let options = Options {
                connect: Some(connect),
                sleep: Arc::new(move |time| runtime.pause(time)),
                audit_interval: self.audit,
                ..Options::new(insula_api::Rng::next_u64(&self.dice))
            };
            match Box::pin(EtcdStore::connect(&endpoints, PREFIX, options)).await {
                Ok((store, driver)) => {
                    let store = Arc::new(store);
                    let server = Arc::new(Server {
                        store: store.clone(),
                        owner: self.runtime.new_owner(),
                        end: Mutex::default(),
                        crashed: watch::Sender::new(false),
                    });
                    self.tell(format!("server {number} starts at {}", store.latest().revision()));
                    let follower = server.clone();
                    self.runtime.spawn_for(server.owner, "a driver", async move {
                        let end = driver.await;
                        *follower.end.lock() = Some(end);
                    });
                    self.runtime
                        .spawn_for(server.owner, "a watch", self.clone().watch(number, server.clone()));
                    return server;
                }
                Err(error) => {
                    self.tell(format!("server {number} does not start: {error}"));
                    self.runtime.pause(Duration::from_secs(1)).await;
                }
            }
        }
    }

    /// Ends a server without a word, and starts another one.
    pub(crate) fn crash(self: &Arc<Self>, number: usize) {
        let server = self.server(number);
        if server.crashed.send_replace(true) {
            // The other one has yet to start.
            return;
        }
        self.runtime.end(server.owner);
        self.tell(format!("server {number} crashes"));
        let world = self.clone();
        self.runtime.spawn("a start", async move {
            let next = world.clone().start(number).await;
            world.servers.lock()[number] = next;
        });
    }

    /// Marks the store with the format of today, as a server does that starts.
    pub(crate) async fn begin_slots(&self) -> Result<(), String> {
        let begun = self.server(0).store.mark_format().await;
        self.tell(format!("the slots begin: {begun:?}"));
        begun
    }

    async fn client(self: Arc<Self>, dice: Dice) {
        loop {
            {
                let mut left = self.left.lock();
                if *left == 0 {
                    return;
                }
                *left -= 1;
            }
            self.runtime.pause_below(&dice, PAUSE_MAX).await;
            let number = dice.below(self.servers());
            if dice.chance(25) {
                // One that is told that it cannot be read learns nothing.
                let _ = self.look(number).await;
            } else {
                let (mark, txn) = self.draft(&dice, &self.server(number).store);
                self.commit(number, mark, txn).await;
            }
        }
    }

    /// Makes a transaction of what a server shows now.
    fn draft(&self, dice: &Dice, store: &EtcdStore) -> (u64, Txn) {
        let snapshot = store.latest().for_server(ServerWork::Tool);
        let mark = {
            let mut history = self.history.lock();
            history.attempts.push(Attempt {
                txn: Txn::default(),
                window: Default::default(),
                outcome: None,
            });
            history.attempts.len() as u64 - 1
        };
        let mut txn = Txn::default();
        let only_deletes = dice.chance(20);
        for _ in 0..=dice.below(WRITES_MAX) {
            let key = key(dice.pick::<&str>(&CLUSTERS), dice.pick::<&str>(&NAMES));
            if txn.writes.iter().any(|write| *write.key() == key) {
                continue;
            }
            let found = snapshot.get(&key);
            match (&found, dice.below(4)) {
                (Some(entry), 0 | 1) => txn.guards.push(Guard::At(key.clone(), entry.revision)),
                (Some(_), 2) => txn.guards.push(Guard::Exists(key.clone())),
                (None, 0..=2) => txn.guards.push(Guard::Absent(key.clone())),
                _ => {}
            }
            txn.writes.push(match only_deletes || dice.chance(25) {
                true => Write::Delete(key),
                false => Write::Put(key.clone(), object(&key, mark)),
            });
        }
        (mark, txn)
    }

    async fn commit(&self, number: usize, mark: u64, txn: Txn) -> Option<Result<Revision, insula_store::CommitError>> {
        let now = || Revision(self.etcd.with(|state| state.revision).unsigned_abs());
        let (server, begun) = (self.server(number), now());
        let attempt = |window, outcome| Attempt {
            txn: txn.clone(),
            window,
            outcome,
        };
        self.history.lock().attempts[mark as usize] = attempt((begun, begun), None);
        let mut crashed = server.crashed.subscribe();
        let outcome = tokio::select! {
            biased;
            _ = crashed.wait_for(|crashed| *crashed) => None,
            outcome = server.store.commit(txn.clone()) => Some(outcome),
        };
        self.tell(format!("server {number}: {mark} is {outcome:?}"));
        let mut history = self.history.lock();
        if let Some(Ok(revision)) = outcome {
            history.known = history.known.max(revision);
        }
        history.attempts[mark as usize] = attempt((begun, now()), outcome.clone());
        outcome
    }

    /// Reads everything of now.
    async fn look(&self, number: usize) -> Result<(), String> {
        let (server, known) = (self.server(number), self.history.lock().known);
        let mut crashed = server.crashed.subscribe();
        let snapshot = tokio::select! {
            biased;
            _ = crashed.wait_for(|crashed| *crashed) => return Err("it crashed".into()),
            snapshot = server.store.snapshot(Revision(0)) => snapshot.map_err(|error| error.to_string())?,
        };
        self.tell(format!("server {number} shows {}", snapshot.revision()));
        self.history.lock().seen.push(Seen {
            server: number,
            revision: snapshot.revision(),
            known,
            objects: shown(&snapshot.for_server(ServerWork::Tool)),
        });
        Ok(())
    }

    /// Follows a watch of everything, and opens another one when it is told to.
    async fn watch(self: Arc<Self>, number: usize, server: Arc<Server>) {
        loop {
            let after = server.store.latest().revision();
            let Ok(mut cursor) = server.store.watch(everything(), after) else {
                continue;
            };
            let index = {
                let mut history = self.history.lock();
                history.watched.push(Watched {
                    server: number,
                    after,
                    upto: after,
                    changes: Vec::new(),
                });
                history.watched.len() - 1
            };
            let mut crashed = server.crashed.subscribe();
            loop {
                let next = tokio::select! {
                    biased;
                    _ = crashed.wait_for(|crashed| *crashed) => return,
                    next = cursor.next() => next,
                };
                let Ok(changes) = next else { break };
                let mut history = self.history.lock();
                let watched = &mut history.watched[index];
                watched.upto = cursor.position();
                watched.changes.extend(changes.iter().map(|change| {
                    let mark = change.new.as_ref().and_then(|object| mark_in(&object.to_stored()));
                    (change.revision, change.key.clone(), mark)
                }));
            }
            self.tell(format!("server {number}: a watch is gone"));
        }
    }
}

fn resource() -> ResourceId {
    ResourceId::local("example.io", "widgets")
}

fn everything() -> Scope {
    Scope::everywhere(resource())
}

fn key(cluster: &str, name: &str) -> ObjectKey {
    let cluster = ClusterName::parse(cluster).expect("a name of a cluster");
    ObjectKey::cluster_scoped(resource(), cluster, name)
}

fn object(key: &ObjectKey, mark: u64) -> Arc<Object> {
    let value = json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": &*key.name},
        "mark": mark.to_string()});
    Arc::new(Object::new(&value, None).expect("an object"))
}

fn shown(snapshot: &Snapshot) -> Vec<Shown> {
    let entries = snapshot.range(&everything(), None, usize::MAX);
    let mut shown: Vec<Shown> = entries
        .iter()
        .map(|entry| Shown {
            key: entry.key.clone(),
            revision: entry.revision,
            created: entry.created,
            mark: mark_in(&entry.object.to_stored()).unwrap_or(u64::MAX),
        })
        .collect();
    shown.sort_by(|one, other| one.key.cmp(&other.key));
    shown
}
