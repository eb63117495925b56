//! Scale: creation of workspaces and bindings, and the memory that they and objects take.

use super::{Run, verbs::listed};
use crate::load::{
    args::Measurement,
    lines::Lines,
    report::{Measured, Report, Row},
    world,
};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::{
    cell::RefCell,
    collections::HashMap,
    time::{Duration, Instant},
};

/// Time in which a server frees temporary memory.
const SETTLE: Duration = Duration::from_millis(500);
/// Time without any progress after which a measurement fails.
const SILENCE_MAX: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
struct Event {
    object: Workspace,
}

#[derive(Deserialize)]
struct Workspace {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Deserialize, Default)]
struct Status {
    #[serde(default)]
    phase: String,
}

/// Creates all workspaces under `root`, with the largest number of clients, and watches until each
/// is Ready.
pub(super) async fn workspaces(run: &Run<'_>, report: &mut Report) -> Result<()> {
    let clients = run.arguments.many();
    let before = settled_memory(run).await;
    let revision = revision(run, world::WORKSPACES).await?;
    let watcher = run.client.for_streams(1).await?;
    let path = format!("{}?watch=true&resourceVersion={revision}", world::WORKSPACES);
    let mut lines = Lines::new(watcher.stream(&path).await?);

    let sent = RefCell::new(HashMap::with_capacity(run.workspaces));
    let (begun, cpu) = (Instant::now(), run.server.cpu());
    let create = |n: usize| {
        let name = world::tenant(n);
        sent.borrow_mut().insert(name.clone(), Instant::now());
        async move {
            run.client
                .create(world::WORKSPACES, &world::workspace(&name))
                .await
                .map(drop)
        }
    };
    let ready = async {
        let mut times = Vec::with_capacity(run.workspaces);
        while times.len() < run.workspaces {
            let next = tokio::time::timeout(SILENCE_MAX, lines.next()).await;
            let next = next.with_context(|| format!("{} of {} are Ready", times.len(), run.workspaces))?;
            for line in next?.context("the watch ended")? {
                let event: Event = serde_json::from_slice(&line).context("an event")?;
                if event.object.status.phase == "Ready"
                    && let Some(sent) = sent.borrow_mut().remove(&event.object.metadata.name)
                {
                    times.push(sent.elapsed());
                }
            }
        }
        anyhow::Ok(times)
    };
    let made = futures_util::future::try_join(all(clients, run.workspaces, create), ready).await?;
    let wall = begun.elapsed();
    let cpu = run
        .server
        .cpu()
        .zip(cpu)
        .map(|(after, before)| after.saturating_sub(before));
    if run.arguments.wants(Measurement::Workspaces) {
        let measured = Measured {
            times: made.1,
            wall,
            cpu,
        };
        report.add(measured.row("workspace, create until Ready", run.workspaces, clients));
    }
    if run.arguments.wants(Measurement::Memory) {
        memory(run, report, "memory, empty workspace", run.workspaces, before).await;
    }
    Ok(())
}

/// Runs operations like `closed_loop`, but without a time limit: other measurements depend on their
/// results.
pub(super) async fn all<F, T>(clients: usize, count: usize, operation: F) -> Result<()>
where
    F: Fn(usize) -> T,
    T: Future<Output = Result<()>>,
{
    let next = std::cell::Cell::new(0);
    let client = || async {
        while next.get() < count {
            operation(next.replace(next.get() + 1)).await?;
        }
        anyhow::Ok(())
    };
    futures_util::future::try_join_all((0..clients).map(|_| client()))
        .await
        .map(drop)
}

/// Returns the revision of a list, at which a watch begins.
pub(super) async fn revision(run: &Run<'_>, path: &str) -> Result<String> {
    let list = run.client.get(&format!("{path}?limit=1")).await?;
    let revision = list["metadata"]["resourceVersion"].as_str();
    revision
        .map(str::to_owned)
        .with_context(|| format!("{path} has no resourceVersion"))
}

/// Binds the API in all tenants that other measurements use: one at a time, then several at once.
pub(super) async fn bind(run: &Run<'_>, report: &mut Report) -> Result<()> {
    let alone = run.bound.div_ceil(2);
    for (clients, first, last) in [(1, 0, alone), (run.arguments.many(), alone, run.bound)] {
        if first == last {
            continue;
        }
        let measured = run
            .closed_loop(clients, last - first, |n| world::bind(&run.client, first + n))
            .await?;
        if measured.times.len() < last - first {
            bail!(
                "{} of {} bindings in {:?}",
                measured.times.len(),
                last - first,
                measured.wall
            );
        }
        if run.arguments.wants(Measurement::Bind) {
            report.add(measured.row("bind until served", run.workspaces, clients));
        }
    }
    Ok(())
}

/// Writes the objects for lists into the first tenant.
pub(super) async fn fill(run: &Run<'_>, report: &mut Report) -> Result<()> {
    let before = settled_memory(run).await;
    fill_tenant(run, 0).await?;
    let objects = run.arguments.objects();
    if run.arguments.wants(Measurement::Memory) {
        memory(run, report, "memory, object of 2 kB", objects, before).await;
    }
    Ok(())
}

/// Writes the objects for lists into a tenant, unless another measurement did.
pub(super) async fn fill_tenant(run: &Run<'_>, tenant: usize) -> Result<()> {
    if !run.filled.borrow_mut().insert(tenant) {
        return Ok(());
    }
    let objects = run.arguments.objects();
    let (path, bodies) = (world::widgets(tenant, "v1"), world::Bodies::new("v1"));
    let clients = run.arguments.many();
    all(clients, objects, |n| {
        let (path, object) = (&path, bodies.named(&listed(n)));
        async move { run.client.post(path, object).await.map(drop) }
    })
    .await
}

async fn settled_memory(run: &Run<'_>) -> Option<u64> {
    tokio::time::sleep(SETTLE).await;
    run.server.rss()
}

/// Reports the growth of the resident memory of the server for each of `count` items.
async fn memory(run: &Run<'_>, report: &mut Report, what: &str, count: usize, before: Option<u64>) {
    let Some((after, before)) = settled_memory(run).await.zip(before) else {
        return;
    };
    let grown = after as f64 - before as f64;
    report.add(Row {
        what: what.to_owned(),
        workspaces: run.workspaces,
        count,
        bytes_each: Some(grown / count as f64),
        ..Row::default()
    });
}
