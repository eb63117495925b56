//! Limits of workspaces, and what they use.

use super::{Channel, as_user, channel, conventions::resource, origin, reason};
use insula_e2e::{Server, Setup, Who, runtime, shared, until, workspace, workspace_owned_by};
use insula_proto::{
    admin::v1::{
        ApplyObjectRequest, GetLimitsRequest, GetUsageRequest, Limits, ListUsageRequest, MeteredUsage,
        SetLimitsRequest, object_service_client::ObjectServiceClient, quota_service_client::QuotaServiceClient,
    },
    value::from_json,
};
use prost_types::FieldMask;
use serde_json::json;
use tonic::{Code, Response, Status};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const ALICE: &str = "alice-token";

fn client(server: &Server, who: &Who) -> QuotaServiceClient<Channel> {
    QuotaServiceClient::with_origin(channel(server, who), origin(server))
}

fn answered<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Status> {
    runtime().block_on(call).map(Response::into_inner)
}

fn set(workspace: &str, limits: Limits) -> SetLimitsRequest {
    SetLimitsRequest {
        workspace: workspace.to_owned(),
        limits: Some(limits),
        ..SetLimitsRequest::default()
    }
}

fn get(workspace: &str) -> GetLimitsRequest {
    GetLimitsRequest {
        workspace: workspace.to_owned(),
    }
}

#[test]
fn a_workspace_has_limits_of_its_own() {
    let server = shared();
    let (path, _) = workspace_owned_by(&server, "alice");
    let alice = server.client(Who::Token(ALICE.to_owned())).in_workspace(&path);
    let mut admin = client(&server, &Who::KcpAdmin);
    let mut owner = client(&server, &Who::Anonymous);
    let before = answered(owner.get_limits(as_user(ALICE, get(&path)))).unwrap();
    assert_eq!((before.own, before.effective), (Some(Limits::default()), before.server));

    let few = Limits {
        objects: 1,
        watches: 7,
        ..Limits::default()
    };
    let mut dry = set(&path, few);
    dry.validate_only = true;
    assert_eq!(answered(admin.set_limits(dry)).unwrap().own, Some(few));
    let same = answered(owner.get_limits(as_user(ALICE, get(&path)))).unwrap();
    assert_eq!(same.own, Some(Limits::default()));

    let now = answered(admin.set_limits(set(&path, few))).unwrap();
    assert_eq!(now.own, Some(few));
    let seen = answered(owner.get_limits(as_user(ALICE, get(&path)))).unwrap();
    let effective = seen.effective.unwrap();
    assert_eq!((effective.objects, effective.watches), (1, 7));
    assert_eq!(effective.requests_in_flight, before.server.unwrap().requests_in_flight);
    let configmap = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let refused = alice.post(CONFIGMAPS, &configmap).expect(403);
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("total object count limit"),
        "{refused}"
    );

    // Requests in a second: a burst of one second, then 429.
    let slow = Limits {
        requests_per_second: 1,
        ..Limits::default()
    };
    let mut stale = set(&path, slow);
    stale.etag = before.etag;
    assert_eq!(answered(admin.set_limits(stale)).unwrap_err().code(), Code::Aborted);
    let mut fresh = set(&path, slow);
    fresh.etag = now.etag;
    let own = answered(admin.set_limits(fresh)).unwrap().own.unwrap();
    assert_eq!((own.objects, own.watches, own.requests_per_second), (1, 7, 1));
    // Together, so that a slow machine does not keep the pace.
    until("the workspace is limited", || {
        let codes = std::thread::scope(|scope| {
            let sent: Vec<_> = (0..8).map(|_| scope.spawn(|| alice.get(CONFIGMAPS).code)).collect();
            sent.into_iter().map(|one| one.join().unwrap()).collect::<Vec<u16>>()
        });
        codes.contains(&429).then_some(())
    });

    // 0 gives the server's limit again.
    let mut none = set(&path, Limits::default());
    none.update_mask = Some(FieldMask {
        paths: vec!["*".to_owned()],
    });
    assert_eq!(answered(admin.set_limits(none)).unwrap().own, Some(Limits::default()));
    // Earlier requests count at the present rate.
    alice.post(CONFIGMAPS, &configmap).expect(201);
}

