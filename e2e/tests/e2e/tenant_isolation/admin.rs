//! The gRPC services (rows 67–70), which use the same chain of checks and reveal as little in a
//! refusal. No other port is open (row 71).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use http::uri::PathAndQuery;
use insula_e2e::runtime;
use insula_proto::admin::v1::{
    ConvertRequest, GetInfoRequest, GetWorkspaceRequest, ListWorkspacesRequest, StoredRules, TreeWorkspacesRequest,
    ValidateRequest, cluster_service_client::ClusterServiceClient, conversion_service_client::ConversionServiceClient,
    convert_request::Source, workspace_service_client::WorkspaceServiceClient,
};
use prost::Message;
use prost_types::FileDescriptorSet;
use tonic::{
    Code, Extensions, Request, Status,
    metadata::{AsciiMetadataKey, MetadataMap},
};

use super::{
    row::{Row, tells_nothing},
    scene::OWNER,
    *,
};
use crate::grpc;

/// Returns the names of the workspace that a row is about: another tenant's, or the caller's own in
/// rows that test the caller's credential. Empty for other rows.
fn requested_names<'a>(scene: &'a Scene, row: &Row<'a>) -> Vec<&'a str> {
    let (_, path) = row.request.split_once(' ').unwrap();
    let cluster = path.strip_prefix("/clusters/").and_then(|path| path.split('/').next());
    match cluster {
        Some("{theirs}") => vec![&scene.theirs.path, &scene.theirs.cluster],
        Some("{mine}") if row.expect == [401] || row.actor == "anon" => vec![&scene.mine.path, &scene.mine.cluster],
        Some(cluster) if !cluster.contains(['{', '%', '*']) && row.is_closed() => vec![cluster],
        _ => Vec::new(),
    }
}

fn metadata(scene: &Scene, row: &Row<'_>) -> MetadataMap {
    let mut metadata = MetadataMap::new();
    let mut append = |name: &str, value: &str| {
        let name = AsciiMetadataKey::from_bytes(name.to_lowercase().as_bytes()).unwrap();
        metadata.append(name, value.parse().unwrap());
    };
    for (name, value) in &row.headers {
        append(name, value);
    }
    if let (Who::Token(token), false) = (
        scene.who(row.actor),
        row.headers.iter().any(|(name, _)| *name == "authorization"),
    ) {
        append("authorization", &format!("Bearer {token}"));
    }
    metadata
}

