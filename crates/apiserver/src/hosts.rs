//! Workspaces at host names of their own: `https://2hkc0s5vz8d5xuzk.api.example.com` for
//! `/clusters/2hkc0s5vz8d5xuzk`. Many programs drop the path of a server's URL.
//!
//! A host decides which path is meant, and nothing else: authentication, authorization and limits
//! see the request as one with that path. The path of another workspace is refused at such a host,
//! because a proxy in front of this server may let clients through by the host alone.

use axum::body::Body;
use http::{Request, Uri, header::HOST};
use insula_api::ClusterName;
use insula_catalog::Error;
use insula_pipeline::Refusal;
use std::net::IpAddr;

/// Placeholder of the logical cluster in a pattern.
const CLUSTER: &str = "{cluster}";

/// Hosts of workspaces, as `{cluster}.api.example.com`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    /// The hosts without their first label: `.api.example.com`.
    suffix: String,
}

impl HostPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// Returns the mistake: the logical cluster must be the first label, and the whole of it, since
    /// no certificate has other wildcards.
    pub fn parse(pattern: &str) -> Result<Self, String> {
        let form = || format!("`{pattern}` must be {CLUSTER}.NAME, for example {CLUSTER}.api.example.com");
        let suffix = pattern.strip_prefix(CLUSTER).ok_or_else(form)?.to_lowercase();
        let name = suffix.strip_prefix('.').ok_or_else(form)?;
        let is_label = |label: &str| {
            let letters = label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
            letters && !label.is_empty() && label.len() < 64 && !label.starts_with('-') && !label.ends_with('-')
        };
        match name.split('.').all(is_label) && name.len() < 190 && name.parse::<IpAddr>().is_err() {
            true => Ok(HostPattern { suffix }),
            false => Err(form()),
        }
    }

    /// Returns the name of a certificate for all of the hosts: `*.api.example.com`.
    pub fn wildcard(&self) -> String {
        format!("*{}", self.suffix)
    }

    /// Returns the cluster of a host; `None` for another host.
    fn cluster(&self, host: &str) -> Option<ClusterName> {
        let host = host.to_ascii_lowercase();
        let label = host.strip_suffix('.').unwrap_or(&host).strip_suffix(&self.suffix)?;
        // Names of system clusters have colons, so none has a host.
        let is_label = !label.is_empty() && !label.contains(['.', ':']);
        is_label.then(|| ClusterName::parse(label).ok()).flatten()
    }
}

/// Returns the request with the path of the workspace that its host names, if it names one.
///
/// The name that the client gave in the TLS handshake stands for the host where the request has an
/// address instead of a name. A host that is a name always wins: clients share one connection
/// among the hosts of a certificate.
///
/// # Errors
/// 400 for the path of another workspace, or of a virtual one.
pub(crate) fn located(
    pattern: Option<&HostPattern>,
    server_name: Option<&str>,
    mut request: Request<Body>,
) -> Result<Request<Body>, Refusal> {
    let Some(pattern) = pattern else { return Ok(request) };
    let host = host(&request);
    let host = match host.parse::<IpAddr>().is_ok() || host.is_empty() {
        true => server_name.unwrap_or_default(),
        false => &host,
    };
    let Some(cluster) = pattern.cluster(host) else {
        return Ok(request);
    };
    let path = request.uri().path();
    let own = format!("/clusters/{cluster}");
    let is_below = |root: &str| {
        path.strip_prefix(root)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if is_below(&own) {
        return Ok(request);
    }
    if is_below("/clusters") || is_below("/services") {
        let why = format!("the host {host} is the workspace {cluster}; the path {path} leads elsewhere");
        return Err(Refusal::from(Error::BadRequest(why)));
    }
    let query = request
        .uri()
        .query()
        .map_or_else(String::new, |query| format!("?{query}"));
    let uri: Uri = format!("{own}{path}{query}").parse().map_err(|_| {
        let why = format!("the URL is too long for the workspace {cluster}");
        Refusal::from(Error::BadRequest(why))
    })?;
    *request.uri_mut() = uri;
    Ok(request)
}

/// Returns the host of a request without its port. More than one was refused before.
fn host(request: &Request<Body>) -> String {
    let header = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let named = request.uri().authority().map(http::uri::Authority::as_str).or(header);
    let named = named.unwrap_or_default();
    let host = match named.rsplit_once(':') {
        // A colon within brackets is part of an address.
        Some((host, port)) if !port.contains(']') => host,
        _ => named,
    };
    host.trim_matches(['[', ']']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_begins_with_the_cluster() {
        for wrong in [
            "api.example.com",
            "{cluster}",
            "{cluster}.",
            "ws-{cluster}.example.com",
            "{cluster}-ws.example.com",
            "{cluster}.a_b.com",
            "{cluster}.10.0.0.1",
            "https://{cluster}.example.com",
        ] {
            assert!(HostPattern::parse(wrong).is_err(), "{wrong}");
        }
        let pattern = HostPattern::parse("{cluster}.API.example.com").unwrap();
        assert_eq!(pattern.wildcard(), "*.api.example.com");
    }

    #[test]
    fn a_host_decides_the_path_alone() {
        let pattern = HostPattern::parse("{cluster}.api.example.com").unwrap();
        let (api, own) = ("/api/v1", "/clusters/abc/api/v1");
        let rows = [
            ("abc.api.example.com", None, api, Some(own)),
            (
                "ABC.api.example.com:6443",
                None,
                "/api/v1?a=b",
                Some("/clusters/abc/api/v1?a=b"),
            ),
            ("abc.api.example.com.", None, api, Some(own)),
            ("abc.api.example.com", None, own, Some(own)),
            ("abc.api.example.com", None, "/clusters/abcd/api", None),
            ("abc.api.example.com", None, "/clusters/root:abc/api", None),
            ("abc.api.example.com", None, "/clusters/*/api", None),
            ("abc.api.example.com", None, "/clusters", None),
            (
                "abc.api.example.com",
                None,
                "/services/apiexport/root/a/clusters/*/api",
                None,
            ),
            ("abc.api.example.com", Some("def.api.example.com"), api, Some(own)),
            ("127.0.0.1:6443", Some("abc.api.example.com"), api, Some(own)),
            ("[::1]:6443", Some("abc.api.example.com"), api, Some(own)),
            ("127.0.0.1:6443", Some("abc.api.example.com"), "/clusters/def/api", None),
            ("127.0.0.1:6443", None, api, Some(api)),
            ("api.example.com", Some("abc.api.example.com"), api, Some(api)),
            ("localhost:6443", Some("abc.api.example.com"), api, Some(api)),
            ("a.b.api.example.com", None, api, Some(api)),
            ("system:admin.api.example.com", None, api, Some(api)),
            ("abc.api.example.com.evil.io", None, api, Some(api)),
            ("abcapi.example.com", None, api, Some(api)),
        ];
        for (host, name, path, want) in rows {
            let request = Request::builder()
                .uri(path)
                .header(HOST, host)
                .body(Body::empty())
                .unwrap();
            let found = located(Some(&pattern), name, request).ok();
            let found = found.map(|request| request.uri().to_string());
            assert_eq!(found.as_deref(), want, "{host} {name:?} {path}");
        }
    }
}
