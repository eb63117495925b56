//! Headers of proxied requests and their answers. No credential leaves this server, and no name of
//! a user comes from elsewhere.

use crate::mounts::{self, Unnameable};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use insula_api::{ClusterName, names::well_known};
use insula_auth::UserInfo;

/// Prefix of a credential among the subprotocols of a WebSocket.
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";

/// Headers of one connection, in both directions.
const OF_CONNECTION: [&str; 10] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];
/// Headers of requests that stay here: credentials, and what this server answers by itself.
const OF_CALLER: [&str; 5] = ["authorization", "cookie", "host", "expect", "forwarded"];
/// Prefixes of headers that name a user, or the place of a request.
const NAMES_USER: [&str; 4] = ["x-remote-", "impersonate-", "x-forwarded-", "x-insula-"];
/// Headers of answers that are passed on: those of the content and of its freshness. By any other
/// an extension server would speak for this server: set cookies, ask for credentials
/// (`WWW-Authenticate`), open it to pages of other origins (`Access-Control-Allow-Origin`), or lead
/// elsewhere (`Location`, `Refresh`).
const OF_ANSWER: [&str; 17] = [
    "accept-ranges",
    "age",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expires",
    "last-modified",
    "retry-after",
    "vary",
    "warning",
    "x-content-type-options",
];
/// Headers of an answer that changes the protocol, besides.
const OF_UPGRADE: [&str; 4] = [
    "sec-websocket-accept",
    "sec-websocket-extensions",
    "sec-websocket-protocol",
    "x-stream-protocol-version",
];
/// Prefix of the headers of fair sharing in Kubernetes, which clients show.
const FLOW_CONTROL: &str = "x-kubernetes-pf-";
/// Policy of answers of other servers in a browser: a page of theirs runs no script under the
/// origin of this server, where the user's client certificate and the console's session count.
pub(crate) const SANDBOX: HeaderValue = HeaderValue::from_static("sandbox");

/// Returns the headers that are passed on of a request.
pub(super) fn of_request(headers: &HeaderMap) -> HeaderMap {
    let mut passed = without(headers, &OF_CALLER);
    let offered = passed.remove(header::SEC_WEBSOCKET_PROTOCOL);
    if let Some(protocols) = offered.and_then(|offered| without_credential(&offered)) {
        passed.insert(header::SEC_WEBSOCKET_PROTOCOL, protocols);
    }
    passed
}

/// Returns the headers that are passed on of an answer.
pub(super) fn of_answer(headers: &HeaderMap) -> HeaderMap {
    let mut passed = only(headers, &OF_ANSWER);
    passed.insert(header::CONTENT_SECURITY_POLICY, SANDBOX);
    passed
}

/// Returns the headers that are passed on of an answer that changes the protocol.
pub(super) fn of_upgrade(headers: &HeaderMap) -> HeaderMap {
    let mut passed = only(headers, &OF_UPGRADE);
    add_upgrade(headers, &mut passed);
    passed
}

fn only(headers: &HeaderMap, some: &[&str]) -> HeaderMap {
    let passes = |name: &HeaderName| some.contains(&name.as_str()) || name.as_str().starts_with(FLOW_CONTROL);
    let mut copied = HeaderMap::new();
    for (name, value) in headers.iter().filter(|(name, _)| passes(name)) {
        copied.append(name.clone(), value.clone());
    }
    copied
}

/// Adds the headers of an upgrade.
pub(super) fn add_upgrade(from: &HeaderMap, to: &mut HeaderMap) {
    if let Some(protocol) = from.get(header::UPGRADE) {
        to.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        to.insert(header::UPGRADE, protocol.clone());
    }
}

/// Adds the headers that name the user and the cluster of the request.
pub(super) fn add_identity(user: &UserInfo, cluster: &ClusterName, to: &mut HeaderMap) -> Result<(), Unnameable> {
    let mut user = user.clone();
    let is_ours = |key: &String| key.eq_ignore_ascii_case(well_known::EXTRA_WORKSPACE);
    user.extra.retain(|key, _| !is_ours(key));
    user.extra
        .insert(well_known::EXTRA_WORKSPACE.to_owned(), vec![cluster.to_string()]);
    mounts::add_user(&user, to)
}

