//! `ObjectService`: objects of any kind without a Kubernetes client.

use insula_e2e::{Who, runtime, shared, with_widgets, workspace_owned_by};
use insula_proto::{
    admin::v1::{
        ApplyObjectRequest, ChangeType, DeleteObjectRequest, GetObjectRequest, ListObjectsRequest, ObjectType,
        WatchObjectsRequest, object_service_client::ObjectServiceClient,
    },
    value::{from_json, to_json},
};
use prost_types::Struct;
use serde_json::{Value, json};
use tonic::Code;

use super::{as_user, bad_fields, client, reason};

fn object_type(workspace: &str, api_version: &str, resource: &str) -> Option<ObjectType> {
    Some(ObjectType {
        workspace: workspace.to_owned(),
        api_version: api_version.to_owned(),
        resource: resource.to_owned(),
        kind: String::new(),
    })
}

fn json_of(object: Option<Struct>) -> Value {
    Value::Object(to_json(object.unwrap()).unwrap())
}

fn apply(workspace: &str, manager: &str, object: Value) -> ApplyObjectRequest {
    ApplyObjectRequest {
        workspace: workspace.to_owned(),
        object: Some(from_json(object.as_object().unwrap()).unwrap()),
        field_manager: manager.to_owned(),
        ..ApplyObjectRequest::default()
    }
}

fn widget(name: &str, first: &str) -> Value {
    json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": name, "namespace": "default"},
        "spec": {"firstName": first}})
}

fn get_widget(workspace: &str, version: &str) -> GetObjectRequest {
    GetObjectRequest {
        r#type: object_type(workspace, version, "widgets"),
        namespace: "default".to_owned(),
        name: "a".to_owned(),
    }
}

#[test]
fn objects_are_applied_and_read_in_any_version() {
    let server = shared();
    let at = with_widgets(&server);
    runtime().block_on(async {
        let mut client = client!(ObjectServiceClient<_>, server, Who::KcpAdmin);
        let tried = ApplyObjectRequest {
            validate_only: true,
            ..apply(&at, "robot", widget("a", "Ada"))
        };
        client.apply_object(tried).await.unwrap();
        let get = |version: &str| get_widget(&at, version);
        let absent = client.get_object(get("example.io/v1")).await.unwrap_err();
        assert_eq!((absent.code(), &*reason(&absent)), (Code::NotFound, "NOT_FOUND"));
        let applied = client
            .apply_object(apply(&at, "robot", widget("a", "Ada")))
            .await
            .unwrap()
            .into_inner();
        let got = client.get_object(get("example.io/v2")).await.unwrap().into_inner();
        assert_eq!(json_of(got.object)["spec"]["name"]["first"], "Ada");
        assert_eq!(got.etag, applied.etag);

        let conflict = client
            .apply_object(apply(&at, "other", widget("a", "Bea")))
            .await
            .unwrap_err();
        assert_eq!(
            (conflict.code(), &*reason(&conflict)),
            (Code::FailedPrecondition, "FIELD_CONFLICT")
        );
        assert_eq!(bad_fields(&conflict), ["object.spec.firstName"]);
        let forced = ApplyObjectRequest {
            force: true,
            ..apply(&at, "other", widget("a", "Bea"))
        };
        let forced = client.apply_object(forced).await.unwrap().into_inner();
        assert_eq!(json_of(forced.object)["spec"]["firstName"], "Bea");
        let stale = ApplyObjectRequest {
            etag: applied.etag.clone(),
            ..apply(&at, "other", widget("a", "Cleo"))
        };
        let stale = client.apply_object(stale).await.unwrap_err();
        assert_eq!(
            (stale.code(), &*reason(&stale)),
            (Code::Aborted, "STALE_ETAG"),
            "{stale:?}"
        );
        let mut unknown = widget("a", "Ada");
        unknown["spec"]["nonsense"] = json!(1);
        let unknown = client.apply_object(apply(&at, "robot", unknown)).await.unwrap_err();
        assert_eq!(unknown.code(), Code::InvalidArgument, "{unknown:?}");
    });
}

