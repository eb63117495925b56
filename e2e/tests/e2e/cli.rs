//! The command line that users type: workspaces, bindings, access, kubeconfigs, kubectl plugins.

mod admin;
mod apis;
mod bind_requests;
mod connection;
mod operator;
mod outputs;
mod plugins;
mod tenant;
mod unbind;
mod writes;
mod ws;

use std::{fs, path::PathBuf, process::Command, time::Duration};

use insula_e2e::{Server, insula, run_bounded};
use tempfile::TempDir;

/// A user at a shell: a home directory with a kubeconfig.
struct Shell {
    home: TempDir,
}

/// Result of a command.
#[derive(Debug, PartialEq, Eq)]
struct Ran {
    code: i32,
    out: String,
    error: String,
}

impl Shell {
    /// Creates a shell with a copy of the administrator's kubeconfig.
    fn admin(server: &Server) -> Self {
        Self::with(&fs::read_to_string(server.kubeconfig()).unwrap())
    }

    /// Creates a shell with a kubeconfig of one context, at a path of the server.
    fn user(server: &Server, token: &str, path: &str) -> Self {
        let (url, ca) = (server.url(), server.data_dir().join("pki/ca.crt"));
        Self::with(&format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: mine\nother: {{kept: true}}\n\
             clusters: [{{name: far, cluster: {{server: \"{url}{path}\", certificate-authority: {}, odd: 1}}}}]\n\
             contexts: [{{name: mine, context: {{cluster: far, user: me, namespace: team}}}}]\n\
             users: [{{name: me, user: {{token: {token}}}}}]\n",
            ca.display()
        ))
    }

    fn with(kubeconfig: &str) -> Self {
        let home = TempDir::new().unwrap();
        fs::write(home.path().join("config"), kubeconfig).unwrap();
        Self { home }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.home.path().join("config")
    }

    /// Returns a command with the environment of this shell.
    fn prepared(&self, mut command: Command) -> Command {
        command
            .env("HOME", self.home.path())
            .env("KUBECONFIG", self.kubeconfig());
        command.current_dir(self.home.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        ran(&mut self.prepared(insula(arguments)))
    }

    /// Runs a command that must succeed, and returns its output.
    #[track_caller]
    fn ok(&self, arguments: &[&str]) -> String {
        let Ran { code, out, error } = self.run(arguments);
        assert_eq!(code, 0, "{arguments:?}: {out}{error}");
        out
    }

    /// Runs a command that must fail, and returns its error.
    #[track_caller]
    fn fails(&self, arguments: &[&str]) -> String {
        let Ran { code, out, error } = self.run(arguments);
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}: {error}");
        error
    }
}

fn ran(command: &mut Command) -> Ran {
    let output = run_bounded(command, "", Duration::from_secs(60));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: text(&output.stdout),
        error: text(&output.stderr),
    }
}
