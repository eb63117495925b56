//! Requests for the right to bind an export, over gRPC.

use super::{Channel, as_user, channel, origin, reason};
use insula_e2e::{Client, Server, Who, publish_widgets, runtime, shared, until, workspace, workspace_owned_by};
use insula_proto::admin::v1::{
    ApiBindRequest, ApiRequestDecision, ApiRequestState, BindApiRequest, DecideApiRequestRequest, GetApiRequest,
    ListApiRequestsRequest, RequestApiRequest, api_service_client::ApiServiceClient,
};
use serde_json::{Value, json};
use tonic::{Code, Response, Status};

const ALICE: &str = "alice-token";
const BOB: &str = "bob-token";
const ADMIN: &str = "dave-token";
const EXPORT: &str = "/apis/apis.kcp.io/v1alpha2/apiexports/widgets";
const REQUESTS: &str = "/apis/apis.insula.io/v1alpha1/apibindrequests";

/// A provider's workspace with the listed export `widgets`, and a workspace of alice.
struct Scene {
    provider: String,
    tenant: String,
    admin: Client,
    apis: ApiServiceClient<Channel>,
}

fn answered<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Status> {
    runtime().block_on(call).map(Response::into_inner)
}

impl Scene {
    fn new(server: &Server) -> Self {
        let admin = server.admin();
        let (provider, _) = workspace(&admin, "provider");
        let admin = admin.in_workspace(&provider);
        publish_widgets(&admin);
        let (tenant, _) = workspace_owned_by(server, "alice");
        let apis = ApiServiceClient::with_origin(channel(server, &Who::Anonymous), origin(server));
        Scene {
            provider,
            tenant,
            admin,
            apis,
        }
    }

    fn annotate(&self, annotations: &Value) {
        let annotations = json!({"metadata": {"annotations": annotations}});
        self.admin.merge(EXPORT, &annotations).expect(200);
    }

    fn allow(&self) {
        self.annotate(&json!({"apis.insula.io/listed": "true", "apis.insula.io/requests": "allowed"}));
    }

    fn asking(&self) -> RequestApiRequest {
        RequestApiRequest {
            workspace: self.tenant.clone(),
            export_workspace: self.provider.clone(),
            export: "widgets".to_owned(),
            reason: "for the shop".to_owned(),
            ..RequestApiRequest::default()
        }
    }

    fn request(&self, token: &str, request: RequestApiRequest) -> Result<(ApiBindRequest, bool), Status> {
        let answer = answered(self.apis.clone().request_api(as_user(token, request)))?;
        Ok((answer.request.unwrap(), answer.created))
    }

    fn list(&self, token: &str, mine: bool) -> Result<Vec<ApiBindRequest>, Status> {
        let workspace = if mine { &self.tenant } else { &self.provider };
        let request = ListApiRequestsRequest {
            workspace: workspace.clone(),
            mine,
            ..ListApiRequestsRequest::default()
        };
        answered(self.apis.clone().list_api_requests(as_user(token, request))).map(|answer| answer.requests)
    }

    fn decide(&self, token: &str, name: &str, decision: ApiRequestDecision) -> Result<ApiBindRequest, Status> {
        let request = DecideApiRequestRequest {
            workspace: self.provider.clone(),
            name: name.to_owned(),
            decision: decision.into(),
            message: "welcome".to_owned(),
            ..DecideApiRequestRequest::default()
        };
        let decided = answered(self.apis.clone().decide_api_request(as_user(token, request)))?;
        Ok(decided.request.unwrap())
    }

    fn bind(&self) -> Result<(), Status> {
        let request = BindApiRequest {
            workspace: self.tenant.clone(),
            export_workspace: self.provider.clone(),
            export: "widgets".to_owned(),
            ..BindApiRequest::default()
        };
        answered(self.apis.clone().bind_api(as_user(ALICE, request))).map(drop)
    }

    /// Lets bob change requests of the provider's workspace, and nothing else.
    fn let_bob_change_requests(&self) {
        const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
        let role = json!({"metadata": {"name": "deciders"}, "rules": [
            {"apiGroups": ["apis.insula.io"], "resources": ["apibindrequests", "apibindrequests/status"],
                "verbs": ["*"]},
            {"nonResourceURLs": ["/"], "verbs": ["access"]}]});
        self.admin.post(&format!("{RBAC}/clusterroles"), &role).expect(201);
        let binding = json!({"metadata": {"name": "deciders"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "deciders"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}]});
        self.admin
            .post(&format!("{RBAC}/clusterrolebindings"), &binding)
            .expect(201);
    }
}