#[test]
fn deletions_have_preconditions_and_happen_once() {
    let server = shared();
    let at = with_widgets(&server);
    runtime().block_on(async {
        let mut client = client!(ObjectServiceClient<_>, server, Who::KcpAdmin);
        let mut etags = Vec::new();
        for first in ["Ada", "Bea"] {
            let applied = client.apply_object(apply(&at, "robot", widget("a", first))).await;
            etags.push(applied.unwrap().into_inner().etag);
        }
        let get = get_widget(&at, "example.io/v1");
        let delete = DeleteObjectRequest {
            r#type: object_type(&at, "example.io/v1", "widgets"),
            namespace: "default".to_owned(),
            name: "a".to_owned(),
            etag: etags[0].clone(),
            ..DeleteObjectRequest::default()
        };
        let stale = client.delete_object(delete.clone()).await.unwrap_err();
        assert_eq!(stale.code(), Code::Aborted, "{stale:?}");
        let delete = DeleteObjectRequest {
            etag: String::new(),
            ..delete
        };
        let tried = DeleteObjectRequest {
            validate_only: true,
            ..delete.clone()
        };
        client.delete_object(tried).await.unwrap();
        client.get_object(get).await.unwrap();
        let id = "0a7d3c5f-94a5-4f4e-9d3a-6f1b3ad02b11".to_owned();
        let delete = DeleteObjectRequest {
            request_id: id,
            ..delete
        };
        for _ in 0..2 {
            let deleted = client.delete_object(delete.clone()).await.unwrap().into_inner();
            assert!(deleted.gone && deleted.object.is_none(), "{deleted:?}");
        }
    });
}

#[test]
fn objects_are_listed_at_one_revision() {
    let server = shared();
    let at = with_widgets(&server);
    runtime().block_on(async {
        let mut client = client!(ObjectServiceClient<_>, server, Who::KcpAdmin);
        for name in ["a", "b", "c"] {
            client
                .apply_object(apply(&at, "robot", widget(name, "x")))
                .await
                .unwrap();
        }
        let list = |token: &str| ListObjectsRequest {
            r#type: object_type(&at, "example.io/v1", "widgets"),
            page_size: 2,
            page_token: token.to_owned(),
            ..ListObjectsRequest::default()
        };
        let names = |objects: Vec<Struct>| -> Vec<String> {
            let objects = objects.into_iter().map(|object| json_of(Some(object)));
            objects
                .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
                .collect()
        };
        let first = client.list_objects(list("")).await.unwrap().into_inner();
        client
            .apply_object(apply(&at, "robot", widget("d", "x")))
            .await
            .unwrap();
        let second = client
            .list_objects(list(&first.next_page_token))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(
            (names(first.objects), names(second.objects)),
            (vec!["a".into(), "b".into()], vec!["c".into()])
        );
        let revision = first.header.unwrap().revision;
        assert_eq!(
            (second.header.unwrap().revision, &*second.next_page_token),
            (revision, "")
        );
        let other = ListObjectsRequest {
            label_selector: "a=b".to_owned(),
            ..list(&first.next_page_token)
        };
        let refused = client.list_objects(other).await.unwrap_err();
        assert_eq!(
            (refused.code(), &*reason(&refused)),
            (Code::InvalidArgument, "WRONG_PAGE_TOKEN")
        );
    });
}

