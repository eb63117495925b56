//! Attacks on the doors of ThirdPartyResources: paths below `/thirdparty`, and both kinds of
//! registrations. The refusals are checked as those of every row: nothing changes, nothing leaks,
//! and the audit log has the reason.

use super::{row::sends, *};
use crate::grpc;
use insula_e2e::{Who, runtime};
use insula_proto::admin::v1::{
    AdvanceMigrationRequest, BeginMigrationRequest, ListMigrationsRequest, MigrationSource, NewDefinition,
    PlanMigrationRequest, UndoMigrationRequest, migration_service_client::MigrationServiceClient,
    migration_source::Replacement,
};
use tonic::{Code, Status};

const FIRST: &str = "/apis/extensions/v1beta1/thirdpartyresources";
const SECOND: &str = "/apis/apiextension.k8s.io/v1beta1/thirdpartyresources";
const OBJECTS: &str = "/thirdparty/doors.example.io/stable/v1/namespaces/default/crontabs";

fn first() -> Value {
    json!({"apiVersion": "extensions/v1beta1", "kind": "ThirdPartyResource",
        "metadata": {"name": "cron-tab.doors.example.io"}, "versions": [{"name": "stable/v1"}, {"name": "v1"}]})
}

fn second(plural: &str, group: &str) -> Value {
    json!({"apiVersion": "apiextension.k8s.io/v1beta1", "kind": "ThirdPartyResource",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "version": "v1", "names": {"plural": plural, "kind": "Gadget"}}})
}

fn object() -> Value {
    json!({"apiVersion": "doors.example.io/stable/v1", "kind": "CronTab", "metadata": {"name": "tab"}})
}

#[test]
fn third_party_paths_are_closed_to_others() {
    let scene = Scene::new();
    let theirs = scene.server.admin().in_workspace(&scene.theirs.path);
    theirs.post(FIRST, &first()).expect(201);
    until("it is served", || (theirs.get(OBJECTS).code == 200).then_some(()));
    theirs.post(OBJECTS, &object()).expect(201);
    let closed: &[u16] = &[403];
    let mut requests: Vec<(String, Option<Value>)> = Vec::new();
    for prefix in ["thirdparty", "third-party"] {
        for rest in [
            "",
            "/doors.example.io",
            "/doors.example.io/stable/v1",
            "/doors.example.io/stable/v1/crontabs",
            "/doors.example.io/stable/v1/watch/crontabs",
            "/doors.example.io/stable/v1/namespaces/default/crontabs/tab",
            "/doors.example.io/v1/namespaces/default/crontabs/tab",
        ] {
            requests.push((format!("GET /clusters/{{theirs}}/{prefix}{rest}"), None));
        }
    }
    for (method, path, body) in [
        ("POST", OBJECTS.to_owned(), Some(object())),
        ("POST", format!("{OBJECTS}/tab"), Some(object())),
        ("PUT", format!("{OBJECTS}/tab"), Some(object())),
        ("PATCH", format!("{OBJECTS}/tab"), Some(json!({"stolen": true}))),
        ("DELETE", format!("{OBJECTS}/tab"), None),
        ("DELETE", OBJECTS.to_owned(), None),
        ("POST", FIRST.to_owned(), Some(first())),
        ("DELETE", format!("{FIRST}/cron-tab.doors.example.io"), None),
        ("POST", SECOND.to_owned(), Some(second("gadgets", "doors.example.io"))),
    ] {
        requests.push((format!("{method} /clusters/{{theirs}}{path}"), body));
    }
    let rows: Vec<Row<'_>> = requests
        .iter()
        .flat_map(|(request, body)| {
            ["anon", "tA", "sA", "ada"].map(|actor| match body {
                Some(body) => sends(row(1, actor, request, closed), body.clone()),
                None => row(1, actor, request, closed),
            })
        })
        .collect();
    refuse(&scene, &rows);
}

