//! Servers on one etcd of which one is ended and started again, or stands still.
//!
//! Each client keeps to one server, as behind a balancer that notices nothing: what the others are
//! spared and what those of the server wait for are rows of their own.

use crate::load::{
    args::Arguments,
    client::Client,
    report::{Measured, Report},
    server::Server,
    world::{self, Bodies},
};
use anyhow::{Result, ensure};
use futures_util::future::{try_join, try_join_all};
use std::{
    cell::{Cell, RefCell},
    path::PathBuf,
    time::{Duration, Instant},
};

/// The server that is away.
const AWAY: usize = 0;
/// Pause before the next attempt to reach a server that is away.
const AGAIN: Duration = Duration::from_millis(20);
/// Workspaces that are made beside a server that stands still, one after the other at each of the
/// other servers.
const WORKSPACES: usize = 30;
/// Beginning of the names of the objects.
const PREFIX: &str = "outage-";

/// Creates with a server ended and started, and with one that stands still for the time of a
/// measurement; then counts the objects through each server.
pub(super) async fn creates(
    arguments: &Arguments,
    server: &mut Server,
    workspaces: usize,
    report: &mut Report,
) -> Result<()> {
    if arguments.servers() < 2 {
        eprintln!("  outage needs other servers: --store etcd://HOST:PORT --servers 3");
        return Ok(());
    }
    let load = Load {
        kubeconfigs: server.kubeconfigs().to_vec(),
        clients: arguments.many().div_ceil(arguments.servers()),
        acknowledged: Cell::new(0),
        bodies: Bodies::new("v1"),
    };
    let time = arguments.time();
    let all = load
        .run("all", || async {
            tokio::time::sleep(time).await;
            Ok(())
        })
        .await?;
    report.add(
        all.at_servers(|_| true)
            .row("create, all servers", workspaces, load.in_flight()),
    );
    let ended = load.run("ended", || async {
        tokio::time::sleep(time / 4).await;
        server.restart(AWAY, arguments).await?;
        tokio::time::sleep(time / 4).await;
        Ok(())
    });
    let ended = ended.await?;
    let ready = RefCell::new(Measured::default());
    let frozen = load.run("frozen", || async {
        server.signal(AWAY, "STOP")?;
        let made = try_join(workspaces_elsewhere(&load, &ready), async {
            tokio::time::sleep(time).await;
            Ok(())
        });
        // It goes on whatever came of the others.
        let made = made.await;
        server.signal(AWAY, "CONT")?;
        made.map(drop)
    });
    let frozen = frozen.await?;
    for (what, times) in [("ended and started", &ended), ("standing still", &frozen)] {
        for (whose, away) in [("other servers", false), ("that server", true)] {
            let measured = times.at_servers(|server| (server == AWAY) == away);
            eprintln!(
                "  one server {what}: the slowest create at {whose} took {:?}",
                measured.slowest()
            );
            report.add(measured.row(&format!("create at {whose}, one {what}"), workspaces, load.in_flight()));
        }
    }
    let ready = ready.into_inner();
    eprintln!(
        "  one server standing still: the slowest workspace took {:?}",
        ready.slowest()
    );
    report.add(ready.row(
        "workspace until Ready, one standing still",
        workspaces,
        arguments.servers() - 1,
    ));
    load.count().await
}

/// Clients that create objects in the first tenant.
struct Load {
    kubeconfigs: Vec<PathBuf>,
    /// Clients of each server.
    clients: usize,
    acknowledged: Cell<usize>,
    bodies: Bodies,
}

/// Times of creates, with the server that each was sent to, and the time of all.
struct Times {
    each: Vec<(usize, Duration)>,
    wall: Duration,
}

impl Times {
    fn at_servers(&self, server: impl Fn(usize) -> bool) -> Measured {
        let chosen = self.each.iter().filter(|(index, _)| server(*index));
        Measured {
            times: chosen.map(|(_, time)| *time).collect(),
            wall: self.wall,
            cpu: None,
        }
    }
}

