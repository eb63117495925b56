//! Grants of access, and questions about access.

use super::{Channel, as_user, channel, origin};
use insula_e2e::{Client, Server, Who, runtime, shared, workspace_owned_by};
use insula_proto::admin::v1::{
    AccessBinding, AccessLevel, AccessQuestion, CheckAccessRequest, GetKubeconfigRequest, GrantAccessRequest,
    ListAccessRequest, ListVisibleRequest, RevokeAccessRequest, Subject, SubjectKind, WhoCanRequest,
    access_service_client::AccessServiceClient,
};
use serde_json::{Value, json};
use tonic::{Code, Response, Status};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const ALICE: &str = "alice-token";
const BOB: &str = "bob-token";

fn client(server: &Server) -> AccessServiceClient<Channel> {
    AccessServiceClient::with_origin(channel(server, &Who::Anonymous), origin(server))
}

/// Waits for the answer of a call.
fn answered<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Status> {
    runtime().block_on(call).map(Response::into_inner)
}

fn subject(kind: SubjectKind, name: &str, namespace: &str) -> Option<Subject> {
    Some(Subject {
        kind: kind.into(),
        name: name.to_owned(),
        namespace: namespace.to_owned(),
    })
}

fn bob() -> Option<Subject> {
    subject(SubjectKind::User, "bob", "")
}

fn grant(workspace: &str, subject: Option<Subject>, level: AccessLevel) -> GrantAccessRequest {
    GrantAccessRequest {
        workspace: workspace.to_owned(),
        subject,
        level: level.into(),
        ..GrantAccessRequest::default()
    }
}

fn revoke(workspace: &str, subject: Option<Subject>, level: AccessLevel) -> RevokeAccessRequest {
    RevokeAccessRequest {
        workspace: workspace.to_owned(),
        subject,
        level: level.into(),
        ..RevokeAccessRequest::default()
    }
}

fn question(verb: &str, group: &str, resource: &str) -> Option<AccessQuestion> {
    Some(AccessQuestion {
        verb: verb.to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        ..AccessQuestion::default()
    })
}

fn names(bindings: &[AccessBinding]) -> Vec<&str> {
    bindings.iter().map(|binding| &*binding.binding).collect()
}

fn token(server: &Server, token: &str, workspace: &str) -> Client {
    server.client(Who::Token(token.to_owned())).in_workspace(workspace)
}

