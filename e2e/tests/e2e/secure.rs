//! Secure defaults: the behaviour of a server without any settings.

use std::{
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::Path,
    time::Duration,
};

use insula_e2e::{Server, Who, insula, run_bounded, runtime, shared, until, workspace};
use serde_json::{Value, json};

use crate::grpc;

/// Returns the port's answer to a ClientHello of a version: the type of the record, and the bytes
/// after its header.
fn greeted(server: &Server, version: u8) -> (u8, Vec<u8>) {
    let mut hello = vec![3, version];
    hello.extend([7; 32]);
    hello.push(0);
    // ECDHE-ECDSA with AES: of TLS 1.2 (GCM) and of the versions before (CBC).
    hello.extend([0, 6, 0xc0, 0x2b, 0xc0, 0x09, 0xc0, 0x0a, 1, 0]);
    let groups = [0, 10, 0, 4, 0, 2, 0, 0x17];
    let points = [0, 11, 0, 2, 1, 0];
    let signatures = [0, 13, 0, 6, 0, 4, 4, 3, 2, 3];
    let extensions = [&groups[..], &points, &signatures].concat();
    hello.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
    hello.extend(extensions);
    let length = u16::try_from(hello.len()).unwrap();
    let mut record = vec![0x16, 3, 1];
    record.extend((length + 4).to_be_bytes());
    record.extend([1, 0]);
    record.extend(length.to_be_bytes());
    record.extend(hello);
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.write_all(&record).unwrap();
    let mut header = [0; 5];
    socket.read_exact(&mut header).unwrap();
    let mut rest = vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))];
    socket.read_exact(&mut rest).unwrap();
    (header[0], rest)
}

#[test]
fn old_tls_versions_are_refused() {
    const ALERT: u8 = 0x15;
    const FATAL_PROTOCOL_VERSION: [u8; 2] = [2, 70];
    let server = shared();
    for old in [0, 1, 2] {
        assert_eq!(
            greeted(&server, old),
            (ALERT, FATAL_PROTOCOL_VERSION.to_vec()),
            "3.{old}"
        );
    }
    let (kind, rest) = greeted(&server, 3);
    assert_eq!((kind, rest[0]), (0x16, 2), "a ServerHello");
    // The server does not redirect a client that sends a token in the clear.
    let mut plain = TcpStream::connect(server.address()).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    plain
        .write_all(b"GET /version HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer alice-token\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    let _ = plain.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(!answer.to_lowercase().contains("location:"), "{answer}");
}

/// Finds all files below a folder that other users can read or write.
fn open_to_others(dir: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let metadata = std::fs::symlink_metadata(entry.path()).unwrap();
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            found.push(format!("{} {mode:o}", entry.path().display()));
        }
        if metadata.is_dir() {
            open_to_others(&entry.path(), found);
        }
    }
}

#[test]
fn files_are_readable_by_their_owner_only() {
    let server = Server::start();
    let admin = server.admin();
    workspace(&admin, "kept");
    let audit = server.data_dir().join("audit/audit.log");
    until("there is an audit log", || {
        std::fs::metadata(&audit).is_ok_and(|file| file.len() > 0).then_some(())
    });
    let mut found = Vec::new();
    open_to_others(&server.data_dir(), &mut found);
    assert!(found.is_empty(), "{found:?}");
    // Files that a library creates without a mode of its own are private too, and no core dump
    // contains the memory.
    let process = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", server.pid()));
    if let (Ok(status), Ok(limits)) = (process("status"), process("limits")) {
        assert!(status.contains("Umask:\t0077"), "{status}");
        let core = limits
            .lines()
            .find(|line| line.starts_with("Max core file size"))
            .unwrap();
        assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    }
}

