//! Fairness: one tenant at its pace, beside another one that sends as much as it can.
//!
//! On a small machine a flood disturbs everybody by what its client and the kernel compute,
//! whatever the server does. So it is measured beside three things: nothing, the same flood of
//! *another* server on the same machine, and the flood of this one. What the last adds to the
//! second is what tenants of one server do to each other. The three take turns, there and back, and
//! ratios are of one turn each: a machine is not the same for minutes.

use super::{
    Run,
    scale::{self, fill_tenant},
};
use crate::load::{
    client::Client,
    flood::{self, Flood},
    report::{Measured, Report},
    server::Server,
    world,
};
use anyhow::{Context, Result};
use futures_util::future::try_join;
use http::Method;
use std::{cell::RefCell, time::Duration};

/// Of the tenant that is measured: a few hundredths of what the server can do.
const GET_PACE: Duration = Duration::from_millis(5);
const CREATE_PACE: Duration = Duration::from_millis(20);
/// Until the flood is at its height, and until nothing is left of it.
const RISE: Duration = Duration::from_secs(2);
/// Whose requests are measured.
const QUIET: usize = 0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    OtherServer,
    Flood,
}

impl Beside {
    const ALL: [Self; 3] = [Self::Nothing, Self::OtherServer, Self::Flood];

    fn said(self) -> &'static str {
        match self {
            Self::Nothing => "nothing beside it",
            Self::OtherServer => "beside a flood of another server",
            Self::Flood => "beside a flood",
        }
    }
}

/// What was measured in one turn.
struct Turn {
    beside: Beside,
    gets: Measured,
    creates: Measured,
}

/// Reads and creates of one tenant at a fixed pace, beside everything that they are compared with.
pub(super) async fn beside(run: &Run<'_>, report: &mut Report) -> Result<()> {
    if run.bound <= flood::OTHER {
        eprintln!("  a crowd needs other workspaces: --workspaces 5");
        return Ok(());
    }
    run.client
        .post(&world::widgets(QUIET, "v1"), world::Bodies::new("v1").named("crowded"))
        .await?;
    fill_tenant(run, flood::TENANT).await?;
    // Somebody else's server is the only one that we know.
    let other = match run.arguments.server {
        Some(_) => None,
        None => Some(other_server(run).await.context("another server")?),
    };
    // A connection of its own: what is measured is the server, and not how answers share a
    // connection.
    let client = run.client.for_streams(1).await?;
    let mut turns = Vec::new();
    for round in 0..run.arguments.rounds() {
        let mut order = Beside::ALL;
        if round % 2 == 1 {
            order.reverse();
        }
        for beside in order {
            let flooded = match beside {
                Beside::Nothing => None,
                Beside::OtherServer => match &other {
                    Some(other) => Some(other),
                    None => continue,
                },
                Beside::Flood => Some(run.server),
            };
            let flood = flooded.map(|server| Flood::start(server.kubeconfig(), run.arguments));
            let flood = flood.transpose()?;
            tokio::time::sleep(RISE).await;
            let (gets, creates) = paced(run, &client, turns.len()).await?;
            if let Some(flood) = flood {
                flood.stop()?;
            }
            eprintln!(
                "  turn {}, {}: slowest get {:?}, create {:?}",
                turns.len() + 1,
                beside.said(),
                gets.slowest(),
                creates.slowest(),
            );
            turns.push(Turn { beside, gets, creates });
        }
    }
    for (what, times) in [
        ("get", (|turn| &turn.gets) as fn(&Turn) -> &Measured),
        ("create", |turn| &turn.creates),
    ] {
        let of = |beside: Beside| turns.iter().filter(move |turn| turn.beside == beside).map(times);
        let measured = Beside::ALL.into_iter().filter(|beside| of(*beside).next().is_some());
        for beside in measured.clone() {
            let mut row = Measured::all(of(beside)).row(&format!("{what}, {}", beside.said()), run.workspaces, 1);
            for before in measured.clone().take_while(|before| *before != beside) {
                row.compare(of(beside).zip(of(before)));
            }
            report.add(row);
        }
    }
    Ok(())
}

/// Both at once, as a tenant would.
async fn paced(run: &Run<'_>, client: &Client, turn: usize) -> Result<(Measured, Measured)> {
    let (path, bodies) = (world::widgets(QUIET, "v1"), world::Bodies::new("v1"));
    let one = format!("{path}/crowded");
    let count = run.arguments.requests();
    let gets = run.open_loop(GET_PACE, count, |_| async {
        client.must(Method::GET, &one, None).await.map(drop)
    });
    let creates = run.open_loop(CREATE_PACE, count, |n| {
        let (path, object) = (&path, bodies.named(&format!("crowd-{turn}-{n:07}")));
        async move { client.post(path, object).await.map(drop) }
    });
    try_join(gets, creates).await
}

/// A server with the same tenants and objects as this one.
async fn other_server(run: &Run<'_>) -> Result<Server> {
    let server = Server::start(run.arguments).await?;
    let tenants = flood::OTHER + 1;
    let other = Run {
        arguments: run.arguments,
        server: &server,
        client: Client::connect(server.kubeconfig(), run.arguments.connections).await?,
        workspaces: tenants,
        bound: tenants,
        filled: RefCell::default(),
    };
    world::provide(&other.client, !run.arguments.moves_only).await?;
    // What making it takes has been measured.
    let unheard = &mut Report::default();
    scale::workspaces(&other, unheard).await?;
    scale::bind(&other, unheard).await?;
    fill_tenant(&other, flood::TENANT).await?;
    Ok(server)
}
