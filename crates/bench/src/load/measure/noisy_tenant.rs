//! Fairness of conversions: reads of one tenant while lists of others are converted for the first
//! time.

use super::{Run, scale::fill_tenant, verbs::check_length};
use crate::load::{
    report::{Measured, Report},
    world,
};
use anyhow::{Context, Result};
use futures_util::future::{Either, select, try_join_all};
use http::Method;
use std::{pin::pin, time::Instant};

/// Tenants whose objects are listed once each, since no object of a list may be in the conversion
/// cache. More than the cores of a small machine.
const LISTS_MAX: usize = 4;

/// Measures reads alone, then beside concurrent lists, and the lists. The reader is tenant 0; there
/// has to be another one.
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
    // Each list has its own connection: the measurement is about the server, not about sharing a
    // connection.
    let list = |other: usize| async move {
        let client = run.client.for_streams(1).await?;
        let (begun, path) = (Instant::now(), world::widgets(other, "v2"));
        let body = client.must(Method::GET, &path, None).await?;
        check_length(&body, objects).with_context(|| path.clone())?;
        anyhow::Ok(begun.elapsed())
    };
    let count = others.len();
    let (begun, mut reads) = (Instant::now(), Measured::default());
    let mut lists = pin!(try_join_all(others.map(list)));
    let times = loop {
        let (sent, one) = (Instant::now(), pin!(read()));
        match select(one, lists.as_mut()).await {
            Either::Left((read, _)) => {
                read?;
                reads.times.push(sent.elapsed());
            }
            Either::Right((times, _)) => break times?,
        }
    };
    reads.wall = begun.elapsed();
    let lists = Measured {
        times,
        wall: reads.wall,
        cpu: None,
    };
    report.add(reads.row(
        &format!("get, beside {count} lists that are converted"),
        run.workspaces,
        1,
    ));
    let name = format!("list {objects}, converted, cold, {count} at once beside gets");
    report.add(lists.row(&name, run.workspaces, count));
    Ok(())
}
