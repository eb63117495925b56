//! The certificates that clients of the server's hosts get, and the names that they must have.

use insula_apiserver::HostPattern;
use rustls_pki_types::CertificateDer;

use super::{
    by_name::{ByName, PairFiles},
    is_named, names, refused,
};
use crate::StartError;

/// Returns the certificate that clients of the URL get, which decides about the name and the CA.
pub(super) fn shown_for<'a>(
    host: &str,
    shown: &'a ByName,
    (default, others): (&'a PairFiles, &'a [PairFiles]),
) -> (&'a PairFiles, &'a [CertificateDer<'static>]) {
    match shown.find(host) {
        Some(index) => (&others[index], &shown.others[index].key.cert),
        None => (default, &shown.default.cert),
    }
}

/// Checks that a certificate names the host of the URL.
pub(super) fn check_host(host: &str, files: &PairFiles, chain: &[CertificateDer<'static>]) -> Result<(), StartError> {
    if is_named(files, chain, host)? {
        return Ok(());
    }
    let names = names(chain);
    let cause = format!(
        "does not name {host}, which the URL of this server has. It names {names}: set externalUrl to \
         https://NAME:PORT with one of them, or get a certificate for {host}"
    );
    Err(refused(&files.certificate, cause))
}

/// Checks that the certificate that clients of the workspaces' hosts get names these hosts.
pub(super) fn check_hosts(
    hosts: Option<&HostPattern>,
    shown: &ByName,
    pairs: (&PairFiles, &[PairFiles]),
) -> Result<(), StartError> {
    let Some(wildcard) = hosts.map(HostPattern::wildcard) else {
        return Ok(());
    };
    let sample = wildcard.replace('*', "any");
    let (files, chain) = shown_for(&sample, shown, pairs);
    if is_named(files, chain, &sample)? {
        return Ok(());
    }
    let names = names(chain);
    let cause = format!(
        "does not name {wildcard}, the hosts of workspaces by `hostPattern`. It names {names}: list a certificate \
         for {wildcard} in `tls.sni`"
    );
    Err(refused(&files.certificate, cause))
}
