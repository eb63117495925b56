//! Five releases to thirty tenants: every effect on stored objects, with one verdict through the
//! command line, gRPC and kubectl; refused, accepted, held, taken back and retired.

use std::{collections::BTreeMap, fs};

use insula_e2e::{Client, Kubectl, Server, Who, runtime, shared, until, workspace};
use insula_proto::{
    admin::v1::{
        CheckRolloutRequest, GetExportRequest, PublishApiRequest, RetireFieldRequest,
        api_service_client::ApiServiceClient,
    },
    value,
};
use prost_types::Struct;
use serde_json::{Value, json};
use tonic::Code;

use crate::{
    grpc::{Channel, channel, origin},
    providers,
};

mod release;

use release::{FORGIVING, Release, both_ways, direction, size, tag};

const GROUP: &str = "five.example.io";
const API: &str = "engines.five.example.io";
const EXPORT: &str = "/apis/apis.kcp.io/v1alpha2/apiexports/five.example.io";
const TENANTS: usize = 30;
/// Kinds of effects that need nobody's word.
const HARMLESS: [&str; 3] = ["column-removed", "default-added", "version-removed"];
/// The effects of a release that need somebody's word, with the objects that each reaches.
type Verdict = BTreeMap<String, i64>;

fn verdict(effects: &[(&str, i64)]) -> Verdict {
    effects
        .iter()
        .map(|(effect, objects)| {
            let (kind, rest) = effect.split_once('/').unwrap();
            (format!("{kind}:{API}/{rest}"), *objects)
        })
        .collect()
}

/// Returns the effects that kubectl's warnings tell.
fn warned(text: &str) -> Verdict {
    let warnings = text.lines().filter_map(|line| line.strip_prefix("Warning: "));
    let effects = warnings.filter_map(|line| {
        let (id, rest) = line.split_once(": ").filter(|(id, _)| id.contains(API))?;
        let objects = rest.split(" object").next()?.rsplit(' ').next()?;
        Some((id.to_owned(), objects.parse().ok()?))
    });
    effects.collect()
}

struct Scene {
    server: std::sync::Arc<Server>,
    dir: tempfile::TempDir,
    provider: String,
    tenants: Vec<Client>,
}

impl Scene {
    fn new() -> Scene {
        let server = shared();
        let (provider, _) = workspace(&server.admin(), "five");
        let mut scene = Scene {
            server,
            dir: tempfile::tempdir().unwrap(),
            provider,
            tenants: Vec::new(),
        };
        let (code, text) = scene.publish(&Release::first(), &["--apply", "--wait"]);
        assert_eq!(code, 0, "{text}");
        scene.tenants = (0..TENANTS).map(|number| scene.tenant(number)).collect();
        until("the release is known", || {
            let rollout = scene.provider().get(EXPORT).expect(200)["status"]["rollout"].clone();
            (rollout["current"] == TENANTS && rollout["reason"] == "Complete").then_some(())
        });
        scene
    }

