//! Checks of the certificates in a data directory.

use std::{fs, path::Path};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::Finding;

/// Days before its end at which a certificate is a warning. A server renews its own at its start.
const DAYS_MIN: i64 = 30;
const DAY_SECONDS: i64 = 24 * 3600;

pub(super) fn check(data_dir: &Path) -> Vec<Finding> {
    const CHECK: &str = "certificates";
    let pki = data_dir.join("pki");
    let mut files: Vec<_> = fs::read_dir(&pki)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "crt"))
        .collect();
    files.sort_unstable();
    if files.is_empty() {
        return vec![Finding::skipped(
            CHECK,
            "there are none yet; the first start creates them",
        )];
    }
    let now = crate::now().0;
    let mut earliest = i64::MAX;
    let mut findings = Vec::new();
    for file in &files {
        match look(file, now) {
            Ok(end) => earliest = earliest.min(end),
            Err(finding) => findings.push(*finding),
        }
    }
    if findings.is_empty() {
        let days = (earliest - now) / DAY_SECONDS;
        findings.push(Finding::ok(
            CHECK,
            format!("{} files, the first ends in {days} days", files.len()),
        ));
    }
    findings
}

/// Returns the end of a certificate, in seconds since 1970.
fn look(file: &Path, now: i64) -> Result<i64, Box<Finding>> {
    const CHECK: &str = "certificates";
    let shown = file.display().to_string();
    let is_ca = file.file_stem().is_some_and(|name| name == "ca");
    let problem = |detail: String, fix: String| Box::new(Finding::problem(CHECK, detail, fix));
    let renew = match is_ca {
        true => "put a new ca.crt and ca.key there, and give clients the new ca.crt".to_owned(),
        false => format!("restart the server, which renews it, or remove {shown} first"),
    };
    let der = CertificateDer::from_pem_file(file);
    let der = der.map_err(|error| problem(format!("{shown} cannot be read: {error}"), renew.clone()))?;
    let parsed = X509Certificate::from_der(&der);
    let (_, parsed) = parsed.map_err(|error| problem(format!("{shown} is malformed: {error}"), renew.clone()))?;
    let (begin, end) = (
        parsed.validity().not_before.timestamp(),
        parsed.validity().not_after.timestamp(),
    );
    if begin > now {
        let detail = format!("{shown} is not valid yet");
        return Err(problem(
            detail,
            "set the clock of this machine, which is behind".to_owned(),
        ));
    }
    if end <= now {
        return Err(problem(format!("{shown} has expired"), renew));
    }
    let key = file.with_extension("key");
    if key.exists() {
        let read = PrivateKeyDer::from_pem_file(&key);
        let read =
            read.map_err(|error| problem(format!("{} cannot be read: {error}", key.display()), renew.clone()))?;
        let fits = rustls::crypto::aws_lc_rs::sign::any_supported_type(&read).is_ok_and(|key| {
            let public = key.public_key();
            public.is_none_or(|public| public.as_ref() == parsed.public_key().raw)
        });
        if !fits {
            return Err(problem(format!("{} does not fit {shown}", key.display()), renew));
        }
    }
    if end - now < DAYS_MIN * DAY_SECONDS {
        let days = (end - now) / DAY_SECONDS;
        return Err(Box::new(Finding::warning(
            CHECK,
            format!("{shown} ends in {days} days"),
            renew,
        )));
    }
    Ok(end)
}
