//! `insula start`: files of the first start, refusals of a second one, and the shutdown.

mod drain;
mod history;
mod refused;

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::Path,
    time::{Duration, Instant},
};

use insula_e2e::{Server, Setup, Who, insula, ready_workspace, run_bounded, runtime, tls, unique, until, workspace};
use serde_json::{Value, json};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}})
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[test]
fn the_first_start_creates_an_identity_for_its_owner_only() {
    let server = Server::start();
    assert_eq!(mode(&server.data_dir()), 0o700);
    assert_eq!(mode(&server.kubeconfig()), 0o600);
    for key in fs::read_dir(server.data_dir().join("pki")).unwrap().map(Result::unwrap) {
        if key.path().extension().is_some_and(|end| end == "key") {
            assert_eq!(mode(&key.path()), 0o600, "{key:?}");
        }
    }
    assert!(server.address().starts_with("127.0.0.1:"));
    let port = server.address().rsplit(':').next().unwrap();
    assert_ne!(port, "0");
    server
        .admin()
        .in_workspace("root")
        .get("/api/v1/namespaces/default")
        .expect(200);
}

#[test]
fn the_kubeconfig_has_kcps_contexts_and_absolute_paths() {
    let server = Server::start();
    let config: Value = serde_saphyr::from_str(&fs::read_to_string(server.kubeconfig()).unwrap()).unwrap();
    let names = |list: &str| -> Vec<String> {
        config[list]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names("contexts"), ["base", "root", "shard-base", "system:admin"]);
    let servers: Vec<&str> = config["clusters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["cluster"]["server"].as_str().unwrap())
        .collect();
    let url = server.url();
    assert_eq!(
        servers,
        [
            url,
            &format!("{url}/clusters/root"),
            url,
            &format!("{url}/clusters/system:admin")
        ]
    );
    let has = |entry: &Value, key: &str| entry[key].as_str().is_some_and(|text| text.len() > 100);
    for cluster in config["clusters"].as_array().unwrap() {
        assert!(has(&cluster["cluster"], "certificate-authority-data"), "{cluster}");
    }
    for user in config["users"].as_array().unwrap() {
        let user = &user["user"];
        assert!(has(user, "client-certificate-data") && has(user, "client-key-data"));
    }
}

/// The kubeconfig of a running server is not replaced by a second one that inherited its variable.
#[test]
fn a_start_leaves_the_kubeconfig_of_another_server_alone() {
    let server = Server::start();
    let before = fs::read_to_string(server.kubeconfig()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("other");
    let mut second = insula(&["start", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()]);
    second.env("INSULA_KUBECONFIG", server.kubeconfig());
    let output = run_bounded(&mut second, "", Duration::from_secs(20));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    let expected = format!("{} is the kubeconfig of another server", server.kubeconfig().display());
    assert!(stderr.contains(&expected), "{stderr}");
    assert_eq!(fs::read_to_string(server.kubeconfig()).unwrap(), before);
    assert!(!data.exists(), "nothing is made by a start that is refused");
}

/// The server knows its kubeconfig, outside its data directory, after a change of its CA, and after
/// its data directory moved.
#[test]
fn a_new_ca_and_a_moved_directory_keep_the_kubeconfig() {
    let server = Server::start();
    let ca = |server: &Server| fs::read(server.data_dir().join("pki/ca.crt")).unwrap();
    let first = ca(&server);
    let server = server.restart_after(|data| fs::remove_dir_all(data.join("pki")).unwrap());
    assert_ne!(ca(&server), first);
    server.admin().in_workspace("root").get("/readyz").expect(200);

    let stopped = server.stopped();
    let server = Server::with_data(Setup::default(), |data| {
        let (old, new) = (stopped.data_dir(), data.parent().unwrap());
        fs::rename(&old, data).unwrap();
        fs::copy(old.parent().unwrap().join("kubeconfig"), new.join("kubeconfig")).unwrap();
    });
    let (config, moved) = (server.kubeconfig(), server.data_dir());
    let text = fs::read_to_string(&config).unwrap();
    assert!(
        text.contains(moved.to_str().unwrap()) && text.contains(server.url()),
        "{text}"
    );
}

#[test]
fn only_tls_with_a_certificate_of_its_ca_is_spoken() {
    let (server, stranger) = (Server::start(), Server::start());
    // A client that trusts another CA refuses this server.
    let other = tls(&stranger.data_dir(), &Who::Anonymous);
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(other)
        .https_only()
        .enable_http1()
        .build();
    let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build(connector);
    let request = http::Request::get(format!("{}/readyz", server.url()))
        .body(String::new())
        .unwrap();
    let error = runtime().block_on(client.request(request)).unwrap_err();
    // Unknown, or of the same name and signed with another key: both CAs have the same name.
    assert!(format!("{error:?}").contains("InvalidCertificate"), "{error:?}");
    // A client without TLS gets nothing of the API.
    use std::io::{Read, Write};
    let mut plain = TcpStream::connect(server.address()).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    plain.write_all(b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("200"), "{answer:?}");
}

#[test]
fn a_second_start_refuses_and_names_the_holder() {
    let server = Server::start();
    let data = server.data_dir();
    let mut second = insula(&["start", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()]);
    let output = run_bounded(&mut second, "", Duration::from_secs(20));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    for part in ["is in use", &server.pid().to_string(), "--data-dir"] {
        assert!(stderr.contains(part), "{part} in {stderr}");
    }
    server.admin().in_workspace("root").get("/readyz").expect(200);
}

#[test]
fn a_restart_keeps_everything() {
    let server = Server::start();
    let admin = server.admin();
    let (path, cluster) = workspace(&admin, "kept");
    admin.in_workspace(&path).post(MAPS, &config_map("a")).expect(201);
    let read = |server: &Server| {
        let admin = server.admin();
        let map = admin.in_workspace(&path).get(&format!("{MAPS}/a")).expect(200);
        let logical = admin
            .in_workspace(&cluster)
            .get("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster")
            .expect(200);
        // Its URL contains the port, which changes with each start.
        let spaces = admin.in_workspace(&path).get("/api/v1/namespaces").expect(200);
        (
            map,
            logical["metadata"]["uid"].clone(),
            logical["status"]["phase"].clone(),
            spaces["items"].clone(),
        )
    };
    let certificate = fs::read(server.data_dir().join("pki/ca.crt")).unwrap();
    let before = read(&server);
    server.signal("-TERM");
    let server = server.restart();
    assert_eq!(read(&server), before);
    assert_eq!(fs::read(server.data_dir().join("pki/ca.crt")).unwrap(), certificate);
    // Revisions continue: a watch can start from a list before the restart.
    let version = before.0["metadata"]["resourceVersion"].as_str().unwrap();
    let path_of_watch = format!("{MAPS}?watch=true&resourceVersion={version}");
    let admin = server.admin().in_workspace(&path);
    admin.post(MAPS, &config_map("b")).expect(201);
    let added = admin.watch(&path_of_watch, |event| {
        Some(event["object"]["metadata"]["name"].clone())
    });
    assert_eq!(added, Some(json!("b")));
}

#[test]
fn sigterm_ends_watches_and_exits_with_0() {
    let server = Server::start();
    let admin = server.admin();
    admin.in_workspace("root").post(MAPS, &config_map("seen")).expect(201);
    let (client, watch) = (admin.in_workspace("root"), format!("{MAPS}?watch=true"));
    let (send, open) = std::sync::mpsc::channel();
    let watching = std::thread::spawn(move || {
        client.watch::<()>(&watch, |event| {
            // The receiver is gone when the test is over.
            let _ = send.send(event);
            None
        })
    });
    open.recv_timeout(Duration::from_secs(20)).unwrap();
    let address = server.address().to_owned();
    let begun = Instant::now();
    server.signal("-TERM");
    let (code, log) = server.wait();
    assert_eq!(code, Some(0), "{log}");
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "it drained, and did not wait for the watch for ever"
    );
    assert!(log.contains("stopped"), "{log}");
    assert_eq!(watching.join().unwrap(), None);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_request_in_flight_is_answered_during_the_drain() {
    let server = Server::start();
    let admin = server.admin().in_workspace("root");
    admin.get("/readyz").expect(200);
    // Writers continue until the server refuses them. Every write answered with 201 is there after
    // a restart.
    let name = unique("drain");
    let writer = {
        let (admin, name) = (admin, name.clone());
        std::thread::spawn(move || {
            let mut acknowledged = 0;
            for i in 0..10_000 {
                let body = config_map(&format!("{name}-{i}")).to_string().into();
                match admin.try_send("POST", MAPS, &[("content-type", "application/json")], body) {
                    Ok(answer) if answer.code == 201 => acknowledged += 1,
                    _ => break,
                }
            }
            acknowledged
        })
    };
    std::thread::sleep(Duration::from_millis(100));
    server.signal("-TERM");
    let acknowledged = writer.join().unwrap();
    assert!(acknowledged > 0);
    let server = server.restart();
    let list = server.admin().in_workspace("root").get(MAPS).expect(200);
    let found = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| item["metadata"]["name"].as_str().unwrap().starts_with(&name));
    assert!(found.count() >= acknowledged);
}

#[test]
fn settings_come_from_flags_then_variables_then_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(
        path("a.yaml"),
        "store: memory\nlisten: 127.0.0.1:1\nlog:\n  level: error\nlimits:\n  bodyBytes: 2000\n",
    )
    .unwrap();
    let server = Server::with(Setup {
        flags: vec!["--config".to_owned(), path("a.yaml")],
        environment: vec![
            ("INSULA_LOG_LEVEL".to_owned(), "debug".to_owned()),
            // The `--listen` flag of every server here overrides this variable.
            ("INSULA_LISTEN".to_owned(), "127.0.0.1:2".to_owned()),
        ],
        ..Setup::default()
    });
    let steps = server.json_log();
    assert!(
        steps
            .iter()
            .any(|line| line["step"] == "store" && line["detail"].as_str().unwrap().contains("memory")),
        "{steps:?}"
    );
    let mut large = config_map("large");
    large["data"]["a"] = "x".repeat(5000).into();
    server.admin().in_workspace("root").post(MAPS, &large).expect(413);
    // The variable's level overrides the file's.
    until("requests are logged", || {
        server
            .json_log()
            .iter()
            .any(|line| line["level"] == "DEBUG")
            .then_some(())
    });
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.yaml");
    fs::write(&file, "lisen: 127.0.0.1:0\n").unwrap();
    let data = dir.path().join("data");
    let start = |flags: &[&str], variable: Option<&str>| {
        let mut command = insula(&["start", "--data-dir", data.to_str().unwrap()]);
        command.args(flags).envs(variable.map(|name| (name, "x")));
        let output = run_bounded(&mut command, "", Duration::from_secs(20));
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    for (flags, variable, nearest) in [
        (vec!["--config", file.to_str().unwrap()], None, "listen"),
        (vec![], Some("INSULA_DATADIR"), "INSULA_DATA_DIR"),
        (vec!["--tokenfile", "x"], None, "--token-file"),
        (vec!["--log-format", "xml"], None, "log.format"),
    ] {
        let (code, stderr) = start(&flags, variable);
        assert_eq!(code, Some(2), "{stderr}");
        assert!(stderr.contains(nearest), "{nearest} in {stderr}");
        assert!(!data.exists(), "nothing is made by a start that is refused");
    }
}

#[test]
fn a_missing_token_file_names_its_flag() {
    let dir = tempfile::tempdir().unwrap();
    let (data, tokens) = (dir.path().join("data"), dir.path().join("none.csv"));
    let mut command = insula(&["start", "--data-dir", data.to_str().unwrap(), "--token-file"]);
    let output = run_bounded(command.arg(&tokens), "", Duration::from_secs(20));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let expected = format!(
        "cannot read {}: there is no such file: correct --token-file",
        tokens.display()
    );
    assert!(stderr.contains(&expected), "{stderr}");
}

/// A word that is no level would be taken for a module, and silence all others.
#[test]
fn levels_of_the_log_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let (file, data) = (dir.path().join("a.yaml"), dir.path().join("data"));
    fs::write(&file, "log:\n  level: nope\n").unwrap();
    let file = file.to_str().unwrap();
    for (flags, variable, word) in [
        (&["--log-level", "warning"][..], None, "warning"),
        (&["--log-level", "info,insula_store"], None, "insula_store"),
        (&["--config", file], None, "nope"),
        (&[], Some("verbose"), "verbose"),
    ] {
        let mut command = insula(&["start", "--data-dir", data.to_str().unwrap()]);
        command
            .args(flags)
            .envs(variable.map(|level| ("INSULA_LOG_LEVEL", level)));
        let output = run_bounded(&mut command, "", Duration::from_secs(20));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        let expected = format!("`{word}` is not one of off, error, warn, info, debug, trace");
        assert!(stderr.contains("log.level") && stderr.contains(&expected), "{stderr}");
        assert!(!data.exists(), "nothing is made by a start that is refused");
    }
    let server = Server::with_flags(&["--log-level", "warn,insula_server=debug"]);
    server.admin().get("/readyz").expect(200);
}

