//! Effects of other rules on what clients write, on labels, and on tenants that are held already:
//! the command line, gRPC and admission say the same.

use std::fs;

use insula_e2e::{Client, Server, Who, runtime, shared, until, workspace};
use insula_proto::{
    admin::v1::{CheckRolloutRequest, PublishApiRequest, PublishApiResponse, api_service_client::ApiServiceClient},
    rpc::{self, Detail},
    value,
};
use prost_types::Struct;
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::{
    grpc::{channel, origin},
    providers,
};

mod added;
mod asked;
mod forgiven;
mod given;

const GROUP: &str = "gadgets.example.io";
const EXPORT: &str = "/apis/apis.kcp.io/v1alpha2/apiexports/gadgets.example.io";
const RULES: &str = "/apis/apis.kcp.io/v1alpha1/apiconversions";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Returns the definition of gadgets: v1 has a text and a label, v2 a number and a tag.
fn definition(more: &str) -> Value {
    let version = |name: &str, size: &str, other: &str| {
        let text = json!({"type": "string"});
        let mut fields = json!({"size": {"type": size}, "color": text, other: text, more: text});
        if name == "v2" {
            fields["rk"] = text;
        }
        let spec = json!({"type": "object", "properties": fields});
        json!({"name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("gadgets.{GROUP}")},
        "spec": {"group": GROUP, "scope": "Cluster",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
            "versions": [version("v1", "string", "label"), version("v2", "integer", "tag")]}})
}

fn rule(source: &str, destination: &str) -> Value {
    json!({"field": source, "destination": destination})
}

fn size(expression: &str) -> Value {
    json!({"field": ".spec.size", "destination": ".spec.size", "transformation": expression, "mayFail": true})
}

/// Returns the rules there and back.
fn rules(there: &[Value], back: &[Value]) -> Value {
    let direction = |from: &str, to: &str, rules: &[Value]| json!({"from": from, "to": to, "rules": rules});
    let directions = [direction("v1", "v2", there), direction("v2", "v1", back)];
    let directions: Vec<&Value> = directions.iter().filter(|it| it["rules"] != json!([])).collect();
    json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion",
        "metadata": {"name": format!("gadgets.{GROUP}")}, "spec": {"conversions": directions}})
}

fn there() -> [Value; 2] {
    [size("int(self)"), rule(".spec.label", ".spec.tag")]
}

fn back() -> [Value; 2] {
    [size("string(self)"), rule(".spec.tag", ".spec.label")]
}

fn objects(version: &str) -> String {
    format!("/apis/{GROUP}/{version}/gadgets")
}

fn create(client: &Client, version: &str, name: &str, spec: &Value) {
    let object = json!({"apiVersion": format!("{GROUP}/{version}"), "kind": "Gadget",
        "metadata": {"name": name, "labels": {"rack": "7"}}, "spec": spec});
    client.post(&objects(version), &object).expect(201);
}

/// A provider of gadgets, with a tenant.
struct Scene {
    server: std::sync::Arc<Server>,
    dir: tempfile::TempDir,
    provider: String,
    tenant: Client,
}

impl Scene {
    /// Publishes the whole rules, and makes an object through each version.
    fn new() -> Scene {
        let server = shared();
        let (provider, _) = workspace(&server.admin(), "gadgets");
        let mut scene = Scene {
            tenant: server.admin(),
            server,
            dir: tempfile::tempdir().unwrap(),
            provider,
        };
        let whole = rules(&there(), &back());
        let (code, text) = scene.publish("color", &whole, &["--apply", "--wait"]);
        assert_eq!(code, 0, "{text}");
        scene.tenant = providers::tenant(&scene.server.admin(), &scene.provider, (GROUP, "gadgets")).1;
        create(
            &scene.tenant,
            "v1",
            "first",
            &json!({"size": "3", "label": "L", "color": "red"}),
        );
        create(
            &scene.tenant,
            "v2",
            "second",
            &json!({"size": 4, "tag": "T", "color": "red"}),
        );
        scene
    }

