//! Create, get and list, in the stored and in the other version.

use super::Run;
use crate::{
    fixtures::{MOVES, widget},
    load::{report::Report, world},
};
use anyhow::{Context, Result};
use bytes::Bytes;
use http::Method;

/// Lists of one measurement.
const LISTS: usize = 20;
const PAGES: usize = 200;
const PAGE: usize = 500;

/// A version and what it is called in results.
const VERSIONS: [(&str, usize, &str); 2] = [("v1", 0, "stored version"), ("v2", MOVES, "converted")];

/// Creates in the stored version at every number of clients, and in the other one at the largest.
pub(super) async fn create(run: &Run<'_>, report: &mut Report) -> Result<()> {
    for clients in run.arguments.clients() {
        let name = format!("create, {}", VERSIONS[0].2);
        let count = if clients == 1 {
            run.arguments.requests() / 5
        } else {
            run.arguments.requests()
        };
        let measured = run
            .closed_loop(clients, count, |n| one(run, format!("c{clients}-{n:07}"), ("v1", 0), n))
            .await?;
        report.add(measured.row(&name, run.workspaces, clients));
    }
    let clients = run.arguments.many();
    let measured = run
        .closed_loop(clients, run.arguments.requests(), |n| {
            one(run, format!("conv-{n:07}"), ("v2", MOVES), n)
        })
        .await?;
    report.add(measured.row("create, converted", run.workspaces, clients));
    Ok(())
}

async fn one(run: &Run<'_>, name: String, (version, moved): (&str, usize), n: usize) -> Result<()> {
    let object = widget(&name, version, moved);
    // Tenant 0 holds the objects that lists are made of, unless it is the only one.
    let tenant = if run.bound > 1 { 1 + n % (run.bound - 1) } else { 0 };
    run.client
        .create(&world::widgets(tenant, version), &object)
        .await
        .map(drop)
}

/// The name of object `n` of those that lists are made of.
pub(super) fn listed(n: usize) -> String {
    format!("listed-{n:07}")
}

/// Reads of one object.
pub(super) async fn get(run: &Run<'_>, report: &mut Report) -> Result<()> {
    let objects = run.arguments.objects();
    for (version, _, name) in VERSIONS {
        for clients in [1, run.arguments.many()] {
            let count = if clients == 1 {
                run.arguments.requests() / 4
            } else {
                run.arguments.requests()
            };
            let path = world::widgets(0, version);
            let measured = run
                .closed_loop(clients, count, |n| {
                    // Steps of a prime visit objects in no order that a cache would like.
                    let path = format!("{path}/{}", listed(n.wrapping_mul(7_919) % objects));
                    async move { run.client.must(Method::GET, &path, None).await.map(drop) }
                })
                .await?;
            report.add(measured.row(&format!("get, {name}"), run.workspaces, clients));
        }
    }
    Ok(())
}

/// Lists of everything and pages, one at a time. In the other version nothing has been converted before.
pub(super) async fn list(run: &Run<'_>, report: &mut Report) -> Result<()> {
    let objects = run.arguments.objects();
    for (version, moved, name) in VERSIONS {
        let path = world::widgets(0, version);
        let all = || async {
            let body = run.client.must(Method::GET, &path, None).await?;
            check_length(&body, objects)
        };
        if moved > 0 {
            let measured = run.closed_loop(1, 1, |_| all()).await?;
            report.add(measured.row(&format!("list {objects}, {name}, cold"), run.workspaces, 1));
        }
        let measured = run.closed_loop(1, LISTS, |_| all()).await?;
        let warm = if moved > 0 { ", warm" } else { "" };
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

/// A list that is too short was not the list that is measured. Objects are counted without parsing: that is the client's time.
fn check_length(body: &Bytes, objects: usize) -> Result<()> {
    let least = objects * 2_000;
    (body.len() >= least)
        .then_some(())
        .with_context(|| format!("{} bytes are no list of {objects}", body.len()))
}
