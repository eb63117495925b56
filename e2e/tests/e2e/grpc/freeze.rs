//! Frozen workspaces: readable, and written by nobody until they are thawed.

mod views;

use super::{Channel, as_user, channel, conventions::resource, origin};
use http::Version;
use insula_e2e::{
    Client, Server, Setup, Slow, Who, publish_widgets, ready_workspace, runtime, shared, tls, until, workspace,
    workspace_owned_by,
};
use insula_proto::admin::v1::{
    AccessLevel, FreezeWorkspaceRequest, GrantAccessRequest, Limits, SetLimitsRequest, Subject, SubjectKind,
    ThawWorkspaceRequest, access_service_client::AccessServiceClient, quota_service_client::QuotaServiceClient,
    workspace_service_client::WorkspaceServiceClient,
};
use serde_json::{Value, json};
use tonic::{Code, Request, Response, Status};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const WORKSPACES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaces";
const LOGICAL_CLUSTER: &str = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster";

fn client(server: &Server, who: &Who) -> WorkspaceServiceClient<Channel> {
    WorkspaceServiceClient::with_origin(channel(server, who), origin(server))
}

fn answered<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Status> {
    runtime().block_on(call).map(Response::into_inner)
}

fn freeze(workspace: &str, subtree: bool) -> FreezeWorkspaceRequest {
    FreezeWorkspaceRequest {
        workspace: workspace.to_owned(),
        reason: "moving house".to_owned(),
        subtree,
        ..FreezeWorkspaceRequest::default()
    }
}

fn thaw(workspace: &str) -> ThawWorkspaceRequest {
    ThawWorkspaceRequest {
        workspace: workspace.to_owned(),
        ..ThawWorkspaceRequest::default()
    }
}

fn configmap(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

fn refusal(client: &Client, name: &str) -> String {
    let refused = client.post(CONFIGMAPS, &configmap(name)).expect(403);
    refused["message"].as_str().unwrap().to_owned()
}

#[test]
fn a_frozen_workspace_is_read_only_for_its_owner() {
    let server = shared();
    let (path, _) = workspace_owned_by(&server, "alice");
    let alice = server.client(Who::Token("alice-token".to_owned())).in_workspace(&path);
    let carol = server.admin().in_workspace(&path);
    let mut admin = client(&server, &Who::KcpAdmin);
    alice.post(CONFIGMAPS, &configmap("a")).expect(201);
    let mut dry = freeze(&path, false);
    dry.validate_only = true;
    answered(admin.freeze_workspace(dry)).unwrap();
    alice.post(CONFIGMAPS, &configmap("b")).expect(201);

    let frozen = answered(admin.freeze_workspace(freeze(&path, false))).unwrap();
    assert_eq!((frozen.changed, &*frozen.freeze.unwrap().by), (1, "kcp-admin"));
    let again = answered(admin.freeze_workspace(freeze(&path, false))).unwrap();
    assert_eq!(again.changed, 0);
    let one = format!("{CONFIGMAPS}/a");
    for writer in [&alice, &carol] {
        let why = refusal(writer, "c");
        let name = path.rsplit(':').next().unwrap();
        for part in [&*path, "moving house", &format!("{name:?} in root")] {
            assert!(why.contains(part), "{part}: {why}");
        }
        writer.merge(&one, &json!({"data": {"a": "2"}})).expect(403);
        writer.delete(&one).expect(403);
        writer.delete(CONFIGMAPS).expect(403);
        assert_eq!(writer.get(&one).expect(200)["data"]["a"], "1");
    }
    // The owner cannot thaw it, neither by the annotation nor by the call.
    let unmarked = json!({"metadata": {"annotations": {"insula.io/frozen": null}}});
    alice.merge(LOGICAL_CLUSTER, &unmarked).expect(403);
    let mut owner = client(&server, &Who::Anonymous);
    for refused in [
        answered(owner.thaw_workspace(as_user("alice-token", thaw(&path)))).map(drop),
        answered(owner.freeze_workspace(as_user("alice-token", freeze(&path, false)))).map(drop),
        answered(owner.thaw_workspace(as_user("alice-token", thaw("root:nowhere")))).map(drop),
    ] {
        assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
    }
    // Other doors are closed as well.
    let mut access = AccessServiceClient::with_origin(channel(&server, &Who::Anonymous), origin(&server));
    let grant = GrantAccessRequest {
        workspace: path.clone(),
        subject: Some(Subject {
            kind: SubjectKind::User.into(),
            name: "bob".to_owned(),
            namespace: String::new(),
        }),
        level: AccessLevel::View.into(),
        ..GrantAccessRequest::default()
    };
    let refused = answered(access.grant_access(as_user("alice-token", grant))).unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("moving house"), "{refused}");

    let thawed = answered(admin.thaw_workspace(thaw(&path))).unwrap();
    assert_eq!((thawed.changed, thawed.freeze), (1, None));
    alice.merge(&one, &json!({"data": {"a": "2"}})).expect(200);
}

