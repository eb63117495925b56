//! The ConfigMap `extension-apiserver-authentication`: the CA of a Kubernetes server's clients, and
//! the front proxies that may name users.

use insula_server::{Config, config::Names};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
const CLIENT_CA: &str = "client-ca-file";
const PROXY_CA: &str = "requestheader-client-ca-file";
const PROXY_NAMES: &str = "requestheader-allowed-names";

/// Time of a read. The start waits for the first one.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Period of reading again. The server reads changed files again by itself.
const PERIOD: Duration = Duration::from_secs(60);

/// The files that follow the ConfigMap.
pub(super) struct Files {
    api: Api<ConfigMap>,
    /// Key of the ConfigMap and file.
    files: Vec<(&'static str, PathBuf)>,
}

/// Completes the settings by the ConfigMap, where the operator has set nothing. Returns the files
/// to follow; None if there is no ConfigMap.
pub(super) async fn take_over(client: &Client, config: &mut Config) -> Result<Option<Files>, String> {
    let api = Api::namespaced(client.clone(), NAMESPACE);
    let Some(map) = read(&api).await? else { return Ok(None) };
    let directory = config.data_dir.join("delegate");
    let mut files = Vec::new();
    let value = |key: &str| {
        map.data
            .as_ref()
            .and_then(|data| data.get(key))
            .filter(|text| !text.is_empty())
    };
    if let (None, Some(ca)) = (&config.tls.client_ca_file, value(CLIENT_CA)) {
        let file = directory.join("client-ca.crt");
        write(&file, ca).map_err(|error| error.to_string())?;
        config.tls.client_ca_file = Some(file.clone());
        files.push((CLIENT_CA, file));
    }
    let names = value(PROXY_NAMES).and_then(|names| serde_json::from_str::<Vec<String>>(names).ok());
    match (&config.front_proxy.ca_file, value(PROXY_CA), names.unwrap_or_default()) {
        (Some(_), _, _) | (None, None, _) => {}
        // An empty list means any certificate of the CA there. Here it names nobody.
        (None, Some(_), names) if names.is_empty() => {
            tracing::warn!("{NAME} has no {PROXY_NAMES}: front proxies of the delegate do not count here");
        }
        (None, Some(ca), names) => {
            let file = directory.join("front-proxy-ca.crt");
            write(&file, ca).map_err(|error| error.to_string())?;
            config.front_proxy.ca_file = Some(file.clone());
            config.front_proxy.allowed_names = Names(names);
            files.push((PROXY_CA, file));
        }
    }
    Ok(Some(Files { api, files }))
}

async fn read(api: &Api<ConfigMap>) -> Result<Option<ConfigMap>, String> {
    match time::timeout(TIME_MAX, api.get_opt(NAME)).await {
        Ok(read) => read.map_err(|error| format!("{NAMESPACE}/{NAME}: {error}")),
        Err(_) => Err(format!("{NAMESPACE}/{NAME}: no answer")),
    }
}

/// Writes a file that is never seen half-written.
fn write(file: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let new = file.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(&new, file)
}

impl Files {
    /// Writes the files anew when the ConfigMap changes.
    pub(super) async fn follow(self) {
        loop {
            time::sleep(PERIOD).await;
            match read(&self.api).await {
                Ok(map) => self.update(&map.unwrap_or_default()),
                Err(why) => tracing::warn!(why, "the CA of the delegate stays as it was"),
            }
        }
    }

    fn update(&self, map: &ConfigMap) {
        for (key, file) in &self.files {
            let ca = map
                .data
                .as_ref()
                .and_then(|data| data.get(*key))
                .filter(|text| !text.is_empty());
            // Without a CA the last one stays: a ConfigMap that is being replaced locks nobody out.
            let Some(ca) = ca else { continue };
            if fs::read_to_string(file).is_ok_and(|known| known == *ca) {
                continue;
            }
            if let Err(error) = write(file, ca) {
                tracing::warn!(file = %file.display(), %error, "the CA of the delegate stays as it was");
            }
        }
    }
}
