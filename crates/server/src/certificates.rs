//! Certificates of the server's port: read at the start, and again when their files change. Clients
//! that ask for a name get the certificate for it.
//!
//! Files are read and compared, not watched: a mounted Secret changes by a symbolic link above
//! them, which a watch of the files does not notice. A change that cannot be used (a certificate
//! without its key, one that has expired, one that lacks the server's name) changes nothing: new
//! connections get what was good before, and `/readyz?verbose`, a metric and the log say why.

mod by_name;
mod given;
mod shown;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fs,
    net::IpAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use insula_api::{Clock, Timestamp};
use insula_apiserver::HostPattern;
use insula_edge::port::tls::{self, CurrentTls, Proxies, Tls};
use rustls::{
    Error as TlsError, InconsistentKeys, RootCertStore,
    client::{verify_server_cert_signed_by_trust_anchor, verify_server_name},
    crypto::aws_lc_rs,
    server::{ParsedCertificate, WebPkiClientVerifier, danger::ClientCertVerifier},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

pub(crate) use self::given::check;
use self::{
    by_name::{ByName, Pair, PairFiles},
    shown::{check_host, check_hosts, shown_for},
};
use crate::{
    StartError,
    config::{Config, is_dns_name},
    identity::Identity,
    metrics::Metrics,
    rotating::wrong,
};

/// Period of reading the files. A mount changes within a minute or two of its Secret.
const PERIOD: Duration = Duration::from_secs(5);
/// Mode bits of a key that everybody can read. Kubernetes mounts Secrets for a group (`fsGroup`).
const WORLD: u32 = 0o007;

/// Files of the port's certificates, and the host that they have to name.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    /// The pair for clients that ask for no name, or for one that no other pair is for.
    default: PairFiles,
    /// Pairs for other names.
    others: Vec<PairFiles>,
    /// CA of the certificate for `host`, if the operator names it.
    ca: Option<PathBuf>,
    /// CAs of users: our own, and that of the operator.
    users: Vec<PathBuf>,
    /// CA and common names of front proxies.
    proxies: Option<(PathBuf, Vec<String>)>,
    own_ca: PathBuf,
    /// Host of the external URL.
    host: String,
    /// Hosts of workspaces.
    hosts: Option<HostPattern>,
}

/// The last failed reload, for health.
#[derive(Debug, Default)]
pub(crate) struct Alarm(Mutex<Option<String>>);

/// Contents of the files by path.
pub(crate) type Contents = BTreeMap<PathBuf, Vec<u8>>;

/// Parsed certificates of the files.
pub(crate) struct Certificates {
    pub(crate) tls: Tls,
    /// PEM text of the CA that clients of this server trust; `None` if their machines trust it.
    pub(crate) trust: Option<String>,
    /// Last second in which all certificates are valid.
    pub(crate) not_after: Timestamp,
}

impl Alarm {
    /// Returns the reason why the newest files are not in use.
    pub(crate) fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, reason: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }
}

impl Files {
    /// Returns the files of a configuration.
    pub(crate) fn new(config: &Config, identity: &Identity, host: &str) -> Self {
        let (tls, proxy) = (&config.tls, &config.front_proxy);
        let own = || PairFiles {
            certificate: identity.server.certificate.clone(),
            key: identity.server.key.clone(),
            names: Vec::new(),
        };
        Files {
            default: given::default_pair(tls).unwrap_or_else(own),
            others: given::named_pairs(tls),
            ca: tls.ca_file.clone(),
            users: std::iter::once(identity.ca.clone())
                .chain(tls.client_ca_file.clone())
                .collect(),
            proxies: proxy.ca_file.clone().map(|ca| (ca, proxy.allowed_names.0.clone())),
            own_ca: identity.ca.clone(),
            host: host.to_owned(),
            hosts: config.hosts(),
        }
    }

    /// Reads the files.
    ///
    /// # Errors
    /// Fails when a file cannot be read, a certificate is not valid now, does not fit its key or
    /// does not name the host or the names that it is for.
    pub(crate) fn read(&self, now: Timestamp) -> Result<(Certificates, Contents), StartError> {
        let contents = self.contents()?;
        Ok((self.parse(&contents, now)?, contents))
    }

