//! kubectl in its oldest and its newest version that can be had, against the kubeconfig that the
//! server writes: the one on the path, and one that is built from Kubernetes' Go modules.

use std::{path::PathBuf, process::Command};

use insula_e2e::{PATIENCE, newest_kubectl, run_bounded, shared, unique};
use serde_json::{Value, json};

/// Returns the programs with their versions.
fn programs() -> Vec<(String, PathBuf)> {
    let newest = newest_kubectl().unwrap_or_else(|missing| {
        eprintln!("skipped: {missing}");
        PathBuf::new()
    });
    let version = |program: PathBuf| {
        let output = Command::new(&program)
            .args(["version", "--client", "-o", "json"])
            .output();
        let output = output.ok().filter(|output| output.status.success())?;
        let told: Value = serde_json::from_slice(&output.stdout).ok()?;
        Some((told["clientVersion"]["gitVersion"].to_string(), program))
    };
    let found: Vec<_> = ["kubectl".into(), newest].into_iter().filter_map(version).collect();
    if found.is_empty() {
        eprintln!("skipped: no kubectl");
    }
    found
}

#[test]
fn every_kubectl_works_with_the_written_kubeconfig() {
    let server = shared();
    for (version, program) in programs() {
        let home = tempfile::tempdir().unwrap();
        let run = |arguments: &[&str], stdin: &str| -> String {
            let mut command = Command::new(&program);
            command
                .env("KUBECONFIG", server.kubeconfig())
                .env("HOME", home.path())
                .args(arguments);
            let output = run_bounded(&mut command, stdin, PATIENCE);
            let (out, err) = (
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr),
            );
            assert!(output.status.success(), "{version} {arguments:?}: {out}{err}");
            out.into_owned()
        };
        // A path without a workspace is the server's, or below the path of the server's URL: both
        // answer.
        for context in ["root", "base"] {
            assert_eq!(
                run(&["--context", context, "get", "--raw", "/readyz"], ""),
                "ok",
                "{version} {context}"
            );
        }
        let metrics = run(&["--context", "base", "get", "--raw", "/metrics"], "");
        assert!(metrics.contains("# HELP"), "{version}");
        let api = run(&["--context", "base", "get", "--raw", "/clusters/root/api"], "");
        assert!(api.contains("APIVersions"), "{version} {api}");

        let name = unique("kubectl");
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}});
        let map = map.to_string();
        let config = format!("configmap/{name}");
        assert!(
            run(&["create", "-f", "-", "-o", "name"], &map).contains(&config),
            "{version}"
        );
        run(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &map);
        run(&["label", &config, "a=b"], "");
        run(&["patch", &config, "--type=merge", "-p", r#"{"data": {"a": "c"}}"#], "");
        assert!(run(&["describe", &config], "").contains("a=b"), "{version}");
        assert_eq!(run(&["get", &config, "-o", "jsonpath={.data.a}"], ""), "c", "{version}");
        run(&["wait", &config, "--for=jsonpath={.data.a}=c", "--timeout=10s"], "");
        assert!(
            run(&["explain", "configmap.data"], "").contains("map[string]string"),
            "{version}"
        );
        let kinds = run(&["api-resources", "-o", "name"], "");
        assert!(kinds.contains("workspaces.tenancy.kcp.io"), "{version} {kinds}");
        assert!(
            run(&["get", "clusterrole", "cluster-admin"], "").contains("cluster-admin"),
            "{version}"
        );
        assert!(run(&["auth", "whoami"], "").contains("kcp-admin"), "{version}");
        run(&["get", "flowschemas,prioritylevelconfigurations"], "");
        run(&["delete", &config, "--wait"], "");
        eprintln!("{version}: works");
    }
}