    /// Makes a tenant with one engine. Ten have a backup, three are slow, five count above 24, four
    /// have a port, six have a tag, half have no note; the size of one is no number.
    fn tenant(&self, number: usize) -> Client {
        let (_, tenant) = providers::tenant(&self.server.admin(), &self.provider, (GROUP, "engines"));
        let engines = format!("/apis/{GROUP}/v1/engines");
        let size = if number == 7 {
            "many".to_owned()
        } else {
            number.to_string()
        };
        let mut spec =
            json!({"size": size, "count": number, "mode": if number.is_multiple_of(10) { "Slow" } else { "Fast" }});
        if number.is_multiple_of(3) {
            spec["backup"] = json!({"at": "noon"});
        }
        if number < 4 {
            spec["port"] = json!(80);
        }
        if number.is_multiple_of(5) {
            spec["tag"] = json!("a tag");
        }
        if number.is_multiple_of(2) {
            spec["note"] = json!("a note");
        }
        let engine = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Engine",
            "metadata": {"name": "main"}, "spec": spec});
        tenant.post(&engines, &engine).expect(201);
        tenant
    }

    fn provider(&self) -> Client {
        self.server.admin().in_workspace(&self.provider)
    }

    fn service(&self) -> ApiServiceClient<Channel> {
        ApiServiceClient::with_origin(channel(&self.server, &Who::KcpAdmin), origin(&self.server))
    }

    fn export(&self, arguments: &[&str]) -> (i32, String) {
        providers::export(&self.server, &self.provider, arguments)
    }

    fn publish(&self, release: &Release, flags: &[&str]) -> (i32, String) {
        let (definition, rules) = release.documents();
        let mut arguments = vec!["publish".to_owned()];
        for (name, document) in [("definition.yaml", definition), ("rules.yaml", rules)] {
            let path = self.dir.path().join(name);
            fs::write(&path, document.to_string()).unwrap();
            arguments.extend(["-f".to_owned(), path.to_str().unwrap().to_owned()]);
        }
        let arguments: Vec<&str> = arguments
            .iter()
            .map(String::as_str)
            .chain(flags.iter().copied())
            .collect();
        self.export(&arguments)
    }

    fn manifests(release: &Release) -> Vec<Struct> {
        let (definition, rules) = release.documents();
        let manifest = |document: &Value| value::from_json(document.as_object().unwrap()).unwrap();
        vec![manifest(&definition), manifest(&rules)]
    }

    fn publish_over_grpc(&self, release: &Release, accepted: &[&str]) -> Result<(), tonic::Status> {
        let request = PublishApiRequest {
            workspace: self.provider.clone(),
            manifests: Self::manifests(release),
            accepted_effects: accepted.iter().map(|it| (*it).to_owned()).collect(),
            ..PublishApiRequest::default()
        };
        runtime().block_on(self.service().publish_api(request)).map(drop)
    }

    /// Returns the verdict of the command line.
    fn by_cli(&self, release: &Release) -> Verdict {
        let (code, text) = self.publish(release, &["--check"]);
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix("refused: "));
        let effects = lines.filter_map(|line| {
            let (id, rest) = line.split_once(": ")?;
            Some((id.to_owned(), rest.split(' ').next()?.parse().ok()?))
        });
        let verdict: Verdict = effects.collect();
        assert_eq!(code, i32::from(!verdict.is_empty()), "{text}");
        verdict
    }

    fn by_grpc(&self, release: &Release) -> Verdict {
        let request = CheckRolloutRequest {
            workspace: self.provider.clone(),
            export: GROUP.to_owned(),
            manifests: Self::manifests(release),
            ..CheckRolloutRequest::default()
        };
        let found = runtime().block_on(self.service().check_rollout(request)).unwrap();
        let effects = found.into_inner().effects.into_iter();
        let open = effects.filter(|it| it.objects > 0 && !HARMLESS.contains(&it.id.split(':').next().unwrap()));
        open.map(|effect| (effect.id, effect.objects)).collect()
    }

    /// Returns the warnings of `kubectl apply`, as a dry run: of the export, its schemas and rules
    /// being there, or of the rules of a schema that it offers already. These are refused if they
    /// show less. Without its schema the export's warning says that nothing is known.
    fn by_kubectl(&self, kubectl: &Kubectl, release: &Release) -> Verdict {
        let (code, documents) = self.publish(release, &[]);
        assert_eq!(code, 0, "{documents}");
        let offered = self.provider().get(EXPORT).expect(200)["spec"]["resources"][0]["schema"].clone();
        let in_place = documents.contains(&format!("name: {}\n", offered.as_str().unwrap()));
        let tried_kind = ["kind: APIExport\n", "kind: APIConversion\n"][usize::from(in_place)];
        let (tried, others): (Vec<&str>, Vec<&str>) = documents
            .split("\n---\n")
            .partition(|document| document.contains(tried_kind));
        let mut of_parts = None;
        if !in_place {
            let early = kubectl.run(&self.provider, &["apply", "--dry-run=server", "-f", "-"], tried[0]);
            assert!(early.text.contains("to stored objects is not known"), "{}", early.text);
            let applied = kubectl.run(&self.provider, &["apply", "-f", "-"], &others.join("\n---\n"));
            assert_eq!(applied.code, 0, "{}", applied.text);
            of_parts = Some(warned(&applied.text));
        }
        let tried = kubectl.run(&self.provider, &["apply", "--dry-run=server", "-f", "-"], tried[0]);
        if tried.code != 0 {
            // A version that is used has a guard of its own, which is asked first.
            if tried.text.contains("insula.io/confirm-removal") {
                return self.by_grpc(release);
            }
            let (before, refusal) = tried.text.split_once(" would show less").unwrap();
            let objects = before.split(" object").next().unwrap();
            let (field, rest) = refusal.split_once("such as ").unwrap().1.split_once(" of ").unwrap();
            let version = rest.split_once(" in ").unwrap().1.split(':').next().unwrap();
            let objects = objects.rsplit(' ').next().unwrap().parse().unwrap();
            let mut kinds = ["value-hidden", "write-hidden"].iter();
            let kind = kinds.find(|kind| refusal.contains(&format!("{kind}=")));
            return Verdict::from([(format!("{}:{API}/{version}:{field}", kind.unwrap()), objects)]);
        }
        let verdict = warned(&tried.text);
        // The rules, which come last before the export, have told the same.
        if let Some(of_parts) = of_parts {
            assert_eq!(of_parts, verdict);
        }
        verdict
    }

    /// Checks the effects of a release in each way, and that it is refused.
    fn check(&self, release: &Release, effects: &[(&str, i64)]) {
        let wanted = verdict(effects);
        assert_eq!(self.by_cli(release), wanted, "command line");
        assert_eq!(self.by_grpc(release), wanted, "gRPC");
        if let Some(kubectl) = Kubectl::for_server(&self.server) {
            assert_eq!(self.by_kubectl(&kubectl, release), wanted, "kubectl");
        }
        let (code, text) = self.publish(release, &["--apply"]);
        assert_eq!(code, 1, "{text}");
        let refused = self.publish_over_grpc(release, &[]).unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{}", refused.message());
    }

    /// Checks that a release is refused for its rules in each way, whatever is accepted: with these
    /// words, and by kubectl, which writes the rules of the schema on offer, for this field.
    fn refused(&self, release: &Release, words: &str, field: &str) {
        if let Some(kubectl) = Kubectl::for_server(&self.server) {
            let (_, mut rules) = release.documents();
            rules["metadata"]["name"] =
                self.provider().get(EXPORT).expect(200)["spec"]["resources"][0]["schema"].take();
            let arguments = ["apply", "--dry-run=server", "-f", "-"];
            let refused = kubectl.run(&self.provider, &arguments, &rules.to_string());
            assert!(
                refused.code != 0 && refused.text.contains(field),
                "{field}: {}",
                refused.text
            );
        }
        let (code, text) = self.publish(release, &["--apply", "--accept", "value-hidden"]);
        assert!(code != 0 && text.contains(words), "{words}: {text}");
        let refused = self.publish_over_grpc(release, &["value-hidden"]).unwrap_err();
        assert!(refused.message().contains(words), "{words}: {}", refused.message());
    }

    fn engine(&self, tenant: usize, version: &str) -> Value {
        let path = format!("/apis/{GROUP}/{version}/engines/main");
        self.tenants[tenant].get(&path).expect(200)["spec"].clone()
    }

    fn shows(&self, tenant: usize, version: &str, field: &str, wanted: &Value) {
        until(&format!("tenant {tenant} shows {field}: {wanted}"), || {
            (self.engine(tenant, version)[field] == *wanted).then_some(())
        });
    }
}