    fn publish(&self, more: &str, rules: &Value, flags: &[&str]) -> (i32, String) {
        let file = |name: &str, document: &Value| {
            let path = self.dir.path().join(name);
            fs::write(&path, document.to_string()).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (definition, rules) = (file("definition.yaml", &definition(more)), file("rules.yaml", rules));
        let arguments = [&["publish", "-f", &definition, "-f", &rules], flags].concat();
        providers::export(&self.server, &self.provider, &arguments)
    }

    /// Publishes the same over gRPC.
    fn publish_over_grpc(&self, more: &str, rules: &Value, accepted: &[&str]) -> Result<PublishApiResponse, Status> {
        let request = PublishApiRequest {
            workspace: self.provider.clone(),
            manifests: manifests(more, rules),
            accepted_effects: accepted.iter().map(|&one| one.to_owned()).collect(),
            ..PublishApiRequest::default()
        };
        let mut service = ApiServiceClient::with_origin(channel(&self.server, &Who::KcpAdmin), origin(&self.server));
        runtime()
            .block_on(service.publish_api(request))
            .map(tonic::Response::into_inner)
    }

    /// Returns the effects that gRPC tells and that reach objects.
    fn effects(&self, more: &str, rules: &Value) -> Vec<(String, i64)> {
        let check = CheckRolloutRequest {
            workspace: self.provider.clone(),
            export: GROUP.to_owned(),
            manifests: manifests(more, rules),
            ..CheckRolloutRequest::default()
        };
        let mut service = ApiServiceClient::with_origin(channel(&self.server, &Who::KcpAdmin), origin(&self.server));
        let found = runtime()
            .block_on(service.check_rollout(check))
            .unwrap()
            .into_inner()
            .effects;
        let reaching = found.into_iter().filter(|effect| effect.objects > 0);
        let mut all: Vec<(String, i64)> = reaching.map(|effect| (effect.id, effect.objects)).collect();
        all.sort_unstable();
        all
    }

    fn provider(&self) -> Client {
        self.server.admin().in_workspace(&self.provider)
    }

    /// Returns the path of the rules that are published.
    fn stored_rules(&self) -> String {
        let export = self.provider().get(EXPORT).expect(200);
        format!("{RULES}/{}", export["spec"]["resources"][0]["schema"].as_str().unwrap())
    }

    fn spec(&self, version: &str, name: &str) -> Value {
        self.tenant.get(&format!("{}/{name}", objects(version))).expect(200)["spec"].clone()
    }
}

fn manifests(more: &str, rules: &Value) -> Vec<Struct> {
    let manifest = |document: &Value| value::from_json(document.as_object().unwrap()).unwrap();
    vec![manifest(&definition(more)), manifest(rules)]
}

fn effect(kind: &str, version: &str, path: &str, objects: i64) -> (String, i64) {
    (format!("{kind}:gadgets.{GROUP}/{version}:{path}"), objects)
}

/// Returns the effects in the details of a refusal.
fn violations(refused: &Status) -> Vec<String> {
    let details = rpc::read(refused.details()).unwrap();
    let violations = rpc::PreconditionFailure::find(&details).unwrap().violations;
    let id = |it: &rpc::Violation| format!("{}:{}", it.r#type, it.subject);
    violations.iter().map(id).collect()
}

#[test]
fn rules_that_bring_less_of_a_write_need_somebodys_word() {
    let scene = Scene::new();
    let [size_back, _] = back();
    let cases = [
        (
            rules(&there(), &[]),
            vec![
                effect("write-hidden", "v1", ".spec.label", 2),
                effect("write-hidden", "v1", ".spec.size", 2),
            ],
        ),
        (
            rules(&there(), &[size_back]),
            vec![effect("write-hidden", "v1", ".spec.label", 2)],
        ),
        (
            rules(&there(), &[size("string(self * 2)"), rule(".spec.tag", ".spec.label")]),
            vec![effect("write-changed", "v1", ".spec.size", 2)],
        ),
    ];
    for (rules, want) in &cases {
        assert_eq!(scene.effects("color", rules), *want);
        let (code, text) = scene.publish("color", rules, &["--check"]);
        assert_eq!(code, 1, "{text}");
        for (id, _) in want {
            assert!(
                text.contains(&format!("refused: {id}: 2 objects in 1 workspace")),
                "{text}"
            );
        }
        let refused = scene.publish_over_grpc("color", rules, &[]).unwrap_err();
        assert!(
            refused.code() == Code::FailedPrecondition && refused.message().contains(&want[0].0),
            "{refused:?}"
        );
        // Each effect is a detail.
        let named = violations(&refused);
        for (id, _) in want {
            assert!(named.contains(id), "{id} in {named:?}");
        }
    }
    // Another schema with such rules has the same effects.
    assert_eq!(scene.effects("note", &cases[0].0), cases[0].1);
    let weaker = json!({"spec": cases[0].0["spec"]});
    let refused = scene.provider().merge(&scene.stored_rules(), &weaker);
    assert!(
        refused.code == 403 && refused.text.contains("write-hidden=2"),
        "{refused:?}"
    );
    let (code, text) = scene.publish(
        "color",
        &cases[0].0,
        &["--apply", "--wait", "--accept", "write-hidden=1"],
    );
    assert_eq!(code, 1, "{text}");
    let (code, text) = scene.publish(
        "color",
        &cases[0].0,
        &["--apply", "--wait", "--accept", "write-hidden=2"],
    );
    assert_eq!(code, 0, "{text}");
    let change = json!({"spec": {"size": 5}});
    scene
        .tenant
        .merge(&format!("{}/second", objects("v2")), &change)
        .expect(200);
    assert_eq!(scene.spec("v1", "second")["size"], "4");
}

/// Returns true if rules are stored without a word for effects, and without an owner of one.
fn has_no_word(stored: &Value) -> bool {
    !stored.to_string().contains("accepted-effects")
}

#[test]
fn a_word_of_a_publication_is_for_its_own_writes() {
    let scene = Scene::new();
    let [size_there, _] = there();
    let [size_back, _] = back();
    let only_size = rules(std::slice::from_ref(&size_there), std::slice::from_ref(&size_back));
    let hidden = effect("value-hidden", "v2", ".spec.tag", 2);
    assert_eq!(scene.effects("color", &only_size), std::slice::from_ref(&hidden));
    let (code, text) = scene.publish(
        "color",
        &only_size,
        &["--apply", "--wait", "--accept", "value-hidden=50"],
    );
    assert_eq!(code, 0, "{text}");
    let stored = scene.provider().get(&scene.stored_rules()).expect(200);
    assert!(has_no_word(&stored), "{stored}");
    // Nothing of the word is left for a later change.
    let none = json!({"spec": {"conversions": []}});
    let refused = scene.provider().merge(&scene.stored_rules(), &none);
    assert!(
        refused.code == 403 && refused.text.contains("value-hidden=2"),
        "{refused:?}"
    );

    // The same over gRPC, by the name of the effect, and by the annotation in the files.
    let whole = rules(&there(), &back());
    scene.publish_over_grpc("color", &whole, &[]).unwrap();
    until("the rules are in force", || {
        (scene.spec("v2", "first")["tag"] == "L").then_some(())
    });
    scene.publish_over_grpc("color", &only_size, &[&hidden.0]).unwrap();
    until("the rules are in force", || {
        scene.spec("v2", "first")["tag"].is_null().then_some(())
    });
    scene.publish_over_grpc("color", &whole, &[]).unwrap();
    until("the rules are in force", || {
        (scene.spec("v2", "first")["tag"] == "L").then_some(())
    });
    let mut annotated = only_size;
    annotated["metadata"]["annotations"] = json!({"insula.io/accepted-effects": "value-hidden=2"});
    let (code, text) = scene.publish("color", &annotated, &["--apply", "--wait"]);
    assert_eq!(code, 0, "{text}");
    let stored = scene.provider().get(&scene.stored_rules()).expect(200);
    assert!(has_no_word(&stored), "{stored}");
}

#[test]
fn a_label_that_rules_move_is_a_value_of_its_version() {
    let scene = Scene::new();
    for (part, key, count) in [("labels", "rack", 2), ("annotations", "example.io/rack", 1)] {
        let path = match part {
            "labels" => format!(".metadata.{part}.{key}"),
            _ => format!(".metadata.{part}['{key}']"),
        };
        let change = json!({"metadata": {part: {key: "7"}}});
        scene
            .tenant
            .merge(&format!("{}/first", objects("v1")), &change)
            .expect(200);
        let moved = rules(
            &[&there()[..], &[rule(&path, ".spec.rk")]].concat(),
            &[&back()[..], &[rule(".spec.rk", &path)]].concat(),
        );
        let effects = scene.effects("color", &moved);
        assert!(
            effects.contains(&effect("value-hidden", "v2", &path, count)),
            "{effects:?}"
        );
        let (code, text) = scene.publish("color", &moved, &["--check"]);
        assert!(
            code == 1 && text.contains(&format!("gadgets.{GROUP}/v2:{path}: ")),
            "{text}"
        );
    }
}

#[test]
fn what_nobody_could_read_is_no_effect_of_the_next_release() {
    let scene = Scene::new();
    let failing = [size("int(self) / (int(self) - 3)"), rule(".spec.label", ".spec.tag")];
    let failing = rules(&failing, &back());
    let words = ["--accept", "unreadable", "--accept", "value-changed"];
    let (code, text) = scene.publish("color", &failing, &[&["--apply"], &words[..]].concat());
    assert_eq!(code, 0, "{text}");
    until("the tenant is held", || {
        let export = scene.provider().get(EXPORT).expect(200);
        (export["status"]["rollout"]["reason"] == "Held").then_some(())
    });
    // The command line and gRPC agree on the next one, with a field more.
    assert_eq!(scene.effects("note", &failing), []);
    let (code, text) = scene.publish("note", &failing, &["--check"]);
    assert!(
        code == 0 && text.contains("1 of 2 stored objects could not be read"),
        "{code} {text}"
    );
    let (code, text) = scene.publish("note", &failing, &["--apply"]);
    assert_eq!(code, 0, "{text}");
    scene.publish_over_grpc("more", &failing, &[]).unwrap();
}

/// Changes for a tenant that stays with an older release are changes of what it sees.
#[test]
fn a_held_tenant_is_judged_by_what_it_is_served() {
    let scene = Scene::new();
    let [_, label] = there();
    let failing = rules(&[size("int(self) / (int(self) - 3)"), label.clone()], &back());
    let words = ["--accept", "unreadable", "--accept", "value-changed"];
    let (code, text) = scene.publish("color", &failing, &[&["--apply"], &words[..]].concat());
    assert_eq!(code, 0, "{text}");
    until("the tenant is held", || {
        let export = scene.provider().get(EXPORT).expect(200);
        (export["status"]["rollout"]["reason"] == "Held").then_some(())
    });
    // The release on offer shows nothing of the first object, and the tenant sees 3.
    assert_eq!(scene.spec("v2", "first")["size"], 3);
    let doubled = rules(&[size("int(self) * 2"), label], &back());
    let changed = effect("value-changed", "v2", ".spec.size", 2);
    assert_eq!(scene.effects("color", &doubled), std::slice::from_ref(&changed));
    let refused = scene
        .publish_over_grpc("color", &doubled, &["value-changed=1"])
        .unwrap_err();
    assert_eq!(violations(&refused), std::slice::from_ref(&changed.0));
    let path = format!("{}?dryRun=All", scene.stored_rules());
    let told = scene.provider().merge(&path, &json!({"spec": doubled["spec"]}));
    let warnings = format!("{:?}", told.headers.get_all("warning").iter().collect::<Vec<_>>());
    assert!(
        told.code == 200 && warnings.contains(&format!("{}: 2 objects", changed.0)),
        "{told:?}"
    );
    let (code, text) = scene.publish("color", &doubled, &["--apply", "--accept", "value-changed=1"]);
    assert_eq!(code, 1, "{text}");
    let (code, text) = scene.publish("color", &doubled, &["--apply", "--wait", "--accept", "value-changed=2"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(scene.spec("v2", "first")["size"], 6);
    // The release that it saw before is one with effects again.
    let whole = rules(&there(), &back());
    assert_eq!(scene.effects("color", &whole), [changed]);
}

#[test]
fn a_definition_has_the_same_guard() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "gadgets").0);
    client.post(RULES, &rules(&there(), &back())).expect(201);
    client.post(DEFINITIONS, &definition("color")).expect(201);
    until("gadgets are served", || {
        (client.get(&objects("v2")).code == 200).then_some(())
    });
    create(&client, "v1", "first", &json!({"size": "3", "label": "L"}));
    let path = format!("{RULES}/gadgets.{GROUP}");
    let weaker = json!({"spec": rules(&there(), &[])["spec"]});
    let refused = client.merge(&path, &weaker);
    let why = "1 object in 1 workspace";
    assert!(
        refused.code == 403 && refused.text.contains(why) && refused.text.contains("write-hidden=1"),
        "{refused:?}"
    );
    // A word for one write is not stored, and nobody owns it: the same again changes nothing.
    let word = json!({"insula.io/accepted-effects-once": "write-hidden=1"});
    let mut applied = rules(&there(), &[]);
    applied["metadata"]["annotations"] = word;
    let apply = || {
        let headers: &[(&str, &[u8])] = &[("content-type", b"application/apply-patch+yaml")];
        let path = format!("{path}?fieldManager=gitops&force=true");
        let body = applied.to_string().into_bytes().into();
        client.send_bytes("PATCH", &path, headers, body).expect(200)
    };
    let stored = apply();
    assert!(has_no_word(&stored), "{stored}");
    // Controllers write the status meanwhile.
    assert_eq!(apply()["metadata"]["generation"], stored["metadata"]["generation"]);
}