/// Copies headers, except for some, those of the connection, those that the connection names, and
/// those that name a user. Programs behind CGI take `_` for `-`.
fn without(headers: &HeaderMap, some: &[&str]) -> HeaderMap {
    let named: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let stays = |name: &HeaderName| {
        let spelled = name.as_str().replace('_', "-");
        let is = |list: &[&str]| list.contains(&spelled.as_str());
        let names_user = NAMES_USER.iter().any(|prefix| spelled.starts_with(prefix));
        is(some) || is(&OF_CONNECTION) || names_user || named.contains(&spelled)
    };
    let mut copied = HeaderMap::new();
    for (name, value) in headers.iter().filter(|(name, _)| !stays(name)) {
        copied.append(name.clone(), value.clone());
    }
    copied
}

fn without_credential(offered: &HeaderValue) -> Option<HeaderValue> {
    let offered = offered.to_str().ok()?.split(',').map(str::trim);
    let kept: Vec<&str> = offered.filter(|protocol| !protocol.starts_with(BEARER)).collect();
    (!kept.is_empty()).then(|| HeaderValue::from_str(&kept.join(", ")).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        map
    }

    #[test]
    fn no_credential_and_no_name_is_passed_on() {
        let sent = map(&[
            ("authorization", "Bearer x"),
            ("cookie", "a=b"),
            ("x-remote-user", "root"),
            ("x-remote-group", "system:masters"),
            ("x_remote_user", "root"),
            ("x-remote-extra-insula.io%2fcluster", "root"),
            ("impersonate-user", "root"),
            ("x-forwarded-for", "1.1.1.1"),
            ("connection", "x-secret, keep-alive"),
            ("x-secret", "1"),
            ("accept", "application/json"),
            (
                "sec-websocket-protocol",
                "base64url.bearer.authorization.k8s.io.dG9r, v5.channel.k8s.io",
            ),
        ]);
        let passed = of_request(&sent);
        let names: Vec<&str> = passed.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["accept", "sec-websocket-protocol"]);
        assert_eq!(passed["sec-websocket-protocol"], "v5.channel.k8s.io");
    }

    #[test]
    fn no_answer_speaks_for_this_server() {
        let sent = map(&[
            ("set-cookie", "a=b"),
            ("content-security-policy", "script-src *"),
            ("service-worker-allowed", "/"),
            ("x-remote-user", "root"),
            ("www-authenticate", "Basic realm=\"kubernetes\""),
            ("access-control-allow-origin", "*"),
            ("location", "https://evil.example.com"),
            ("audit-id", "1"),
            ("connection", "close"),
            ("transfer-encoding", "chunked"),
            ("content-type", "text/html"),
            ("warning", "299 - \"deprecated\""),
            ("x-kubernetes-pf-flowschema-uid", "1"),
        ]);
        let passed = of_answer(&sent);
        let names: Vec<&str> = passed.keys().map(HeaderName::as_str).collect();
        assert_eq!(
            names,
            [
                "content-type",
                "warning",
                "x-kubernetes-pf-flowschema-uid",
                "content-security-policy"
            ]
        );
        assert_eq!(passed["content-security-policy"], "sandbox");
    }

    #[test]
    fn the_cluster_is_that_of_the_request_whatever_the_user_brings() {
        let mut user = UserInfo::authenticated("jürgen", "1", vec!["team".to_owned()]);
        user.extra
            .insert("Insula.io/Cluster".to_owned(), vec!["root".to_owned()]);
        let mut headers = HeaderMap::new();
        add_identity(&user, &ClusterName::parse("tenant").unwrap(), &mut headers).unwrap();
        assert_eq!(headers["x-remote-user"].as_bytes(), "jürgen".as_bytes());
        let clusters: Vec<_> = headers.get_all("x-remote-extra-insula.io%2fcluster").iter().collect();
        assert_eq!(clusters, ["tenant"]);
    }
}
