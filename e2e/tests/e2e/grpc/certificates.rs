//! Client certificates in kubeconfigs.

use std::sync::Arc;

use insula_e2e::{Server, Who, runtime, shared, until, workspace_owned_by};
use insula_proto::admin::v1::{
    AccessLevel, GetKubeconfigRequest, GetKubeconfigResponse, GrantAccessRequest, Subject, SubjectKind,
    access_service_client::AccessServiceClient,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::Value;
use tonic::{Code, Request, Status, metadata::MetadataValue};

use super::{as_user, client, reason};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn request(workspace: &str, seconds: i64) -> GetKubeconfigRequest {
    GetKubeconfigRequest {
        workspace: workspace.to_owned(),
        client_certificate: true,
        certificate_seconds: seconds,
        ..GetKubeconfigRequest::default()
    }
}

fn answered(
    server: &Server,
    who: &Who,
    request: Request<GetKubeconfigRequest>,
) -> Result<GetKubeconfigResponse, Status> {
    let mut client = client!(AccessServiceClient<_>, *server, *who);
    runtime()
        .block_on(client.get_kubeconfig(request))
        .map(tonic::Response::into_inner)
}

/// Acts as another user.
fn acting_as<T>(mut request: Request<T>, user: &str, groups: &[&str]) -> Request<T> {
    let value = |text: &str| text.parse::<MetadataValue<_>>().unwrap();
    request.metadata_mut().insert("impersonate-user", value(user));
    for group in groups {
        request.metadata_mut().append("impersonate-group", value(group));
    }
    request
}

/// Reads the ConfigMaps of a workspace with the credential of a kubeconfig. Returns the code.
fn used(server: &Server, workspace: &str, kubeconfig: &str) -> u16 {
    crate::kubeconfigs::assert_readable(kubeconfig);
    let config: Value = serde_saphyr::from_str(kubeconfig).unwrap();
    let user = &config["users"][0]["user"];
    let pem = |field: &str| {
        let text = user[field]
            .as_str()
            .unwrap_or_else(|| panic!("{field} in {kubeconfig}"));
        let bytes: k8s_openapi::ByteString = serde_json::from_value(Value::from(text)).unwrap();
        bytes.0
    };
    let (certificate, key) = (pem("client-certificate-data"), pem("client-key-data"));
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&certificate)
        .map(Result::unwrap)
        .collect();
    let mut roots = rustls::RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(server.data_dir().join("pki/ca.crt")).unwrap();
    roots.add(ca).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(&key).unwrap())
        .unwrap();
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only();
    let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new());
    let client = client.build::<_, http_body_util::Empty<bytes::Bytes>>(connector.enable_http2().build());
    let url = format!("{}/clusters/{workspace}{MAPS}", server.url());
    runtime().block_on(async { client.get(url.parse().unwrap()).await.unwrap().status().as_u16() })
}

#[test]
fn a_certificate_is_for_oneself_or_for_whom_one_may_act_as() {
    let server = shared();
    let (path, _) = workspace_owned_by(&server, "alice");
    let own = answered(&server, &Who::Anonymous, as_user("alice-token", request(&path, 600))).unwrap();
    assert!(own.expire_time.is_some());
    assert_eq!(used(&server, &path, &own.kubeconfig), 200);
    let (other, _) = workspace_owned_by(&server, "bob");
    assert_eq!(used(&server, &other, &own.kubeconfig), 403, "it is alice's");

    // A master acts as anybody; alice as nobody.
    let as_bob = acting_as(Request::new(request(&other, 0)), "bob", &["a", "b", "c"]);
    let bobs = answered(&server, &Who::ShardAdmin, as_bob).unwrap();
    assert_eq!(used(&server, &other, &bobs.kubeconfig), 200);
    assert_eq!(used(&server, &path, &bobs.kubeconfig), 403);
    let as_bob = acting_as(as_user("alice-token", request(&path, 0)), "bob", &[]);
    let refused = answered(&server, &Who::Anonymous, as_bob).unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let foreign = answered(&server, &Who::Anonymous, as_user("bob-token", request(&path, 0))).unwrap_err();
    assert_eq!(foreign.code(), Code::PermissionDenied);

    for seconds in [1, 599, 86_401, -1] {
        let refused = answered(
            &server,
            &Who::Anonymous,
            as_user("alice-token", request(&path, seconds)),
        );
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument, "{seconds}");
    }
    let both = GetKubeconfigRequest {
        token_for_service_account: "default/default".to_owned(),
        ..request(&path, 0)
    };
    let refused = answered(&server, &Who::Anonymous, as_user("alice-token", both)).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
}

