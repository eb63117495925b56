//! URLs as Go's `net/url` parses them: `url('https://example.com/a?k=1').getHost()`.

use super::address::go_address;
use super::opaque::{opaque, text_argument};
use super::quote::quoted;
use super::{Context, Function, global, made, member};
use crate::error::{EvalError, invalid, no_overload};
use crate::opaque::{Opaque, Url};
use crate::value::{MapVal, Result, Val};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

pub(super) static FUNCTIONS: &[Function] = &[
    global("url", &["string_to_url: (string) -> kubernetes.URL"], |cx, a| {
        let text = text_argument(cx, a, "url")?;
        cx.budget.memory(text.len() * 2)?;
        let parsed = check(text).and_then(|()| Url::parse(text));
        let url = parsed.map_err(|e| invalid(format!("URL parse error during conversion from string: {e}")))?;
        opaque(cx, Opaque::Url(url))
    }),
    global("isURL", &["is_url_string: (string) -> bool"], |cx, a| {
        Ok(Val::Bool(check(text_argument(cx, a, "isURL")?).is_ok()))
    }),
    member(
        "getScheme",
        &["url_get_scheme: kubernetes.URL.() -> string"],
        |cx, a| part(cx, a, "getScheme", |u| u.scheme.clone()),
    ),
    member("getHost", &["url_get_host: kubernetes.URL.() -> string"], |cx, a| {
        part(cx, a, "getHost", |u| u.host.clone())
    }),
    member(
        "getHostname",
        &["url_get_hostname: kubernetes.URL.() -> string"],
        |cx, a| part(cx, a, "getHostname", |u| u.host_and_port().0.to_owned()),
    ),
    member("getPort", &["url_get_port: kubernetes.URL.() -> string"], |cx, a| {
        part(cx, a, "getPort", |u| u.host_and_port().1.to_owned())
    }),
    member(
        "getEscapedPath",
        &["url_get_escaped_path: kubernetes.URL.() -> string"],
        |cx, a| part(cx, a, "getEscapedPath", Url::escaped_path),
    ),
    member(
        "getQuery",
        &["url_get_query: kubernetes.URL.() -> map(string, list(string))"],
        query,
    ),
];

/// Part of a URL, which decides the allowed escapes and characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UrlPart {
    Host,
    Zone,
    Path,
    Query,
    User,
    Fragment,
}

/// Checks that a text is a URL for a request (`url.ParseRequestURI`): absolute, or an absolute
/// path.
pub(super) fn check(text: &str) -> std::result::Result<(), String> {
    match Parts::parse(text, true) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("parse {}: {error}", quoted(text))),
    }
}

impl Url {
    fn parse(text: &str) -> std::result::Result<Self, String> {
        let (url, fragment) = text.split_once('#').unwrap_or((text, ""));
        Parts::parse(url, false)
            .and_then(|parts| unescape(fragment, UrlPart::Fragment).map(|_| parts))
            .map_err(|error| format!("parse {}: {error}", quoted(text)))
    }

    fn host_and_port(&self) -> (&str, &str) {
        let (host, port) = match self.host.rfind(':') {
            Some(colon) if is_port(&self.host[colon..]) => (&self.host[..colon], &self.host[colon + 1..]),
            _ => (self.host.as_str(), ""),
        };
        let inner = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        (inner.unwrap_or(host), port)
    }

    fn escaped_path(&self) -> String {
        let valid = |b: u8| b"!$&'()*+,;=:@[]%".contains(&b) || !must_escape(b, UrlPart::Path);
        match unescape(&self.path, UrlPart::Path) {
            _ if self.path.bytes().all(valid) || self.path == "*" => self.path.clone(),
            Ok(path) => escape(&path),
            Err(_) => self.path.clone(),
        }
    }
}

/// The steps of parsing a URL.
struct Parts;

impl Parts {
    fn parse(text: &str, for_request: bool) -> std::result::Result<Url, String> {
        if text.bytes().any(|b| b < 0x20 || b == 0x7f) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        if text.is_empty() && for_request {
            return Err("empty url".to_owned());
        }
        let mut url = Url {
            scheme: String::new(),
            host: String::new(),
            path: String::new(),
            query: String::new(),
        };
        if text == "*" {
            text.clone_into(&mut url.path);
            return Ok(url);
        }
        let (scheme, rest) = split_scheme(text)?;
        url.scheme = scheme.to_ascii_lowercase();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        query.clone_into(&mut url.query);
        if !rest.starts_with('/') {
            if !scheme.is_empty() {
                // `mailto:x`: an opaque URL without a path.
                return Ok(url);
            }
            if for_request {
                return Err("invalid URI for request".to_owned());
            }
            if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        let mut path = rest;
        if let Some(after) = rest.strip_prefix("//")
            && (!scheme.is_empty() || (!for_request && !rest.starts_with("///")))
        {
            let (authority, after) = after.split_at(after.find('/').unwrap_or(after.len()));
            path = after;
            let (user, host) = authority
                .rsplit_once('@')
                .map_or((None, authority), |(u, h)| (Some(u), h));
            url.host = parse_host(host)?;
            check_user(user)?;
        }
        unescape(path, UrlPart::Path)?;
        path.clone_into(&mut url.path);
        Ok(url)
    }
}

fn split_scheme(text: &str) -> std::result::Result<(&str, &str), String> {
    for (i, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if i > 0 => {}
            b':' if i == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..i], &text[i + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn check_user(user: Option<&str>) -> std::result::Result<(), String> {
    let Some(user) = user else { return Ok(()) };
    let valid = |b: u8| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b);
    if !user.bytes().all(valid) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    unescape(user, UrlPart::User).map(drop)
}

/// Returns true for `:` with optional digits, and for the empty text.
fn is_port(text: &str) -> bool {
    text.is_empty()
        || text
            .strip_prefix(':')
            .is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()))
}

