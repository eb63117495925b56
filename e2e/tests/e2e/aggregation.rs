//! Aggregated APIs: requests for the group versions of APIServices reach extension servers.

mod hostile;
mod isolation;
mod outages;

use std::sync::{Arc, Mutex, PoisonError, Weak};

use insula_e2e::{Client, Extension, Kubectl, Server, Setup, unique, until, workspace};
use serde_json::{Value, json};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const SERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1.fleet.example.com";
const BOATS: &str = "/apis/fleet.example.com/v1/namespaces/default/boats";
const TRUST: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

/// Returns the server of these tests: it may call this machine, three requests of a workspace wait
/// for extension servers at most, and rights to streams are reviewed every second.
fn server() -> Arc<Server> {
    static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = shared.upgrade() {
        return server;
    }
    let variable = |name: &str, value: &str| (format!("INSULA_{name}"), value.to_owned());
    let server = Arc::new(Server::with(Setup {
        flags: vec!["--webhook-allow".to_owned(), "127.0.0.1".to_owned()],
        environment: vec![
            variable("WEBHOOKS_PROXIED_REQUESTS_PER_WORKSPACE", "3"),
            variable("WATCHES_BOOKMARK_SECONDS", "1"),
        ],
        ..Setup::default()
    }));
    *shared = Arc::downgrade(&server);
    server
}

fn condition(client: &Client) -> Value {
    let service = client.get(SERVICE).expect(200);
    service["status"]["conditions"][0].clone()
}

/// Registers the APIService, and waits until its server passed the check.
fn register(client: &Client, service: &Value) {
    client.post(SERVICES, service).expect(201);
    wait_for(client, "True", "Passed");
}

fn wait_for(client: &Client, status: &str, reason: &str) -> Value {
    until("the condition Available is as expected", || {
        let found = condition(client);
        (found["status"] == status && found["reason"] == reason).then_some(found)
    })
}

fn boat(name: &str) -> Value {
    json!({"apiVersion": "fleet.example.com/v1", "kind": "Boat", "metadata": {"name": name}, "spec": {"sails": 2}})
}

#[test]
fn kubectl_uses_an_aggregated_api_as_any_other() {
    let server = server();
    let Some(kubectl) = Kubectl::for_server(&server) else {
        return;
    };
    let admin = server.admin();
    let (path, cluster) = workspace(&admin, "fleet");
    let client = admin.in_workspace(&path);
    assert_eq!(
        client.get(TRUST).code,
        404,
        "workspaces without extension servers need none"
    );
    let extension = Extension::start(&server);
    extension.allow_only(&format!("front-proxy-client:{cluster}"));
    let run = |arguments: &[&str], input: &str| {
        let ran = kubectl.run(&path, arguments, input);
        assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.text);
        ran.text
    };
    run(&["apply", "-f", "-"], &extension.api_service(None).to_string());
    run(
        &[
            "wait",
            "apiservice/v1.fleet.example.com",
            "--for=condition=Available",
            "--timeout=30s",
        ],
        "",
    );
    let listed = run(&["get", "apiservices.apiregistration.k8s.io"], "");
    assert!(listed.contains("default/fleet") && listed.contains("True"), "{listed}");
    let applied = run(
        &["apply", "--server-side", "-n", "default", "-f", "-"],
        &boat("arrow").to_string(),
    );
    assert!(applied.contains("serverside-applied"), "{applied}");
    let shown = run(
        &["get", "bo", "arrow", "-n", "default", "-o", "jsonpath={.spec.sails}"],
        "",
    );
    assert_eq!(shown, "2");
    let explained = run(&["explain", "boats.spec.sails"], "");
    assert!(explained.contains("The number of its sails."), "{explained}");
    let older = run(&["explain", "boats.spec", "--output=plaintext-openapiv2"], "");
    assert!(older.contains("sails"), "{older}");
    let resources = run(&["api-resources", "--api-group=fleet.example.com"], "");
    assert!(resources.contains("boats") && resources.contains("Boat"), "{resources}");
    run(&["delete", "boat", "arrow", "-n", "default", "--wait=false"], "");
    // Extension servers learn from the ConfigMap whom they may trust.
    let trust = client.get(TRUST).expect(200)["data"].clone();
    let ca = std::fs::read_to_string(server.data_dir().join("pki/front-proxy-ca.crt")).unwrap();
    assert_eq!(trust["requestheader-client-ca-file"], json!(ca));
    assert_eq!(
        trust["requestheader-allowed-names"],
        json!(format!("[\"front-proxy-client:{cluster}\"]"))
    );
    assert_eq!(trust["requestheader-username-headers"], "[\"X-Remote-User\"]");
    let users = std::fs::read_to_string(server.data_dir().join("pki/ca.crt")).unwrap();
    assert_eq!(trust["client-ca-file"], json!(users));
    // Its older version shows the same object.
    let older = SERVICE.replace("/v1/", "/v1beta1/");
    assert_eq!(
        client.get(&older).expect(200)["apiVersion"],
        "apiregistration.k8s.io/v1beta1"
    );
}

