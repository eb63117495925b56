//! Starts of the program on a store that is filled.

use super::{Run, scale};
use crate::load::{
    args::Arguments,
    client::Client,
    report::{Measured, Report, Row},
    server::Server,
    world::{self, Bodies},
};
use anyhow::Result;
use http::Method;
use std::time::Instant;

/// Starts of each server.
const STARTS: usize = 3;

/// Creates the objects, spread over all tenants that have the API.
pub(super) async fn fill(run: &Run<'_>) -> Result<()> {
    let bodies = Bodies::new("v1");
    scale::all(run.arguments.many(), run.arguments.objects(), |n| {
        let (path, object) = (world::other_widgets(n % run.bound, "v1"), bodies.named(&name(n)));
        async move { run.client.post(&path, object).await.map(drop) }
    })
    .await
}

/// Ends and starts the servers in turn: the time from the start of the process until it has
/// answered a read of an object, the most memory of all that it had, and its memory then.
pub(super) async fn starts(
    arguments: &Arguments,
    server: &mut Server,
    workspaces: usize,
    report: &mut Report,
) -> Result<()> {
    let path = format!("{}/{}", world::other_widgets(0, "v1"), name(0));
    let mut measured = Measured::default();
    let begun = Instant::now();
    for index in (0..arguments.servers()).cycle().take(arguments.servers() * STARTS) {
        let ready = server.restart(index, arguments).await?;
        let sent = Instant::now();
        let client = Client::connect(&server.kubeconfigs()[index..=index], 1).await?;
        client.must(Method::GET, &path, None).await?;
        measured.times.push(ready + sent.elapsed());
    }
    measured.wall = begun.elapsed();
    let row = measured.row("start until the first read", workspaces, 1);
    report.add(Row {
        per_second: None,
        ..row
    });
    let memory = [
        ("memory after a start, each object", server.rss()),
        ("the same at its highest", server.peak()),
    ];
    for (what, bytes) in memory {
        let count = arguments.objects() * arguments.servers();
        report.add(Row {
            what: what.to_owned(),
            workspaces,
            count,
            bytes_each: bytes.map(|bytes| bytes as f64 / count as f64),
            ..Row::default()
        });
    }
    Ok(())
}

fn name(n: usize) -> String {
    format!("restart-{n:07}")
}
