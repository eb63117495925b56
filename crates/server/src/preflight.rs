//! Checks of a start before it makes anything. A setting that cannot be used is refused while the
//! data directory is as it was, so that nothing is left to clean up.

use std::net::SocketAddr;

use insula_access::Authenticator;
use insula_api::Timestamp;
use insula_auth::{audit::Policy, jwt::Issuer};

use crate::{
    StartError, audit, certificates, config::Config, endpoint, files, issuers, kubeconfig, open, run::resolve,
    shared_keys,
};

/// Parts that the checks have read.
pub(crate) struct Checked {
    /// Address to listen on.
    pub(crate) listen: SocketAddr,
    /// Authenticator of client certificates, and of the tokens of the settings.
    pub(crate) authenticator: Authenticator,
    /// Issuers of tokens that the settings name.
    pub(crate) issuers: Vec<Issuer>,
    /// Audit policy.
    pub(crate) policy: Policy,
}

/// Reads and checks everything that the settings name.
///
/// # Errors
/// A file or an address cannot be used. The message names it and the remedy.
pub(crate) async fn check(config: &Config, now: Timestamp) -> Result<Checked, StartError> {
    let listen = resolve(&config.listen).await?;
    if let Some(path) = &config.kubeconfig {
        kubeconfig::check(path, &config.data_dir)?;
    }
    let authenticator = open::authenticator(config)?;
    let issuers = issuers::read(config)?;
    if let Some(cause) = config.console_login.mismatch(&issuers) {
        return Err(StartError::ConsoleLogin(cause));
    }
    if let Some(path) = &config.console_login.client_secret_file {
        let secret = files::read_secret(path)?;
        secret.ok_or_else(|| StartError::read(path, std::io::ErrorKind::NotFound.into()))?;
    }
    let policy = audit::policy(&config.audit)?;
    audit::check(&config.audit)?;
    if let Some(keys) = &config.shared_keys {
        shared_keys::check(keys, now)?;
    }
    certificates::check(config, &endpoint::url(config, listen).host, now)?;
    open::check(config)?;
    Ok(Checked {
        listen,
        authenticator,
        issuers,
        policy,
    })
}