    /// Follows the files for as long as it runs. Calls `trusted` with the CA that clients trust
    /// from then on.
    pub(crate) async fn follow(
        self,
        mut used: Contents,
        (current, trusted): (Arc<CurrentTls>, impl Fn(Option<String>)),
        alarm: Arc<Alarm>,
        metrics: Arc<Metrics>,
        clock: Arc<dyn Clock>,
    ) -> Infallible {
        let mut seen = Ok(used.clone());
        loop {
            tokio::time::sleep(PERIOD).await;
            // A few small files: not worth a thread.
            let contents = self.contents().map_err(|error| error.to_string());
            if contents == seen {
                continue;
            }
            seen = contents.clone();
            let news = contents.and_then(|contents| match contents == used {
                true => Ok(None),
                false => self
                    .parse(&contents, clock.now())
                    .map(|parsed| Some((parsed, contents)))
                    .map_err(|error| error.to_string()),
            });
            match news {
                Ok(news) => {
                    if let Some((parsed, contents)) = news {
                        metrics.certificate_expires(parsed.not_after);
                        current.set(parsed.tls);
                        trusted(parsed.trust);
                        used = contents;
                        tracing::info!(certificate = %self.default.certificate.display(), "the certificates changed");
                    }
                    alarm.set(None);
                    metrics.certificates_refused(false);
                }
                Err(cause) => {
                    tracing::warn!(cause, "the certificates stay as they were");
                    alarm.set(Some(cause));
                    metrics.certificates_refused(true);
                }
            }
        }
    }

    fn pairs(&self) -> impl Iterator<Item = &PairFiles> + Clone {
        std::iter::once(&self.default).chain(&self.others)
    }

    fn contents(&self) -> Result<Contents, StartError> {
        let proxies = self.proxies.iter().map(|(ca, _)| ca);
        let authorities = self.ca.iter().chain(&self.users).chain(proxies);
        read_contents(self.pairs(), authorities)
    }

    fn parse(&self, contents: &Contents, now: Timestamp) -> Result<Certificates, StartError> {
        let (default, not_after) = read_pair(&self.default, contents, now)?;
        let (others, first) = read_named(&self.others, contents, now)?;
        let not_after = first.map_or(not_after, |first| first.min(not_after));
        let shown = ByName { default, others };
        let (files, chain) = shown_for(&self.host, &shown, (&self.default, &self.others));
        check_host(&self.host, files, chain)?;
        check_hosts(self.hosts.as_ref(), &shown, (&self.default, &self.others))?;
        let trust = self.trust(files, chain, contents)?;
        let users = self.users.iter().collect::<Vec<_>>();
        let mut accepted = users.clone();
        accepted.extend(self.proxies.iter().map(|(ca, _)| ca));
        let proxies = match &self.proxies {
            None => None,
            Some((ca, names)) => Some(Proxies {
                users: verifier(&users, contents)?,
                proxies: verifier(&[ca], contents)?,
                names: names.clone(),
            }),
        };
        let mut config = tls::builder()
            .map_err(|error| wrong(&self.default.certificate, &error))?
            .with_client_cert_verifier(verifier(&accepted, contents)?)
            .with_cert_resolver(Arc::new(shown));
        config.alpn_protocols = tls::protocols();
        Ok(Certificates {
            tls: Tls {
                config: Arc::new(config),
                proxies,
            },
            trust,
            not_after,
        })
    }

    /// Returns the CA that clients have to trust.
    fn trust(
        &self,
        files: &PairFiles,
        chain: &[CertificateDer<'static>],
        contents: &Contents,
    ) -> Result<Option<String>, StartError> {
        let text = |path: &PathBuf| String::from_utf8_lossy(&contents[path]).into_owned();
        if let Some(ca) = &self.ca {
            check_signed(ca, files, chain, contents)?;
            return Ok(Some(text(ca)));
        }
        if signed(chain, &certificates(&self.own_ca, &contents[&self.own_ca])?) {
            return Ok(Some(text(&self.own_ca)));
        }
        let last = chain
            .last()
            .filter(|last| X509Certificate::from_der(last).is_ok_and(|(_, read)| read.subject() == read.issuer()));
        Ok(last.map(|root| pem(root)))
    }
}

/// Reads the files of pairs and of CAs.
fn read_contents<'a>(
    pairs: impl Iterator<Item = &'a PairFiles> + Clone,
    authorities: impl Iterator<Item = &'a PathBuf>,
) -> Result<Contents, StartError> {
    let mut contents = Contents::new();
    let files = pairs.clone().flat_map(|pair| [&pair.certificate, &pair.key]);
    for path in files.chain(authorities) {
        let content = fs::read(path).map_err(|cause| StartError::read(path, cause))?;
        contents.insert(path.clone(), content);
    }
    for PairFiles { key, .. } in pairs {
        let about = fs::metadata(key).map_err(|cause| StartError::read(key, cause))?;
        let mode = about.permissions().mode() & 0o777;
        if mode & WORLD != 0 {
            let path = key.clone();
            return Err(StartError::LooseKey { path, mode });
        }
    }
    Ok(contents)
}

