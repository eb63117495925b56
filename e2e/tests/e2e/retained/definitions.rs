//! Values that a CustomResourceDefinition with its APIConversion keeps in one workspace, and their
//! end by `insula conversion retire` and `RetireField`: a definition of the same name in another
//! workspace keeps its own.

use super::{GROUP, definition, tank, with_backup, without_backup};
use crate::{
    grpc::{as_user, channel, origin},
    tools::ran,
};
use insula_e2e::{Client, Server, Who, runtime, shared, until, workspace};
use insula_proto::admin::v1::{RetireFieldRequest, RetireFieldResponse, api_service_client::ApiServiceClient};
use serde_json::{Value, json};
use tonic::{Code, Status};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const RULES: &str = "/apis/apis.kcp.io/v1alpha1/apiconversions";
const NAME: &str = "tanks.retained.example.io";
/// A version with a field that no other has.
const NOTED: &str = "v3";

/// Returns the definition of tanks with these fields in v1 and v2, and v3 with a note besides.
fn defined(fields: &Value, is_noted: bool) -> Value {
    let mut all = definition(fields);
    if is_noted {
        let versions = all["spec"]["versions"].as_array_mut().unwrap();
        let mut third = versions[1].clone();
        third["name"] = json!(NOTED);
        let properties = &mut third["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        properties["note"] = json!({"type": "string"});
        versions.push(third);
    }
    all
}

fn rules(is_noted: bool) -> Value {
    let both = |version: &str| {
        let rule = json!([{"field": ".spec.size", "destination": ".spec.size"}]);
        [
            json!({"from": "v1", "to": version, "rules": rule}),
            json!({"from": version, "to": "v1", "rules": rule}),
        ]
    };
    let versions: &[&str] = if is_noted { &["v2", NOTED] } else { &["v2"] };
    let conversions: Vec<Value> = versions.iter().flat_map(|version| both(version)).collect();
    json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion", "metadata": {"name": NAME,
        "annotations": {"insula.io/accepted-effects": "value-hidden"}},
        "spec": {"conversions": conversions}})
}

/// A workspace with a definition of tanks, its rules, and a tank.
struct Defining {
    server: std::sync::Arc<Server>,
    path: String,
    client: Client,
}

impl Defining {
    fn new(prefix: &str) -> Defining {
        let server = shared();
        let (path, _) = workspace(&server.admin(), prefix);
        let client = server.admin().in_workspace(&path);
        let scene = Defining { server, path, client };
        scene.apply(&with_backup(), true);
        until("tanks are served", || {
            (scene.client.get(&tank(NOTED)).code == 404).then_some(())
        });
        let tank = json!({"apiVersion": format!("{GROUP}/{NOTED}"), "kind": "Tank", "metadata": {"name": "main"},
            "spec": {"size": 1, "note": "old", "backup": {"at": "noon"}, "users": [{"name": "al", "mail": "a@b"}]}});
        let tanks = format!("/apis/{GROUP}/{NOTED}/tanks");
        until("the tank is made", || {
            (scene.client.post(&tanks, &tank).code == 201).then_some(())
        });
        scene
    }

    /// Applies the definition and its rules. Returns the warnings.
    fn apply(&self, fields: &Value, is_noted: bool) -> Vec<String> {
        let mut warnings = Vec::new();
        for (collection, object) in [(DEFINITIONS, defined(fields, is_noted)), (RULES, rules(is_noted))] {
            warnings.extend(self.put(collection, &object));
        }
        warnings
    }

    fn put(&self, collection: &str, object: &Value) -> Vec<String> {
        let path = format!("{collection}/{NAME}?fieldManager=test&force=true");
        let headers: &[(&str, &[u8])] = &[("content-type", b"application/apply-patch+yaml")];
        let body = object.to_string().into_bytes().into();
        let answer = self.client.send_bytes("PATCH", &path, headers, body);
        assert!([200, 201].contains(&answer.code), "{answer:?}");
        let texts = answer.headers.get_all("warning").iter();
        texts.filter_map(|text| text.to_str().ok()).map(str::to_owned).collect()
    }

    fn spec(&self, version: &str) -> Value {
        self.client.get(&tank(version)).expect(200)["spec"].clone()
    }

