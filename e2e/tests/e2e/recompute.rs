//! Repair of objects that a wrong rule wrote: `insula conversion recompute`.

use crate::{grpc, tools::ran};
use insula_e2e::{Client, Server, Who, runtime, shared, until, workspace};
use insula_proto::admin::v1::{RecomputeRequest, RecomputeState, conversion_service_client::ConversionServiceClient};
use serde_json::{Value, json};
use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use tonic::Code;

const GIB: u64 = 1 << 30;
const DISKS: &str = "/apis/repair.example.io";
const EXPORT: &str = "repair.example.io";
/// Former releases that an export remembers.
const REMEMBERED: usize = 5;

fn sample(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/samples/repair");
    folder.join(name).to_str().unwrap().to_owned()
}

/// A provider of disks, and two tenants.
struct Scene {
    /// Keeps the server running.
    _server: Arc<Server>,
    kubeconfig: String,
    provider: String,
    at_provider: Client,
    tenants: [Client; 2],
    paths: [String; 2],
    clusters: [String; 2],
}

impl Scene {
    /// Publishes the wrong rules, and binds both tenants.
    fn new() -> Scene {
        let server = shared();
        let admin = server.admin();
        let (provider, _) = workspace(&admin, "repair");
        let [one, two] = ["one", "two"].map(|name| workspace(&admin, name));
        let scene = Scene {
            kubeconfig: server.kubeconfig().to_str().unwrap().to_owned(),
            tenants: [admin.in_workspace(&one.0), admin.in_workspace(&two.0)],
            paths: [one.0, two.0],
            clusters: [one.1, two.1],
            at_provider: admin.in_workspace(&provider),
            provider,
            _server: server,
        };
        scene.publish("wrong.yaml");
        let bindings = "/apis/apis.kcp.io/v1alpha2/apibindings";
        let binding = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "disks"},
            "spec": {"reference": {"export": {"path": scene.provider, "name": EXPORT}}}});
        for tenant in &scene.tenants {
            tenant.post(bindings, &binding).expect(201);
            until("the API is bound", || {
                let found = tenant.get(&format!("{bindings}/disks")).expect(200);
                (found["status"]["phase"] == "Bound").then_some(())
            });
        }
        scene
    }

    fn publish(&self, rules: &str) {
        self.publish_as(&sample("definition.yaml"), rules);
    }

    fn publish_as(&self, definition: &str, rules: &str) {
        let rules = sample(rules);
        let files = ["-f", definition, "-f", &rules];
        let server = ["--kubeconfig", &self.kubeconfig, "--workspace", &self.provider];
        let accepted = "export publish --apply --accept value-changed --accept write-changed";
        let words: Vec<&str> = accepted.split(' ').collect();
        let arguments = [&words[..], &files[..], &server].concat();
        let (code, out, error) = ran(&arguments, "");
        assert_eq!(code, 0, "{out}{error}");
    }

    /// Publishes the corrected rules, and waits until the tenants are served by them.
    fn correct(&self) {
        for (i, tenant) in self.tenants.iter().enumerate() {
            let probe = json!({"apiVersion": "repair.example.io/v1", "kind": "Disk",
                "metadata": {"name": "probe"}, "spec": {"size": "1Gi"}});
            if i == 0 {
                self.publish("rules.yaml");
            }
            until("the corrected rules serve", || {
                tenant.post(&format!("{DISKS}/v1/disks"), &probe).expect(201);
                let bytes = spec(tenant, "v2", "probe")["bytes"].clone();
                tenant.delete(&format!("{DISKS}/v1/disks/probe")).expect(200);
                (bytes == GIB).then_some(())
            });
        }
    }

    /// Makes as many releases as the export remembers, which differ in nothing but blanks, and
    /// waits until the server has deleted the wrong rules, half a minute later.
    fn forget(&self) {
        let apis = "/apis/apis.kcp.io/v1alpha1/apiconversions";
        let list = self.at_provider.get(apis).expect(200);
        let name = list["items"][0]["metadata"]["name"].as_str().unwrap();
        let conversions = list["items"][0]["spec"]["conversions"].clone();
        let mut last = self.release();
        for blanks in (1..=REMEMBERED).chain([0]) {
            let mut edited = conversions.clone();
            let rule = &mut edited[0]["rules"][0]["transformation"];
            *rule = json!(format!("{}{}", rule.as_str().unwrap(), " ".repeat(blanks)));
            let edited = json!({"spec": {"conversions": edited}});
            self.at_provider.merge(&format!("{apis}/{name}"), &edited).expect(200);
            last = until("the release is counted", || {
                let now = self.release();
                (now != last).then_some(now)
            });
        }
        let begun = Instant::now();
        while !self.recompute(&[]).1.contains("written by rules that are not known") {
            assert!(
                begun.elapsed() < Duration::from_secs(120),
                "the former rules are still there"
            );
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    /// Returns the name of the release that the status of the export is about.
    fn release(&self) -> Value {
        let export = format!("/apis/apis.kcp.io/v1alpha2/apiexports/{EXPORT}");
        self.at_provider.get(&export).expect(200)["status"]["rollout"]["release"].clone()
    }

    fn recompute(&self, more: &[&str]) -> (i32, String) {
        let server = ["--kubeconfig", &self.kubeconfig, "--workspace", &self.provider];
        let (code, out, error) = ran(&[&["conversion", "recompute", EXPORT], &server[..], more].concat(), "");
        (code, out + &error)
    }

    fn listed(&self, more: &[&str]) -> Vec<(String, String, String)> {
        let (_, out) = self.recompute(&[&["-o", "json"], more].concat());
        let reports: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}"));
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let objects = reports[0]["objects"].as_array().unwrap().iter();
        let mut all: Vec<_> = objects
            .map(|object| (text(&object["cluster"]), text(&object["name"]), text(&object["state"])))
            .collect();
        all.sort();
        all
    }
}

