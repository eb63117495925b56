//! Controllers in a real server: owned objects in several workspaces, failures, finalizers, events,
//! leader election, and a controller of kube-rs.

use crate::kinds::{Robot, RobotSpec};
use futures_util::StreamExt;
use insula_sdk::{
    Action, Controller, ObjectMeta, ReconcileResult, Reconciler, Request, Server,
    controller::{Clusters, EventType, ObjectEvent},
    k8s_openapi::api::{core::v1::ConfigMap, events::v1::Event},
    kube::{
        self, Api, Client, ResourceExt,
        api::{DeleteParams, DynamicObject, PostParams},
        core::{ApiResource, GroupVersionKind},
        runtime::{controller::Action as KubeAction, watcher},
    },
    serde_json::{from_value, json},
    testing::{TestServer, runtime},
};
use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::oneshot;

const FINALIZER: &str = "fleet.example.com/orders";
/// Tries of 100 ms: a busy machine is slow.
const TRIES_MAX: usize = 600;

/// Writes the orders of a robot into a ConfigMap of its own.
#[derive(Default)]
struct Orders {
    runs: Arc<AtomicUsize>,
    cleaned: Arc<AtomicUsize>,
}

impl Reconciler for Orders {
    type Object = Robot;
    const NAME: &'static str = "orders.fleet.example.com";

    async fn reconcile(&self, request: &Request<Robot>) -> ReconcileResult {
        let run = self.runs.fetch_add(1, Ordering::SeqCst);
        let robot = &request.object;
        match (robot.name_any().as_str(), run) {
            ("flaky", 0) => return Err("the first run fails".into()),
            ("flaky", 1) => panic!("the second run panics"),
            _ => {}
        }
        let metadata = ObjectMeta {
            name: Some(format!("{}-orders", robot.name_any())),
            ..ObjectMeta::default()
        };
        let places = robot.spec.places.join(" ");
        let orders = ConfigMap {
            metadata,
            data: Some([("places".to_owned(), places)].into()),
            ..ConfigMap::default()
        };
        request.apply_owned(orders).await?;
        if robot.status.is_none() {
            request.patch_status(json!({"charge": 100})).await?;
            let event = ObjectEvent {
                type_: EventType::Normal,
                reason: "Ordered".into(),
                note: Some("the robot has its orders".into()),
                action: "Order".into(),
                secondary: None,
            };
            request.publish(&event).await?;
        }
        Ok(Action::await_change())
    }

    async fn cleanup(&self, _: &Request<Robot>) -> ReconcileResult {
        self.cleaned.fetch_add(1, Ordering::SeqCst);
        Ok(Action::await_change())
    }
}

async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    for _ in 0..TRIES_MAX {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{what}: not within a minute");
}

fn robot(name: &str, place: &str) -> Robot {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    let spec = RobotSpec {
        places: vec![place.to_owned()],
        ..RobotSpec::default()
    };
    Robot {
        metadata,
        spec,
        status: None,
    }
}

/// Makes a workspace below `root`, and returns a client of it.
async fn workspace(server: &TestServer, name: &str) -> Client {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("tenancy.kcp.io", "v1alpha1", "Workspace"));
    let workspaces: Api<DynamicObject> = Api::all_with(server.client("root").await, &kind);
    let sent = json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}});
    workspaces
        .create(&PostParams::default(), &from_value(sent).unwrap())
        .await
        .unwrap();
    eventually("a workspace", || async {
        let shown = workspaces.get(name).await.unwrap();
        (shown.data["status"]["phase"] == "Ready").then_some(())
    })
    .await;
    server.client(&format!("root:{name}")).await
}

fn places(map: &ConfigMap) -> Option<&str> {
    map.data.as_ref()?.get("places").map(String::as_str)
}