#[test]
fn a_freeze_holds_for_the_subtree_where_it_is_asked_for() {
    let server = shared();
    let root = server.admin();
    let (org, _) = workspace(&root, "frozen");
    let (team, _) = ready_workspace(&root, &org, "team", json!({}));
    let (leaf, _) = ready_workspace(&root, &team, "leaf", json!({}));
    let mut admin = client(&server, &Who::KcpAdmin);
    let (of_org, of_leaf) = (root.in_workspace(&org), root.in_workspace(&leaf));
    let frozen = answered(admin.freeze_workspace(freeze(&org, true))).unwrap();
    assert_eq!(frozen.changed, 3);
    let why = refusal(&of_leaf, "a");
    assert!(
        why.contains(&leaf) && why.contains(&format!("with {org} above it")),
        "{why}"
    );
    let child = json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "late"}});
    of_org.post(WORKSPACES, &child).expect(403);
    let above = answered(admin.thaw_workspace(thaw(&leaf))).unwrap_err();
    assert_eq!(above.code(), Code::FailedPrecondition, "{above}");
    // A freeze of its own stays when that from above goes.
    answered(admin.freeze_workspace(freeze(&leaf, false))).unwrap();
    let thawed = answered(admin.thaw_workspace(thaw(&org))).unwrap();
    assert_eq!(thawed.changed, 3);
    root.in_workspace(&team).post(CONFIGMAPS, &configmap("a")).expect(201);
    assert!(!refusal(&of_leaf, "a").contains("above it"));
    answered(admin.thaw_workspace(thaw(&leaf))).unwrap();
    of_leaf.post(CONFIGMAPS, &configmap("a")).expect(201);
    for (wrong, code) in [
        ("root", Code::InvalidArgument),
        ("", Code::InvalidArgument),
        (&*format!("{org}:nothing"), Code::NotFound),
    ] {
        let refused = answered(admin.freeze_workspace(freeze(wrong, false))).unwrap_err();
        assert_eq!(refused.code(), code, "{wrong}: {refused}");
    }
}

