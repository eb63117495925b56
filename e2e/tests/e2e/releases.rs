//! Releases of an export: their identity, the bindings that stay, and the way back, through
//! kubectl, the command line and gRPC.

use std::fs;

use insula_e2e::{Client, Server, Who, runtime, shared, until, workspace};
use insula_proto::admin::v1::{
    GetExportRequest, ResumeRolloutRequest, RollbackReleaseRequest, Rollout, api_service_client::ApiServiceClient,
};
use serde_json::{Value, json};
use tonic::Code;

use crate::{
    grpc::{Channel, channel, origin},
    providers,
};

const GROUP: &str = "releases.example.io";
const EXPORT: &str = "/apis/apis.kcp.io/v1alpha2/apiexports/releases.example.io";
const BINDING: &str = "/apis/apis.kcp.io/v1alpha2/apibindings/valves";

/// A provider with its tenants, and the files of its releases.
struct Scene {
    server: std::sync::Arc<Server>,
    dir: tempfile::TempDir,
    provider: String,
    /// Logical clusters of the tenants, with clients of them.
    tenants: Vec<(String, Client)>,
}

/// Returns the definition of valves: v1 has a text, v2 a number.
fn definition(fields: &Value) -> Value {
    let version = |name: &str, field: &Value| {
        let mut properties = fields.clone();
        properties["size"] = field.clone();
        let spec = json!({"type": "object", "properties": properties});
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
        json!({"name": name, "served": true, "storage": name == "v1", "schema": schema})
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("valves.{GROUP}")},
        "spec": {"group": GROUP, "scope": "Cluster", "names": {"plural": "valves", "kind": "Valve"},
            "versions": [version("v1", &json!({"type": "string"})), version("v2", &json!({"type": "integer"}))]}})
}

/// Returns rules that make a number of the text by this expression.
fn rules(expression: &str) -> Value {
    let rule = |from: &str, to: &str, expression: &str| {
        json!({"from": from, "to": to,
            "rules": [{"field": ".spec.size", "destination": ".spec.size", "transformation": expression,
                "mayFail": true}]})
    };
    json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion",
        "metadata": {"name": format!("valves.{GROUP}")},
        "spec": {"conversions": [rule("v1", "v2", expression), rule("v2", "v1", "string(self)")]}})
}

/// Reads every text.
const FORGIVING: &str = "self.matches('^[0-9]{1,9}$') ? int(self) : 0";
/// Refuses a text that is no number.
const STRICT: &str = "int(self)";

impl Scene {
    /// Publishes the first release, and makes tenants with a valve of these sizes.
    fn new(sizes: &[&str]) -> Scene {
        let server = shared();
        let (provider, _) = workspace(&server.admin(), "releases");
        let mut scene = Scene {
            server,
            dir: tempfile::tempdir().unwrap(),
            provider,
            tenants: Vec::new(),
        };
        let (code, text) = scene.publish(&json!({}), FORGIVING, &["--wait"]);
        assert_eq!(code, 0, "{text}");
        for size in sizes {
            let (path, tenant) = providers::tenant(&scene.server.admin(), &scene.provider, (GROUP, "valves"));
            let valve = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Valve",
                "metadata": {"name": "main"}, "spec": {"size": size}});
            tenant.post(&valves("v1", ""), &valve).expect(201);
            let own = tenant
                .get("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster")
                .expect(200);
            assert_eq!(own["metadata"]["annotations"]["kcp.io/path"], path.as_str());
            let cluster = own["metadata"]["annotations"]["kcp.io/cluster"].as_str().unwrap();
            scene.tenants.push((cluster.to_owned(), tenant));
        }
        scene
    }

    /// Runs `insula export` in the workspace of the provider; returns the exit code and all output.
    fn export(&self, arguments: &[&str]) -> (i32, String) {
        providers::export(&self.server, &self.provider, arguments)
    }

    fn publish(&self, fields: &Value, expression: &str, flags: &[&str]) -> (i32, String) {
        let file = |name: &str, document: &Value| {
            let path = self.dir.path().join(name);
            fs::write(&path, document.to_string()).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let definition = file("definition.yaml", &definition(fields));
        let rules = file("rules.yaml", &rules(expression));
        self.export(&[&["publish", "--apply", "-f", &definition, "-f", &rules], flags].concat())
    }

    fn provider(&self) -> Client {
        self.server.admin().in_workspace(&self.provider)
    }

    fn rollout(&self, wanted: &str) -> Value {
        let provider = self.provider();
        until(wanted, || {
            let rollout = provider.get(EXPORT).expect(200)["status"]["rollout"].clone();
            (rollout["reason"] == wanted).then_some(rollout)
        })
    }

    fn service(&self) -> ApiServiceClient<Channel> {
        ApiServiceClient::with_origin(channel(&self.server, &Who::KcpAdmin), origin(&self.server))
    }

    fn rollout_over_grpc(&self) -> Rollout {
        let request = GetExportRequest {
            workspace: self.provider.clone(),
            export: GROUP.to_owned(),
        };
        let got = runtime()
            .block_on(self.service().get_export(request))
            .unwrap()
            .into_inner();
        got.export.unwrap().rollout.unwrap()
    }

    /// Returns the size that a tenant sees in v2.
    fn size(&self, tenant: usize) -> Value {
        self.tenants[tenant].1.get(&valves("v2", "main")).expect(200)["spec"]["size"].clone()
    }
}

