//! The price of what was evaluated, by the sizes of the values that were there: cel-go's and Kubernetes' figures.
//! [`crate::estimate`] is the same model before the values are known.

use crate::cost::{self, AUTHORIZATION};
use crate::functions::Opaque;
use crate::ir::{Const, Element, Entry, Node, Operator, Overloads};
use crate::value::Val;
use std::net::IpAddr;

/// The price of a call, arguments and result not included.
pub(crate) fn call(name: &str, overloads: Overloads, arguments: &[Val<'_>], result: &Val<'_>) -> u64 {
    match (name, arguments) {
        // Prices that are those of overloads; all others are those of functions.
        ("string" | "bytes" | "sort" | "@sortByAssociatedKeys", _) if overloads == Overloads::Several => cost::CALL,
        ("check", _) => AUTHORIZATION,
        ("fieldSelector" | "labelSelector", [_, text]) => selector(size(text)),
        ("isSorted" | "sum" | "min" | "max" | "indexOf" | "lastIndexOf", [target, ..]) => traversal(target),
        ("ip", [target]) if target.as_str().is_none() => cost::CALL,
        (
            "url"
            | "lowerAscii"
            | "upperAscii"
            | "substring"
            | "trim"
            | "jsonpatch.escapeKey"
            | "cidr"
            | "isIP"
            | "isCIDR"
            | "ip"
            | "quantity"
            | "isQuantity"
            | "semver"
            | "isSemver"
            | "startsWith"
            | "endsWith"
            | "strings.quote"
            | "format",
            [text, ..],
        ) => tenth(size(text)),
        ("replace" | "split" | "ip.isCanonical", [text, ..]) => fifth(size(text)),
        ("join", _) => fifth(size(result)),
        ("find" | "findAll", [text, pattern, ..]) => product(size(text), size(pattern)),
        ("contains", [text, part]) => tenth(size(text)).saturating_mul(tenth(size(part))),
        ("bytes", [text]) if text.as_str().is_some() => tenth(size(text)),
        ("string", [bytes @ Val::Bytes(_)]) => tenth(size(bytes)),
        ("containsIP", [network, other]) => tenth(size(network) * 2) + parsed(other),
        ("containsCIDR", [network, other]) => {
            tenth(size(network) * 2) + tenth(size(network)) + cost::CALL + parsed(other)
        }
        ("validate", [Val::Opaque(format), text]) => match &**format {
            Opaque::Format(format) => product(size(text), format.pattern_characters()),
            _ => cost::CALL,
        },
        ("sets.contains" | "sets.intersects", [one, two]) => pairs(size(one), size(two), 1),
        ("sets.equivalent", [one, two]) => pairs(size(one), size(two), 2),
        ("slice" | "reverse" | "lists.range", _) => list(size(result)),
        ("flatten", [of]) => list(size(of)),
        ("flatten", [of, depth]) => match depth {
            Val::Int(depth) => list(size(of).saturating_mul(u64::try_from(*depth).unwrap_or(0))),
            _ => list(size(of)),
        },
        ("sort" | "distinct", [of]) | ("@sortByAssociatedKeys", [_, of]) => self_compared(of),
        _ => cost::CALL,
    }
}

/// The price of an operator between two values.
pub(crate) fn operator(operator: Operator, overloads: Overloads, left: &Val<'_>, right: &Val<'_>) -> u64 {
    match operator {
        _ if overloads == Overloads::Several => cost::CALL,
        Operator::Equal | Operator::NotEqual => match (left, right) {
            (Val::Opaque(_), _) => cost::CALL,
            _ => compared(left, right),
        },
        Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual if is_text(left) => {
            compared(left, right)
        }
        Operator::Add if is_text(left) => tenth(size(left).saturating_add(size(right))),
        Operator::In if right.items().is_some() => size(right),
        _ => cost::CALL,
    }
}

/// The price of matching a text with a pattern.
pub(crate) fn matching(text: &str, pattern_characters: usize) -> u64 {
    product(characters(text), pattern_characters as u64)
}

/// Whether cel-go makes the value once, with the program: literals of literals cost nothing when they are evaluated.
pub(crate) fn is_constant(node: &Node) -> bool {
    match node {
        Node::Const(_) => true,
        Node::List(elements) => is_constant_list(elements),
        Node::Map(entries) => is_constant_map(entries),
        Node::Call {
            function, arguments, ..
        } if is_conversion(function.name) => {
            matches!(&**arguments, [argument] if is_constant(argument))
        }
        _ => false,
    }
}

pub(crate) fn is_constant_list(elements: &[Element]) -> bool {
    elements.iter().all(|e| !e.optional && is_constant(&e.node))
}

pub(crate) fn is_constant_map(entries: &[Entry]) -> bool {
    entries
        .iter()
        .all(|e| !e.optional && is_constant(&e.key) && is_constant(&e.value))
}

/// Whether `x in` this list is a look-up in a set made with the program.
pub(crate) fn is_constant_set(node: &Node) -> bool {
    let scalar = |node: &Node| match node {
        Node::Const(constant) => !matches!(constant, Const::Null | Const::Bytes(_) | Const::Type(_)),
        _ => false,
    };
    match node {
        Node::List(elements) => elements.iter().all(|e| !e.optional && scalar(&e.node)),
        Node::Const(Const::Json(list)) => list
            .as_array()
            .is_some_and(|items| items.iter().all(|i| !i.is_null() && !i.is_array() && !i.is_object())),
        _ => false,
    }
}

/// Functions named as types are, which cel-go applies to constants beforehand.
pub(crate) fn is_conversion(name: &str) -> bool {
    const CONVERSIONS: [&str; 10] = [
        "bool",
        "bytes",
        "double",
        "dyn",
        "duration",
        "int",
        "string",
        "timestamp",
        "type",
        "uint",
    ];
    CONVERSIONS.contains(&name)
}

/// What `size()` says, and one for what has no size.
fn size(value: &Val<'_>) -> u64 {
    if let Some(text) = value.as_str() {
        return characters(text);
    }
    match value {
        Val::Bytes(bytes) => bytes.len() as u64,
        Val::Opaque(opaque) => match &**opaque {
            Opaque::Ip(IpAddr::V4(_)) => 4,
            Opaque::Ip(IpAddr::V6(_)) => 16,
            Opaque::Cidr(cidr) => cidr.prefix_bytes(),
            _ => 1,
        },
        _ => match value.items() {
            Some(items) => items.len() as u64,
            None => value.map_len().map_or(1, |n| n as u64),
        },
    }
}

fn characters(text: &str) -> u64 {
    text.chars().count() as u64
}

fn is_text(value: &Val<'_>) -> bool {
    value.as_str().is_some() || matches!(value, Val::Bytes(_))
}

fn tenth(size: u64) -> u64 {
    size.div_ceil(10)
}

fn fifth(size: u64) -> u64 {
    size.div_ceil(5)
}

fn product(text: u64, pattern: u64) -> u64 {
    tenth(text.saturating_add(1)).saturating_mul(pattern.div_ceil(4))
}

fn compared(left: &Val<'_>, right: &Val<'_>) -> u64 {
    tenth(size(left).min(size(right)))
}

/// A text argument is parsed first.
fn parsed(other: &Val<'_>) -> u64 {
    other.as_str().map_or(0, |text| tenth(characters(text)))
}

fn pairs(one: u64, two: u64, factor: u64) -> u64 {
    one.saturating_mul(two)
        .saturating_mul(factor)
        .saturating_add(cost::CALL)
}

fn list(units: u64) -> u64 {
    units.saturating_add(cost::CALL + cost::LIST)
}

/// Each item with each; a text costs a tenth more.
fn self_compared(of: &Val<'_>) -> u64 {
    let square = size(of).saturating_mul(size(of));
    let texts = of
        .items()
        .and_then(|items| items.get(0))
        .is_some_and(|first| is_text(&first));
    list(
        square
            .saturating_mul(2)
            .saturating_add(if texts { square / 10 } else { 0 }),
    )
}

/// A selector is a list of requirements, each an object with a list; the shortest has two characters.
fn selector(length: u64) -> u64 {
    let requirement = cost::LIST + cost::OBJECT;
    length
        .div_ceil(2)
        .saturating_mul(requirement)
        .saturating_add(tenth(length) + cost::LIST)
}

/// Each value in it once; of a text each byte.
fn traversal(value: &Val<'_>) -> u64 {
    if let Some(text) = value.as_str() {
        return text.len() as u64 / 10;
    }
    if let Val::Bytes(bytes) = value {
        return bytes.len() as u64 / 10;
    }
    if let Some(items) = value.items() {
        return items.iter().fold(0, |sum, item| sum.saturating_add(traversal(&item)));
    }
    match value.entries() {
        Some(entries) => entries.into_iter().fold(0, |sum, (key, value)| {
            sum.saturating_add(traversal(&key)).saturating_add(traversal(&value))
        }),
        None => 1,
    }
}