/// Limits that many set at once are all set: a conflict is only that of an etag.
#[test]
fn limits_that_are_set_at_once_are_all_set() {
    let server = shared();
    let (path, _) = workspace_owned_by(&server, "alice");
    let admin = client(&server, &Who::KcpAdmin);
    let set = |watches: i64| {
        let (mut admin, limits) = (
            admin.clone(),
            Limits {
                watches,
                ..Limits::default()
            },
        );
        let request = set(&path, limits);
        runtime().spawn(async move { admin.set_limits(request).await.map(Response::into_inner) })
    };
    let sent: Vec<_> = (1..=20).map(set).collect();
    for (watches, sent) in (1..).zip(sent) {
        let own = runtime().block_on(sent).unwrap().unwrap().own.unwrap();
        assert_eq!(own.watches, watches);
    }
    let mut stale = super::quota::set(
        &path,
        Limits {
            watches: 1,
            ..Limits::default()
        },
    );
    stale.etag = "1".to_owned();
    let refused = answered(admin.clone().set_limits(stale)).unwrap_err();
    assert_eq!((refused.code(), &*reason(&refused)), (Code::Aborted, "STALE_ETAG"));
    let name = path.rsplit(':').next().unwrap().to_owned();
    assert_eq!(resource(&refused), ("workspaces.tenancy.kcp.io".to_owned(), name));
}

/// HTTP answers 403 as kcp and Kubernetes do; a gRPC client must not take a full workspace for a
/// missing right.
#[test]
fn full_workspaces_and_quotas_are_no_missing_rights() {
    let server = shared();
    let (path, _) = workspace(&server.admin(), "full");
    let tenant = server.admin().in_workspace(&path);
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"},
        "spec": {"hard": {"count/secrets": "0"}}});
    tenant.post(quotas, &quota).expect(201);
    let few = Limits {
        objects: 1,
        ..Limits::default()
    };
    let mut admin = client(&server, &Who::KcpAdmin);
    let refused = |kind: &str| {
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a", "namespace": "default"}});
        let apply = ApplyObjectRequest {
            workspace: path.clone(),
            object: Some(from_json(object.as_object().unwrap()).unwrap()),
            field_manager: "robot".to_owned(),
            ..ApplyObjectRequest::default()
        };
        let mut objects = ObjectServiceClient::with_origin(channel(&server, &Who::KcpAdmin), origin(&server));
        answered(objects.apply_object(apply)).unwrap_err()
    };
    let over = refused("Secret");
    assert_eq!(
        (over.code(), &*reason(&over)),
        (Code::ResourceExhausted, "QUOTA_EXCEEDED")
    );
    assert!(over.message().contains("exceeded quota: none"), "{over:?}");
    answered(admin.set_limits(set(&path, few))).unwrap();
    let over = refused("ConfigMap");
    assert_eq!(
        (over.code(), &*reason(&over)),
        (Code::ResourceExhausted, "QUOTA_EXCEEDED")
    );
    assert!(over.message().contains("total object count limit"), "{over:?}");
    for (resource, kind) in [("secrets", "Secret"), ("configmaps", "ConfigMap")] {
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}});
        let refused = tenant
            .post(&format!("/api/v1/namespaces/default/{resource}"), &object)
            .expect(403);
        assert_eq!(refused["reason"], "Forbidden", "{refused}");
    }
}

#[test]
fn limits_are_set_from_the_parent() {
    let server = shared();
    let (path, _) = workspace_owned_by(&server, "alice");
    let mut admin = client(&server, &Who::KcpAdmin);
    let mut owner = client(&server, &Who::Anonymous);
    let few = Limits {
        watches: 1,
        ..Limits::default()
    };
    for workspace in [&*path, "root:nowhere"] {
        let refused = answered(owner.set_limits(as_user(ALICE, set(workspace, few)))).unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{workspace}");
    }
    let logical = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster";
    let own = json!({"metadata": {"annotations": {"insula.io/limits": "{\"watches\": 9}"}}});
    let alice = server.client(Who::Token(ALICE.to_owned())).in_workspace(&path);
    alice.merge(logical, &own).expect(403);
    let wrong = Limits {
        watches: -1,
        ..Limits::default()
    };
    for request in [
        set(&path, wrong),
        set(&path, Limits::default()),
        set("root", few),
        set("", few),
    ] {
        let refused = answered(admin.set_limits(request.clone())).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{request:?}: {refused}");
        if request.workspace == "root" {
            assert!(refused.message().contains("root has no parent"), "{refused}");
        }
    }
    let foreign = answered(owner.get_limits(as_user("bob-token", get(&path)))).unwrap_err();
    let missing = answered(owner.get_limits(as_user("bob-token", get("root:nowhere")))).unwrap_err();
    assert_eq!((foreign.code(), foreign.message()), (missing.code(), missing.message()));
    assert_eq!(foreign.code(), Code::PermissionDenied);
}