fn valves(version: &str, name: &str) -> String {
    format!("/apis/{GROUP}/{version}/valves/{name}")
        .trim_end_matches('/')
        .to_owned()
}

/// `--wait` is about the release that was published: it fails while a tenant is held, and succeeds
/// for the release that repairs that.
#[test]
fn waiting_is_for_the_release_that_was_published() {
    let scene = Scene::new(&["7", "many"]);
    let first = scene.rollout("Complete");
    let accept = ["--wait", "--accept", "unreadable", "--accept", "value-changed"];
    let (code, text) = scene.publish(&json!({}), STRICT, &accept);
    assert!(
        code == 1 && text.contains(": Held: 1 of 2 bindings stay"),
        "{code} {text}"
    );
    assert!(text.contains(&scene.tenants[1].0) && text.contains("main"), "{text}");
    let held = scene.rollout("Held");
    assert_eq!((&held["held"], &held["current"]), (&json!(1), &json!(1)), "{held}");
    assert_ne!(held["release"], first["release"]);
    assert_eq!(scene.rollout_over_grpc().release, held["release"].as_str().unwrap());
    // The release names the objects that it is of, so that one can wait without the tool, too.
    let rules = held["observed"].as_array().unwrap();
    let rules = rules.iter().find(|it| it["kind"] == "APIConversion").unwrap();
    assert_eq!(rules["generation"], 2, "{held}");
    let condition = |kind: &str| {
        let export = scene.provider().get(EXPORT).expect(200);
        let conditions = export["status"]["conditions"].as_array().unwrap().clone();
        conditions.into_iter().find(|it| it["type"] == kind).unwrap()
    };
    assert!(
        condition("RolledOut")["observedGeneration"].is_i64(),
        "{}",
        condition("RolledOut")
    );

    let (code, text) = scene.publish(
        &json!({}),
        "self == 'many' ? 99 : int(self)",
        &["--wait", "--accept", "value-changed"],
    );
    assert_eq!(code, 0, "{text}");
    assert_eq!((scene.size(0), scene.size(1)), (json!(7), json!(99)));
    let rolled_out = until("the condition follows", || {
        let rolled_out = condition("RolledOut");
        (rolled_out["status"] == "True").then_some(rolled_out)
    });
    assert!(rolled_out["message"].is_null(), "{rolled_out}");
}

