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
    let runtime = crate::runtime()?;
    let names = runtime.block_on(front_proxy(&client, &root))?;
    let program = build::program(&root, &project.name, arguments.release, None)?;
    let mut flags: Vec<OsString> = ["--listen", &arguments.listen].map(OsString::from).to_vec();
    flags.extend(["--front-proxy-ca-file".into(), root.join(FRONT_PROXY).into()]);
    if !names.is_empty() {
        flags.extend(["--front-proxy-allowed-names".into(), names.join(",").into()]);
    }
    let spawned = run::command(&program, &root, &flags).spawn();
    let mut child = spawned.with_context(|| format!("cannot run {}", program.display()))?;
    let served = runtime.block_on(serve(&mut child, &client, &project, &root, &arguments.listen));
    stop(&mut child);
    served.map(|()| ExitCode::SUCCESS)
}

/// Writes the authority of the front proxy into the project, and returns the names that it signs
/// for.
async fn front_proxy(client: &Client, root: &Path) -> anyhow::Result<Vec<String>> {
    let (code, found) = client.get(AUTHENTICATION).await?;
    ensure!(
        code.is_success(),
        "the workspace has no front proxy to aggregate APIs with: {}",
        message(&found)
    );
    let path = root.join(FRONT_PROXY);
    let authority = text(&found, "/data/requestheader-client-ca-file");
    fs::write(&path, authority).with_context(|| format!("cannot write {}", path.display()))?;
    let names = text(&found, "/data/requestheader-allowed-names");
    serde_json::from_str(names).context("requestheader-allowed-names is no list of names")
}

/// Offers the APIs in the workspace until the server ends or a signal comes, and then no more.
async fn serve(child: &mut Child, client: &Client, project: &Project, root: &Path, listen: &str) -> anyhow::Result<()> {
    let data = root.join(".insula");
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            bail!("the server ended with {status}");
        }
        // Before its first start there is no kubeconfig, and before each nobody answers.
        if let Ok(own) = Client::from_kubeconfig(&data.join("admin.kubeconfig"), None)
            && own
                .at_path("")
                .get("/readyz")
                .await
                .is_ok_and(|(code, _)| code.is_success())
        {
            break;
        }
        ensure!(
            begun.elapsed() < READY_TIMEOUT,
            "the server does not answer within {READY_TIMEOUT:?}"
        );
        tokio::time::sleep(INTERVAL).await;
    }
    let authority = data.join("pki/ca.crt");
    let authority = fs::read(&authority).with_context(|| format!("cannot read {}", authority.display()))?;
    let services: Vec<Value> = config::group_versions(project)
        .into_iter()
        .map(|(group, version, priority)| {
            let group = project.full_group(&group);
            json!({
                "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                "metadata": {
                    "name": format!("{version}.{group}"),
                    "annotations": {"insula.io/url": format!("https://{listen}")},
                },
                "spec": {
                    "group": group, "version": version, "groupPriorityMinimum": 1000, "versionPriority": priority,
                    "caBundle": STANDARD.encode(&authority),
                    "service": {"namespace": "default", "name": project.name},
                },
            })
        })
        .collect();
    let offered = offer(client, &services).await;
    if offered.is_ok() {
        print::line("serving; Ctrl-C ends the server and removes its APIs from the workspace")?;
        ended(child).await?;
    }
    for service in &services {
        let name = text(service, "/metadata/name");
        client.delete(&format!("{API_SERVICES}/{name}"), &json!({})).await?;
    }
    offered
}

/// Writes APIServices, and waits until they are available.
async fn offer(client: &Client, services: &[Value]) -> anyhow::Result<()> {
    for service in services {
        let path = format!("{API_SERVICES}/{}", text(service, "/metadata/name"));
        let (mut code, mut answer) = client.post(API_SERVICES, service).await?;
        if code == StatusCode::CONFLICT {
            (code, answer) = client.patch(&path, service).await?;
        }
        ensure!(code.is_success(), "{}", message(&answer));
        let begun = Instant::now();
        loop {
            let (_, found) = client.get(&path).await?;
            let conditions = found["status"]["conditions"].as_array().into_iter().flatten();
            let available = conditions.clone().find(|condition| condition["type"] == "Available");
            let available = available.cloned().unwrap_or_default();
            if available["status"] == "True" {
                break;
            }
            ensure!(
                begun.elapsed() < READY_TIMEOUT,
                "{path} is not available: {}",
                text(&available, "/message")
            );
            tokio::time::sleep(INTERVAL).await;
        }
        print::line(&format!("available: {}", text(service, "/metadata/name")))?;
    }
    Ok(())
}

/// Waits until the server ends or a signal comes.
async fn ended(child: &mut Child) -> anyhow::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    loop {
        tokio::select! {
            _ = terminated.recv() => return Ok(()),
            _ = interrupted.recv() => return Ok(()),
            () = tokio::time::sleep(INTERVAL) => {}
        }
        if let Some(status) = child.try_wait()? {
            bail!("the server ended with {status}");
        }
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
