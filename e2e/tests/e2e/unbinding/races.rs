//! Deleted bindings on etcd with two servers, and those that come back at the moment at which their
//! grace period ends: each is whole afterwards, or wholly gone.

use std::{
    thread::sleep,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use insula_api::Timestamp;
use insula_e2e::{Client, Etcd, Server, Who, publish_widgets, runtime, shared, until, workspace};
use insula_proto::admin::v1::{UndeleteBindingRequest, api_service_client::ApiServiceClient};
use serde_json::{Value, json};
use tonic::Code;

use super::{BINDING, BINDINGS, EXPORT, Scene, WIDGETS, grace};
use crate::grpc::{channel, origin};

/// Bindings of a race.
const TENANTS: u64 = 12;
/// Races of those that come back.
const ROUNDS: u64 = 4;
/// The time before the end of its period at which the first binding is undeleted, and the step from
/// one to the next. Periods are counted in whole seconds: a removal begins up to a second later.
const FIRST: Duration = Duration::from_millis(400);
const STEP: Duration = Duration::from_millis(120);
/// A time in which what is half gone shows.
const SETTLED: Duration = Duration::from_millis(1500);

/// Undeletes the binding of widgets; the error has the code of the refusal.
pub(super) fn undelete(server: &Server, tenant: &str) -> Result<(), Code> {
    let mut service = ApiServiceClient::with_origin(channel(server, &Who::KcpAdmin), origin(server));
    let request = UndeleteBindingRequest {
        workspace: tenant.to_owned(),
        binding: "widgets".to_owned(),
        ..UndeleteBindingRequest::default()
    };
    let answer = runtime().block_on(service.undelete_binding(request));
    answer.map(|_| ()).map_err(|refused| refused.code())
}

fn uids(tenant: &Client) -> Vec<Value> {
    let list = tenant.get(WIDGETS);
    let items = list.body["items"].as_array().cloned().unwrap_or_default();
    items.iter().map(|item| item["metadata"]["uid"].clone()).collect()
}

/// Waits until a second of the clock begins: a period of one second ends with the next one.
fn sleep_until_a_second_begins() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    sleep(Duration::from_secs(1) - Duration::from_nanos(now.subsec_nanos().into()));
}

/// Waits until a moment around the end of a deleted binding's period.
fn sleep_until_about(binding: &Value, step: u64) {
    let end = binding["metadata"]["deletionTimestamp"]
        .as_str()
        .and_then(Timestamp::parse);
    let end = UNIX_EPOCH + Duration::from_secs(end.unwrap().0.try_into().unwrap());
    let moment = end - FIRST + STEP * u32::try_from(step).unwrap();
    sleep(moment.duration_since(SystemTime::now()).unwrap_or_default());
}

/// Makes a tenant that binds the widgets of a provider and has two.
fn bound(admin: &Client, provider: &str) -> String {
    let (path, _) = workspace(admin, "racer");
    let tenant = admin.in_workspace(&path);
    let binding = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "widgets"},
        "spec": {"reference": {"export": {"path": provider, "name": "widgets"}}}});
    tenant.post(BINDINGS, &binding).expect(201);
    until("widgets are served", || (tenant.get(WIDGETS).code == 200).then_some(()));
    for name in ["ada", "bob"] {
        let widget = json!({"apiVersion": "example.io/v2", "kind": "Widget", "metadata": {"name": name},
            "spec": {"name": {"first": name}}});
        tenant.post(WIDGETS, &widget).expect(201);
    }
    path
}

