//! Fairness: reads of one tenant while lists of others are converted for the first time.

use super::{Run, scale::fill_tenant, verbs::check_length};
use crate::load::{
    report::{Measured, Report},
    world,
};
use anyhow::{Context, Result};
use futures_util::future::{Either, select};
use http::Method;
use std::{pin::pin, time::Instant};

/// Tenants whose objects are listed, each once: nothing of a list may have been converted before.
const LISTS_MAX: usize = 4;

/// Reads alone, then beside one list after the other, and the lists. The reader is tenant 0; it needs another one beside it.
pub(super) async fn reads(run: &Run<'_>, report: &mut Report) -> Result<()> {
    let (reader, others) = (0, 1..run.bound.min(1 + LISTS_MAX));
    if others.is_empty() {
        eprintln!("  reads beside lists need another workspace: --workspaces 5");
        return Ok(());
    }
    let path = world::widgets(reader, "v1");
    let body = world::Bodies::new("v1").named("read");
    run.client.post(&path, body).await?;
    for other in others.clone() {
        fill_tenant(run, other).await?;
    }
    let path = format!("{path}/read");
    let read = || async { run.client.must(Method::GET, &path, None).await.map(drop) };
    let alone = run.closed_loop(1, run.arguments.requests() / 4, |_| read()).await?;
    report.add(alone.row("get, nothing beside it", run.workspaces, 1));

    let objects = run.arguments.objects();
    let (mut reads, mut lists) = (Measured::default(), Measured::default());
    for other in others {
        // A connection of its own: what is measured is the server, and not how two answers share a connection.
        let client = run.client.for_streams(1).await?;
        let (begun, path) = (Instant::now(), world::widgets(other, "v2"));
        let mut list = pin!(client.must(Method::GET, &path, None));
        loop {
            let (sent, one) = (Instant::now(), pin!(read()));
            match select(one, list.as_mut()).await {
                Either::Left((read, _)) => {
                    read?;
                    reads.times.push(sent.elapsed());
                }
                Either::Right((page, _)) => {
                    check_length(&page?, objects).with_context(|| path.clone())?;
                    break;
                }
            }
        }
        lists.times.push(begun.elapsed());
        reads.wall += begun.elapsed();
        lists.wall += begun.elapsed();
    }
    report.add(reads.row("get, beside a list that is converted", run.workspaces, 1));
    report.add(lists.row(
        &format!("list {objects}, converted, cold, beside gets"),
        run.workspaces,
        1,
    ));
    Ok(())
}
