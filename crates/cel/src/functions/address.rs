//! IP addresses and networks: `ip('10.0.0.1')`, `cidr('10.0.0.0/8')`.
//!
//! Parsed as by Go's `net/netip`, with its error messages. Kubernetes refuses addresses with zones
//! and IPv4 addresses mapped into IPv6.

use super::opaque::{opaque, text_argument};
use super::quote::quoted;
use super::{Context, Function, global, member};
use crate::error::{EvalError, invalid, no_overload};
use crate::opaque::{Cidr, Opaque};
use crate::value::{Result, Val};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) static FUNCTIONS: &[Function] = &[
    global("ip", &["string_to_ip: (string) -> net.IP"], |cx, a| {
        let address = parse_ip(text_argument(cx, a, "ip")?).map_err(invalid)?;
        opaque(cx, Opaque::Ip(address))
    }),
    member("ip", &["cidr_ip: net.CIDR.() -> net.IP"], |cx, a| {
        opaque(cx, Opaque::Ip(network(a, "ip")?.address))
    }),
    global("isIP", &["is_ip: (string) -> bool"], |cx, a| {
        Ok(Val::Bool(parse_ip(text_argument(cx, a, "isIP")?).is_ok()))
    }),
    global("ip.isCanonical", &["ip_is_canonical: (string) -> bool"], |cx, a| {
        let text = text_argument(cx, a, "ip.isCanonical")?;
        Ok(Val::Bool(parse_ip(text).map_err(invalid)?.to_string() == text))
    }),
    member("family", &["ip_family: net.IP.() -> int"], |_, a| {
        Ok(Val::Int(if address(a, "family")?.is_ipv4() { 4 } else { 6 }))
    }),
    member("isUnspecified", &["ip_is_unspecified: net.IP.() -> bool"], |_, a| {
        Ok(Val::Bool(address(a, "isUnspecified")?.is_unspecified()))
    }),
    member("isLoopback", &["ip_is_loopback: net.IP.() -> bool"], |_, a| {
        Ok(Val::Bool(address(a, "isLoopback")?.is_loopback()))
    }),
    member(
        "isLinkLocalMulticast",
        &["ip_is_link_local_multicast: net.IP.() -> bool"],
        |_, a| {
            Ok(Val::Bool(match address(a, "isLinkLocalMulticast")? {
                IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
                IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
            }))
        },
    ),
    member(
        "isLinkLocalUnicast",
        &["ip_is_link_local_unicast: net.IP.() -> bool"],
        |_, a| Ok(Val::Bool(is_link_local(address(a, "isLinkLocalUnicast")?))),
    ),
    member(
        "isGlobalUnicast",
        &["ip_is_global_unicast: net.IP.() -> bool"],
        |_, a| {
            let address = address(a, "isGlobalUnicast")?;
            let other = address.is_unspecified()
                || address == Ipv4Addr::BROADCAST
                || address.is_loopback()
                || address.is_multicast()
                || is_link_local(address);
            Ok(Val::Bool(!other))
        },
    ),
    global("cidr", &["string_to_cidr: (string) -> net.CIDR"], |cx, a| {
        let network = parse_network(text_argument(cx, a, "cidr")?)?;
        opaque(cx, Opaque::Cidr(network))
    }),
    global("isCIDR", &["is_cidr: (string) -> bool"], |cx, a| {
        Ok(Val::Bool(parse_network(text_argument(cx, a, "isCIDR")?).is_ok()))
    }),
    member("prefixLength", &["cidr_prefix_length: net.CIDR.() -> int"], |_, a| {
        Ok(Val::Int(i64::from(network(a, "prefixLength")?.bits)))
    }),
    member("masked", &["cidr_masked: net.CIDR.() -> net.CIDR"], |cx, a| {
        opaque(cx, Opaque::Cidr(network(a, "masked")?.masked()))
    }),
    member(
        "containsIP",
        &[
            "cidr_contains_ip_string: net.CIDR.(string) -> bool",
            "cidr_contains_ip_ip: net.CIDR.(net.IP) -> bool",
        ],
        contains_ip,
    ),
    member(
        "containsCIDR",
        &[
            "cidr_contains_cidr_string: net.CIDR.(string) -> bool",
            "cidr_contains_cidr: net.CIDR.(net.CIDR) -> bool",
        ],
        contains_network,
    ),
];

