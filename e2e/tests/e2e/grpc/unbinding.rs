//! `UnbindApi` and `UndeleteBinding` of bindings with a grace period.

use insula_e2e::{Server, Who, runtime, shared, until};
use insula_proto::admin::v1::{
    ExplainWorkspaceRequest, ListConsumersRequest, UnbindApiRequest, UnbindApiResponse, UndeleteBindingRequest,
    UndeleteBindingResponse, api_service_client::ApiServiceClient, workspace_service_client::WorkspaceServiceClient,
};
use serde_json::json;
use tonic::{Code, Status};

use super::{Channel, as_user, client, reason};
use crate::unbinding::{BINDING, Scene, WIDGETS, waits_for};

fn apis(server: &Server) -> ApiServiceClient<Channel> {
    client!(ApiServiceClient<_>, server, Who::KcpAdmin)
}

fn unbind(server: &Server, scene: &Scene, immediately: bool) -> UnbindApiResponse {
    let request = UnbindApiRequest {
        workspace: scene.tenant.clone(),
        binding: "widgets".to_owned(),
        immediately,
        ..UnbindApiRequest::default()
    };
    let answer = runtime().block_on(apis(server).unbind_api(request));
    answer.unwrap().into_inner()
}

fn request(scene: &Scene) -> UndeleteBindingRequest {
    UndeleteBindingRequest {
        workspace: scene.tenant.clone(),
        binding: "widgets".to_owned(),
        ..UndeleteBindingRequest::default()
    }
}

fn undelete(server: &Server, request: UndeleteBindingRequest) -> Result<UndeleteBindingResponse, Status> {
    let answer = runtime().block_on(apis(server).undelete_binding(request))?;
    Ok(answer.into_inner())
}

fn refused<T>(answer: Result<T, Status>) -> (Code, String) {
    let refusal = answer.err().expect("a refusal");
    (refusal.code(), reason(&refusal))
}

#[test]
fn a_binding_comes_back_within_its_time_for_those_who_may_delete_it() {
    let server = shared();
    let scene = Scene::new(&server, Some(3600));
    let before = scene.objects(&server);
    let wrong_state = (Code::FailedPrecondition, "WRONG_STATE".to_owned());
    assert_eq!(refused(undelete(&server, request(&scene))), wrong_state);
    let deleted = unbind(&server, &scene, false);
    assert!(
        deleted.delete_time.is_some() && deleted.removed[0].objects == 2,
        "{deleted:?}"
    );
    let consumers = ListConsumersRequest {
        workspace: scene.provider.clone(),
        export: "widgets".to_owned(),
        ..ListConsumersRequest::default()
    };
    let consumers = runtime()
        .block_on(apis(&server).list_consumers(consumers))
        .unwrap()
        .into_inner();
    assert_eq!(
        consumers.consumers[0].delete_time, deleted.delete_time,
        "providers see it"
    );

    let nobody = client!(ApiServiceClient<_>, server, Who::Anonymous);
    let bob = runtime().block_on(nobody.clone().undelete_binding(as_user("bob-token", request(&scene))));
    assert_eq!(refused(bob).0, Code::PermissionDenied);
    let stale = UndeleteBindingRequest {
        etag: "1".to_owned(),
        ..request(&scene)
    };
    let stale_etag = (Code::Aborted, "STALE_ETAG".to_owned());
    assert_eq!(refused(undelete(&server, stale)), stale_etag);
    let other = UndeleteBindingRequest {
        binding: "gears".to_owned(),
        ..request(&scene)
    };
    assert_eq!(
        refused(undelete(&server, other)),
        (Code::NotFound, "NOT_FOUND".to_owned())
    );
    let dry = UndeleteBindingRequest {
        validate_only: true,
        ..request(&scene)
    };
    let would = undelete(&server, dry).unwrap();
    assert_eq!(would.delete_time, deleted.delete_time);
    assert_eq!(
        would.binding.unwrap().delete_time,
        deleted.delete_time,
        "nothing changed"
    );

    let with_id = UndeleteBindingRequest {
        request_id: "0b6d0f7e-6f0f-4c39-9b1c-51f0c9a3c1d2".to_owned(),
        ..request(&scene)
    };
    let alice = runtime().block_on(nobody.clone().undelete_binding(as_user("alice-token", with_id.clone())));
    assert_eq!(alice.unwrap().into_inner().binding.unwrap().delete_time, None);
    let repeated = runtime().block_on(nobody.clone().undelete_binding(as_user("alice-token", with_id)));
    repeated.unwrap();
    assert_eq!(refused(undelete(&server, request(&scene))), wrong_state);
    assert_eq!(scene.objects(&server), before);
    scene.create(&server, "late").expect(201);

    unbind(&server, &scene, false);
    assert_eq!(unbind(&server, &scene, true).delete_time, None);
    scene.until_gone(&server);
}

/// A frozen workspace takes nothing back, and a removal that has begun goes on.
#[test]
fn a_removal_that_has_begun_does_not_come_back() {
    let server = shared();
    let scene = Scene::new(&server, Some(3600));
    let held = json!({"metadata": {"finalizers": ["example.io/hold"]}});
    let tenant = scene.at_tenant(&server);
    tenant.merge(&format!("{WIDGETS}/ada"), &held).expect(200);
    unbind(&server, &scene, false);
    unbind(&server, &scene, true);
    until("a finalizer holds the binding", || {
        let told = waits_for(&tenant.get(BINDING).expect(200))?;
        (told["reason"] == "SomeFinalizersRemain").then_some(())
    });
    let refusal = undelete(&server, request(&scene)).unwrap_err();
    assert!(
        refusal
            .message()
            .contains("is being removed, which cannot be taken back"),
        "{refusal}"
    );
    let explain = ExplainWorkspaceRequest {
        workspace: scene.tenant.clone(),
    };
    let mut workspaces = client!(WorkspaceServiceClient<_>, server, Who::KcpAdmin);
    let why = runtime()
        .block_on(workspaces.explain_workspace(explain))
        .unwrap()
        .into_inner();
    let found = why
        .findings
        .iter()
        .find(|it| it.subject == "apibinding widgets")
        .unwrap();
    assert!(why.ready && found.cause.contains("example.io/hold"), "{why:?}");
    let released = json!({"metadata": {"finalizers": null}});
    tenant.merge(&format!("{WIDGETS}/ada"), &released).expect(200);
    scene.until_gone(&server);
}
