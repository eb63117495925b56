//! Tests of the command line: flags, output and exit codes.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, ChildStderr, Command, Output, Stdio},
};

use serde_json::Value;

fn insula(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_insula"));
    let ours = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("INSULA_"));
    for (name, _) in ours {
        command.env_remove(name);
    }
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn run(arguments: &[&str]) -> Output {
    insula(arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A server in the background, ended with the test.
struct Server {
    process: Child,
    stderr: BufReader<ChildStderr>,
    /// The progress lines up to the last step.
    steps: Vec<Value>,
}

impl Server {
    fn start(data_dir: &Path, more: &[&str]) -> Self {
        let data_dir = data_dir.to_str().unwrap();
        let arguments = [
            "start",
            "--data-dir",
            data_dir,
            "--listen",
            "127.0.0.1:0",
            "--log-format",
            "json",
        ];
        let mut process = insula(&[&arguments, more].concat()).spawn().unwrap();
        let stderr = BufReader::new(process.stderr.take().unwrap());
        let mut server = Self {
            process,
            stderr,
            steps: Vec::new(),
        };
        while server.steps.last().is_none_or(|step| step["step"] != "ready") {
            let mut line = String::new();
            assert_ne!(
                server.stderr.read_line(&mut line).unwrap(),
                0,
                "it ended: {:?}",
                server.steps
            );
            let step: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
            server.steps.extend(step.get("step").is_some().then_some(step));
        }
        server
    }

    /// Stops the server. Returns its exit code and the rest of its output.
    fn stop(mut self, signal: &str) -> (Option<i32>, String) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).unwrap();
        (self.process.wait().unwrap().code(), rest)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already gone in tests that passed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn start_serves_until_a_signal_stops_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    for signal in ["-TERM", "-INT"] {
        let server = Server::start(&data, &[]);
        let names: Vec<&str> = server.steps.iter().map(|step| step["step"].as_str().unwrap()).collect();
        assert_eq!(names, ["store", "identity", "ready"]);
        assert!(
            server.steps[2]["detail"]
                .as_str()
                .unwrap()
                .starts_with("https://127.0.0.1:")
        );
        assert_eq!((mode(&data), mode(&data.join("admin.kubeconfig"))), (0o700, 0o600));
        let (code, rest) = server.stop(signal);
        assert_eq!(code, Some(0), "{rest}");
        assert!(rest.contains("\"stopped\""), "{rest}");
    }
}

#[test]
fn a_second_start_names_the_holder() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let before = fs::read_to_string(dir.path().join("admin.kubeconfig")).unwrap();
    let second = run(&[
        "start",
        "--data-dir",
        dir.path().to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
    ]);
    let message = stderr(&second);
    assert_eq!(second.status.code(), Some(3), "{message}");
    assert!(message.contains("is in use"), "{message}");
    assert!(message.contains(&server.process.id().to_string()), "{message}");
    assert!(message.contains("--data-dir"), "{message}");
    let after = fs::read_to_string(dir.path().join("admin.kubeconfig")).unwrap();
    assert_eq!(before, after, "the first one's kubeconfig still points to it");
}

