//! A real etcd of a test.

use insula_store::Store;
use insula_store_etcd::{EtcdStore, Options};
use std::{
    io::{Read, Write as _},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

pub(crate) struct Etcd {
    process: Child,
    pub(crate) endpoint: String,
    binary: PathBuf,
    dir: tempfile::TempDir,
    arguments: Vec<String>,
    prefixes: AtomicUsize,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn binaries() -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os("INSULA_ETCD") {
        return std::env::split_paths(&named).collect();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join("etcd"));
    let found = on_path.chain(["/usr/bin/etcd".into()]).find(|file| file.is_file());
    found.into_iter().collect()
}

/// Returns a number for a store that no other store here has.
pub(crate) fn instance() -> u64 {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed) as u64
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Etcd {
    /// Starts one after the other, each when the one before is dropped.
    pub(crate) fn each() -> impl Iterator<Item = Etcd> {
        let binaries = binaries();
        if binaries.is_empty() {
            println!("skipped: no etcd");
        }
        binaries.into_iter().map(Etcd::start)
    }

    fn start(binary: PathBuf) -> Etcd {
        let dir = tempfile::tempdir().unwrap();
        let [client, peer] = [free_port(), free_port()].map(|port| format!("http://127.0.0.1:{port}"));
        let data = dir.path().join("data").display().to_string();
        let arguments = [
            ("--data-dir", data.as_str()),
            ("--listen-client-urls", &client),
            ("--advertise-client-urls", &client),
            ("--listen-peer-urls", &peer),
            ("--initial-advertise-peer-urls", &peer),
            ("--initial-cluster", &format!("default={peer}")),
        ];
        let arguments: Vec<String> = arguments
            .iter()
            .flat_map(|(name, value)| [(*name).into(), (*value).into()])
            .collect();
        let process = spawn(&binary, &arguments);
        Etcd {
            process,
            endpoint: client,
            binary,
            dir,
            arguments,
            prefixes: AtomicUsize::new(0),
        }
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(crate) fn restart(&mut self) {
        assert!(self.dir.path().exists());
        self.process = spawn(&self.binary, &self.arguments);
    }

    pub(crate) fn fresh_prefix(&self) -> String {
        format!("/test-{}", self.prefixes.fetch_add(1, Ordering::Relaxed))
    }

    /// Opens a store of the present format.
    pub(crate) async fn store(&self, prefix: &str) -> Arc<dyn Store> {
        let store = self.unmarked(prefix).await;
        store.mark_format().await.unwrap();
        store
    }

    /// Opens a store in the format that it has, or of format 3 if it is new.
    pub(crate) async fn unmarked(&self, prefix: &str) -> Arc<EtcdStore> {
        let options = || Options {
            request_timeout: Duration::from_secs(5),
            audit_interval: Duration::from_secs(2),
            ..Options::new(instance())
        };
        for _ in 0..100 {
            if let Ok((store, driver)) =
                EtcdStore::connect(std::slice::from_ref(&self.endpoint), prefix, options()).await
            {
                tokio::spawn(async move { driver.await.unwrap() });
                return Arc::new(store);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("etcd at {} does not start", self.endpoint);
    }

    /// Returns the requests that an etcd has answered by a method of its key-value service, from
    /// its metrics.
    pub(crate) fn handled(&self, method: &str) -> u64 {
        let address = self.endpoint.trim_start_matches("http://");
        let mut socket = TcpStream::connect(address).unwrap();
        write!(socket, "GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        let name = format!("grpc_method=\"{method}\"");
        let is_counter = |line: &&str| line.starts_with("grpc_server_handled_total") && line.contains(&name);
        let count = |line: &str| line.rsplit_once(' ').and_then(|(_, number)| number.parse::<f64>().ok());
        text.lines().filter(is_counter).filter_map(count).sum::<f64>() as u64
    }
}

fn spawn(binary: &PathBuf, arguments: &[String]) -> Child {
    Command::new(binary)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}
