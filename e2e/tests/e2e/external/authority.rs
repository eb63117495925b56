//! A certificate authority of tests, and HTTPS clients under any server name.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use insula_e2e::runtime;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Time of one request.
const PATIENCE: Duration = Duration::from_secs(20);
const YEAR: i64 = 365 * 24 * 3600;

/// A certificate authority.
pub(crate) struct Authority {
    /// `None` for one whose key is elsewhere.
    issuer: Option<Issuer<'static, KeyPair>>,
    pem: String,
}

/// A certificate and its key, PEM.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        // A leaf with the name of its authority would look as if it had signed itself.
        params.distinguished_name = name("authority of a test", &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Authority {
            issuer: Some(Issuer::new(params, key)),
            pem,
        }
    }

    /// Reads the certificate of an authority.
    pub(crate) fn read(path: &Path) -> Self {
        Authority {
            issuer: None,
            pem: std::fs::read_to_string(path).unwrap(),
        }
    }

    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns a certificate of a server for a name.
    pub(crate) fn server(&self, name: &str) -> Pair {
        self.server_until(name, YEAR)
    }

    /// Returns a certificate of a server that ends some seconds from now.
    pub(crate) fn server_until(&self, name: &str, seconds: i64) -> Pair {
        self.sign(CertificateParams::new([name.to_owned()]).unwrap(), -YEAR, seconds)
    }

    /// Returns a certificate of a server that begins some seconds from now.
    pub(crate) fn server_from(&self, name: &str, seconds: i64) -> Pair {
        self.sign(CertificateParams::new([name.to_owned()]).unwrap(), seconds, YEAR)
    }

    /// Returns the client certificate of a user with groups.
    pub(crate) fn client(&self, user: &str, groups: &[&str]) -> Pair {
        let mut params = CertificateParams::default();
        params.distinguished_name = name(user, groups);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params, -YEAR, YEAR)
    }

    fn sign(&self, mut params: CertificateParams, from: i64, to: i64) -> Pair {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let at = |seconds: i64| {
            let since = now.checked_add_signed(seconds).unwrap();
            rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(since)
        };
        (params.not_before, params.not_after) = (at(from), at(to));
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, self.issuer.as_ref().unwrap()).unwrap();
        Pair {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

impl Pair {
    /// Writes the key, readable by its owner.
    pub(crate) fn write_key(&self, path: &Path) {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(path, &self.key).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
}

fn name(user: &str, groups: &[&str]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, user);
    for group in groups {
        name.push(DnType::OrganizationName, *group);
    }
    name
}

/// A client of one address, which expects a server of this name.
pub(crate) struct Peer {
    address: String,
    name: String,
    ca: String,
    pair: Option<Pair>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// An open connection.
pub(crate) struct OpenConnection {
    stream: TlsStream<TcpStream>,
}

impl Peer {
    /// Returns a client of a URL without a certificate.
    pub(crate) fn new(url: &str, name: &str, ca: &Authority) -> Self {
        Peer {
            address: url.trim_start_matches("https://").to_owned(),
            name: name.to_owned(),
            ca: ca.pem.clone(),
            pair: None,
        }
    }

    /// Returns the client with a certificate.
    pub(crate) fn with(self, pair: &Pair) -> Self {
        let pair = Some(pair.clone());
        Peer { pair, ..self }
    }

    /// Returns the client with a certificate from two files, named without their end.
    pub(crate) fn with_files(self, path: &Path) -> Self {
        let read = |end: &str| std::fs::read_to_string(path.with_extension(end)).unwrap();
        self.with(&Pair {
            certificate: read("crt"),
            key: read("key"),
        })
    }

    pub(crate) fn connect(&self) -> Result<OpenConnection, String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.ca.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = rustls::crypto::aws_lc_rs::default_provider().into();
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match &self.pair {
            None => builder.with_no_client_auth(),
            Some(Pair { certificate, key }) => {
                let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).map(Result::unwrap);
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain.collect(), key).unwrap()
            }
        };
        let name = ServerName::try_from(self.name.clone()).unwrap();
        let connecting = async {
            let tcp = TcpStream::connect(&self.address).await?;
            TlsConnector::from(Arc::new(config)).connect(name, tcp).await
        };
        let stream = runtime().block_on(async { timeout(PATIENCE, connecting).await.unwrap() });
        stream
            .map(|stream| OpenConnection { stream })
            .map_err(|error| error.to_string())
    }

    /// Returns the certificate that the server shows to a new connection.
    pub(crate) fn shown(&self) -> Vec<u8> {
        let open = self.connect().unwrap();
        open.stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    }

    pub(crate) fn try_get(&self, path: &str, headers: &[(&str, &str)]) -> Result<Answer, String> {
        self.connect()?.get(path, headers)
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.try_get(path, headers).unwrap()
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.connect().unwrap().send("POST", path, headers, body).unwrap()
    }
}

impl OpenConnection {
    pub(crate) fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Result<Answer, String> {
        self.send("GET", path, headers, "")
    }

    /// Sends a request over HTTP/1.1 and reads the whole answer.
    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Answer, String> {
        let headers: Vec<(&str, &[u8])> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        self.send_bytes(method, path, &headers, body)
    }

    /// Sends a request with headers that need not be text.
    pub(crate) fn send_bytes(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &[u8])],
        body: &str,
    ) -> Result<Answer, String> {
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nContent-Length: {length}\r\n");
        let mut bytes = head.into_bytes();
        if !headers.iter().any(|(name, _)| *name == "host") {
            bytes.extend(b"Host: test\r\n");
        }
        bytes.extend(b"Content-Type: application/json\r\nAccept: application/json\r\n");
        for (name, value) in headers {
            bytes.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        bytes.extend([b"\r\n", body.as_bytes()].concat());
        let exchange = async {
            self.stream.write_all(&bytes).await?;
            let mut seen = Vec::new();
            loop {
                if let Some(answer) = answer(&seen) {
                    return Ok(answer);
                }
                if self.stream.read_buf(&mut seen).await? == 0 {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
            }
        };
        let answered = runtime().block_on(async { timeout(PATIENCE, exchange).await });
        answered
            .map_err(|_| "no answer".to_owned())?
            .map_err(|error: std::io::Error| error.to_string())
    }
}

/// Returns the answer once all of it is there.
fn answer(seen: &[u8]) -> Option<Answer> {
    let text = String::from_utf8_lossy(seen);
    let (head, rest) = text.split_once("\r\n\r\n")?;
    let head = head.to_lowercase();
    let code = head.split_whitespace().nth(1)?.parse().unwrap();
    let body = match head.lines().find_map(|line| line.strip_prefix("content-length: ")) {
        Some(length) => rest.get(..length.parse().unwrap())?.to_owned(),
        None => chunks(rest)?,
    };
    Some(Answer { code, head, body })
}

/// Returns the content of a chunked body once its last chunk is there.
fn chunks(mut rest: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (length, after) = rest.split_once("\r\n")?;
        let length = usize::from_str_radix(length, 16).unwrap();
        body += after.get(..length)?;
        rest = after.get(length + 2..)?;
        if length == 0 {
            return Some(body);
        }
    }
}
