//! A world: servers, clients, and a seed that says what happens next.

use crate::{
    center::Center,
    client::{Effect, Op, TENANTS},
    dice::Dice,
    faults::Faults,
    history::History,
    mirror::Mirror,
    presence::{appear, give_signs, run_name},
    report::{Report, Settings, shown},
    rest,
    tasks::Tasks,
    time::Time,
};
use insula_api::{ObjectKey, Revision, Scope};
use insula_catalog::ids;
use insula_controllers::{Controllers, bootstrap};
use insula_registry::{Deps, Team, servers};
use insula_store::{CommitError, Cursor, Write};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Steps that are kept for a report.
const TRACE_STEPS: usize = 60;
/// Steps in which a world that nobody disturbs must come to rest.
const REST_STEPS_MAX: usize = 400_000;
/// Seconds without a commit that are rest: longer than the longest pause of a reconciler.
const REST_SECONDS: i64 = 400;
/// Most commits that a mirror applies at once.
const BATCH_MAX: usize = 6;
const CLIENTS: usize = 6;

/// A server that runs.
pub(crate) struct Server {
    pub(crate) deps: Arc<Deps>,
    mirror: Arc<Mirror>,
    watch: Cursor,
    /// Commits that the watch has delivered.
    watched: usize,
    has_begun: Arc<AtomicBool>,
    runs: bool,
}

/// A request on its way.
struct Running {
    write: u64,
    server: usize,
    known: BTreeMap<ObjectKey, Revision>,
    effect: Arc<Mutex<Option<Effect>>>,
}

pub(crate) struct World {
    settings: Settings,
    dice: Dice,
    time: Arc<Time>,
    pub(crate) center: Arc<Center>,
    /// `None` while a server is down.
    pub(crate) servers: Vec<Option<Server>>,
    tasks: Tasks,
    clients: Vec<Option<Running>>,
    history: History,
    faults: Faults,
    /// Servers share the clusters out among them. Where they do not, guards have more to do.
    shares: bool,
    last_write: u64,
    trace: VecDeque<String>,
    hash: DefaultHasher,
    steps: usize,
    outcomes: [usize; 4],
}

/// Runs a world.
pub fn run(settings: &Settings) -> Report {
    let mut world = World::new(settings.clone());
    let failure = world.live().err();
    Report {
        failure,
        trace: world.trace.into(),
        hash: world.hash.finish(),
        steps: world.steps,
        commits: world.center.commits(),
        outcomes: world.outcomes,
    }
}

impl World {
    fn new(settings: Settings) -> World {
        let dice = Dice::new(settings.seed);
        let faults = Faults::choose(&dice, &settings.without);
        let shares = dice.chance(50);
        let (center, time) = (Center::new(settings.plant.clone()), Time::begin());
        let mut world = World {
            dice,
            time,
            center,
            servers: Vec::new(),
            tasks: Tasks::default(),
            clients: (0..CLIENTS).map(|_| None).collect(),
            history: History::default(),
            faults,
            shares,
            last_write: 0,
            trace: VecDeque::new(),
            hash: DefaultHasher::new(),
            steps: 0,
            outcomes: [0; 4],
            settings,
        };
        for server in 0..world.settings.servers {
            world.servers.push(None);
            world.start(server);
        }
        world
    }

    fn live(&mut self) -> Result<(), String> {
        self.rest()?;
        for op in Op::setting_up() {
            self.send(0, 0, op);
            self.rest()?;
        }
        for _ in 0..self.settings.steps {
            self.step()?;
        }
        self.end()
    }

    /// Lets everything come to rest without faults, and checks the state.
    fn end(&mut self) -> Result<(), String> {
        for server in 0..self.servers.len() {
            if self.servers[server].is_none() {
                self.start(server);
            }
        }
        self.rest()?;
        for tenant in TENANTS {
            self.send(0, 0, Op::Freeze(tenant, false));
            self.rest()?;
        }
        self.history.check_refused()?;
        rest::check(self)?;
        self.look_anew()
    }

