//! A kind through a real server: definition, strategy, status, subresources, over kube-rs' client
//! and kubectl.

use crate::kinds::{Robot, RobotSpec, RobotStatus, v1alpha1};
use insula_sdk::{
    Kind, ObjectMeta, Server,
    kube::{
        self, Api, CustomResource, ResourceExt,
        api::{DeleteParams, Patch, PatchParams, PostParams},
        core::Status,
    },
    schemars::JsonSchema,
    serde::{Deserialize, Serialize},
    serde_json::{Value, json},
    testing::TestServer,
};
use std::process::Command;

/// A type that kube-rs makes.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "fleet.example.com",
    version = "v1",
    kind = "Dock",
    plural = "docks",
    namespaced,
    status = "DockStatus"
)]
pub(crate) struct DockSpec {
    slots: u8,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DockStatus {
    free: u8,
}

async fn server() -> TestServer {
    let builder = Server::builder().resource::<Robot>().kind(Kind::<Dock>::new());
    TestServer::start(builder).await
}

fn robot(name: &str, spec: RobotSpec) -> Robot {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    Robot {
        metadata,
        spec,
        status: None,
    }
}

fn status(error: kube::Error) -> Box<Status> {
    match error {
        kube::Error::Api(status) => status,
        other => panic!("{other}"),
    }
}

/// Everything shares one server: a start costs more than all requests.
#[test]
fn a_kind_is_served_with_its_logic() {
    let runtime = insula_sdk::testing::runtime();
    runtime.block_on(async {
        let server = server().await;
        let client = server.client("root").await;
        let robots: Api<Robot> = Api::namespaced(client.clone(), "default");
        writes_pass_the_strategy(&robots).await;
        the_status_has_its_own_path(&robots).await;
        stricter_rules_block_no_finalizer(&robots).await;
        versions_convert_without_loss(&robots, &Api::namespaced(client.clone(), "default")).await;
        subresources_answer(&client).await;
        types_of_kube_rs_are_served(&Api::namespaced(client.clone(), "default")).await;
        kubectl_knows_the_kind(&server);
        server.shutdown().await;
    });
}

async fn writes_pass_the_strategy(robots: &Api<Robot>) {
    let params = PostParams::default();
    let spec = RobotSpec {
        places: vec!["south".into(), "north".into()],
        ..RobotSpec::default()
    };
    let mut sent = robot("r1", spec);
    sent.status = Some(RobotStatus { charge: 7 });
    let made = robots.create(&params, &sent).await.unwrap();
    assert_eq!(made.spec.mode.as_deref(), Some("Idle"), "default");
    assert_eq!(made.spec.places, ["north", "south"], "canonicalize");
    assert_eq!(
        made.labels().get("made-by").map(String::as_str),
        Some("strategy"),
        "prepare_for_create"
    );
    assert!(made.status.is_none(), "a status is dropped outside of /status");

    let bad = RobotSpec {
        mode: Some("Patrol".into()),
        ..RobotSpec::default()
    };
    let refused = status(robots.create(&params, &robot("r2", bad)).await.unwrap_err());
    assert_eq!((refused.code, &*refused.reason), (422, "Invalid"));
    let causes = &refused.details.as_ref().unwrap().causes;
    assert_eq!(causes[0].field, "spec.places");
    assert_eq!(causes[0].reason, "FieldValueRequired");

    let serial = json!({"spec": {"serial": "B"}});
    let refused = robots
        .patch("r1", &PatchParams::default(), &Patch::Merge(&serial))
        .await;
    let refused = status(refused.unwrap_err());
    assert!(
        refused.message.contains("spec.serial: Forbidden: is immutable"),
        "{}",
        refused.message
    );

    // The same content in another order is no change.
    let apply = json!({"apiVersion": "fleet.example.com/v1", "kind": "Robot", "metadata": {"name": "r1"},
        "spec": {"places": ["south", "north"]}});
    let params = PatchParams::apply("fleet").force();
    let first = robots.patch("r1", &params, &Patch::Apply(&apply)).await.unwrap();
    let again = robots.patch("r1", &params, &Patch::Apply(&apply)).await.unwrap();
    assert_eq!(again.metadata.generation, made.metadata.generation);
    assert_eq!(again.metadata.resource_version, first.metadata.resource_version);
    let grown = json!({"spec": {"places": ["west", "north", "south"]}});
    let grown = robots
        .patch("r1", &PatchParams::default(), &Patch::Merge(&grown))
        .await
        .unwrap();
    assert_eq!(grown.metadata.generation, Some(2));
    assert_eq!(
        grown.annotations().get("changed").map(String::as_str),
        Some("yes"),
        "prepare_for_update"
    );
}

async fn the_status_has_its_own_path(robots: &Api<Robot>) {
    let patch = json!({"metadata": {"labels": {"seen": "yes"}}, "spec": {"mode": "Off"}, "status": {"charge": 80}});
    let shown = robots
        .patch_status("r1", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    assert_eq!(shown.status.as_ref().unwrap().charge, 80);
    assert_eq!(
        shown.labels().get("seen").map(String::as_str),
        Some("yes"),
        "metadata changes"
    );
    assert_eq!(shown.spec.mode.as_deref(), Some("Idle"), "the spec does not");
    let patch = json!({"spec": {"mode": "Off"}, "status": {"charge": 1}});
    let shown = robots
        .patch("r1", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    assert_eq!(
        (shown.spec.mode.as_deref(), shown.status.unwrap().charge),
        (Some("Off"), 80)
    );
}

/// The finalizer comes from `prepare_for_create`; the rule refuses what the object has.
async fn stricter_rules_block_no_finalizer(robots: &Api<Robot>) {
    let spec = RobotSpec {
        serial: Some("held".into()),
        ..RobotSpec::default()
    };
    let made = robots
        .create(&PostParams::default(), &robot("held", spec))
        .await
        .unwrap();
    assert_eq!(made.finalizers(), ["fleet.example.com/dock"]);
    robots.delete("held", &DeleteParams::default()).await.unwrap();
    let marked = robots.get("held").await.unwrap();
    assert!(marked.metadata.deletion_timestamp.is_some());
    let patch = json!({"metadata": {"finalizers": null}});
    robots
        .patch("held", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    assert!(robots.get_opt("held").await.unwrap().is_none());
}

async fn versions_convert_without_loss(robots: &Api<Robot>, old: &Api<v1alpha1::Robot>) {
    let sent = json!({"apiVersion": "fleet.example.com/v1alpha1", "kind": "Robot", "metadata": {"name": "old"},
        "spec": {"route": "b,a", "color": "red"}});
    let made = old.create(&PostParams::default(), &serde_json(&sent)).await.unwrap();
    assert_eq!(made.spec.route, "a,b", "the hub's strategy shows in every version");
    assert_eq!(made.spec.note, "from v1alpha1", "defaults of the version");
    let shown = robots.get("old").await.unwrap();
    assert_eq!(shown.spec.places, ["a", "b"]);
    let patch = json!({"spec": {"places": ["c"], "serial": "S"}});
    robots
        .patch("old", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    let again = old.get("old").await.unwrap();
    assert_eq!((&*again.spec.route, again.spec.color.as_deref()), ("c", Some("red")));
    let patch = json!({"spec": {"color": "blue"}});
    old.patch("old", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    assert_eq!(robots.get("old").await.unwrap().spec.serial.as_deref(), Some("S"));
}

fn serde_json<T: for<'de> Deserialize<'de>>(value: &Value) -> T {
    T::deserialize(value).unwrap()
}

async fn subresources_answer(client: &kube::Client) {
    let path = "/apis/fleet.example.com/v1/namespaces/default/robots/r1/charge";
    let post = |body: &str| {
        let request = http::Request::post(path).header("content-type", "application/json");
        client.request::<Value>(request.body(body.as_bytes().to_vec()).unwrap())
    };
    let answer = post(r#"{"percent": 15}"#).await.unwrap();
    assert_eq!(answer["charge"], 95);
    assert_eq!(
        (&answer["kind"], &answer["apiVersion"]),
        (&json!("Charge"), &json!("fleet.example.com/v1"))
    );
    let refused = status(post(r#"{"percent": 150}"#).await.unwrap_err());
    assert_eq!(refused.code, 422);
    assert_eq!(refused.details.as_ref().unwrap().causes[0].field, "percent");
    let text = http::Request::get(path).body(Vec::new()).unwrap();
    assert_eq!(client.request_text(text).await.unwrap(), "95 %\n");
    let put = http::Request::put(path).body(b"{}".to_vec()).unwrap();
    assert_eq!(status(client.request::<Value>(put).await.unwrap_err()).code, 405);
    let listed = http::Request::get("/apis/fleet.example.com/v1")
        .body(Vec::new())
        .unwrap();
    let listed = client.request::<Value>(listed).await.unwrap();
    let names: Vec<&str> = listed["resources"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|r| r["name"].as_str())
        .collect();
    for name in ["robots", "robots/status", "robots/charge", "docks"] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
}

async fn types_of_kube_rs_are_served(docks: &Api<Dock>) {
    let dock = docks
        .create(&PostParams::default(), &Dock::new("d1", DockSpec { slots: 3 }))
        .await
        .unwrap();
    assert_eq!(dock.spec.slots, 3);
    let spec = json!({"slots": -1});
    let bad = json!({"apiVersion": "fleet.example.com/v1", "kind": "Dock", "metadata": {"name": "d2"}, "spec": spec});
    let patch = Patch::Apply(&bad);
    let refused = docks.patch("d2", &PatchParams::apply("me"), &patch).await.unwrap_err();
    assert_eq!(status(refused).code, 422);
}

fn kubectl_knows_the_kind(server: &TestServer) {
    let kubectl = |arguments: &[&str]| {
        let output = Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(server.kubeconfig())
            .args(arguments)
            .output();
        output.map(|output| {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            (String::from_utf8_lossy(&output.stdout).into_owned(), error)
        })
    };
    let Ok((explained, error)) = kubectl(&["explain", "robot.spec"]) else {
        eprintln!("skipped: no kubectl");
        return;
    };
    assert!(explained.contains("Places to visit"), "{explained}{error}");
    let (table, error) = kubectl(&["get", "rb", "r1"]).unwrap();
    assert!(
        table.contains("MODE") && table.contains("Off") && table.contains("95"),
        "{table}{error}"
    );
}