#[test]
fn five_releases_hurt_nobody_unasked() {
    let scene = Scene::new();
    a_used_version_is_asked_for(&scene);
    a_guess_is_asked_for(&scene);
    fields_and_versions(&scene);
    bounds(&scene);
    rules(&scene);
}

/// Checks that a version that a tenant uses is not taken out of service unasked, in each way.
fn a_used_version_is_asked_for(scene: &Scene) {
    let path = format!("/apis/{GROUP}/v1beta1/engines/main");
    scene.tenants[5].get(&path).expect(200);
    let unserved = Release::unserved();
    let refused = scene.publish_over_grpc(&unserved, &[]).unwrap_err();
    let words = "this would remove engines.five.example.io/v1beta1";
    assert!(
        refused.code() == Code::FailedPrecondition && refused.message().contains(words),
        "{refused:?}"
    );
    for how in ["--check", "--apply"] {
        let (code, text) = scene.publish(&unserved, &[how]);
        assert!(code == 1 && text.contains(words), "{text}");
    }
    let Some(kubectl) = Kubectl::for_server(&scene.server) else {
        return;
    };
    let (_, documents) = scene.publish(&unserved, &[]);
    let (export, others): (Vec<&str>, Vec<&str>) = documents
        .split("\n---\n")
        .partition(|document| document.contains("kind: APIExport\n"));
    let applied = kubectl.run(&scene.provider, &["apply", "-f", "-"], &others.join("\n---\n"));
    assert_eq!(applied.code, 0, "{}", applied.text);
    let refused = kubectl.run(&scene.provider, &["apply", "--dry-run=server", "-f", "-"], export[0]);
    assert!(
        refused.code != 0 && refused.text.contains("v1beta1"),
        "{}",
        refused.text
    );
}