#[test]
fn a_controller_keeps_owned_objects_in_all_workspaces() {
    runtime().block_on(async {
        let orders = Orders::default();
        let cleaned = Arc::clone(&orders.cleaned);
        let controller = Controller::new(orders)
            .owns::<ConfigMap>()
            .finalizer(FINALIZER)
            .workers(1);
        let server = TestServer::start(Server::builder().resource::<Robot>().controller(controller)).await;
        let (one, two) = (workspace(&server, "one").await, workspace(&server, "two").await);

        let robots: Api<Robot> = Api::namespaced(one.clone(), "default");
        robots
            .create(&PostParams::default(), &robot("flaky", "north"))
            .await
            .unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(one.clone(), "default");
        let made = eventually("orders", || async { maps.get_opt("flaky-orders").await.unwrap() }).await;
        assert_eq!(made.owner_references()[0].name, "flaky");
        eventually("a status", || async { robots.get("flaky").await.unwrap().status }).await;
        assert_eq!(robots.get("flaky").await.unwrap().finalizers(), [FINALIZER]);
        let events: Api<Event> = Api::namespaced(one.clone(), "default");
        eventually("an event", || async {
            let all = events.list(&kube::api::ListParams::default()).await.unwrap();
            all.items
                .into_iter()
                .find(|event| event.reason.as_deref() == Some("Ordered"))
        })
        .await;

        // The same names in another workspace are other objects.
        let elsewhere: Api<Robot> = Api::namespaced(two.clone(), "default");
        elsewhere
            .create(&PostParams::default(), &robot("flaky", "south"))
            .await
            .unwrap();
        let other_maps: Api<ConfigMap> = Api::namespaced(two.clone(), "default");
        let other = eventually("orders", || async { other_maps.get_opt("flaky-orders").await.unwrap() }).await;
        assert_eq!((places(&made), places(&other)), (Some("north"), Some("south")));

        // A change of an owned object reconciles its owner.
        maps.delete("flaky-orders", &DeleteParams::default()).await.unwrap();
        eventually("orders", || async { maps.get_opt("flaky-orders").await.unwrap() }).await;

        // The finalizer holds the object until the cleanup.
        robots.delete("flaky", &DeleteParams::default()).await.unwrap();
        eventually("the end", || async {
            robots.get_opt("flaky").await.unwrap().is_none().then_some(())
        })
        .await;
        // More than once if the object changed while it was cleaned up.
        assert!(cleaned.load(Ordering::SeqCst) >= 1);
        eventually("the end", || async {
            maps.get_opt("flaky-orders").await.unwrap().is_none().then_some(())
        })
        .await;
        assert!(
            elsewhere
                .get("flaky")
                .await
                .unwrap()
                .metadata
                .deletion_timestamp
                .is_none()
        );
        server.shutdown().await;
    });
}

#[test]
fn one_of_two_controllers_leads_and_a_controller_of_kube_rs_runs() {
    runtime().block_on(async {
        let server = TestServer::start(Server::builder().resource::<Robot>()).await;
        let clusters = Clusters::workspaces(server.url(), server.kubeconfig()).await.unwrap();
        let run = || {
            let orders = Orders::default();
            let (runs, (stop, stopped)) = (Arc::clone(&orders.runs), oneshot::channel::<()>());
            let controller = Controller::new(orders).leader_election("default", "orders");
            let stopped = async { drop(stopped.await) };
            (runs, stop, tokio::spawn(controller.run(clusters.clone(), stopped)))
        };
        let robots: Api<Robot> = Api::namespaced(server.client("root").await, "default");
        let (first_runs, stop_first, first) = run();
        robots
            .create(&PostParams::default(), &robot("r1", "north"))
            .await
            .unwrap();
        let has_run = |runs: &Arc<AtomicUsize>| (runs.load(Ordering::SeqCst) > 0).then_some(());
        eventually("the first", || async { has_run(&first_runs) }).await;
        let (second_runs, stop_second, second) = run();
        robots
            .create(&PostParams::default(), &robot("r2", "north"))
            .await
            .unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(server.client("root").await, "default");
        eventually("orders", || async { maps.get_opt("r2-orders").await.unwrap() }).await;
        assert_eq!(second_runs.load(Ordering::SeqCst), 0, "the second waits");
        drop(stop_first);
        first.await.unwrap();
        eventually("the second", || async { has_run(&second_runs) }).await;
        drop(stop_second);
        second.await.unwrap();

        let seen = Arc::new(AtomicUsize::new(0));
        let reconcile = |_: Arc<Robot>, seen: Arc<AtomicUsize>| async move {
            seen.fetch_add(1, Ordering::SeqCst);
            Ok::<_, kube::Error>(KubeAction::await_change())
        };
        let on_error = |_: Arc<Robot>, _: &kube::Error, _: Arc<AtomicUsize>| KubeAction::await_change();
        let controller = kube::runtime::Controller::new(robots.clone(), watcher::Config::default());
        let mut reconciled = Box::pin(controller.run(reconcile, on_error, Arc::clone(&seen)));
        for _ in 0..2 {
            reconciled.next().await.unwrap().unwrap();
        }
        assert_eq!(seen.load(Ordering::SeqCst), 2);
        drop(reconciled);
        server.shutdown().await;
    });
}