/// A line of the start is true when it is printed; one names the port that the external URL hides.
#[test]
fn the_lines_of_the_start_are_true() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut command = insula(&["start", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()]);
    command.args(["--external-url", "https://api.insula.test", "--log-format", "json"]);
    let mut process = command.spawn().unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let mut step = |name: &str| -> Value {
        let steps = lines.by_ref().map_while(Result::ok);
        let mut steps = steps.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        steps.find(|line| line["step"] == name).unwrap()
    };
    step("identity");
    let is_there = data.join("admin.kubeconfig").exists();
    let address = step("listen")["detail"].as_str().unwrap().to_owned();
    let connected = TcpStream::connect(&address);
    let ready = step("ready");
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(is_there, "the kubeconfig is not there yet");
    assert!(connected.is_ok(), "nobody listens at {address}");
    assert_eq!(ready["detail"], "https://api.insula.test");
}

/// With transparent huge pages, of which the kernel makes more over time, an idle server would grow
/// to its peak memory.
#[test]
#[cfg(target_os = "linux")]
fn transparent_huge_pages_are_off() {
    let server = Server::start();
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    assert!(!status.contains("THP_enabled:\t1"), "{status}");
}

#[test]
fn the_ready_line_means_readyz_succeeds() {
    // No sleep, no retry: the first request after the line succeeds, in a workspace that the second
    // creates.
    let server = Server::with_flags(&["--store", "memory"]);
    let admin = server.admin();
    admin.get("/readyz").expect(200);
    let (path, _) = ready_workspace(&admin, "root", "first", json!({}));
    admin.in_workspace(&path).get("/api/v1/namespaces/default").expect(200);
}