fn configmap(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

#[test]
fn a_grant_lets_a_teammate_in_and_its_revocation_out() {
    let server = shared();
    let (path, _) = workspace_owned_by(&server, "alice");
    let as_bob = token(&server, BOB, &path);
    let mut client = client(&server);
    as_bob.post(CONFIGMAPS, &configmap("a")).expect(403);
    let mut dry = grant(&path, bob(), AccessLevel::Edit);
    dry.validate_only = true;
    let answer = answered(client.grant_access(as_user(ALICE, dry))).unwrap();
    assert!(answer.created);
    as_bob.post(CONFIGMAPS, &configmap("a")).expect(403);

    let mut wanted = grant(&path, bob(), AccessLevel::Edit);
    wanted.request_id = "8d4fd6ba-6a3e-4c1e-9f35-1d3a7d0f9d11".to_owned();
    for _ in 0..2 {
        let answer = answered(client.grant_access(as_user(ALICE, wanted.clone()))).unwrap();
        assert!(answer.created, "a repetition gets the first answer");
        let both = ["insula:access:edit:user:bob", "insula:access:access:user:bob"];
        assert_eq!(names(&answer.bindings), both);
    }
    as_bob.post(CONFIGMAPS, &configmap("a")).expect(201);
    let again = answered(client.grant_access(as_user(ALICE, grant(&path, bob(), AccessLevel::Edit)))).unwrap();
    assert!(!again.created);

    // A second level, so that the first can go without the right to enter.
    answered(client.grant_access(as_user(ALICE, grant(&path, bob(), AccessLevel::View)))).unwrap();
    let gone = answered(client.revoke_access(as_user(ALICE, revoke(&path, bob(), AccessLevel::Edit)))).unwrap();
    assert_eq!(names(&gone.revoked), ["insula:access:edit:user:bob"]);
    assert_eq!(gone.remaining.len(), 2, "{:?}", gone.remaining);
    as_bob.get(CONFIGMAPS).expect(200);
    as_bob.post(CONFIGMAPS, &configmap("b")).expect(403);
    let all = revoke(&path, bob(), AccessLevel::Unspecified);
    let gone = answered(client.revoke_access(as_user(ALICE, all.clone()))).unwrap();
    assert_eq!((gone.revoked.len(), gone.remaining.len()), (2, 0));
    as_bob.get(CONFIGMAPS).expect(403);
    let nothing = answered(client.revoke_access(as_user(ALICE, all))).unwrap_err();
    assert_eq!(nothing.code(), Code::NotFound, "{nothing}");
}

#[test]
fn grants_need_the_rights_that_they_give() {
    let server = shared();
    let (path, _) = workspace_owned_by(&server, "alice");
    let mut client = client(&server);
    answered(client.grant_access(as_user(ALICE, grant(&path, bob(), AccessLevel::Admin)))).unwrap();
    // The level admin does not write ClusterRoleBindings.
    for workspace in [&*path, "root:nowhere"] {
        let refused = [
            answered(client.grant_access(as_user(BOB, grant(workspace, bob(), AccessLevel::View)))).map(drop),
            answered(client.revoke_access(as_user(BOB, revoke(workspace, bob(), AccessLevel::View)))).map(drop),
        ];
        for refused in refused {
            assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied, "{workspace}");
        }
    }
    for (subject, level, field) in [
        (None, AccessLevel::View, "subject"),
        (
            subject(SubjectKind::Unspecified, "x", ""),
            AccessLevel::View,
            "subject.kind",
        ),
        (subject(SubjectKind::User, "", ""), AccessLevel::View, "subject.name"),
        (
            subject(SubjectKind::Group, "x", "default"),
            AccessLevel::View,
            "subject.namespace",
        ),
        (
            subject(SubjectKind::ServiceAccount, "x", ""),
            AccessLevel::View,
            "subject.namespace",
        ),
        (bob(), AccessLevel::Unspecified, "level"),
    ] {
        let refused = answered(client.grant_access(as_user(ALICE, grant(&path, subject, level)))).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{field}");
        assert!(refused.message().starts_with(&format!("{field}: ")), "{refused}");
    }
    // A binding that was edited by hand is neither taken for the grant nor deleted.
    let name = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/insula:access:admin:user:bob";
    let more = json!({"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"},
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}]});
    token(&server, ALICE, &path).merge(name, &more).expect(200);
    let refused = [
        answered(client.grant_access(as_user(ALICE, grant(&path, bob(), AccessLevel::Admin)))).map(drop),
        answered(client.revoke_access(as_user(ALICE, revoke(&path, bob(), AccessLevel::Admin)))).map(drop),
    ];
    for refused in refused {
        assert_eq!(refused.unwrap_err().code(), Code::FailedPrecondition);
    }
}

