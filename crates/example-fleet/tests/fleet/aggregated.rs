//! Extension servers that are made with the library, reached through the APIServices of a
//! workspace: the fleet by kubectl, the kinds of an upstream extension server by client-go.

use std::path::PathBuf;

use insula_e2e::{Client, Edition, Kubectl, Runtime, Server, Setup, base64, runtime, until, unused_port, workspace};
use insula_example_fleet::LogBook;
use insula_sdk::{
    Controller,
    controller::Clusters,
    k8s_openapi::api::core::v1::ConfigMap,
    kube::{
        self,
        config::{KubeConfigOptions, Kubeconfig},
    },
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{SHIPS, ship, wardle};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const LOG_BOOK: &str = "/api/v1/namespaces/default/configmaps/fram-log-book";

/// A workspace, and the extension server of its APIServices.
struct Aggregated {
    server: Server,
    /// The workspace.
    path: String,
    client: Client,
    extension: Server,
    /// A workspace of the extension server, which has the objects.
    home: Client,
    home_url: String,
}

impl Aggregated {
    /// Starts both servers. The extension server believes the front proxy of the workspace alone.
    fn start(program: PathBuf) -> Self {
        let server = Server::with(Setup {
            flags: vec!["--webhook-allow".to_owned(), "127.0.0.1".to_owned()],
            environment: vec![("INSULA_WATCHES_BOOKMARK_SECONDS".to_owned(), "1".to_owned())],
            ..Setup::default()
        });
        let admin = server.admin();
        let (path, cluster) = workspace(&admin, "north");
        let authority = server.data_dir().join("pki/front-proxy-ca.crt");
        let allowed = format!("front-proxy-client:{cluster}");
        // The port stays when the server starts again.
        let listen = format!("127.0.0.1:{}", unused_port());
        let flags = [
            ["--front-proxy-ca-file", authority.to_str().unwrap()],
            ["--front-proxy-allowed-names", &allowed],
            ["--listen", &listen],
        ];
        let extension = Server::with(Setup {
            program: Some(program),
            flags: flags.concat().into_iter().map(str::to_owned).collect(),
            ..Setup::default()
        });
        let (home_path, _) = workspace(&extension.admin(), "home");
        let home = extension.admin().in_workspace(&home_path);
        let_aggregator_in(&home);
        Self {
            client: admin.in_workspace(&path),
            home_url: format!("{}/clusters/{home_path}", extension.url()),
            server,
            path,
            extension,
            home,
        }
    }

    /// Registers group versions, each with its priority, and waits until they are available.
    fn register(&self, group: &str, versions: &[(&str, u16)]) {
        let url = &self.home_url;
        let authority = std::fs::read(self.extension.data_dir().join("pki/ca.crt")).unwrap();
        for (version, priority) in versions {
            let service = json!({
                "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                "metadata": {"name": format!("{version}.{group}"), "annotations": {"insula.io/url": url}},
                "spec": {"group": group, "version": version, "groupPriorityMinimum": 1000,
                    "versionPriority": priority, "caBundle": base64(&authority),
                    "service": {"namespace": "default", "name": "api"}},
            });
            self.client.post(SERVICES, &service).expect(201);
        }
        for (version, _) in versions {
            let service = format!("{SERVICES}/{version}.{group}");
            until("the APIService is available", || {
                let found = self.client.get(&service).expect(200);
                (found["status"]["conditions"][0]["status"] == "True").then_some(())
            });
        }
    }

    /// Runs the controller of log books against the workspace until the result is dropped.
    fn run_controller(&self) -> impl Sized {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let read = Kubeconfig::read_from(self.server.kubeconfig()).unwrap();
        let url = format!("{}/clusters/{}", self.server.url(), self.path);
        runtime().spawn(async move {
            let options = KubeConfigOptions::default();
            let mut config = kube::Config::from_custom_kubeconfig(read, &options).await.unwrap();
            config.cluster_url = url.parse().unwrap();
            let clusters = Clusters::One(kube::Client::try_from(config).unwrap());
            let controller = Controller::new(LogBook).owns::<ConfigMap>();
            controller.run(clusters, async move { drop(stopped.await) }).await;
        });
        stop
    }
}

/// Gives the aggregator access to a workspace: what a front proxy says of `system:masters` counts
/// for nothing.
fn let_aggregator_in(home: &Client) {
    let api_version = "rbac.authorization.k8s.io/v1";
    let role = json!({"apiVersion": api_version, "kind": "ClusterRole", "metadata": {"name": "aggregator"},
        "rules": [{"nonResourceURLs": ["/"], "verbs": ["access"]}]});
    home.post(&format!("/apis/{api_version}/clusterroles"), &role)
        .expect(201);
    let group = "rbac.authorization.k8s.io";
    let binding = json!({"apiVersion": api_version, "kind": "ClusterRoleBinding", "metadata": {"name": "aggregator"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "aggregator"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "system:kube-aggregator"}]});
    home.post(&format!("/apis/{api_version}/clusterrolebindings"), &binding)
        .expect(201);
}

