//! Lists of the APIs that a caller may bind.

use super::{apis::boats, as_user, channel, origin};
use insula_e2e::{Who, publish_widgets, runtime, shared, workspace, workspace_owned_by};
use insula_proto::admin::v1::{
    BindApiRequest, ListApisRequest, PublishApiRequest, Subject, SubjectKind, api_service_client::ApiServiceClient,
};
use serde_json::json;
use tonic::Code;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Pages hold what the caller may bind when the page is asked for, and their tokens name nothing.
#[test]
fn pages_follow_rights_and_their_tokens_name_nothing() {
    let server = shared();
    let admin = server.admin();
    let (mine, _) = workspace_owned_by(&server, "alice");
    let providers: Vec<String> = (0..3).map(|_| workspace(&admin, "offers").0).collect();
    let grant = |provider: &String| {
        let at = admin.in_workspace(provider);
        let role = json!({"metadata": {"name": "binder"}, "rules": [{"apiGroups": ["apis.kcp.io"],
            "resources": ["apiexports"], "resourceNames": ["widgets"], "verbs": ["bind"]}]});
        at.post(&format!("{RBAC}/clusterroles"), &role).expect(201);
        let binding = json!({"metadata": {"name": "binder"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "binder"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]});
        at.post(&format!("{RBAC}/clusterrolebindings"), &binding).expect(201);
    };
    for provider in &providers {
        publish_widgets(&admin.in_workspace(provider));
        grant(provider);
    }
    let mut apis = ApiServiceClient::with_origin(channel(&server, &Who::Anonymous), origin(&server));
    let mut page = |token: &str, listed: bool| {
        let request = ListApisRequest {
            workspace: mine.clone(),
            listed,
            page_size: 1,
            page_token: token.to_owned(),
        };
        runtime().block_on(apis.list_apis(as_user("alice-token", request)))
    };
    let (mut found, mut token) = (Vec::new(), String::new());
    loop {
        let answer = page(&token, false).unwrap().into_inner();
        assert!(answer.apis.len() <= 1, "{answer:?}");
        found.extend(answer.apis.into_iter().map(|api| api.workspace));
        let first = token.is_empty();
        token = answer.next_page_token;
        if first {
            let readable: String = "widgets".bytes().map(|byte| format!("{byte:02x}")).collect();
            assert!(!token.contains(&readable), "{token}");
            let refused = page(&token, true).unwrap_err();
            assert_eq!(
                refused.code(),
                Code::InvalidArgument,
                "a token of another list: {refused:?}"
            );
            // Rights that are taken back between two pages count at once.
            for provider in providers.iter().filter(|provider| !found.contains(provider)) {
                let binding = format!("{RBAC}/clusterrolebindings/binder");
                admin.in_workspace(provider).delete(&binding).expect(200);
            }
        }
        if token.is_empty() {
            break;
        }
    }
    let of_ours = found.iter().filter(|workspace| providers.contains(workspace)).count();
    let before = usize::from(providers.contains(&found[0]));
    assert_eq!(of_ours, before, "{found:?}");
}

/// A publication gives the right to bind with the export, as `export publish --bindable-by`.
#[test]
fn an_export_is_published_with_those_who_may_bind_it() {
    let server = shared();
    let admin = server.admin();
    let (provider, _) = workspace(&admin, "provider");
    let (mine, _) = workspace_owned_by(&server, "alice");
    let mut apis = ApiServiceClient::with_origin(channel(&server, &Who::KcpAdmin), origin(&server));
    let mut tenant = ApiServiceClient::with_origin(channel(&server, &Who::Anonymous), origin(&server));
    let subject = |kind: SubjectKind, name: &str| Subject {
        kind: kind.into(),
        name: name.to_owned(),
        namespace: String::new(),
    };
    let publication = |bindable_by: Vec<Subject>| PublishApiRequest {
        workspace: provider.clone(),
        export: "boats".to_owned(),
        manifests: boats(false),
        bindable_by,
        ..PublishApiRequest::default()
    };
    let both = || {
        vec![
            subject(SubjectKind::Group, "system:authenticated"),
            subject(SubjectKind::User, "bob"),
        ]
    };
    runtime().block_on(async {
        let actions = |answer: insula_proto::admin::v1::PublishApiResponse| -> Vec<String> {
            let rights = answer
                .steps
                .into_iter()
                .filter(|step| step.name.starts_with("insula:bind:boats"));
            rights.map(|step| step.action).collect()
        };
        let plan = PublishApiRequest {
            validate_only: true,
            ..publication(both())
        };
        let plan = apis.publish_api(plan).await.unwrap().into_inner();
        assert_eq!(actions(plan), ["create"; 3]);
        let published = apis.publish_api(publication(both())).await.unwrap().into_inner();
        assert!(published.export.is_some());
        assert_eq!(actions(published), ["create"; 3]);
        let again = apis.publish_api(publication(both())).await.unwrap().into_inner();
        assert_eq!(actions(again), ["unchanged"; 3]);
        let bind = BindApiRequest {
            workspace: mine.clone(),
            export_workspace: provider.clone(),
            export: "boats".to_owned(),
            ..BindApiRequest::default()
        };
        tenant.bind_api(as_user("alice-token", bind)).await.unwrap();
        let nobody = publication(vec![subject(SubjectKind::User, "")]);
        let refused = apis.publish_api(nobody).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains("bindable_by[0].name"), "{refused:?}");
    });
    // A role of the name that grants more is not taken for the right to bind.
    let wider = json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    let role = format!("{RBAC}/clusterroles/insula:bind:boats");
    admin.in_workspace(&provider).merge(&role, &wider).expect(200);
    let refused = runtime().block_on(apis.publish_api(publication(both()))).unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("grants something else"), "{refused:?}");
}