fn create(tenant: &Client, version: &str, name: &str, spec: Value) {
    let disk = json!({"apiVersion": format!("repair.example.io/{version}"), "kind": "Disk",
        "metadata": {"name": name}, "spec": spec});
    tenant.post(&format!("{DISKS}/{version}/disks"), &disk).expect(201);
}

fn edit(tenant: &Client, version: &str, name: &str, spec: Value) {
    tenant
        .merge(&format!("{DISKS}/{version}/disks/{name}"), &json!({"spec": spec}))
        .expect(200);
}

fn spec(tenant: &Client, version: &str, name: &str) -> Value {
    tenant.get(&format!("{DISKS}/{version}/disks/{name}")).expect(200)["spec"].clone()
}

fn revision(tenant: &Client, name: &str) -> String {
    let disk = tenant.get(&format!("{DISKS}/v2/disks/{name}")).expect(200);
    disk["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

/// Everything that a wrong rule wrote is recomputed, once; what others wrote stays.
#[test]
fn what_a_wrong_rule_wrote_is_listed_and_recomputed() {
    let scene = Scene::new();
    let [one, two] = &scene.tenants;
    create(one, "v1", "plain", json!({"size": "5Gi"}));
    create(one, "v1", "padded", json!({"size": "007Gi"}));
    create(one, "v2", "native", json!({"bytes": 5_000_000_000_u64}));
    create(two, "v1", "coloured", json!({"size": "6Gi"}));
    edit(two, "v2", "coloured", json!({"color": "red"}));
    create(two, "v1", "by-hand", json!({"size": "8Gi", "owner": "ann"}));
    edit(two, "v2", "by-hand", json!({"bytes": 42}));
    assert_eq!(spec(one, "v2", "plain")["bytes"], 5_000_000_000_u64);

    // Under the rules that wrote them, nothing differs.
    let (code, text) = scene.recompute(&[]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("all 5 objects are as today's rules make them"), "{text}");

    scene.correct();
    create(one, "v1", "later", json!({"size": "9Gi"}));
    // A user's change by the corrected rules.
    create(two, "v1", "both", json!({"size": "1Gi"}));
    scene.forget();
    let (code, text) = scene.recompute(&[]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("4 written by rules that are not known"), "{text}");

    let old = ["--old", &sample("wrong.yaml")];
    let (code, text) = scene.recompute(&old);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("plain in "), "{text}");
    assert!(text.contains("v2 spec.bytes: 5000000000 → 5368709120"), "{text}");
    let at = |i: usize, name: &str, state: &str| (scene.clusters[i].clone(), name.to_owned(), state.to_owned());
    let sorted = |state: &str| {
        let mut all = vec![at(0, "plain", state), at(0, "padded", state), at(1, "coloured", state)];
        all.sort();
        all
    };
    let mut listed = scene.listed(&old);
    listed.retain(|(_, name, _)| name != "by-hand");
    assert_eq!(listed, sorted("differs"));
    let untouched = ["native", "later", "plain"].map(|name| (name, revision(one, name)));

    let (code, text) = scene.recompute(&[&old[..], &["--apply"]].concat());
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("recomputed"), "{text}");
    assert_eq!(spec(one, "v2", "plain"), json!({"bytes": 5 * GIB}));
    assert_eq!(spec(one, "v1", "plain"), json!({"size": "5Gi"}));
    assert_eq!(spec(one, "v2", "padded"), json!({"bytes": 7 * GIB}));
    assert_eq!(spec(one, "v1", "padded"), json!({"size": "007Gi"}));
    assert_eq!(spec(two, "v2", "coloured"), json!({"bytes": 6 * GIB, "color": "red"}));
    assert_eq!(spec(two, "v1", "coloured"), json!({"size": "6Gi"}));
    assert_eq!(spec(two, "v2", "by-hand"), json!({"bytes": 42, "owner": "ann"}));
    assert_eq!(spec(one, "v2", "native"), json!({"bytes": 5_000_000_000_u64}));
    let disk = one.get(&format!("{DISKS}/v2/disks/plain")).expect(200);
    assert_eq!(disk["metadata"]["generation"], 2, "controllers act on a new generation");
    for (name, before) in untouched {
        assert_eq!(revision(one, name) == before, name != "plain", "{name}");
    }

    // A second run finds nothing, and writes nothing.
    let before = revision(one, "plain");
    for more in [&old[..], &[&old[..], &["--apply"]].concat(), &[]] {
        let (code, text) = scene.recompute(more);
        assert_eq!(code, 0, "{text}");
        assert!(text.contains("all 7 objects are as today's rules make them"), "{text}");
    }
    assert_eq!(revision(one, "plain"), before);
}

