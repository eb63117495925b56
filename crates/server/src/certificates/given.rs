//! Files of certificates that the settings name, checked before the server makes any of its own.

use std::path::PathBuf;

use insula_api::Timestamp;

use super::{
    by_name::{ByName, PairFiles},
    certificates, check_signed, read_contents, read_named, read_pair,
    shown::{check_host, check_hosts, shown_for},
    verifier,
};
use crate::{
    StartError,
    config::{Config, TlsConfig},
};

/// Returns the pair of the settings for clients that ask for no other name.
pub(super) fn default_pair(tls: &TlsConfig) -> Option<PairFiles> {
    let (certificate, key) = tls.cert_file.clone().zip(tls.key_file.clone())?;
    Some(PairFiles {
        certificate,
        key,
        names: Vec::new(),
    })
}

/// Returns the pairs of the settings for other names.
pub(super) fn named_pairs(tls: &TlsConfig) -> Vec<PairFiles> {
    let pairs = tls.sni.0.iter().map(|pair| PairFiles {
        certificate: pair.cert_file.clone(),
        key: pair.key_file.clone(),
        names: pair.names.clone(),
    });
    pairs.collect()
}

/// Checks the files that the settings name, for a server whose URL has this host.
///
/// # Errors
/// A file cannot be read or used, as when the server reads all of them.
pub(crate) fn check(config: &Config, host: &str, now: Timestamp) -> Result<(), StartError> {
    let tls = &config.tls;
    let (default, others) = (default_pair(tls), named_pairs(tls));
    let clients: Vec<&PathBuf> = tls.client_ca_file.iter().chain(&config.front_proxy.ca_file).collect();
    let authorities = clients.iter().copied().chain(&tls.ca_file);
    let contents = read_contents(default.iter().chain(&others), authorities)?;
    for ca in clients {
        verifier(&[ca], &contents)?;
    }
    if let Some(ca) = &tls.ca_file {
        certificates(ca, &contents[ca])?;
    }
    let (named, _) = read_named(&others, &contents, now)?;
    let Some(default) = default else { return Ok(()) };
    let (key, _) = read_pair(&default, &contents, now)?;
    let shown = ByName {
        default: key,
        others: named,
    };
    let (files, chain) = shown_for(host, &shown, (&default, &others));
    check_host(host, files, chain)?;
    check_hosts(config.hosts().as_ref(), &shown, (&default, &others))?;
    match &tls.ca_file {
        Some(ca) => check_signed(ca, files, chain, &contents),
        None => Ok(()),
    }
}
