//! Load generator: starts the shipped binary, drives it as many tenants would, and reports
//! latencies, CPU and memory.
//!
//! The load is a closed loop: a number of clients, each with one request in flight, over a few
//! HTTP/2 connections with TLS. Every measurement is bounded in count and time. CPU and memory of
//! the server come from `/proc`. On a small machine this program and the server share the cores, so
//! that CPU per operation is the figure that does not depend on other processes.

mod args;
mod client;
mod flood;
mod lines;
mod measure;
mod report;
mod server;
mod world;

pub use args::Arguments;

use anyhow::{Context, Result};
use args::Measurement;
use report::Report;
use std::time::Instant;

/// Runs the requested measurements and prints the results.
pub fn run(arguments: &Arguments) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("no runtime")?;
    if arguments.measurement == Measurement::Flood {
        return runtime.block_on(flood::send(arguments));
    }
    let report = runtime.block_on(measure_all(arguments))?;
    report.print(arguments.output)
}

async fn measure_all(arguments: &Arguments) -> Result<Report> {
    let mut report = Report::default();
    for workspaces in arguments.sizes() {
        let begun = Instant::now();
        let mut server = server::Server::start(arguments).await?;
        let outcome = measure::everything(arguments, &mut server, workspaces, &mut report).await;
        outcome.with_context(|| {
            format!(
                "with {workspaces} workspaces; the server's log ends with\n{}",
                server.log_tail()
            )
        })?;
        eprintln!(
            "{workspaces} workspaces: measured in {:.0} s",
            begun.elapsed().as_secs_f64()
        );
    }
    Ok(report)
}