#[test]
fn discovery_and_openapi_have_the_extension_servers_and_mark_stale_ones() {
    let server = server();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "fleet").0);
    let extension = Extension::start(&server);
    register(&client, &extension.api_service(None));
    let named = |list: &Value, field: &str| {
        let groups = list[field].as_array().unwrap().iter();
        groups
            .filter(|group| group["name"] == "fleet.example.com" || group["metadata"]["name"] == "fleet.example.com")
            .cloned()
            .collect::<Vec<_>>()
    };
    let version = json!({"groupVersion": "fleet.example.com/v1", "version": "v1"});
    let group = json!({"name": "fleet.example.com", "versions": [version], "preferredVersion": version});
    assert_eq!(named(&client.get("/apis").expect(200), "groups"), [group]);
    assert_eq!(
        client.get("/apis/fleet.example.com").expect(200)["preferredVersion"],
        version
    );
    let resources = client.get("/apis/fleet.example.com/v1").expect(200);
    assert_eq!(resources["resources"][0]["name"], "boats");
    let aggregated = || {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let list = client.get_with("/apis", &[("accept", accept)]).expect(200);
        named(&list, "items")[0]["versions"][0].clone()
    };
    let current = aggregated();
    assert_eq!(current["freshness"], "Current");
    assert_eq!(current["resources"][0]["singularResource"], "boat");
    let index = client.get("/openapi/v3").expect(200);
    let document = index["paths"]["apis/fleet.example.com/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap();
    assert_eq!(document, "/openapi/v3/apis/fleet.example.com/v1?hash=ABC123");
    let schemas = client.get(document).expect(200)["components"]["schemas"].clone();
    assert!(schemas["com.example.fleet.v1.Boat"].is_object(), "{schemas}");
    let older = client.get("/openapi/v2").expect(200);
    assert!(older["definitions"]["com.example.fleet.v1.Boat"].is_object());
    assert!(older["paths"]["/apis/fleet.example.com/v1/boats"].is_object());
    // A server that is away is stale, and its resources stay known.
    let away = format!("https://127.0.0.1:{}", insula_e2e::unused_port());
    let moved = json!({"metadata": {"annotations": {"insula.io/url": away}}});
    client.merge(SERVICE, &moved).expect(200);
    let failed = wait_for(&client, "False", "FailedDiscoveryCheck");
    let told = failed["message"].as_str().unwrap();
    let words = format!("failing or missing response from {away}/apis/fleet.example.com/v1: Get ");
    assert!(
        told.starts_with(&words) && told.ends_with("connect: connection refused"),
        "{told}"
    );
    let stale = aggregated();
    assert_eq!(
        (&stale["freshness"], &stale["resources"]),
        (&json!("Stale"), &current["resources"])
    );
    let refused = client.get(BOATS).expect(503);
    let told = refused["message"].as_str().unwrap();
    assert!(
        told.starts_with("service unavailable") && !told.contains(&away),
        "{told}"
    );
    let back = json!({"metadata": {"annotations": {"insula.io/url": extension.url()}}});
    client.merge(SERVICE, &back).expect(200);
    wait_for(&client, "True", "Passed");
    client.get(BOATS).expect(200);
    client.delete(SERVICE).expect(200);
    client.get("/apis/fleet.example.com").text.starts_with("404");
    assert_eq!(client.get(BOATS).code, 404);
}

#[test]
fn a_service_without_an_address_is_not_found_and_the_fix_is_named() {
    let server = server();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "fleet").0);
    let mut service = Extension::start(&server).api_service(None);
    service["metadata"]["annotations"] = json!({});
    client.post(SERVICES, &service).expect(201);
    let failed = wait_for(&client, "False", "ServiceNotFound");
    let told = failed["message"].as_str().unwrap();
    assert!(
        told.starts_with("service/fleet in \"default\" is not present") && told.contains("insula.io/url"),
        "{told}"
    );
    // Targets are those of webhooks: another address of this machine is none.
    let forbidden = json!({"metadata": {"annotations": {"insula.io/url": "https://127.0.0.2:443"}}});
    client.merge(SERVICE, &forbidden).expect(200);
    let failed = wait_for(&client, "False", "FailedDiscoveryCheck");
    let told = failed["message"].as_str().unwrap();
    assert!(
        told.contains("is not among the targets that this server may call"),
        "{told}"
    );
}

#[test]
fn other_protocols_pass_through() {
    let server = server();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "fleet").0);
    let extension = Extension::start(&server);
    register(&client, &extension.api_service(None));
    let exec = format!("{BOATS}/echo/exec");
    for protocol in ["SPDY/3.1", "websocket"] {
        let said = client.echo(&exec, protocol, b"ahoy");
        assert_eq!(said.as_deref(), Ok(&b"ahoy"[..]), "{protocol}");
    }
    let refused = client.echo(BOATS, "SPDY/3.1", b"ahoy");
    assert_eq!(refused, Err(200), "an answer without an upgrade is an answer");
}