/// A tenant cannot take the server's own groups, nor the names of built-in kinds, and no path below
/// `/thirdparty` leads to objects of another kind.
#[test]
fn registrations_take_no_name_of_the_server() {
    let scene = Scene::new();
    let create = |of: &str| format!("POST /clusters/{{mine}}{of}");
    let (first_path, second_path) = (create(FIRST), create(SECOND));
    let named = |name: &str| {
        let mut body = first();
        body["metadata"]["name"] = json!(name);
        body
    };
    let rows = [
        sends(
            row(46, "tA", &first_path, &[403]),
            named("cluster-role.rbac.authorization.k8s.io"),
        ),
        sends(row(46, "tA", &first_path, &[403]), named("claim.internal.insula.io")),
        sends(row(46, "tA", &first_path, &[403]), named("widget.apis.kcp.io")),
        sends(
            row(46, "tA", &second_path, &[403]),
            second("workspaces", "tenancy.kcp.io"),
        ),
        sends(
            row(46, "tA", &second_path, &[403]),
            second("bundles", "internal.insula.io"),
        ),
        sends(
            row(46, "tA", &second_path, &[403]),
            second("thirdpartyresources", "extensions"),
        ),
        row(
            25,
            "tA",
            "GET /clusters/{mine}/thirdparty/rbac.authorization.k8s.io/v1/clusterroles",
            &[404],
        ),
        row(
            25,
            "tA",
            "GET /clusters/{mine}/thirdparty/apis.kcp.io/v1alpha2/apibindings",
            &[404],
        ),
        row(
            19,
            "tA",
            "GET /clusters/{mine}/thirdparty/../clusters/{theirs}/api/v1/configmaps",
            &[400],
        ),
        row(
            19,
            "tA",
            "GET /clusters/{mine}/thirdparty/a.b/stable%2Fv1/crontabs",
            &[400],
        ),
        row(19, "tA", "GET /thirdparty/doors.example.io/stable/v1/crontabs", &[403]),
    ];
    refuse(&scene, &rows);
}

/// A migration takes the rights to delete the registration, to create its replacement and to update
/// the objects; nobody else sees, begins, continues or turns one back.
#[test]
fn migrations_take_the_rights_of_what_they_do() {
    let scene = Scene::new();
    let server = &scene.server;
    let theirs = server.admin().in_workspace(&scene.theirs.path);
    theirs.post(FIRST, &first()).expect(201);
    until("it is served", || (theirs.get(OBJECTS).code == 200).then_some(()));
    theirs.post(OBJECTS, &object()).expect(201);
    let source = |workspace: &str| MigrationSource {
        workspace: workspace.to_owned(),
        group: "extensions".into(),
        name: "cron-tab.doors.example.io".into(),
        replacement: Some(Replacement::Definition(NewDefinition::default())),
    };
    let resource = "crontabs.doors.example.io".to_owned();
    for workspace in [&scene.theirs.path, &scene.theirs.cluster, "root:nowhere"] {
        for token in ["alice-token", &scene.account, &scene.ada] {
            let channel = grpc::channel(server, &Who::Anonymous);
            let refused: Vec<Status> = runtime().block_on(async {
                let mut client = MigrationServiceClient::with_origin(channel, grpc::origin(server));
                let workspace = workspace.to_owned();
                let from = || Some(source(&workspace));
                let plan = PlanMigrationRequest { source: from() };
                let begin = BeginMigrationRequest {
                    source: from(),
                    ..BeginMigrationRequest::default()
                };
                let advance = AdvanceMigrationRequest {
                    workspace: workspace.clone(),
                    resource: resource.clone(),
                    ..AdvanceMigrationRequest::default()
                };
                let undo = UndoMigrationRequest {
                    workspace: workspace.clone(),
                    resource: resource.clone(),
                    ..UndoMigrationRequest::default()
                };
                let list = ListMigrationsRequest {
                    workspace: workspace.clone(),
                    ..ListMigrationsRequest::default()
                };
                [
                    client.plan_migration(grpc::as_user(token, plan)).await.map(drop),
                    client.begin_migration(grpc::as_user(token, begin)).await.map(drop),
                    client.advance_migration(grpc::as_user(token, advance)).await.map(drop),
                    client.undo_migration(grpc::as_user(token, undo)).await.map(drop),
                    client.list_migrations(grpc::as_user(token, list)).await.map(drop),
                ]
                .map(|answer| answer.expect_err("is refused"))
                .into()
            });
            for status in refused {
                assert_eq!(
                    status.code(),
                    Code::PermissionDenied,
                    "{workspace}, {token}: {status:?}"
                );
                assert!(
                    !status.message().contains("cron-tab.doors.example.io\" not found"),
                    "{status:?}"
                );
            }
        }
    }
    // Nothing has begun: the owner writes.
    theirs
        .merge(&format!("{OBJECTS}/tab"), &json!({"written": true}))
        .expect(200);
}
