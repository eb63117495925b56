//! Commands of operators: doctor, status, samples, completion, manual, version.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use insula_e2e::{Etcd, Server, shared, unique, unused_port, workspace};
use serde_json::Value;

use super::{Ran, Shell, ran};

/// Runs the doctor, and returns its code and its findings.
fn doctor(shell: &Shell, arguments: &[&str]) -> (i32, Vec<Value>) {
    let Ran { code, out, error } = shell.run(&[&["doctor", "-o", "json"], arguments].concat());
    let findings = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{error}"));
    (code, findings)
}

fn verdicts(findings: &[Value], check: &str) -> Vec<String> {
    let of_check = findings.iter().filter(|finding| finding["check"] == check);
    of_check
        .map(|finding| finding["verdict"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_doctor_finds_nothing_wrong_with_a_server() {
    let server = shared();
    let shell = Shell::admin(&server);
    let data = server.data_dir();
    let (code, findings) = doctor(&shell, &["--data-dir", data.to_str().unwrap(), "-W", ":root"]);
    assert_eq!(code, 0, "{findings:#?}");
    for check in [
        "configuration",
        "data directory",
        "keys",
        "certificates",
        "server",
        "clock",
    ] {
        assert_eq!(verdicts(&findings, check), ["ok"], "{check}: {findings:#?}");
    }
    // A slow or crowded disk is a warning, and this machine may have one.
    for check in ["disk space", "disk latency", "open files", "port", "kubectl"] {
        assert_eq!(verdicts(&findings, check).len(), 1, "{check}: {findings:#?}");
    }
    let text = shell.ok(&["doctor", "--data-dir", data.to_str().unwrap()]);
    assert!(text.contains("certificates") && text.contains("0 problems, "), "{text}");
}

#[test]
fn every_problem_has_a_fix() {
    let mut server = Server::start();
    let shell = Shell::admin(&server);
    server.kill9();
    let data = server.data_dir();
    let data_dir = data.to_str().unwrap();
    let mode = |path: &str, mode| {
        fs::set_permissions(data.join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("", 0o755);
    mode("pki/server.key", 0o644);
    fs::copy(data.join("pki/server.key"), data.join("pki/kcp-admin.key")).unwrap();
    fs::write(data.join("pki/broken.crt"), "no certificate").unwrap();
    let config = shell.home.path().join("wrong.yaml");
    fs::write(&config, "lissten: 127.0.0.1:1\n").unwrap();
    let (code, findings) = doctor(&shell, &["--data-dir", data_dir]);
    assert_eq!(code, 1, "{findings:#?}");
    for check in ["data directory", "keys", "server"] {
        assert_eq!(verdicts(&findings, check), ["problem"], "{check}: {findings:#?}");
    }
    assert_eq!(
        verdicts(&findings, "certificates"),
        ["problem", "problem"],
        "{findings:#?}"
    );
    for finding in findings.iter().filter(|finding| finding["verdict"] == "problem") {
        assert!(!finding["fix"].as_str().unwrap_or_default().is_empty(), "{finding}");
    }
    let (code, findings) = doctor(&shell, &["--config", config.to_str().unwrap()]);
    assert_eq!(
        (code, verdicts(&findings, "configuration")),
        (1, vec!["problem".to_owned()])
    );
    // An etcd that does not answer.
    let mut command = shell.prepared(insula_e2e::insula(&["doctor", "-o", "json"]));
    command.env("INSULA_STORE", format!("etcd://127.0.0.1:{}", unused_port()));
    let findings: Vec<Value> = serde_json::from_str(&ran(&mut command).out).unwrap();
    assert_eq!(verdicts(&findings, "etcd"), ["problem"]);
}

#[test]
fn the_doctor_asks_each_member_of_etcd() {
    let Some(etcd) = Etcd::start() else { return };
    let shell = Shell::with("{}");
    let findings = |store: &str| -> Vec<Value> {
        let mut command = shell.prepared(insula_e2e::insula(&["doctor", "-o", "json"]));
        let found: Vec<Value> = serde_json::from_str(&ran(command.env("INSULA_STORE", store)).out).unwrap();
        found.into_iter().filter(|finding| finding["check"] == "etcd").collect()
    };
    let of = |finding: &Value, field: &str| finding[field].as_str().unwrap_or_default().to_owned();
    let well = findings(&etcd.store());
    assert!(well.len() == 1 && of(&well[0], "verdict") != "problem", "{well:?}");
    let detail = of(&well[0], "detail");
    for part in ["version 3.", ", leader, ", " MiB of ", " s apart"] {
        assert!(detail.contains(part), "{part}: {detail}");
    }

    etcd.raise_nospace();
    // A second member that is not there.
    let store = format!("{},127.0.0.1:{}", etcd.store(), unused_port());
    let ill = findings(&store);
    assert_eq!(ill.len(), 2, "{ill:?}");
    for (finding, detail, fix) in [
        (&ill[0], "alarm:NOSPACE", "etcdctl alarm disarm"),
        (&ill[1], "onnection refused", "start it, or correct store"),
    ] {
        assert_eq!(of(finding, "verdict"), "problem");
        assert!(
            of(finding, "detail").contains(detail) && of(finding, "fix").contains(fix),
            "{finding}"
        );
    }
}

#[test]
fn the_status_names_server_user_and_workspace() {
    let server = shared();
    let (path, _) = workspace(&server.admin(), "status");
    let shell = Shell::admin(&server);
    let status: Value = serde_json::from_str(&shell.ok(&["status", "-o", "json", "-W", &path])).unwrap();
    assert_eq!(status["server"], server.url());
    assert_eq!(status["ready"], true);
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["user"], "kcp-admin");
    assert_eq!(status["store"], "embedded");
    assert_eq!(status["workspace"]["path"], path.as_str());
    assert_eq!(status["workspace"]["phase"], "Ready");
    assert_eq!(status["workspace"]["below"], 0);
    let text = shell.ok(&["status"]);
    assert!(text.contains("health      ready\n"), "{text}");
    let error = shell.fails(&["status", "-s", &format!("https://127.0.0.1:{}", unused_port())]);
    assert!(error.contains("name another with --server or --kubeconfig"), "{error}");
}

#[test]
fn samples_are_listed_shown_and_served() {
    let server = shared();
    let shell = Shell::admin(&server);
    let (path, _) = workspace(&server.admin(), "samples");
    shell.ok(&["ws", &format!(":{path}")]);
    let listed = shell.ok(&["samples", "list", "-o", "name"]);
    assert!(listed.lines().count() >= 18, "{listed}");
    for name in listed.lines() {
        let shown = shell.ok(&["samples", "show", name]);
        assert!(
            shown.contains("kind: APIResourceSchema") && shown.contains("kind: APIConversion"),
            "{shown}"
        );
        let commands = shell.ok(&["samples", "apply", name]);
        assert!(commands.starts_with("kubectl get "), "{commands}");
    }
    let client = server.admin().in_workspace(&path);
    let bucket = client.get("/apis/samples.example.io/v1alpha1/buckets").expect(200);
    assert_eq!(bucket["items"].as_array().unwrap().len(), 1, "{bucket}");
    let error = shell.fails(&["samples", "show", "nothing"]);
    assert!(
        error.contains("there is no sample \"nothing\": take certificates, defaults-and-constants, "),
        "{error}"
    );
}

#[test]
fn words_are_completed_in_bash() {
    let server = shared();
    let shell = Shell::admin(&server);
    let top = unique("complete");
    shell.ok(&["ws", "create", &top, "--enter"]);
    shell.ok(&["ws", "create", "inner", "--type", "root:universal"]);
    let script = shell.home.path().join("insula.bash");
    fs::write(&script, shell.ok(&["completion", "bash"])).unwrap();
    let complete = |line: &str| {
        let mut command = shell.prepared(Command::new("bash"));
        let bin = insula_e2e::binary();
        let path = format!("{}:{}", bin.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let body = "source \"$1\"; COMP_LINE=\"$2\" COMP_POINT=${#2}; _insula; printf '%s\\n' \"${COMPREPLY[@]}\"";
        command
            .args(["-c", body, "bash", script.to_str().unwrap(), line])
            .env("PATH", path);
        ran(&mut command).out
    };
    assert_eq!(complete("insula back"), "backup\n");
    assert_eq!(complete("insula ws --sho"), "--short\n");
    assert_eq!(complete("insula ws inn"), "inner\n");
    assert_eq!(complete(&format!("insula ws :root:{top}:i")), "inner\n");
    assert_eq!(complete("insula ws tree --context system:"), "admin\n");
    for shell_name in ["zsh", "fish", "powershell"] {
        assert!(shell.ok(&["completion", shell_name]).contains("__complete"));
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let shell = Shell::with("");
    let dir = shell.home.path().join("man");
    shell.ok(&["man", "--dir", dir.to_str().unwrap()]);
    let page = fs::read_to_string(dir.join("insula-ws-create.1")).unwrap();
    assert!(
        page.contains("ignore\\-existing") && page.contains("\\-\\-workspace"),
        "{page}"
    );
    assert!(fs::read_dir(&dir).unwrap().count() > 50);
    assert!(shell.ok(&["man"]).contains("create\\-workspace"));
    assert!(shell.ok(&["help"]).contains("kubectl's: `insula ws PATH`"));
}

#[test]
fn the_help_of_start_names_variables_stores_and_codes() {
    let shell = Shell::with("");
    let help = shell.ok(&["start", "--help"]);
    for part in [
        "limits.bodyBytes is INSULA_LIMITS_BODY_BYTES",
        "dataDir is INSULA_DATA_DIR",
        "etcds://",
        "etcd was rolled back",
        "or does not name the server",
    ] {
        assert!(help.contains(part), "{part}: {help}");
    }
    assert!(shell.ok(&["doctor", "--help"]).contains("INSULA_DATA_DIR"));
    let dir = shell.home.path().join("man");
    shell.ok(&["man", "--dir", dir.to_str().unwrap()]);
    let page = fs::read_to_string(dir.join("insula-start.1")).unwrap();
    assert!(page.contains("INSULA_LIMITS_BODY_BYTES"), "{page}");
}

#[test]
fn the_version_names_its_build() {
    let shell = Shell::with("");
    let version = shell.ok(&["version"]);
    let release = env!("CARGO_PKG_VERSION");
    assert!(version.starts_with(&format!("insula {release} (commit ")), "{version}");
    assert_eq!(shell.ok(&["--version"]), version);
    let build: Value = serde_json::from_str(&shell.ok(&["version", "-o", "json"])).unwrap();
    for field in ["commit", "date", "target"] {
        assert!(!build[field].as_str().unwrap().is_empty(), "{field}");
    }
    assert!(version.contains(build["target"].as_str().unwrap()), "{version}");
    let error = shell.fails(&["get", "pods"]);
    assert_eq!(
        error,
        "error: get is kubectl's: `kubectl get` works in the workspace of `insula ws`\n"
    );
}
