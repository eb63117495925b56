//! Processes of the binary. The test that starts a process watches it and kills it.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex, Weak},
    thread::JoinHandle,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{Client, Who, until};

/// Users of every server here: token, name, uid and groups.
const TOKENS: &str = "\
alice-token,alice,1
bob-token,bob,2,\"team\"
carol-token,carol,3,\"system:masters\"
dave-token,dave,4,\"system:kcp:admin\"
";

/// Lines of a server's log that a failed test prints.
const LAST_LINES: usize = 20;

/// Returns a command for the binary, without `KUBECONFIG` and the `INSULA_` variables of this
/// process.
pub fn insula(arguments: &[&str]) -> Command {
    program(&binary(), arguments)
}

fn program(path: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(path);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("INSULA_") || text == "KUBECONFIG" {
            command.env_remove(&name);
        }
    }
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Returns the path of the binary.
pub fn binary() -> PathBuf {
    if let Some(given) = std::env::var_os("INSULA_BIN") {
        return given.into();
    }
    // …/debug/deps/e2e-0123 → …/debug/insula
    let this = std::env::current_exe().unwrap();
    let beside = this.parent().and_then(Path::parent).unwrap().join("insula");
    assert!(
        beside.exists(),
        "{} is not there: cargo build -p insula-insula, or set INSULA_BIN",
        beside.display()
    );
    beside
}

/// Returns the same command with a limit on file descriptors.
fn limited(command: &Command, descriptors: u64) -> Command {
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"")]);
    limited.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    limited
}

/// Flags, variables and limits of a server process.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// Flags beyond those that every server here gets.
    pub flags: Vec<String>,
    /// Variables.
    pub environment: Vec<(String, String)>,
    /// Limit on the process's file descriptors. None inherits the limit of this process.
    pub descriptors: Option<u64>,
    /// Program that serves in place of `insula start`, with the same flags.
    pub program: Option<PathBuf>,
}

/// A running server, killed at the end.
pub struct Server {
    process: Child,
    setup: Setup,
    reader: Option<JoinHandle<()>>,
    lines: Arc<Mutex<Vec<String>>>,
    url: String,
    // Last, so that the folder outlives the process.
    dir: Arc<TempDir>,
}

impl Setup {
    /// Limits by their variables' names: `CONNECTIONS` is `INSULA_LIMITS_CONNECTIONS`.
    pub fn limits(limits: &[(&str, &str)]) -> Self {
        let variable = |(name, value): &(&str, &str)| (format!("INSULA_LIMITS_{name}"), (*value).to_owned());
        Self {
            environment: limits.iter().map(variable).collect(),
            ..Self::default()
        }
    }
}

impl Server {
    /// Starts a server on a free port with a folder of its own and the embedded store. Its users
    /// are alice, bob, carol (of `system:masters`) and dave (of `system:kcp:admin`), with the
    /// tokens `alice-token` and so on.
    pub fn start() -> Self {
        Self::with(Setup::default())
    }

    /// Starts a server with more flags.
    pub fn with_flags(flags: &[&str]) -> Self {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Self::with(Setup {
            flags,
            ..Setup::default()
        })
    }

    /// Starts a server with a setup.
    pub fn with(setup: Setup) -> Self {
        Self::with_data(setup, |_| ())
    }

    /// Starts a server with a setup. Returns its output if it ends before it is ready.
    ///
    /// # Errors
    /// It ended.
    pub fn try_with(setup: Setup) -> Result<Self, String> {
        Self::begin(setup, |_| ())
    }

    /// Starts a server on a data directory that `prepare` creates or fills.
    pub fn with_data(setup: Setup, prepare: impl FnOnce(&Path)) -> Self {
        Self::begin(setup, prepare).unwrap_or_else(|end| panic!("{end}"))
    }

    fn begin(setup: Setup, prepare: impl FnOnce(&Path)) -> Result<Self, String> {
        let dir = TempDir::with_prefix("insula-e2e-").unwrap();
        write_tokens(dir.path());
        prepare(&dir.path().join("data"));
        Self::launch(setup, Arc::new(dir))
    }

