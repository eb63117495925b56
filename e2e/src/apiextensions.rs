//! Kubernetes' own apiextensions-apiserver, for tests of compatibility with it.

use std::{
    fs,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use crate::{Client, Etcd, Server, Who, until, unused_port};

/// A kubeconfig without a server behind it. The apiextensions-apiserver requires one for
/// authentication and authorization, and never calls it in these tests.
const NOWHERE: &str = "{apiVersion: v1, kind: Config, current-context: none, users: [{name: none, user: {}}], \
    clusters: [{name: none, cluster: {server: 'http://127.0.0.1:1'}}], \
     contexts: [{name: none, context: {cluster: none, user: none}}]}";

/// Admission plugins that need a client of a kube-apiserver, which does not run here.
const PLUGINS_OFF: &str = "NamespaceLifecycle,MutatingAdmissionWebhook,ValidatingAdmissionWebhook,\
    ValidatingAdmissionPolicy,MutatingAdmissionPolicy";

/// A running apiextensions-apiserver on an etcd of its own, killed at the end.
pub struct Apiextensions {
    process: Child,
    client: Client,
    _etcd: Etcd,
    _dir: TempDir,
}

impl Apiextensions {
    /// Starts it, with `server`'s CA and certificate. Returns None, and prints a line that says so,
    /// where the program is missing.
    pub fn start(server: &Server) -> Option<Self> {
        let Ok(program) = std::env::var("INSULA_APIEXTENSIONS_APISERVER") else {
            eprintln!("skipped: INSULA_APIEXTENSIONS_APISERVER names no apiextensions-apiserver");
            return None;
        };
        let etcd = Etcd::start()?;
        let dir = TempDir::with_prefix("insula-apiextensions-").unwrap();
        let nowhere = dir.path().join("nowhere.kubeconfig");
        fs::write(&nowhere, NOWHERE).unwrap();
        let pki = server.data_dir().join("pki");
        let port = unused_port();
        let mut command = Command::new(program);
        for flag in [
            "--kubeconfig",
            "--authentication-kubeconfig",
            "--authorization-kubeconfig",
        ] {
            command.arg(flag).arg(&nowhere);
        }
        for (flag, file) in [
            ("--client-ca-file", "ca.crt"),
            ("--tls-cert-file", "server.crt"),
            ("--tls-private-key-file", "server.key"),
        ] {
            command.arg(flag).arg(pki.join(file));
        }
        command
            .args(["--etcd-servers", &etcd.store().replace("etcd://", "http://")])
            .args(["--authentication-skip-lookup", "--enable-priority-and-fairness=false"])
            .args(["--disable-admission-plugins", PLUGINS_OFF])
            .args(["--bind-address", "127.0.0.1", "--secure-port", &port.to_string()]);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let started = Self {
            process,
            // Every authorizer admits this group.
            client: Client::new(
                &format!("https://127.0.0.1:{port}"),
                &server.data_dir(),
                Who::ShardAdmin,
            ),
            _etcd: etcd,
            _dir: dir,
        };
        // It reports ready only after it has listed the namespaces of a kube-apiserver, which does
        // not run.
        until("the apiextensions-apiserver answers", || {
            let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            let answer = started.client.try_send("GET", definitions, &[], Vec::new().into());
            answer.ok().filter(|answer| answer.code == 200)
        });
        Some(started)
    }

    /// Returns a client of its administrator.
    pub fn client(&self) -> &Client {
        &self.client
    }
}

impl Drop for Apiextensions {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
