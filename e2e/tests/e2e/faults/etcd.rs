//! Servers on an etcd cluster that loses members or quorum, or is rolled back.

mod credentials;
mod full;
mod versions;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use insula_e2e::{Client, Etcd, Server, Setup, etcd_programs, until, workspace};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Requests that must succeed after a fault before the round is over.
const ROUND_WRITES: usize = 40;

/// Settings that shorten the timeouts of requests that etcd cannot answer.
const QUICK: [(&str, &str); 2] = [
    ("INSULA_ETCD_REQUEST_SECONDS", "3"),
    ("INSULA_ETCD_ATTEMPT_SECONDS", "1"),
];

fn config_map(name: &str, count: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"count": count.to_string()}})
}

fn send(client: &Client, method: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let answer = client.try_send(method, path, &[], body.into())?;
    match answer.code {
        200 | 201 => Ok(answer.body),
        code => Err(format!("{method} {path}: {code} {}", answer.text)),
    }
}

/// Figures of a load: the failures, and the time of the slowest request.
#[derive(Default)]
struct Figures {
    requests: usize,
    failures: Vec<String>,
    longest: Duration,
}

impl Figures {
    fn add(&mut self, other: Figures) {
        self.requests += other.requests;
        self.failures.extend(other.failures);
        self.longest = self.longest.max(other.longest);
    }

    fn time<T>(&mut self, request: impl FnOnce() -> Result<T, String>) -> Option<T> {
        let begun = Instant::now();
        let outcome = request();
        self.requests += 1;
        self.longest = self.longest.max(begun.elapsed());
        outcome.map_err(|error| self.failures.push(error)).ok()
    }
}

/// Writers and readers at several servers.
struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<(Figures, Vec<String>)>>,
}

impl Load {
    fn start(servers: &[&Server], path: &str, prefix: &str) -> Self {
        let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut threads = Vec::new();
        for (index, server) in servers.iter().enumerate() {
            let client = server.admin().in_workspace(path);
            let name = format!("{prefix}-{index}");
            let (stop, acknowledged) = (Arc::clone(&stop), Arc::clone(&acknowledged));
            threads.push(std::thread::spawn(move || {
                write_until(&client, &name, &stop, &acknowledged)
            }));
        }
        Self {
            stop,
            acknowledged,
            threads,
        }
    }

    /// Waits for a number of further acknowledged writes.
    fn until_acknowledged(&self, more: usize) {
        let wanted = self.acknowledged.load(Ordering::Relaxed) + more;
        until("writes are acknowledged", || {
            (self.acknowledged.load(Ordering::Relaxed) >= wanted).then_some(())
        });
    }

    fn end(self) -> (Figures, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let (mut figures, mut names) = (Figures::default(), Vec::new());
        for thread in self.threads {
            let (more, acknowledged) = thread.join().unwrap();
            figures.add(more);
            names.extend(acknowledged);
        }
        (figures, names)
    }
}

