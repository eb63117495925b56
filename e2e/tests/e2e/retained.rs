//! Values of a field that a release takes away: kept through writes, shown by no version, shown
//! again when the release is taken back, and gone when the field is retired.

use std::fs;

use insula_e2e::{Client, Server, Who, runtime, shared, until, workspace};
use insula_proto::admin::v1::{RetireFieldRequest, RetireFieldResponse, api_service_client::ApiServiceClient};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::{
    grpc::{channel, origin},
    providers, unbinding,
};

mod definitions;

const GROUP: &str = "retained.example.io";
const ACCEPTED: [&str; 3] = ["--wait", "--accept", "field-removed"];

/// A provider of tanks, and a tenant with one.
struct Scene {
    server: std::sync::Arc<Server>,
    dir: tempfile::TempDir,
    provider: String,
    tenant: Client,
    path: String,
}

/// Returns the definition of tanks: both versions have the size and these fields.
fn definition(fields: &Value) -> Value {
    let version = |name: &str| {
        let mut properties = fields.clone();
        properties["size"] = json!({"type": "integer"});
        let spec = json!({"type": "object", "properties": properties});
        let status = json!({"type": "object", "properties": {"full": {"type": "boolean"}}});
        let schema = json!({"type": "object", "properties": {"spec": spec, "status": status}});
        json!({"name": name, "served": true, "storage": name == "v1", "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema}})
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("tanks.{GROUP}")},
        "spec": {"group": GROUP, "scope": "Cluster", "names": {"plural": "tanks", "kind": "Tank"},
            "versions": [version("v1"), version("v2")]}})
}

fn with_backup() -> Value {
    let user = json!({"type": "object", "properties": {"name": {"type": "string"}, "mail": {"type": "string"}}});
    json!({"backup": {"type": "object", "properties": {"at": {"type": "string"}}},
        "users": {"type": "array", "items": user}})
}

fn without_backup() -> Value {
    let user = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    json!({"users": {"type": "array", "items": user}})
}

fn tank(version: &str) -> String {
    format!("/apis/{GROUP}/{version}/tanks/main")
}

impl Scene {
    fn new() -> Scene {
        let server = shared();
        let (provider, _) = workspace(&server.admin(), "retained");
        let mut scene = Scene {
            // Replaced below, when there is something to bind.
            tenant: server.admin(),
            path: String::new(),
            dir: tempfile::tempdir().unwrap(),
            server,
            provider,
        };
        scene.publish(&with_backup(), &["--wait"]);
        (scene.path, scene.tenant) = providers::tenant(&scene.server.admin(), &scene.provider, (GROUP, "tanks"));
        let (tenant, tanks) = (&scene.tenant, format!("/apis/{GROUP}/v1/tanks"));
        let tank = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Tank", "metadata": {"name": "main"},
            "spec": {"size": 1, "backup": {"at": "noon"}, "users": [{"name": "al", "mail": "a@b"}]}});
        tenant.post(&tanks, &tank).expect(201);
        let provider = scene.server.admin().in_workspace(&scene.provider);
        let export = format!("/apis/apis.kcp.io/v1alpha2/apiexports/{GROUP}");
        until("the release is known", || {
            let rollout = provider.get(&export).expect(200)["status"]["rollout"].clone();
            (rollout["reason"] == "Complete" && rollout["current"] == 1).then_some(())
        });
        scene
    }

    fn export(&self, arguments: &[&str]) -> (i32, String) {
        providers::export(&self.server, &self.provider, arguments)
    }

    fn publish(&self, fields: &Value, flags: &[&str]) {
        let file = self.dir.path().join("definition.yaml");
        fs::write(&file, definition(fields).to_string()).unwrap();
        let (code, text) = self.export(&[&["publish", "--apply", "-f", file.to_str().unwrap()], flags].concat());
        assert_eq!(code, 0, "{text}");
    }

    fn retire(&self, flags: &[&str]) -> (i32, String) {
        self.export(&[&["retire", GROUP, "tanks"], flags].concat())
    }

    fn retire_over_grpc(&self, who: &Who, field: &str, validate_only: bool) -> Result<RetireFieldResponse, Status> {
        let mut service = ApiServiceClient::with_origin(channel(&self.server, who), origin(&self.server));
        let request = RetireFieldRequest {
            workspace: self.provider.clone(),
            export: GROUP.to_owned(),
            resource: format!("tanks.{GROUP}"),
            field: field.to_owned(),
            validate_only,
            ..RetireFieldRequest::default()
        };
        let answer = runtime().block_on(service.retire_field(request));
        answer.map(tonic::Response::into_inner)
    }

    fn spec(&self, version: &str) -> Value {
        self.tenant.get(&tank(version)).expect(200)["spec"].clone()
    }

    /// Writes the tank in each way that a client has.
    fn write(&self) {
        let patch = |path: &str, patch: Value| self.tenant.merge(path, &patch).expect(200);
        patch(&tank("v1"), json!({"metadata": {"labels": {"rack": "2"}}}));
        patch(&format!("{}/status", tank("v2")), json!({"status": {"full": true}}));
        patch(&tank("v2"), json!({"spec": {"size": 2}}));
        let mut whole = self.tenant.get(&tank("v1")).expect(200);
        whole["spec"]["size"] = json!(3);
        self.tenant.put(&tank("v1"), &whole).expect(200);
    }
}