/// One release corrects the rules and stores the version through which the wrong ones were passed.
#[test]
fn a_correction_that_moves_the_storage_is_recomputed() {
    let scene = Scene::new();
    let [one, two] = &scene.tenants;
    create(one, "v1", "plain", json!({"size": "5Gi"}));
    create(two, "v1", "edited", json!({"size": "6Gi", "owner": "ann"}));
    create(two, "v2", "native", json!({"bytes": 8 * GIB}));
    let definition = fs::read_to_string(sample("definition.yaml")).unwrap();
    let moved = definition
        .replace("storage: true", "storage: moved")
        .replace("storage: false", "storage: true")
        .replace("storage: moved", "storage: false");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("moved.yaml");
    fs::write(&file, moved).unwrap();
    scene.publish_as(file.to_str().unwrap(), "rules.yaml");
    let listed = |state: &str| {
        let mut listed = scene.listed(&[]);
        listed.retain(|(.., its)| its == state);
        let names = listed.into_iter().map(|(_, name, _)| name);
        names.collect::<std::collections::BTreeSet<String>>()
    };
    until("the objects are moved", || {
        (listed("differs") == ["edited", "plain"].map(str::to_owned).into()).then_some(())
    });
    edit(two, "v1", "edited", json!({"size": "7Gi"}));
    let (code, text) = scene.recompute(&["--apply"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains(&format!("plain in {}, ", scene.paths[0])), "{text}");
    assert_eq!(spec(one, "v1", "plain"), json!({"size": "5Gi"}));
    assert_eq!(spec(one, "v2", "plain"), json!({"bytes": 5 * GIB}));
    assert_eq!(spec(two, "v2", "edited"), json!({"bytes": 7 * GIB, "owner": "ann"}));
    assert_eq!(spec(two, "v2", "native"), json!({"bytes": 8 * GIB}));
    let (code, text) = scene.recompute(&[]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("all 3 objects are as today's rules make them"), "{text}");
}

/// Fields that were written by the corrected rules meanwhile stay; their neighbours are recomputed.
#[test]
fn a_later_change_of_a_user_wins() {
    let scene = Scene::new();
    let [one, _] = &scene.tenants;
    create(one, "v1", "resized", json!({"size": "5Gi", "owner": "ann"}));
    create(one, "v1", "handed-over", json!({"size": "5Gi", "owner": "ann"}));
    scene.correct();
    edit(one, "v1", "resized", json!({"size": "3Gi"}));
    edit(one, "v1", "handed-over", json!({"owner": "bob"}));
    let (code, text) = scene.recompute(&["--old", &sample("wrong.yaml"), "--apply"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(spec(one, "v1", "resized"), json!({"size": "3Gi", "owner": "ann"}));
    assert_eq!(spec(one, "v2", "resized"), json!({"bytes": 3 * GIB, "owner": "ann"}));
    assert_eq!(spec(one, "v1", "handed-over"), json!({"size": "5Gi", "owner": "bob"}));
    assert_eq!(
        spec(one, "v2", "handed-over"),
        json!({"bytes": 5 * GIB, "owner": "bob"})
    );
}

/// Returns a request to store all disks as today's rules make them.
fn request(scene: &Scene) -> RecomputeRequest {
    let rules: Value = serde_saphyr::from_str(&std::fs::read_to_string(sample("wrong.yaml")).unwrap()).unwrap();
    RecomputeRequest {
        workspace: scene.provider.clone(),
        export: EXPORT.to_owned(),
        group: EXPORT.to_owned(),
        resource: "disks".to_owned(),
        former_rules: vec![insula_proto::value::from_json(rules.as_object().unwrap()).unwrap()],
        apply: true,
        ..RecomputeRequest::default()
    }
}

fn client(server: &Server, who: &Who) -> ConversionServiceClient<grpc::Channel> {
    ConversionServiceClient::with_origin(grpc::channel(server, who), grpc::origin(server))
}

/// Pages continue where the last one ended, and a call can be repeated.
#[test]
fn many_objects_are_recomputed_page_by_page() {
    let scene = Scene::new();
    let [one, two] = &scene.tenants;
    for i in 0..60 {
        let tenant = if i % 2 == 0 { one } else { two };
        create(tenant, "v1", &format!("disk-{i}"), json!({"size": "2Gi"}));
    }
    scene.correct();
    let mut request = RecomputeRequest {
        page_size: 25,
        ..request(&scene)
    };
    runtime().block_on(async {
        let mut client = client(&shared(), &Who::KcpAdmin);
        let mut sizes = Vec::new();
        loop {
            let page = client.recompute(request.clone()).await.unwrap().into_inner();
            let mut objects = page.objects.iter();
            assert!(objects.all(|object| object.state() == RecomputeState::Recomputed));
            sizes.push(page.objects.len());
            // The answer was lost: the same page again does no harm.
            let again = client.recompute(request.clone()).await.unwrap().into_inner();
            let done: Vec<_> = page
                .objects
                .iter()
                .map(|object| (&object.cluster, &object.name))
                .collect();
            let mut objects = again.objects.iter();
            assert!(objects.all(|object| !done.contains(&(&object.cluster, &object.name))));
            sizes.push(again.objects.len());
            if again.next_page_token.is_empty() {
                break;
            }
            request.page_token = again.next_page_token;
        }
        assert_eq!(sizes.iter().sum::<usize>(), 60, "{sizes:?}");
        assert!(sizes.len() > 2, "{sizes:?}");
    });
    assert_eq!(spec(two, "v2", "disk-1")["bytes"], 2 * GIB);
    assert_eq!(spec(one, "v2", "disk-58")["bytes"], 2 * GIB);
}

/// A request that cannot be answered gets an error that names the field.
#[test]
fn requests_with_errors_are_refused() {
    type Edit = fn(&mut RecomputeRequest);
    let scene = Scene::new();
    let rows: [(Edit, Code, &str); 7] = [
        (|it| it.page_size = -1, Code::InvalidArgument, "page_size"),
        (|it| it.page_token = "x".into(), Code::InvalidArgument, "page_token"),
        (
            |it| it.export = "none".into(),
            Code::NotFound,
            "\"none\" not found in workspace",
        ),
        (|it| it.group.clear(), Code::InvalidArgument, "group: is required"),
        (|it| it.resource = "none".into(), Code::NotFound, "offers no none"),
        (
            |it| (it.former_rules, it.assume_former) = (Vec::new(), true),
            Code::InvalidArgument,
            "former_rules",
        ),
        (
            |it| it.former_rules = vec![it.former_rules[0].clone(); 17],
            Code::InvalidArgument,
            "at most 16",
        ),
    ];
    runtime().block_on(async {
        let mut client = client(&shared(), &Who::KcpAdmin);
        for (edit, code, text) in rows {
            let mut wrong = request(&scene);
            edit(&mut wrong);
            let refused = client.recompute(wrong).await.unwrap_err();
            assert_eq!(refused.code(), code, "{refused}");
            assert!(refused.message().contains(text), "{refused}");
        }
    });
}

/// Only those who may see and update the consumers' objects through the export may repair them.
#[test]
fn repair_takes_the_rights_of_the_exports_content() {
    let scene = Scene::new();
    let bob = Who::Token("bob-token".into());
    runtime().block_on(async {
        for (who, code) in [(Who::Anonymous, Code::Unauthenticated), (bob, Code::PermissionDenied)] {
            let mut client = client(&shared(), &who);
            for apply in [false, true] {
                let mut request = tonic::Request::new(RecomputeRequest {
                    apply,
                    ..request(&scene)
                });
                if let Who::Token(token) = &who {
                    let token = format!("Bearer {token}").parse().unwrap();
                    request.metadata_mut().insert("authorization", token);
                }
                assert_eq!(client.recompute(request).await.unwrap_err().code(), code, "{apply}");
            }
        }
    });
    let server = ["--kubeconfig", &scene.kubeconfig, "--workspace", &scene.provider];
    let (code, _, error) = ran(&[&["conversion", "recompute", "nothing"], &server[..]].concat(), "");
    assert_eq!(code, 2);
    assert!(error.contains("there is no APIExport nothing"), "{error}");
}

/// The field of the export does the same without the tool, by rules kept under another name.
#[test]
fn a_field_of_the_export_repairs_all_tenants() {
    let server = shared();
    let scene = Scene::new();
    let [one, two] = &scene.tenants;
    create(one, "v1", "plain", json!({"size": "5Gi"}));
    for i in 0..120 {
        create(two, "v1", &format!("disk-{i}"), json!({"size": "6Gi"}));
    }
    let provider = server.admin().in_workspace(&scene.provider);
    let export = format!("/apis/apis.kcp.io/v1alpha2/apiexports/{EXPORT}");
    let repair = |token: &str| {
        // The request may come before the corrected rules serve everybody.
        provider
            .merge(&export, &json!({"spec": {"recompute": token}}))
            .expect(200);
        until("the repair is done", || {
            let state = provider.get(&export).expect(200)["status"]["recompute"].clone();
            (state["request"] == token && state["phase"] == "Done").then_some(state)
        })
    };
    scene.correct();
    scene.forget();
    let state = repair("first");
    assert_eq!(
        (&state["examined"], &state["recomputed"]),
        (&json!(121), &json!(0)),
        "{state}"
    );
    assert_eq!(state["otherRules"], 121, "{state}");
    let message = state["message"].as_str().unwrap();
    assert!(message.contains("its former rules are not known"), "{message}");

    let mut former: Value = serde_saphyr::from_str(&std::fs::read_to_string(sample("wrong.yaml")).unwrap()).unwrap();
    former["metadata"]["name"] = json!("before.disks.repair.example.io");
    provider
        .post("/apis/apis.kcp.io/v1alpha1/apiconversions", &former)
        .expect(201);
    let state = repair("second");
    assert_eq!(
        (&state["examined"], &state["recomputed"]),
        (&json!(121), &json!(121)),
        "{state}"
    );
    assert_eq!(state["message"], Value::Null, "{state}");
    assert_eq!(spec(one, "v2", "plain")["bytes"], 5 * GIB);
    assert_eq!(spec(two, "v2", "disk-119")["bytes"], 6 * GIB);
    assert_eq!(spec(two, "v1", "disk-119")["size"], "6Gi");
    let before = revision(one, "plain");
    let state = repair("third");
    assert_eq!(
        (&state["examined"], &state["recomputed"]),
        (&json!(121), &json!(0)),
        "{state}"
    );
    assert_eq!(revision(one, "plain"), before);
    let (code, text) = scene.recompute(&[]);
    assert_eq!(code, 0, "{text}");
}