/// A step with a binding that stays stops the rollout, and says who stays, why, and how to go on.
#[test]
fn a_step_with_a_held_tenant_stops_the_rollout() {
    let scene = Scene::new(&["many", "7"]);
    let ring = json!({"metadata": {"labels": {"releases": "early"}}});
    scene.tenants[0].1.merge(BINDING, &ring).expect(200);
    let steps = json!([{"selector": {"matchLabels": {"releases": "early"}}}]);
    let provider = scene.provider();
    provider
        .merge(EXPORT, &json!({"spec": {"rollout": {"steps": steps}}}))
        .expect(200);
    let (code, text) = scene.publish(
        &json!({}),
        STRICT,
        &["--accept", "unreadable", "--accept", "value-changed"],
    );
    assert_eq!(code, 0, "{text}");
    let stopped = scene.rollout("TooManyHeld");
    let message = stopped["message"].as_str().unwrap();
    let release = stopped["release"].as_str().unwrap();
    for part in [
        "stopped after step 1 of 2",
        &scene.tenants[0].0,
        "e.g. main",
        "spec.size",
        "correct the objects",
        "insula export resume releases.example.io --with-held",
        &format!("spec.rollout.withHeld: {release}"),
    ] {
        assert!(message.contains(part), "{part} in {message}");
    }
    assert_eq!(
        (&stopped["held"], &stopped["waiting"], &stopped["step"]),
        (&json!(1), &json!(1), &json!(1))
    );
    assert_eq!(scene.size(1), 7, "the other tenant is served by the release before");

    // A number or a share of bindings may stay; a word for another release is none.
    let bad = provider.merge(EXPORT, &json!({"spec": {"rollout": {"maxHeld": "a few"}}}));
    assert!(
        bad.expect(422)["message"]
            .as_str()
            .unwrap()
            .contains("spec.rollout.maxHeld")
    );
    provider
        .merge(EXPORT, &json!({"spec": {"rollout": {"withHeld": "another"}}}))
        .expect(200);
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(scene.rollout("TooManyHeld")["step"], 1);
    let resume = ResumeRolloutRequest {
        workspace: scene.provider.clone(),
        export: GROUP.to_owned(),
        with_held: true,
        ..ResumeRolloutRequest::default()
    };
    runtime().block_on(scene.service().resume_rollout(resume)).unwrap();
    let held = scene.rollout("Held");
    assert_eq!((&held["current"], &held["step"]), (&json!(1), &json!(2)));

    // The one that stayed follows when its object is corrected.
    let corrected = json!({"spec": {"size": "12"}});
    scene.tenants[0].1.merge(&valves("v1", "main"), &corrected).expect(200);
    scene.rollout("Complete");
    assert_eq!(scene.size(0), 12);
}

/// The condition is true only of a rollout that is complete, so that `kubectl wait` waits for it;
/// and who ends a release keeps the steps for the next one.
#[test]
fn a_condition_tells_whether_a_rollout_is_complete() {
    let scene = Scene::new(&["7", "8"]);
    let provider = scene.provider();
    let ring = json!({"metadata": {"labels": {"releases": "early"}}});
    scene.tenants[0].1.merge(BINDING, &ring).expect(200);
    let steps = json!([{"selector": {"matchLabels": {"releases": "early"}}, "pauseSeconds": 3600}]);
    provider
        .merge(EXPORT, &json!({"spec": {"rollout": {"steps": steps, "maxHeld": 2}}}))
        .expect(200);
    let condition_is = |status: &str, reason: &Value| {
        until(&format!("RolledOut is {status}, {reason}"), || {
            let export = provider.get(EXPORT).expect(200);
            let mut conditions = export["status"]["conditions"].as_array().unwrap().iter();
            let found = conditions.find(|it| it["type"] == "RolledOut")?;
            let is_it = found["status"] == status && found["reason"] == *reason;
            (is_it && found["observedGeneration"] == export["metadata"]["generation"]).then_some(())
        });
    };
    condition_is("True", &Value::Null);
    let (code, text) = scene.publish(&json!({"colour": {"type": "string"}}), FORGIVING, &[]);
    assert_eq!(code, 0, "{text}");
    until("the first step is taken", || {
        let rollout = scene.rollout("Progressing");
        (rollout["current"] == 1 && rollout["waiting"] == 1).then_some(())
    });
    condition_is("False", &json!("Progressing"));
    assert_eq!(scene.export(&["pause", GROUP]).0, 0);
    condition_is("False", &json!("Paused"));
    let (code, text) = scene.export(&["abort", GROUP]);
    assert_eq!(code, 0, "{text}");
    let back = scene.rollout("Complete");
    assert_eq!(back["current"], 2, "{back}");
    condition_is("True", &Value::Null);
    let rollout = provider.get(EXPORT).expect(200)["spec"]["rollout"].clone();
    assert_eq!(
        (&rollout["steps"], &rollout["maxHeld"]),
        (&steps, &json!(2)),
        "{rollout}"
    );
}