#[test]
fn usage_is_counted_and_survives_a_restart() {
    let environment = vec![("INSULA_WORKSPACES_METERING_SECONDS".to_owned(), "1".to_owned())];
    let server = Server::with(Setup {
        environment,
        ..Setup::default()
    });
    let (path, _) = workspace_owned_by(&server, "alice");
    let alice = server.client(Who::Token(ALICE.to_owned())).in_workspace(&path);
    for name in ["a", "b", "c"] {
        let configmap = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        alice.post(CONFIGMAPS, &configmap).expect(201);
    }
    for _ in 0..5 {
        alice.get(&format!("{CONFIGMAPS}/a")).expect(200);
    }
    let ask = || GetUsageRequest {
        workspace: path.clone(),
        hours: 2,
    };
    let sums = |server: &Server| {
        let usage = answered(client(server, &Who::Anonymous).get_usage(as_user(ALICE, ask()))).unwrap();
        let sum = |verb: &str| -> i64 {
            let hours = usage.metered.iter();
            hours
                .map(|hour| hour.requests.get(verb).copied().unwrap_or_default())
                .sum()
        };
        let bytes: i64 = usage.metered.iter().map(|hour| hour.bytes_out).sum();
        (sum("create"), sum("get"), bytes, usage)
    };
    let (create, gets, bytes, usage) = sums(&server);
    // The creation of the workspace's own objects is the server's.
    assert_eq!((create, gets), (3, 5), "{usage:?}");
    assert!(bytes > 1_000, "{usage:?}");
    let configmaps = usage
        .resources
        .iter()
        .find(|usage| usage.resource == "configmaps")
        .unwrap();
    assert!(configmaps.objects >= 3 && configmaps.bytes > 100, "{configmaps:?}");
    // What was counted since the last write is written at the end.
    server.signal("-TERM");
    let server = server.ended().start().unwrap_or_else(|end| panic!("{end}"));
    let (create, gets, after, usage) = sums(&server);
    assert_eq!((create, gets), (3, 5), "{usage:?}");
    assert!(after >= bytes, "{after} of {bytes}");

    let metered = list_all(&server, &path);
    assert_eq!((metered.requests["create"], metered.requests["get"]), (3, 5));
    let mut owner = client(&server, &Who::Anonymous);
    let refused = answered(owner.list_usage(as_user(ALICE, ListUsageRequest::default()))).unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    for hours in [-1, 841] {
        let wrong = GetUsageRequest { hours, ..ask() };
        let refused = answered(owner.get_usage(as_user(ALICE, wrong))).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{hours}");
    }
}

/// Lists the usage of all workspaces, one a page. Returns the metered sum of one of them.
fn list_all(server: &Server, path: &str) -> MeteredUsage {
    let mut admin = client(server, &Who::KcpAdmin);
    let mut list = ListUsageRequest {
        page_size: 1,
        by_resource: true,
        ..ListUsageRequest::default()
    };
    let mut found = Vec::new();
    loop {
        let page = answered(admin.list_usage(list.clone())).unwrap();
        found.extend(page.workspaces);
        list.page_token = page.next_page_token;
        if list.page_token.is_empty() {
            break;
        }
    }
    let own = found.into_iter().find(|usage| usage.path == path).unwrap();
    assert_eq!(
        own.resources.iter().map(|usage| usage.objects).sum::<i64>(),
        own.objects
    );
    own.metered.unwrap()
}
