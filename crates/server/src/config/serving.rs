//! Settings for clients on other machines: the external URL, certificates, and proxies in front of
//! the server.

use std::{net::IpAddr, path::PathBuf};

use http::uri::Uri;
use insula_apiserver::HostPattern;
use serde::{Deserialize, Serialize};

/// Certificates of the port. The server reads the files again when they change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TlsConfig {
    /// PEM file of the server's certificate, followed by those up to its CA. `None` for one that
    /// the server's own CA signs.
    pub cert_file: Option<PathBuf>,
    /// PEM file of its key, not readable by everybody.
    pub key_file: Option<PathBuf>,
    /// PEM file of the CA that signed `cert_file`, for the kubeconfig and for programs in
    /// workspaces.
    pub ca_file: Option<PathBuf>,
    /// Names and addresses of the certificate that the server makes, besides those that it knows.
    pub names: Names,
    /// PEM file of CAs whose client certificates name users, besides the server's own CA.
    pub client_ca_file: Option<PathBuf>,
    /// Certificates for clients that ask for other names.
    pub sni: Sni,
}

/// A certificate for some names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamedCertificate {
    /// PEM file of the certificate, followed by those up to its CA.
    pub cert_file: PathBuf,
    /// PEM file of its key, not readable by everybody.
    pub key_file: PathBuf,
    /// DNS names that the certificate is for; a first label may be `*`. All names of the
    /// certificate if there are none here.
    #[serde(default)]
    pub names: Vec<String>,
}

/// Certificates by name: a list, or in one text `CERT,KEY:NAME,NAME;CERT,KEY`, as
/// `--tls-sni-cert-key` of kube-apiserver with semicolons between its values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "serde_json::Value")]
pub struct Sni(pub Vec<NamedCertificate>);

impl TryFrom<serde_json::Value> for Sni {
    type Error = String;

    fn try_from(value: serde_json::Value) -> Result<Self, String> {
        let serde_json::Value::String(text) = value else {
            return serde_json::from_value(value)
                .map(Sni)
                .map_err(|error| error.to_string());
        };
        let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        parts.map(NamedCertificate::parse).collect::<Result<_, _>>().map(Sni)
    }
}

impl NamedCertificate {
    /// Reads `CERT,KEY` or `CERT,KEY:NAME,NAME`. Names have no colons; paths may.
    fn parse(text: &str) -> Result<Self, String> {
        let (files, names) = match text.rsplit_once(':') {
            Some((files, names)) if files.contains(',') => (files, names),
            _ => (text, ""),
        };
        let (cert, key) = files
            .split_once(',')
            .ok_or_else(|| format!("`{text}` must be CERTIFICATE,KEY or CERTIFICATE,KEY:NAME,NAME"))?;
        Ok(NamedCertificate {
            cert_file: cert.trim().into(),
            key_file: key.trim().into(),
            names: Names::from(names.to_owned()).0,
        })
    }
}

/// Proxies that authenticate users and name them in headers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FrontProxyConfig {
    /// PEM file of the CAs that sign the proxies' client certificates.
    pub ca_file: Option<PathBuf>,
    /// Common names of those certificates.
    pub allowed_names: Names,
}

/// A list of names, written with commas between.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Names(pub Vec<String>);

impl From<String> for Names {
    fn from(text: String) -> Self {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        Names(names.map(str::to_owned).collect())
    }
}

impl From<Names> for String {
    fn from(names: Names) -> Self {
        names.0.join(",")
    }
}

/// URL under which clients reach the server: `https://HOST[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExternalUrl {
    /// The URL, without a slash at its end.
    pub(crate) url: String,
    /// Its host: a name in lower case or an address without brackets.
    pub(crate) host: String,
}

