//! Checks of the server, its port and clock, and of versions.

use std::{io, net::TcpListener, process::Command, time::Duration};

use insula_server::Config;
use serde_json::Value;

use super::Finding;
use crate::{
    client::{Client, certificate::HTTPS_PORT, credentials::certificate},
    connection::{Connection, Resolved, ServerFlags},
    status,
};

/// Longest wait for a server on this machine.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Difference of two clocks that tokens and certificates bear.
pub(super) const SKEW_MAX: i64 = 5;
/// Minor versions that kubectl may be older or newer than the server, as Kubernetes says.
const KUBECTL_SKEW: i64 = 4;

pub(super) async fn check(config: &Config, connection: &Connection) -> Vec<Finding> {
    let mut findings = vec![port(config)];
    findings.extend(super::etcd::check(config).await);
    let resolved = match resolve(config, connection) {
        Ok(resolved) => resolved,
        Err(error) => {
            findings.push(Finding::skipped("server", format!("{error:#}")));
            findings.extend(kubectl(None));
            return findings;
        }
    };
    findings.push(credentials(&resolved));
    let status = status::read(&resolved).await;
    match &status {
        Ok(status) if status.ready && status.version == status.client => {
            findings.push(Finding::ok(
                "server",
                format!("{} is ready, version {}", status.server, status.version),
            ));
        }
        Ok(status) if status.ready => findings.push(Finding::warning(
            "server",
            format!(
                "{} has version {}, this program {}",
                status.server, status.version, status.client
            ),
            "use the program of the server's release",
        )),
        Ok(status) => findings.push(Finding::problem(
            "server",
            format!("{} is not ready", status.server),
            "`insula status` names the check that fails, the server's log the cause",
        )),
        Err(error) => {
            let fix = match listens(&resolved).await {
                true => "something listens there: check the credentials and the authority of the kubeconfig",
                false => "start it with `insula start`, or name another with --kubeconfig or --server",
            };
            findings.push(Finding::problem("server", format!("{error:#}"), fix));
        }
    }
    if status.is_ok() {
        findings.push(clock(&resolved).await);
    }
    findings.extend(kubectl(status.ok().as_ref().map(|status| status.kubernetes.as_str())));
    findings
}

/// Checks the credentials of the kubeconfig: the dates of a client certificate.
fn credentials(resolved: &Resolved) -> Finding {
    const CHECK: &str = "credentials";
    match certificate(&resolved.user) {
        Ok(Some((_, shown))) => match shown.fault(crate::now().0) {
            Some(fault) => {
                let (fault, fix) = fault.split_once(": ").unwrap_or((&fault, ""));
                Finding::problem(CHECK, fault, fix)
            }
            None => Finding::ok(CHECK, shown.described()),
        },
        Ok(None) => Finding::skipped(CHECK, "the user has no client certificate"),
        Err(error) => Finding::problem(
            CHECK,
            format!("{error:#}"),
            "name another user with --user or --kubeconfig",
        ),
    }
}

/// Returns true if something accepts connections at the address of the server.
async fn listens(resolved: &Resolved) -> bool {
    let Ok(uri) = resolved.url.base().parse::<http::Uri>() else {
        return false;
    };
    let Some(host) = uri.host() else { return false };
    let address = (
        host.trim_matches(['[', ']']).to_owned(),
        uri.port_u16().unwrap_or(HTTPS_PORT),
    );
    let connecting = tokio::net::TcpStream::connect(address);
    matches!(tokio::time::timeout(TIMEOUT, connecting).await, Ok(Ok(_)))
}

/// Finds the server by flags and variables, else by the kubeconfig that the server writes.
fn resolve(config: &Config, connection: &Connection) -> anyhow::Result<Resolved> {
    let mut flags = connection.clone();
    flags.server.request_timeout.get_or_insert(TIMEOUT);
    let written = config.kubeconfig.clone();
    let written = written.unwrap_or_else(|| config.data_dir.join("admin.kubeconfig"));
    if !connection.is_given() && written.exists() {
        flags.server = ServerFlags {
            kubeconfig: Some(written),
            ..flags.server
        };
    }
    flags.resolve()
}

/// Checks that the server's address is free. A taken one is no finding of its own: the server that
/// answers there may be this one.
fn port(config: &Config) -> Finding {
    const CHECK: &str = "port";
    let listen = &config.listen;
    match TcpListener::bind(listen) {
        Ok(_) => Finding::ok(CHECK, format!("{listen} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Finding::ok(CHECK, format!("{listen} is in use; see the check of the server"))
        }
        Err(error) => Finding::problem(
            CHECK,
            format!("{listen} cannot be used: {error}"),
            "set listen to an address of this machine; ports below 1024 need rights",
        ),
    }
}

/// Compares the clock with that of the server.
async fn clock(resolved: &Resolved) -> Finding {
    const CHECK: &str = "clock";
    let date = match Client::new(resolved) {
        Ok(client) => client.date("/livez").await.ok().flatten(),
        Err(_) => None,
    };
    let Some(there) = date else {
        return Finding::skipped(CHECK, "the server does not tell its time");
    };
    let ahead = crate::now().0 - there;
    match ahead.abs() > SKEW_MAX {
        true => Finding::problem(
            CHECK,
            format!("this machine is {ahead} s ahead of the server"),
            "let chrony or systemd-timesyncd set both clocks: tokens and certificates depend on them",
        ),
        false => Finding::ok(CHECK, format!("{ahead} s ahead of the server")),
    }
}

/// Compares kubectl's version with the Kubernetes version that the server serves.
fn kubectl(server: Option<&str>) -> Vec<Finding> {
    const CHECK: &str = "kubectl";
    let Ok(output) = Command::new("kubectl")
        .args(["version", "--client", "-o", "json"])
        .output()
    else {
        return vec![Finding::skipped(CHECK, "there is no kubectl on PATH")];
    };
    let version: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let version = version["clientVersion"]["gitVersion"]
        .as_str()
        .unwrap_or("unknown")
        .to_owned();
    let skew = match (server.and_then(minor), minor(&version)) {
        (Some(server), Some(own)) => (server - own).abs(),
        (_, _) => 0,
    };
    vec![match skew > KUBECTL_SKEW {
        true => Finding::warning(
            CHECK,
            format!("{version}, and the server serves {}", server.unwrap_or_default()),
            "take a kubectl that is at most four minor versions away",
        ),
        false => Finding::ok(CHECK, version),
    }]
}

/// Returns the minor version of `v1.32.4`.
fn minor(version: &str) -> Option<i64> {
    version.strip_prefix("v1.")?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::minor;

    #[test]
    fn minor_versions_are_read() {
        assert_eq!(minor("v1.32.4-dispatcher"), Some(32));
        assert_eq!(minor("unknown"), None);
    }
}
