//! Fairness: one tenant at its pace, alone and beside another one that sends as much as it can.

use super::{Run, scale::fill_tenant};
use crate::load::{
    flood::{self, Flood},
    report::Report,
    world,
};
use anyhow::Result;
use http::Method;
use std::time::Duration;

/// Of the tenant that is measured: a few hundredths of what the server can do.
const GET_PACE: Duration = Duration::from_millis(5);
const CREATE_PACE: Duration = Duration::from_millis(20);
/// Until the flood is at its height.
const RISE: Duration = Duration::from_secs(2);

/// Reads and creates of tenant 0 at a fixed pace, without and with tenant 1.
pub(super) async fn beside(run: &Run<'_>, report: &mut Report) -> Result<()> {
    const QUIET: usize = 0;
    if run.bound <= flood::TENANT {
        eprintln!("  a crowd needs another workspace: --workspaces 5");
        return Ok(());
    }
    let path = world::widgets(QUIET, "v1");
    let bodies = world::Bodies::new("v1");
    run.client.post(&path, bodies.named("crowded")).await?;
    fill_tenant(run, flood::TENANT).await?;
    // A connection of its own: what is measured is the server, and not how answers share a connection.
    let client = run.client.for_streams(1).await?;
    let one = format!("{path}/crowded");
    for (round, beside) in ["nothing beside it", "beside a flood", "nothing beside it again"]
        .into_iter()
        .enumerate()
    {
        let flood = match round {
            1 => {
                let flood = Flood::start(run.server.kubeconfig(), run.arguments)?;
                tokio::time::sleep(RISE).await;
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
            flood.stop()?;
        }
    }
    Ok(())
}
