//! Retirement of API versions: an export shows which versions its tenants use, and a version in use
//! is removed only when that is said twice.

use insula_e2e::{Answer, Client, Etcd, Server, shared, until, workspace};
use serde_json::{Value, json};

use crate::tools::ran;

const SCHEMAS: &str = "/apis/apis.kcp.io/v1alpha1/apiresourceschemas";
const EXPORTS: &str = "/apis/apis.kcp.io/v1alpha2/apiexports";
const BINDINGS: &str = "/apis/apis.kcp.io/v1alpha2/apibindings";
const CONFIRM: &str = "insula.io/confirm-removal";

/// A schema of pumps that serves some versions; the last one is stored. `!` marks a deprecated one.
fn schema(name: &str, versions: &[&str]) -> Value {
    let last = versions.last().unwrap().trim_end_matches('!');
    let version = |version: &&str| {
        let name = version.trim_end_matches('!');
        let mut entry = json!({
            "name": name, "served": true, "storage": name == last,
            "schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "litres": {"type": "integer"},
            }}}},
        });
        if name != *version {
            entry["deprecated"] = json!(true);
            entry["deprecationWarning"] = json!("example.io/v1 Pump ends in May");
        }
        entry
    };
    json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
        "metadata": {"name": format!("{name}.pumps.example.io")},
        "spec": {
            "group": "example.io", "scope": "Namespaced",
            "names": {"kind": "Pump", "listKind": "PumpList", "plural": "pumps", "singular": "pump"},
            "versions": versions.iter().map(version).collect::<Vec<_>>(),
        },
    })
}

/// A definition of pumps in some versions, and rules without any.
fn manifests(versions: &[&str]) -> [Value; 2] {
    let schema = schema("any", versions);
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "pumps.example.io"}, "spec": schema["spec"],
    });
    for version in definition["spec"]["versions"].as_array_mut().unwrap() {
        version["schema"] = json!({"openAPIV3Schema": version["schema"]});
    }
    let rules = json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion", "metadata": {"name": "pumps.example.io"},
        "spec": {"conversions": []},
    });
    [definition, rules]
}

fn export(schema: &str) -> Value {
    json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "pumps"},
        "spec": {"resources": [
            {"name": "pumps", "group": "example.io", "schema": format!("{schema}.pumps.example.io")},
        ]},
    })
}

/// A provider that exports pumps, and two tenants who bind them.
pub(crate) struct Pumps {
    pub(crate) path: String,
    pub(crate) provider: Client,
    pub(crate) one: Client,
    pub(crate) two: Client,
}

pub(crate) fn pumps(server: &Server, name: &str, versions: &[&str]) -> Pumps {
    let admin = server.admin();
    let (path, _) = workspace(&admin, name);
    let provider = admin.in_workspace(&path);
    provider.post(SCHEMAS, &schema("rev1", versions)).expect(201);
    provider.post(EXPORTS, &export("rev1")).expect(201);
    let tenant = |name: &str| {
        let tenant = admin.in_workspace(&workspace(&admin, name).0);
        let binding = json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "pumps"},
            "spec": {"reference": {"export": {"path": path, "name": "pumps"}}},
        });
        tenant.post(BINDINGS, &binding).expect(201);
        until("the API is bound", || {
            let found = tenant.get(&format!("{BINDINGS}/pumps")).expect(200);
            (found["status"]["phase"] == "Bound").then_some(())
        });
        tenant
    };
    Pumps {
        one: tenant(&format!("{name}-one")),
        two: tenant(&format!("{name}-two")),
        path,
        provider,
    }
}

pub(crate) fn pumps_of(version: &str) -> String {
    format!("/apis/example.io/{version}/namespaces/default/pumps")
}

impl Pumps {
    /// Returns `tenants` of each version, and whether it has a last use.
    fn usage(&self) -> Vec<(String, u64, bool)> {
        let export = self.provider.get(&format!("{EXPORTS}/pumps")).expect(200);
        let rows = export["status"]["usage"].as_array().cloned().unwrap_or_default();
        let row = |row: &Value| {
            let version = row["version"].as_str().unwrap().to_owned();
            (version, row["tenants"].as_u64().unwrap(), row["lastUsed"].is_string())
        };
        rows.iter().map(row).collect()
    }

    pub(crate) fn wait_for_usage(&self, want: &[(&str, u64)]) {
        let want: Vec<_> = want.iter().map(|(v, n)| ((*v).to_owned(), *n, *n > 0)).collect();
        until(&format!("the usage is {want:?}"), || {
            (self.usage() == want).then_some(())
        });
    }

