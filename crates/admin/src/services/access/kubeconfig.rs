//! Kubeconfigs of workspaces: self-contained, with the server's CA in them.

use crate::{
    api_request::{ApiRequest, ObjectPath},
    host::{CertificateEnd, blocking},
    session::{AdminService, Located, Session},
    status::{self, Fault},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use insula_api::{ClusterName, Timestamp};
use insula_apiserver::call::NotCertifiable;
use insula_auth::{Attributes, GROUP_AUTHENTICATED};
use insula_catalog::locate;
use insula_proto::admin::v1::{ErrorReason, GetKubeconfigRequest, GetKubeconfigResponse};
use serde_json::{Value, json};
use std::sync::Arc;
use tonic::{Code, Request, Response, Status};

/// Lifetimes of tokens and certificates, in seconds.
const SECONDS_DEFAULT: i64 = 3_600;
const SECONDS_MIN: i64 = 600;
const SECONDS_MAX: i64 = 86_400;

/// Bytes of a name, and groups, of a certificate.
const NAME_BYTES_MAX: usize = 256;
const GROUPS_MAX: usize = 64;

/// A credential with the name that the kubeconfig gives it.
struct Credential {
    name: String,
    /// Lines of the user's entry: field and value.
    fields: Vec<(&'static str, String)>,
    end: Option<Timestamp>,
}

impl AdminService {
    pub(super) async fn kubeconfig(
        &self,
        request: Request<GetKubeconfigRequest>,
    ) -> Result<Response<GetKubeconfigResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let Located { cluster, .. } = session.locate(&request.workspace, &Attributes::entering())?;
        let account = &*request.token_for_service_account;
        let wants_token = !account.is_empty();
        let token_seconds = lifetime(
            request.token_seconds,
            "token_seconds",
            wants_token,
            "token_for_service_account",
        )?;
        let certificate = (request.certificate_seconds, request.client_certificate);
        let certificate_seconds = lifetime(
            certificate.0,
            "certificate_seconds",
            certificate.1,
            "client_certificate",
        )?;
        let credential = match (account, request.client_certificate) {
            ("", false) => None,
            ("", true) => Some(self.certificate(&session, certificate_seconds).await?),
            (_, true) => {
                return Err(status::invalid(
                    "client_certificate",
                    "excludes token_for_service_account",
                ));
            }
            (account, false) => Some(token(&session, &cluster, account, token_seconds).await?),
        };
        let registry = self.registry();
        let path = locate::path_of(&session.snapshot, &cluster);
        let server = format!("{}/clusters/{path}", registry.external_url);
        let end = credential.as_ref().and_then(|credential| credential.end);
        Ok(Response::new(GetKubeconfigResponse {
            header: session.header(),
            kubeconfig: render(path.as_str(), &server, &registry.trust.present(), credential.as_ref()),
            expire_time: end.map(|at| prost_types::Timestamp {
                seconds: at.0,
                nanos: 0,
            }),
        }))
    }

    /// Makes a certificate of the user as whom the caller acts.
    async fn certificate(&self, session: &Session, seconds: i64) -> Result<Credential, Status> {
        let cannot = |why: &str| {
            let text = format!("client_certificate: {why}");
            Fault::new(Code::FailedPrecondition, ErrorReason::WrongState, text).status()
        };
        let user = session.caller.certifiable().map_err(|refused| match refused {
            NotCertifiable::Forbidden(refused) => {
                session.caller.record().refused(&refused.message);
                status::forbidden(refused)
            }
            NotCertifiable::Because(why) => cannot(why),
        })?;
        let name = user.name.clone();
        let groups = user.groups.iter().filter(|group| *group != GROUP_AUTHENTICATED);
        let groups: Vec<String> = groups.cloned().collect();
        let fits = |text: &String| (1..=NAME_BYTES_MAX).contains(&text.len());
        if groups.len() > GROUPS_MAX || !fits(&name) || !groups.iter().all(fits) {
            return Err(cannot(&format!(
                "a certificate has at most {GROUPS_MAX} groups, and names of {NAME_BYTES_MAX} bytes"
            )));
        }
        // A certificate cannot prolong itself: what it gets ends with it.
        let end = Timestamp(self.registry().clock.now().0 + seconds);
        let end = CertificateEnd {
            at: session.caller.certificate_end().map_or(end, |own| own.min(end)),
            mark: self.api.credential_mark(&session.caller),
        };
        let (host, of) = (Arc::clone(&self.host), name.clone());
        let signed = blocking(&*self.host, move || host.sign_client(&of, &groups, end)).await?;
        let signed = signed.map_err(|why| cannot(&why))?;
        Ok(Credential {
            name,
            fields: vec![
                ("client-certificate-data", STANDARD.encode(signed.certificate)),
                ("client-key-data", STANDARD.encode(signed.key)),
            ],
            end: Some(signed.not_after),
        })
    }
}

/// Reads a lifetime in seconds. `wanted` is true if the request asks for the credential.
fn lifetime(given: i64, field: &str, wanted: bool, needs: &str) -> Result<i64, Status> {
    match (given, wanted) {
        (0, _) => Ok(SECONDS_DEFAULT),
        (_, false) => Err(status::invalid(field, format!("needs {needs}"))),
        (SECONDS_MIN..=SECONDS_MAX, true) => Ok(given),
        _ => {
            let why = format!("must be between {SECONDS_MIN} and {SECONDS_MAX}");
            Err(status::invalid(field, why))
        }
    }
}

/// Makes a token of a service account of a workspace.
async fn token(session: &Session, cluster: &ClusterName, account: &str, seconds: i64) -> Result<Credential, Status> {
    let (namespace, name) = account
        .split_once('/')
        .filter(|(namespace, name)| is_name(namespace) && is_name(name))
        .ok_or_else(|| status::invalid("token_for_service_account", "write <namespace>/<name>"))?;
    let path = ObjectPath {
        version: "v1",
        resource: "serviceaccounts",
        namespace,
        name,
        subresource: "token",
        ..ObjectPath::default()
    };
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": seconds}});
    let answer = session
        .run(ApiRequest::create(path.in_cluster(cluster), &asked))
        .await?;
    let token = answer["status"]["token"].as_str();
    let token = token.ok_or_else(|| Status::internal("the server issued no token"))?;
    let end = answer["status"]["expirationTimestamp"].as_str();
    Ok(Credential {
        name: account.replace('/', ":"),
        fields: vec![("token", token.to_owned())],
        end: end.and_then(Timestamp::parse),
    })
}

/// Returns true for a text that can be the name of a namespace or an account.
fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    !text.is_empty() && text.len() <= 253 && text.chars().all(fits)
}

/// Renders the kubeconfig.
fn render(name: &str, server: &str, ca: &str, credential: Option<&Credential>) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    let context = quoted(name);
    let mut text = format!(
        "apiVersion: v1\nkind: Config\npreferences: {{}}\ncurrent-context: {context}\nclusters:\n- name: {context}\n  \
         cluster:\n    server: {}\n",
        quoted(server)
    );
    if !ca.is_empty() {
        text += &format!("    certificate-authority-data: {}\n", quoted(&STANDARD.encode(ca)));
    }
    let own = quoted(credential.map_or("you", |credential| &credential.name));
    text += &format!("contexts:\n- name: {context}\n  context:\n    cluster: {context}\n    user: {own}\nusers:\n");
    text += &format!("- name: {own}\n");
    match credential {
        Some(credential) => {
            text += "  user:\n";
            for (field, value) in &credential.fields {
                text += &format!("    {field}: {}\n", quoted(value));
            }
        }
        None => text += "  user: {}\n",
    }
    text
}