    fn write(&self) {
        let size = json!({"spec": {"size": 2}});
        self.client.merge(&tank("v2"), &size).expect(200);
    }

    fn retire(&self, definition: &str, field: &str, flags: &[&str]) -> (i32, String) {
        let kubeconfig = self.server.kubeconfig();
        let to = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--workspace", &self.path];
        let command = ["conversion", "retire", definition, "--field", field];
        let (code, out, error) = ran(&[&command, flags, &to].concat(), "");
        (code, format!("{out}{error}"))
    }

    fn request(&self, field: &str, validate_only: bool) -> RetireFieldRequest {
        RetireFieldRequest {
            workspace: self.path.clone(),
            definition: NAME.to_owned(),
            field: field.to_owned(),
            validate_only,
            ..RetireFieldRequest::default()
        }
    }

    /// Asks over gRPC, as an administrator or with a token.
    fn call(&self, token: Option<&str>, request: RetireFieldRequest) -> Result<RetireFieldResponse, Status> {
        let who = if token.is_some() { Who::Anonymous } else { Who::KcpAdmin };
        let mut service = ApiServiceClient::with_origin(channel(&self.server, &who), origin(&self.server));
        let answer = match token {
            Some(token) => runtime().block_on(service.retire_field(as_user(token, request))),
            None => runtime().block_on(service.retire_field(request)),
        };
        answer.map(tonic::Response::into_inner)
    }

    fn allow(&self, user: &str, rules: &Value) {
        let group = "/apis/rbac.authorization.k8s.io/v1";
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": user}, "rules": rules});
        let path = format!("{group}/clusterroles/{user}");
        match self.client.get(&path).code {
            200 => self.client.merge(&path, &json!({"rules": rules})).expect(200),
            _ => self.client.post(&format!("{group}/clusterroles"), &role).expect(201),
        };
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
        self.client.post(&format!("{group}/clusterrolebindings"), &binding);
    }
}

#[test]
fn a_field_of_a_definition_is_retired_in_its_workspace_alone() {
    let (scene, other) = (Defining::new("retiring"), Defining::new("keeping"));
    let (code, text) = scene.retire(NAME, ".spec.backup", &["--yes"]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("apply a definition without it first"), "{text}");
    for place in [&scene, &other] {
        let warnings = place.apply(&without_backup(), true);
        let is_told = |warning: &String| warning.contains("kept until `insula conversion retire`");
        assert!(warnings.iter().any(is_told), "{warnings:?}");
        place.write();
        assert_eq!(place.spec("v1"), json!({"size": 2, "users": [{"name": "al"}]}));
    }

    let (code, text) = scene.retire(NAME, ".spec.backup", &[]);
    assert_eq!(code, 1, "{text}");
    let question = format!(".spec.backup of 1 object in 1 workspace of {NAME} for good: confirm it by --yes");
    assert!(text.contains(&question), "{text}");
    let (code, text) = scene.retire(NAME, ".spec.backup", &["--dry-run", "-o", "json"]);
    assert!(
        code == 0 && text.contains("1 object in 1 workspace hold it; 1 were examined"),
        "{text}"
    );
    let (code, text) = scene.retire(NAME, ".spec.backup", &["--yes"]);
    assert_eq!(code, 0, "{text}");
    let mail = scene.call(None, scene.request(".spec.users[].mail", true)).unwrap();
    let holders: Vec<(&str, &str)> = mail.objects.iter().map(|it| (&*it.workspace, &*it.name)).collect();
    assert_eq!((mail.examined, holders), (1, vec![(&*scene.path, "main")]));
    let again = scene.call(None, scene.request(".spec.backup", false)).unwrap();
    assert_eq!((again.examined, again.objects.len()), (1, 0));

    for place in [&scene, &other] {
        place.apply(&with_backup(), true);
    }
    let users = json!([{"name": "al", "mail": "a@b"}]);
    let left = json!({"size": 2, "users": users});
    assert_eq!(scene.spec("v1"), left);
    assert_eq!(
        other.spec("v1"),
        json!({"size": 2, "backup": {"at": "noon"}, "users": users})
    );
}

