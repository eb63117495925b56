//! Fan-out: the time from one write until the last of many watchers receives it.

use super::{Run, scale::revision};
use crate::load::{
    client::Client,
    lines,
    report::{Measured, Report},
    world,
};
use anyhow::{Context, Result, bail};
use std::{
    cell::Cell,
    rc::Rc,
    time::{Duration, Instant},
};
use tokio::{sync::Notify, task::LocalSet};

/// Writes of one measurement.
const ROUNDS: usize = 100;
const ROUND_MAX: Duration = Duration::from_secs(20);

/// Number of events that all watchers have received together.
#[derive(Default)]
struct Seen {
    events: Cell<usize>,
    wanted: Cell<usize>,
    reached: Notify,
}

/// Measures with all watchers on the stored version, then with half of them on the other one.
pub(super) async fn fan_out(run: &Run<'_>, report: &mut Report) -> Result<()> {
    for (versions, name) in [(&["v1"][..], "one version"), (&["v1", "v2"][..], "two versions")] {
        let local = LocalSet::new();
        let measured = local.run_until(rounds(run, versions)).await?;
        let watchers = run.arguments.watchers();
        report.add(measured.row(
            &format!("watch, last of {watchers} watchers, {name}"),
            run.workspaces,
            watchers,
        ));
    }
    Ok(())
}

async fn rounds(run: &Run<'_>, versions: &[&str]) -> Result<Measured> {
    let watchers = run.arguments.watchers();
    let client = run.client.for_streams(watchers).await?;
    let seen = Rc::new(Seen::default());
    open(run, &client, versions, &seen).await?;
    let (path, bodies) = (world::widgets(0, "v1"), world::Bodies::new("v1"));
    let mut measured = Measured::default();
    let (begun, cpu) = (Instant::now(), run.server.cpu());
    for round in 0..ROUNDS {
        if begun.elapsed() > run.arguments.time() {
            break;
        }
        seen.wanted.set((round + 1) * watchers);
        let object = bodies.named(&format!("w{}-{round:07}", versions.len()));
        let sent = Instant::now();
        run.client.post(&path, object).await?;
        let reached = async {
            while seen.events.get() < seen.wanted.get() {
                seen.reached.notified().await;
            }
        };
        if tokio::time::timeout(ROUND_MAX, reached).await.is_err() {
            bail!("round {round}: {} of {} events", seen.events.get(), seen.wanted.get());
        }
        measured.times.push(sent.elapsed());
    }
    measured.wall = begun.elapsed();
    measured.cpu = run
        .server
        .cpu()
        .zip(cpu)
        .map(|(after, before)| after.saturating_sub(before));
    Ok(measured)
}

/// Opens the watches, alternating between the versions, and counts their lines.
async fn open(run: &Run<'_>, client: &Client, versions: &[&str], seen: &Rc<Seen>) -> Result<()> {
    for n in 0..run.arguments.watchers() {
        // Not `n % versions`: connections alternate, too, and would each carry one version only.
        let path = world::widgets(0, versions[n / client.connections() % versions.len()]);
        let from = revision(run, &path).await?;
        let mut body = client
            .stream(&format!("{path}?watch=true&resourceVersion={from}"))
            .await?;
        let seen = seen.clone();
        tokio::task::spawn_local(async move {
            while let Some(piece) = lines::piece(&mut body).await.context("the watch broke")? {
                let count = piece.iter().filter(|byte| **byte == b'\n').count();
                seen.events.set(seen.events.get() + count);
                if seen.events.get() >= seen.wanted.get() {
                    seen.reached.notify_one();
                }
            }
            anyhow::Ok(())
        });
    }
    Ok(())
}
