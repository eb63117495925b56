//! Histories of requests to servers that are killed again and again, checked as those of the
//! simulation are: what was acknowledged happened, what was refused did not, and a read is not
//! older than what was acknowledged before it was sent.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
};

use insula_api::{ClusterName, ObjectKey, ResourceId, Revision};
use insula_e2e::{Answer, Client, Etcd, Server, until, workspace};
use insula_sim::{client::Effect, history::History};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CLIENTS: usize = 16;
const OBJECTS: usize = 6;
const ROUNDS: usize = 20;
/// Answers after which the server of a round is killed, and more in each round.
const ANSWERS: usize = 60;

/// A request with its answer, in the order of one counter.
struct Told {
    write: u64,
    sent: u64,
    answered: u64,
    effects: Vec<Effect>,
    /// Objects that it showed, with their revisions and marks.
    shown: Vec<(ObjectKey, Revision, String)>,
}

#[derive(Default)]
struct Clients {
    counter: AtomicU64,
    answers: AtomicUsize,
    told: Mutex<Vec<Told>>,
}

fn key(name: &str) -> ObjectKey {
    ObjectKey {
        resource: ResourceId::local("", "configmaps"),
        cluster: ClusterName::root(),
        namespace: "default".into(),
        name: name.into(),
    }
}

fn revision(object: &Value) -> Revision {
    let text = object["metadata"]["resourceVersion"].as_str().unwrap();
    Revision(text.parse().unwrap())
}

fn shown(object: &Value) -> (ObjectKey, Revision, String) {
    let name = object["metadata"]["name"].as_str().unwrap();
    let mark = object["data"]["mark"].as_str().unwrap_or_default();
    (key(name), revision(object), mark.to_owned())
}

impl Clients {
    fn count(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::SeqCst)
    }

    /// Sends a request. Returns nothing once the server is gone.
    fn send(&self, (client, method, path): (&Client, &str, &str), body: &impl Fn(&str) -> Value) -> Option<Answer> {
        let (write, sent) = (self.count(), self.count());
        let mark = format!("history/{write}");
        let body = match method {
            "GET" => String::new(),
            _ => body(&mark).to_string(),
        };
        let kind = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let answer = client.try_send(method, path, &[("content-type", kind)], body.into());
        let answered = self.count();
        self.answers.fetch_add(1, Ordering::SeqCst);
        let (effects, shown) = match &answer {
            Ok(answer) if answer.code == 200 && method == "GET" => listed(&answer.body),
            Ok(answer) if answer.code == 200 => {
                let written = shown(&answer.body);
                assert_eq!(written.2, mark);
                (vec![Effect::Wrote(written.0.clone(), written.1)], vec![written])
            }
            Ok(answer) if [409, 429].contains(&answer.code) => (vec![Effect::Refused(answer.text.clone())], Vec::new()),
            // A server that is being killed or that starts cannot tell.
            Ok(answer) if answer.code >= 500 => (vec![Effect::Unknown], Vec::new()),
            Ok(answer) => panic!("{method} {path}: {} {}", answer.code, answer.text),
            Err(_) => (vec![Effect::Unknown], Vec::new()),
        };
        self.told.lock().unwrap().push(Told {
            write,
            sent,
            answered,
            effects,
            shown,
        });
        answer.ok()
    }

    /// Sends requests until the server is gone.
    fn work(&self, client: &Client, number: usize) {
        for n in number.. {
            let name = format!("m{}", n % OBJECTS);
            let path = format!("{MAPS}/{name}");
            let read = self.send((client, "GET", MAPS), &|_| Value::Null);
            let Some(read) = read else { return };
            let is_there = match n % 3 {
                0 => Some(()),
                1 => self
                    .send((client, "PATCH", &path), &|mark| json!({"data": {"mark": mark}}))
                    .map(drop),
                _ => {
                    let items = read.body["items"].as_array().into_iter().flatten();
                    let found = items.into_iter().find(|item| item["metadata"]["name"] == *name);
                    let Some(found) = found else { continue };
                    // Refused if another one wrote meanwhile.
                    let put = |mark: &str| {
                        let mut new = found.clone();
                        new["data"]["mark"] = mark.into();
                        new
                    };
                    self.send((client, "PUT", &path), &put).map(drop)
                }
            };
            if is_there.is_none() {
                return;
            }
        }
    }

    /// Runs all clients until a number of answers, and then kills the server.
    fn round(&self, server: &mut Server, at: &str, answers: usize) {
        let client = server.admin().in_workspace(at);
        let before = self.answers.load(Ordering::SeqCst);
        thread::scope(|scope| {
            for number in 0..CLIENTS {
                let client = client.clone();
                scope.spawn(move || self.work(&client, number));
            }
            let answered = || self.answers.load(Ordering::SeqCst) >= before + answers;
            until("so many answers have come", || answered().then_some(()));
            server.kill9();
        });
    }
}