#[test]
fn the_verb_freeze_is_a_right_in_the_parent() {
    let server = shared();
    let root = server.admin();
    let (org, _) = workspace(&root, "freezers");
    let (team, _) = ready_workspace(&root, &org, "team", json!({}));
    let rbac = root.in_workspace(&org).below("/apis/rbac.authorization.k8s.io/v1");
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "freezer"}, "rules": [
            {"apiGroups": ["tenancy.kcp.io"], "resources": ["workspaces"], "resourceNames": ["team"],
                "verbs": ["freeze"]},
            {"nonResourceURLs": ["/"], "verbs": ["access"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "freezer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "freezer"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}]});
    let mut bob = client(&server, &Who::Anonymous);
    let ask = |request: FreezeWorkspaceRequest| -> Request<FreezeWorkspaceRequest> { as_user("bob-token", request) };
    let refused = answered(bob.freeze_workspace(ask(freeze(&team, false)))).unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    rbac.post("/clusterroles", &role).expect(201);
    rbac.post("/clusterrolebindings", &binding).expect(201);
    answered(bob.freeze_workspace(ask(freeze(&team, false)))).unwrap();
    refusal(&root.in_workspace(&team), "a");
    let other = answered(bob.freeze_workspace(ask(freeze(&format!("{org}:other"), false)))).unwrap_err();
    assert_eq!(other.code(), Code::PermissionDenied);
    // The parent deletes a frozen workspace.
    let team = format!("{WORKSPACES}/team");
    root.in_workspace(&org).delete(&team).expect(200);
    until("the workspace is gone", || {
        (root.in_workspace(&org).get(&team).code == 404).then_some(())
    });
}

/// Opens a watch as the administrator.
fn open(server: &Server, path: &str) -> Slow {
    Slow::open(
        server,
        tls(&server.data_dir(), &Who::KcpAdmin),
        None,
        Version::HTTP_2,
        path,
    )
}

/// Returns the next event that satisfies a condition.
fn next(watch: &mut Slow, is_wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let event = watch.event().expect("the watch goes on");
        assert_ne!(event["type"], "ERROR", "{event}");
        if is_wanted(&event["object"]) {
            return event;
        }
    }
}

#[test]
fn open_watches_go_on_through_a_freeze() {
    let server = shared();
    let (path, _) = workspace(&server.admin(), "watched");
    let owner = server.admin().in_workspace(&path);
    let mut admin = client(&server, &Who::KcpAdmin);
    owner.post(CONFIGMAPS, &configmap("a")).expect(201);
    let named = |name: &'static str| move |object: &Value| object["metadata"]["name"] == name;
    let maps = format!("/clusters/{path}{CONFIGMAPS}?watch=true");
    let clusters = LOGICAL_CLUSTER.trim_end_matches("/cluster");
    let mut maps_before = open(&server, &maps);
    let mut marks = open(&server, &format!("/clusters/{path}{clusters}?watch=true"));
    next(&mut maps_before, named("a"));

    answered(admin.freeze_workspace(freeze(&path, false))).unwrap();
    let is_frozen = |object: &Value| object["metadata"]["annotations"]["insula.io/frozen"].is_string();
    next(&mut marks, is_frozen);
    refusal(&owner, "b");
    // Reads begin as before: a list, and a watch that starts with what there is.
    let listed = owner.get(CONFIGMAPS).expect(200);
    assert!(listed["items"].as_array().unwrap().iter().any(named("a")), "{listed}");
    let mut maps_within = open(&server, &maps);
    next(&mut maps_within, named("a"));

    answered(admin.thaw_workspace(thaw(&path))).unwrap();
    next(&mut marks, |object| !is_frozen(object));
    owner.post(CONFIGMAPS, &configmap("c")).expect(201);
    for watch in [&mut maps_before, &mut maps_within] {
        assert_eq!(next(watch, named("c"))["type"], "ADDED");
    }
}

#[test]
fn a_provider_reads_frozen_tenants_and_writes_the_others() {
    const WIDGETS: &str = "/apis/example.io/v1/namespaces/default/widgets";
    let server = shared();
    let root = server.admin();
    let (provider, provider_cluster) = workspace(&root, "provider");
    publish_widgets(&root.in_workspace(&provider));
    let binding = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "widgets"},
        "spec": {"reference": {"export": {"path": provider, "name": "widgets"}}}});
    let tenant = |prefix: &str| {
        let (path, cluster) = workspace(&root, prefix);
        let at = root.in_workspace(&path);
        at.post("/apis/apis.kcp.io/v1alpha2/apibindings", &binding).expect(201);
        until("widgets are served", || (at.get(WIDGETS).code == 200).then_some(()));
        (path, cluster)
    };
    let (frozen, cold) = tenant("cold");
    let (_, warm) = tenant("warm");
    let view = format!("/services/apiexport/{provider_cluster}/widgets/clusters");
    let at = |cluster: &str| root.below(&format!("{view}/{cluster}"));
    let widget = |name: &str| json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": name}});
    at(&cold).post(WIDGETS, &widget("a")).expect(201);
    let named = |name: &'static str| move |object: &Value| object["metadata"]["name"] == name;
    let mut all = open(&server, &format!("{view}/*/apis/example.io/v1/widgets?watch=true"));
    next(&mut all, named("a"));
    answered(client(&server, &Who::KcpAdmin).freeze_workspace(freeze(&frozen, false))).unwrap();

    let one = format!("{WIDGETS}/a");
    let change = json!({"spec": {"firstName": "Ada"}});
    let provider = at(&cold);
    for refused in [
        provider.post(WIDGETS, &widget("b")),
        provider.merge(&one, &change),
        provider.put(&one, &provider.get(&one).expect(200)),
        provider.delete(&one),
        provider.delete(WIDGETS),
    ] {
        let refused = refused.expect(403);
        let why = refused["message"].as_str().unwrap();
        assert!(why.contains(&format!("workspace {cold} is frozen since ")), "{why}");
        // Neither the tenant's place nor the reason is the provider's affair.
        assert!(!why.contains(&frozen) && !why.contains("moving house"), "{why}");
    }
    assert_eq!(provider.get(&one).expect(200)["metadata"]["name"], "a");
    let listed = at("*").get("/apis/example.io/v1/widgets").expect(200);
    assert!(listed["items"].as_array().unwrap().iter().any(named("a")), "{listed}");
    // The watch over all tenants goes on, with those that are not frozen.
    at(&warm).post(WIDGETS, &widget("w")).expect(201);
    assert_eq!(next(&mut all, named("w"))["type"], "ADDED");

    answered(client(&server, &Who::KcpAdmin).thaw_workspace(thaw(&frozen))).unwrap();
    provider.merge(&one, &change).expect(200);
    assert_eq!(
        next(&mut all, |object| object["spec"]["firstName"] == "Ada")["type"],
        "MODIFIED"
    );
}