/// Requests that are made at the same time count as those that are made one after another.
#[test]
fn requests_at_the_same_time_stay_within_the_limit() {
    const LIMIT: usize = 20;
    let server = Server::start();
    let scene = Scene::new(&server);
    let names: Vec<String> = (0..2 * LIMIT).map(|index| format!("many-{index}")).collect();
    for name in &names {
        let annotations = json!({"apis.insula.io/listed": "true", "apis.insula.io/requests": "allowed"});
        let export = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport",
            "metadata": {"name": name, "annotations": annotations}});
        scene
            .admin
            .post(EXPORT.trim_end_matches("/widgets"), &export)
            .expect(201);
    }
    let asked = names.iter().map(|name| {
        let request = RequestApiRequest {
            export: name.clone(),
            ..scene.asking()
        };
        let mut apis = scene.apis.clone();
        async move { apis.request_api(as_user(ALICE, request)).await }
    });
    let outcomes = runtime().block_on(futures_util::future::join_all(asked));
    let made = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let refused: Vec<&Status> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    let stored = scene.list(ALICE, true).unwrap().len();
    assert!(made <= LIMIT && stored == made, "{made} made, {stored} stored");
    // A request that lost every race is told so, and counts for nothing.
    let known = |refusal: &&&Status| matches!(refusal.code(), Code::ResourceExhausted | Code::Aborted);
    assert_eq!(refused.iter().filter(known).count(), refused.len(), "{refused:?}");
    let mut left = names.iter().map(|name| {
        let request = RequestApiRequest {
            export: name.clone(),
            ..scene.asking()
        };
        scene.request(ALICE, request)
    });
    let full = left
        .find_map(Result::err)
        .expect("there are more exports than requests may be");
    assert_eq!(full.code(), Code::ResourceExhausted, "{full:?}");
    assert_eq!(scene.list(ALICE, true).unwrap().len(), LIMIT);
}

/// The owner's policy and the approval name a group.
#[test]
fn a_group_may_ask_and_a_group_gets_the_right() {
    let server = shared();
    let scene = Scene::new(&server);
    scene.allow();
    scene.annotate(&json!({"apis.insula.io/request-groups": "team, platform"}));
    let refused = scene.request(ALICE, scene.asking()).unwrap_err();
    assert!(
        refused.code() == Code::FailedPrecondition && refused.message().contains("you are in none of them"),
        "{refused:?}"
    );
    let (tenant, _) = workspace_owned_by(&server, "bob");
    let asking = RequestApiRequest {
        workspace: tenant.clone(),
        ..scene.asking()
    };
    let (made, _) = scene.request(BOB, asking).unwrap();
    assert_eq!(made.requester_groups, [""; 0], "the requester is told nothing of it");
    let listed = scene.list(ADMIN, false).unwrap();
    assert_eq!(listed[0].requester_groups, ["team"], "{listed:?}");

    let approve = |group: &str| DecideApiRequestRequest {
        workspace: scene.provider.clone(),
        name: made.name.clone(),
        decision: ApiRequestDecision::Approve.into(),
        group: group.to_owned(),
        ..DecideApiRequestRequest::default()
    };
    let refused = answered(scene.apis.clone().decide_api_request(as_user(ADMIN, approve("other")))).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    answered(scene.apis.clone().decide_api_request(as_user(ADMIN, approve("team")))).unwrap();
    let granted = until("the right is there", || {
        let listed = scene.list(ADMIN, false).unwrap();
        listed.into_iter().find(|it| it.state() == ApiRequestState::Granted)
    });
    assert_eq!(granted.group, "team");
    let binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/insula:bind:widgets:group:team";
    let subject = scene.admin.get(binding).expect(200)["subjects"][0].clone();
    assert_eq!((&subject["kind"], &subject["name"]), (&json!("Group"), &json!("team")));
    let bind = BindApiRequest {
        workspace: tenant,
        export_workspace: scene.provider.clone(),
        export: "widgets".to_owned(),
        ..BindApiRequest::default()
    };
    answered(scene.apis.clone().bind_api(as_user(BOB, bind))).unwrap();
}