#[test]
fn a_removed_field_is_kept_until_it_is_retired() {
    let scene = Scene::new();
    let (code, text) = scene.retire(&["--field", ".spec.backup", "--yes"]);
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("tanks has .spec.backup in v1, v2: publish a release without it first"),
        "{text}"
    );

    scene.publish(&without_backup(), &ACCEPTED);
    scene.write();
    let less = json!({"size": 3, "users": [{"name": "al"}]});
    assert_eq!([scene.spec("v1"), scene.spec("v2")], [less.clone(), less.clone()]);
    let list = scene.tenant.get(&format!("/apis/{GROUP}/v1/tanks")).expect(200);
    assert_eq!(list["items"][0]["spec"], less);

    let (code, text) = scene.export(&["rollback", GROUP, "--wait"]);
    assert_eq!(code, 0, "{text}");
    let whole = json!({"size": 3, "backup": {"at": "noon"}, "users": [{"name": "al", "mail": "a@b"}]});
    until("both versions show the field again", || {
        (scene.spec("v1") == whole && scene.spec("v2") == whole).then_some(())
    });

    scene.publish(&without_backup(), &ACCEPTED);
    scene.write();
    let (code, text) = scene.retire(&["--field", ".spec.backup"]);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains(".spec.backup of 1 object in 1 workspace of tanks for good: confirm it by --yes"),
        "{text}"
    );
    let counted = scene
        .retire_over_grpc(&Who::KcpAdmin, ".spec.users[].mail", true)
        .unwrap();
    assert_eq!((counted.examined, counted.objects.len()), (1, 1));
    assert_eq!(
        (&counted.objects[0].workspace, &*counted.objects[0].name),
        (&scene.path, "main")
    );
    let stranger = scene.retire_over_grpc(&Who::Anonymous, ".spec.backup", false);
    assert_eq!(stranger.unwrap_err().code(), Code::Unauthenticated);
    for wrong in ["spec.backup", ".metadata.labels", ".spec.users[0].mail"] {
        let refused = scene.retire_over_grpc(&Who::KcpAdmin, wrong, true).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{wrong}");
    }
    let (code, text) = scene.retire(&["--field", ".spec.backup", "--yes"]);
    assert_eq!(code, 0, "{text}");
    let (code, text) = scene.retire(&["--field", ".spec.backup", "--dry-run"]);
    assert!(
        code == 0 && text.contains("0 objects in 0 workspaces hold it; 1 were examined"),
        "{text}"
    );

    let (code, text) = scene.export(&["rollback", GROUP, "--wait"]);
    assert_eq!(code, 0, "{text}");
    let left = json!({"size": 3, "users": [{"name": "al", "mail": "a@b"}]});
    until("what was retired is gone", || (scene.spec("v1") == left).then_some(()));
}

