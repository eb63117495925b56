//! `insula kubeconfig`: a kubeconfig for one workspace that needs no other file.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use insula_auth::ec_key::for_kubeconfig;
use serde_json::{Value, json};

use crate::{
    client::{Client, credentials::pem, message},
    connection::{Connection, Resolved},
    duration,
    files::text,
    kubeconfig::{self, Entry, write_document},
    print, workspace,
};

/// Prints a kubeconfig for the workspace, with the certificate of its authority and the credentials
/// of the user, that works on any machine that reaches the server.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  insula kubeconfig -W root:acme --token \"$TOKEN\" --output bob.kubeconfig
  insula kubeconfig -W root:acme --service-account robot --duration 24h --output robot.kubeconfig

Who has the file has the rights of its user: pass it on as you would a key.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// The file to write, readable by you only; - is standard output.
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// The context [default: the path of the workspace].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// A service account of the workspace, [NAMESPACE/]NAME, in place of the user: a token is
    /// requested for it.
    #[arg(long, value_name = "ACCOUNT", conflicts_with = "token")]
    service_account: Option<String>,
    /// Time that the token of the service account is valid.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration::parse)]
    duration: Duration,
}

pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    crate::ended(run(arguments).map(|()| ExitCode::SUCCESS))
}

/// Formats of other commands' `-o`, which is the file here.
const FORMATS: [&str; 3] = ["json", "name", "yaml"];

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let output = &arguments.output;
    if let Some(format) = FORMATS.iter().find(|format| output.as_os_str() == **format) {
        bail!("-o names the file here, and the kubeconfig is YAML: leave it out, or write -o ./{format} for that file");
    }
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        bail!("there is no folder {} for {}", folder.display(), output.display());
    }
    let resolved = arguments.connection.resolve()?;
    let path = resolved.url.current()?.to_owned();
    let (user, name) = match &arguments.service_account {
        Some(account) => (account_token(&resolved, account, arguments.duration)?, account.as_str()),
        None => {
            let flags = &arguments.connection.server;
            let own = flags.user.as_deref().or(resolved.context.text("user"));
            let name = if flags.token.is_some() { None } else { own };
            workspace::check(&resolved)?;
            (credentials(&resolved.user)?, name.unwrap_or("user"))
        }
    };
    let context = arguments.name.as_deref().unwrap_or(&path);
    let document = document(&resolved, context, name, user)?;
    if output.as_os_str() == "-" {
        return print::raw(&kubeconfig::text(&document)?);
    }
    if output.exists() {
        bail!("{} is there already", output.display());
    }
    write_document(output, &document)?;
    eprintln!("wrote {}: context {context}, user {name}", output.display());
    Ok(())
}

fn document(resolved: &Resolved, context: &str, name: &str, user: Value) -> anyhow::Result<Value> {
    let cluster = &resolved.cluster;
    let mut content = json!({"server": cluster.content["server"]});
    if let Some(ca) = pem(cluster, "certificate-authority")? {
        content["certificate-authority-data"] = json!(STANDARD.encode(ca));
    }
    for kept in ["tls-server-name", "insecure-skip-tls-verify", "proxy-url"] {
        if !cluster.content[kept].is_null() {
            content[kept] = cluster.content[kept].clone();
        }
    }
    let mut of_context = json!({"cluster": context, "user": name});
    if let Some(namespace) = resolved.context.text("namespace") {
        of_context["namespace"] = json!(namespace);
    }
    Ok(json!({
        "apiVersion": "v1", "kind": "Config", "current-context": context,
        "clusters": [{"name": context, "cluster": content}],
        "contexts": [{"name": context, "context": of_context}],
        "users": [{"name": name, "user": user}],
    }))
}

/// Returns the user's credentials with the contents of their files.
fn credentials(user: &Entry) -> anyhow::Result<Value> {
    let mut content = user.content.clone();
    let Value::Object(fields) = &mut content else {
        return Ok(json!({}));
    };
    for field in ["client-certificate", "client-key"] {
        if let Some(pem) = pem(user, field)? {
            let pem = match str::from_utf8(&pem) {
                Ok(text) => for_kubeconfig(text).into_owned().into_bytes(),
                Err(_) => pem,
            };
            fields.remove(field);
            fields.insert(format!("{field}-data"), json!(STANDARD.encode(pem)));
        }
    }
    if let Some(file) = user.text("tokenFile") {
        let path = user.folder.join(file);
        let token = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        fields.remove("tokenFile");
        fields.insert("token".to_owned(), json!(token.trim()));
    }
    if fields.is_empty() {
        bail!("the user has no credentials to write: give --token, --user or --service-account");
    }
    Ok(content)
}

fn account_token(resolved: &Resolved, account: &str, duration: Duration) -> anyhow::Result<Value> {
    let (namespace, name) = account.split_once('/').unwrap_or(("default", account));
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": duration.as_secs()},
    });
    let client = Client::new(resolved)?;
    let (code, answer) = crate::runtime()?.block_on(client.post(&path, &request))?;
    if !code.is_success() {
        bail!("no token for service account {namespace}/{name}: {}", message(&answer));
    }
    Ok(json!({"token": text(&answer, "/status/token")}))
}