#[test]
fn access_is_listed_with_the_bindings_that_give_it() {
    let server = shared();
    let (path, _) = workspace_owned_by(&server, "alice");
    let mut client = client(&server);
    let devs = || subject(SubjectKind::Group, "devs", "");
    let robot = || subject(SubjectKind::ServiceAccount, "default", "default");
    for (subject, level) in [
        (bob(), AccessLevel::Edit),
        (devs(), AccessLevel::View),
        (robot(), AccessLevel::View),
    ] {
        answered(client.grant_access(as_user(ALICE, grant(&path, subject, level)))).unwrap();
    }
    let list = |token: &str, size: i32| ListAccessRequest {
        workspace: path.clone(),
        only_own: true,
        page_size: size,
        page_token: token.to_owned(),
        ..ListAccessRequest::default()
    };
    let (mut found, mut next) = (Vec::new(), String::new());
    loop {
        let page = answered(client.list_access(as_user(ALICE, list(&next, 2)))).unwrap();
        assert!(page.bindings.len() <= 2);
        found.extend(page.bindings);
        next = page.next_page_token;
        if next.is_empty() {
            break;
        }
    }
    let owner = &found[0];
    assert_eq!(
        (owner.subject.as_ref().unwrap().name.as_str(), &*owner.binding),
        ("alice", "")
    );
    assert_eq!(
        found.len(),
        7,
        "the owner, three levels, three rights to enter: {:?}",
        names(&found)
    );
    let edit = found
        .iter()
        .find(|binding| binding.level() == AccessLevel::Edit)
        .unwrap();
    assert_eq!(
        (&*edit.role, &*edit.binding_kind, &*edit.workspace),
        ("edit", "ClusterRoleBinding", &*path)
    );
    let first = answered(client.list_access(as_user(ALICE, list("", 2)))).unwrap();
    let mut other = list(&first.next_page_token, 2);
    other.only_own = false;
    let refused = answered(client.list_access(as_user(ALICE, other))).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    let mut of_robot = list("", 0);
    of_robot.subject = robot();
    let found = answered(client.list_access(as_user(ALICE, of_robot))).unwrap();
    assert_eq!(found.bindings.len(), 2);
    let refused = answered(client.list_access(as_user(BOB, list("", 0)))).unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "edit lists no bindings");
}

#[test]
fn the_subjects_that_may_do_something_are_named_with_the_binding() {
    let server = shared();
    let (path, _) = workspace_owned_by(&server, "alice");
    let mut client = client(&server);
    let devs = subject(SubjectKind::Group, "devs", "");
    for (subject, level) in [(bob(), AccessLevel::Edit), (devs, AccessLevel::View)] {
        answered(client.grant_access(as_user(ALICE, grant(&path, subject, level)))).unwrap();
    }
    let who = WhoCanRequest {
        workspace: path.clone(),
        question: question("create", "", "configmaps"),
        ..WhoCanRequest::default()
    };
    let can = answered(client.who_can(as_user(ALICE, who.clone()))).unwrap();
    let seen: Vec<(String, bool)> = can
        .holders
        .iter()
        .map(|holder| (holder.binding.clone().unwrap().subject.unwrap().name, holder.effective))
        .collect();
    for expected in ["alice", "bob", "system:masters"] {
        assert!(seen.contains(&(expected.to_owned(), true)), "{expected}: {seen:?}");
    }
    assert!(
        !seen.iter().any(|(name, _)| name == "devs"),
        "view creates nothing: {seen:?}"
    );
    // A role without the right to enter is named, with the reason why it has no effect.
    let rbac = token(&server, ALICE, &path);
    let outside = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "outside"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}]});
    rbac.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &outside)
        .expect(201);
    let can = answered(client.who_can(as_user(ALICE, who))).unwrap();
    let eve = can
        .holders
        .iter()
        .find(|holder| holder.binding.as_ref().unwrap().binding == "outside")
        .unwrap();
    assert_eq!((eve.effective, &*eve.reason), (false, "no access to the workspace"));
}