    /// Reads v1 through the provider's view, which is no use of a tenant's.
    fn read_as_provider(&self, server: &Server) {
        let slice = "/apis/apis.kcp.io/v1alpha1/apiexportendpointslices/pumps";
        let view = until("the view has an address", || {
            let slice = self.provider.get(slice).expect(200);
            slice["status"]["endpoints"][0]["url"].as_str().map(str::to_owned)
        });
        let view = &view[view.find("/services/").unwrap()..];
        let of_all = server.admin().below(&format!("{view}/clusters/*"));
        of_all.get("/apis/example.io/v1/pumps").expect(200);
    }

    /// Offers another schema, with the annotation that confirms removals.
    fn offer(&self, schema: &str, confirmed: &str) -> Answer {
        let patch = json!({
            "metadata": {"annotations": {CONFIRM: confirmed}},
            "spec": export(schema)["spec"],
        });
        self.provider.merge(&format!("{EXPORTS}/pumps"), &patch)
    }
}

fn assert_refused(answer: Answer, needles: &[&str]) {
    let body = answer.expect(422);
    let message = body["message"].as_str().unwrap();
    for needle in needles {
        assert!(message.contains(needle), "{needle} in {message}");
    }
}

#[test]
fn a_version_in_use_is_removed_when_it_is_said_twice() {
    let server = shared();
    let pumps = pumps(&server, "retirement", &["v1!", "v2"]);
    let pump = json!({"apiVersion": "example.io/v2", "kind": "Pump", "metadata": {"name": "a"}});
    pumps.one.post(&pumps_of("v2"), &pump).expect(201);
    pumps.two.get(&pumps_of("v2")).expect(200);
    pumps.read_as_provider(&server);
    pumps.wait_for_usage(&[("v1", 0), ("v2", 2)]);

    let answer = pumps.one.get(&pumps_of("v1"));
    let warning = answer.headers["warning"].to_str().unwrap();
    assert_eq!(warning, "299 - \"example.io/v1 Pump ends in May\"");
    pumps.wait_for_usage(&[("v1", 1), ("v2", 2)]);

    let metrics = server.admin().get_with("/metrics", &[("accept", "text/plain")]).text;
    let labels = format!(
        "{{export=\"{}:pumps\",resource=\"pumps.example.io\",version=\"v1\"}}",
        pumps.path
    );
    let tenants = format!("insula_api_version_tenants{labels} 1\n");
    let last_use = format!("insula_api_version_last_use_timestamp_seconds{labels} 1");
    assert!(metrics.contains(&tenants) && metrics.contains(&last_use), "{metrics}");

    pumps.provider.post(SCHEMAS, &schema("rev2", &["v2"])).expect(201);
    let confirmation = "rev1.pumps.example.io/v1";
    let wants = [
        "spec.resources[0].schema: Invalid value: \"rev2.pumps.example.io\": removes pumps.example.io/v1, which 1 \
         workspace used (root:retirement-one-",
        "; last at 20",
        "within 30 days: keep it in spec.versions with served: true and deprecated: true until they use another \
         version, or confirm its removal by the annotation insula.io/confirm-removal: \"rev1.pumps.example.io/v1\"",
    ];
    assert_refused(pumps.offer("rev2", ""), &wants);
    assert_refused(pumps.offer("rev2", "rev1.pumps.example.io/v2,v1"), &wants);
    let removed = json!({"spec": {"resources": [], "retirement": {"days": 0}}});
    let removed = pumps.provider.merge(&format!("{EXPORTS}/pumps"), &removed);
    let all = "insula.io/confirm-removal: \"rev1.pumps.example.io/v1,rev1.pumps.example.io/v2\"";
    assert_refused(removed, &["spec.resources: Invalid value: \"pumps\"", all]);
    let answer = pumps.offer("rev2", confirmation);
    assert!(!answer.headers.contains_key("warning"), "it was deprecated");
    answer.expect(200);
    until("v1 is gone", || {
        (pumps.one.get(&pumps_of("v1")).code == 404).then_some(())
    });
    pumps.wait_for_usage(&[("v2", 2)]);

    // A later removal of another v1: the old annotation does not confirm it.
    pumps.provider.post(SCHEMAS, &schema("rev3", &["v1", "v2"])).expect(201);
    pumps.offer("rev3", confirmation).expect(200);
    until("v1 is back", || {
        (pumps.two.get(&pumps_of("v1")).code == 200).then_some(())
    });
    pumps.wait_for_usage(&[("v1", 2), ("v2", 2)]);
    let wants = [
        "which 2 workspaces used",
        "insula.io/confirm-removal: \"rev3.pumps.example.io/v1\"",
    ];
    assert_refused(pumps.offer("rev2", confirmation), &wants);
    let answer = pumps.offer("rev2", "rev3.pumps.example.io/v1");
    let warning = answer.headers["warning"].to_str().unwrap();
    assert_eq!(
        warning,
        "299 - \"pumps.example.io/v1 was never deprecated: its users got no warning\""
    );
    answer.expect(200);
}