impl ExternalUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// Fails for a URL with another scheme, with a user, a path or a query, or whose host no
    /// certificate can name.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let form = || format!("`{text}` must be https://HOST or https://HOST:PORT, without a path");
        let uri: Uri = text.trim_end_matches('/').parse().map_err(|_| form())?;
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        let authority = authority.ok_or_else(form)?;
        let is_bare = uri.path().trim_matches('/').is_empty() && uri.query().is_none();
        if uri.scheme_str() != Some("https") || !is_bare || authority.port().is_some_and(|port| port.as_u16() == 0) {
            return Err(form());
        }
        let host = authority.host().trim_matches(['[', ']']).to_lowercase();
        match host.parse::<IpAddr>().is_ok() || is_dns_name(&host) {
            true => Ok(ExternalUrl {
                url: format!("https://{authority}").to_lowercase(),
                host,
            }),
            false => Err(format!("`{host}` is no name that a certificate can have")),
        }
    }
}

/// Returns the key of a setting that cannot be used or contradicts another one, and the mistake.
pub(super) fn mistake(
    external_url: Option<&str>,
    tls: &TlsConfig,
    proxy: &FrontProxyConfig,
) -> Option<(&'static str, String)> {
    if let Some(Err(why)) = external_url.map(ExternalUrl::parse) {
        return Some(("externalUrl", why));
    }
    if tls.cert_file.is_some() != tls.key_file.is_some() {
        let key = if tls.cert_file.is_some() {
            "tls.keyFile"
        } else {
            "tls.certFile"
        };
        return Some((key, "`tls.certFile` and `tls.keyFile` go together".to_owned()));
    }
    if let Some(name) = tls
        .sni
        .0
        .iter()
        .flat_map(|pair| &pair.names)
        .find(|name| !is_pattern(name))
    {
        let why = format!("`{name}` is no DNS name; clients that use an address ask for no name");
        return Some(("tls.sni", why));
    }
    if tls.ca_file.is_some() && tls.cert_file.is_none() && tls.sni.0.is_empty() {
        let why =
            "names the CA of `tls.certFile`, which is not set; a certificate that the server makes has its own CA";
        return Some(("tls.caFile", why.to_owned()));
    }
    if tls.cert_file.is_some() && !tls.names.0.is_empty() {
        let why = "are for the certificate that the server makes, and `tls.certFile` is set: remove one of them";
        return Some(("tls.names", why.to_owned()));
    }
    if let Some(name) = tls.names.0.iter().find(|name| !is_certifiable(name)) {
        return Some(("tls.names", format!("`{name}` is neither a DNS name nor an address")));
    }
    match (&proxy.ca_file, proxy.allowed_names.0.is_empty()) {
        (Some(_), true) => {
            let why = "must list the common names of the proxies' certificates: others of the same CA are no proxies";
            Some(("frontProxy.allowedNames", why.to_owned()))
        }
        (None, false) => {
            let why = "must name the CA of the proxies' certificates, since `frontProxy.allowedNames` is set";
            Some(("frontProxy.caFile", why.to_owned()))
        }
        (Some(_), false) | (None, true) => None,
    }
}

/// Returns the key of a pattern for hosts that is none, and the mistake.
pub(super) fn host_mistake(pattern: Option<&str>) -> Option<(&'static str, String)> {
    let why = HostPattern::parse(pattern?).err()?;
    Some(("hostPattern", why))
}

/// Returns true for an address, and for a DNS name that may begin with `*.`.
fn is_certifiable(name: &str) -> bool {
    name.parse::<IpAddr>().is_ok() || is_dns_name(name.strip_prefix("*.").unwrap_or(name))
}

/// Returns true for a DNS name that may begin with `*.`, and that is no address.
fn is_pattern(name: &str) -> bool {
    name.parse::<IpAddr>().is_err() && is_certifiable(name)
}

