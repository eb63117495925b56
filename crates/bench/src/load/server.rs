//! Server under measurement: its process, and its figures in `/proc`.

use super::{args::Arguments, client::Client};
use anyhow::{Context, Result, anyhow, bail};
use http::Method;
use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Pause before the next look at a server that starts or ends.
const AGAIN: Duration = Duration::from_millis(20);
const READY_WITHIN: Duration = Duration::from_secs(20);
/// Ticks of `/proc/<pid>/stat` in a second: fixed in Linux' interface to user space.
const TICKS_PER_SECOND: u64 = 100;
const LOG_TAIL_LINES: usize = 12;
/// Name of the administrator's kubeconfig in the directory of a server.
const KUBECONFIG: &str = "admin.kubeconfig";

/// Keys that all servers on one etcd have, in their data directories.
const SHARED_KEYS: [&str; 3] = ["ca.crt", "ca.key", "service-accounts.key"];

/// A server that this process started, or a running one; or several on one etcd, whose CPU time and
/// memory are added.
pub(crate) struct Server {
    started: Vec<Started>,
    pids: Vec<u32>,
    kubeconfigs: Vec<PathBuf>,
}

struct Started {
    child: Child,
    dir: TempDir,
}

impl Server {
    /// Starts empty servers and waits until they are ready, or connects to the running server in
    /// the arguments.
    pub(crate) async fn start(arguments: &Arguments) -> Result<Self> {
        let mut server = Server {
            started: Vec::new(),
            pids: arguments.pid.into_iter().collect(),
            kubeconfigs: arguments.server.iter().cloned().collect(),
        };
        if arguments.server.is_none() {
            for index in 0..arguments.servers() {
                server.add(arguments)?;
                server.ready(index).await.with_context(|| server.log_tail())?;
            }
        }
        Ok(server)
    }

    fn add(&mut self, arguments: &Arguments) -> Result<()> {
        let dir = tempfile::Builder::new().prefix("insula-load-").tempdir()?;
        if let Some(first) = self.started.first() {
            let [from, to] = [&first.dir, &dir].map(|dir| dir.path().join("data/pki"));
            fs::create_dir_all(&to)?;
            for name in SHARED_KEYS {
                fs::copy(from.join(name), to.join(name))?;
            }
        }
        let child = spawn(arguments, &dir)?;
        self.pids.push(child.id());
        self.kubeconfigs.push(dir.path().join(KUBECONFIG));
        self.started.push(Started { child, dir });
        Ok(())
    }

    /// Waits until a server is ready.
    async fn ready(&mut self, index: usize) -> Result<()> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.started[index].child.try_wait()? {
                bail!("the server ended: {status}");
            }
            if let Ok(client) = Client::connect(&self.kubeconfigs[index..=index], 1).await
                && let Ok((code, _)) = client.send(Method::GET, "/readyz", None).await
                && code.is_success()
            {
                return Ok(());
            }
            if begun.elapsed() > READY_WITHIN {
                bail!("the server is not ready after {} s", READY_WITHIN.as_secs());
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Ends a server as its operator would, and starts it again in its directory. Returns once it
    /// is ready, with the time since the start of the process.
    pub(crate) async fn restart(&mut self, index: usize, arguments: &Arguments) -> Result<Duration> {
        self.signal(index, "TERM")?;
        let started = &mut self.started[index];
        // The clients go on meanwhile, on this thread.
        while started.child.try_wait()?.is_none() {
            tokio::time::sleep(AGAIN).await;
        }
        let begun = Instant::now();
        started.child = spawn(arguments, &started.dir)?;
        self.pids[index] = started.child.id();
        self.ready(index).await.with_context(|| self.log_tail())?;
        Ok(begun.elapsed())
    }

    /// Sends a signal to a server, by its name without `SIG`.
    pub(crate) fn signal(&self, index: usize, signal: &str) -> Result<()> {
        let pid = self.started[index].child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status()?;
        if !sent.success() {
            bail!("no {signal} was sent to the server: {sent}");
        }
        Ok(())
    }

    /// Returns the kubeconfigs of the administrator, one of each server.
    pub(crate) fn kubeconfigs(&self) -> &[PathBuf] {
        &self.kubeconfigs
    }

    /// Returns the CPU time of all threads of the servers so far.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        let cpu = |pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            cpu_of(&stat).ok()
        };
        let all: Vec<Duration> = self.pids.iter().map(cpu).collect::<Option<_>>()?;
        (!all.is_empty()).then(|| all.iter().sum())
    }

    /// Returns the resident memory of the servers in bytes.
    pub(crate) fn rss(&self) -> Option<u64> {
        self.memory("VmRSS:")
    }

    /// Returns the largest resident memory that the servers ever had, in bytes.
    pub(crate) fn peak(&self) -> Option<u64> {
        self.memory("VmHWM:")
    }

    fn memory(&self, field: &str) -> Option<u64> {
        let bytes = |pid: &u32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix(field))?;
            let kibibytes: u64 = line.trim().trim_end_matches(" kB").trim().parse().ok()?;
            Some(kibibytes * 1024)
        };
        let all: Vec<u64> = self.pids.iter().map(bytes).collect::<Option<_>>()?;
        (!all.is_empty()).then(|| all.iter().sum())
    }

    /// Returns the last lines of the log of the server that was started last.
    pub(crate) fn log_tail(&self) -> String {
        let Some(last) = self.started.last() else {
            return String::new();
        };
        let text = fs::read_to_string(last.dir.path().join("server.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for Started { child, .. } in &mut self.started {
            // Its directory is removed with it, so that it has nothing to finish.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Starts the program with its state in a directory.
fn spawn(arguments: &Arguments, dir: &TempDir) -> Result<Child> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(dir.path().join("server.log"))?;
    Command::new(&arguments.binary)
        .args([
            "start",
            "--listen",
            "127.0.0.1:0",
            "--store",
            &arguments.store,
            "--data-dir",
        ])
        .arg(dir.path().join("data"))
        .arg("--kubeconfig")
        .arg(dir.path().join(KUBECONFIG))
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .with_context(|| {
            format!(
                "cannot start {}: build it, or set INSULA_BIN",
                arguments.binary.display()
            )
        })
}

/// Returns the user and system time in `/proc/<pid>/stat`. Fields count from the last bracket,
/// since the name of the command may contain anything.
fn cpu_of(stat: &str) -> Result<Duration> {
    let (_, fields) = stat.rsplit_once(") ").ok_or_else(|| anyhow!("no command"))?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let field = |at: usize| -> Result<u64> { Ok(fields.get(at).ok_or_else(|| anyhow!("too short"))?.parse()?) };
    let ticks = field(11)? + field(12)?;
    Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_user_and_system_time_whatever_the_command_is_called() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 100 1000 200";
        assert_eq!(cpu_of(stat).expect("reads"), Duration::from_secs(3));
        assert!(cpu_of("").is_err());
    }
}
