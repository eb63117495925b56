//! Servers for clients on other machines: external URLs, certificates of other CAs and their
//! reload, and front proxies.

mod authority;
mod hosts;
mod names;
mod proxies;

use std::{fs, path::PathBuf, process::Command, time::Duration};

use authority::{Authority, Pair, Peer};
use insula_e2e::{Kubectl, Server, Setup, Who, insula, ready_workspace, run_bounded, until, unused_port};
use serde_json::{Value, json};

const NAME: &str = "api.insula.test";
const DAY: i64 = 24 * 3600;

/// A folder with the files of a server, and the CA that signs them.
struct Files {
    folder: tempfile::TempDir,
    ca: Authority,
}

impl Files {
    fn new() -> Self {
        let files = Files {
            folder: tempfile::tempdir().unwrap(),
            ca: Authority::new(),
        };
        fs::write(files.path("ca.crt"), files.ca.pem()).unwrap();
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Writes the pair of the server, the certificate first.
    fn write(&self, pair: &Pair) {
        fs::write(self.path("tls.crt"), &pair.certificate).unwrap();
        pair.write_key(&self.path("tls.key"));
    }

    fn flags(&self) -> [String; 4] {
        let (certificate, key) = (self.text("tls.crt"), self.text("tls.key"));
        [
            "--tls-cert-file".to_owned(),
            certificate,
            "--tls-key-file".to_owned(),
            key,
        ]
    }
}

/// Starts a server under a name, with a certificate of another CA.
fn named(files: &Files, port: u16) -> Server {
    let mut flags = vec!["--store".to_owned(), "memory".to_owned()];
    flags.extend(["--listen".to_owned(), format!("127.0.0.1:{port}")]);
    flags.extend(["--external-url".to_owned(), format!("https://{NAME}:{port}")]);
    flags.extend(files.flags());
    flags.extend(["--tls-ca-file".to_owned(), files.text("ca.crt")]);
    Server::with(Setup {
        flags,
        ..Setup::default()
    })
}

/// Returns the text of a workspace's URL, of the endpoint of its export and of the kubeconfig.
fn addresses(server: &Server, admin: &insula_e2e::Client) -> [String; 3] {
    let (path, _) = ready_workspace(admin, "root", "named", json!({}));
    let at = admin.in_workspace(&path);
    let workspace = admin
        .in_workspace("root")
        .get("/apis/tenancy.kcp.io/v1alpha1/workspaces/named");
    insula_e2e::publish_widgets(&at);
    // An export without consumers has no endpoint.
    let binding = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "widgets"},
        "spec": {"reference": {"export": {"name": "widgets"}}}});
    at.post("/apis/apis.kcp.io/v1alpha2/apibindings", &binding).expect(201);
    let slices = "/apis/apis.kcp.io/v1alpha1/apiexportendpointslices";
    let slice = until("the export has an endpoint", || {
        let list = at.get(slices).expect(200);
        list["items"][0]["status"]["endpoints"][0]["url"]
            .as_str()
            .map(str::to_owned)
    });
    let config: Value = serde_saphyr::from_str(&fs::read_to_string(server.kubeconfig()).unwrap()).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    [
        text(&workspace.expect(200)["spec"]["URL"]),
        slice,
        text(&config["clusters"][1]["cluster"]["server"]),
    ]
}