/// Checks that a CA signed a certificate.
fn check_signed(
    ca: &Path,
    files: &PairFiles,
    chain: &[CertificateDer<'static>],
    contents: &Contents,
) -> Result<(), StartError> {
    if signed(chain, &certificates(ca, &contents[ca])?) {
        return Ok(());
    }
    Err(refused(ca, format!("did not sign {}", files.certificate.display())))
}

/// Reads the pairs for other names. Returns them with the first end of their validity.
fn read_named(
    files: &[PairFiles],
    contents: &Contents,
    now: Timestamp,
) -> Result<(Vec<Pair>, Option<Timestamp>), StartError> {
    let (mut pairs, mut first) = (Vec::new(), None::<Timestamp>);
    for files in files {
        let (key, end) = read_pair(files, contents, now)?;
        let names = names_for(files, &key)?;
        first = Some(first.map_or(end, |first| first.min(end)));
        pairs.push(Pair { key, names });
    }
    Ok((pairs, first))
}

/// Reads a pair. Returns it with the end of its validity.
fn read_pair(
    files: &PairFiles,
    contents: &Contents,
    now: Timestamp,
) -> Result<(Arc<CertifiedKey>, Timestamp), StartError> {
    let PairFiles { certificate, key, .. } = files;
    let chain = chain(certificate, &contents[certificate])?;
    let not_after = validity(certificate, &chain, now)?;
    let der = PrivateKeyDer::from_pem_slice(&contents[key])
        .map_err(|error| refused(key, format!("is not a private key in PEM: {error}")))?;
    let pair = CertifiedKey::from_der(chain, der, &aws_lc_rs::default_provider());
    let pair = pair.map_err(|error| match error {
        TlsError::InconsistentKeys(InconsistentKeys::KeyMismatch) => refused(
            key,
            format!(
                "is not the key of {}: give both files of one pair",
                certificate.display()
            ),
        ),
        error => wrong(certificate, &error),
    })?;
    Ok((Arc::new(pair), not_after))
}

/// Checks that a certificate is valid now. Returns the end of its validity.
fn validity(path: &Path, chain: &[CertificateDer<'static>], now: Timestamp) -> Result<Timestamp, StartError> {
    let refused = |cause: String| refused(path, cause);
    let leaf = chain
        .first()
        .ok_or_else(|| refused("holds no certificate in PEM".to_owned()))?;
    let (_, read) =
        X509Certificate::from_der(leaf).map_err(|error| refused(format!("is not a certificate: {error}")))?;
    let (from, to) = (
        read.validity().not_before.timestamp(),
        read.validity().not_after.timestamp(),
    );
    if to <= now.0 {
        let ended = Timestamp(to);
        return Err(refused(format!(
            "expired at {ended}: renew it, or check the clock (it is {now} here)"
        )));
    }
    if from > now.0 {
        let begins = Timestamp(from);
        return Err(refused(format!(
            "is not valid before {begins}: check the clock (it is {now} here)"
        )));
    }
    Ok(Timestamp(to))
}

/// Returns the names that a pair is shown for: those of the settings, which the certificate must
/// have, or all of the certificate.
fn names_for(files: &PairFiles, key: &CertifiedKey) -> Result<Vec<String>, StartError> {
    for name in &files.names {
        // Any name that the pattern stands for.
        let sample = name.replace('*', "any");
        if !is_named(files, &key.cert, &sample)? {
            let has = names(&key.cert);
            let why = format!("does not name {name}, which `tls.sni` lists. It names {has}");
            return Err(refused(&files.certificate, why));
        }
    }
    let given = match files.names.is_empty() {
        true => alternative_names(&key.cert),
        false => files.names.clone(),
    };
    // Clients that connect to an address ask for no name.
    let is_name = |name: &String| name.parse::<IpAddr>().is_err() && is_dns_name(name.trim_start_matches("*."));
    let found: Vec<String> = given
        .iter()
        .filter(|name| is_name(name))
        .map(|name| name.to_lowercase())
        .collect();
    match found.is_empty() {
        true => Err(refused(
            &files.certificate,
            "names no host, so that no client gets it: get a certificate with DNS names".to_owned(),
        )),
        false => Ok(found),
    }
}

fn is_named(files: &PairFiles, chain: &[CertificateDer<'static>], host: &str) -> Result<bool, StartError> {
    let Some(leaf) = chain.first() else { return Ok(false) };
    let parsed = ParsedCertificate::try_from(leaf).map_err(|error| wrong(&files.certificate, &error))?;
    let name = ServerName::try_from(host)
        .map_err(|error| refused(&files.certificate, format!("cannot name {host}: {error}")))?;
    Ok(verify_server_name(&parsed, &name).is_ok())
}

/// Returns true if a CA signed the first certificate, by way of the others.
fn signed(chain: &[CertificateDer<'static>], authorities: &[CertificateDer<'static>]) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities.iter().cloned());
    let Some((leaf, above)) = chain.split_first() else {
        return false;
    };
    let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
    let verified =
        |leaf| verify_server_cert_signed_by_trust_anchor(&leaf, &roots, above, UnixTime::now(), algorithms.all);
    ParsedCertificate::try_from(leaf).is_ok_and(|leaf| verified(leaf).is_ok())
}

/// Returns a verifier of client certificates that the CAs in some files signed.
fn verifier(files: &[&PathBuf], contents: &Contents) -> Result<Arc<dyn ClientCertVerifier>, StartError> {
    let mut roots = RootCertStore::empty();
    for path in files {
        for certificate in certificates(path, &contents[*path])? {
            roots.add(certificate).map_err(|error| wrong(path, &error))?;
        }
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        // A client with a token has no certificate; a client without both is anonymous, and
        // authentication decides.
        .allow_unauthenticated()
        .build();
    verifier.map_err(|error| wrong(files.last().map_or(Path::new(""), |path| path), &error))
}

/// Reads a file that must hold at least one certificate.
fn certificates(path: &Path, content: &[u8]) -> Result<Vec<CertificateDer<'static>>, StartError> {
    match chain(path, content)? {
        found if found.is_empty() => Err(refused(path, "holds no certificate in PEM".to_owned())),
        found => Ok(found),
    }
}

fn chain(path: &Path, content: &[u8]) -> Result<Vec<CertificateDer<'static>>, StartError> {
    CertificateDer::pem_slice_iter(content)
        .collect::<Result<_, _>>()
        .map_err(|error| refused(path, format!("is not PEM: {error}")))
}

/// Formats the names of a certificate, for messages.
fn names(chain: &[CertificateDer<'static>]) -> String {
    match alternative_names(chain) {
        names if names.is_empty() => "nothing in its subject alternative names".to_owned(),
        names => names.join(", "),
    }
}

/// Returns the DNS names and addresses of a certificate.
fn alternative_names(chain: &[CertificateDer<'static>]) -> Vec<String> {
    let Some((_, certificate)) = chain.first().and_then(|leaf| X509Certificate::from_der(leaf).ok()) else {
        return Vec::new();
    };
    let found = certificate.subject_alternative_name().ok().flatten();
    let names = found.iter().flat_map(|extension| &extension.value.general_names);
    let shown = names.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => crate::identity::address(bytes).map(|address| address.to_string()),
        _ => None,
    });
    shown.collect()
}

/// Returns a certificate as PEM text.
pub(crate) fn pem(certificate: &CertificateDer<'_>) -> String {
    insula_auth::ec_key::to_pem("CERTIFICATE", certificate)
}

fn refused(path: &Path, cause: String) -> StartError {
    StartError::Identity {
        path: path.to_owned(),
        cause,
    }
}

#[cfg(test)]
mod tests;