/// Deletes a binding and undeletes it when its period ends, both again while it comes back. Returns
/// the number of times that it did.
fn race(admin: &Client, undeleting: &Server, path: &str, number: u64) -> u64 {
    let tenant = admin.in_workspace(path);
    let before = uids(&tenant);
    assert_eq!(before.len(), 2);
    for round in 0..ROUNDS {
        sleep_until_a_second_begins();
        let deleted = tenant.delete(BINDING).expect(200);
        sleep_until_about(&deleted, (number + 5 * round) % TENANTS);
        let outcome = undelete(undeleting, path);
        if let Err(code) = outcome {
            assert!(matches!(code, Code::FailedPrecondition | Code::NotFound), "{code:?}");
            until("the binding and its objects are gone", || {
                (tenant.get(BINDING).code == 404 && tenant.get(WIDGETS).code == 404).then_some(())
            });
            return round;
        }
        sleep(SETTLED);
        let shown = tenant.get(BINDING).expect(200);
        assert_eq!(shown["metadata"]["deletionTimestamp"], Value::Null, "{shown:#}");
        assert_eq!(uids(&tenant), before, "all of its objects are there");
    }
    ROUNDS
}

/// Races many bindings. Returns the number of those that came back at least once, and of those
/// that ended.
fn race_all(deleting: &Server, undeleting: &Server) -> (usize, usize) {
    let admin = deleting.admin();
    let (provider, _) = workspace(&admin, "racing");
    let at_provider = admin.in_workspace(&provider);
    publish_widgets(&at_provider);
    at_provider.merge(EXPORT, &grace(Some("1".to_owned()))).expect(200);
    let returns: Vec<u64> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..TENANTS)
            .map(|number| {
                let (admin, provider) = (&admin, &provider);
                scope.spawn(move || race(admin, undeleting, &bound(admin, provider), number))
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    eprintln!("bindings came back as many times: {returns:?}");
    let returned = returns.iter().filter(|count| **count > 0).count();
    let ended = returns.iter().filter(|count| **count < ROUNDS).count();
    (returned, ended)
}

#[test]
fn a_binding_that_comes_back_at_the_end_of_its_time_is_whole_or_gone() {
    let server = shared();
    let (returned, ended) = race_all(&server, &server);
    assert!(returned > 0 && ended > 0, "the race has two outcomes");
}

#[test]
fn a_grace_period_holds_on_etcd_through_either_server() {
    let Some(etcd) = Etcd::start() else { return };
    let store = etcd.store();
    let (mut one, two) = (
        Server::with_flags(&["--store", &store]),
        Server::with_flags(&["--store", &store]),
    );
    let scene = Scene::new(&one, Some(3600));
    let before = scene.objects(&one);
    let marked = scene.at_tenant(&one).delete(BINDING).expect(200);
    let shown = until("the other server knows of the deletion", || {
        let shown = scene.at_tenant(&two).get(BINDING);
        shown.body["metadata"]["deletionTimestamp"]
            .is_string()
            .then_some(shown.body)
    });
    let end = |binding: &Value| binding["metadata"]["deletionTimestamp"].clone();
    assert_eq!(end(&shown), end(&marked));
    assert_eq!(scene.objects(&two), before);
    assert_eq!(undelete(&two, &scene.tenant), Ok(()));
    until("the first server knows of the return", || {
        end(&scene.at_tenant(&one).get(BINDING).expect(200))
            .is_null()
            .then_some(())
    });
    assert_eq!(scene.objects(&one).len(), before.len());
    scene.create(&one, "late").expect(201);

    // The end of the period comes although the server that took the deletion is gone.
    let at_provider = one.admin().in_workspace(&scene.provider);
    at_provider.merge(EXPORT, &grace(Some("2".to_owned()))).expect(200);
    scene.at_tenant(&one).delete(BINDING).expect(200);
    one.kill9();
    scene.until_gone(&two);
}

#[test]
fn a_binding_that_comes_back_through_another_server_is_whole_or_gone() {
    let Some(etcd) = Etcd::start() else { return };
    let store = etcd.store();
    let servers = [(); 2].map(|()| Server::with_flags(&["--store", &store]));
    let (returned, ended) = race_all(&servers[0], &servers[1]);
    assert!(returned > 0 && ended > 0, "the race has two outcomes");
}