/// Returns true for a DNS name.
pub(crate) fn is_dns_name(name: &str) -> bool {
    let label = |label: &str| {
        let letters = label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        letters && !label.is_empty() && label.len() < 64 && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() < 254 && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn external_urls_are_origins() {
        for (text, url, host) in [
            ("https://api.example.com", "https://api.example.com", "api.example.com"),
            (
                "https://API.example.com:8443/",
                "https://api.example.com:8443",
                "api.example.com",
            ),
            ("https://10.0.0.1:6443", "https://10.0.0.1:6443", "10.0.0.1"),
            ("https://[fd00::1]:6443", "https://[fd00::1]:6443", "fd00::1"),
        ] {
            let got = ExternalUrl::parse(text).map(|external| (external.url, external.host));
            assert_eq!(got, Ok((url.to_owned(), host.to_owned())));
        }
        for bad in [
            "",
            "api.example.com",
            "http://a",
            "https://a/b",
            "https://a?b",
            "https://u@a",
            "https://a_b",
            "https://*.a",
            "https://a:0",
            "https://:1",
        ] {
            assert!(ExternalUrl::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn settings_that_contradict_each_other_name_their_key() {
        let file = || Some(PathBuf::from("/f"));
        let names = |text: &str| Names::from(text.to_owned());
        let tls = |cert_file, key_file, ca_file, list: &str| TlsConfig {
            cert_file,
            key_file,
            ca_file,
            names: names(list),
            ..TlsConfig::default()
        };
        let proxy = |ca_file, list: &str| FrontProxyConfig {
            ca_file,
            allowed_names: names(list),
        };
        let none = FrontProxyConfig::default();
        let rows = [
            (
                Some("http://a"),
                TlsConfig::default(),
                none.clone(),
                Some("externalUrl"),
            ),
            (None, tls(file(), None, None, ""), none.clone(), Some("tls.keyFile")),
            (None, tls(None, file(), None, ""), none.clone(), Some("tls.certFile")),
            (None, tls(None, None, file(), ""), none.clone(), Some("tls.caFile")),
            (None, tls(file(), file(), None, "a"), none.clone(), Some("tls.names")),
            (None, tls(None, None, None, "a_b"), none.clone(), Some("tls.names")),
            (
                None,
                TlsConfig::default(),
                proxy(file(), ""),
                Some("frontProxy.allowedNames"),
            ),
            (None, TlsConfig::default(), proxy(None, "a"), Some("frontProxy.caFile")),
            (
                Some("https://a:1"),
                tls(None, None, None, " a.example , *.b.example,10.0.0.1,"),
                proxy(file(), "a"),
                None,
            ),
            (None, tls(file(), file(), file(), ""), none, None),
        ];
        for (url, tls, proxy, want) in rows {
            assert_eq!(
                mistake(url, &tls, &proxy).map(|(key, _)| key),
                want,
                "{tls:?} {proxy:?}"
            );
        }
    }

    #[test]
    fn certificates_by_name_are_a_list_or_a_text() {
        let read = |value: serde_json::Value| serde_json::from_value::<Sni>(value).map_err(|error| error.to_string());
        let pair = |cert: &str, names: &[&str]| NamedCertificate {
            cert_file: cert.into(),
            key_file: "k".into(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        let want = vec![pair("a", &["x.test", "*.y.test"]), pair("c:1", &[]), pair("b", &[])];
        let text = "a,k:x.test, *.y.test; c:1,k: ;b,k";
        assert_eq!(read(text.into()), Ok(Sni(want.clone())));
        assert_eq!(read(serde_json::to_value(&want).unwrap()), Ok(Sni(want.clone())));
        assert_eq!(read("".into()), Ok(Sni::default()));
        for (wrong, why) in [
            ("a".into(), "`a` must be CERTIFICATE,KEY"),
            (serde_json::json!([{"certFile": "a"}]), "missing field `keyFile`"),
            (
                serde_json::json!([{"certFile": "a", "keyFile": "b", "host": "c"}]),
                "unknown field `host`",
            ),
        ] {
            assert!(read(wrong).unwrap_err().contains(why), "{why}");
        }
        let refused = |names: &[&str]| {
            let sni = Sni(vec![pair("a", names)]);
            let tls = TlsConfig {
                sni,
                ..TlsConfig::default()
            };
            mistake(None, &tls, &FrontProxyConfig::default()).map(|(key, _)| key)
        };
        assert_eq!(refused(&["*.a.test", "b"]), None);
        assert_eq!(refused(&["10.0.0.1"]), Some("tls.sni"));
        assert_eq!(refused(&["a_b"]), Some("tls.sni"));
    }

    #[test]
    fn names_of_machines_are_checked_before_they_are_certified() {
        for (name, want) in [
            ("box", true),
            ("a-1.example.io", true),
            ("", false),
            ("a_b", false),
            ("-a", false),
            ("a..b", false),
        ] {
            assert_eq!(is_dns_name(name), want, "{name}");
        }
    }
}