impl Load {
    fn in_flight(&self) -> usize {
        self.clients * self.kubeconfigs.len()
    }

    /// Creates objects while something happens; the requests that are under way then are answered.
    async fn run<F: Future<Output = Result<()>>>(&self, phase: &str, happens: impl FnOnce() -> F) -> Result<Times> {
        let (over, each, begun) = (Cell::new(false), RefCell::new(Vec::new()), Instant::now());
        let clients = (0..self.in_flight()).map(|number| {
            let (over, each) = (&over, &each);
            async move {
                let server = number % self.kubeconfigs.len();
                let mut client = None;
                for n in 0.. {
                    if over.get() {
                        break;
                    }
                    let sent = Instant::now();
                    self.create(&mut client, server, &format!("{PREFIX}{phase}-{number}-{n:06}"))
                        .await?;
                    each.borrow_mut().push((server, sent.elapsed()));
                }
                Ok(())
            }
        });
        let happens = async {
            let result = happens().await;
            over.set(true);
            result
        };
        try_join(try_join_all(clients), happens).await?;
        Ok(Times {
            each: each.into_inner(),
            wall: begun.elapsed(),
        })
    }

    /// Reads through each server that what was acknowledged is there, and no more.
    async fn count(&self) -> Result<()> {
        for kubeconfig in &self.kubeconfigs {
            let client = Client::connect(std::slice::from_ref(kubeconfig), 1).await?;
            let list = client.get(&world::other_widgets(0, "v1")).await?;
            let names = list["items"].as_array().into_iter().flatten();
            let names = names.filter_map(|item| item["metadata"]["name"].as_str());
            let found = names.filter(|name| name.starts_with(PREFIX)).count();
            let wanted = self.acknowledged.get();
            ensure!(
                found == wanted,
                "{wanted} creates were acknowledged, and {found} objects are there"
            );
        }
        Ok(())
    }

    /// Creates an object, over a new connection to its server after an old one has ended. An answer
    /// that was lost with its connection is found in the object.
    async fn create(&self, client: &mut Option<Client>, server: usize, name: &str) -> Result<()> {
        let path = world::other_widgets(0, "v1");
        loop {
            if client.is_none() {
                // The address of a server that was started again is in its kubeconfig then.
                *client = Client::connect(&self.kubeconfigs[server..=server], 1).await.ok();
            }
            let Some(connected) = client.as_ref() else {
                tokio::time::sleep(AGAIN).await;
                continue;
            };
            let object = self.bodies.named(name);
            match connected.send(http::Method::POST, &path, Some(object)).await {
                Ok((code, _)) if code.is_success() || code == http::StatusCode::CONFLICT => break,
                // It drains, or its connection is gone.
                Ok((http::StatusCode::SERVICE_UNAVAILABLE, _)) | Err(_) => *client = None,
                Ok((code, answer)) => anyhow::bail!("{path}: {code} {}", String::from_utf8_lossy(&answer)),
            }
        }
        self.acknowledged.set(self.acknowledged.get() + 1);
        Ok(())
    }
}

/// Makes workspaces at the servers that are not away.
async fn workspaces_elsewhere(load: &Load, ready: &RefCell<Measured>) -> Result<()> {
    let begun = Instant::now();
    let servers = load.kubeconfigs.iter().enumerate().filter(|(index, _)| *index != AWAY);
    try_join_all(servers.map(|(index, kubeconfig)| async move {
        let client = Client::connect(std::slice::from_ref(kubeconfig), 1).await?;
        for n in 0..WORKSPACES {
            let (name, sent) = (format!("beside-{index}-{n:03}"), Instant::now());
            client.create(world::WORKSPACES, &world::workspace(&name)).await?;
            world::wait_ready(&client, &name).await?;
            ready.borrow_mut().times.push(sent.elapsed());
        }
        Ok::<_, anyhow::Error>(())
    }))
    .await?;
    ready.borrow_mut().wall = begun.elapsed();
    Ok(())
}
