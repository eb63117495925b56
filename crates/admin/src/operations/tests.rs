use super::{record::key, *};
use insula_api::{Clock, Rng, Timestamp};
use insula_store::MemoryStore;
use serde_json::json;
use std::{
    sync::atomic::{AtomicI64, AtomicUsize, Ordering},
    time::Duration,
};

/// A clock that is set by hand.
#[derive(Default)]
struct Hand(AtomicI64);

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

struct Counter(AtomicI64);

impl Rng for Counter {
    fn fill(&self, buffer: &mut [u8]) {
        let number = self.0.fetch_add(1, Ordering::SeqCst).to_le_bytes();
        buffer.iter_mut().zip(number).for_each(|(to, from)| *to = from);
    }
}

/// A job that ends as its input says.
struct Scripted {
    kind: &'static str,
    resumes: bool,
    runs: Arc<AtomicUsize>,
}

impl Job for Scripted {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn resumes(&self, _input: &Json) -> bool {
        self.resumes
    }

    fn run(&self, running: Running) -> BoxFuture<'static, Result<Json, Failure>> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            running.progress(1, 2, "half");
            match running.record.input["end"].as_str() {
                Some("panic") => panic!("on purpose"),
                Some("fail") => Err(Failure::new(Code::NotFound, "gone")),
                Some("wait") => {
                    running.cancelled().await;
                    Err(Failure::cancelled())
                }
                _ => Ok(json!({"attempt": running.record.attempt})),
            }
        })
    }
}

struct Servers {
    registry: Arc<Deps>,
    clock: Arc<Hand>,
    runs: Arc<AtomicUsize>,
}

impl Servers {
    fn new() -> Self {
        let clock = Arc::new(Hand::default());
        let registry = Deps::new(
            Arc::new(MemoryStore::new()),
            clock.clone(),
            Arc::new(Counter(AtomicI64::new(1))),
            String::new(),
        );
        Servers {
            registry: Arc::new(registry),
            clock,
            runs: Arc::default(),
        }
    }

    fn server(&self, is_alone: bool) -> Arc<Operations> {
        let job = |kind, resumes| -> Arc<dyn Job> {
            let runs = Arc::clone(&self.runs);
            Arc::new(Scripted { kind, resumes, runs })
        };
        let jobs = vec![job("Once", false), job("Again", true)];
        Arc::new(Operations::new(Arc::clone(&self.registry), jobs, is_alone))
    }

    async fn put(&self, name: &str, kind: &str, holder: &str, input: Json) {
        let record = Record {
            kind: kind.to_owned(),
            workspace: String::new(),
            cluster: String::new(),
            user: User::from(&UserInfo::authenticated("alice", "1", Vec::new())),
            input,
            is_cancellable: true,
            cancel_requested: false,
            created: 0,
            updated: 0,
            holder: holder.to_owned(),
            attempt: 1,
            progress: Progress::default(),
            outcome: None,
        };
        let key = key(name);
        let write = Write::Put(key.clone(), Arc::new(record.write(name)));
        let txn = Txn::one(Guard::Absent(key), write);
        self.registry.store.commit(txn).await.expect("a commit");
    }
}

/// Runs servers until `work` is done.
async fn while_running<T>(servers: &[&Arc<Operations>], work: impl Future<Output = T>) -> T {
    let running = servers.iter().map(|server| Arc::clone(server).run());
    tokio::select! {
        _ = futures_util::future::join_all(running) => unreachable!("servers run for ever"),
        done = work => done,
    }
}

async fn ended(server: &Operations, name: &str) -> Arc<Record> {
    let waited = server.wait(name, Duration::from_secs(60)).await;
    waited.expect("an operation").1
}

fn reason(record: &Record) -> &str {
    match &record.outcome {
        Some(Outcome::Error { reason, .. }) => reason,
        _ => "",
    }
}

#[tokio::test]
async fn operations_end_with_their_result_or_the_reason() {
    let all = Servers::new();
    let server = all.server(true);
    for (name, end) in [("done", ""), ("failed", "fail"), ("panicked", "panic")] {
        all.put(name, "Once", server.holder(), json!({"end": end})).await;
    }
    all.put("unknown", "Nothing", server.holder(), json!({})).await;
    while_running(&[&server], async {
        let done = ended(&server, "done").await;
        assert_eq!(done.outcome, Some(Outcome::Result(json!({"attempt": 1}))));
        assert_eq!((done.progress.done, &*done.progress.text), (1, "half"));
        for (name, want) in [("failed", "Failed"), ("panicked", "Panicked"), ("unknown", "Failed")] {
            assert_eq!(reason(&*ended(&server, name).await), want, "{name}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_server_that_starts_resumes_or_ends_what_it_finds() {
    let all = Servers::new();
    all.put("again", "Again", "gone", json!({})).await;
    all.put("once", "Once", "gone", json!({})).await;
    let server = all.server(true);
    while_running(&[&server], async {
        let again = ended(&server, "again").await;
        assert_eq!(again.outcome, Some(Outcome::Result(json!({"attempt": 2}))));
        assert_eq!(reason(&*ended(&server, "once").await), "Interrupted");
    })
    .await;
    assert_eq!(all.runs.load(Ordering::SeqCst), 1, "what is not resumed does not run");
}

#[tokio::test]
async fn one_of_several_servers_takes_over_after_the_lease() {
    let all = Servers::new();
    all.put("again", "Again", "gone", json!({})).await;
    let servers = [all.server(false), all.server(false)];
    while_running(&[&servers[0], &servers[1]], async {
        let early = servers[0].wait("again", Duration::from_millis(2_500)).await;
        assert_eq!(early.expect("an operation").1.outcome, None, "its server may be alive");
        let lease = i64::try_from(LEASE_SECONDS).expect("a number");
        all.clock.0.fetch_add(lease + 1, Ordering::SeqCst);
        let done = ended(&servers[0], "again").await;
        assert_eq!(done.outcome, Some(Outcome::Result(json!({"attempt": 2}))));
    })
    .await;
    assert_eq!(all.runs.load(Ordering::SeqCst), 1, "one server runs it");
}

#[tokio::test]
async fn operations_are_cancelled_once_and_deleted_when_they_are_done() {
    let all = Servers::new();
    let server = all.server(true);
    all.put("long", "Once", server.holder(), json!({"end": "wait"})).await;
    while_running(&[&server], async {
        assert_eq!(
            server.delete("long", false).await.expect_err("it runs").code(),
            Code::FailedPrecondition
        );
        server.cancel("long", true).await.expect("a check");
        server.cancel("long", false).await.expect("a request to end");
        assert_eq!(reason(&*ended(&server, "long").await), "Cancelled");
        server.cancel("long", false).await.expect("it has ended");
        server.delete("long", false).await.expect("it is done");
        let gone = server.cancel("long", false).await.expect_err("it is gone");
        assert_eq!(gone.code(), Code::NotFound);
    })
    .await;
}