    /// Checks that everything was noticed: a server that begins, and so looks at everything, has
    /// nothing to write.
    fn look_anew(&mut self) -> Result<(), String> {
        for server in 0..self.servers.len() {
            self.tasks.end(server);
            self.servers[server] = None;
        }
        let before = self.center.commits();
        self.start(0);
        self.rest()?;
        let changes = self.center.changes(before, self.center.commits()).concat();
        match changes.iter().find(|change| change.key.resource != ids::servers()) {
            None => Ok(()),
            Some(change) => Err(format!(
                "{:?} was written by a server that looked at everything anew: nobody had noticed before",
                change.key
            )),
        }
    }

    fn note(&mut self, step: String) {
        step.hash(&mut self.hash);
        if self.trace.len() == TRACE_STEPS && !self.settings.whole_trace {
            self.trace.pop_front();
        }
        self.trace
            .push_back(format!("{} {}s {step}", self.steps, self.time.seconds()));
    }

    fn start(&mut self, server: usize) {
        let (mirror, watched) = Mirror::load(&self.center);
        let mut deps = Deps::new(
            mirror.clone(),
            self.time.clone(),
            Arc::new(self.dice.fork()),
            "https://server:6443".to_owned(),
        );
        if self.shares {
            deps.team = Team::member(&run_name(server));
        }
        let deps = Arc::new(deps);
        // As a client that goes on with its watch from before the start.
        let watch = insula_store::Store::watch(&*mirror, Scope::everything(), mirror.floor());
        let has_begun = Arc::new(AtomicBool::new(false));
        self.servers[server] = Some(Server {
            deps: deps.clone(),
            mirror,
            watch: watch.expect("the history begins there"),
            watched,
            has_begun: has_begun.clone(),
            runs: false,
        });
        let begin = async move {
            while bootstrap(&deps).await.is_err() {}
            while appear(&deps).await.is_err() {}
            has_begun.store(true, Ordering::Relaxed);
        };
        self.tasks.spawn(server, "bootstrap", Box::pin(begin));
        self.note(format!("server {server} starts"));
    }