/// Creates objects, increments a counter that nobody else writes, and reads it. Every outcome
/// except success is a failure: a conflict of the counter would mean that a write happened without
/// an acknowledgement, or twice.
fn write_until(client: &Client, name: &str, stop: &AtomicBool, acknowledged: &AtomicUsize) -> (Figures, Vec<String>) {
    let (mut figures, mut names) = (Figures::default(), Vec::new());
    let counter = format!("{MAPS}/{name}");
    let mut count = 0;
    figures.time(|| send(client, "POST", MAPS, Some(&config_map(name, 0))));
    for i in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let created = format!("{name}-{i}");
        if figures
            .time(|| send(client, "POST", MAPS, Some(&config_map(&created, 0))))
            .is_some()
        {
            names.push(created);
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
        let Some(mut read) = figures.time(|| send(client, "GET", &counter, None)) else {
            continue;
        };
        if read["data"]["count"] != *count.to_string() {
            figures
                .failures
                .push(format!("{counter}: {} instead of {count}", read["data"]["count"]));
            count = read["data"]["count"].as_str().unwrap().parse().unwrap();
        }
        read["data"]["count"] = (count + 1).to_string().into();
        if figures.time(|| send(client, "PUT", &counter, Some(&read))).is_some() {
            count += 1;
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }
    (figures, names)
}

/// Revision, type and name of the object of a watch event.
type Event = (u64, String, String);

/// Events of a watch, as (revision, type, name), until one for the object `end`.
fn record(server: &Server, path: &str, after: &str) -> JoinHandle<Vec<Event>> {
    let client = server.admin().in_workspace(path);
    let watch = format!("{MAPS}?watch=true&resourceVersion={after}");
    std::thread::spawn(move || {
        let mut events = Vec::new();
        let ended = client.watch_for(Duration::from_secs(240), &watch, &mut |event| {
            let object = &event["object"]["metadata"];
            let name = object["name"].as_str().unwrap_or_else(|| panic!("{event}")).to_owned();
            let revision = object["resourceVersion"].as_str().unwrap().parse().unwrap();
            events.push((revision, event["type"].as_str().unwrap().to_owned(), name.clone()));
            (name == "end").then_some(())
        });
        assert!(ended.is_some(), "the watch ended after {} events", events.len());
        events
    })
}

/// Starts two servers on one cluster, with a workspace that both serve.
fn two_servers(etcd: &Etcd, environment: &[(&str, &str)]) -> ([Server; 2], String) {
    let setup = Setup {
        flags: vec!["--store".into(), etcd.store()],
        environment: environment
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect(),
        ..Setup::default()
    };
    let servers = [(); 2].map(|()| Server::with(setup.clone()));
    let (path, _) = workspace(&servers[0].admin(), "cluster");
    for server in &servers {
        until("every server knows the workspace", || {
            (server.admin().in_workspace(&path).get(MAPS).code == 200).then_some(())
        });
    }
    (servers, path)
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    Kill,
    Pause,
}

/// Checks that both servers sent the same events, in order, with one creation of each acknowledged
/// object.
fn assert_events(events: &[Vec<Event>; 2], all: &BTreeSet<String>) {
    assert_eq!(events[0], events[1], "both servers tell the same");
    assert!(
        events[0].windows(2).all(|pair| pair[0].0 < pair[1].0),
        "in order, none twice"
    );
    let mut added = BTreeMap::<&str, usize>::new();
    for (_, _, name) in events[0].iter().filter(|(_, kind, _)| kind == "ADDED") {
        *added.entry(name).or_default() += 1;
    }
    assert!(
        all.iter().all(|name| added.get(name.as_str()) == Some(&1)),
        "every write is told once"
    );
}

/// Kills and pauses the leader and a member that a server uses, under load. No request fails, no
/// acknowledged write is lost or happens twice, and watches receive every event once.
#[test]
fn a_failed_etcd_member_of_three_causes_no_errors() {
    for program in etcd_programs() {
        let mut etcd = Etcd::cluster(&program, 3);
        let (servers, path) = two_servers(&etcd, &[]);
        let [one, two] = [&servers[0], &servers[1]];
        let list = one.admin().in_workspace(&path).get(MAPS).expect(200);
        let after = list["metadata"]["resourceVersion"].as_str().unwrap();
        let watches = [one, two].map(|server| record(server, &path, after));
        let (mut failures, mut all) = (Vec::new(), BTreeSet::new());
        for (round, (fault, of_leader)) in [
            (Fault::Kill, false),
            (Fault::Pause, false),
            (Fault::Kill, true),
            (Fault::Pause, true),
        ]
        .iter()
        .enumerate()
        {
            let leader = until("etcd has a leader", || etcd.leader());
            let used = until("a server uses a member", || etcd.used_by(one.pid()));
            let member = if *of_leader { leader } else { used };
            let load = Load::start(&[one, two], &path, &format!("r{round}"));
            load.until_acknowledged(ROUND_WRITES / 4);
            match fault {
                Fault::Kill => etcd.kill(member),
                Fault::Pause => etcd.pause(member),
            }
            load.until_acknowledged(ROUND_WRITES);
            let (figures, names) = load.end();
            eprintln!(
                "{}: {fault:?}, leader {of_leader}: {} of {} requests failed, the slowest took {:?}",
                program.display(),
                figures.failures.len(),
                figures.requests,
                figures.longest
            );
            failures.extend(figures.failures);
            all.extend(names);
            match fault {
                Fault::Kill => etcd.restart(member),
                Fault::Pause => etcd.resume(member),
            }
            etcd.until_whole();
        }
        assert!(
            failures.is_empty(),
            "{} failures, such as {}",
            failures.len(),
            failures[0]
        );
        one.admin()
            .in_workspace(&path)
            .post(MAPS, &config_map("end", 0))
            .expect(201);
        let events = watches.map(|watch| watch.join().unwrap());
        assert_events(&events, &all);
        for server in [one, two] {
            let list = server.admin().in_workspace(&path).get(MAPS).expect(200);
            let items = list["items"].as_array().unwrap().iter();
            let found: BTreeSet<String> = items
                .map(|map| map["metadata"]["name"].as_str().unwrap().into())
                .collect();
            assert!(all.is_subset(&found), "every acknowledged write is there");
        }
    }
}

fn code(client: &Client, method: &str, path: &str, body: Option<&Value>) -> u16 {
    let body = body.map(Value::to_string).unwrap_or_default();
    client
        .try_send(method, path, &[], body.into())
        .map_or(0, |answer| answer.code)
}

/// Without quorum servers stay alive and report that they are not ready. Writes and reads of the
/// latest state fail; reads of any state succeed. With quorum everything recovers by itself.
#[test]
fn a_lost_etcd_quorum_is_reported_and_recovers() {
    for program in etcd_programs() {
        let mut etcd = Etcd::cluster(&program, 3);
        let (servers, path) = two_servers(&etcd, &QUICK);
        let clients = [&servers[0], &servers[1]].map(|server| server.admin().in_workspace(&path));
        clients[0].post(MAPS, &config_map("before", 0)).expect(201);
        until("both are ready", || {
            servers
                .iter()
                .all(|server| server.admin().get("/readyz").code == 200)
                .then_some(())
        });
        let paused = etcd.follower();
        let killed = until("etcd has a leader", || etcd.leader());
        etcd.kill(killed);
        etcd.pause(paused);
        for server in &servers {
            let text = until("it is not ready", || {
                let answer = server.admin().get("/readyz");
                (answer.code == 503).then_some(answer.text)
            });
            assert!(text.contains("[-]etcd failed: "), "{text}");
            let anonymous = server.client(insula_e2e::Who::Anonymous).get("/readyz");
            assert!(
                anonymous.text.contains("[-]etcd failed: reason withheld"),
                "{}",
                anonymous.text
            );
            server.admin().get("/livez").expect(200);
        }
        for (index, client) in clients.iter().enumerate() {
            // The server answers whether or not it has seen the write.
            assert_eq!(code(client, "GET", &format!("{MAPS}?resourceVersion=0"), None), 200);
            let begun = Instant::now();
            let write = code(client, "POST", MAPS, Some(&config_map(&format!("lost-{index}"), 0)));
            let read = code(client, "GET", &format!("{MAPS}/before"), None);
            eprintln!(
                "{}: without quorum a write and a read took {:?}",
                program.display(),
                begun.elapsed()
            );
            assert!(matches!((write, read), (503 | 504, 503 | 504)), "{write} {read}");
        }
        for server in &servers {
            server.admin().get("/livez").expect(200);
        }
        etcd.resume(paused);
        let begun = Instant::now();
        for (server, client) in servers.iter().zip(&clients) {
            until("writes are acknowledged again", || {
                let name = format!("after-{}", begun.elapsed().as_nanos());
                (code(client, "POST", MAPS, Some(&config_map(&name, 0))) == 201).then_some(())
            });
            until("it is ready again", || {
                (server.admin().get("/readyz").code == 200).then_some(())
            });
            assert_eq!(code(client, "GET", &format!("{MAPS}/before"), None), 200);
        }
        eprintln!(
            "{}: writes and readiness {:?} after quorum",
            program.display(),
            begun.elapsed()
        );
        etcd.restart(killed);
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn saved(data: &Path) -> PathBuf {
    data.with_extension("saved")
}

fn roll_back(data: &Path) {
    std::fs::remove_dir_all(data).unwrap();
    copy(&saved(data), data);
}

/// An etcd is replaced by an older copy of itself. Servers that have seen later revisions end with
/// a message and acknowledge nothing after it: neither when the revisions are lower, nor when other
/// writes have reached the old revisions meanwhile.
#[test]
fn a_server_whose_etcd_was_rolled_back_ends() {
    for program in etcd_programs() {
        let mut etcd = Etcd::cluster(&program, 1);
        let (servers, path) = two_servers(&etcd, &[]);
        // A copy of the current state; writes continue through both servers afterwards.
        etcd.restart_all_after(|data| copy(data, &saved(data)));
        for (index, server) in servers.iter().enumerate() {
            let client = server.admin().in_workspace(&path);
            for i in 0..20 {
                let name = format!("w{index}-{i}");
                until("it is written", || {
                    matches!(code(&client, "POST", MAPS, Some(&config_map(&name, 0))), 201 | 409).then_some(())
                });
            }
        }
        let [awake, asleep] = servers;
        // The second server is stopped throughout.
        asleep.signal("-STOP");
        etcd.restart_all_after(roll_back);
        let client = awake.admin().in_workspace(&path);
        for i in 0.. {
            // The server may have ended already.
            let code = code(&client, "POST", MAPS, Some(&config_map(&format!("after-{i}"), 0)));
            assert!(code != 201, "a write was acknowledged after the rollback");
            if code == 0 || i > 1_000 {
                break;
            }
        }
        let (exit, log) = awake.wait();
        assert_eq!(exit, Some(1), "{log}");
        assert!(log.contains("etcd was replaced or rolled back"), "{log}");
        // Another server reads the current state, and writes beyond the revisions that the stopped
        // server has seen.
        let truth = Server::with_flags(&["--store", &etcd.store()]);
        let client = truth.admin().in_workspace(&path);
        let list = client.get(MAPS).expect(200);
        assert!(!list.to_string().contains("w0-1"), "what was rolled back is gone");
        for i in 0..80 {
            client.post(MAPS, &config_map(&format!("new-{i}"), 0)).expect(201);
        }
        asleep.signal("-CONT");
        let client = asleep.admin().in_workspace(&path);
        for i in 0..1_000 {
            let answer = client.try_send("GET", MAPS, &[], "".into());
            let mixed = answer.is_ok_and(|answer| answer.text.contains("w1-1\"") && answer.text.contains("new-1\""));
            assert!(!mixed, "two states in one answer");
            match code(&client, "POST", MAPS, Some(&config_map(&format!("asleep-{i}"), 0))) {
                0 => break,
                code => assert!(code != 201, "a write was acknowledged after the rollback"),
            }
        }
        let (exit, log) = asleep.wait();
        assert_eq!(exit, Some(1), "{log}");
        assert!(log.contains("etcd was replaced or rolled back"), "{log}");
    }
}
