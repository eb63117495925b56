//! An etcd of a test's own.

use std::{
    net::{SocketAddr, TcpListener},
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

/// A running etcd, killed at the end.
pub struct Etcd {
    process: Child,
    endpoint: SocketAddr,
    _dir: TempDir,
}

impl Etcd {
    /// None, and a line that says so, where there is no etcd.
    pub fn start() -> Option<Self> {
        let program = std::env::var("INSULA_ETCD").unwrap_or_else(|_| "etcd".to_owned());
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (clients, peers) = (free(), free());
        let (client_url, peer_url) = (format!("http://{clients}"), format!("http://{peers}"));
        let dir = TempDir::with_prefix("insula-etcd-").unwrap();
        let process = Command::new(&program)
            .args(["--data-dir", dir.path().to_str().unwrap(), "--log-level", "error"])
            .args([
                "--listen-client-urls",
                &client_url,
                "--advertise-client-urls",
                &client_url,
            ])
            .args([
                "--listen-peer-urls",
                &peer_url,
                "--initial-advertise-peer-urls",
                &peer_url,
            ])
            .args(["--initial-cluster", &format!("default={peer_url}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(process) = process else {
            eprintln!("skipped: no etcd (INSULA_ETCD names one)");
            return None;
        };
        Some(Self {
            process,
            endpoint: clients,
            _dir: dir,
        })
    }

    /// What `--store` takes.
    pub fn store(&self) -> String {
        format!("etcd://{}", self.endpoint)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
