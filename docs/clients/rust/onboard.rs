//! Onboards a tenant: creates a workspace for a provider and one for the tenant, publishes an API
//! in the first, binds it in the second, and watches the rollout until the tenant serves it.
//!
//! `cargo run --example onboard https://127.0.0.1:6443 .insula/pki lamps.json acme`
use std::{env::args, error::Error, fs, io::Write, path::Path, time::Duration};

use insula_proto::admin::v1::{
    BindApiRequest, CreateWorkspaceRequest, GetExportRequest, PublishApiRequest, api_service_client::ApiServiceClient,
    workspace_service_client::WorkspaceServiceClient,
};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = args().skip(1).collect();
    let [url, pki, definition, tenant] = &words[..] else {
        return Err("usage: onboard URL PKI DEFINITION TENANT".into());
    };
    let done = onboard(url, Path::new(pki), &fs::read_to_string(definition)?, tenant).await?;
    Ok(writeln!(std::io::stdout(), "{done}")?)
}

pub(crate) async fn onboard(url: &str, pki: &Path, definition: &str, tenant: &str) -> Result<String, Box<dyn Error>> {
    let pem = |name: &str| fs::read(pki.join(name));
    let own = Identity::from_pem(pem("kcp-admin.crt")?, pem("kcp-admin.key")?);
    let tls = ClientTlsConfig::new().identity(own);
    let tls = tls.ca_certificate(Certificate::from_pem(pem("ca.crt")?));
    let channel = Channel::from_shared(url.to_owned())?.tls_config(tls)?.connect().await?;
    let mut workspaces = WorkspaceServiceClient::new(channel.clone());
    let mut apis = ApiServiceClient::new(channel);

    let mut provider = CreateWorkspaceRequest::default();
    (provider.name, provider.wait) = (format!("{tenant}-provider"), true);
    let mut home = provider.clone();
    home.name = tenant.to_owned();
    let created = workspaces.create_workspace(provider).await?.into_inner();
    let provider = created.workspace.unwrap_or_default().path;
    let created = workspaces.create_workspace(home).await?.into_inner();
    let home = created.workspace.unwrap_or_default().path;

    let mut publish = PublishApiRequest::default();
    publish.workspace.clone_from(&provider);
    publish.manifests = vec![insula_proto::value::from_json(&serde_json::from_str(definition)?)?];
    let published = apis.publish_api(publish).await?.into_inner();
    let published = published.export.unwrap_or_default();
    let (export, release) = (published.name, published.rollout.unwrap_or_default().release);
    let mut bind = BindApiRequest::default();
    (bind.workspace, bind.export_workspace) = (home.clone(), provider.clone());
    bind.export.clone_from(&export);
    apis.bind_api(bind).await?;
    let (workspace, of) = (provider.clone(), export.clone());
    let request = GetExportRequest { workspace, export: of };
    loop {
        let got = apis.get_export(request.clone()).await?.into_inner().export;
        let rollout = got.and_then(|export| export.rollout).unwrap_or_default();
        if rollout.release != release {
            return Err(format!("release {} has taken the place of {release}", rollout.release).into());
        }
        match &*rollout.reason {
            // A rollout does not wait for a binding that was never served. This example does.
            "Complete" if rollout.unbound == 0 => return Ok(format!("{home} serves {export} of {provider}")),
            "Complete" | "Progressing" => {}
            reason => return Err(format!("release {release}: {reason}: {}", rollout.message).into()),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