#[test]
fn the_fleet_sails_through_aggregation() {
    let fleet = Aggregated::start(env!("CARGO_BIN_EXE_example-fleet").into());
    fleet.register("fleet.example.com", &[("v1", 20), ("v1alpha1", 10)]);
    let Some(kubectl) = Kubectl::for_server(&fleet.server) else {
        return;
    };
    let run = |arguments: &[&str], stdin: &str| {
        let ran = kubectl.run(&fleet.path, arguments, stdin);
        assert_eq!(ran.code, 0, "kubectl {}: {}", arguments.join(" "), ran.text);
        ran.text
    };
    let refused = |arguments: &[&str], stdin: &str, why: &str| {
        let ran = kubectl.run(&fleet.path, arguments, stdin);
        assert!(ran.code != 0 && ran.text.contains(why), "{}", ran.text);
    };
    // The strategy.
    let spec = json!({"flag": "NO", "speed": {"knots": 7}, "crew": ["nansen", "amundsen", "nansen"]});
    run(&["apply", "-f", "-"], &ship("v1", "fram", spec).to_string());
    let table = run(&["get", "ships"], "");
    assert!(table.contains("FLAG") && table.contains("KNOTS"), "{table}");
    let crew = run(&["get", "ship", "fram", "-o", "jsonpath={.spec.crew}"], "");
    assert_eq!(crew, "[\"amundsen\",\"nansen\"]");
    let norway = ship("v1", "gjoa", json!({"flag": "Norway"})).to_string();
    refused(&["apply", "-f", "-"], &norway, "spec.flag: Invalid value");
    let moved = [
        "patch",
        "ship",
        "fram",
        "--type=merge",
        "-p",
        "{\"spec\": {\"flag\": \"SE\"}}",
    ];
    refused(&moved, "", "a ship keeps its flag");
    // Both versions.
    let cargo = ship("v1", "fram", json!({"flag": "NO", "cargo": "dogs"})).to_string();
    let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    assert!(run(&apply, &cargo).contains("serverside-applied"));
    let old = "ships.v1alpha1.fleet.example.com";
    run(
        &["patch", old, "fram", "--type=merge", "-p", "{\"spec\": {\"knots\": 6}}"],
        "",
    );
    let both = run(
        &[
            "get",
            "ship",
            "fram",
            "-o",
            "jsonpath={.spec.cargo} {.spec.speed.knots}",
        ],
        "",
    );
    assert_eq!(both, "dogs 6");
    let knots = run(&["get", old, "fram", "-o", "jsonpath={.spec.knots}"], "");
    assert_eq!(knots, "6Warning: use fleet.example.com/v1\n", "warnings pass as well");
    let conflict = ship("v1", "fram", json!({"flag": "NO", "speed": {"knots": 9}})).to_string();
    let other = ["apply", "--server-side", "--field-manager=other", "-f", "-"];
    refused(&other, &conflict, "conflict");
    // Documentation of both.
    assert!(run(&["explain", "ship.spec.crew"], "").contains("alphabetical order"));
    let explain = ["explain", "ship.spec.knots", "--api-version=fleet.example.com/v1alpha1"];
    assert!(run(&explain, "").contains("nautical miles an hour"));
    docks(&fleet, &run);
    deletes(&fleet, &run);
}

