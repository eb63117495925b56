//! Kubeconfigs of workspaces: self-contained, with the server's CA in them.

use super::entering;
use crate::{
    api_request::{ApiRequest, ObjectPath},
    session::{AdminService, Located},
    status,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use insula_api::Timestamp;
use insula_catalog::locate;
use insula_proto::admin::v1::{GetKubeconfigRequest, GetKubeconfigResponse};
use serde_json::{Value, json};
use tonic::{Request, Response, Status};

/// Lifetimes of tokens, in seconds.
const SECONDS_DEFAULT: i64 = 3_600;
const SECONDS_MIN: i64 = 600;
const SECONDS_MAX: i64 = 86_400;

impl AdminService {
    pub(super) async fn kubeconfig(
        &self,
        request: Request<GetKubeconfigRequest>,
    ) -> Result<Response<GetKubeconfigResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let GetKubeconfigRequest {
            workspace,
            token_for_service_account: account,
            token_seconds,
        } = request;
        let Located { cluster, .. } = session.locate(&workspace, &entering())?;
        let seconds = match (token_seconds, account.is_empty()) {
            (0, _) => SECONDS_DEFAULT,
            (_, true) => return Err(status::invalid("token_seconds", "needs token_for_service_account")),
            (SECONDS_MIN..=SECONDS_MAX, _) => token_seconds,
            _ => {
                let why = format!("must be between {SECONDS_MIN} and {SECONDS_MAX}");
                return Err(status::invalid("token_seconds", why));
            }
        };
        let registry = self.registry();
        let path = locate::path_of(&session.snapshot, &cluster);
        let (mut user, mut expire_time) = (None, None);
        if !account.is_empty() {
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
                .http(ApiRequest::create(path.in_cluster(&cluster), &asked))
                .await?;
            let token = answer["status"]["token"].as_str();
            let token = token.ok_or_else(|| Status::internal("the server issued no token"))?;
            let expires = answer["status"]["expirationTimestamp"]
                .as_str()
                .and_then(Timestamp::parse);
            expire_time = expires.map(|at| prost_types::Timestamp {
                seconds: at.0,
                nanos: 0,
            });
            user = Some((account.replace('/', ":"), token.to_owned()));
        }
        let server = format!("{}/clusters/{path}", registry.external_url);
        Ok(Response::new(GetKubeconfigResponse {
            header: session.header(),
            kubeconfig: render(path.as_str(), &server, &registry.trust, user.as_ref()),
            expire_time,
        }))
    }
}

/// Returns true for a text that can be the name of a namespace or an account.
fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    !text.is_empty() && text.len() <= 253 && text.chars().all(fits)
}

/// Renders the kubeconfig. `user` is the name of an account and its token.
fn render(name: &str, server: &str, ca: &str, user: Option<&(String, String)>) -> String {
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
    let own = quoted(user.map_or("you", |(name, _)| name));
    text += &format!("contexts:\n- name: {context}\n  context:\n    cluster: {context}\n    user: {own}\nusers:\n");
    text += &format!("- name: {own}\n");
    text += &match user {
        Some((_, token)) => format!("  user:\n    token: {}\n", quoted(token)),
        None => "  user: {}\n".to_owned(),
    };
    text
}
