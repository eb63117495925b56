//! Audit record of one request, from its arrival to its answer.

use std::{net::IpAddr, sync::Arc};

use axum::{extract::Request, response::Response};
use http::{HeaderMap, HeaderValue, header::USER_AGENT};
use insula_apiserver::query::percent_decoded;
use insula_auth::{
    Attributes,
    audit::{Facts, Log, Record},
};
use insula_edge::port::Arrival;
use serde_json::json;

use crate::{grpc, trace::REQUEST_ID};

/// Maximum number of characters of a user agent; longer ones are cut, as in Kubernetes.
const USER_AGENT_CHARS_MAX: usize = 1024;
const CUT: &str = "...TRUNCATED";
/// Maximum number of addresses of `X-Forwarded-For` that are recorded; clients may write any
/// number.
const FORWARDED_MAX: usize = 16;

/// Audit record of a request that is being answered. A request that ends without an answer is
/// recorded, too: it may have taken effect.
pub(crate) struct RequestAudit(Record);

impl RequestAudit {
    /// Begins the record of a request.
    pub(crate) fn begin(log: &Arc<Log>, request: &Request, arrival: &mut Arrival) -> Self {
        let record = Record::new(Arc::clone(log), facts(request, arrival.address));
        arrival.record = record.clone();
        RequestAudit(record)
    }

    /// Ends the record with the response.
    pub(crate) fn end(self, response: &Response) {
        match grpc::ended(response.headers()) {
            Some(status) => {
                let (message, reason) = (status.message(), format!("{:?}", status.code()));
                let failure = json!({"status": "Failure", "message": message, "reason": reason});
                self.0.status(&failure);
                self.0.answered(insula_admin::status::http_code(status.code()));
            }
            None => self.0.answered(response.status().as_u16()),
        }
    }
}

impl Drop for RequestAudit {
    fn drop(&mut self) {
        if !self.0.is_answered() {
            self.0
                .refused("the client went away before the answer; what it asked for may have happened");
            self.0.answered(0);
        }
    }
}

fn facts(request: &Request, peer: Option<IpAddr>) -> Facts {
    let headers = request.headers();
    let path = request.uri().path().to_owned();
    let mut user_agent = text(headers.get(USER_AGENT));
    if let Some((end, _)) = user_agent.char_indices().nth(USER_AGENT_CHARS_MAX) {
        user_agent.truncate(end);
        user_agent += CUT;
    }
    Facts {
        id: text(headers.get(REQUEST_ID)),
        uri: match request.uri().query() {
            Some(query) => format!("{path}?{}", redacted(query)),
            None => path.clone(),
        },
        user_agent,
        source_ips: sources(headers, peer),
        attributes: Attributes {
            verb: request.method().as_str().to_ascii_lowercase().into(),
            path,
            ..Attributes::default()
        },
        ..Facts::default()
    }
}

/// Query parameters that hold a credential for some server. This server reads no credential from a
/// query, but clients send them.
const CREDENTIALS: [&str; 9] = [
    "access_token",
    "apikey",
    "api_key",
    "authorization",
    "client_secret",
    "id_token",
    "password",
    "refresh_token",
    "token",
];

/// Returns a query with its credentials redacted.
fn redacted(query: &str) -> String {
    let redact = |pair: &str| match pair.split_once('=') {
        Some((key, _)) if CREDENTIALS.contains(&&*percent_decoded(key).to_ascii_lowercase()) => {
            format!("{key}=REDACTED")
        }
        _ => pair.to_owned(),
    };
    let pairs: Vec<String> = query.split('&').map(redact).collect();
    pairs.join("&")
}

fn text(value: Option<&HeaderValue>) -> String {
    value.map_or_else(String::new, |value| {
        String::from_utf8_lossy(value.as_bytes()).into_owned()
    })
}

/// Returns the source addresses of a request: those that `X-Forwarded-For` claims, which are as
/// true as the client, and last the address of the connection.
fn sources(headers: &HeaderMap, peer: Option<IpAddr>) -> Vec<String> {
    let forwarded = headers
        .get_all("x-forwarded-for")
        .iter()
        .filter_map(|value| value.to_str().ok());
    let forwarded = forwarded.flat_map(|list| list.split(',')).map(str::trim);
    let mut sources: Vec<String> = forwarded
        .filter(|text| text.parse::<IpAddr>().is_ok())
        .take(FORWARDED_MAX)
        .map(str::to_owned)
        .collect();
    sources.extend(peer.map(|peer| peer.to_string()));
    sources
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_a_query_are_not_recorded() {
        for (query, want) in [
            ("watch=true&limit=1", "watch=true&limit=1"),
            ("access_token=s3cret", "access_token=REDACTED"),
            ("a=b&Access_Token=s3cret&c", "a=b&Access_Token=REDACTED&c"),
            ("acc%65ss%5Ftoken=s3cret", "acc%65ss%5Ftoken=REDACTED"),
            ("token=a=b&continue=token", "token=REDACTED&continue=token"),
        ] {
            assert_eq!(redacted(query), want);
        }
    }

    #[test]
    fn the_last_source_is_the_one_that_we_see() {
        let mut headers = HeaderMap::new();
        headers.insert(
            "x-forwarded-for",
            HeaderValue::from_static("10.1.2.3, nonsense, fd00::1"),
        );
        let peer = IpAddr::from([192, 0, 2, 1]);
        assert_eq!(sources(&headers, Some(peer)), ["10.1.2.3", "fd00::1", "192.0.2.1"]);
    }
}
