//! Permission claims of bindings.

use super::apis::{Scene, refused};
use super::{as_user, bad_fields, channel, client, origin};
use insula_e2e::{Client, Who, runtime, shared, until, workspace, workspace_owned_by};
use insula_proto::admin::v1::{
    AcceptClaimsRequest, BindApiRequest, ClaimState, ListClaimsRequest, MigrationSource, NewBinding,
    PlanMigrationRequest, RejectClaimsRequest, api_service_client::ApiServiceClient,
    migration_service_client::MigrationServiceClient, migration_source::Replacement,
};
use serde_json::json;
use tonic::Code;

const EXPORTS: &str = "/apis/apis.kcp.io/v1alpha2/apiexports";

fn claim(resource: &str, state: ClaimState, verbs: &[&str]) -> (String, ClaimState, Vec<String>) {
    let verbs = verbs.iter().map(|verb| (*verb).to_owned()).collect();
    (resource.to_owned(), state, verbs)
}

#[test]
fn claims_are_listed_accepted_and_rejected() {
    let server = shared();
    let scene = Scene::new(&server);
    scene.publish_and_bind();
    let claims = json!({"spec": {"permissionClaims": [
        {"resource": "configmaps", "verbs": ["get", "list"]}, {"resource": "secrets", "verbs": ["get"]}]}});
    scene
        .at_provider
        .merge(&format!("{EXPORTS}/boats"), &claims)
        .expect(200);
    let mut apis = scene.apis.clone();
    let mut listed = || {
        let request = ListClaimsRequest {
            workspace: scene.tenant.clone(),
            binding: "boats".to_owned(),
            ..ListClaimsRequest::default()
        };
        let listed = runtime().block_on(apis.list_claims(request)).unwrap().into_inner();
        let claims = listed
            .claims
            .into_iter()
            .map(|it| (it.resource.clone(), it.state(), it.accepted_verbs));
        (claims.collect::<Vec<_>>(), listed.etag)
    };
    let open = [
        claim("configmaps", ClaimState::Open, &[]),
        claim("secrets", ClaimState::Open, &[]),
    ];
    let (_, stale) = until("the claims are there", || {
        Some(listed()).filter(|(claims, _)| *claims == open)
    });
    let mut apis = scene.apis.clone();
    let accept = |name: &str, etag: &str| AcceptClaimsRequest {
        workspace: scene.tenant.clone(),
        binding: "boats".to_owned(),
        claims: vec![name.to_owned()],
        etag: etag.to_owned(),
        ..AcceptClaimsRequest::default()
    };
    runtime().block_on(async {
        let dry = AcceptClaimsRequest {
            validate_only: true,
            ..accept("configmaps", "")
        };
        apis.accept_claims(dry).await.unwrap();
        refused(
            apis.accept_claims(accept("pods", "")).await,
            Code::InvalidArgument,
            "asks for no pods",
        );
        apis.accept_claims(accept("configmaps", "")).await.unwrap();
        refused(
            apis.accept_claims(accept("secrets", &stale)).await,
            Code::Aborted,
            "etag",
        );
        let reject = RejectClaimsRequest {
            workspace: scene.tenant.clone(),
            binding: "boats".to_owned(),
            claims: vec!["*".to_owned()],
            ..RejectClaimsRequest::default()
        };
        apis.reject_claims(reject).await.unwrap();
    });
    let decided = [
        claim("configmaps", ClaimState::Accepted, &["get", "list"]),
        claim("secrets", ClaimState::Rejected, &[]),
    ];
    assert_eq!(listed().0, decided);
}

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Lets every authenticated user bind the export of boats, and none enter its workspace.
fn let_all_bind(at_provider: &Client) {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "bind-boats"}, "rules": [{"apiGroups": ["apis.kcp.io"],
            "resources": ["apiexports"], "resourceNames": ["boats"], "verbs": ["bind"]}]});
    let group = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}]);
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "bind-boats"}, "subjects": group,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bind-boats"}});
    at_provider.post(&format!("{RBAC}/clusterroles"), &role).expect(201);
    at_provider
        .post(&format!("{RBAC}/clusterrolebindings"), &binding)
        .expect(201);
}