#[test]
fn decisions_are_explained_to_those_who_may_ask() {
    let server = shared();
    let (path, _) = workspace_owned_by(&server, "alice");
    let mut client = client(&server);
    answered(client.grant_access(as_user(ALICE, grant(&path, bob(), AccessLevel::View)))).unwrap();
    let check = |subject: Option<Subject>, verb: &str| CheckAccessRequest {
        workspace: path.clone(),
        subject,
        groups: Vec::new(),
        question: question(verb, "", "configmaps"),
    };
    let yes = answered(client.check_access(as_user(ALICE, check(bob(), "list")))).unwrap();
    assert!(yes.allowed);
    assert_eq!(names(&yes.bindings), ["insula:access:view:user:bob"]);
    assert_eq!(
        yes.steps.last().map(|step| (&*step.step, &*step.opinion)),
        Some(("05-local", "allow"))
    );
    let no = answered(client.check_access(as_user(ALICE, check(bob(), "create")))).unwrap();
    assert_eq!((no.allowed, &*no.reason), (false, "no rule allows it"));
    let stranger = subject(SubjectKind::User, "eve", "");
    let no = answered(client.check_access(as_user(ALICE, check(stranger.clone(), "list")))).unwrap();
    assert_eq!((no.allowed, &*no.reason), (false, "no access to the workspace"));
    // Groups that the question names count.
    answered(client.grant_access(as_user(
        ALICE,
        grant(&path, subject(SubjectKind::Group, "devs", ""), AccessLevel::View),
    )))
    .unwrap();
    let mut grouped = check(stranger, "list");
    grouped.groups = vec!["devs".to_owned()];
    assert!(answered(client.check_access(as_user(ALICE, grouped))).unwrap().allowed);

    let own = answered(client.check_access(as_user(BOB, check(None, "list")))).unwrap();
    assert_eq!(
        (own.allowed, &*own.reason, own.steps.len()),
        (true, "access granted", 0)
    );
    let others = answered(client.check_access(as_user(BOB, check(bob(), "list")))).unwrap_err();
    assert_eq!(others.code(), Code::PermissionDenied, "view asks about nobody else");
    let both = CheckAccessRequest {
        question: Some(AccessQuestion {
            path: "/version".to_owned(),
            ..question("get", "", "configmaps").unwrap()
        }),
        ..check(None, "get")
    };
    let refused = answered(client.check_access(as_user(ALICE, both))).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
}

#[test]
fn a_kubeconfig_is_self_contained() {
    let server = shared();
    let (path, _) = workspace_owned_by(&server, "alice");
    let mut client = client(&server);
    let robot = subject(SubjectKind::ServiceAccount, "default", "default");
    answered(client.grant_access(as_user(ALICE, grant(&path, robot, AccessLevel::View)))).unwrap();
    let ask = |account: &str, seconds: i64| GetKubeconfigRequest {
        workspace: path.clone(),
        token_for_service_account: account.to_owned(),
        token_seconds: seconds,
        ..GetKubeconfigRequest::default()
    };
    let plain = answered(client.get_kubeconfig(as_user(ALICE, ask("", 0)))).unwrap();
    let config: Value = serde_saphyr::from_str(&plain.kubeconfig).unwrap();
    let url = format!("{}/clusters/{path}", server.url());
    assert_eq!(config["clusters"][0]["cluster"]["server"], json!(url));
    assert!(config["clusters"][0]["cluster"]["certificate-authority-data"].is_string());
    assert_eq!(
        (config["users"][0]["user"].clone(), plain.expire_time),
        (json!({}), None)
    );

    let mine = answered(client.get_kubeconfig(as_user(ALICE, ask("default/default", 600)))).unwrap();
    assert!(mine.expire_time.is_some());
    let config: Value = serde_saphyr::from_str(&mine.kubeconfig).unwrap();
    let robot = config["users"][0]["user"]["token"].as_str().unwrap();
    token(&server, robot, &path).get(CONFIGMAPS).expect(200);
    token(&server, robot, &path)
        .post(CONFIGMAPS, &configmap("a"))
        .expect(403);

    for (account, seconds, code) in [
        ("default", 0, Code::InvalidArgument),
        ("a/../b", 0, Code::InvalidArgument),
        ("default/default", 599, Code::InvalidArgument),
        ("default/default", 90_000, Code::InvalidArgument),
        ("", 600, Code::InvalidArgument),
        ("default/nobody", 600, Code::NotFound),
    ] {
        let refused = answered(client.get_kubeconfig(as_user(ALICE, ask(account, seconds)))).unwrap_err();
        assert_eq!(refused.code(), code, "{account} {seconds}: {refused}");
    }
    let closed = answered(client.get_kubeconfig(as_user(BOB, ask("", 0)))).unwrap_err();
    assert_eq!(closed.code(), Code::PermissionDenied);
    answered(client.grant_access(as_user(ALICE, grant(&path, bob(), AccessLevel::View)))).unwrap();
    answered(client.get_kubeconfig(as_user(BOB, ask("", 0)))).unwrap();
    let closed = answered(client.get_kubeconfig(as_user(BOB, ask("default/default", 600)))).unwrap_err();
    assert_eq!(closed.code(), Code::PermissionDenied, "view makes no tokens");
}