#[test]
fn a_version_of_a_definition_that_goes_leaves_what_is_retired() {
    let (scene, other) = (Defining::new("gone-version"), Defining::new("kept-version"));
    let of_version = format!("{NAME}/{NOTED}");
    let (code, text) = scene.retire(&of_version, ".spec.note", &["--yes"]);
    assert_eq!(code, 2, "{text}");
    for place in [&scene, &other] {
        place.apply(&with_backup(), false);
        place.write();
    }
    let (code, text) = scene.retire(&of_version, ".spec.note", &["--yes"]);
    assert!(code == 0 && text.contains("1 object in 1 workspace held it"), "{text}");
    for place in [&scene, &other] {
        place.apply(&with_backup(), true);
    }
    let notes = [&scene, &other].map(|place| place.spec(NOTED)["note"].clone());
    assert_eq!(notes, [Value::Null, json!("old")]);
}

#[test]
fn who_retires_a_field_may_update_the_definition_and_its_objects() {
    let scene = Defining::new("retire-rights");
    scene.apply(&without_backup(), true);
    let definition = |verb: &str| {
        json!({"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": [verb],
            "resourceNames": [NAME]})
    };
    let objects = |verb: &str| json!({"apiGroups": [GROUP], "resources": ["tanks"], "verbs": [verb]});
    let enter = json!({"nonResourceURLs": ["/"], "verbs": ["access"]});
    let verdict = |rules: &[Value], validate_only: bool| {
        scene.allow("bob", &json!([std::slice::from_ref(&enter), rules].concat()));
        let request = scene.request(".spec.backup", validate_only);
        let answer = scene.call(Some("bob-token"), request);
        answer
            .map(|answer| answer.objects.len())
            .map_err(|refused| refused.code())
    };
    let denied = Err(Code::PermissionDenied);
    assert_eq!(verdict(&[], true), denied);
    assert_eq!(verdict(&[definition("get")], true), denied);
    assert_eq!(verdict(&[objects("list")], true), denied);
    assert_eq!(verdict(&[definition("get"), objects("list")], true), Ok(1));
    assert_eq!(verdict(&[definition("get"), objects("list")], false), denied);
    assert_eq!(verdict(&[definition("update"), objects("list")], false), denied);
    assert_eq!(verdict(&[definition("get"), objects("update")], false), denied);
    assert_eq!(verdict(&[definition("update"), objects("update")], false), Ok(1));

    let wrong = |change: &dyn Fn(&mut RetireFieldRequest)| {
        let mut request = scene.request(".spec.backup", true);
        change(&mut request);
        scene.call(None, request).unwrap_err().code()
    };
    assert_eq!(wrong(&|it| it.export = GROUP.into()), Code::InvalidArgument);
    assert_eq!(wrong(&|it| it.resource = "tanks".into()), Code::InvalidArgument);
    assert_eq!(wrong(&|it| it.field.clear()), Code::InvalidArgument);
    assert_eq!(wrong(&|it| it.definition = "tanks".into()), Code::InvalidArgument);
    assert_eq!(wrong(&|it| it.definition = format!("pipes.{GROUP}")), Code::NotFound);
}

/// A version that still has the field shows the value: it stays.
#[test]
fn a_value_that_another_version_shows_is_not_retired() {
    let scene = Defining::new("shown-elsewhere");
    let mut one = defined(&with_backup(), true);
    one["spec"]["versions"][0] = defined(&without_backup(), true)["spec"]["versions"][0].clone();
    scene.put(DEFINITIONS, &one);
    let shown = scene.spec("v2");
    assert_eq!(shown["backup"], json!({"at": "noon"}));
    let (code, text) = scene.retire(NAME, ".spec.backup", &["--yes"]);
    assert!(code == 1 && text.contains("v2 shows what it holds: it stays"), "{text}");
    assert_eq!(scene.spec("v2"), shown);
    // With a write, it is what that version holds.
    scene.write();
    let (code, text) = scene.retire(NAME, ".spec.backup", &["--yes"]);
    assert!(
        code == 0 && text.contains("0 objects in 0 workspaces held it"),
        "{text}"
    );
    assert_eq!(scene.spec("v2")["backup"], shown["backup"]);
}
