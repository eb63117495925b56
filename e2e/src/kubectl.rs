//! kubectl as users run it.

use std::{
    io::{Read, Write},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::Server;

/// Runs kubectl with a server's kubeconfig.
pub struct Kubectl {
    kubeconfig: PathBuf,
    url: String,
    cache: TempDir,
}

/// Result of a command.
#[derive(Debug)]
pub struct Ran {
    /// Its exit code; -1 if a signal ended it.
    pub code: i32,
    /// Both streams.
    pub text: String,
}

impl Kubectl {
    /// Returns kubectl for a server. Returns None, and prints a line that says so, where there is
    /// no kubectl.
    pub fn for_server(server: &Server) -> Option<Self> {
        let found = Command::new("kubectl").args(["version", "--client"]).output();
        if !found.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: no kubectl");
            return None;
        }
        let (kubeconfig, url) = (server.kubeconfig(), server.url().to_owned());
        Some(Self {
            kubeconfig,
            url,
            cache: TempDir::new().unwrap(),
        })
    }

    /// Returns a command in a workspace, ready to be changed or spawned.
    pub fn command(&self, workspace: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.cache.path())
            .env_remove("http_proxy")
            .env_remove("https_proxy")
            .arg(format!("--server={}/clusters/{workspace}", self.url))
            .arg(format!("--cache-dir={}", self.cache.path().display()))
            .args(arguments);
        command
    }

    /// Runs a command to its end, or for a minute.
    pub fn run(&self, workspace: &str, arguments: &[&str], stdin: &str) -> Ran {
        let output = run_bounded(&mut self.command(workspace, arguments), stdin, Duration::from_secs(60));
        Ran {
            code: output.status.code().unwrap_or(-1),
            text: crate::server::both(&output),
        }
    }
}

/// Runs a command, and kills it when its time is over.
pub fn run_bounded(command: &mut Command, stdin: &str, time: Duration) -> Output {
    let mut process = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = process.stdin.take().unwrap();
    let text = stdin.to_owned();
    // A command that reads nothing closes the pipe, which is no failure.
    let writer = std::thread::spawn(move || drop(input.write_all(text.as_bytes())));
    let (out, err) = (drain(process.stdout.take()), drain(process.stderr.take()));
    let status = ended(&mut process, time);
    drop(writer.join());
    Output {
        status,
        stdout: out.join().unwrap(),
        stderr: err.join().unwrap(),
    }
}

fn drain<R: Read + Send + 'static>(stream: Option<R>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // Output read before a failure is still worth showing.
        let _ = stream.map(|mut stream| stream.read_to_end(&mut bytes));
        bytes
    })
}

fn ended(process: &mut Child, time: Duration) -> std::process::ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = process.try_wait().unwrap() {
            return status;
        }
        if begun.elapsed() > time {
            process.kill().unwrap();
            return process.wait().unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
