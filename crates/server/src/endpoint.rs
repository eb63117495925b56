//! The server as clients reach it: its URL, its certificates, and the administrator's kubeconfig
//! that holds both.

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use insula_api::{Clock, Timestamp};
use insula_edge::port::tls::CurrentTls;
use insula_registry::Trust;

use crate::{
    Background, StartError, addresses,
    certificates::{Alarm, Certificates, Contents, Files},
    config::{Config, ExternalUrl, is_dns_name},
    identity::{self, FrontProxies, Identity},
    kubeconfig,
    metrics::Metrics,
    shared_keys,
};

/// Time between checks of the server's own certificates, which are renewed a month before they
/// expire.
const RENEWAL_PERIOD: Duration = Duration::from_secs(6 * 3600);

/// Certificates that were read and checked, before the port is bound.
pub(crate) struct Endpoint {
    pub(crate) identity: Identity,
    /// The CA under which extension servers are called.
    pub(crate) front_proxies: Arc<FrontProxies>,
    /// The CA that clients trust; empty where their machines trust it.
    pub(crate) trust: Trust,
    /// The last failed reload of the files.
    pub(crate) alarm: Arc<Alarm>,
    pub(crate) kubeconfig: PathBuf,
    names: Vec<String>,
    files: Files,
    certificates: Certificates,
    contents: Contents,
}

impl Endpoint {
    /// Reads the certificates, and makes those that are missing or out of date.
    ///
    /// # Errors
    /// Fails when a certificate or key cannot be read, made or used.
    pub(crate) fn prepare(config: &Config, listen: SocketAddr, now: Timestamp) -> Result<Self, StartError> {
        if let Some(keys) = &config.shared_keys {
            shared_keys::copy(keys, &config.data_dir)?;
        }
        let names = names(config, listen);
        let identity = identity::ensure(&config.data_dir, &names, now)?;
        let files = Files::new(config, &identity, &url(config, listen).host);
        let (certificates, contents) = files.read(now)?;
        let given = config.kubeconfig.clone();
        let users = std::iter::once(&identity.ca).chain(&config.tls.client_ca_file);
        let front_proxies = FrontProxies::open(&config.data_dir, users, now)?;
        let trust = Trust::default();
        trust.set(certificates.trust.as_deref().unwrap_or_default());
        Ok(Endpoint {
            identity,
            front_proxies: Arc::new(front_proxies),
            trust,
            alarm: Arc::default(),
            kubeconfig: given.unwrap_or_else(|| kubeconfig::default_path(&config.data_dir)),
            names,
            files,
            certificates,
            contents,
        })
    }

    /// Writes the kubeconfig. Returns the TLS configuration of the port, and the tasks that renew
    /// and reload certificates.
    ///
    /// # Errors
    /// Fails when the kubeconfig cannot be written.
    pub(crate) fn announce(
        self,
        config: &Config,
        url: &str,
        metrics: &Arc<Metrics>,
        clock: &Arc<dyn Clock>,
    ) -> Result<(Arc<CurrentTls>, Vec<Background>), StartError> {
        let Certificates { tls, trust, not_after } = self.certificates;
        let own = Arc::new(Own {
            data_dir: config.data_dir.clone(),
            names: self.names,
            kubeconfig: self.kubeconfig,
            content: Mutex::new(kubeconfig::Content {
                url: url.to_owned(),
                trust: None,
                data_dir: config.data_dir.clone(),
            }),
        });
        own.write(&self.identity, Some(trust))?;
        metrics.certificate_expires(not_after);
        let tls = Arc::new(CurrentTls::new(tls));
        let (metrics, clock) = (Arc::clone(metrics), Arc::clone(clock));
        let renewing = Arc::clone(&own).renew(Arc::clone(&clock));
        let identity = self.identity;
        let shared = self.trust;
        let trusted = move |trust: Option<String>| {
            shared.set(trust.as_deref().unwrap_or_default());
            if let Err(error) = own.write(&identity, Some(trust)) {
                tracing::warn!(%error, "the kubeconfig does not have the new CA");
            }
        };
        let shown = (Arc::clone(&tls), trusted);
        let following = self.files.follow(self.contents, shown, self.alarm, metrics, clock);
        let tasks: Vec<Background> = vec![Box::pin(renewing), Box::pin(async { match following.await {} })];
        Ok((tls, tasks))
    }
}

/// Certificates that the server makes, and the kubeconfig with them.
struct Own {
    data_dir: PathBuf,
    names: Vec<String>,
    kubeconfig: PathBuf,
    /// Locked while the file is written.
    content: Mutex<kubeconfig::Content>,
}

impl Own {
    /// Writes the kubeconfig, with another CA if there is one.
    fn write(&self, identity: &Identity, trust: Option<Option<String>>) -> Result<(), StartError> {
        // The content is whole even after a panic.
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(trust) = trust {
            content.trust = trust;
        }
        kubeconfig::write(&self.kubeconfig, &content, identity)
    }

    /// Renews them before they expire, for as long as it runs. The port follows their files.
    async fn renew(self: Arc<Self>, clock: Arc<dyn Clock>) {
        loop {
            tokio::time::sleep(RENEWAL_PERIOD).await;
            // A few small files: not worth a thread.
            let renewed = identity::ensure(&self.data_dir, &self.names, clock.now());
            let written = renewed.and_then(|identity| self.write(&identity, None));
            if let Err(error) = written {
                tracing::warn!(%error, "the server's own certificates are not renewed");
            }
        }
    }
}

/// Returns the URL under which clients reach the server.
pub(crate) fn url(config: &Config, listen: SocketAddr) -> ExternalUrl {
    let configured = config.external_url.as_deref().map(ExternalUrl::parse);
    // A wrong URL was refused with the settings.
    configured
        .and_then(Result::ok)
        .unwrap_or_else(|| addresses::url(listen))
}

/// Returns the names of the certificate besides the loopback names: the listen address, the name of
/// the machine, its addresses if the server listens on all of them, the host of the URL, and those
/// of the settings.
fn names(config: &Config, listen: SocketAddr) -> Vec<String> {
    let host = config
        .listen
        .rsplit_once(':')
        .map(|(host, _)| host.trim_matches(['[', ']']))
        .filter(|host| !host.is_empty());
    // A file of Linux; on other systems the name can be given in `tls.names`.
    let machine = std::fs::read_to_string(Path::new("/proc/sys/kernel/hostname")).ok();
    let machine = machine.as_deref().map(str::trim).filter(|name| is_dns_name(name));
    let addresses = match listen.ip().is_unspecified() {
        true => addresses::of_machine(),
        false => vec![listen.ip()],
    };
    host.into_iter()
        .chain(machine)
        .map(str::to_owned)
        .chain(addresses.iter().map(IpAddr::to_string))
        .chain([url(config, listen).host])
        .chain(config.hosts().map(|hosts| hosts.wildcard()))
        .chain(config.tls.names.0.iter().cloned())
        .collect()
}