#[test]
fn a_subjects_view_is_shown_without_acting_as_them() {
    let server = shared();
    let (path, _) = workspace_owned_by(&server, "alice");
    let mut client = client(&server);
    let see = || ListVisibleRequest {
        workspace: path.clone(),
        subject: bob(),
        ..ListVisibleRequest::default()
    };
    let none = answered(client.list_visible(as_user(ALICE, see()))).unwrap();
    assert!(none.workspaces.is_empty());
    answered(client.grant_access(as_user(ALICE, grant(&path, bob(), AccessLevel::View)))).unwrap();
    let seen = answered(client.list_visible(as_user(ALICE, see()))).unwrap().workspaces;
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].path, path);
    let verbs = |name: &str| {
        let found = seen[0].resources.iter().find(|resource| resource.resource == name);
        found.map(|found| found.verbs.join(","))
    };
    assert_eq!(verbs("configmaps").as_deref(), Some("get,list,watch"));
    assert_eq!(verbs("secrets"), None);
    let refused = answered(client.list_visible(as_user(BOB, see()))).unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

/// Returns the answers of the calls about a workspace to bob: code and text.
fn answers(server: &Server, workspace: &str) -> Vec<(Code, String)> {
    let mut client = client(server);
    let workspace = || workspace.to_owned();
    let list = ListAccessRequest {
        workspace: workspace(),
        ..ListAccessRequest::default()
    };
    let who = WhoCanRequest {
        workspace: workspace(),
        question: question("get", "", "secrets"),
        ..WhoCanRequest::default()
    };
    let check = CheckAccessRequest {
        workspace: workspace(),
        question: question("get", "", "secrets"),
        ..CheckAccessRequest::default()
    };
    let config = GetKubeconfigRequest {
        workspace: workspace(),
        ..GetKubeconfigRequest::default()
    };
    let visible = ListVisibleRequest {
        workspace: workspace(),
        subject: bob(),
        ..ListVisibleRequest::default()
    };
    let answers = [
        answered(client.grant_access(as_user(BOB, grant(&workspace(), bob(), AccessLevel::View)))).map(drop),
        answered(client.revoke_access(as_user(BOB, revoke(&workspace(), bob(), AccessLevel::View)))).map(drop),
        answered(client.list_access(as_user(BOB, list))).map(drop),
        answered(client.who_can(as_user(BOB, who))).map(drop),
        answered(client.check_access(as_user(BOB, check))).map(drop),
        answered(client.get_kubeconfig(as_user(BOB, config))).map(drop),
        answered(client.list_visible(as_user(BOB, visible))).map(drop),
    ];
    let told = |answer: Result<(), Status>| match answer {
        Ok(()) => (Code::Ok, String::new()),
        Err(status) => (status.code(), status.message().to_owned()),
    };
    answers.into_iter().map(told).collect()
}

#[test]
fn foreign_and_missing_workspaces_get_the_same_answer() {
    let server = shared();
    let (theirs, cluster) = workspace_owned_by(&server, "alice");
    let nowhere = answers(&server, "root:nowhere");
    assert!(
        nowhere.iter().all(|(code, _)| *code == Code::PermissionDenied),
        "{nowhere:?}"
    );
    for foreign in [
        &*theirs,
        &cluster,
        &format!("{theirs}:below"),
        "0123456789abcdef",
        "root:nowhere:below",
    ] {
        assert_eq!(answers(&server, foreign), nowhere, "{foreign}");
    }
}
