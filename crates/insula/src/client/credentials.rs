//! Trust and identity of a client, from the cluster and the user of a kubeconfig.

use std::{process::Command, sync::Arc};

use anyhow::{Context, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, header::AUTHORIZATION};
use insula_server::AnyServer;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::{Value, json};

use super::certificate::{Shown, whose};
use crate::kubeconfig::Entry;

/// Credentials of a user, ready to use.
pub(super) struct Credentials {
    pub(super) tls: ClientConfig,
    /// Headers of every request.
    pub(super) headers: HeaderMap,
    /// The client certificate, for users that have one and no token.
    pub(super) shown: Option<Shown>,
}

/// Returns the TLS settings, and the headers of every request.
///
/// # Errors
/// A file cannot be read, a certificate or key is malformed, or the user's program fails.
pub(super) fn tls(cluster: &Entry, user: &Entry) -> anyhow::Result<Credentials> {
    insula_server::install_provider();
    let builder = if cluster.content["insecure-skip-tls-verify"] == true {
        let provider = CryptoProvider::get_default().context("no cryptography")?.clone();
        ClientConfig::builder()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer(provider)))
    } else {
        ClientConfig::builder().with_root_certificates(roots(cluster)?)
    };
    let made = match user.content["exec"].as_object() {
        Some(_) => Some(run(user)?),
        None => None,
    };
    let user = made.as_ref().unwrap_or(user);
    check_kind(user)?;
    let (tls, shown) = match certificate(user)? {
        Some((chain, shown)) => {
            let whose = whose(user);
            let key = pem(user, "client-key")?
                .with_context(|| format!("{whose} has a client certificate without a client key"))?;
            let key = PrivateKeyDer::from_pem_slice(&key)
                .with_context(|| format!("the client key of {whose} cannot be read"))?;
            let tls = builder.with_client_auth_cert(chain, key);
            let tls = tls.with_context(|| {
                format!("the client key of {whose} does not fit the client certificate: take both of one user")
            })?;
            (tls, Some(shown))
        }
        None => (builder.with_no_client_auth(), None),
    };
    Ok(Credentials {
        tls,
        headers: headers(user)?,
        shown,
    })
}

/// Returns the client certificate that a user shows; `None` for one with a token, and without one.
pub(crate) fn certificate(user: &Entry) -> anyhow::Result<Option<(Vec<CertificateDer<'static>>, Shown)>> {
    let Some(chain) = pem(user, "client-certificate")?.filter(|_| !has_token(user)) else {
        return Ok(None);
    };
    let whose = whose(user);
    let chain = certificates(&chain).with_context(|| format!("the client certificate of {whose}"))?;
    let first = chain
        .first()
        .with_context(|| format!("the client certificate of {whose} is empty"))?;
    let shown = Shown::read(user, first)?;
    Ok(Some((chain, shown)))
}

fn has_token(user: &Entry) -> bool {
    user.text("token").is_some() || user.text("tokenFile").is_some()
}

/// Refuses credentials that would silently count for nothing.
fn check_kind(user: &Entry) -> anyhow::Result<()> {
    for field in ["username", "auth-provider"] {
        if !user.content[field].is_null() {
            bail!(
                "{} has {field}, which is not supported: take a client certificate, a token or an exec plugin",
                whose(user)
            );
        }
    }
    Ok(())
}

/// Returns the certificates to trust: those of the cluster, else those of the machine.
fn roots(cluster: &Entry) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    match pem(cluster, "certificate-authority")? {
        Some(ca) => {
            for certificate in certificates(&ca)? {
                roots
                    .add(certificate)
                    .context("the certificate authority of the cluster")?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    Ok(roots)
}

fn token(user: &Entry) -> anyhow::Result<Option<String>> {
    if let Some(token) = user.text("token") {
        return Ok(Some(token.to_owned()));
    }
    let Some(file) = user.text("tokenFile") else {
        return Ok(None);
    };
    let path = user.folder.join(file);
    let token = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Some(token.trim().to_owned()))
}

fn headers(user: &Entry) -> anyhow::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    if let Some(token) = token(user)? {
        let mut value = HeaderValue::try_from(format!("Bearer {token}")).context("the token cannot be sent")?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let sendable = |text: &str| HeaderValue::try_from(text).with_context(|| format!("{text:?} cannot be sent"));
    if let Some(name) = user.text("as") {
        headers.insert(HeaderName::from_static("impersonate-user"), sendable(name)?);
    }
    for group in user.content["as-groups"].as_array().into_iter().flatten() {
        let group = sendable(group.as_str().unwrap_or_default())?;
        headers.append(HeaderName::from_static("impersonate-group"), group);
    }
    Ok(headers)
}

/// Runs the user's credential plugin, as kubectl does, and returns a user with its answer.
fn run(user: &Entry) -> anyhow::Result<Entry> {
    let exec = &user.content["exec"];
    let program = exec["command"].as_str().context("the user's exec has no command")?;
    let texts = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
    };
    let info = json!({"apiVersion": exec["apiVersion"], "kind": "ExecCredential", "spec": {"interactive": false}});
    let mut command = Command::new(program);
    command
        .args(texts(&exec["args"]))
        .env("KUBERNETES_EXEC_INFO", info.to_string());
    for variable in exec["env"].as_array().into_iter().flatten() {
        if let (Some(name), Some(value)) = (variable["name"].as_str(), variable["value"].as_str()) {
            command.env(name, value);
        }
    }
    let output = command
        .output()
        .with_context(|| format!("cannot run {program}, the user's exec"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        bail!("{program}, the user's exec, failed with {}: {why}", output.status);
    }
    let answer: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{program}, the user's exec, printed no ExecCredential"))?;
    let status = &answer["status"];
    let encoded = |field: &str| status[field].as_str().map(|pem| STANDARD.encode(pem));
    let mut content = json!({"as": user.content["as"], "as-groups": user.content["as-groups"]});
    content["token"] = status["token"].clone();
    content["client-certificate-data"] = json!(encoded("clientCertificateData"));
    content["client-key-data"] = json!(encoded("clientKeyData"));
    Ok(Entry {
        content,
        ..user.clone()
    })
}

/// Returns a PEM document that a kubeconfig names as a file, or contains as `<field>-data`.
pub(crate) fn pem(entry: &Entry, field: &str) -> anyhow::Result<Option<Vec<u8>>> {
    if let Some(data) = entry.text(&format!("{field}-data")) {
        let decoded = STANDARD.decode(data);
        return Ok(Some(decoded.with_context(|| format!("{field}-data is not base64"))?));
    }
    let Some(file) = entry.text(field) else { return Ok(None) };
    let path = entry.folder.join(file);
    let read = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()));
    read.map(Some)
}

fn certificates(pem: &[u8]) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .context("not a certificate")
}