/// Returns a refusal without what the caller wrote, which the way to the right repeats.
fn without_names(refusal: &str, workspace: &str) -> String {
    let words = refusal.replace("others", "boats");
    let words = words.replace(&format!("{workspace} "), "W ");
    words.replace(&format!("{workspace}:\n"), "W:\n")
}

/// The right to bind is enough to bind an export, as it is over HTTP. Without it, callers cannot
/// tell an export and a workspace that exist from those that do not.
#[test]
fn a_binding_takes_the_right_to_bind_and_no_access_to_the_provider() {
    let server = shared();
    let scene = Scene::new(&server);
    scene.publish_and_bind();
    let hidden = Scene::new(&server);
    hidden.publish_and_bind();
    let_all_bind(&scene.at_provider);
    let claims = json!({"spec": {"permissionClaims": [{"resource": "configmaps", "verbs": ["get"]}]}});
    scene
        .at_provider
        .merge(&format!("{EXPORTS}/boats"), &claims)
        .expect(200);
    let (mine, _) = workspace_owned_by(&server, "alice");
    let alice = server
        .client(Who::Token("alice-token".to_owned()))
        .in_workspace(&scene.provider);
    alice.get(&format!("{EXPORTS}/boats")).expect(403);
    let mut apis = ApiServiceClient::with_origin(channel(&server, &Who::Anonymous), origin(&server));
    let request = |workspace: &str, export: &str| BindApiRequest {
        workspace: mine.clone(),
        export_workspace: workspace.to_owned(),
        export: export.to_owned(),
        accept_claims: vec!["configmaps".to_owned()],
        ..BindApiRequest::default()
    };
    runtime().block_on(async {
        let mut refusals = Vec::new();
        let nowhere = format!("{}:nothing", hidden.provider);
        for (workspace, export) in [
            (hidden.provider.as_str(), "boats"),
            (hidden.provider.as_str(), "others"),
            (&*nowhere, "boats"),
            ("root:nothing-of-this-name", "others"),
            (&*scene.provider, "others"),
        ] {
            let sent = as_user("alice-token", request(workspace, export));
            let refusal = apis.bind_api(sent).await.unwrap_err();
            assert_eq!(
                refusal.code(),
                Code::PermissionDenied,
                "{workspace} {export}: {refusal:?}"
            );
            refusals.push(without_names(refusal.message(), workspace));
        }
        refusals.dedup();
        assert_eq!(refusals.len(), 1, "{refusals:?}");
        let unnamed = as_user("alice-token", request(&scene.provider, ""));
        assert_eq!(bad_fields(&apis.bind_api(unnamed).await.unwrap_err()), ["export"]);

        let sent = as_user("alice-token", request(&scene.provider, "boats"));
        let bound = apis.bind_api(sent).await.unwrap().into_inner().binding.unwrap();
        assert_eq!((bound.name.as_str(), bound.export.as_str()), ("boats", "boats"));
    });
    let (theirs, _) = workspace(&server.admin(), "grpc-others");
    let foreign = BindApiRequest {
        workspace: theirs,
        ..request(&scene.provider, "boats")
    };
    let refusal = runtime().block_on(apis.bind_api(as_user("alice-token", foreign)));
    refused(refusal, Code::PermissionDenied, "apibindings");
    let at_mine = server.client(Who::Token("alice-token".to_owned())).in_workspace(&mine);
    until("the API is served", || {
        let found = at_mine.get("/apis/grpc.example.io/v2/namespaces/default/boats");
        (found.code == 200).then_some(())
    });
}

#[test]
fn claims_without_a_name_are_refused() {
    let server = shared();
    let mut scene = Scene::new(&server);
    scene.publish_and_bind();
    for (claims, etag, field) in [
        (vec![String::new()], "", "claims[0]"),
        (Vec::new(), "", "claims"),
        (vec!["*".to_owned()], "x", "etag"),
    ] {
        let request = AcceptClaimsRequest {
            workspace: scene.tenant.clone(),
            binding: "boats".to_owned(),
            claims,
            etag: etag.to_owned(),
            ..AcceptClaimsRequest::default()
        };
        let refusal = runtime().block_on(scene.apis.accept_claims(request)).unwrap_err();
        let wanted = (Code::InvalidArgument, vec![field.to_owned()]);
        assert_eq!((refusal.code(), bad_fields(&refusal)), wanted, "{refusal:?}");
    }
}

