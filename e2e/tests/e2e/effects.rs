//! A release that hurts stored objects is refused with each effect and its objects, by the command
//! line and by gRPC alike, until somebody accepts it.

use std::fs;

use insula_e2e::{Client, Kubectl, Server, Who, runtime, shared, workspace};
use insula_proto::{
    admin::v1::{CheckRolloutRequest, PublishApiRequest, api_service_client::ApiServiceClient},
    value,
};
use prost_types::Struct;
use serde_json::{Value, json};

use crate::{
    grpc::{channel, origin},
    providers,
    tools::ran,
};

const GROUP: &str = "effects.example.io";

/// Returns the definition of pumps, whose two versions have these fields.
fn pumps(fields: &Value, required: &[&str]) -> Value {
    let version = |name: &str| {
        let spec = json!({"type": "object", "properties": fields, "required": required});
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
        json!({"name": name, "served": true, "storage": name == "v1", "schema": schema})
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("pumps.{GROUP}")},
        "spec": {"group": GROUP, "scope": "Cluster", "names": {"plural": "pumps", "kind": "Pump"},
            "versions": [version("v1"), version("v2")]}})
}

fn first() -> Value {
    pumps(
        &json!({
            "mode": {"type": "string", "enum": ["Fast", "Slow", "Off"]},
            "backup": {"type": "object", "properties": {"at": {"type": "string"}}},
            "note": {"type": "string"},
            "level": {"type": "integer", "default": 1},
        }),
        &[],
    )
}

/// Takes a field and a value of an enumeration away, requires a field, and changes a default.
fn second() -> Value {
    pumps(
        &json!({
            "mode": {"type": "string", "enum": ["Fast", "Off"]},
            "note": {"type": "string"},
            "level": {"type": "integer", "default": 2},
        }),
        &["note"],
    )
}

/// Makes tenants, each with pumps of these specs.
fn tenants(admin: &Client, provider: &str, pumps: &[&[Value]]) -> Vec<String> {
    let path = format!("/apis/{GROUP}/v1/pumps");
    let tenant = |specs: &&[Value]| {
        let (name, tenant) = providers::tenant(admin, provider, (GROUP, "pumps"));
        for (number, spec) in specs.iter().enumerate() {
            let pump = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Pump",
                "metadata": {"name": format!("pump-{number}")}, "spec": spec});
            tenant.post(&path, &pump).expect(201);
        }
        name
    };
    pumps.iter().map(tenant).collect()
}

/// The effects of the second release on the objects of the test, each with its number of objects.
const EFFECTS: [(&str, i64); 4] = [
    ("field-removed:pumps.effects.example.io/v1:.spec.backup", 2),
    ("value-refused:pumps.effects.example.io/v1:.spec.mode", 1),
    ("field-required:pumps.effects.example.io/v1:.spec.note", 3),
    ("default-changed:pumps.effects.example.io/v1:.spec.level", 0),
];

/// Checks that gRPC lists the same effects, and refuses the release.
fn grpc_has_the_same_verdict(server: &Server, provider: &str) {
    let manifest = |definition: &Value| -> Struct { value::from_json(definition.as_object().unwrap()).unwrap() };
    runtime().block_on(async {
        let mut service = ApiServiceClient::with_origin(channel(server, &Who::KcpAdmin), origin(server));
        let check = CheckRolloutRequest {
            workspace: provider.to_owned(),
            export: GROUP.to_owned(),
            manifests: vec![manifest(&second())],
            ..CheckRolloutRequest::default()
        };
        let found = service.check_rollout(check).await.unwrap().into_inner().effects;
        for (effect, objects) in EFFECTS {
            let found = found.iter().find(|found| found.id == effect);
            assert_eq!(found.map(|found| found.objects), Some(objects), "{effect}");
        }
        let publish = PublishApiRequest {
            workspace: provider.to_owned(),
            manifests: vec![manifest(&second())],
            ..PublishApiRequest::default()
        };
        let refused = service.publish_api(publish.clone()).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
        for (effect, _) in EFFECTS.iter().filter(|(_, objects)| *objects > 0) {
            assert!(refused.message().contains(effect), "{}", refused.message());
        }
        let plan = PublishApiRequest {
            validate_only: true,
            ..publish
        };
        let plan = service.publish_api(plan).await.unwrap().into_inner();
        assert!(plan.effects.iter().any(|effect| effect.id == EFFECTS[0].0));
    });
}

/// Checks that `kubectl apply` of the export, as a dry run, warns of the same effects.
fn kubectl_warns(server: &Server, provider: &str, documents: &str) {
    let Some(kubectl) = Kubectl::for_server(server) else {
        return;
    };
    let (exports, others): (Vec<&str>, Vec<&str>) = documents
        .split("\n---\n")
        .partition(|document| document.contains("kind: APIExport\n"));
    let applied = kubectl.run(provider, &["apply", "-f", "-"], &others.join("\n---\n"));
    assert_eq!(applied.code, 0, "{}", applied.text);
    let tried = kubectl.run(provider, &["apply", "--dry-run=server", "-f", "-"], exports[0]);
    assert_eq!(tried.code, 0, "{}", tried.text);
    for (effect, objects) in EFFECTS {
        let told = tried.text.contains(&format!("Warning: {effect}: "));
        assert_eq!(told, objects > 0, "{effect}: {}", tried.text);
    }
}

