//! Addresses of hosts and networks.

use super::{digits, hex};
use insula_goformat::regexp::{Limits, Regexp, Syntax, Work};
use insula_meter::Meter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::LazyLock;

/// Returns true for an address with a dot: an IPv4 address, or an IPv6 address that ends with one.
/// Numbers may begin with zeros.
pub(super) fn is_ipv4(text: &str) -> bool {
    text.contains('.') && IpAddr::from_str(&without_zeros(text)).is_ok()
}

pub(super) fn is_ipv6(text: &str) -> bool {
    Ipv6Addr::from_str(text).is_ok()
}

/// Returns true for an address and a length of its prefix. Numbers may begin with zeros.
pub(super) fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let address = without_zeros(address);
    let max = match (Ipv4Addr::from_str(&address), Ipv6Addr::from_str(&address)) {
        (Ok(_), _) => 32,
        (_, Ok(_)) => 128,
        _ => return false,
    };
    digits(length) && without_zeros(length).parse::<u32>().is_ok_and(|length| length <= max)
}

/// Removes the zeros that numbers begin with, as versions of Go before 1.17 did when they read
/// addresses (kubernetes/kubernetes#100895).
fn without_zeros(text: &str) -> String {
    let mut short = String::with_capacity(text.len());
    for part in text.split_inclusive(['.', ':']) {
        let rest = part.trim_start_matches('0');
        let has_digit = rest.starts_with(|c: char| c.is_ascii_hexdigit());
        if rest.len() < part.len() && !has_digit {
            short.push('0');
        }
        short.push_str(rest);
    }
    short
}

/// Returns true for 6, 8 or 20 bytes: in hexadecimal pairs with `:` or `-`, in groups of four with
/// `.`, or without separators.
pub(super) fn is_mac(text: &str) -> bool {
    let groups = |separator: char, width: usize| {
        let groups = text.split(separator);
        let bytes = groups.clone().count() * width / 2;
        [6, 8, 20].contains(&bytes) && groups.into_iter().all(|group| group.len() == width && hex(group))
    };
    let bare = [12, 16, 40].contains(&text.len()) && hex(text);
    bare || groups(':', 2) || groups('-', 2) || groups('.', 4)
}

/// Returns true for a host name as upstream's pattern has it: a single label with a hyphen at its
/// second place at most, or labels of letters, symbols, digits and inner hyphens before a last one
/// of letters.
pub(super) fn is_hostname(text: &str) -> bool {
    if text.len() > 255 || text.split('.').any(|label| label.len() > 63) {
        return false;
    }
    let is_part = |c: char| c.is_ascii_digit() || is_letter(c) || is_symbol(c);
    let Some((labels, last)) = text.rsplit_once('.') else {
        let mut rest = text.chars();
        let begins = rest.next().is_some_and(is_part);
        let rest = rest.as_str();
        return begins && rest.strip_prefix('-').unwrap_or(rest).chars().all(is_part);
    };
    let is_label = |label: &str| {
        let ends = |c: Option<char>| c.is_some_and(is_part);
        ends(label.chars().next()) && ends(label.chars().last()) && label.chars().all(|c| c == '-' || is_part(c))
    };
    labels.split('.').all(is_label) && last.chars().count() >= 2 && last.chars().all(is_letter)
}

fn is_letter(c: char) -> bool {
    static LETTER: LazyLock<Option<Regexp>> = LazyLock::new(|| class(r"^\pL$"));
    c.is_ascii_alphabetic() || !c.is_ascii() && matches(&LETTER, c)
}

fn is_symbol(c: char) -> bool {
    static SYMBOL: LazyLock<Option<Regexp>> = LazyLock::new(|| class(r"^\pS$"));
    "$+<=>^`|~".contains(c) || !c.is_ascii() && matches(&SYMBOL, c)
}

fn class(pattern: &str) -> Option<Regexp> {
    Syntax::parse(pattern, &Limits::USUAL).ok()?.compile().ok()
}

fn matches(class: &LazyLock<Option<Regexp>>, c: char) -> bool {
    let text = c.encode_utf8(&mut [0; 4]).to_owned();
    let one = |class: &Regexp| class.is_match(&text, &mut Work::new(u64::MAX, &Meter::unbounded())) == Ok(true);
    class.as_ref().is_some_and(one)
}