fn parse_host(host: &str) -> std::result::Result<String, String> {
    let check_port = |port: &str| {
        if is_port(port) {
            Ok(())
        } else {
            Err(format!("invalid port {} after host", quoted(port)))
        }
    };
    match host.rfind('[') {
        Some(0) => {}
        Some(_) => return Err("invalid IP-literal".to_owned()),
        None => {
            check_port(host.rfind(':').map_or("", |colon| &host[colon..]))?;
            return Ok(show(unescape(host, UrlPart::Host)?));
        }
    }
    let (inside, port) = host[1..].rsplit_once(']').ok_or("missing ']' in host")?;
    check_port(port)?;
    let (address, zone) = inside.split_at(inside.find("%25").unwrap_or(inside.len()));
    let mut inside = unescape(address, UrlPart::Host)?;
    inside.extend(unescape(zone, UrlPart::Zone)?);
    let inside = show(inside);
    match go_address(&inside).map_err(|e| format!("invalid host: {e}"))? {
        (IpAddr::V4(_), _) => Err("invalid IP-literal".to_owned()),
        (IpAddr::V6(_), _) => Ok(format!("[{inside}]{port}")),
    }
}

fn show(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

fn must_escape(byte: u8, part: UrlPart) -> bool {
    if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
        return false;
    }
    match part {
        UrlPart::Host | UrlPart::Zone => !b"!$&'()*+,;=:[]<>\"".contains(&byte),
        UrlPart::Path => !b"$&+,/:;=@".contains(&byte),
        UrlPart::User => !b"$&+,;=".contains(&byte),
        UrlPart::Query => true,
        UrlPart::Fragment => !b"$&+,/:;=?@!()*".contains(&byte),
    }
}

fn unescape(text: &str, part: UrlPart) -> std::result::Result<Vec<u8>, String> {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while let Some(byte) = bytes.get(i).copied() {
        let hosted = matches!(part, UrlPart::Host | UrlPart::Zone);
        if byte == b'%' {
            let escape = bytes.get(i..i + 3).filter(|e| e[1..].iter().all(u8::is_ascii_hexdigit));
            let value = escape.and_then(|e| u8::from_str_radix(std::str::from_utf8(&e[1..]).ok()?, 16).ok());
            let allowed = |value: u8| match part {
                // A host escapes only bytes that are no ASCII; a zone also its percent sign and
                // spaces.
                UrlPart::Host => value >= 0x80 || value == b'%',
                UrlPart::Zone => value == b'%' || value == b' ' || !must_escape(value, UrlPart::Host),
                _ => true,
            };
            let Some(value) = value.filter(|v| allowed(*v)) else {
                let shown = String::from_utf8_lossy(&bytes[i..bytes.len().min(i + 3)]);
                return Err(format!("invalid URL escape {}", quoted(&shown)));
            };
            plain.push(value);
            i += 3;
            continue;
        }
        if hosted && byte < 0x80 && must_escape(byte, part) {
            let shown = quoted(&char::from(byte).to_string());
            return Err(format!("invalid character {shown} in host name"));
        }
        plain.push(if byte == b'+' && part == UrlPart::Query {
            b' '
        } else {
            byte
        });
        i += 1;
    }
    Ok(plain)
}

fn escape(path: &[u8]) -> String {
    let mut escaped = String::with_capacity(path.len());
    for byte in path {
        if must_escape(*byte, UrlPart::Path) {
            escaped.push_str(&format!("%{byte:02X}"));
        } else {
            escaped.push(char::from(*byte));
        }
    }
    escaped
}

fn receiver<'s>(args: &'s [Val<'_>], name: &'static str) -> std::result::Result<&'s Url, EvalError> {
    match args {
        [Val::Opaque(value)] => match &**value {
            Opaque::Url(url) => Ok(url),
            _ => Err(no_overload(name)),
        },
        _ => Err(no_overload(name)),
    }
}

fn part<'v>(cx: &mut Context<'_>, args: &[Val<'v>], name: &'static str, pick: impl Fn(&Url) -> String) -> Result<'v> {
    made(cx, pick(receiver(args, name)?))
}

/// Returns the query's values by name, in the order of the text. Pairs with invalid escapes or a
/// semicolon are left out.
fn query<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let url = receiver(args, "getQuery")?;
    cx.budget.memory(url.query.len())?;
    let mut names: BTreeMap<String, Vec<Val<'v>>> = BTreeMap::new();
    for pair in url.query.split('&').filter(|p| !p.is_empty() && !p.contains(';')) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Ok(name), Ok(value)) = (unescape(name, UrlPart::Query), unescape(value, UrlPart::Query)) else {
            continue;
        };
        cx.budget.charge(1)?;
        cx.budget.memory(4 * size_of::<Val<'_>>())?;
        names.entry(show(name)).or_default().push(Val::string(show(value)));
    }
    let entries = names
        .into_iter()
        .map(|(name, values)| (Val::string(name), Val::list(values)));
    Ok(Val::Map(Rc::new(MapVal::new(entries.collect())?)))
}