/// One command brings back the release before: other rules of the same schema, and another schema.
#[test]
fn a_release_is_rolled_back() {
    let scene = Scene::new(&["7"]);
    let first = scene.rollout("Complete");
    // Nothing was on offer before.
    let none = scene.export(&["rollback", GROUP]);
    assert!(
        none.0 == 1 && none.1.contains("it has offered no other one since it was first bound"),
        "{}",
        none.1
    );

    let (code, text) = scene.publish(&json!({}), "int(self) * 2", &["--wait", "--accept", "value-changed"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(scene.size(0), 14);
    let second = scene.rollout("Complete");
    assert_eq!(second["history"][0]["release"], first["release"], "{second}");

    // What it does is computed like any release: objects look different again.
    let (code, text) = scene.export(&["rollback", GROUP]);
    assert!(code == 1 && text.contains("value-changed"), "{text}");
    let (code, text) = scene.export(&["rollback", GROUP, "--check"]);
    assert!(
        code == 1 && text.contains("APIConversion") && text.contains("value-changed"),
        "{text}"
    );
    let (code, text) = scene.export(&["rollback", GROUP, "--check", "--accept", "value-changed=1"]);
    assert!(code == 0 && text.contains("value-changed"), "{text}");
    assert_eq!(scene.rollout("Complete")["release"], second["release"]);
    let (code, text) = scene.export(&["rollback", GROUP, "--accept", "value-changed=1", "--wait"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(scene.size(0), 7);
    assert_eq!(scene.rollout("Complete")["release"], first["release"]);

    // A release with another schema, which a paused rollout in steps brought to nobody.
    let steps = json!([{"percentage": 1, "pauseSeconds": 3600}]);
    let policy = json!({"spec": {"rollout": {"steps": steps, "paused": true}}});
    scene.provider().merge(EXPORT, &policy).expect(200);
    let (code, text) = scene.publish(&json!({"note": {"type": "string"}}), FORGIVING, &[]);
    assert_eq!(code, 0, "{text}");
    scene.rollout("Paused");
    let back = RollbackReleaseRequest {
        workspace: scene.provider.clone(),
        export: GROUP.to_owned(),
        release: first["release"].as_str().unwrap().to_owned(),
        ..RollbackReleaseRequest::default()
    };
    let done = runtime()
        .block_on(scene.service().rollback_release(back.clone()))
        .unwrap()
        .into_inner();
    assert_eq!(done.release, back.release);
    let complete = scene.rollout("Complete");
    assert_eq!(
        (&complete["release"], &complete["step"]),
        (&first["release"], &json!(2)),
        "{complete}"
    );

    let unknown = RollbackReleaseRequest {
        release: "nothing".to_owned(),
        ..back
    };
    let refused = runtime()
        .block_on(scene.service().rollback_release(unknown))
        .unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("known are "), "{}", refused.message());
}

/// Rules that are on offer for a moment, and that serve nobody, are a release to which an export
/// may return.
#[test]
fn a_release_of_a_moment_is_remembered() {
    let scene = Scene::new(&["7"]);
    let first = scene.rollout("Complete");
    let provider = scene.provider();
    let paused = json!({"spec": {"rollout": {"paused": true}}});
    let export = provider.merge(EXPORT, &paused).expect(200);
    let schema = export["spec"]["resources"][0]["schema"].as_str().unwrap().to_owned();
    let path = format!("/apis/apis.kcp.io/v1alpha1/apiconversions/{schema}");
    for factor in [2, 3, 4] {
        let expression = FORGIVING.replace("int(self)", &format!("int(self) * {factor}"));
        let spec = rules(&expression)["spec"].take();
        let spec = json!({"spec": spec});
        provider.merge(&path, &spec).expect(200);
    }
    let history = provider.get(EXPORT).expect(200)["status"]["rollout"]["history"].clone();
    let names: Vec<&str> = history
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["release"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), 3, "{history}");
    assert_eq!(names[2], first["release"], "{history}");
    assert_eq!(scene.size(0), 7);

    let (code, text) = scene.export(&[
        "rollback",
        GROUP,
        "--to",
        names[1],
        "--accept",
        "value-changed=1",
        "--wait",
    ]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(scene.size(0), 14);
    assert_eq!(scene.rollout("Complete")["release"], names[1]);
}

/// Going back makes the release before current exactly: what came with the newer one goes.
#[test]
fn going_back_takes_out_what_a_release_added() {
    let scene = Scene::new(&["7"]);
    let first = scene.rollout("Complete");
    let mut gauges = definition(&json!({}));
    gauges["metadata"]["name"] = json!(format!("gauges.{GROUP}"));
    gauges["spec"]["names"] = json!({"plural": "gauges", "kind": "Gauge"});
    let file = scene.dir.path().join("gauges.yaml");
    fs::write(&file, gauges.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let (code, text) = scene.export(&["publish", "--apply", "--accept-incompatible", "-f", file, "--wait"]);
    assert_eq!(code, 0, "{text}");
    let second = scene.rollout("Complete");
    let gauges = format!("/apis/{GROUP}/v1/gauges");
    let tenant = &scene.tenants[0].1;
    let gauge = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Gauge", "metadata": {"name": "main"},
        "spec": {"size": "1"}});
    until("gauges are served", || {
        (tenant.post(&gauges, &gauge).code == 201).then_some(())
    });

    let resource = format!("gauges.{GROUP}");
    let effect = format!("api-removed:{resource}: 1 object");
    let versions = [format!("{resource}/v1"), format!("{resource}/v2")];
    let (code, text) = scene.export(&["rollback", GROUP]);
    assert!(code == 1 && text.contains(&versions[0]), "{text}");
    let confirmed = ["rollback", GROUP, "--remove", &versions[0], "--remove", &versions[1]];
    let (code, text) = scene.export(&confirmed);
    assert!(code == 1 && text.contains(&effect), "{text}");
    let (code, text) = scene.export(&[&confirmed[..], &["--accept", "api-removed=1", "--wait"]].concat());
    assert_eq!(code, 0, "{text}");
    let back = scene.rollout("Complete");
    assert_eq!(back["release"], first["release"], "{back}");
    assert_eq!(back["history"][0]["release"], second["release"], "{back}");
    let export = scene.provider().get(EXPORT).expect(200);
    assert_eq!(export["spec"]["resources"].as_array().unwrap().len(), 1, "{export}");
    // Nothing of the tenant's is lost: the resource goes with its last object.
    tenant.delete(&format!("{gauges}/main")).expect(200);

    // And forth again.
    let (code, text) = scene.export(&["rollback", GROUP, "--wait"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(scene.rollout("Complete")["release"], second["release"]);
    let export = scene.provider().get(EXPORT).expect(200);
    assert_eq!(export["spec"]["resources"].as_array().unwrap().len(), 2, "{export}");

    // Whoever edits the export is told the same.
    tenant.post(&gauges, &gauge);
    until("a gauge is stored", || {
        (tenant.get(&format!("{gauges}/main")).code == 200).then_some(())
    });
    let one = json!({"spec": {"resources": [export["spec"]["resources"][0].clone()]}});
    let tried = scene.provider().merge(&format!("{EXPORT}?dryRun=All"), &one);
    let warnings: Vec<&str> = tried
        .headers
        .get_all("warning")
        .iter()
        .filter_map(|it| it.to_str().ok())
        .collect();
    assert!(warnings.iter().any(|warning| warning.contains(&effect)), "{warnings:?}");
}

/// A schema stays while an export offers it, also before anybody binds it.
#[test]
fn a_schema_that_is_offered_cannot_be_deleted() {
    let scene = Scene::new(&[]);
    let provider = scene.provider();
    let schemas = "/apis/apis.kcp.io/v1alpha1/apiresourceschemas";
    let list = provider.get(schemas).expect(200);
    let name = list["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    let refused = provider.delete(&format!("{schemas}/{name}")).expect(403);
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.contains("APIExport \"releases.example.io\" offers it"),
        "{message}"
    );
    provider.delete(EXPORT).expect(200);
    provider.delete(&format!("{schemas}/{name}")).expect(200);
}
