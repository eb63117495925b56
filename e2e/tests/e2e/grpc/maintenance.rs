//! Maintenance over gRPC: history, health, members, configuration, level of the log, bundle.

use insula_e2e::{Etcd, Server, Setup, Who, runtime, shared, until, workspace};
use insula_proto::{
    admin::v1::{
        CompactRequest, GetConfigRequest, GetHealthRequest, GetLogLevelRequest, GetSupportBundleRequest,
        ListAuditEventsRequest, ListMembersRequest, SetLogLevelRequest, compact_request::Until,
        maintenance_service_client::MaintenanceServiceClient,
    },
    value::to_json,
};
use serde_json::Value;
use tonic::Code;

use super::{Channel, as_user, channel, origin};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn maintenance(server: &Server) -> MaintenanceServiceClient<Channel> {
    MaintenanceServiceClient::with_origin(channel(server, &Who::KcpAdmin), origin(server))
}

#[test]
fn maintenance_is_for_administrators_of_the_installation() {
    let server = shared();
    runtime().block_on(async {
        let mut client = MaintenanceServiceClient::with_origin(channel(&server, &Who::Anonymous), origin(&server));
        let compact = CompactRequest {
            until: Some(Until::Revision(1)),
            ..CompactRequest::default()
        };
        let level = SetLogLevelRequest {
            level: "debug".to_owned(),
            ..SetLogLevelRequest::default()
        };
        let refused = [
            client.compact(as_user("alice-token", compact)).await.map(drop),
            client
                .get_health(as_user("alice-token", GetHealthRequest {}))
                .await
                .map(drop),
            client
                .list_members(as_user("alice-token", ListMembersRequest::default()))
                .await
                .map(drop),
            client
                .list_audit_events(as_user("alice-token", ListAuditEventsRequest::default()))
                .await
                .map(drop),
            client
                .get_config(as_user("alice-token", GetConfigRequest {}))
                .await
                .map(drop),
            client
                .get_log_level(as_user("alice-token", GetLogLevelRequest {}))
                .await
                .map(drop),
            client.set_log_level(as_user("alice-token", level)).await.map(drop),
            client
                .get_support_bundle(as_user("alice-token", GetSupportBundleRequest {}))
                .await
                .map(drop),
        ];
        for refused in refused {
            assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
        }
    });
}

