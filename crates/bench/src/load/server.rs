//! Server under measurement: its process, and its figures in `/proc`.

use super::{args::Arguments, client::Client};
use anyhow::{Context, Result, anyhow, bail};
use http::Method;
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

const READY_WITHIN: Duration = Duration::from_secs(20);
/// Ticks of `/proc/<pid>/stat` in a second: fixed in Linux' interface to user space.
const TICKS_PER_SECOND: u64 = 100;
const LOG_TAIL_LINES: usize = 12;

/// A server that this process started, or a running one.
pub(crate) struct Server {
    child: Option<Child>,
    pid: Option<u32>,
    kubeconfig: PathBuf,
    dir: Option<TempDir>,
}

impl Server {
    /// Starts an empty server and waits until it is ready, or connects to the running server in the
    /// arguments.
    pub(crate) async fn start(arguments: &Arguments) -> Result<Self> {
        if let Some(kubeconfig) = &arguments.server {
            let kubeconfig = kubeconfig.clone();
            return Ok(Server {
                child: None,
                pid: arguments.pid,
                kubeconfig,
                dir: None,
            });
        }
        let dir = tempfile::Builder::new().prefix("insula-load-").tempdir()?;
        let kubeconfig = dir.path().join("admin.kubeconfig");
        let log = File::create(dir.path().join("server.log"))?;
        let child = Command::new(&arguments.binary)
            .args(["start", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(dir.path().join("data"))
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| {
                format!(
                    "cannot start {}: build it, or set INSULA_BIN",
                    arguments.binary.display()
                )
            })?;
        let pid = Some(child.id());
        let mut server = Server {
            child: Some(child),
            pid,
            kubeconfig,
            dir: Some(dir),
        };
        server.ready().await.with_context(|| server.log_tail())?;
        Ok(server)
    }

    async fn ready(&mut self) -> Result<()> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten()) {
                bail!("the server ended: {status}");
            }
            if let Ok(client) = Client::connect(&self.kubeconfig, 1).await
                && let Ok((code, _)) = client.send(Method::GET, "/readyz", None).await
                && code.is_success()
            {
                return Ok(());
            }
            if begun.elapsed() > READY_WITHIN {
                bail!("the server is not ready after {} s", READY_WITHIN.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns the kubeconfig of the administrator.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns the CPU time of all threads of the server so far.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid?)).ok()?;
        cpu_of(&stat).ok()
    }

    /// Returns the resident memory in bytes.
    pub(crate) fn rss(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid?)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kibibytes: u64 = line.trim().trim_end_matches(" kB").trim().parse().ok()?;
        Some(kibibytes * 1024)
    }

    /// Returns the last lines of the server's log.
    pub(crate) fn log_tail(&self) -> String {
        let Some(dir) = &self.dir else { return String::new() };
        let text = fs::read_to_string(dir.path().join("server.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // Its directory is removed with it, so that it has nothing to finish.
            drop(child.kill());
            drop(child.wait());
        }
    }
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