#[test]
fn a_server_with_a_name_and_a_certificate_of_another_ca() {
    let files = Files::new();
    files.write(&files.ca.server(NAME));
    let port = unused_port();
    let server = named(&files, port);
    let url = format!("https://{NAME}:{port}");
    assert_eq!(server.url(), url);

    // The administrator's certificate is of the server's own CA, the server's of the other one.
    let local = format!("https://127.0.0.1:{port}");
    let peer = Peer::new(&local, NAME, &files.ca).with_files(&server.data_dir().join("pki/kcp-admin"));
    assert_eq!(peer.get("/readyz", &[]).code, 200);
    let kubeconfig: Value = serde_saphyr::from_str(&fs::read_to_string(server.kubeconfig()).unwrap()).unwrap();
    let embedded = &kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"];
    assert_eq!(*embedded, json!(insula_e2e::base64(files.ca.pem().as_bytes())));
    // Without the other CA, or under another name, no client talks to it.
    assert!(
        Peer::new(&local, "127.0.0.1", &files.ca)
            .try_get("/readyz", &[])
            .is_err()
    );
    assert!(
        Peer::new(&local, NAME, &Authority::new())
            .try_get("/readyz", &[])
            .is_err()
    );

    let Some(kubectl) = Kubectl::for_server(&server) else {
        return;
    };
    let mut command = kubectl.command("root", &["get", "workspaces", "--tls-server-name", NAME]);
    command.arg(format!("--server={local}/clusters/root"));
    let output = run_bounded(&mut command, "", Duration::from_secs(60));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn objects_have_the_external_url() {
    let port = unused_port();
    let url = format!("https://127.0.0.2:{port}");
    let listen = format!("127.0.0.2:{port}");
    let external = "https://API.insula.test";
    let server = Server::with_flags(&["--listen", &listen, "--external-url", external, "--store", "memory"]);
    let admin = server.client_at(&url, Who::KcpAdmin);
    let [workspace, slice, kubeconfig] = addresses(&server, &admin);
    assert_eq!(workspace, "https://api.insula.test/clusters/root:named");
    assert!(
        slice.starts_with("https://api.insula.test/services/apiexport/"),
        "{slice}"
    );
    assert_eq!(kubeconfig, "https://api.insula.test/clusters/root");
    // The certificate that the server makes names the host of the URL and the address.
    let own = Authority::read(&server.data_dir().join("pki/ca.crt"));
    for name in [NAME, "127.0.0.2", "localhost"] {
        assert_eq!(Peer::new(&url, name, &own).get("/readyz", &[]).code, 200, "{name}");
    }
}

#[test]
fn workspaces_follow_the_url_of_their_server() {
    let server = Server::start();
    let admin = server.admin();
    let (_, cluster) = ready_workspace(&admin, "root", "moved", json!({}));
    let before = server.url().to_owned();
    server.signal("-TERM");
    // Its port is another one.
    let server = server.ended().start().unwrap();
    assert_ne!(server.url(), before);
    let admin = server.admin();
    let logical = format!("/clusters/{cluster}/apis/core.kcp.io/v1alpha1/logicalclusters/cluster");
    let workspace = "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/moved";
    for (path, field, below) in [
        (workspace, "/spec/URL", "root:moved".to_owned()),
        (&*logical, "/status/URL", cluster.clone()),
    ] {
        let want = format!("{}/clusters/{below}", server.url());
        until("the URL is the new one", || {
            let object = admin.get(path).expect(200);
            (object.pointer(field).unwrap() == &json!(want)).then_some(())
        });
    }
}

#[test]
fn certificates_are_reloaded_and_bad_ones_are_not() {
    let files = Files::new();
    files.write(&files.ca.server(NAME));
    let port = unused_port();
    let server = named(&files, port);
    let local = format!("https://127.0.0.1:{port}");
    let peer = Peer::new(&local, NAME, &files.ca).with_files(&server.data_dir().join("pki/kcp-admin"));
    let first = peer.shown();
    let mut open = peer.connect().unwrap();
    assert_eq!(open.get("/readyz", &[]).unwrap().code, 200);

    let second = files.ca.server(NAME);
    files.write(&second);
    until("new connections get the new certificate", || {
        (peer.shown() != first).then_some(())
    });
    let used = peer.shown();
    assert_eq!(
        open.get("/readyz", &[]).unwrap().code,
        200,
        "an open connection stays open"
    );

    // A certificate of another name, one that has expired, and half a change.
    let rows = [
        (files.ca.server("other.insula.test"), "does not name api.insula.test"),
        (files.ca.server_until(NAME, -DAY), "expired at"),
        (
            Pair {
                key: second.key.clone(),
                ..files.ca.server(NAME)
            },
            "is not the key of",
        ),
    ];
    for (pair, why) in rows {
        files.write(&pair);
        let report = until("the certificate is refused", || {
            let report = open.get("/readyz?verbose", &[]).unwrap();
            report.body.contains(why).then_some(report)
        });
        assert_eq!(report.code, 200, "{}", report.body);
        assert!(report.body.contains("[!]certificate alarm: "), "{}", report.body);
        assert_eq!(peer.shown(), used, "{why}");
    }
    assert!(
        server.log().contains("the certificates stay as they were"),
        "{}",
        server.log()
    );
    let metrics = open.get("/metrics", &[]).unwrap().body;
    assert!(metrics.contains("insula_tls_certificates_refused 1"), "{metrics}");
    // Reasons are for administrators.
    let stranger = Peer::new(&local, NAME, &files.ca).get("/readyz?verbose", &[]);
    assert!(
        stranger.body.contains("[!]certificate alarm: reason withheld"),
        "{}",
        stranger.body
    );

    files.write(&second);
    until("the alarm ends", || {
        (!open
            .get("/readyz?verbose", &[])
            .unwrap()
            .body
            .contains("certificate alarm"))
        .then_some(())
    });
}

#[test]
fn a_start_refuses_certificates_that_clients_would_refuse() {
    let files = Files::new();
    let url = format!("https://{NAME}");
    let good = files.ca.server(NAME);
    let start = |url: &str, more: &[&str]| {
        let data = files.text("data");
        let mut command = insula(&[
            "start",
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
            &data,
            "--store",
            "memory",
        ]);
        command.args(["--external-url", url]).args(more);
        let output = run_bounded(&mut command, "", Duration::from_secs(20));
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let flags = files.flags();
    let pair: Vec<&str> = flags.iter().map(String::as_str).collect();
    let rows = [
        (files.ca.server_until(NAME, -DAY), "tls.crt: expired at "),
        (files.ca.server_from(NAME, DAY), "tls.crt: is not valid before "),
        (
            files.ca.server("a.insula.test"),
            "It names a.insula.test: set externalUrl to",
        ),
        (
            Pair {
                key: files.ca.server(NAME).key,
                ..good.clone()
            },
            "tls.key: is not the key of ",
        ),
    ];
    for (wrong, why) in rows {
        files.write(&wrong);
        let (code, stderr) = start(&url, &pair);
        assert_eq!(code, Some(5), "{why}: {stderr}");
        assert!(stderr.contains(why), "{why} in {stderr}");
    }
    files.write(&good);
    for (url, more, why) in [
        ("http://a", vec![], "`externalUrl`"),
        (url.as_str(), pair[..2].to_vec(), "`tls.keyFile`"),
        (url.as_str(), [&pair[..], &["--tls-names", "a"]].concat(), "`tls.names`"),
        (
            url.as_str(),
            vec!["--front-proxy-ca-file", "/ca"],
            "`frontProxy.allowedNames`",
        ),
    ] {
        let (code, stderr) = start(url, &more);
        assert_eq!(code, Some(2), "{why}: {stderr}");
        assert!(stderr.contains(why), "{why} in {stderr}");
    }
}

/// The server in a network namespace of its own listens on all addresses; kubectl runs in another
/// namespace, with a copy of the kubeconfig and nothing else.
const TWO_MACHINES: &str = r#"
set -eu
ip link set lo up
unshare --net sleep 120 & there=$!
trap 'kill $there $server 2>/dev/null' EXIT
server=$there
until [ "$(readlink /proc/$there/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
ip link add here type veth peer name there netns $there
ip addr add 10.71.0.1/24 dev here
ip link set here up
nsenter -t $there -n ip addr add 10.71.0.2/24 dev there
nsenter -t $there -n ip link set there up
"$INSULA" start --listen 0.0.0.0:6443 --data-dir data --store memory --kubeconfig admin.kubeconfig 2>log & server=$!
for _ in $(seq 600); do [ -s admin.kubeconfig ] && break; sleep 0.05; done
mkdir elsewhere
mv admin.kubeconfig elsewhere
cd elsewhere
grep -q 'server: "https://10.71.0.1:6443/clusters/root"' admin.kubeconfig
for _ in $(seq 100); do
  nsenter -t $there -n kubectl --kubeconfig admin.kubeconfig get --raw /readyz && break
  sleep 0.1
done
nsenter -t $there -n kubectl --kubeconfig admin.kubeconfig create configmap greeting --from-literal=a=b
nsenter -t $there -n kubectl --kubeconfig admin.kubeconfig get configmap greeting -o name
"#;

#[test]
fn the_kubeconfig_of_a_server_on_all_addresses_works_on_another_machine() {
    let possible = [
        "unshare -rn ip link set lo up",
        "nsenter --version",
        "kubectl version --client",
    ];
    for command in possible {
        let tried = Command::new("sh").args(["-c", command]).output();
        if !tried.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: `{command}` does not work here");
            return;
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["-rn", "bash", "-c", TWO_MACHINES])
        .current_dir(folder.path());
    command.env("INSULA", insula_e2e::binary()).env("HOME", folder.path());
    command.env_remove("KUBECONFIG");
    let output = run_bounded(&mut command, "", Duration::from_secs(100));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let log = fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    assert!(
        output.status.success(),
        "{}{}{log}",
        text(&output.stdout),
        text(&output.stderr)
    );
    assert!(text(&output.stdout).ends_with("configmap/greeting\n"), "{output:?}");
}
