//! Measurements, one after the other on one server.

mod contention;
mod noisy_tenant;
mod outage;
mod restart;
mod scale;
mod verbs;
mod watch;

use super::{
    args::{Arguments, Measurement},
    client::Client,
    report::{Measured, Report},
    server::Server,
    world,
};
use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    time::{Duration, Instant},
};

/// Maximum number of tenants that bind the API: requests are spread over them; other workspaces are
/// idle.
const BOUND_MAX: usize = 200;

/// State that all measurements share.
struct Run<'a> {
    arguments: &'a Arguments,
    server: &'a Server,
    client: Client,
    workspaces: usize,
    bound: usize,
    /// Tenants that have the objects for lists already: several measurements need them.
    filled: RefCell<BTreeSet<usize>>,
}

/// Fills a fresh server with workspaces and runs the requested measurements.
pub(super) async fn everything(
    arguments: &Arguments,
    server: &mut Server,
    workspaces: usize,
    report: &mut Report,
) -> Result<()> {
    loads(arguments, server, workspaces, report).await?;
    if arguments.wants(Measurement::Restart) && arguments.server.is_none() {
        restart::starts(arguments, server, workspaces, report)
            .await
            .context("starting again")?;
    }
    if arguments.wants(Measurement::Outage) && arguments.server.is_none() {
        outage::creates(arguments, server, workspaces, report)
            .await
            .context("with a server away")?;
    }
    Ok(())
}

async fn loads(arguments: &Arguments, server: &Server, workspaces: usize, report: &mut Report) -> Result<()> {
    let client = Client::connect(server.kubeconfigs(), arguments.connections).await?;
    let run = Run {
        arguments,
        server,
        client,
        workspaces,
        bound: workspaces.min(BOUND_MAX),
        filled: RefCell::default(),
    };
    world::provide(&run.client, !arguments.moves_only)
        .await
        .context("exporting the API")?;
    scale::workspaces(&run, report).await.context("making workspaces")?;
    scale::bind(&run, report).await.context("binding")?;
    if arguments.wants(Measurement::Create) {
        verbs::create(&run, report).await.context("creating")?;
    }
    if [Measurement::Get, Measurement::List, Measurement::Memory]
        .into_iter()
        .any(|measurement| arguments.wants(measurement))
    {
        scale::fill(&run, report).await.context("filling")?;
    }
    if arguments.wants(Measurement::List) {
        verbs::list(&run, report).await.context("listing")?;
    }
    if arguments.wants(Measurement::Get) {
        verbs::get(&run, report).await.context("reading")?;
    }
    if arguments.wants(Measurement::NoisyTenant) {
        noisy_tenant::reads(&run, report)
            .await
            .context("reading beside lists")?;
    }
    if arguments.wants(Measurement::Contention) {
        contention::beside(&run, report).await.context("beside a flood")?;
    }
    if arguments.wants(Measurement::Watch) {
        watch::fan_out(&run, report).await.context("watching")?;
    }
    if arguments.wants(Measurement::Restart) {
        restart::fill(&run).await.context("filling")?;
    }
    Ok(())
}

impl Run<'_> {
    /// Runs operations that begin at a fixed pace, even if earlier ones have not ended. One after
    /// the other would put less load on a slow server, and hide how slow it is.
    async fn open_loop<F, T>(&self, pace: Duration, count: usize, operation: F) -> Result<Measured>
    where
        F: Fn(usize) -> T,
        T: Future<Output = Result<()>>,
    {
        let count = count.min((self.arguments.time().as_micros() / pace.as_micros().max(1)) as usize);
        let (begun, cpu) = (tokio::time::Instant::now(), self.server.cpu());
        let times = try_join_all((0..count).map(|n| {
            let (due, operation) = (begun + pace * u32::try_from(n).unwrap_or(u32::MAX), &operation);
            async move {
                tokio::time::sleep_until(due).await;
                // Measured from the send, not from the due time: timers have a resolution of
                // milliseconds.
                let sent = Instant::now();
                operation(n).await?;
                Ok::<_, anyhow::Error>(sent.elapsed())
            }
        }))
        .await?;
        Ok(self.measured(times, begun.into_std(), cpu))
    }

    /// Runs `clients` clients, each with one operation in flight, until `count` operations are done
    /// or the time is over.
    async fn closed_loop<F, T>(&self, clients: usize, count: usize, operation: F) -> Result<Measured>
    where
        F: Fn(usize) -> T,
        T: Future<Output = Result<()>>,
    {
        let limit = self.arguments.time();
        let (next, times) = (Cell::new(0), RefCell::new(Vec::with_capacity(count)));
        let (begun, cpu) = (Instant::now(), self.server.cpu());
        let client = || async {
            while next.get() < count && begun.elapsed() < limit {
                let n = next.replace(next.get() + 1);
                let sent = Instant::now();
                operation(n).await?;
                times.borrow_mut().push(sent.elapsed());
            }
            Ok::<(), anyhow::Error>(())
        };
        try_join_all((0..clients).map(|_| client())).await?;
        Ok(self.measured(times.into_inner(), begun, cpu))
    }

    /// Returns the times of operations since `begun`, with the elapsed time and the CPU time of the
    /// server.
    fn measured(&self, times: Vec<Duration>, begun: Instant, cpu: Option<Duration>) -> Measured {
        let now = self.server.cpu();
        Measured {
            times,
            wall: begun.elapsed(),
            cpu: now.zip(cpu).map(|(after, before)| after.saturating_sub(before)),
        }
    }
}