#[test]
fn objects_are_watched_from_a_revision_on() {
    let server = shared();
    let at = with_widgets(&server);
    runtime().block_on(async {
        let mut client = client!(ObjectServiceClient<_>, server, Who::KcpAdmin);
        let applied = client
            .apply_object(apply(&at, "robot", widget("a", "x")))
            .await
            .unwrap();
        let revision = applied.into_inner().header.unwrap().revision;
        client
            .apply_object(apply(&at, "robot", widget("d", "x")))
            .await
            .unwrap();
        let watch = |revision| WatchObjectsRequest {
            r#type: object_type(&at, "example.io/v2", "widgets"),
            namespace: "default".to_owned(),
            revision,
            ..WatchObjectsRequest::default()
        };
        let mut events = client.watch_objects(watch(revision)).await.unwrap().into_inner();
        let event = events.message().await.unwrap().unwrap();
        assert_eq!(event.r#type(), ChangeType::Added);
        let object = json_of(event.object);
        assert_eq!(
            (&object["metadata"]["name"], &object["spec"]["name"]["first"]),
            (&json!("d"), &json!("x"))
        );
        let mut events = client.watch_objects(watch(0)).await.unwrap().into_inner();
        let mut kinds = Vec::new();
        while kinds.last() != Some(&ChangeType::Synced) {
            kinds.push(events.message().await.unwrap().unwrap().r#type());
        }
        assert_eq!(kinds.len(), 3, "{kinds:?}");
    });
}

/// Rights in one namespace are enough for its objects, as over HTTP.
#[test]
fn rights_in_a_namespace_are_enough() {
    let server = shared();
    let (path, _) = workspace_owned_by(&server, "alice");
    let alice = server.client(Who::Token("alice-token".to_owned())).in_workspace(&path);
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
    let bob = json!([{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "bob"}]);
    let role = |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let enters = json!({"metadata": {"name": "bob"}, "subjects": bob,
        "roleRef": role("ClusterRole", "system:kcp:workspace:access")});
    let edits = json!({"metadata": {"name": "bob"}, "subjects": bob, "roleRef": role("ClusterRole", "edit")});
    alice.post(&format!("{RBAC}/clusterrolebindings"), &enters).expect(201);
    alice
        .post(&format!("{RBAC}/namespaces/default/rolebindings"), &edits)
        .expect(201);
    runtime().block_on(async {
        let mut client = client!(ObjectServiceClient<_>, server, Who::Anonymous);
        let map = |namespace: &str| {
            let metadata = json!({"name": "a", "namespace": namespace});
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
            ApplyObjectRequest {
                resource: "configmaps".to_owned(),
                ..apply(&path, "robot", map)
            }
        };
        let applied = client.apply_object(as_user("bob-token", map("default"))).await.unwrap();
        let list = |namespace: &str| ListObjectsRequest {
            r#type: object_type(&path, "v1", "configmaps"),
            namespace: namespace.to_owned(),
            ..ListObjectsRequest::default()
        };
        client
            .list_objects(as_user("bob-token", list("default")))
            .await
            .unwrap();
        let refused = [
            client.list_objects(as_user("bob-token", list(""))).await.unwrap_err(),
            client
                .apply_object(as_user("bob-token", map("other")))
                .await
                .unwrap_err(),
        ];
        assert!(
            refused.iter().all(|refusal| refusal.code() == Code::PermissionDenied),
            "{refused:?}"
        );
        // Who may not apply an object does not learn from an etag whether it exists.
        let secret = |etag: &str| {
            let secret = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "kube-root-ca.crt", "namespace": "kube-system"}});
            ApplyObjectRequest {
                etag: etag.to_owned(),
                ..apply(&path, "robot", secret)
            }
        };
        let etag = applied.into_inner().etag;
        let refused = client
            .apply_object(as_user("bob-token", secret(&etag)))
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    });
}

#[test]
fn objects_that_are_not_served_or_not_the_callers_are_refused() {
    let server = shared();
    let (mine, _) = workspace_owned_by(&server, "alice");
    let (theirs, cluster) = workspace_owned_by(&server, "bob");
    runtime().block_on(async {
        let mut client = client!(ObjectServiceClient<_>, server, Who::Anonymous);
        let list = |workspace: &str, resource: &str| ListObjectsRequest {
            r#type: object_type(workspace, "v1", resource),
            ..ListObjectsRequest::default()
        };
        let own = client
            .list_objects(as_user("alice-token", list(&mine, "configmaps")))
            .await
            .unwrap();
        assert_eq!(json_of(Some(own.into_inner().objects[0].clone()))["kind"], "ConfigMap");
        for foreign in [&*theirs, &*cluster, "root:nowhere"] {
            let refused = client
                .list_objects(as_user("alice-token", list(foreign, "configmaps")))
                .await
                .unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied, "{foreign}: {refused:?}");
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "a", "namespace": "default"}});
            let refused = client
                .apply_object(as_user("alice-token", apply(foreign, "robot", map)))
                .await
                .unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied, "{foreign}: {refused:?}");
        }
        let pods = client
            .list_objects(as_user("alice-token", list(&mine, "pods")))
            .await
            .unwrap_err();
        assert_eq!((pods.code(), &*reason(&pods)), (Code::InvalidArgument, "NOT_SERVED"));
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"}});
        let pod = client
            .apply_object(as_user("alice-token", apply(&mine, "robot", pod)))
            .await
            .unwrap_err();
        assert_eq!((pod.code(), &*reason(&pod)), (Code::InvalidArgument, "NOT_SERVED"));
    });
}
