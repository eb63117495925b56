//! Fairness under contention: one tenant at a fixed pace, beside another one that sends as fast as
//! it can.
//!
//! On a small machine a flood slows everything down by the CPU time of its client and of the
//! kernel, whatever the server does. So there are three measurements: alone, beside the same flood
//! of *another* server on the same machine, and beside a flood of this server. The difference of
//! the last two is the influence that tenants of one server have on each other. The three alternate
//! in rounds, forwards and backwards, and ratios compare measurements of one round: the speed of a
//! machine changes over minutes.

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

/// Pace of the measured tenant: a few percent of the capacity of the server.
const GET_PACE: Duration = Duration::from_millis(5);
const CREATE_PACE: Duration = Duration::from_millis(20);
/// Time until the flood is at its peak, and until it is over.
const RISE: Duration = Duration::from_secs(2);
/// Number of the measured tenant.
const QUIET: usize = 0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    OtherServer,
    Flood,
}

impl Beside {
    const ALL: [Self; 3] = [Self::Nothing, Self::OtherServer, Self::Flood];

    fn label(self) -> &'static str {
        match self {
            Self::Nothing => "nothing beside it",
            Self::OtherServer => "beside a flood of another server",
            Self::Flood => "beside a flood",
        }
    }
}

/// Measurements of one trial.
struct Trial {
    beside: Beside,
    gets: Measured,
    creates: Measured,
}

/// Measures reads and creates of one tenant at a fixed pace, in each situation.
pub(super) async fn beside(run: &Run<'_>, report: &mut Report) -> Result<()> {
    if run.bound <= flood::OTHER {
        eprintln!("  contention needs other workspaces: --workspaces 5");
        return Ok(());
    }
    run.client
        .post(&world::widgets(QUIET, "v1"), world::Bodies::new("v1").named("paced"))
        .await?;
    fill_tenant(run, flood::TENANT).await?;
    // A running server in the arguments is the only one that can be used.
    let other = match run.arguments.server {
        Some(_) => None,
        None => Some(other_server(run).await.context("another server")?),
    };
    // A separate connection: the measurement is about the server, not about sharing a connection.
    let client = run.client.for_streams(1).await?;
    let mut trials = Vec::new();
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
            let flood = flooded.map(|server| Flood::start(&server.kubeconfigs()[0], run.arguments));
            let flood = flood.transpose()?;
            tokio::time::sleep(RISE).await;
            let (gets, creates) = paced(run, &client, trials.len()).await?;
            if let Some(flood) = flood {
                flood.stop()?;
            }
            eprintln!(
                "  trial {}, {}: slowest get {:?}, create {:?}",
                trials.len() + 1,
                beside.label(),
                gets.slowest(),
                creates.slowest(),
            );
            trials.push(Trial { beside, gets, creates });
        }
    }
    for (what, times) in [
        ("get", (|trial| &trial.gets) as fn(&Trial) -> &Measured),
        ("create", |trial| &trial.creates),
    ] {
        let trials_of = |beside: Beside| trials.iter().filter(move |trial| trial.beside == beside).map(times);
        let measured = Beside::ALL
            .into_iter()
            .filter(|beside| trials_of(*beside).next().is_some());
        for beside in measured.clone() {
            let mut row =
                Measured::all(trials_of(beside)).row(&format!("{what}, {}", beside.label()), run.workspaces, 1);
            for before in measured.clone().take_while(|before| *before != beside) {
                row.compare(trials_of(beside).zip(trials_of(before)));
            }
            report.add(row);
        }
    }
    Ok(())
}

/// Runs reads and creates at once, as a tenant would.
async fn paced(run: &Run<'_>, client: &Client, trial: usize) -> Result<(Measured, Measured)> {
    let (path, bodies) = (world::widgets(QUIET, "v1"), world::Bodies::new("v1"));
    let one = format!("{path}/paced");
    let count = run.arguments.requests();
    let gets = run.open_loop(GET_PACE, count, |_| async {
        client.must(Method::GET, &one, None).await.map(drop)
    });
    let creates = run.open_loop(CREATE_PACE, count, |n| {
        let (path, object) = (&path, bodies.named(&format!("paced-{trial}-{n:07}")));
        async move { client.post(path, object).await.map(drop) }
    });
    try_join(gets, creates).await
}

/// Starts a server with the same tenants and objects as this one.
async fn other_server(run: &Run<'_>) -> Result<Server> {
    let server = Server::start(run.arguments).await?;
    let tenants = flood::OTHER + 1;
    let other = Run {
        arguments: run.arguments,
        server: &server,
        client: Client::connect(server.kubeconfigs(), run.arguments.connections).await?,
        workspaces: tenants,
        bound: tenants,
        filled: RefCell::default(),
    };
    world::provide(&other.client, !run.arguments.moves_only).await?;
    // The creation of tenants is measured elsewhere.
    let discarded = &mut Report::default();
    scale::workspaces(&other, discarded).await?;
    scale::bind(&other, discarded).await?;
    fill_tenant(&other, flood::TENANT).await?;
    Ok(server)
}
