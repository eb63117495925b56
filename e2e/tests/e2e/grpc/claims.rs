//! Permission claims of bindings.

use super::apis::{Scene, refused};
use insula_e2e::{runtime, shared, until};
use insula_proto::admin::v1::{AcceptClaimsRequest, ClaimState, ListClaimsRequest, RejectClaimsRequest};
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