#[test]
fn anonymous_requests_reach_health_endpoints_only() {
    let server = shared();
    let anybody = server.client(Who::Anonymous);
    for path in [
        "/livez",
        "/readyz",
        "/healthz",
        "/readyz?verbose",
        "/clusters/root/readyz",
        "/version",
    ] {
        assert_eq!(anybody.get(path).code, 200, "{path}");
    }
    for path in [
        "/",
        "/api",
        "/apis",
        "/api/v1",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/debug/pprof",
        "/debug/flags/v",
        "/logs",
        "/configz",
        "/services",
        "/services/apiexport",
        "/clusters",
        "/clusters/root",
        "/clusters/root/version",
        "/clusters/root/metrics",
        "/clusters/root/apis",
        "/clusters/*/api",
        "/.well-known/openid-configuration",
        "/openid/v1/jwks",
        "/readyz/reasons",
        "/livez/ping",
    ] {
        let answer = anybody.get(path);
        assert!(
            [400, 401, 403, 404].contains(&answer.code),
            "{path}: {} {}",
            answer.code,
            answer.text
        );
        assert!(!answer.text.contains("universal"), "{path}: {}", answer.text);
    }
}

#[test]
fn each_check_has_a_path_of_its_own() {
    let server = shared();
    let admin = server.admin();
    for (path, code, text) in [
        ("/livez/ping", 200, "ok"),
        ("/readyz/store", 200, "ok"),
        ("/healthz/ping", 200, "ok"),
        ("/readyz/nothing", 404, "404 page not found\n"),
    ] {
        let answer = admin.get(path);
        assert_eq!((answer.code, &*answer.text), (code, text), "{path}");
    }
    let text = admin.get("/readyz?verbose&exclude=store").text;
    assert!(text.contains("[+]store excluded: ok\n"), "{text}");
    let version = admin.get("/version").expect(200);
    assert_ne!(version["gitCommit"], "", "{version}");
}

#[test]
fn a_workspace_has_the_checks_of_its_server() {
    let server = shared();
    let (path, _) = workspace(&server.admin(), "healthy");
    let client = server.admin().in_workspace(&path);
    for name in ["healthz", "livez", "readyz"] {
        assert_eq!(client.get(&format!("/{name}")).text, "ok");
        let report = client.get(&format!("/{name}?verbose"));
        assert_eq!(report.code, 200, "{}", report.text);
        assert_eq!(report.headers["x-content-type-options"], "nosniff");
        for line in ["[+]ping ok", "[+]store ok", &*format!("{name} check passed")] {
            assert!(report.text.lines().any(|got| got == line), "{line} in {}", report.text);
        }
    }
    assert_eq!(client.get("/readyz/ping").text, "ok");
    assert_eq!(client.get("/readyz/nothing").code, 404);
    for client in [&client, &server.admin()] {
        let text = client.get("/readyz?verbose&exclude=store&exclude=nothing").text;
        let warning = "warn: some health checks cannot be excluded: no matches for \"nothing\"";
        for line in ["[+]store excluded: ok", warning] {
            assert!(text.lines().any(|got| got == line), "{line} in {text}");
        }
    }
}