#[test]
fn versions_that_nobody_uses_go_at_once() {
    let server = shared();
    let pumps = pumps(&server, "unused", &["v1", "v2"]);
    pumps.one.get(&pumps_of("v2")).expect(200);
    pumps.wait_for_usage(&[("v1", 0), ("v2", 1)]);
    pumps.provider.post(SCHEMAS, &schema("rev2", &["v2"])).expect(201);
    pumps.offer("rev2", "").expect(200);
    // One that is used does not.
    pumps.provider.post(SCHEMAS, &schema("rev3", &["v3"])).expect(201);
    let schema = "rev3.pumps.example.io";
    assert_refused(pumps.offer("rev3", ""), &["removes pumps.example.io/v2", schema]);
    // Nor by a schema in between that does not exist.
    let answer = pumps.offer("rev9", "");
    let warning = answer.headers["warning"].to_str().unwrap();
    let missing = "APIResourceSchema rev9.pumps.example.io does not exist yet: it is not checked which versions";
    assert!(warning.contains(missing), "{warning}");
    answer.expect(200);
    let confirmation = "insula.io/confirm-removal: \"rev9.pumps.example.io/v2\"";
    assert_refused(pumps.offer("rev3", ""), &["removes pumps.example.io/v2", confirmation]);
    pumps.offer("rev2", "").expect(200);
    let export = format!("{EXPORTS}/pumps");
    let days = |days: i64| json!({"spec": {"retirement": {"days": days}}});
    pumps.provider.merge(&export, &days(-1)).expect(422);
    // Without protection it does, too.
    pumps.provider.merge(&export, &days(0)).expect(200);
    pumps.offer("rev3", "").expect(200);
}

#[test]
fn uses_outlive_the_server() {
    let server = Server::start();
    let used = pumps(&server, "outlive", &["v1", "v2"]);
    used.wait_for_usage(&[("v1", 0), ("v2", 0)]);
    used.two.get(&pumps_of("v1")).expect(200);
    server.signal("-TERM");
    let server = server.ended().start().unwrap_or_else(|end| panic!("{end}"));
    let path = used.path.clone();
    let provider = server.admin().in_workspace(&path);
    Pumps { provider, ..used }.wait_for_usage(&[("v1", 1), ("v2", 0)]);
}

/// The tool in a workspace of the shared server, with a definition of pumps.
struct Tool {
    kubeconfig: String,
    path: String,
}

impl Tool {
    fn export(&self, arguments: &[&str], stdin: &str) -> (i32, String, String) {
        let server = ["--kubeconfig", &self.kubeconfig, "--workspace", &self.path];
        ran(&[&["export"], arguments, &server].concat(), stdin)
    }

    fn publish(&self, versions: &[&str], arguments: &[&str]) -> (i32, String, String) {
        self.publication("--apply", versions, arguments)
    }

    fn publication(&self, how: &str, versions: &[&str], arguments: &[&str]) -> (i32, String, String) {
        let [definition, rules] = manifests(versions);
        let publish = ["publish", "--name", "pumps", how, "-f", "-"];
        self.export(&[&publish, arguments].concat(), &format!("{definition}\n---\n{rules}"))
    }

    /// Returns kinds, names and numbers of consumers.
    fn schemas(&self, arguments: &[&str]) -> Vec<(String, String, u64)> {
        let (code, out, error) = self.export(&[&["schemas", "-o", "json"], arguments].concat(), "");
        assert_eq!(code, 0, "{error}");
        let rows: Vec<Value> = serde_json::from_str(&out).unwrap();
        let text = |row: &Value, field: &str| row[field].as_str().unwrap().to_owned();
        rows.iter()
            .map(|row| (text(row, "kind"), text(row, "name"), row["consumers"].as_u64().unwrap()))
            .collect()
    }
}