/// Returns what a list shows: the revision of each object in the state that it was read from.
fn listed(list: &Value) -> (Vec<Effect>, Vec<(ObjectKey, Revision, String)>) {
    let at = revision(list);
    let items = list["items"].as_array().into_iter().flatten();
    let is_ours = |item: &&Value| item["data"]["mark"].is_string();
    let shown: Vec<_> = items.into_iter().filter(is_ours).map(shown).collect();
    let known: BTreeMap<&ObjectKey, Revision> = shown.iter().map(|(key, at, _)| (key, *at)).collect();
    let all = (0..OBJECTS).map(|n| key(&format!("m{n}")));
    let saw = all.map(|key| {
        let found = known.get(&key).copied();
        Effect::Saw(key, at, found)
    });
    (saw.collect(), shown)
}

/// Checks everything that clients were told.
fn check(told: &[Told]) -> Result<[usize; 4], String> {
    let mut history = History::default();
    for (key, revision, mark) in told.iter().flat_map(|told| &told.shown) {
        history.observed(key, *revision, mark)?;
    }
    let sent = told.iter().map(|told| (told.sent, told, true));
    let answered = told.iter().map(|told| (told.answered, told, false));
    let mut events: Vec<_> = sent.chain(answered).collect();
    events.sort_by_key(|(at, ..)| *at);
    let (mut known, mut counts) = (BTreeMap::new(), [0; 4]);
    for (_, told, is_sent) in events {
        if is_sent {
            known.insert(told.write, history.acknowledged());
            continue;
        }
        let known = known.remove(&told.write).unwrap_or_default();
        for effect in &told.effects {
            history.reported(told.write, &known, effect)?;
        }
        counts[match told.effects.first() {
            Some(Effect::Wrote(..)) => 0,
            Some(Effect::Refused(_)) => 2,
            Some(Effect::Unknown) => 3,
            _ => 1,
        }] += 1;
    }
    history.check_refused()?;
    Ok(counts)
}

fn kill_again_and_again(mut server: Server) {
    let (at, _) = workspace(&server.admin(), "history");
    let clients = Clients::default();
    let client = server.admin().in_workspace(&at);
    for n in 0..OBJECTS {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{n}")},
            "data": {"mark": format!("history/first-{n}")}});
        client.post(MAPS, &map).expect(201);
    }
    for round in 0..ROUNDS {
        clients.round(&mut server, &at, ANSWERS + 13 * round);
        server = server.restart();
    }
    let client = server.admin().in_workspace(&at);
    clients
        .send((&client, "GET", MAPS), &|_| Value::Null)
        .expect("it is there");
    let told = clients.told.into_inner().unwrap();
    let counts = check(&told).unwrap_or_else(|why| panic!("{why}"));
    eprintln!(
        "{} requests: {counts:?} wrote, read, were refused, are unknown",
        told.len()
    );
    assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
}

#[test]
fn kills_break_no_history_on_the_embedded_store() {
    kill_again_and_again(Server::start());
}

#[test]
fn kills_break_no_history_on_etcd() {
    let Some(etcd) = Etcd::start() else { return };
    kill_again_and_again(Server::with_flags(&["--store", &etcd.store()]));
}

/// Each promise, broken in a history of two requests.
#[test]
fn a_broken_history_is_noticed() {
    let wrote = |at: u64| Effect::Wrote(key("m0"), Revision(at));
    let saw = |at: u64, found: Option<u64>| Effect::Saw(key("m0"), Revision(at), found.map(Revision));
    let shown = |at: u64, write: u64| vec![(key("m0"), Revision(at), format!("history/{write}"))];
    let told = |write: u64, effect: Effect, shown| Told {
        write,
        sent: 10 * write,
        answered: 10 * write + 5,
        effects: vec![effect],
        shown,
    };
    let refused = || Effect::Refused("no".to_owned());
    let histories = [
        // As it is meant.
        (
            vec![told(1, wrote(7), shown(7, 1)), told(2, saw(9, Some(7)), shown(7, 1))],
            true,
        ),
        // An acknowledged write is not there.
        (
            vec![told(1, wrote(7), shown(7, 1)), told(2, saw(9, None), vec![])],
            false,
        ),
        // A read is older than what was acknowledged before it.
        (
            vec![told(1, wrote(7), shown(7, 1)), told(2, saw(6, None), vec![])],
            false,
        ),
        // A refused write is there.
        (
            vec![told(1, refused(), vec![]), told(2, saw(9, Some(7)), shown(7, 1))],
            false,
        ),
        // Two values of one revision.
        (
            vec![told(1, wrote(7), shown(7, 1)), told(2, saw(9, Some(7)), shown(7, 3))],
            false,
        ),
    ];
    for (n, (history, holds)) in histories.iter().enumerate() {
        assert_eq!(check(history).is_ok(), *holds, "{n}: {:?}", check(history));
    }
}