/// Checks that rules that are guessed in place of a webhook are published by nobody unasked.
fn a_guess_is_asked_for(scene: &Scene) {
    let (definition, _) = Release::first().documents();
    let mut definition: Value =
        serde_json::from_str(&definition.to_string().replace("five.example.io", "guess.example.io")).unwrap();
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://convert.example.io/"}}});
    let file = scene.dir.path().join("guess.yaml");
    fs::write(&file, definition.to_string()).unwrap();
    for how in ["--check", "--apply"] {
        let (code, text) = scene.export(&["publish", "-f", file.to_str().unwrap(), how]);
        assert!(code == 1 && text.contains("its rules are a draft"), "{code} {text}");
    }
    let request = PublishApiRequest {
        workspace: scene.provider.clone(),
        manifests: vec![value::from_json(definition.as_object().unwrap()).unwrap()],
        ..PublishApiRequest::default()
    };
    let refused = runtime().block_on(scene.service().publish_api(request)).unwrap_err();
    assert!(
        refused.code() == Code::FailedPrecondition && refused.message().contains("draft"),
        "{refused:?}"
    );
    // What the command prints without --apply is for review: kubectl applies no guess of its own.
    let exports = scene
        .provider()
        .get("/apis/apis.kcp.io/v1alpha2/apiexports")
        .expect(200);
    assert_eq!(exports["items"].as_array().unwrap().len(), 1);
}

/// The second release: accepted, taken back with what objects held, and its field retired.
fn fields_and_versions(scene: &Scene) {
    let second = Release::second();
    scene.check(
        &second,
        &[
            ("field-removed/v1:.spec.backup", 10),
            ("field-removed/v2:.spec.backup", 10),
            ("client-broken/v1", 30),
        ],
    );
    let (_, text) = scene.publish(&second, &["--check"]);
    let column = "  column-removed:engines.five.example.io/v1:column Size: 30 objects in 30 workspaces";
    assert!(text.contains(column), "{text}");
    let default = "default-added:engines.five.example.io/v2:.spec.level: 30 objects in 30 workspaces; default 1 added";
    assert!(text.contains(default), "{text}");
    let apply = |fields: &str| {
        let accepted = ["--accept", "client-broken=30", "--accept", fields];
        let others = ["--apply", "--wait", "--remove", "engines/v1beta1"];
        scene.publish(&second, &[&others[..], &accepted[..]].concat())
    };
    let (code, text) = apply("field-removed=9");
    assert_eq!(code, 1, "{text}");
    let (code, text) = apply("field-removed=10");
    assert_eq!(code, 0, "{text}");
    let path = format!("/apis/{GROUP}/v2/engines/main");
    scene.tenants[3]
        .merge(&path, &json!({"spec": {"count": 4}}))
        .expect(200);
    assert_eq!(scene.engine(3, "v1")["backup"], Value::Null);
    // The way back is judged like any release: a default goes.
    let (code, text) = scene.export(&["rollback", GROUP, "--wait"]);
    assert!(
        code == 1 && text.contains("/v2:.spec.level: default 1 removed; 30 objects"),
        "{text}"
    );
    let (code, text) = scene.export(&["rollback", GROUP, "--wait", "--accept", "default-changed=30"]);
    assert_eq!(code, 0, "{text}");
    for tenant in [0, 3] {
        scene.shows(tenant, "v2", "backup", &json!({"at": "noon"}));
    }
    scene.tenants[3]
        .merge(&path, &json!({"spec": {"count": 3}}))
        .expect(200);
    let (code, text) = apply("field-removed=10");
    assert_eq!(code, 0, "{text}");
    let (code, text) = scene.export(&["retire", GROUP, "engines", "--field", ".spec.backup", "--dry-run"]);
    assert!(
        code == 0 && text.contains("10 objects in 10 workspaces hold it; 30 were examined"),
        "{text}"
    );
    let request = RetireFieldRequest {
        workspace: scene.provider.clone(),
        export: GROUP.to_owned(),
        resource: API.to_owned(),
        field: ".spec.backup".to_owned(),
        ..RetireFieldRequest::default()
    };
    let retired = runtime().block_on(scene.service().retire_field(request)).unwrap();
    assert_eq!(retired.into_inner().objects.len(), 10);
}