/// The root cannot be frozen, and nothing changes in a workspace that awaits its deletion.
#[test]
fn what_has_no_parent_or_awaits_its_deletion_is_not_frozen() {
    let server = Server::with(Setup {
        environment: vec![("INSULA_WORKSPACES_DELETION_GRACE_SECONDS".into(), "3600".into())],
        ..Setup::default()
    });
    let (path, _) = workspace(&server.admin(), "leaving");
    let mut admin = client(&server, &Who::KcpAdmin);
    let root = answered(admin.freeze_workspace(freeze("root", false))).unwrap_err();
    assert_eq!(root.code(), Code::InvalidArgument, "{root}");
    assert!(root.message().contains("root has no parent"), "{root}");
    let name = path.rsplit(':').next().unwrap();
    server
        .admin()
        .in_workspace("root")
        .delete(&format!("{WORKSPACES}/{name}"))
        .expect(200);
    let mut quota = QuotaServiceClient::with_origin(channel(&server, &Who::KcpAdmin), origin(&server));
    let limits = SetLimitsRequest {
        workspace: path.clone(),
        limits: Some(Limits {
            watches: 1,
            ..Limits::default()
        }),
        ..SetLimitsRequest::default()
    };
    for refusal in [
        answered(admin.freeze_workspace(freeze(&path, false))).map(drop),
        answered(admin.thaw_workspace(thaw(&path))).map(drop),
        answered(quota.set_limits(limits)).map(drop),
    ] {
        let refusal = refusal.unwrap_err();
        assert_eq!(refusal.code(), Code::FailedPrecondition, "{refusal}");
        assert!(refusal.message().contains("UndeleteWorkspace"), "{refusal}");
        let workspace = ("workspaces.tenancy.kcp.io".to_owned(), name.to_owned());
        assert_eq!(resource(&refusal), workspace);
    }
}
