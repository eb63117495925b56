//! `insula boot run in-workspace`: a project's server on this machine, whose APIs a workspace of
//! another server offers through aggregation for as long as it runs.

use std::{
    ffi::OsString,
    fs,
    path::Path,
    process::{Child, Command, ExitCode},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::Args;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::{build, config, here, project::Project, run};
use crate::{
    client::{Client, message},
    connection::Connection,
    files::text,
    print,
};

/// Longest wait until the server answers, and until its APIs are available.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_millis(100);
/// ConfigMap with the authority of the front proxy.
const AUTHENTICATION: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
/// File of the authority, in the root of the project.
const FRONT_PROXY: &str = ".insula-front-proxy.crt";

#[derive(Args)]
pub(crate) struct InWorkspace {
    #[command(flatten)]
    connection: Connection,
    /// Address to serve on. The other server must be allowed to call it (`webhooks.allow`).
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:6444")]
    listen: String,
    /// Optimise the program.
    #[arg(long)]
    release: bool,
}

pub(crate) fn in_workspace(arguments: &InWorkspace) -> anyhow::Result<ExitCode> {
    let (root, project) = here()?;
    ensure!(
        !project.kinds.is_empty(),
        "the project has no kinds: add one with `insula boot create group version resource`"
    );
    let client = arguments.connection.client()?;
    // First, so that nothing is offered while it builds.
    let program = build::program(&root, &project.name, arguments.release, None)?;
    let offer = Offering {
        client,
        services: api_services(&project, &arguments.listen),
    };
    let mut child = None;
    let served = crate::runtime()?.block_on(async {
        let served = tokio::select! {
            served = offer.serve(&program, &root, &arguments.listen, &mut child) => served,
            signalled = signalled() => signalled,
        };
        offer.withdraw().await.and(served)
    });
    if let Some(child) = &mut child {
        stop(child);
    }
    served.map(|()| ExitCode::SUCCESS)
}

/// Returns an APIService for each group version of a project.
fn api_services(project: &Project, listen: &str) -> Vec<Value> {
    let versions = config::group_versions(project).into_iter();
    let service = |(group, version, priority): (String, String, usize)| {
        let group = project.full_group(&group);
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {
                "name": format!("{version}.{group}"),
                "annotations": {"insula.io/url": format!("https://{listen}")},
            },
            "spec": {
                "group": group, "version": version, "groupPriorityMinimum": 1000, "versionPriority": priority,
                "caBundle": null, "service": {"namespace": "default", "name": project.name},
            },
        })
    };
    versions.map(service).collect()
}

/// APIServices in a workspace.
struct Offering {
    client: Client,
    services: Vec<Value>,
}