/// The third release: bounds, accepted over gRPC.
fn bounds(scene: &Scene) {
    let third = Release::third();
    let both = |effect: &str, objects: i64| {
        let (kind, path) = effect.split_once(':').unwrap();
        [
            (format!("{kind}/v1:{path}"), objects),
            (format!("{kind}/v2:{path}"), objects),
        ]
    };
    let effects = [
        both("value-refused:.spec.mode", 3),
        both("value-refused:.spec.count", 5),
        both("value-refused:.spec.port", 4),
        both("field-required:.spec.note", 15),
        both("default-changed:.spec.level", 30),
    ];
    let effects: Vec<(&str, i64)> = effects.iter().flatten().map(|(id, n)| (&**id, *n)).collect();
    scene.check(&third, &effects);
    let accepted = ["value-refused=5", "field-required=15", "default-changed=30"];
    scene.publish_over_grpc(&third, &accepted).unwrap();
    scene.shows(29, "v2", "level", &json!(2));
    // What is stored stays as it is, and a write that leaves it alone passes.
    let path = format!("/apis/{GROUP}/v2/engines/main");
    let written = scene.tenants[29]
        .merge(&path, &json!({"metadata": {"labels": {"a": "b"}}}))
        .expect(200);
    assert_eq!(written["spec"]["count"], 29);
}

/// The fourth release: rules that are no rules are refused, strict ones hold a tenant. The fifth
/// repairs it.
fn rules(scene: &Scene) {
    let none = Release::with_rules(json!([]));
    scene.refused(&none, ".spec.size: a string in v1", ".spec.size");
    let empty = json!([direction("v1", "v2", &[]), direction("v2", "v1", &[])]);
    scene.refused(&Release::with_rules(empty), ".spec.size: ", ".spec.size");
    let mut shadowed = both_ways(FORGIVING);
    let over = json!({"field": ".spec.mode", "destination": ".spec.note"});
    shadowed[0]["rules"].as_array_mut().unwrap().push(over);
    scene.refused(&Release::with_rules(shadowed), ".spec.note", ".spec.note");

    // One rule of two, one direction without rules, and one direction of two.
    let whole = both_ways(FORGIVING);
    let one_rule = json!([direction("v1", "v2", &[tag("tag", "mark")]), whole[1]]);
    scene.check(&Release::with_rules(one_rule), &[("value-hidden/v2:.spec.size", 30)]);
    let other_rule = json!([direction("v1", "v2", &[size(FORGIVING)]), whole[1]]);
    scene.check(&Release::with_rules(other_rule), &[("value-hidden/v2:.spec.mark", 6)]);
    let one_way = json!([whole[0], direction("v2", "v1", &[tag("mark", "tag")])]);
    scene.check(&Release::with_rules(one_way), &[("write-hidden/v1:.spec.size", 30)]);

    let strict = Release::with_rules(both_ways("int(self) * 2"));
    scene.check(
        &strict,
        &[("value-changed/v2:.spec.size", 28), ("unreadable/v2:.spec.size", 1)],
    );
    let accepted = ["--accept", "value-changed=28", "--accept", "unreadable=1"];
    let (code, text) = scene.publish(&strict, &[&["--apply", "--wait"], &accepted[..]].concat());
    assert_eq!(code, 1, "{text}");
    let request = GetExportRequest {
        workspace: scene.provider.clone(),
        export: GROUP.to_owned(),
    };
    let export = runtime()
        .block_on(scene.service().get_export(request))
        .unwrap()
        .into_inner();
    let rollout = export.export.unwrap().rollout.unwrap();
    assert_eq!((rollout.held, rollout.current, &*rollout.reason), (1, 29, "Held"));
    let status = scene.provider().get(EXPORT).expect(200)["status"]["rollout"].clone();
    assert_eq!((&status["held"], &status["reason"]), (&json!(1), &json!("Held")));
    scene.shows(29, "v2", "size", &json!(58));
    assert_eq!(scene.engine(7, "v2")["size"], 0);

    let fifth = Release::with_rules(both_ways(FORGIVING));
    scene.check(&fifth, &[("value-changed/v2:.spec.size", 28)]);
    let (code, text) = scene.publish(&fifth, &["--apply", "--wait", "--accept", "value-changed=28"]);
    assert_eq!(code, 0, "{text}");
    scene.shows(29, "v2", "size", &json!(29));
}