#[test]
fn a_request_is_approved_and_the_api_bound() {
    let server = shared();
    let scene = Scene::new(&server);
    scene.allow();
    let plan = RequestApiRequest {
        validate_only: true,
        ..scene.asking()
    };
    assert!(scene.request(ALICE, plan).unwrap().1);
    assert_eq!(scene.list(ALICE, true).unwrap(), []);
    let (made, created) = scene.request(ALICE, scene.asking()).unwrap();
    assert!(created);
    assert_eq!((&*made.requester, &made.workspace), ("alice", &scene.tenant));
    assert_eq!(
        (&*made.reason, made.state()),
        ("for the shop", ApiRequestState::Pending)
    );
    let days = (made.expire_time.unwrap().seconds - made.create_time.unwrap().seconds) / 86_400;
    assert_eq!(days, 14);
    // Asking again answers the same request.
    let (again, created) = scene.request(ALICE, scene.asking()).unwrap();
    assert_eq!((again, created), (made.clone(), false));
    assert_eq!(scene.list(ALICE, true).unwrap(), std::slice::from_ref(&made));
    assert_eq!(scene.bind().unwrap_err().code(), Code::PermissionDenied);
    // The owner sees and decides, the requester does not.
    let denied = scene.list(ALICE, false).unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    let denied = scene
        .decide(ALICE, &made.name, ApiRequestDecision::Approve)
        .unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    let listed = scene.list(ADMIN, false).unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    let decided = scene.decide(ADMIN, &made.name, ApiRequestDecision::Approve).unwrap();
    assert!(
        !decided.decided_by.is_empty() && decided.decide_time.is_some(),
        "{decided:?}"
    );
    let granted = until("the right is granted", || {
        let mine = scene.list(ALICE, true).unwrap();
        mine.into_iter()
            .find(|request| request.state() == ApiRequestState::Granted)
    });
    assert_eq!((&*granted.message, &*granted.decided_by), ("welcome", ""));
    scene.bind().unwrap();
    let refused = scene.request(ALICE, scene.asking()).unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    assert!(refused.message().contains("you may bind APIExport"), "{refused:?}");
    // Who may bind every export learns which there are.
    let missing = RequestApiRequest {
        export: "gears".to_owned(),
        ..scene.asking()
    };
    assert_eq!(scene.request(ADMIN, missing).unwrap_err().code(), Code::NotFound);
    // A decision is final.
    let refused = scene.decide(ADMIN, &made.name, ApiRequestDecision::Deny).unwrap_err();
    assert!(refused.message().contains("a decision is final"), "{refused:?}");
}

#[test]
fn exports_that_are_not_listed_cannot_be_told_from_missing_ones() {
    let server = shared();
    let scene = Scene::new(&server);
    scene.annotate(&json!({"apis.insula.io/requests": "allowed"}));
    let hidden = scene.request(ALICE, scene.asking()).unwrap_err();
    let missing = RequestApiRequest {
        export: "gears".to_owned(),
        ..scene.asking()
    };
    let missing = scene.request(ALICE, missing).unwrap_err();
    assert_eq!(hidden.code(), Code::PermissionDenied);
    assert_eq!(hidden.message().replace("widgets", "gears"), missing.message());
    // Listed, and without the consent of its owner, it takes no requests.
    scene.annotate(
        &json!({"apis.insula.io/listed": "true", "apis.insula.io/requests": null,
        "apis.insula.io/owner": "team-widgets"}),
    );
    let refused = scene.request(ALICE, scene.asking()).unwrap_err();
    assert_eq!(
        (refused.code(), &*reason(&refused)),
        (Code::FailedPrecondition, "WRONG_STATE")
    );
    assert!(refused.message().contains("ask team-widgets"), "{refused:?}");
    scene.allow();
    let api = GetApiRequest {
        workspace: scene.tenant.clone(),
        export_workspace: scene.provider.clone(),
        export: "widgets".to_owned(),
    };
    let api = answered(scene.apis.clone().get_api(as_user(ALICE, api)))
        .unwrap()
        .api
        .unwrap();
    assert!(api.requestable && api.request.is_none(), "{api:?}");
    for reason in ["x".repeat(1_025), "a\u{1b}[2J".to_owned(), "a\nb".to_owned()] {
        let asking = RequestApiRequest {
            reason,
            ..scene.asking()
        };
        let refused = scene.request(ALICE, asking).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    }
    // Nobody asks from a workspace in which they may not bind.
    let refused = scene.request(BOB, scene.asking()).unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
}