/// Decisions that are made at once are all made.
#[test]
fn claims_that_are_decided_at_once_are_all_decided() {
    const COUNT: usize = 16;
    let server = shared();
    let scene = Scene::new(&server);
    scene.publish_and_bind();
    let resource = |index: usize| format!("things{index}");
    let claims = |index| {
        json!({"group": "claimed.example.io", "resource": resource(index), "verbs": ["get"],
            "identityHash": "0123456789abcdef".repeat(4)})
    };
    let claims: Vec<_> = (0..COUNT).map(claims).collect();
    let claims = json!({"spec": {"permissionClaims": claims}});
    scene
        .at_provider
        .merge(&format!("{EXPORTS}/boats"), &claims)
        .expect(200);
    let mut apis = scene.apis.clone();
    let mut listed = || {
        let request = ListClaimsRequest {
            workspace: scene.tenant.clone(),
            binding: "boats".to_owned(),
            ..ListClaimsRequest::default()
        };
        let listed = runtime().block_on(apis.list_claims(request)).unwrap();
        listed.into_inner().claims
    };
    until("the claims are there", || (listed().len() == COUNT).then_some(()));
    let sent: Vec<_> = (0..COUNT)
        .map(|index| {
            let mut apis = scene.apis.clone();
            let claims = vec![format!("{}.claimed.example.io", resource(index))];
            let (workspace, binding) = (scene.tenant.clone(), "boats".to_owned());
            let reject = RejectClaimsRequest {
                workspace,
                binding,
                claims,
                ..RejectClaimsRequest::default()
            };
            runtime().spawn(async move { apis.reject_claims(reject).await })
        })
        .collect();
    for sent in sent {
        runtime().block_on(sent).unwrap().unwrap();
    }
    assert!(listed().iter().all(|claim| claim.state() == ClaimState::Rejected));
}

/// A migration to a binding takes the same right as the binding.
#[test]
fn a_migration_to_a_binding_takes_the_right_to_bind() {
    let server = shared();
    let scene = Scene::new(&server);
    scene.publish_and_bind();
    let hidden = Scene::new(&server);
    let_all_bind(&scene.at_provider);
    let (mine, _) = workspace_owned_by(&server, "alice");
    let registration = json!({"apiVersion": "extensions/v1beta1", "kind": "ThirdPartyResource",
        "metadata": {"name": "boat.grpc.example.io"}, "versions": [{"name": "v1"}]});
    let at_mine = server.client(Who::Token("alice-token".to_owned())).in_workspace(&mine);
    at_mine
        .post("/apis/extensions/v1beta1/thirdpartyresources", &registration)
        .expect(201);
    until("boats are served", || {
        let boats = at_mine.get("/apis/grpc.example.io/v1/namespaces/default/boats");
        (boats.code == 200).then_some(())
    });
    let mut migrations = client!(MigrationServiceClient<_>, *server, Who::Anonymous);
    let mut plan = |export_workspace: &str, export: &str| {
        let binding = NewBinding {
            export_workspace: export_workspace.to_owned(),
            export: export.to_owned(),
            ..NewBinding::default()
        };
        let source = MigrationSource {
            workspace: mine.clone(),
            group: "extensions".to_owned(),
            name: "boat.grpc.example.io".to_owned(),
            replacement: Some(Replacement::Binding(binding)),
        };
        let request = PlanMigrationRequest { source: Some(source) };
        runtime().block_on(migrations.plan_migration(as_user("alice-token", request)))
    };
    let planned = plan(&scene.provider, "boats").unwrap().into_inner();
    assert_eq!(planned.migration.unwrap().replacement_kind, "APIBinding");
    let [there, missing] =
        [&hidden.provider, "root:nothing-of-this-name"].map(|place| plan(place, "boats").unwrap_err());
    assert_eq!(there.code(), Code::PermissionDenied);
    let words = there.message().replace(&hidden.provider, "root:nothing-of-this-name");
    assert_eq!((there.code(), &*words), (missing.code(), missing.message()));
    let unnamed = plan("", "boats").unwrap_err();
    assert_eq!(bad_fields(&unnamed), ["source.binding.export_workspace"]);
}