/// Objects that a deleted binding keeps may come back: a field is retired in them, too.
#[test]
fn a_field_is_retired_in_objects_that_a_deleted_binding_keeps() {
    let scene = Scene::new();
    scene.publish(&without_backup(), &ACCEPTED);
    let export = format!("/apis/apis.kcp.io/v1alpha2/apiexports/{GROUP}");
    let provider = scene.server.admin().in_workspace(&scene.provider);
    let day = unbinding::grace(Some("86400".to_owned()));
    provider.merge(&export, &day).expect(200);
    let binding = "/apis/apis.kcp.io/v1alpha2/apibindings/tanks";
    let deleted = scene.tenant.delete(binding).expect(200);
    assert_eq!(deleted["metadata"]["deletionGracePeriodSeconds"], 86400);
    let holders = |validate_only| {
        let answer = scene.retire_over_grpc(&Who::KcpAdmin, ".spec.backup", validate_only);
        answer.unwrap().objects.len()
    };
    assert_eq!([holders(true), holders(false), holders(true)], [1, 1, 0]);
}

/// A field that kept anything gets a schema: what that lacks is kept like a field that is gone.
#[test]
fn what_a_free_form_field_held_is_kept() {
    let scene = Scene::new();
    let mut free = with_backup();
    free["backup"] = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    scene.publish(&free, &["--wait"]);
    let zone = json!({"spec": {"backup": {"zone": {"of": [{"a": 1}]}}}});
    scene.tenant.merge(&tank("v2"), &zone).expect(200);
    scene.publish(&with_backup(), &ACCEPTED);
    scene.write();
    assert_eq!(scene.spec("v1")["backup"], json!({"at": "noon"}));
    let (code, text) = scene.export(&["rollback", GROUP, "--wait"]);
    assert_eq!(code, 0, "{text}");
    let whole = json!({"at": "noon", "zone": {"of": [{"a": 1}]}});
    until("both versions show what they held", || {
        (scene.spec("v1")["backup"] == whole && scene.spec("v2")["backup"] == whole).then_some(())
    });

    scene.publish(&with_backup(), &ACCEPTED);
    let (code, text) = scene.retire(&["--field", ".spec.backup[]", "--yes"]);
    assert!(code == 0 && text.contains("1 object in 1 workspace held it"), "{text}");
    let (code, text) = scene.export(&["rollback", GROUP, "--wait"]);
    assert_eq!(code, 0, "{text}");
    let left = json!({"at": "noon"});
    until("what was retired is gone", || {
        (scene.spec("v1")["backup"] == left).then_some(())
    });
}

/// The name of a field may have dots and slashes, which the path quotes as effects do.
#[test]
fn a_field_with_a_quoted_name_is_retired() {
    let scene = Scene::new();
    let mut fields = with_backup();
    fields["example.io/zone"] = json!({"type": "string"});
    scene.publish(&fields, &["--wait"]);
    let zone = json!({"spec": {"example.io/zone": "a"}});
    scene.tenant.merge(&tank("v2"), &zone).expect(200);
    let path = ".spec['example.io/zone']";
    let effect = format!("field-removed:tanks.{GROUP}/v1:{path}=1");
    scene.publish(
        &with_backup(),
        &["--wait", "--accept", &effect, "--accept", &effect.replace("/v1", "/v2")],
    );
    let (code, text) = scene.retire(&["--field", path, "--yes"]);
    assert!(code == 0 && text.contains("1 object in 1 workspace"), "{text}");
    let (code, text) = scene.export(&["rollback", GROUP, "--wait"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(scene.spec("v2").get("example.io/zone"), None);
}

/// Stored objects lack a default that a release brings: each read shows it, whatever is written.
#[test]
fn a_first_default_stays_through_writes() {
    let scene = Scene::new();
    let mut fields = with_backup();
    fields["mode"] = json!({"type": "string", "default": "fast"});
    scene.publish(&fields, &["--wait"]);
    let shows = |when: &str| {
        assert_eq!(
            [&scene.spec("v1")["mode"], &scene.spec("v2")["mode"]],
            ["fast"; 2],
            "{when}"
        );
    };
    shows("before any write");
    let mut labelled = scene.tenant.get(&tank("v1")).expect(200);
    labelled["metadata"]["labels"] = json!({"rack": "1"});
    let answer = scene.tenant.put(&tank("v1"), &labelled).expect(200);
    assert_eq!(answer["spec"]["mode"], "fast");
    shows("after a label");
    scene.write();
    shows("after writes of each kind");
    let list = scene.tenant.get(&format!("/apis/{GROUP}/v1/tanks")).expect(200);
    assert_eq!(list["items"][0]["spec"]["mode"], "fast");
}
