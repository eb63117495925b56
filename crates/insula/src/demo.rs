//! `insula demo`: a server in this process, and a script of steps that demonstrates it.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use insula_server::{Config, Env, Running};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    print::{Format, Stdout},
    runtime,
    samples::Samples,
    script,
    steps::{Done, Steps},
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Format of the lines.
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    output: Format,
    #[arg(
        help = "Directory of keys and objects [default: a temporary directory, removed at the end]",
        long,
        value_name = "DIRECTORY"
    )]
    data_dir: Option<PathBuf>,
    #[arg(
        help = "Address to serve on; port 0 takes a free one",
        long,
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:0"
    )]
    listen: String,
    /// Keep serving after the last step, until Ctrl-C.
    #[arg(long)]
    keep: bool,
}

pub(crate) fn main(arguments: Arguments) -> ExitCode {
    let done = runtime().map_err(anyhow::Error::from);
    let done = done.and_then(|runtime| runtime.block_on(demo(arguments)));
    crate::ended(done.map(|()| ExitCode::SUCCESS))
}

async fn demo(arguments: Arguments) -> anyhow::Result<()> {
    let env = Env::real();
    let directory = Directory::new(arguments.data_dir, &env)?;
    let mut steps = Steps::new(Stdout::new(), arguments.output);
    let samples = Samples::write(&directory.path, &env)?;
    let running = steps
        .step("start", Box::pin(start(&directory, &samples, &arguments.listen, env)))
        .await?;
    let outcome = script::run(&mut steps, &running, &samples).await;
    let kept = match &outcome {
        Ok(()) if arguments.keep => keep(&mut steps, &running, &samples).await,
        Ok(()) | Err(_) => Ok(()),
    };
    running.shutdown().await;
    outcome.and(kept)
}

async fn start(directory: &Directory, samples: &Samples, listen: &str, env: Env) -> anyhow::Result<(Done, Running)> {
    let config = Config {
        data_dir: directory.path.clone(),
        listen: listen.to_owned(),
        token_file: Some(samples.tokens()),
        ..Config::default()
    };
    let running = insula_server::start(config, env, &|_| ()).await?;
    let by_hand = format!(
        "insula start --listen {} --data-dir {} --token-file {}",
        running.address(),
        directory.path.display(),
        samples.tokens().display()
    );
    Ok((
        Done {
            what: format!("server on {}", running.url()),
            by_hand,
        },
        running,
    ))
}

async fn keep<W: Write>(steps: &mut Steps<W>, running: &Running, samples: &Samples) -> anyhow::Result<()> {
    steps.note(&format!("serving on {} until Ctrl-C; to connect:", running.url()))?;
    steps.note(&format!("  {}", script::connect(running, samples)))?;
    steps.note("  kubectl get workspaces")?;
    steps.note("  kubectl -s $S/root:tenant-b get widgets.v1.example.io grace -o yaml")?;
    stopped().await.context("cannot wait for Ctrl-C")
}

/// Waits for Ctrl-C, or for a SIGTERM of a supervisor. A temporary directory is removed after
/// either.
async fn stopped() -> io::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted,
        _ = terminated.recv() => Ok(()),
    }
}

/// Data directory of the demonstration. A temporary one is removed on drop.
struct Directory {
    path: PathBuf,
    is_temporary: bool,
}

impl Directory {
    fn new(given: Option<PathBuf>, env: &Env) -> anyhow::Result<Self> {
        match given {
            Some(path) => Ok(Self {
                path: std::path::absolute(path)?,
                is_temporary: false,
            }),
            None => {
                // An unpredictable name, since other users may write to the same folder. The server
                // creates it for its owner only.
                let name = format!("insula-demo-{:016x}", env.rng.next_u64());
                Ok(Self {
                    path: std::env::temp_dir().join(name),
                    is_temporary: true,
                })
            }
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.is_temporary && self.path.exists() {
            remove(&self.path);
        }
    }
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_dir_all(path) {
        eprintln!("warning: {} could not be removed: {error}", path.display());
    }
}
