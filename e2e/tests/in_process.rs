//! The scripts of `e2e/scripts` against the parts of the server in this process: the edge, the API
//! server, the registry over a store in memory, and all controllers, without a port or a program.
//!
//! `INSULA_SCRIPTS` chooses scripts by a part of their names, such as `kinds/life`. Steps that run
//! kubectl are skipped; the tests of the program run them.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use insula_e2e::{
    AnswerBody, Client, ControlPlane, InProcess, Kubectl, Who, run_script_on, runtime, scripts_on_disk, write_tokens,
};
use insula_server::{
    Additions, Config, Env, Portless,
    config::{StoreChoice, Workspaces},
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use tempfile::TempDir;

/// Scripts that do not run here, each with the reason. Their number is written out, so that one
/// more is a decision.
const OTHERS: [(&str, &str); 9] = [
    ("access/accounts", MADE_BY_KUBECTL),
    ("kubectl/apply", KUBECTL),
    ("kubectl/bound", KUBECTL),
    ("kubectl/flows", KUBECTL),
    ("kubectl/kinds", KUBECTL),
    ("serving/corners", MADE_BY_KUBECTL),
    ("serving/verbs", MADE_BY_KUBECTL),
    ("thirdparty/kubectl", KUBECTL),
    ("views/kubectl", KUBECTL),
];

const KUBECTL: &str = "its steps run kubectl, which needs a port";
const MADE_BY_KUBECTL: &str = "its requests are about objects that kubectl makes, which needs a port";

/// Scripts that run at once. Most of their time they wait for controllers.
const AT_ONCE: usize = 8;

/// A server in this process.
struct Served {
    server: Portless,
    kcp_admin: Vec<CertificateDer<'static>>,
    shard_admin: Vec<CertificateDer<'static>>,
}

impl InProcess for Served {
    fn answer(self: Arc<Self>, who: Who, request: Request<Full<Bytes>>) -> BoxFuture<'static, Response<AnswerBody>> {
        Box::pin(async move {
            let chain = match who {
                Who::KcpAdmin => &self.kcp_admin[..],
                Who::ShardAdmin => &self.shard_admin[..],
                Who::Token(_) | Who::Anonymous => &[],
            };
            let response = self.server.answer(chain, request).await;
            response.map(|body| body.map_err(|error| error.to_string()).boxed_unsync())
        })
    }
}

/// The control plane of a test, with the users of [`insula_e2e::Server`].
struct TestControlPlane {
    served: Arc<Served>,
    // Last, so that the folder outlives the server.
    _dir: TempDir,
}

impl TestControlPlane {
    fn start() -> Self {
        let dir = TempDir::with_prefix("insula-in-process-").unwrap();
        let config = Config {
            data_dir: dir.path().join("data"),
            store: StoreChoice::Memory,
            token_file: Some(write_tokens(dir.path())),
            workspaces: Workspaces {
                // As in the tests of the program.
                metering_seconds: 0,
                ..Workspaces::default()
            },
            ..Config::default()
        };
        let chain = |name: &str| {
            let certificates = CertificateDer::pem_file_iter(dir.path().join(format!("data/pki/{name}.crt"))).unwrap();
            certificates.map(Result::unwrap).collect()
        };
        let started = Portless::start(config, Env::real(), Additions::default(), &|_| ());
        let server = runtime().block_on(started).unwrap();
        let served = Served {
            server,
            kcp_admin: chain("kcp-admin"),
            shard_admin: chain("shard-admin"),
        };
        TestControlPlane {
            served: Arc::new(served),
            _dir: dir,
        }
    }

    fn end(self) {
        // A watch of a script that failed may still hold it.
        if let Some(served) = Arc::into_inner(self.served) {
            runtime().block_on(served.server.shutdown());
        }
    }
}

impl ControlPlane for TestControlPlane {
    fn client(&self, who: Who) -> Client {
        let server: Arc<dyn InProcess> = Arc::clone(&self.served) as _;
        Client::in_process(server, self.url(), who)
    }

    fn url(&self) -> &str {
        self.served.server.url()
    }

    fn kubectl(&self) -> Option<Kubectl> {
        // It needs a port.
        None
    }

    fn log(&self) -> String {
        // Tests of one process share a log, and none of them reads it.
        String::new()
    }
}

/// Runs scripts, some at once. Returns the names of those that failed.
fn failures(plane: &TestControlPlane, scripts: &[String]) -> BTreeSet<String> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut failed = Vec::new();
        while let Some(script) = scripts.get(next.fetch_add(1, Ordering::Relaxed)) {
            // A panic shows the name of its thread.
            let run = std::thread::scope(|scope| {
                let named = std::thread::Builder::new().name(script.clone());
                named
                    .spawn_scoped(scope, || run_script_on(plane, script))
                    .unwrap()
                    .join()
            });
            if run.is_err() {
                failed.push(script.clone());
            }
        }
        failed
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

/// Returns the scripts that run here, the long ones first.
fn scripts() -> Vec<String> {
    let mut scripts = scripts_on_disk();
    for (other, reason) in OTHERS {
        let at = scripts.iter().position(|script| script == other);
        let at = at.unwrap_or_else(|| panic!("there is no script {other}, which does not run here: {reason}"));
        scripts.remove(at);
        assert!(
            text_of(other).contains("\nkubectl "),
            "{other} runs no kubectl: it may run here"
        );
    }
    scripts.sort_by_key(|script| std::cmp::Reverse(text_of(script).len()));
    scripts
}

fn text_of(script: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts");
    std::fs::read_to_string(format!("{folder}/{script}.txt")).unwrap()
}

#[test]
fn scripts_hold_in_the_process() {
    let mut scripts = scripts();
    if let Ok(part) = std::env::var("INSULA_SCRIPTS") {
        scripts.retain(|script| script.contains(&part));
        assert!(
            !scripts.is_empty(),
            "INSULA_SCRIPTS: no script has `{part}` in its name"
        );
    }
    let plane = TestControlPlane::start();
    let failed = failures(&plane, &scripts);
    plane.end();
    assert!(
        failed.is_empty(),
        "{} of {} scripts failed: {failed:#?}",
        failed.len(),
        scripts.len()
    );
}
