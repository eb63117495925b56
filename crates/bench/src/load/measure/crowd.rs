//! Fairness: one tenant at its pace, alone and beside another one that sends as much as it can.

use super::{Run, scale::fill_tenant};
use crate::load::{client::Client, report::Report, world};
use anyhow::{Context, Result};
use futures_util::future::join_all;
use http::Method;
use std::{
    cell::Cell,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Objects of a page that the flood asks for.
const PAGE: usize = 500;
/// Of the tenant that is measured: a few hundredths of what the server can do.
const GET_PACE: Duration = Duration::from_millis(5);
const CREATE_PACE: Duration = Duration::from_millis(20);
/// Between two looks at whether the flood is at its height.
const RISE: Duration = Duration::from_millis(50);

/// Reads and creates of tenant 0 at a fixed pace, without and with tenant 1.
pub(super) async fn beside(run: &Run<'_>, report: &mut Report) -> Result<()> {
    let (quiet, loud) = (0, 1);
    if run.bound <= loud {
        eprintln!("  a crowd needs another workspace: --workspaces 5");
        return Ok(());
    }
    let path = world::widgets(quiet, "v1");
    let bodies = world::Bodies::new("v1");
    run.client.post(&path, bodies.named("crowded")).await?;
    fill_tenant(run, loud).await?;
    let clients = run.arguments.many();
    // A connection of its own: what is measured is the server, and not how answers share a connection.
    let client = run.client.for_streams(1).await?;
    let one = format!("{path}/crowded");
    for (round, beside) in ["nothing beside it", "beside a flood", "nothing beside it again"]
        .into_iter()
        .enumerate()
    {
        let flood = match round {
            1 => {
                let flood = Flood::start(run, loud, clients)?;
                while flood.answered() < clients && !flood.thread.is_finished() {
                    tokio::time::sleep(RISE).await;
                }
                Some(flood)
            }
            _ => None,
        };
        let count = run.arguments.requests() / 5;
        let gets = run
            .open_loop(GET_PACE, count, |_| async {
                client.must(Method::GET, &one, None).await.map(drop)
            })
            .await?;
        report.add(gets.row(&format!("get, {beside}"), run.workspaces, 1));
        let creates = run
            .open_loop(CREATE_PACE, count / 4, |n| {
                let (path, object) = (&path, bodies.named(&format!("crowd-{round}-{n:07}")));
                let client = &client;
                async move { client.post(path, object).await.map(drop) }
            })
            .await?;
        report.add(creates.row(&format!("create, {beside}"), run.workspaces, 1));
        if let Some(flood) = flood {
            let (done, refused) = flood.stop()?;
            eprintln!("  the flood: {done} requests answered, {refused} told to come again later");
        }
    }
    Ok(())
}

/// Clients of one tenant on a thread of their own, so that whoever is measured does not wait for them on this side.
struct Flood {
    stop: Arc<AtomicBool>,
    counts: Arc<[AtomicUsize; 2]>,
    thread: JoinHandle<Result<()>>,
}

impl Flood {
    fn start(run: &Run<'_>, tenant: usize, clients: usize) -> Result<Self> {
        let (stop, counts) = (Arc::new(AtomicBool::new(false)), Arc::<[AtomicUsize; 2]>::default());
        let (ends, counted) = (stop.clone(), counts.clone());
        let (kubeconfig, connections) = (run.server.kubeconfig().to_owned(), run.arguments.connections);
        let thread = std::thread::Builder::new().name("flood".into()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(flood(kubeconfig, connections, tenant, clients, &ends, &counted))
        })?;
        Ok(Flood { stop, counts, thread })
    }

    fn answered(&self) -> usize {
        self.counts[0].load(Ordering::Relaxed)
    }

    fn stop(self) -> Result<(usize, usize)> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().ok().context("the flood panicked")??;
        let [done, refused] = &*self.counts;
        Ok((done.load(Ordering::Relaxed), refused.load(Ordering::Relaxed)))
    }
}

/// Half of the clients read pages, half of them create.
async fn flood(
    kubeconfig: PathBuf,
    connections: usize,
    tenant: usize,
    clients: usize,
    stop: &AtomicBool,
    counts: &[AtomicUsize; 2],
) -> Result<()> {
    let client = Client::connect(&kubeconfig, connections).await?;
    let (path, bodies, next) = (world::widgets(tenant, "v1"), world::Bodies::new("v1"), Cell::new(0));
    let (page, client, bodies, next, path) = (&format!("{path}?limit={PAGE}"), &client, &bodies, &next, &path);
    let one = |number: usize| async move {
        while !stop.load(Ordering::Relaxed) {
            let sent = match number % 2 {
                0 => client.send(Method::GET, page, None).await,
                _ => {
                    next.set(next.get() + 1);
                    let object = bodies.named(&format!("flood-{:08}", next.get()));
                    client.send(Method::POST, path, Some(object)).await
                }
            };
            if sent.is_err() {
                return;
            }
            counts[0].fetch_add(1, Ordering::Relaxed);
            counts[1].store(client.refused(), Ordering::Relaxed);
        }
    };
    join_all((0..clients).map(one)).await;
    Ok(())
}