#[test]
fn the_tool_asks_before_it_removes() {
    let server = shared();
    let used = pumps(&server, "asking", &["v1", "v2"]);
    let tool = Tool {
        kubeconfig: server.kubeconfig().to_str().unwrap().to_owned(),
        path: used.path.clone(),
    };
    used.one.get(&pumps_of("v1")).expect(200);
    used.wait_for_usage(&[("v1", 1), ("v2", 0)]);
    let (code, out, error) = tool.export(&["usage", "-o", "json"], "");
    assert_eq!(code, 0, "{error}");
    let rows: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&rows[0]["version"], &rows[0]["tenants"]), (&json!("v1"), &json!(1)));
    assert!(
        rows[0]["countedSince"].is_string() && rows[1].get("lastUsed").is_none(),
        "{out}"
    );

    let refusals: [&[&str]; 2] = [&[], &["--yes"]];
    let both = |arguments| ["--check", "--apply"].map(|how| (how, arguments));
    for (how, arguments) in refusals.into_iter().flat_map(both) {
        let (code, out, error) = tool.publication(how, &["v3"], arguments);
        assert_eq!(code, 1, "{out}{error}");
        let used = "error: this would remove pumps.example.io/v1 (1 workspace used it, last at ";
        assert!(error.contains(used), "{error}");
        assert!(
            error.contains("): confirm it by --remove pumps.example.io/v1\n"),
            "{error}"
        );
        let warning = "warning: pumps.example.io/v1 was never deprecated";
        assert!(how == "--check" || error.contains(warning), "{error}");
        let unused = "remove pumps.example.io/v2 (no workspace used it lately): confirm it by --remove \
                      pumps.example.io/v2 or --yes";
        assert_eq!(error.contains(unused), arguments.is_empty(), "{error}");
    }
    assert_eq!(tool.schemas(&[]).len(), 1, "nothing was written");
    let (code, _, error) = tool.publish(&["v3"], &["--remove", "pumps/v4"]);
    assert_eq!(code, 2, "{error}");
    assert!(
        error.contains("--remove pumps/v4: this publication removes no such version"),
        "{error}"
    );
    let confirmed = ["--remove", "pumps/v1", "--yes"];
    let (code, out, error) = tool.publication("--check", &["v3"], &confirmed);
    assert_eq!(code, 0, "{out}{error}");
    assert_eq!(tool.schemas(&[]).len(), 1, "nothing was written");
    let (code, out, error) = tool.publish(&["v3"], &confirmed);
    assert_eq!(code, 0, "{out}{error}");
    until("v1 is gone", || {
        (used.one.get(&pumps_of("v1")).code == 404).then_some(())
    });
}

#[test]
fn a_version_in_use_since_a_moment_stays() {
    let server = shared();
    let used = pumps(&server, "moment", &["v1", "v2"]);
    let tool = Tool {
        kubeconfig: server.kubeconfig().to_str().unwrap().to_owned(),
        path: used.path.clone(),
    };
    used.provider.post(SCHEMAS, &schema("rev2", &["v2"])).expect(201);
    used.one.get(&pumps_of("v1")).expect(200);
    let patch = json!({"spec": export("rev2")["spec"]});
    let refused = used.provider.merge(&format!("{EXPORTS}/pumps"), &patch);
    assert_refused(refused, &["removes pumps.example.io/v1, which 1 workspace used"]);
    used.one.get(&pumps_of("v2")).expect(200);
    let (code, out, error) = tool.publish(&["v1"], &["--yes"]);
    assert_ne!(code, 0, "{out}{error}");
    used.one.get(&pumps_of("v2")).expect(200);
}

/// Another server of the store refuses what is in use here, without a pause of seconds.
#[test]
fn a_version_in_use_at_another_server_stays() {
    let Some(etcd) = Etcd::start() else { return };
    let store = etcd.store();
    let [one, two] = [(); 2].map(|()| Server::with_flags(&["--store", &store]));
    let versions = ["v1", "v2", "v3", "v4", "v5"];
    let used = pumps(&one, "apart", &versions);
    used.provider.post(SCHEMAS, &schema("rev2", &["v5"])).expect(201);
    let there = two.admin().in_workspace(&used.path);
    until("the other one has the export", || {
        (there.get(&format!("{EXPORTS}/pumps")).code == 200).then_some(())
    });
    let patch = json!({"spec": export("rev2")["spec"]});
    for version in &versions[..4] {
        used.one.get(&pumps_of(version)).expect(200);
        until("the use is known there", || {
            let tried = there.merge(&format!("{EXPORTS}/pumps?dryRun=All"), &patch);
            let told = format!("removes pumps.example.io/{version}, which 1 workspace used");
            tried.text.contains(&told).then_some(())
        });
    }
}