/// Checks the effects that the command line prints: those that reach nothing are counted, and
/// listed if somebody asks.
fn check_lines(out: &str, wide: &str) {
    let counted = "2 more changes of the schema that reach no stored object (default-changed 2)";
    assert!(out.contains(counted), "{out}");
    for (effect, objects) in EFFECTS {
        let line = wide.lines().find(|line| line.contains(effect));
        let line = line.unwrap_or_else(|| panic!("{effect} in {wide}"));
        let plural = if objects == 1 { "" } else { "s" };
        assert!(
            line.contains(&format!("{effect}: {objects} object{plural} in ")),
            "{line}"
        );
        assert_eq!(line.contains("refused"), objects > 0, "{line}");
        assert_eq!(out.contains(effect), objects > 0, "{out}");
    }
}

#[test]
fn an_effect_that_hurts_needs_somebodys_word() {
    let server = shared();
    let admin = server.admin();
    let (provider, _) = workspace(&admin, "effects");
    let kubeconfig = server.kubeconfig();
    let dir = tempfile::tempdir().unwrap();
    let run = |definition: &Value, flags: &[&str]| {
        let file = dir.path().join("pumps.yaml");
        fs::write(&file, definition.to_string()).unwrap();
        let to = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--workspace", &provider];
        let publish = ["export", "publish", "-f", file.to_str().unwrap()];
        ran(&[&publish, &to[..], flags].concat(), "")
    };
    let (code, out, error) = run(&first(), &["--apply", "--wait"]);
    assert_eq!(code, 0, "{out}{error}");
    let names = tenants(
        &admin,
        &provider,
        &[
            &[
                json!({"mode": "Slow", "backup": {"at": "noon"}}),
                json!({"note": "n", "mode": "Off"}),
            ],
            &[json!({"backup": {"at": "night"}}), json!({})],
        ],
    );

    // The command line names each effect, with objects and the paths of workspaces.
    let (code, out, error) = run(&second(), &["--check"]);
    assert_eq!(code, 1, "{out}{error}");
    let (code, wide, error) = run(&second(), &["--check", "-o", "wide"]);
    assert_eq!(code, 1, "{wide}{error}");
    check_lines(&out, &wide);
    assert!(out.contains(&format!("such as pump-0 in {}", names[0])), "{out}");
    let (code, out, error) = run(&second(), &["--apply"]);
    assert!(code == 1 && error.contains("--accept EFFECT"), "{out}{error}");

    grpc_has_the_same_verdict(&server, &provider);
    let (code, documents, error) = run(&second(), &[]);
    assert_eq!(code, 0, "{documents}{error}");
    kubectl_warns(&server, &provider, &documents);
    // A word for fewer objects than there are is none, and all effects but one are not enough.
    let most = [
        "--accept",
        "value-refused",
        "--accept",
        "field-required=6",
        "--accept",
        "value-changed",
    ];
    let (code, out, error) = run(
        &second(),
        &[&["--apply", "--accept", "field-removed=1"], &most[..]].concat(),
    );
    assert_eq!(code, 1, "{out}{error}");
    let (code, out, error) = run(&second(), &[&["--apply"], &most[..]].concat());
    assert_eq!(code, 1, "{out}{error}");
    let all = [&["--apply", "--wait", "--accept", "field-removed=2"], &most[..]].concat();
    let (code, out, error) = run(&second(), &all);
    assert_eq!(code, 0, "{out}{error}");
}

/// Returns a schema of fields in fields, and one more at the innermost.
fn nested(levels: usize, innermost: &str) -> Value {
    let inner = json!({"type": "object", "properties": {innermost: {"type": "string"}}});
    (0..levels).fold(inner, |inner, _| json!({"type": "object", "properties": {"a": inner}}))
}

/// A definition of real size nests deeper than decoders of protobuf go by default.
#[test]
fn a_deep_definition_has_a_second_release() {
    let server = shared();
    let (provider, _) = workspace(&server.admin(), "deep");
    let dir = tempfile::tempdir().unwrap();
    let publish = |innermost: &str, flags: &[&str]| {
        let definition = pumps(&json!({"deep": nested(25, innermost)}), &[]);
        let file = dir.path().join("pumps.yaml");
        fs::write(&file, definition.to_string()).unwrap();
        let kubeconfig = server.kubeconfig();
        let to = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--workspace", &provider];
        let publish = ["export", "publish", "--apply", "-f", file.to_str().unwrap()];
        ran(&[&publish, &to[..], flags].concat(), "")
    };
    for innermost in ["first", "second"] {
        let (code, out, error) = publish(innermost, &[]);
        assert_eq!(code, 0, "{out}{error}");
    }
}

#[test]
fn a_message_that_nests_deeper_than_json_is_refused() {
    let server = shared();
    let levels = |count: usize| {
        let mut inner = Struct::default();
        for _ in 1..count {
            let kind = Some(prost_types::value::Kind::StructValue(inner));
            inner = Struct {
                fields: [("a".to_owned(), prost_types::Value { kind })].into(),
            };
        }
        let check = CheckRolloutRequest {
            workspace: "root".to_owned(),
            export: GROUP.to_owned(),
            manifests: vec![inner],
            ..CheckRolloutRequest::default()
        };
        let mut service = ApiServiceClient::with_origin(channel(&server, &Who::KcpAdmin), origin(&server));
        runtime().block_on(service.check_rollout(check)).unwrap_err()
    };
    let refused = levels(200);
    assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused:?}");
    assert!(refused.message().contains("nests more than 384 levels"), "{refused:?}");
    // One that is no deeper is read.
    let read = levels(127);
    assert!(!read.message().contains("levels"), "{read:?}");
}