/// An identity that is more than a name and groups cannot be written into a certificate: it would
/// count in more workspaces than the credential does.
#[test]
fn a_service_account_gets_no_certificate() {
    let server = shared();
    let (path, _) = workspace_owned_by(&server, "alice");
    let grant = GrantAccessRequest {
        workspace: path.clone(),
        subject: Some(Subject {
            kind: SubjectKind::ServiceAccount.into(),
            name: "default".to_owned(),
            namespace: "default".to_owned(),
        }),
        level: AccessLevel::View.into(),
        ..GrantAccessRequest::default()
    };
    let mut access = client!(AccessServiceClient<_>, server, Who::Anonymous);
    runtime()
        .block_on(access.grant_access(as_user("alice-token", grant)))
        .unwrap();
    let token = GetKubeconfigRequest {
        workspace: path.clone(),
        token_for_service_account: "default/default".to_owned(),
        ..GetKubeconfigRequest::default()
    };
    let config = answered(&server, &Who::Anonymous, as_user("alice-token", token))
        .unwrap()
        .kubeconfig;
    let config: Value = serde_saphyr::from_str(&config).unwrap();
    let robot = config["users"][0]["user"]["token"].as_str().unwrap();
    let refused = answered(&server, &Who::Anonymous, as_user(robot, request(&path, 0))).unwrap_err();
    assert_eq!(
        (refused.code(), &*reason(&refused)),
        (Code::FailedPrecondition, "WRONG_STATE"),
        "{refused:?}"
    );
}

#[test]
fn a_server_without_the_key_of_its_ca_says_so() {
    let server = Server::start();
    let (path, _) = workspace_owned_by(&server, "alice");
    std::fs::remove_file(server.data_dir().join("pki/ca.key")).unwrap();
    let refused = answered(&server, &Who::Anonymous, as_user("alice-token", request(&path, 0))).unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(
        refused.message().contains("does not hold the key of its CA"),
        "{refused:?}"
    );
    // The credential that the caller has still works.
    server
        .client(Who::Token("alice-token".to_owned()))
        .in_workspace(&path)
        .get(MAPS)
        .expect(200);
}

/// A static token that is removed from the file, or replaced there, ends within seconds, and so
/// does a certificate that was made with it: else its owner would keep access for a day.
#[test]
fn a_token_that_left_the_file_ends_with_its_certificates() {
    let server = Server::start();
    let ((path, _), (other, _)) = (workspace_owned_by(&server, "alice"), workspace_owned_by(&server, "bob"));
    let read = |token: &str, place: &str| {
        let client = server.client(Who::Token(token.to_owned())).in_workspace(place);
        client.get(MAPS).code
    };
    let made = |token: &str, place: &str| {
        answered(&server, &Who::Anonymous, as_user(token, request(place, 0)))
            .unwrap()
            .kubeconfig
    };
    let (alices, bobs) = (made("alice-token", &path), made("bob-token", &other));
    assert_eq!(used(&server, &path, &alices), 200);
    let file = server.data_dir().parent().unwrap().join("tokens.csv");
    let before = std::fs::read_to_string(&file).unwrap();
    let without = before.replace("alice-token,", "another-token,");
    assert_ne!(before, without);
    std::fs::write(&file, &without).unwrap();
    until("the token has ended", || {
        (read("alice-token", &path) == 401).then_some(())
    });
    assert_eq!(used(&server, &path, &alices), 401);
    assert_eq!((read("another-token", &path), read("bob-token", &other)), (200, 200));
    assert_eq!(used(&server, &other, &bobs), 200);
    assert_eq!(used(&server, &path, &made("another-token", &path)), 200);
    // A file with a mistake changes nothing.
    std::fs::write(&file, "bob-token\n").unwrap();
    until("the mistake is reported", || {
        server
            .log()
            .contains("the static tokens stay as they were")
            .then_some(())
    });
    assert_eq!((read("another-token", &path), read("bob-token", &other)), (200, 200));
    // The first token again: its certificate is valid again, too.
    std::fs::write(&file, &before).unwrap();
    until("the token is back", || {
        (read("alice-token", &path) == 200).then_some(())
    });
    assert_eq!(used(&server, &path, &alices), 200);
}
