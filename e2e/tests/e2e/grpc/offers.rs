//! Lists of the APIs that a caller may bind.

use super::{as_user, channel, origin};
use insula_e2e::{Who, publish_widgets, runtime, shared, workspace, workspace_owned_by};
use insula_proto::admin::v1::{ListApisRequest, api_service_client::ApiServiceClient};
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