#[test]
fn a_request_cannot_be_forged_and_takes_the_right_to_grant() {
    let server = shared();
    let scene = Scene::new(&server);
    scene.allow();
    scene.let_bob_change_requests();
    let (made, _) = scene.request(ALICE, scene.asking()).unwrap();
    let bob = server.client(Who::Token(BOB.to_owned())).in_workspace(&scene.provider);
    let object = format!("{REQUESTS}/{}", made.name);
    let forged = json!({"apiVersion": "apis.insula.io/v1alpha1", "kind": "APIBindRequest",
        "metadata": {"name": "forged"}, "spec": {"export": "widgets", "requester": {"username": "bob"},
        "expirationTimestamp": "2100-01-01T00:00:00Z"}});
    for client in [&bob, &scene.admin] {
        let refused = client.post(REQUESTS, &forged).expect(403);
        assert!(
            refused["message"].as_str().unwrap().contains("insula apis request"),
            "{refused}"
        );
        for change in [
            json!({"requester": {"username": "bob"}}),
            json!({"expirationTimestamp": "2100-01-01T00:00:00Z"}),
        ] {
            let refused = client.merge(&object, &json!({"spec": change})).expect(422);
            assert!(
                refused["message"].as_str().unwrap().contains("cannot be changed"),
                "{refused}"
            );
        }
        let status = json!({"status": {"conditions": [{"type": "Granted", "status": "True"}]}});
        client.merge(&format!("{object}/status"), &status).expect(403);
    }
    // The right to change requests gives nobody a right that they do not hold.
    let approved = json!({"spec": {"decision": "Approved"}});
    let refused = bob.merge(&object, &approved).expect(403);
    assert!(
        refused["message"].as_str().unwrap().contains("cannot approve"),
        "{refused}"
    );
    let refused = scene.decide(BOB, &made.name, ApiRequestDecision::Approve).unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    assert_eq!(scene.list(ALICE, true).unwrap()[0].state(), ApiRequestState::Pending);
    // To deny gives nothing.
    let denied = scene.decide(BOB, &made.name, ApiRequestDecision::Deny).unwrap();
    assert_eq!((denied.state(), &*denied.decided_by), (ApiRequestState::Denied, "bob"));
    let (answer, created) = scene.request(ALICE, scene.asking()).unwrap();
    assert_eq!((answer.state(), created), (ApiRequestState::Denied, false));
}

#[test]
fn a_request_expires_and_its_export_takes_it_along() {
    let server = shared();
    let scene = Scene::new(&server);
    scene.allow();
    scene.annotate(&json!({"apis.insula.io/request-expiration-seconds": "2"}));
    scene.request(ALICE, scene.asking()).unwrap();
    until("the request is removed", || {
        scene.list(ALICE, true).unwrap().is_empty().then_some(())
    });
    scene.annotate(&json!({"apis.insula.io/request-expiration-seconds": "600"}));
    assert!(scene.request(ALICE, scene.asking()).unwrap().1);
    scene.admin.delete(EXPORT).expect(200);
    until("the request goes with its export", || {
        scene.list(ALICE, true).unwrap().is_empty().then_some(())
    });
}

/// A right that was revoked may be asked for again, and is not given again by the old approval.
#[test]
fn a_revoked_right_takes_a_new_request() {
    let server = shared();
    let scene = Scene::new(&server);
    scene.allow();
    let (made, _) = scene.request(ALICE, scene.asking()).unwrap();
    scene.decide(ADMIN, &made.name, ApiRequestDecision::Approve).unwrap();
    let granted = || scene.list(ALICE, true).unwrap()[0].state() == ApiRequestState::Granted;
    until("the right is granted", || granted().then_some(()));
    let binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/insula:bind:widgets:user:alice";
    scene.admin.delete(binding).expect(200);
    let (second, created) = scene.request(ALICE, scene.asking()).unwrap();
    assert!(created && second.state() == ApiRequestState::Pending, "{second:?}");
    assert_eq!(scene.bind().unwrap_err().code(), Code::PermissionDenied);
}

#[test]
fn requests_of_one_user_have_a_limit() {
    const MAX: usize = 20;
    let server = shared();
    let scene = Scene::new(&server);
    // Bob, since a limit counts the requests of the other tests as well.
    let (mine, _) = workspace_owned_by(&server, "bob");
    let export = |name: &str| {
        json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": name, "annotations": {
            "apis.insula.io/listed": "true", "apis.insula.io/requests": "allowed"}}, "spec": {}})
    };
    let asking = |name: String| RequestApiRequest {
        workspace: mine.clone(),
        export: name,
        ..scene.asking()
    };
    let outcomes: Vec<_> = (0..=MAX)
        .map(|index| {
            let name = format!("api-{index}");
            scene
                .admin
                .post("/apis/apis.kcp.io/v1alpha2/apiexports", &export(&name))
                .expect(201);
            scene.request(BOB, asking(name))
        })
        .collect();
    assert!(outcomes[..MAX].iter().all(Result::is_ok), "{outcomes:?}");
    let refused = outcomes[MAX].as_ref().unwrap_err();
    assert_eq!(
        (refused.code(), &*reason(refused)),
        (Code::ResourceExhausted, "LIMIT_REACHED")
    );
    assert!(refused.message().contains("at most 20"), "{refused:?}");
}