/// Sends the rows of the table over gRPC: their actors and headers, as metadata, about their
/// workspaces.
pub(super) fn refuse(scene: &Scene, rows: &[Row<'_>]) {
    let mut channels = BTreeMap::new();
    let mut sent = BTreeSet::new();
    for row in rows {
        let who = scene.who(row.actor);
        for workspace in requested_names(scene, row) {
            let what = format!("row {}: gRPC {} {workspace} {:?}", row.number, row.actor, row.headers);
            if !sent.insert((row.actor, &row.headers, workspace)) {
                continue;
            }
            let channel = channels
                .entry(format!("{who:?}"))
                .or_insert_with(|| grpc::channel(&scene.server, &who))
                .clone();
            let mut client = WorkspaceServiceClient::with_origin(channel, grpc::origin(&scene.server));
            let metadata = || metadata(scene, row);
            let refused = runtime().block_on(async {
                let get = GetWorkspaceRequest {
                    workspace: workspace.to_owned(),
                };
                let list = ListWorkspacesRequest {
                    parent: workspace.to_owned(),
                    ..ListWorkspacesRequest::default()
                };
                let tree = TreeWorkspacesRequest {
                    root: workspace.to_owned(),
                    ..TreeWorkspacesRequest::default()
                };
                [
                    client
                        .get_workspace(Request::from_parts(metadata(), Extensions::default(), get))
                        .await
                        .map(drop),
                    client
                        .list_workspaces(Request::from_parts(metadata(), Extensions::default(), list))
                        .await
                        .map(drop),
                    client
                        .tree_workspaces(Request::from_parts(metadata(), Extensions::default(), tree))
                        .await
                        .map(drop),
                ]
            });
            for status in refused.map(|answer| answer.err()) {
                let status = status.unwrap_or_else(|| panic!("{what}: let in"));
                let nobody = row.expect == [401] || row.actor == "anon";
                let codes: &[Code] = match (nobody, workspace.contains("nowhere")) {
                    (true, _) => &[Code::Unauthenticated],
                    (false, true) => &[Code::PermissionDenied, Code::NotFound],
                    (false, false) => &[Code::PermissionDenied],
                };
                assert!(codes.contains(&status.code()), "{what}: {status:?}");
                let unnamed = match *workspace == *scene.theirs.path {
                    true => &scene.theirs.cluster,
                    false => &scene.theirs.path,
                };
                tells_nothing(&what, &format!("{status:?}"), unnamed);
            }
        }
    }
}

/// Sends an empty message and returns the outcome of the call, up to its first answer.
fn called(channel: grpc::Channel, server: &Server, path: &str, token: Option<&str>) -> Result<(), Status> {
    let path: PathAndQuery = path.parse().unwrap();
    runtime().block_on(async {
        let mut client = tonic::client::Grpc::with_origin(channel, grpc::origin(server));
        client
            .ready()
            .await
            .map_err(|error| Status::unknown(error.to_string()))?;
        let request = match token {
            Some(token) => grpc::as_user(token, ()),
            None => Request::new(()),
        };
        let codec = tonic_prost::ProstCodec::<(), ()>::default();
        let mut answers = client.server_streaming(request, path, codec).await?.into_inner();
        // Some streams have no end.
        answers.message().await.map(drop)
    })
}

/// Checks calls without a row: open to any user where `grpc::ANSWERS_ANY_IDENTITY` has them, and
/// closed to tenants without rights otherwise.
fn check_unlisted(scene: &Scene, unlisted: &[String]) {
    let server = &scene.server;
    let channel = grpc::channel(server, &Who::Anonymous);
    for call in unlisted {
        let is_open = grpc::ANSWERS_ANY_IDENTITY.contains(&&**call);
        for token in ["alice-token", &scene.account, &scene.ada] {
            let got = called(channel.clone(), server, call, Some(token)).map_err(|status| status.code());
            let is_closed = matches!(got, Err(Code::PermissionDenied | Code::InvalidArgument));
            assert!(if is_open { got == Ok(()) } else { is_closed }, "{call}: {got:?}");
        }
        let admin = called(grpc::channel(server, &Who::KcpAdmin), server, call, None).map_err(|status| status.code());
        let is_answered = matches!(admin, Ok(()) | Err(Code::InvalidArgument));
        assert!(if is_open { admin == Ok(()) } else { is_answered }, "{call}: {admin:?}");
    }
    for call in grpc::ANSWERS_ANY_IDENTITY {
        assert!(unlisted.iter().any(|unlisted| unlisted == call), "{call} is no method");
    }
}

/// Row 67, for every existing call. Calls without a row of their own must be closed: a tenant
/// without rights gets no answer, unless `grpc::ANSWERS_ANY_IDENTITY` has them.
#[test]
fn every_call_needs_a_credential_and_a_right() {
    let scene = Scene::new();
    let server = &scene.server;
    let root = Err(Code::PermissionDenied);
    let empty = Err(Code::InvalidArgument);
    // Expected codes for a tenant and for the administrator of empty requests: about `root`, where
    // a tenant has no rights, or an error about a missing field.
    let calls = BTreeMap::from([
        ("/insula.admin.v1.WorkspaceService/ListWorkspaces", [root, Ok(())]),
        ("/insula.admin.v1.WorkspaceService/GetWorkspace", [empty; 2]),
        ("/insula.admin.v1.WorkspaceService/TreeWorkspaces", [root, Ok(())]),
        ("/insula.admin.v1.ConversionService/Validate", [root, empty]),
        ("/insula.admin.v1.ConversionService/Convert", [empty; 2]),
        ("/insula.admin.v1.ConversionService/Recompute", [root, empty]),
        ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", [empty; 2]),
        (
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            [empty; 2],
        ),
    ]);
    let set = FileDescriptorSet::decode(insula_proto::FILE_DESCRIPTOR_SET).unwrap();
    let mut unlisted = Vec::new();
    for file in &set.file {
        for service in &file.service {
            for method in &service.method {
                let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                if !calls.contains_key(&*path) {
                    unlisted.push(path);
                }
            }
        }
    }
    let before = scene.settle();
    let channel = grpc::channel(server, &Who::Anonymous);
    let expired = scene.issuer.token(&json!({"exp": 1_000_000_000}));
    for call in calls.keys().copied().chain(unlisted.iter().map(String::as_str)) {
        for token in [None, Some("nothing"), Some(&*scene.gone), Some(&expired)] {
            let refused = called(channel.clone(), server, call, token).unwrap_err();
            assert_eq!(refused.code(), Code::Unauthenticated, "{call} {token:?}: {refused:?}");
            assert_eq!(refused.message(), "Unauthorized", "{call}");
        }
    }
    check_unlisted(&scene, &unlisted);
    for (call, [of_tenant, of_admin]) in &calls {
        for token in ["alice-token", &scene.account, &scene.ada] {
            let got = called(channel.clone(), server, call, Some(token)).map_err(|status| status.code());
            assert_eq!(got, *of_tenant, "{call}");
        }
        let admin = called(grpc::channel(server, &Who::KcpAdmin), server, call, None).map_err(|status| status.code());
        assert_eq!(admin, *of_admin, "{call}");
    }
    for unknown in [
        "/insula.admin.v1.BackupService/Restore",
        "/insula.admin.v1.WorkspaceService/Delete",
        "/a/b",
    ] {
        for (token, want) in [
            (None, Code::Unauthenticated),
            (Some("alice-token"), Code::Unimplemented),
            (Some("carol-token"), Code::Unimplemented),
        ] {
            let refused = called(channel.clone(), server, unknown, token).unwrap_err();
            assert_eq!(refused.code(), want, "{unknown}");
        }
    }
    assert_eq!(scene.settle(), before);
}

/// Row 68: the server refuses an oversized message before it has received all of it.
#[test]
fn calls_have_limits() {
    let server = shared();
    let client = server.client(Who::KcpAdmin);
    let call = |headers: &[(&str, &str)], body: Bytes| {
        let own = [("content-type", "application/grpc"), ("te", "trailers")];
        let headers = [&own, headers].concat();
        client.try_send("POST", "/insula.admin.v1.ConversionService/Validate", &headers, body)
    };
    let status = |answer: &Answer| answer.headers["grpc-status"].to_str().unwrap().parse::<i32>().unwrap();
    let claimed = |bytes: u32| Bytes::from([&[0][..], &bytes.to_be_bytes(), b"{}"].concat());
    let large = call(&[], claimed(100 << 20)).unwrap();
    assert_eq!(
        Code::from(status(&large)),
        Code::ResourceExhausted,
        "{:?}",
        large.headers
    );
    let compressed = call(&[("grpc-encoding", "gzip")], Bytes::from_static(&[1, 0, 0, 0, 1, 0])).unwrap();
    assert_eq!(
        Code::from(status(&compressed)),
        Code::Unimplemented,
        "{:?}",
        compressed.headers
    );
    // Metadata are headers: too many of them make the request invalid.
    let value = "a".repeat(1 << 20);
    let answer = call(&[("x-remote-user", &value)], claimed(0));
    assert!(answer.is_err() || answer.is_ok_and(|answer| answer.code == 431));
    let fine = call(&[("x-remote-user", "kcp-admin")], claimed(0)).unwrap();
    assert_eq!(fine.code, 200);
}

/// Returns the answers of the calls about a workspace: code and text.
fn answers(server: &Server, token: &str, workspace: &str) -> Vec<(Code, String)> {
    let channel = grpc::channel(server, &Who::Anonymous);
    let mut workspaces = WorkspaceServiceClient::with_origin(channel.clone(), grpc::origin(server));
    let mut conversions = ConversionServiceClient::with_origin(channel, grpc::origin(server));
    let (parent, root, workspace) = (workspace.to_owned(), workspace.to_owned(), workspace.to_owned());
    let list = ListWorkspacesRequest {
        parent,
        ..ListWorkspacesRequest::default()
    };
    let tree = TreeWorkspacesRequest { root, max_depth: 1 };
    let validate = ValidateRequest {
        workspace: workspace.clone(),
        ..ValidateRequest::default()
    };
    let stored = StoredRules {
        workspace: workspace.clone(),
        schema_name: "v1.widgets.example.io".to_owned(),
    };
    let convert = ConvertRequest {
        source: Some(Source::Stored(stored)),
        ..ConvertRequest::default()
    };
    let answers = runtime().block_on(async {
        [
            workspaces
                .get_workspace(grpc::as_user(token, GetWorkspaceRequest { workspace }))
                .await
                .map(drop),
            workspaces.list_workspaces(grpc::as_user(token, list)).await.map(drop),
            workspaces.tree_workspaces(grpc::as_user(token, tree)).await.map(drop),
            conversions.validate(grpc::as_user(token, validate)).await.map(drop),
            conversions.convert(grpc::as_user(token, convert)).await.map(drop),
        ]
    });
    let told = |answer: Result<(), Status>| match answer {
        Ok(()) => (Code::Ok, String::new()),
        Err(status) => (status.code(), status.message().to_owned()),
    };
    answers.into_iter().map(told).collect()
}

/// A caller without rights in a workspace cannot learn by its path, by its cluster name or by a
/// path below it whether it exists.
#[test]
fn foreign_and_missing_workspaces_get_the_same_answer() {
    let server = shared();
    let (theirs, mine) = (owned_by(&server, "alice"), owned_by(&server, OWNER));
    let name = |path: &str| path.rsplit(':').next().unwrap().to_owned();
    // Get repeats the requested workspace name in its refusal.
    let nameless = |path: &str, answers: Vec<(Code, String)>| -> Vec<(Code, String)> {
        let word = format!("{:?}", name(path));
        answers
            .into_iter()
            .map(|(code, text)| (code, text.replace(&word, "NAME")))
            .collect()
    };
    let seen = |path: &str| nameless(path, answers(&server, "bob-token", path));
    let nowhere = seen("root:nowhere");
    assert!(
        nowhere.iter().all(|(code, _)| *code == Code::PermissionDenied),
        "{nowhere:?}"
    );
    for path in [&*theirs.path, "root:nowhere:below", &format!("{}:below", theirs.path)] {
        assert_eq!(seen(path), nowhere, "{path}");
    }
    assert_eq!(seen(&theirs.cluster), seen("0123456789abcdef"));
    // A caller with rights gets an explanation of the error.
    let own = answers(&server, "bob-token", &mine.path);
    assert_eq!(own[..3], [(); 3].map(|()| (Code::Ok, String::new())), "{own:?}");
    assert_eq!(own[3].0, Code::InvalidArgument, "{own:?}");
    assert_eq!(own[4].0, Code::NotFound, "{own:?}");
    let missing = answers(&server, "bob-token", &format!("{}:nothing", mine.path));
    assert!(missing.iter().all(|(code, _)| *code == Code::NotFound), "{missing:?}");
}

/// `Impersonate-*` has the same meaning over gRPC as over HTTP, and requires the same right.
#[test]
fn impersonation_over_grpc_needs_the_right() {
    let server = shared();
    let (mine, theirs) = (owned_by(&server, "alice"), owned_by(&server, OWNER));
    let acting = |who: &Who, token: Option<&str>, headers: &[(&'static str, &str)], root: &str| {
        let channel = grpc::channel(&server, who);
        let mut clusters = ClusterServiceClient::with_origin(channel.clone(), grpc::origin(&server));
        let mut workspaces = WorkspaceServiceClient::with_origin(channel, grpc::origin(&server));
        let metadata = || {
            let mut metadata = MetadataMap::new();
            if let Some(token) = token {
                metadata.insert("authorization", format!("Bearer {token}").parse().unwrap());
            }
            for (name, value) in headers {
                metadata.append(*name, value.parse().unwrap());
            }
            metadata
        };
        runtime().block_on(async {
            let info = Request::from_parts(metadata(), Extensions::default(), GetInfoRequest {});
            let info = clusters.get_info(info).await;
            let list = ListWorkspacesRequest {
                parent: root.to_owned(),
                ..ListWorkspacesRequest::default()
            };
            let list = Request::from_parts(metadata(), Extensions::default(), list);
            let list = workspaces.list_workspaces(list).await.map(drop);
            let caller = info.map(|info| info.into_inner().caller.unwrap_or_default().username);
            (
                caller.map_err(|status| status.code()),
                list.map_err(|status| status.code()),
            )
        })
    };
    let denied = Err(Code::PermissionDenied);
    let admin = |headers: &[(&'static str, &str)], root: &str| acting(&Who::KcpAdmin, None, headers, root);
    let alice =
        |headers: &[(&'static str, &str)], root: &str| acting(&Who::Anonymous, Some("alice-token"), headers, root);
    assert_eq!(admin(&[], &theirs.path), (Ok("kcp-admin".to_owned()), Ok(())));
    let as_alice = [("impersonate-user", "alice")];
    assert_eq!(admin(&as_alice, &mine.path), (Ok("alice".to_owned()), Ok(())));
    assert_eq!(admin(&as_alice, &theirs.path), (Ok("alice".to_owned()), denied));
    let foreign = [("impersonate-user", "prüfer")];
    assert_eq!(admin(&foreign, &theirs.path), (Ok("prüfer".to_owned()), denied));
    // An owner may impersonate names in their own workspace, which gives no right; elsewhere the
    // impersonation is refused.
    let as_friend = [("impersonate-user", "friend")];
    let no_name = Err(Code::PermissionDenied);
    assert_eq!(alice(&as_friend, &mine.path), (no_name.clone(), denied));
    assert_eq!(
        alice(&[("impersonate-user", "kcp-admin")], &theirs.path),
        (no_name.clone(), denied)
    );
    let mighty = [("impersonate-user", "alice"), ("impersonate-group", "system:masters")];
    assert_eq!(alice(&mighty, &theirs.path), (no_name, denied));
    let nobody = [("impersonate-group", "system:masters")];
    let invalid = Code::InvalidArgument;
    assert_eq!(alice(&nobody, &theirs.path), (Err(invalid), Err(invalid)));
}

/// Row 71: servers communicate through etcd. There is one port, and no API for servers alone.
#[test]
fn the_server_listens_on_one_port() {
    let server = Server::start();
    let process = format!("/proc/{}", server.pid());
    let own: BTreeSet<String> = std::fs::read_dir(format!("{process}/fd"))
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok()?.to_str().map(str::to_owned))
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let mut listening = Vec::new();
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        for line in std::fs::read_to_string(format!("{process}/net/{table}"))
            .unwrap()
            .lines()
            .skip(1)
        {
            let fields: Vec<&str> = line.split_whitespace().collect();
            // 0A is LISTEN; 07 is an unconnected UDP socket.
            if matches!(fields[3], "0A" | "07") && own.contains(fields[9]) {
                listening.push(format!("{table} {}", fields[1]));
            }
        }
    }
    let port: u16 = server.address().rsplit(':').next().unwrap().parse().unwrap();
    assert_eq!(listening, [format!("tcp 0100007F:{port:04X}")]);
}