    /// Gives its keys to servers that are started on an etcd from here on.
    pub fn share_keys(&self, store: &str) {
        SharedKeys(store.to_owned()).take(&self.data_dir().join("pki"));
    }

    /// Starts a process, and waits until it is ready. Returns its output if it ends instead.
    fn launch(setup: Setup, dir: Arc<TempDir>) -> Result<Self, String> {
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let mut command = match &setup.program {
            Some(path) => program(path, &[]),
            None => insula(&["start"]),
        };
        command.args(["--data-dir", &path("data"), "--kubeconfig", &path("kubeconfig")]);
        command.args(["--token-file", &path("tokens.csv"), "--log-format", "json"]);
        if !setup.flags.iter().any(|flag| flag == "--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command.args(&setup.flags).stdout(Stdio::null());
        // Tests that count revisions want a store at rest.
        command.env("INSULA_WORKSPACES_METERING_SECONDS", "0");
        command.envs(setup.environment.iter().cloned());
        if let Some(descriptors) = setup.descriptors {
            command = limited(&command, descriptors);
        }
        let keys = SharedKeys::of_store(&setup);
        if let Some(keys) = &keys {
            keys.give(&dir.path().join("data/pki"));
        }
        let mut process = command.spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (stderr, kept) = (BufReader::new(process.stderr.take().unwrap()), Arc::clone(&lines));
        let reader = std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                kept.lock().unwrap().push(line);
            }
        });
        let mut server = Self {
            process,
            setup,
            reader: Some(reader),
            lines,
            url: String::new(),
            dir,
        };
        let ready = until("the server is ready or ends", || server.ready());
        server.url = ready?;
        if let Some(keys) = &keys {
            keys.take(&server.data_dir().join("pki"));
        }
        Ok(server)
    }

    fn ready(&mut self) -> Option<Result<String, String>> {
        if let Some(status) = self.process.try_wait().unwrap() {
            // Its last lines may not have arrived yet.
            self.reader.take().map(JoinHandle::join);
            return Some(Err(format!("the server ended with {status}:\n{}", self.log())));
        }
        let steps = self.json_log();
        let ready = steps.iter().find(|line| line["step"] == "ready")?;
        Some(Ok(ready["detail"].as_str().unwrap().trim_end_matches('/').to_owned()))
    }

    /// Returns `https://127.0.0.1:PORT`, or the external URL of its setup.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns `127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("https://")
    }

    /// Returns the path of the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// Returns the data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Returns its log so far.
    pub fn log(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    /// Returns the lines of its log that are JSON.
    pub fn json_log(&self) -> Vec<Value> {
        let lines = self.lines.lock().unwrap();
        lines
            .iter()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// Prints what a failed test's reader asks first: whether the process runs, and its last lines.
    fn print_end(&mut self) {
        let state = match self.process.try_wait() {
            Ok(None) => "runs".to_owned(),
            Ok(Some(status)) => format!("ended with {status}"),
            Err(error) => error.to_string(),
        };
        let lines = self.lines.lock().map(|lines| lines.clone()).unwrap_or_default();
        let last = lines.len().saturating_sub(LAST_LINES);
        eprintln!("{}: {state}; its last lines:\n{}", self.url, lines[last..].join("\n"));
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns a client with this identity.
    pub fn client(&self, who: Who) -> Client {
        Client::new(&self.url, &self.data_dir(), who)
    }

    /// Returns a client with this identity at another URL of the server.
    pub fn client_at(&self, url: &str, who: Who) -> Client {
        Client::new(url, &self.data_dir(), who)
    }

    /// Returns a client of the platform's administrator.
    pub fn admin(&self) -> Client {
        self.client(Who::KcpAdmin)
    }

    /// Sends a signal, by kill's name for it.
    pub fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Waits for its end. Returns the exit code and all output.
    pub fn wait(mut self) -> (Option<i32>, String) {
        let status = until("the server ends", || self.process.try_wait().unwrap());
        self.reader.take().map(JoinHandle::join);
        (status.code(), self.log())
    }

    /// Kills it with SIGKILL.
    pub fn kill9(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts another process on the same folder. Kills this one unless it has ended.
    pub fn restart(self) -> Self {
        self.restart_after(|_| ())
    }

    /// Restarts the server, and edits the data directory in between.
    pub fn restart_after(self, edit: impl FnOnce(&Path)) -> Self {
        let stopped = self.stopped();
        edit(&stopped.data_dir());
        stopped.start().unwrap_or_else(|end| panic!("{end}"))
    }

    /// Its folder, when it has ended by itself or by a signal.
    pub fn ended(mut self) -> Stopped {
        until("the server ends", || self.process.try_wait().unwrap());
        self.stopped()
    }

    /// Its folder, without a process; it is killed unless it ended.
    pub fn stopped(mut self) -> Stopped {
        // Already gone after kill9.
        let _ = self.process.kill();
        self.process.wait().unwrap();
        Stopped {
            setup: self.setup.clone(),
            dir: Arc::clone(&self.dir),
        }
    }
}

/// Keys that all servers on one etcd have, by its URL: those of the first server that a test
/// starts.
struct SharedKeys(String);

type KeyFiles = BTreeMap<&'static str, Vec<u8>>;

static KEYS: Mutex<BTreeMap<String, KeyFiles>> = Mutex::new(BTreeMap::new());

impl SharedKeys {
    /// Returns the keys for a server on etcd whose setup names none.
    fn of_store(setup: &Setup) -> Option<Self> {
        let names_keys = setup.environment.iter().any(|(name, _)| name == "INSULA_SHARED_KEYS");
        let store = setup.flags.iter().find(|flag| flag.starts_with("etcd"))?;
        (!names_keys).then(|| SharedKeys(store.clone()))
    }

    /// Writes the keys, where there are some and the server has none.
    fn give(&self, pki: &Path) {
        let known = KEYS.lock().unwrap();
        let Some(files) = known.get(&self.0).filter(|_| !pki.join("ca.key").exists()) else {
            return;
        };
        fs::create_dir_all(pki).unwrap();
        for (name, bytes) in files {
            fs::write(pki.join(name), bytes).unwrap();
            fs::set_permissions(pki.join(name), fs::Permissions::from_mode(0o600)).unwrap();
        }
    }

    /// Keeps the keys of a server that is ready.
    fn take(&self, pki: &Path) {
        let names = ["ca.crt", "ca.key", "service-accounts.key"];
        let read = |name| fs::read(pki.join(name)).ok().map(|bytes| (name, bytes));
        let files = names.into_iter().filter_map(read).collect();
        KEYS.lock().unwrap().insert(self.0.clone(), files);
    }
}

/// The folder of a server that is not running.
pub struct Stopped {
    setup: Setup,
    dir: Arc<TempDir>,
}

impl Stopped {
    /// Returns the data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Starts another process on the folder. Returns its output if it ends before it is ready.
    pub fn start(&self) -> Result<Server, String> {
        Server::launch(self.setup.clone(), Arc::clone(&self.dir))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print_end();
        }
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Writes the token file of the users of every server here. Returns its path.
pub fn write_tokens(dir: &Path) -> PathBuf {
    let path = dir.join("tokens.csv");
    std::fs::write(&path, TOKENS).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// Returns a port of this machine that is free now.
pub fn unused_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Returns a command's output, both streams, and its exit code.
pub(crate) fn both(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// Returns the server that tests share.
pub fn shared() -> Arc<Server> {
    static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
    shared_as(&SHARED, Server::start)
}

/// Returns what tests share, which is started if none of them has it. The last test that holds it
/// ends it.
pub fn shared_as<T>(place: &Mutex<Weak<T>>, start: impl FnOnce() -> T) -> Arc<T> {
    // A test that failed while starting it must not fail all others.
    let mut shared = place.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(known) = shared.upgrade() {
        return known;
    }
    let started = Arc::new(start());
    *shared = Arc::downgrade(&started);
    started
}