/// No word accepts it, and nothing is written.
#[test]
fn a_version_in_which_objects_are_stored_stays() {
    let server = shared();
    let used = pumps(&server, "stored", &["v1", "v2"]);
    let tool = Tool {
        kubeconfig: server.kubeconfig().to_str().unwrap().to_owned(),
        path: used.path.clone(),
    };
    let pump = json!({"apiVersion": "example.io/v2", "kind": "Pump", "metadata": {"name": "a"}});
    used.one.post(&pumps_of("v2"), &pump).expect(201);
    let before = tool.schemas(&[]);
    // The answer says so by data, and not by the name alone.
    let request =
        json!({"workspace": used.path, "export": "pumps", "manifests": manifests(&["v1"]), "validateOnly": true});
    let headers = [("content-type", "application/json")];
    let path = "/insula.admin.v1.ApiService/PublishApi";
    let plan = server
        .admin()
        .try_send("POST", path, &headers, request.to_string().into());
    let plan = plan.unwrap().body;
    let consent = |kind: &str| {
        let mut effects = plan["effects"].as_array().into_iter().flatten();
        let effect = effects.find(|effect| effect["id"].as_str().is_some_and(|id| id.starts_with(kind)));
        effect.map(|effect| effect["consent"].as_str().unwrap().to_owned())
    };
    assert_eq!(
        consent("version-stored:").as_deref(),
        Some("EFFECT_CONSENT_IMPOSSIBLE"),
        "{plan}"
    );
    for how in ["--check", "--apply"] {
        let accepted = ["--accept", "unreadable", "--remove", "pumps/v2"];
        let (code, out, error) = tool.publication(how, &["v1"], &accepted);
        let told = "refused: version-stored:pumps.example.io/v2: 1 object in 1 workspace";
        assert!(code == 1 && out.contains(told), "{code}: {out}{error}");
        let (code, out, error) = tool.publication(how, &["v1"], &["--accept", "version-stored"]);
        let cannot = "version-stored cannot be accepted: keep the version in spec.versions, not served";
        assert!(code == 2 && error.contains(cannot), "{code}: {out}{error}");
    }
    assert_eq!(tool.schemas(&[]), before);
}

#[test]
fn unused_schemas_are_listed_and_deleted() {
    let server = shared();
    let used = pumps(&server, "collect", &["v1"]);
    let tool = Tool {
        kubeconfig: server.kubeconfig().to_str().unwrap().to_owned(),
        path: used.path.clone(),
    };
    assert_eq!(tool.schemas(&["--unused"]), []);
    let first = "rev1.pumps.example.io";
    let rules = |name: &str| {
        json!({
            "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion", "metadata": {"name": name},
            "spec": {"conversions": []},
        })
    };
    let conversions = "/apis/apis.kcp.io/v1alpha1/apiconversions";
    used.provider.post(conversions, &rules(first)).expect(201);
    let pump = json!({"apiVersion": "example.io/v1", "kind": "Pump", "metadata": {"name": "a"}});
    used.one.post(&pumps_of("v1"), &pump).expect(201);
    let (code, out, error) = tool.publish(&["v1", "v2"], &[]);
    assert_eq!(code, 0, "{out}{error}");
    until("all consumers have moved", || {
        let unused = tool.schemas(&["--unused"]);
        (unused.len() == 2).then_some(())
    });
    let schemas = tool.schemas(&[]);
    let consumers: Vec<u64> = schemas.iter().map(|(.., consumers)| *consumers).collect();
    assert_eq!(
        consumers.iter().sum::<u64>(),
        4,
        "two of the schema and two of its rules: {schemas:?}"
    );

    let (code, _, error) = tool.export(&["schemas", "--unused", "--delete"], "");
    assert_eq!(code, 1, "{error}");
    assert!(
        error.contains("error: 2 objects would be deleted: confirm it by --yes"),
        "{error}"
    );
    assert_eq!(tool.schemas(&[]).len(), 4);
    let (code, out, error) = tool.export(&["schemas", "--unused", "--delete", "--yes"], "");
    assert_eq!(code, 0, "{error}");
    assert!(out.contains(first), "{out}");
    assert!(
        error.contains("note: APIResourceSchema rev1.pumps.example.io is deleted"),
        "{error}"
    );
    assert_eq!(tool.schemas(&[]).len(), 2);
    assert_eq!(tool.schemas(&["--unused"]), []);
    used.one.get(&format!("{}/a", pumps_of("v2"))).expect(200);
}
