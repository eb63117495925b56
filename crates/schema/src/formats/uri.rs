//! URIs and URLs as Go's `net/url` reads them, with its errors.

use super::{digits, hex};
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// The texts that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UriForm {
    /// An absolute URI or an absolute path, as in a request line. A `#` has no meaning.
    Request,
    /// Any URL, also a relative one.
    Any,
}

/// The parts of a URL.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Uri<'a> {
    /// Scheme in small letters, or empty.
    pub scheme: String,
    /// User information; none without an `@`.
    pub user: Option<&'a str>,
    /// Host with its port.
    pub host: &'a str,
    /// Query without `?`. It is not checked.
    pub query: &'a str,
    /// Fragment without `#`.
    pub fragment: &'a str,
}

pub(super) fn is_uri(text: &str) -> bool {
    Uri::parse(text, UriForm::Request).is_ok()
}

impl<'a> Uri<'a> {
    /// Reads a URL.
    ///
    /// # Errors
    /// Go's reason why it is none.
    pub(crate) fn parse(text: &'a str, form: UriForm) -> Result<Uri<'a>, String> {
        let (text, fragment) = match form {
            UriForm::Any => text.split_once('#').unwrap_or((text, "")),
            UriForm::Request => (text, ""),
        };
        if text.bytes().any(|b| b < b' ' || b == 0x7f) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        if text.is_empty() && form == UriForm::Request {
            return Err("empty url".to_owned());
        }
        let mut uri = Uri {
            fragment,
            ..Uri::default()
        };
        if text == "*" {
            return Ok(uri);
        }
        let (scheme, rest) = split_scheme(text)?;
        uri.scheme = scheme.to_ascii_lowercase();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        uri.query = query;
        if !rest.starts_with('/') {
            if !uri.scheme.is_empty() {
                return Ok(uri);
            }
            if form == UriForm::Request {
                return Err("invalid URI for request".to_owned());
            }
            if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        let has_authority = !uri.scheme.is_empty() || form == UriForm::Any && !rest.starts_with("///");
        let path = match rest.strip_prefix("//").filter(|_| has_authority) {
            Some(rest) => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                (uri.user, uri.host) = match authority.rsplit_once('@') {
                    Some((user, host)) => (Some(user), host),
                    None => (None, authority),
                };
                check_host(&uri.scheme, uri.host)?;
                uri.user.map_or(Ok(()), check_user)?;
                path
            }
            None => rest,
        };
        check_escapes(path)?;
        check_escapes(fragment)?;
        Ok(uri)
    }
}

/// Splits a scheme off, if the text begins with one.
fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    let Some((scheme, rest)) = text.split_once(':') else {
        return Ok(("", text));
    };
    let is_part = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    match scheme.bytes().next() {
        None => Err("missing protocol scheme".to_owned()),
        Some(first) if first.is_ascii_alphabetic() && scheme.bytes().all(is_part) => Ok((scheme, rest)),
        Some(_) => Ok(("", text)),
    }
}

/// Checks that each `%` begins an escaped byte.
fn check_escapes(text: &str) -> Result<(), String> {
    check_escaped(text, |_| true)
}

/// Checks the escaped bytes of a text.
fn check_escaped(text: &str, allowed: impl Fn(u8) -> bool) -> Result<(), String> {
    for (at, _) in text.match_indices('%') {
        let code = text.get(at + 1..at + 3).filter(|code| hex(code));
        let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        if !byte.is_some_and(&allowed) {
            let shown = String::from_utf8_lossy(&text.as_bytes()[at..text.len().min(at + 3)]);
            return Err(format!("invalid URL escape {shown:?}"));
        }
    }
    Ok(())
}

fn check_user(user: &str) -> Result<(), String> {
    let is_user = |b: u8| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b);
    if !user.bytes().all(is_user) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    check_escapes(user)
}

fn check_host(scheme: &str, host: &str) -> Result<(), String> {
    let check_port = |port: &str| match port.strip_prefix(':') {
        _ if port.is_empty() => Ok(()),
        Some(number) if number.is_empty() || digits(number) => Ok(()),
        _ => Err(format!("invalid port {port:?} after host")),
    };
    if let Some(literal) = host.strip_prefix('[').filter(|rest| !rest.contains('[')) {
        let Some((address, port)) = literal.rsplit_once(']') else {
            return Err("missing ']' in host".to_owned());
        };
        check_port(port)?;
        return check_literal(address);
    }
    if host.contains('[') {
        return Err("invalid IP-literal".to_owned());
    }
    // Several colons are a list of hosts with ports, which only HTTP does not have.
    let colon = match scheme {
        "http" | "https" => host.find(':'),
        _ => host.rfind(':'),
    };
    colon.map_or(Ok(()), |at| check_port(&host[at..]))?;
    // Only bytes of other alphabets may be escaped.
    check_escaped(host, |b| !b.is_ascii() || b == b'%')?;
    check_letters(host)
}

/// Checks an IPv6 address in brackets, also with a zone after `%25`.
fn check_literal(text: &str) -> Result<(), String> {
    let (address, zone) = text.split_at(text.find("%25").unwrap_or(text.len()));
    check_letters(address)?;
    check_escaped(zone, |b| matches!(b, b'%' | b' ') || is_host_byte(b))?;
    check_letters(zone)?;
    match IpAddr::from_str(address) {
        Ok(IpAddr::V4(_)) => Err("invalid IP-literal".to_owned()),
        Ok(IpAddr::V6(_)) if zone == "%25" => Err(format!(
            "invalid host: ParseAddr({:?}): zone must be a non-empty string",
            format!("{address}%")
        )),
        Ok(IpAddr::V6(_)) => Ok(()),
        Err(_) => Err(format!(
            "invalid host: ParseAddr({address:?}): {}",
            parse_error(address)
        )),
    }
}

/// Returns Go's reason why a text is no address, for the most common ones.
fn parse_error(address: &str) -> &'static str {
    match address.contains([':', '.']) {
        false => "unable to parse IP",
        true if Ipv6Addr::from_str(address.trim_end_matches(':')).is_ok() => {
            "colon must be followed by more characters"
        }
        true => "unexpected character",
    }
}

fn check_letters(host: &str) -> Result<(), String> {
    let wrong = host.bytes().find(|b| b.is_ascii() && *b != b'%' && !is_host_byte(*b));
    wrong.map_or(Ok(()), |b| {
        Err(format!(
            "invalid character {:?} in host name",
            char::from(b).to_string()
        ))
    })
}

fn is_host_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!$&'()*+,;=:[]<>\"-._~".contains(&b)
}