fn address(args: &[Val<'_>], name: &'static str) -> std::result::Result<IpAddr, EvalError> {
    match args {
        [Val::Opaque(value)] => match &**value {
            Opaque::Ip(address) => Ok(*address),
            _ => Err(no_overload(name)),
        },
        _ => Err(no_overload(name)),
    }
}

fn network(args: &[Val<'_>], name: &'static str) -> std::result::Result<Cidr, EvalError> {
    match args {
        [Val::Opaque(value)] => match &**value {
            Opaque::Cidr(network) => Ok(*network),
            _ => Err(no_overload(name)),
        },
        _ => Err(no_overload(name)),
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

fn contains_ip<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let [outer, inner] = args else {
        return Err(no_overload("containsIP"));
    };
    let outer = network(std::slice::from_ref(outer), "containsIP")?;
    let inner = std::slice::from_ref(inner);
    let inner = match inner {
        [Val::Opaque(_)] => address(inner, "containsIP")?,
        // Kubernetes' error for a text that is no address has no detail.
        _ => parse_ip(text_argument(cx, inner, "containsIP")?).map_err(|_| no_overload("containsIP"))?,
    };
    Ok(Val::Bool(outer.contains(inner)))
}

fn contains_network<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let [outer, inner] = args else {
        return Err(no_overload("containsCIDR"));
    };
    let outer = network(std::slice::from_ref(outer), "containsCIDR")?;
    let inner = std::slice::from_ref(inner);
    let inner = match inner {
        [Val::Opaque(_)] => network(inner, "containsCIDR")?,
        _ => parse_network(text_argument(cx, inner, "containsCIDR")?)?,
    };
    Ok(Val::Bool(outer.contains(inner.address) && outer.bits <= inner.bits))
}

/// Bytes of a text repeated in an error. Longer texts are no addresses.
const SHOWN_BYTES_MAX: usize = 256;

fn clipped(text: &str) -> &str {
    text.get(..text.floor_char_boundary(SHOWN_BYTES_MAX)).unwrap_or(text)
}

fn parse_ip(text: &str) -> std::result::Result<IpAddr, String> {
    let text = clipped(text);
    let shown = quoted(text);
    let (address, zone) =
        go_address(text).map_err(|e| format!("IP Address {shown} parse error during conversion from string: {e}"))?;
    if zone {
        return Err(format!("IP address {shown} with zone value is not allowed"));
    }
    if is_mapped(address) {
        return Err(format!("IPv4-mapped IPv6 address {shown} is not allowed"));
    }
    Ok(address)
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

fn parse_network(text: &str) -> std::result::Result<Cidr, EvalError> {
    let text = clipped(text);
    const CONTEXT: &str = "network address parse error during conversion from string";
    let network = go_prefix(text)
        // The message has this prefix twice, as in Kubernetes.
        .map_err(|e| {
            invalid(format!(
                "{CONTEXT}: {CONTEXT}: netip.ParsePrefix({}): {e}",
                quoted(text)
            ))
        })?;
    if is_mapped(network.address) {
        let shown = quoted(text);
        return Err(invalid(format!(
            "{CONTEXT}: IPv4-mapped IPv6 address {shown} is not allowed"
        )));
    }
    Ok(network)
}

fn go_prefix(text: &str) -> std::result::Result<Cidr, String> {
    let (address, bits) = text.rsplit_once('/').ok_or("no '/'")?;
    let (address, zone) = go_address(address)?;
    if zone {
        return Err("IPv6 zones cannot be present in a prefix".to_owned());
    }
    let bad = || format!("bad bits after slash: {}", quoted(bits));
    let digits = bits.bytes().all(|b| b.is_ascii_digit());
    if bits.is_empty() || !digits || (bits.len() > 1 && bits.starts_with('0')) || bits.len() > 18 {
        return Err(bad());
    }
    let max = if address.is_ipv4() { 32 } else { 128 };
    match bits.parse::<u8>() {
        Ok(bits) if bits <= max => Ok(Cidr { address, bits }),
        _ => Err("prefix length out of range".to_owned()),
    }
}

/// Parses an address. The flag is true if it had a zone.
pub(super) fn go_address(text: &str) -> std::result::Result<(IpAddr, bool), String> {
    let failure = |(message, at): Failure<'_>| {
        let place = if at.is_empty() {
            String::new()
        } else {
            format!(" (at {})", quoted(at))
        };
        format!("ParseAddr({}): {message}{place}", quoted(text))
    };
    match text.bytes().find(|b| b".:%".contains(b)) {
        Some(b'.') => {
            let octets = octets(text).map_err(failure)?;
            Ok((IpAddr::V4(Ipv4Addr::from_octets(octets)), false))
        }
        Some(b':') => {
            let (address, zone) = match text.split_once('%') {
                None => (text, false),
                Some((_, "")) => return Err(failure(("zone must be a non-empty string", ""))),
                Some((address, _)) => (address, true),
            };
            Ok((IpAddr::V6(groups(address).map_err(failure)?), zone))
        }
        Some(_) => Err(failure(("missing IPv6 address", ""))),
        None => Err(failure(("unable to parse IP", ""))),
    }
}

/// The problem, and the text from the faulty part on.
type Failure<'t> = (&'static str, &'t str);

fn octets(text: &str) -> std::result::Result<[u8; 4], Failure<'_>> {
    let mut octets = [0; 4];
    let (mut place, mut value, mut digits) = (0, 0_u16, 0);
    for (i, byte) in text.bytes().enumerate() {
        let at = text.get(i..).unwrap_or_default();
        if byte.is_ascii_digit() {
            if digits == 1 && value == 0 {
                return Err(("IPv4 field has octet with leading zero", ""));
            }
            value = value * 10 + u16::from(byte - b'0');
            digits += 1;
            octets[place] = u8::try_from(value).map_err(|_| ("IPv4 field has value >255", ""))?;
        } else if byte == b'.' {
            if digits == 0 || i == text.len() - 1 {
                return Err(("IPv4 field must have at least one digit", at));
            }
            if place == 3 {
                return Err(("IPv4 address too long", ""));
            }
            (place, value, digits) = (place + 1, 0, 0);
        } else {
            return Err(("unexpected character", at));
        }
    }
    if place < 3 {
        Err(("IPv4 address too short", ""))
    } else {
        Ok(octets)
    }
}

fn groups(text: &str) -> std::result::Result<Ipv6Addr, Failure<'_>> {
    let mut bytes: Vec<u8> = Vec::with_capacity(16);
    let (mut rest, mut gap) = match text.strip_prefix("::") {
        Some("") => return Ok(Ipv6Addr::UNSPECIFIED),
        Some(rest) => (rest, Some(0)),
        None => (text, None),
    };
    while bytes.len() < 16 {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits > 4 {
            return Err(("each group must have 4 or less digits", rest));
        }
        if digits == 0 {
            return Err(("each colon-separated field must have at least one digit", rest));
        }
        let (group, after) = rest.split_at(digits);
        if after.starts_with('.') {
            if gap.is_none() && bytes.len() != 12 {
                return Err((
                    "embedded IPv4 address must replace the final 2 fields of the address",
                    rest,
                ));
            }
            if bytes.len() > 12 {
                return Err((
                    "too many hex fields to fit an embedded IPv4 at the end of the address",
                    rest,
                ));
            }
            bytes.extend(octets(rest)?);
            rest = "";
            break;
        }
        let group = u16::from_str_radix(group, 16).map_err(|_| ("IPv6 field has value >=2^16", rest))?;
        bytes.extend(group.to_be_bytes());
        rest = after;
        if rest.is_empty() {
            break;
        }
        rest = match rest.strip_prefix(':') {
            None => return Err(("unexpected character, want colon", rest)),
            Some("") => return Err(("colon must be followed by more characters", rest)),
            Some(rest) => rest,
        };
        if let Some(after) = rest.strip_prefix(':') {
            if gap.is_some() {
                return Err(("multiple :: in address", rest));
            }
            gap = Some(bytes.len());
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return Err(("trailing garbage after address", rest));
    }
    match (gap, 16 - bytes.len()) {
        (None, 0) => {}
        (Some(_), 0) => return Err(("the :: must expand to at least one field of zeros", "")),
        (None, _) => return Err(("address string too short", "")),
        (Some(gap), missing) => {
            let _ = bytes.splice(gap..gap, std::iter::repeat_n(0, missing));
        }
    }
    <[u8; 16]>::try_from(bytes)
        .map(Ipv6Addr::from)
        .map_err(|_| ("address string too short", ""))
}
