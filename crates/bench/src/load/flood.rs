//! A flooding tenant: a process of the lowest priority that sends requests as fast as it can. It
//! simulates other machines, so that the measured client must not wait for it.

use super::{args::Arguments, client::Client, world};
use anyhow::{Context, Result, ensure};
use futures_util::future::{try_join, try_join_all};
use http::Method;
use std::{
    cell::Cell,
    io,
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// Number of the tenant that floods.
pub(super) const TENANT: usize = 1;
/// Number of a tenant that sends a request periodically, so that there is always contention.
pub(super) const OTHER: usize = 2;
const OTHER_PACE: Duration = Duration::from_millis(100);
/// Objects of a requested page.
const PAGE: usize = 500;

/// Set when standard input ends.
static OVER: AtomicBool = AtomicBool::new(false);

/// The process of the flood.
pub(super) struct Flood(Child);

impl Flood {
    /// Starts the process.
    pub(super) fn start(kubeconfig: &Path, arguments: &Arguments) -> Result<Self> {
        let process = Command::new("chrt")
            .args(["--idle", "0"])
            .arg(std::env::current_exe().context("which program this is")?)
            .args(["flood", "--server"])
            .arg(kubeconfig)
            .args(["--clients", &arguments.many().to_string()])
            .args(["--connections", &arguments.connections.to_string()])
            .stdin(Stdio::piped())
            .spawn();
        Ok(Flood(process.context("no process for the flood")?))
    }

    /// Ends the process, and waits for its report.
    pub(super) fn stop(mut self) -> Result<()> {
        drop(self.0.stdin.take());
        let ended = self.0.wait()?;
        ensure!(ended.success(), "the flood: {ended}");
        Ok(())
    }
}

/// Sends until standard input ends: half of the clients read pages, half of them create.
pub(super) async fn send(arguments: &Arguments) -> Result<()> {
    let kubeconfig = arguments.server.as_deref().context("a flood needs --server")?;
    let client = Client::connect(&[kubeconfig], arguments.connections).await?;
    std::thread::spawn(|| {
        // An error ends the flood, too.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        OVER.store(true, Ordering::Relaxed);
    });
    let (path, bodies) = (world::widgets(TENANT, "v1"), world::Bodies::new("v1"));
    let (page, answered, begun) = (format!("{path}?limit={PAGE}"), Cell::new(0_usize), Instant::now());
    let (path, page, bodies, client, count) = (&path, &page, &bodies, &client, &answered);
    let one = |number: usize| async move {
        while !OVER.load(Ordering::Relaxed) {
            match number % 2 {
                0 => client.send(Method::GET, page, None).await?,
                _ => {
                    // Names with the id of this process, since an earlier flood may have left
                    // objects.
                    let name = format!("flood-{}-{:08}", std::process::id(), count.get());
                    client.send(Method::POST, path, Some(bodies.named(&name))).await?
                }
            };
            count.set(count.get() + 1);
        }
        anyhow::Ok(())
    };
    let other = async {
        let path = format!("{}?limit=1", world::widgets(OTHER, "v1"));
        while !OVER.load(Ordering::Relaxed) {
            client.send(Method::GET, &path, None).await?;
            tokio::time::sleep(OTHER_PACE).await;
        }
        Ok(())
    };
    try_join(try_join_all((0..arguments.many()).map(one)), other).await?;
    let each_second = |count: usize| count as f64 / begun.elapsed().as_secs_f64();
    eprintln!(
        "  the flood: {:.0} requests answered in a second, {:.0} refused with 429",
        each_second(answered.get()),
        each_second(client.refused())
    );
    Ok(())
}