/// Deletes the ship: another workspace has not even the kind, and the log book goes with its ship.
fn deletes(fleet: &Aggregated, run: &dyn Fn(&[&str], &str) -> String) {
    // The workspace has none of the objects, and another one not even the kind.
    let other = fleet.server.admin().in_workspace("root");
    assert_eq!(other.get(SHIPS).code, 404);
    fleet.home.get(&format!("{SHIPS}/fram")).expect(200);
    run(&["delete", "ship", "fram"], "");
    until("the log book is deleted with its ship", || {
        (fleet.home.get(LOG_BOOK).code == 404).then_some(())
    });
}

/// Uses the action, and waits for the log books of both controllers: that of the extension server,
/// and one that works in the workspace, through the proxy.
fn docks(fleet: &Aggregated, run: &dyn Fn(&[&str], &str) -> String) {
    let controller = fleet.run_controller();
    let dock = format!("/clusters/{}{SHIPS}/fram/dock", fleet.path);
    let watched = fleet.client.watch(&format!("{SHIPS}?watch=true"), |event| {
        if event["type"] == "ADDED" {
            // kubectl 1.35 appends the path to that of the server's URL.
            let raw = ["create", "--raw", &dock, "-f", "-", "--server", fleet.server.url()];
            let answer = run(&raw, "{\"port\": \"Tromso\"}");
            assert!(answer.contains("docked in Tromso"), "{answer}");
        }
        (event["object"]["status"]["port"] == "Tromso").then_some(())
    });
    assert!(watched.is_some(), "the watch shows what the action changed");
    for client in [&fleet.home, &fleet.client] {
        let owner = until("the log book has the port", || {
            let book = client.get(LOG_BOOK).body;
            (book["data"]["port"] == "Tromso").then(|| book["metadata"]["ownerReferences"][0].clone())
        });
        assert_eq!((&owner["kind"], &owner["name"]), (&json!("Ship"), &json!("fram")));
    }
    drop(controller);
    let uid = |value: Value| value["metadata"]["uid"].clone();
    let before = uid(fleet.client.get(LOG_BOOK).expect(200));
    run(&["annotate", "configmap", "fram-log-book", "seen=yes"], "");
    assert_eq!(
        uid(fleet.client.get(LOG_BOOK).expect(200)),
        before,
        "it stays while its owner is elsewhere"
    );
}

#[test]
fn client_go_works_with_an_upstream_extension_server() {
    let folder = TempDir::new().unwrap();
    let aggregated = Aggregated::start(wardle::program(folder.path()));
    aggregated.register("wardle.example.com", &[("v1beta1", 20), ("v1alpha1", 10)]);
    Runtime::Go.check_part(&aggregated.server, &aggregated.path, Edition::Newest, "aggregated");
    // A server that is gone, and one that comes back.
    let flunders = "/apis/wardle.example.com/v1beta1/namespaces/default/flunders";
    let Aggregated { client, extension, .. } = aggregated;
    client.get(flunders).expect(200);
    let stopped = extension.stopped();
    let told = client.get(flunders).expect(503);
    assert_eq!(told["reason"], "ServiceUnavailable", "{told}");
    let _back = stopped.start().unwrap();
    until("the server is proxied to again", || {
        (client.get(flunders).code == 200).then_some(())
    });
}
