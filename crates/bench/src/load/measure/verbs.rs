//! Create, get and list, in the stored and in the other version.

use super::Run;
use crate::load::{
    report::Report,
    world::{self, Bodies},
};
use anyhow::{Context, Error, Result};
use bytes::Bytes;
use http::Method;
use insula_store_etcd::baseline::Puts;

/// Lists of one measurement.
const LISTS: usize = 200;
const PAGES: usize = 2_000;
const PAGE: usize = 500;

/// Versions with their names in results.
const VERSIONS: [(&str, &str); 2] = [("v1", "stored version"), ("v2", "converted")];

/// Creates in the stored version at every number of clients, and in the other one at the largest.
pub(super) async fn create(run: &Run<'_>, report: &mut Report) -> Result<()> {
    if let Some(endpoint) = run.arguments.etcd() {
        put(run, report, &endpoint).await.context("putting into etcd")?;
    }
    let many = run.arguments.many();
    let stored = run
        .arguments
        .clients()
        .into_iter()
        .map(|clients| (clients, VERSIONS[0]));
    for (clients, (version, name)) in stored.chain([(many, VERSIONS[1])]) {
        let requests = run.arguments.requests();
        let count = if clients == 1 { requests / 5 } else { requests };
        let bodies = Bodies::new(version);
        let measured = run
            .closed_loop(clients, count, |n| {
                let path = world::other_widgets(n % run.bound, version);
                let object = bodies.named(&format!("{version}-{clients}-{n:07}"));
                async move { run.client.post(&path, object).await.map(drop) }
            })
            .await?;
        report.add(measured.row(&format!("create, {name}"), run.workspaces, clients));
    }
    Ok(())
}

/// Puts the bytes of the same objects into etcd itself, without a server.
async fn put(run: &Run<'_>, report: &mut Report, endpoint: &str) -> Result<()> {
    let puts = Puts::connect(endpoint).await.map_err(Error::msg)?;
    let bodies = Bodies::new(VERSIONS[0].0);
    for clients in run.arguments.clients() {
        let requests = run.arguments.requests();
        let count = if clients == 1 { requests / 5 } else { requests };
        let measured = run
            .closed_loop(clients, count, |n| {
                let name = format!("{clients}-{n:07}");
                let put = (puts.clone(), bodies.named(&name).to_vec());
                async move { put.0.put(&name, put.1).await.map_err(Error::msg) }
            })
            .await?;
        report.add(measured.row("etcd itself, put", run.workspaces, clients));
    }
    Ok(())
}

/// Returns the name of object `n` of those for lists.
pub(super) fn listed(n: usize) -> String {
    format!("listed-{n:07}")
}

/// Reads of one object.
pub(super) async fn get(run: &Run<'_>, report: &mut Report) -> Result<()> {
    let objects = run.arguments.objects();
    for (version, name) in VERSIONS {
        for clients in [1, run.arguments.many()] {
            let count = if clients == 1 {
                run.arguments.requests() / 4
            } else {
                run.arguments.requests()
            };
            let path = world::widgets(0, version);
            let measured = run
                .closed_loop(clients, count, |n| {
                    // A prime step visits objects in an order that no cache favours.
                    let path = format!("{path}/{}", listed(n.wrapping_mul(7_919) % objects));
                    async move { run.client.must(Method::GET, &path, None).await.map(drop) }
                })
                .await?;
            report.add(measured.row(&format!("get, {name}"), run.workspaces, clients));
        }
    }
    Ok(())
}

/// Measures full lists and pages, one at a time. In the other version no object is in the
/// conversion cache.
pub(super) async fn list(run: &Run<'_>, report: &mut Report) -> Result<()> {
    let objects = run.arguments.objects();
    for (version, name) in VERSIONS {
        let path = world::widgets(0, version);
        let all = || async {
            let body = run.client.must(Method::GET, &path, None).await?;
            check_length(&body, objects)
        };
        if version != "v1" {
            let measured = run.closed_loop(1, 1, |_| all()).await?;
            report.add(measured.row(&format!("list {objects}, {name}, cold"), run.workspaces, 1));
        }
        let measured = run.closed_loop(1, LISTS, |_| all()).await?;
        let warm = if version != "v1" { ", warm" } else { "" };
        report.add(measured.row(&format!("list {objects}, {name}{warm}"), run.workspaces, 1));

        let page = format!("{path}?limit={PAGE}");
        let measured = run
            .closed_loop(1, PAGES, |_| async {
                let body = run.client.must(Method::GET, &page, None).await?;
                check_length(&body, PAGE.min(objects))
            })
            .await?;
        report.add(measured.row(&format!("page of {PAGE}, {name}{warm}"), run.workspaces, 1));
    }
    Ok(())
}

/// Checks the length of a list: 2 kB for each object, and 1.1 kB for its managed fields. Objects
/// are not parsed, since that would take CPU time of the client.
pub(super) fn check_length(body: &Bytes, objects: usize) -> Result<()> {
    let fits = (objects * 2_000..objects * 4_000 + 1_000).contains(&body.len());
    fits.then_some(())
        .with_context(|| format!("{} bytes are no list of {objects}", body.len()))
}