#[test]
fn refusals_have_a_cause_a_fix_and_a_code() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("a.yaml"), "lisen: 0.0.0.0:1\n").unwrap();
    fs::write(path("kubeconfig"), "apiVersion: v1\n").unwrap();
    fs::write(path("tokens.csv"), "secret-1,alice,1,g\nsecret-2\n").unwrap();
    fs::set_permissions(path("tokens.csv"), fs::Permissions::from_mode(0o600)).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let data = path("data");
    for (more, code, want) in [
        (vec!["--config", &path("a.yaml")], 2, "unknown key `lisen`"),
        (vec!["--config", &path("none.yaml")], 2, "cannot read the configuration"),
        (vec!["--store", "redis"], 2, "expected `embedded`"),
        (vec!["--listen", "nowhere"], 2, "--listen takes ADDRESS:PORT"),
        (vec!["--log-level", "info,,=="], 2, "log.level"),
        (
            vec!["--kubeconfig", &path("kubeconfig")],
            2,
            "was not written by insula",
        ),
        (vec!["--lisen", "x"], 2, "--listen"),
        (
            vec!["--token-file", &path("tokens.csv")],
            2,
            "each line is token,user,uid",
        ),
        (vec!["--listen", &taken], 4, "cannot listen on"),
    ] {
        let output = run(&[&["start", "--data-dir", &data, "--store", "memory"][..], &more].concat());
        // clap refuses a flag that is given twice, so that the store is given once.
        let output = match more[0] {
            "--store" => run(&[&["start", "--data-dir", &data][..], &more].concat()),
            _ => output,
        };
        assert_eq!(output.status.code(), Some(code), "{more:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(want), "{more:?}: {}", stderr(&output));
        assert!(!stderr(&output).contains("secret"), "{}", stderr(&output));
    }
    let output = insula(&["start", "--data-dir", &data])
        .env("INSULA_LISEN", "x")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("did you mean `INSULA_LISTEN`?"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_key_that_others_can_read_stops_the_start() {
    let dir = tempfile::tempdir().unwrap();
    drop(Server::start(dir.path(), &["--store", "memory"]).stop("-TERM"));
    let key = dir.path().join("pki/ca.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let data = dir.path().to_str().unwrap();
    let output = run(&[
        "start",
        "--data-dir",
        data,
        "--listen",
        "127.0.0.1:0",
        "--store",
        "memory",
    ]);
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    assert!(
        stderr(&output).contains(&format!("chmod 600 {}", key.display())),
        "{}",
        stderr(&output)
    );
}

#[test]
fn an_unreachable_collector_does_not_stop_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(
        dir.path(),
        &["--store", "memory", "--otlp-endpoint", "http://127.0.0.1:1"],
    );
    let (code, rest) = server.stop("-TERM");
    assert_eq!(code, Some(0), "{rest}");
}

#[test]
fn servers_share_an_etcd() {
    let dir = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(&dir.path().join("etcd")) else {
        return;
    };
    let store = format!("etcd://{}", etcd.endpoint);
    let [a, b] = ["a", "b"].map(|name| dir.path().join(name));
    let one = Server::start(&a, &["--store", &store]);
    fs::create_dir_all(b.join("pki")).unwrap();
    for key in ["ca.crt", "ca.key", "service-accounts.key"] {
        fs::copy(a.join("pki").join(key), b.join("pki").join(key)).unwrap();
    }
    for server in [one, Server::start(&b, &["--store", &store])] {
        assert_eq!(server.steps[0]["detail"], store.as_str());
        let (code, rest) = server.stop("-TERM");
        assert_eq!(code, Some(0), "{rest}");
    }
}

/// An etcd of its own on free ports.
struct Etcd {
    process: Child,
    endpoint: String,
}

impl Etcd {
    fn start(dir: &Path) -> Option<Self> {
        let given = std::env::var("INSULA_ETCD").ok();
        let program = given.unwrap_or_else(|| "etcd".to_owned());
        let port = || {
            std::net::TcpListener::bind("127.0.0.1:0")
                .unwrap()
                .local_addr()
                .unwrap()
        };
        let (clients, peers) = (port(), port());
        let (client_url, peer_url) = (format!("http://{clients}"), format!("http://{peers}"));
        let process = Command::new(&program)
            .args(["--data-dir", dir.to_str().unwrap(), "--log-level", "error"])
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
        match process {
            // Servers wait for it to answer.
            Ok(process) => Some(Self {
                process,
                endpoint: clients.to_string(),
            }),
            Err(_) => {
                eprintln!("skipped: no etcd (INSULA_ETCD names one)");
                None
            }
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn version_is_for_people_and_machines() {
    let text = String::from_utf8(run(&["version"]).stdout).unwrap();
    assert!(
        text.starts_with(&format!("insula {} (", env!("CARGO_PKG_VERSION"))),
        "{text}"
    );
    let json: Value = serde_json::from_slice(&run(&["version", "--output", "json"]).stdout).unwrap();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_demonstration_ends_well_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let output = insula(&["demo", "--output", "json"])
        .env("TMPDIR", dir.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let step: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        assert_eq!(step["ok"], true, "{line}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