/// No log, argument, variable or kubeconfig contains a secret of a tenant, at debug level either.
#[test]
fn secrets_appear_in_no_log_or_argument() {
    let server = Server::with_flags(&["--log-level", "debug"]);
    let admin = server.admin();
    let (path, _) = workspace(&admin, "discreet");
    let here = admin.in_workspace(&path);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
        "stringData": {"password": "the-value-of-a-secret"}});
    here.post("/api/v1/namespaces/default/secrets", &secret).expect(201);
    let mut wrong = secret.clone();
    wrong["metadata"]["name"] = json!("Not A Name");
    wrong["stringData"]["Not A Key"] = json!("the-value-of-a-secret");
    here.post("/api/v1/namespaces/default/secrets", &wrong).expect(422);
    until("the default account", || {
        (here.get("/api/v1/namespaces/default/serviceaccounts/default").code == 200).then_some(())
    });
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"});
    let answer = here
        .post("/api/v1/namespaces/default/serviceaccounts/default/token", &request)
        .expect(201);
    let token = answer["status"]["token"].as_str().unwrap().to_owned();
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    here.post("/apis/authentication.k8s.io/v1/tokenreviews", &review)
        .expect(201);
    for shown in [token.as_str(), "alice-token", "a-mistyped-token", &format!("{token}x")] {
        server
            .client(Who::Token(shown.to_owned()))
            .in_workspace(&path)
            .get("/api/v1/namespaces");
    }
    let audit = server.data_dir().join("audit/audit.log");
    let events = until("all is in the audit log", || {
        let text = std::fs::read_to_string(&audit).ok()?;
        (text.matches("tokenreviews").count() > 0 && text.matches("\"code\":401").count() >= 2).then_some(text)
    });
    let mut commands = std::fs::read(format!("/proc/{}/cmdline", server.pid())).unwrap_or_default();
    commands.extend(std::fs::read(format!("/proc/{}/environ", server.pid())).unwrap_or_default());
    let kubeconfig = std::fs::read_to_string(server.kubeconfig()).unwrap();
    let outputs = [
        ("the log", server.log()),
        ("the audit log", events),
        ("its arguments", String::from_utf8_lossy(&commands).into_owned()),
        ("the kubeconfig", kubeconfig),
    ];
    let signature = token.rsplit('.').next().unwrap();
    // The second is the encoding in the `data` of a Secret.
    let secrets = [
        "the-value-of-a-secret",
        "dGhlLXZhbHVlLW9mLWEtc2VjcmV0",
        "alice-token",
        "a-mistyped-token",
        signature,
        "PRIVATE KEY",
    ];
    for (place, text) in &outputs {
        assert!(!text.is_empty() || *place == "its arguments", "{place}");
        for secret in secrets {
            assert!(!text.contains(secret), "{secret} in {place}");
        }
    }
    // The administrator's credential is a file, whose path the start logs.
    let steps = server.json_log();
    let told: Vec<&Value> = steps.iter().filter(|line| line["step"] == "identity").collect();
    assert!(told[0]["detail"].as_str().unwrap().contains("kubeconfig"), "{told:?}");
}

/// Streams that are opened and reset at once (CVE-2023-44487) cost their client the connection, and
/// other clients no permit.
#[test]
fn reset_streams_do_not_delay_other_tenants() {
    let server = Server::with_flags(&["--store", "memory"]);
    let admin = server.admin();
    let url = format!("{}/clusters/root/api/v1/configmaps", server.url());
    let flood = grpc::channel(&server, &Who::Anonymous);
    runtime().block_on(async {
        for _ in 0..3000 {
            let request = http::Request::get(&url)
                .header("authorization", "Bearer carol-token")
                .body(tonic::body::Body::empty())
                .unwrap();
            let answer = flood.request(request);
            // Dropped after it was sent, or soon.
            let _ = tokio::time::timeout(Duration::from_micros(50), answer).await;
        }
    });
    admin.in_workspace("root").get("/api/v1/namespaces").expect(200);
    until("nothing of it is left", || {
        let text = admin.get_with("/metrics", &[("accept", "text/plain")]).text;
        let open: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("insula_requests_in_flight{"))
            .collect();
        let reads = open.iter().find(|line| line.contains("ReadOnly")).or(open.first())?;
        reads.ends_with(" 0").then_some(())
    });
}

/// No flag weakens these defaults, so a start has nothing to warn about.
#[test]
fn no_flag_disables_a_security_check() {
    let output = run_bounded(&mut insula(&["start", "--help"]), "", Duration::from_secs(20));
    let help = String::from_utf8_lossy(&output.stdout).to_lowercase();
    assert!(help.contains("--data-dir"), "{help}");
    for word in ["insecure", "skip", "disable", "unsafe", "--no-", "anonymous"] {
        assert!(!help.contains(word), "{word} in {help}");
    }
}