impl Offering {
    /// Serves the APIs, and offers them in the workspace, until the server ends.
    ///
    /// The front proxy of a workspace appears with its first APIService, and the authority of the
    /// server with its first start: so the APIServices come first, and trust the server later.
    async fn serve(&self, program: &Path, root: &Path, listen: &str, child: &mut Option<Child>) -> anyhow::Result<()> {
        for service in &self.services {
            self.register(service).await?;
        }
        let names = self.front_proxy(root).await?;
        let mut flags: Vec<OsString> = ["--listen", listen].map(OsString::from).to_vec();
        flags.extend(["--front-proxy-ca-file".into(), root.join(FRONT_PROXY).into()]);
        if !names.is_empty() {
            flags.extend(["--front-proxy-allowed-names".into(), names.join(",").into()]);
        }
        let spawned = run::command(program, root, &flags).spawn();
        let child = child.insert(spawned.with_context(|| format!("cannot run {}", program.display()))?);
        let data = root.join(".insula");
        until_ready(child, &data).await?;
        let authority = data.join("pki/ca.crt");
        let authority = fs::read(&authority).with_context(|| format!("cannot read {}", authority.display()))?;
        let trusted = json!({"spec": {"caBundle": STANDARD.encode(authority)}});
        for service in &self.services {
            self.trust(service, &trusted).await?;
        }
        print::line("serving; Ctrl-C ends the server and removes its APIs from the workspace")?;
        loop {
            if let Some(status) = child.try_wait()? {
                bail!("the server ended with {status}");
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    async fn register(&self, service: &Value) -> anyhow::Result<()> {
        let (mut code, mut answer) = self.client.post(API_SERVICES, service).await?;
        if code == StatusCode::CONFLICT {
            // Left by a command that was killed. It trusts nothing until this server is ready.
            (code, answer) = self.client.patch(&path_of(service), service).await?;
        }
        ensure!(code.is_success(), "{}", message(&answer));
        Ok(())
    }

    /// Writes the authority of the front proxy into the project, and returns the names that it
    /// signs for.
    async fn front_proxy(&self, root: &Path) -> anyhow::Result<Vec<String>> {
        let begun = Instant::now();
        let found = loop {
            let (code, found) = self.client.get(AUTHENTICATION).await?;
            if code.is_success() {
                break found;
            }
            ensure!(
                code == StatusCode::NOT_FOUND && begun.elapsed() < READY_TIMEOUT,
                "the workspace has no front proxy to aggregate APIs with: {}",
                message(&found)
            );
            tokio::time::sleep(INTERVAL).await;
        };
        let path = root.join(FRONT_PROXY);
        let authority = text(&found, "/data/requestheader-client-ca-file");
        fs::write(&path, authority).with_context(|| format!("cannot write {}", path.display()))?;
        let names = text(&found, "/data/requestheader-allowed-names");
        serde_json::from_str(names).context("requestheader-allowed-names is no list of names")
    }

    /// Lets an APIService trust the server, and waits until it is available. A changed one is
    /// checked at once.
    async fn trust(&self, service: &Value, trusted: &Value) -> anyhow::Result<()> {
        let path = path_of(service);
        let (code, answer) = self.client.patch(&path, trusted).await?;
        ensure!(code.is_success(), "{}", message(&answer));
        let begun = Instant::now();
        loop {
            let (_, found) = self.client.get(&path).await?;
            let mut conditions = found["status"]["conditions"].as_array().into_iter().flatten();
            let available = conditions.find(|condition| condition["type"] == "Available");
            let available = available.cloned().unwrap_or_default();
            if available["status"] == "True" {
                return print::line(&format!("available: {}", text(service, "/metadata/name")));
            }
            ensure!(
                begun.elapsed() < READY_TIMEOUT,
                "{path} is not available: {}",
                text(&available, "/message")
            );
            tokio::time::sleep(INTERVAL).await;
        }
    }

    async fn withdraw(&self) -> anyhow::Result<()> {
        for service in &self.services {
            self.client.delete(&path_of(service), &json!({})).await?;
        }
        Ok(())
    }
}

fn path_of(service: &Value) -> String {
    format!("{API_SERVICES}/{}", text(service, "/metadata/name"))
}

/// Waits until the server answers.
async fn until_ready(child: &mut Child, data: &Path) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            bail!("the server ended with {status}");
        }
        // Before its first start there is no kubeconfig, and before each nobody answers.
        if let Ok(own) = Client::from_kubeconfig(&data.join("admin.kubeconfig"), None)
            && let Ok((code, _)) = own.at_path("").get("/readyz").await
            && code.is_success()
        {
            return Ok(());
        }
        ensure!(
            begun.elapsed() < READY_TIMEOUT,
            "the server does not answer within {READY_TIMEOUT:?}"
        );
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Waits for a signal.
async fn signalled() -> anyhow::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminated.recv() => Ok(()),
        _ = interrupted.recv() => Ok(()),
    }
}

/// Ends the server as a service manager does.
fn stop(child: &mut Child) {
    if matches!(child.try_wait(), Ok(None)) {
        // A process that is gone needs no signal.
        let _ = Command::new("kill").arg(child.id().to_string()).status();
        let _ = child.wait();
    }
}