#[test]
fn a_compaction_ends_old_lists() {
    let server = Server::start();
    let (place, _) = workspace(&server.admin(), "compacted");
    let client = server.admin().in_workspace(&place);
    let revision = |path: &str| {
        client.get(path).expect(200)["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let old = revision(MAPS);
    let map = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    client.post(MAPS, &map).expect(201);
    let now = revision(MAPS);
    let exact = |revision: &str| format!("{MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact");
    client.get(&exact(&old)).expect(200);
    let compact = |until, validate_only| {
        let request = CompactRequest {
            until,
            validate_only,
            ..CompactRequest::default()
        };
        let answered = runtime().block_on(maintenance(&server).compact(request));
        answered.map(tonic::Response::into_inner)
    };
    let upto = Some(Until::Revision(now.parse().unwrap()));
    compact(upto, true).unwrap();
    assert_eq!(client.get(&exact(&old)).code, 200, "a check discards nothing");
    assert_eq!(compact(upto, false).unwrap().revision.to_string(), now);
    // The history does not come back: the answer is the oldest revision that there is.
    for validate_only in [true, false] {
        let earlier = compact(Some(Until::Revision(1)), validate_only).unwrap();
        assert_eq!(earlier.revision.to_string(), now, "{validate_only}");
    }
    let age = Until::Age(prost_types::Duration {
        seconds: 86_400,
        nanos: 0,
    });
    for (until, want) in [
        (Some(Until::Revision(u64::MAX >> 2)), Code::OutOfRange),
        (Some(age), Code::FailedPrecondition),
        (None, Code::InvalidArgument),
    ] {
        assert_eq!(compact(until, false).unwrap_err().code(), want);
    }
    client.get(&exact(&old)).expect(410);
    client.get(&exact(&now)).expect(200);
}

#[test]
fn health_members_and_configuration_are_shown() {
    let server = shared();
    runtime().block_on(async {
        let mut admin = maintenance(&server);
        let health = admin.get_health(GetHealthRequest {}).await.unwrap().into_inner();
        let names: Vec<&str> = health.checks.iter().map(|check| &*check.name).collect();
        assert_eq!((names, health.ready), (vec!["ping", "serving", "store"], true));
        let members = admin
            .list_members(ListMembersRequest::default())
            .await
            .unwrap()
            .into_inner();
        assert_eq!(members.servers.len(), 1);
        assert!(
            members.servers[0].answers && members.servers[0].url == server.url(),
            "{members:?}"
        );
        assert!(members.etcd_members.is_empty());
        let config = admin.get_config(GetConfigRequest {}).await.unwrap().into_inner().config;
        let config = Value::Object(to_json(config.unwrap()).unwrap());
        assert_eq!(config["store"], "embedded");
        assert_eq!(config["backup"]["maxBackups"], 64);
    });
}

#[test]
fn the_level_of_the_log_changes_at_once_and_not_for_ever() {
    let server = Server::start();
    let set = |server: &Server, level: &str, validate_only| {
        let request = SetLogLevelRequest {
            level: level.to_owned(),
            validate_only,
            ..SetLogLevelRequest::default()
        };
        runtime().block_on(maintenance(server).set_log_level(request))
    };
    let level = |server: &Server| {
        let answer = runtime().block_on(maintenance(server).get_log_level(GetLogLevelRequest {}));
        let answer = answer.unwrap().into_inner();
        (answer.level, answer.configured_level)
    };
    let (configured, also) = level(&server);
    assert_eq!(configured, also);
    for bad in ["", "loud", "info,insula_store=loud"] {
        assert_eq!(
            set(&server, bad, false).unwrap_err().code(),
            Code::InvalidArgument,
            "{bad}"
        );
    }
    set(&server, "trace", true).unwrap();
    assert_eq!(level(&server).0, configured);
    let changed = set(&server, "debug", false).unwrap().into_inner();
    assert_eq!(
        (changed.level, changed.former_level),
        ("debug".to_owned(), configured.clone())
    );
    assert_eq!(level(&server), ("debug".to_owned(), configured.clone()));
    workspace(&server.admin(), "logged");
    until("decisions of controllers are logged", || {
        server.log().contains("decided").then_some(())
    });
    let audit = std::fs::read_to_string(server.data_dir().join("audit/audit.log"));
    assert!(audit.is_ok_and(|text| text.contains("MaintenanceService/SetLogLevel")));
    let server = server.restart();
    assert_eq!(level(&server).0, configured);
}

#[test]
fn a_support_bundle_names_no_tenant() {
    let server = Server::start();
    let (place, cluster) = workspace(&server.admin(), "hidden-tenant");
    let client = server.admin().in_workspace(&place);
    let secret = serde_json::json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hidden-name"},
        "stringData": {"password": "hidden-password"}});
    client.post("/api/v1/namespaces/default/secrets", &secret).expect(201);
    let text = runtime().block_on(async {
        let answered = maintenance(&server)
            .get_support_bundle(GetSupportBundleRequest {})
            .await;
        let (mut stream, mut bytes, mut sha256) = (answered.unwrap().into_inner(), Vec::new(), String::new());
        while let Some(message) = stream.message().await.unwrap() {
            bytes.extend(message.data);
            sha256 = message.sha256;
        }
        assert_eq!(sha256.len(), 64);
        String::from_utf8(bytes).unwrap()
    });
    let bundle: Value = serde_json::from_str(&text).unwrap();
    for part in [
        "version",
        "config",
        "health",
        "members",
        "metrics",
        "runtime",
        "operations",
    ] {
        assert!(!bundle[part].is_null(), "{part}");
    }
    let key = std::fs::read_to_string(server.data_dir().join("pki/ca.key")).unwrap();
    let key = key.lines().nth(1).unwrap();
    for hidden in ["hidden-", &*place, &*cluster, "PRIVATE KEY", key, "alice-token"] {
        assert!(!text.contains(hidden), "{hidden}");
    }
}