    fn crash(&mut self, server: usize) -> Result<(), String> {
        self.tasks.end(server);
        self.servers[server] = None;
        self.note(format!("server {server} crashes"));
        // Others have noticed it, or think that it is there.
        if self.dice.chance(50) {
            self.center.write(Write::Delete(servers::key(&run_name(server))));
            self.history.absorb(&self.center)?;
        }
        for client in 0..self.clients.len() {
            if self.clients[client]
                .as_ref()
                .is_some_and(|running| running.server == server)
            {
                self.finish(client, &Effect::Unknown)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, client: usize, server: usize, op: Op) {
        let Some(deps) = self.servers[server].as_ref().map(|server| server.deps.clone()) else {
            return;
        };
        self.note(format!("client {client} to server {server}: {op:?}"));
        let effect = Arc::<Mutex<Option<Effect>>>::default();
        let told = effect.clone();
        self.last_write += 1;
        let write = self.last_write;
        let run = async move {
            let effect = op.run(deps, write).await;
            *told.lock() = Some(effect);
        };
        self.tasks.spawn(server, "request", Box::pin(run));
        self.clients[client] = Some(Running {
            write,
            server,
            known: self.history.acknowledged(),
            effect,
        });
    }

    fn finish(&mut self, client: usize, effect: &Effect) -> Result<(), String> {
        let Some(Running { write, known, .. }) = self.clients[client].take() else {
            return Ok(());
        };
        let place = match effect {
            Effect::Wrote(..) | Effect::Gone(..) | Effect::Done => 0,
            Effect::Saw(..) | Effect::Listed(..) => 1,
            Effect::Refused(_) => 2,
            Effect::Unknown => 3,
        };
        self.outcomes[place] += 1;
        self.note(format!("client {client} is told {effect:?}"));
        self.history.absorb(&self.center)?;
        self.history.reported(write, &known, effect)
    }

    /// Does one thing.
    fn step(&mut self) -> Result<(), String> {
        self.steps += 1;
        let (calls, answers) = self.center.on_the_way();
        let ready = self.tasks.ready();
        let lagging = self.lagging();
        let idle = self.clients.iter().filter(|client| client.is_none()).count();
        let faults = &self.faults;
        let weights = [
            ready.len().min(1) * 200,
            lagging.len().min(1) * (100 - faults.lag),
            calls.min(1) * 100,
            answers.min(1) * 100,
            idle.min(1) * 40,
            3,
            answers.min(1) * faults.lose,
            calls.min(1) * faults.refuse,
            calls.min(1) * faults.full,
            faults.crash,
            faults.crash * 4,
            faults.reload,
            faults.forget,
        ];
        match self.dice.weighted(&weights) {
            0 => self.poll(*self.dice.pick(&ready))?,
            1 => self.feed(*self.dice.pick(&lagging), 1 + self.dice.below(BATCH_MAX))?,
            2 => self.execute(self.dice.below(calls))?,
            3 => self.center.deliver(self.dice.below(answers), false),
            4 => self.act(),
            5 => self.pass(1 + self.dice.below(30))?,
            6 => {
                self.note("an answer is lost".to_owned());
                self.center.deliver(self.dice.below(answers), true);
            }
            7 => self
                .center
                .refuse(self.dice.below(calls), CommitError::Unavailable("no way".into())),
            8 => {
                let call = self.dice.below(calls);
                if self.center.puts(call) {
                    self.center.refuse(call, CommitError::Full("the disk is full".into()));
                }
            }
            9 => return self.crash_one(),
            10 => self.start_one(),
            11 => self.reload_one(),
            _ => {
                let server = self.dice.below(self.servers.len());
                if let Some(server) = &self.servers[server] {
                    server.mirror.forget();
                }
            }
        }
        Ok(())
    }

    fn lagging(&self) -> Vec<usize> {
        let lags = |server: &usize| {
            self.servers[*server]
                .as_ref()
                .is_some_and(|server| server.mirror.behind() > 0)
        };
        (0..self.servers.len()).filter(lags).collect()
    }

    fn poll(&mut self, task: u64) -> Result<(), String> {
        let name = self.tasks.poll(task)?;
        (task, name).hash(&mut self.hash);
        if self.settings.whole_trace {
            self.note(format!("poll {task} {name}"));
        }
        for server in 0..self.servers.len() {
            self.begin(server);
        }
        for client in 0..self.clients.len() {
            let effect = self.clients[client]
                .as_ref()
                .and_then(|running| running.effect.lock().take());
            if let Some(effect) = effect {
                self.finish(client, &effect)?;
            }
        }
        Ok(())
    }

    /// Starts the reconcilers of a server that has written what each store has.
    fn begin(&mut self, number: usize) {
        let Some(server) = &mut self.servers[number] else {
            return;
        };
        if server.runs || !server.has_begun.load(Ordering::Relaxed) {
            return;
        }
        server.runs = true;
        let deps = server.deps.clone();
        for task in Controllers::new(deps).tasks(self.time.sleep()) {
            self.tasks.spawn(number, task.queue.name, task.run);
        }
    }

    fn execute(&mut self, call: usize) -> Result<(), String> {
        let changed = self.center.execute(call);
        if changed > 0 {
            let commits = self.center.commits();
            for changes in self.center.changes(commits - changed, commits) {
                let keys: Vec<String> = changes
                    .iter()
                    .map(|change| shown(&change.key, change.new.is_some()))
                    .collect();
                self.note(format!("{} {}", changes[0].revision, keys.join(" ")));
            }
            self.history.absorb(&self.center)?;
        }
        Ok(())
    }

    fn feed(&mut self, number: usize, count: usize) -> Result<(), String> {
        if let Some(server) = &mut self.servers[number] {
            server.mirror.feed(count);
        }
        self.check_watch(number)
    }

    /// Checks that a watch of everything delivers each change once, in order.
    fn check_watch(&mut self, number: usize) -> Result<(), String> {
        let Some(server) = &mut self.servers[number] else {
            return Ok(());
        };
        let Ok(changes) = server.watch.try_next() else {
            let latest = server.deps.store.latest().revision();
            if let Ok(watch) = server.deps.store.watch(Scope::everything(), latest) {
                server.watch = watch;
                server.watched = self.center.commits() - server.mirror.behind();
            }
            return Ok(());
        };
        let upto = self.center.commits() - server.mirror.behind();
        let expected = self.center.changes(server.watched, upto).concat();
        server.watched = upto;
        let seen = |change: &Arc<insula_store::Change>| (change.revision, change.key.clone(), change.new.is_some());
        let (mut is, mut must): (Vec<_>, Vec<_>) =
            (changes.iter().map(seen).collect(), expected.iter().map(seen).collect());
        is.sort();
        must.sort();
        let in_order = changes.windows(2).all(|pair| pair[0].revision <= pair[1].revision);
        match is == must && in_order {
            true => Ok(()),
            false => Err(format!(
                "a watch of server {number} delivered {is:?}, and what happened is {must:?}"
            )),
        }
    }

    /// Lets an idle client send a request.
    fn act(&mut self) {
        let up: Vec<usize> = (0..self.servers.len()).filter(|server| self.runs(*server)).collect();
        let idle: Vec<usize> = (0..CLIENTS).filter(|client| self.clients[*client].is_none()).collect();
        if up.is_empty() || idle.is_empty() {
            return;
        }
        let op = Op::choose(&self.dice);
        self.send(*self.dice.pick(&idle), *self.dice.pick(&up), op);
    }

    fn runs(&self, server: usize) -> bool {
        self.servers[server].as_ref().is_some_and(|server| server.runs)
    }

    fn pass(&mut self, seconds: usize) -> Result<(), String> {
        self.time.pass(i64::try_from(seconds).unwrap_or(1));
        let up = (0..self.servers.len()).filter(|server| self.shares && self.runs(*server));
        give_signs(up, &self.center, &self.dice);
        self.history.absorb(&self.center)
    }

    fn crash_one(&mut self) -> Result<(), String> {
        let server = self.dice.below(self.servers.len());
        let others = (0..self.servers.len())
            .filter(|other| *other != server)
            .any(|other| self.runs(other));
        match self.servers[server].is_some() && others {
            true => self.crash(server),
            false => Ok(()),
        }
    }

    fn start_one(&mut self) {
        let down = self.servers.iter().position(Option::is_none);
        if let Some(server) = down {
            self.start(server);
        }
    }

    fn reload_one(&mut self) {
        let number = self.dice.below(self.servers.len());
        if let Some(server) = &mut self.servers[number] {
            server.mirror.reload();
            self.note(format!("server {number} reads everything anew"));
        }
    }

    /// Goes on without clients and faults until no reconciler writes any more.
    fn rest(&mut self) -> Result<(), String> {
        let (mut commits, mut quiet) = (self.center.commits(), 0);
        for _ in 0..REST_STEPS_MAX {
            self.steps += 1;
            let (calls, answers) = self.center.on_the_way();
            let ready = self.tasks.ready();
            let lagging = self.lagging();
            if !ready.is_empty() {
                self.poll(*self.dice.pick(&ready))?;
            } else if answers > 0 {
                self.center.deliver(0, false);
            } else if calls > 0 {
                self.execute(0)?;
            } else if let Some(server) = lagging.first() {
                self.feed(*server, BATCH_MAX)?;
            } else if quiet >= REST_SECONDS {
                return Ok(());
            } else {
                quiet += self.time.pass(REST_SECONDS);
            }
            if self.center.commits() != commits {
                (commits, quiet) = (self.center.commits(), 0);
            }
        }
        Err("the reconcilers never come to rest".to_owned())
    }
}