#[test]
fn what_the_workspace_serves_by_itself_stays() {
    let server = server();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "fleet").0);
    let extension = Extension::start(&server);
    let service = |group: &str, version: &str| {
        let mut service = extension.api_service(None);
        service["metadata"]["name"] = json!(format!("{version}.{group}"));
        service["spec"]["group"] = json!(group);
        service["spec"]["version"] = json!(version);
        service
    };
    for group in ["rbac.authorization.k8s.io", "apis.kcp.io", "apiregistration.k8s.io"] {
        let told = client.post(SERVICES, &service(group, "v9")).expect(422);
        let words = "spec.group: Invalid value: ";
        let text = told["message"].as_str().unwrap();
        assert!(
            text.contains(words) && text.contains("no extension server takes it over"),
            "{text}"
        );
    }
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "boats.fleet.example.com"},
        "spec": {"group": "fleet.example.com", "scope": "Namespaced",
            "names": {"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    register(&client, &extension.api_service(None));
    client.post(BOATS, &boat("aggregated")).expect(201);
    // A definition that comes later wins, and the APIService says so.
    client.post(definitions, &definition).expect(201);
    until("the definition is served", || {
        let list = client.get(BOATS);
        (list.code == 200 && list.body["items"] == json!([])).then_some(())
    });
    let moved = json!({"metadata": {"annotations": {"insula.io/url": format!("{}/", extension.url())}}});
    client.merge(SERVICE, &moved).expect(200);
    let touched = json!({"spec": {"caBundle": null, "insecureSkipTLSVerify": true}});
    client.merge(SERVICE, &touched).expect(200);
    wait_for(&client, "False", "ServedLocally");
    client.delete(SERVICE).expect(200);
    let told = client.post(SERVICES, &extension.api_service(None)).expect(422);
    let text = told["message"].as_str().unwrap();
    assert!(
        text.contains("the workspace serves fleet.example.com/v1 by itself"),
        "{text}"
    );
    // Another version of the group is free, without verification of its certificate.
    let mut free = service("fleet.example.com", "v2");
    free["spec"]["caBundle"] = Value::Null;
    free["spec"]["insecureSkipTLSVerify"] = json!(true);
    client.post(SERVICES, &free).expect(201);
    let group = client.get("/apis/fleet.example.com").expect(200);
    let versions: Vec<&Value> = group["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| &v["version"])
        .collect();
    assert_eq!(versions, ["v1", "v2"]);
}

#[test]
fn an_exporter_offers_an_aggregated_api_to_tenants() {
    let server = server();
    let admin = server.admin();
    let (provider_path, provider_cluster) = workspace(&admin, "provider");
    let provider = admin.in_workspace(&provider_path);
    let extension = Extension::start(&server);
    extension.allow_only(&format!("front-proxy-client:{provider_cluster}"));
    register(&provider, &extension.api_service(None));
    let export = unique("fleet");
    let offered = json!({"insula.io/aggregated-apis": "v1.fleet.example.com"});
    let exported = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport",
        "metadata": {"name": export, "annotations": offered}, "spec": {}});
    provider
        .post("/apis/apis.kcp.io/v1alpha2/apiexports", &exported)
        .expect(201);
    let (tenant_path, tenant_cluster) = workspace(&admin, "tenant");
    let tenant = admin.in_workspace(&tenant_path);
    assert_eq!(tenant.get(BOATS).code, 404);
    let binding = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "fleet"},
        "spec": {"reference": {"export": {"path": provider_path, "name": export}}}});
    let bindings = "/apis/apis.kcp.io/v1alpha2/apibindings";
    tenant.post(bindings, &binding).expect(201);
    until("the tenant has the API", || {
        (tenant.get(BOATS).code == 200).then_some(())
    });
    // The extension server learns the tenant from this server, whatever the tenant claims.
    let claimed = [("x-remote-extra-insula.io%2fcluster", "root")];
    tenant.get_with(BOATS, &claimed).expect(200);
    assert_eq!(
        extension.header(BOATS, "x-remote-extra-insula.io%2fcluster"),
        [tenant_cluster]
    );
    tenant.post(BOATS, &boat("theirs")).expect(201);
    let group = tenant.get("/apis/fleet.example.com").expect(200);
    assert_eq!(group["versions"][0]["version"], "v1");
    let index = tenant.get("/openapi/v3").expect(200);
    assert!(index["paths"]["apis/fleet.example.com/v1"].is_object());
    // A failure tells tenants nothing about the provider's server.
    let away = format!("https://127.0.0.1:{}", insula_e2e::unused_port());
    let moved = json!({"metadata": {"annotations": {"insula.io/url": away}}});
    provider.merge(SERVICE, &moved).expect(200);
    wait_for(&provider, "False", "FailedDiscoveryCheck");
    let told = tenant.get(BOATS).expect(503);
    assert!(!told.to_string().contains("127.0.0.1"), "{told}");
    tenant.delete(&format!("{bindings}/fleet")).expect(200);
    until("the API is gone with its binding", || {
        (tenant.get(BOATS).code == 404).then_some(())
    });
}