#[test]
fn servers_on_one_etcd_know_each_other() {
    let Some(etcd) = Etcd::start() else { return };
    let store = etcd.store();
    let servers = [(); 2].map(|()| Server::with_flags(&["--store", &store]));
    runtime().block_on(async {
        for server in &servers {
            let mut admin = maintenance(server);
            let mut found = Vec::new();
            for _ in 0..200 {
                let members = admin
                    .list_members(ListMembersRequest::default())
                    .await
                    .unwrap()
                    .into_inner();
                assert_eq!(members.etcd_members.len(), 1);
                found = members.servers;
                if found.len() == servers.len() {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
            let mut urls: Vec<&str> = found.iter().map(|server| &*server.url).collect();
            urls.sort_unstable();
            let mut wanted = servers.each_ref().map(Server::url);
            wanted.sort_unstable();
            assert_eq!(urls, wanted);
        }
    });
}

/// Returns the events of all pages.
fn audit_events(server: &Server, request: &ListAuditEventsRequest) -> Vec<Value> {
    let (mut found, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListAuditEventsRequest {
            page_token,
            page_size: 7,
            ..request.clone()
        };
        let page = runtime().block_on(maintenance(server).list_audit_events(request));
        let page = page.unwrap().into_inner();
        assert!(page.events.len() <= 7);
        let events = page
            .events
            .into_iter()
            .map(|event| Value::Object(to_json(event).unwrap()));
        found.extend(events);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return found;
        }
    }
}

/// The audit log is read backwards, a page at a time: also what is in files that were rotated, and
/// in a workspace that is gone.
#[test]
fn audit_events_are_listed_from_the_newest() {
    let server = Server::with(Setup {
        environment: vec![("INSULA_AUDIT_MAX_MEGABYTES".to_owned(), "1".to_owned())],
        ..Setup::default()
    });
    let (place, cluster) = workspace(&server.admin(), "audited");
    let client = server.admin().in_workspace(&place);
    for n in 0..20 {
        let map =
            serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("map-{n}")}});
        client.post(MAPS, &map).expect(201);
    }
    client.get(&format!("{MAPS}/none")).expect(404);
    // Others fill a file of the log.
    let long = "x".repeat(6_000);
    for _ in 0..220 {
        server.admin().get(&format!("/version?{long}")).expect(200);
    }
    let files = || std::fs::read_dir(server.data_dir().join("audit")).unwrap().count();
    until("the log was rotated", || (files() > 1).then_some(()));
    let of_workspace = |workspace: &str| ListAuditEventsRequest {
        workspace: workspace.to_owned(),
        resource: "configmaps".to_owned(),
        ..ListAuditEventsRequest::default()
    };
    let created = ListAuditEventsRequest {
        verb: "create".to_owned(),
        ..of_workspace(&place)
    };
    let names: Vec<Value> = audit_events(&server, &created)
        .iter()
        .map(|event| event["objectRef"]["name"].clone())
        .collect();
    let expected: Vec<Value> = (0..20).rev().map(|n| format!("map-{n}").into()).collect();
    assert_eq!(names, expected);
    let failed = audit_events(
        &server,
        &ListAuditEventsRequest {
            failed: true,
            ..of_workspace(&place)
        },
    );
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0]["responseStatus"]["code"], 404);
    let name = place.rsplit(':').next().unwrap();
    let workspaces = "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces";
    server.admin().delete(&format!("{workspaces}/{name}")).expect(200);
    until("the workspace is gone", || (client.get(MAPS).code != 200).then_some(()));
    assert!(audit_events(&server, &of_workspace(&cluster)).len() > 20);
    let unknown = runtime().block_on(maintenance(&server).list_audit_events(of_workspace(&place)));
    assert_eq!(unknown.unwrap_err().code(), Code::NotFound);
}
