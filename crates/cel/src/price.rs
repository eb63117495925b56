//! Prices at run time, by the sizes of the actual values: cel-go's and Kubernetes' figures.
//! [`crate::estimate`] is the same model for unknown values.

use crate::cost::{self, AUTHORIZATION};
use crate::ir::{Element, Entry, Node, Overloads, Price};
use crate::items::Items;
use crate::opaque::Opaque;
use crate::operator::Operator;
use crate::value::{Const, Val};
use serde_json::Value;
use std::net::IpAddr;

impl Price {
    /// Returns the pricing rule of a function's calls.
    pub(crate) fn for_function(name: &str, overloads: Overloads) -> Self {
        match name {
            // Prices of single overloads; all others hold for the whole function.
            "string" | "bytes" | "sort" | "@sortByAssociatedKeys" if overloads == Overloads::Several => Self::Call,
            "check" => Self::Authorization,
            "fieldSelector" | "labelSelector" => Self::Selector,
            "json.encode" => Self::TenthOfResult,
            "json.decode" | "yaml.decode" => Self::Tenth,
            "math.greatest" | "math.least" => Self::Compared,
            "isSorted" | "sum" | "min" | "max" | "indexOf" | "lastIndexOf" => Self::Traversal,
            "ip" | "bytes" => Self::TenthOfText,
            "string" => Self::TenthOfBytes,
            "url"
            | "lowerAscii"
            | "upperAscii"
            | "substring"
            | "trim"
            | "jsonpatch.escapeKey"
            | "cidr"
            | "isIP"
            | "isCIDR"
            | "quantity"
            | "isQuantity"
            | "semver"
            | "isSemver"
            | "startsWith"
            | "endsWith"
            | "strings.quote"
            | "format" => Self::Tenth,
            "replace" | "split" | "ip.isCanonical" => Self::Fifth,
            "join" => Self::Joined,
            "find" | "findAll" => Self::Matching,
            "contains" => Self::Contains,
            "containsIP" => Self::ContainsIp,
            "containsCIDR" => Self::ContainsCidr,
            "validate" => Self::Validate,
            "sets.contains" | "sets.intersects" => Self::Pairs(1),
            "sets.equivalent" => Self::Pairs(2),
            "slice" | "reverse" | "lists.range" => Self::List,
            "flatten" => Self::Flatten,
            "sort" | "distinct" | "@sortByAssociatedKeys" => Self::SelfCompared,
            _ => Self::Call,
        }
    }

    /// Returns the price of one call in units, without the evaluation of its arguments.
    pub(crate) fn units(self, arguments: &[Val<'_>], result: &Val<'_>) -> u64 {
        let [first, rest @ ..] = arguments else {
            return cost::CALL;
        };
        match (self, rest) {
            (Self::Authorization, _) => AUTHORIZATION,
            (Self::Selector, [text]) => selector(size(text)),
            (Self::Traversal, _) => traversal(first),
            (Self::TenthOfResult, _) => tenth(size(result)),
            (Self::Compared, []) => size(first).max(1),
            (Self::Compared, _) => arguments.len() as u64,
            (Self::Tenth, _) => tenth(size(first)),
            (Self::TenthOfText, _) if first.as_str().is_some() => tenth(size(first)),
            (Self::TenthOfBytes, _) if matches!(first, Val::Bytes(_)) => tenth(size(first)),
            (Self::Fifth, _) => fifth(size(first)),
            (Self::Joined, _) => fifth(size(result)),
            (Self::Matching, [pattern, ..]) => product(size(first), size(pattern)),
            (Self::Contains, [part]) => tenth(size(first)).saturating_mul(tenth(size(part))),
            (Self::ContainsIp, [other]) => tenth(size(first) * 2) + parsed(other),
            (Self::ContainsCidr, [other]) => tenth(size(first) * 2) + tenth(size(first)) + cost::CALL + parsed(other),
            (Self::Validate, [text]) => match first {
                Val::Opaque(format) => match &**format {
                    Opaque::Format(format) => product(size(text), format.pattern_characters()),
                    _ => cost::CALL,
                },
                _ => cost::CALL,
            },
            (Self::Pairs(times), [second]) => pairs(size(first), size(second), times),
            (Self::List, _) => list(size(result)),
            (Self::Flatten, []) => list(size(first)),
            (Self::Flatten, [Val::Int(depth)]) => list(size(first).saturating_mul(u64::try_from(*depth).unwrap_or(0))),
            (Self::Flatten, [_]) => list(size(first)),
            (Self::SelfCompared, []) => self_compared(first),
            (Self::SelfCompared, [keys]) => self_compared(keys),
            _ => cost::CALL,
        }
    }
}

/// Returns the price of an operator between two values, in units.
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

/// Returns the price of matching a text with a pattern, in units.
pub(crate) fn matching(text: &str, pattern_characters: usize) -> u64 {
    product(characters(text), pattern_characters as u64)
}

/// Returns true if cel-go computes the value once, with the program. Such literals cost nothing at
/// run time.
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

/// Returns true if `x in` this list is a lookup in a set made with the program.
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

/// Returns true for functions named as types, which cel-go applies to constants at compile time.
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

/// Returns the result of `size()`, and 1 for a value without a size.
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

/// Returns the price of parsing a text argument.
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

/// Returns the price of comparing each item with each; texts cost a tenth more.
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

/// Returns the price of parsing a selector: a list of requirements, each an object with a list. The
/// shortest requirement has two characters.
fn selector(length: u64) -> u64 {
    let requirement = cost::LIST + cost::OBJECT;
    length
        .div_ceil(2)
        .saturating_mul(requirement)
        .saturating_add(tenth(length) + cost::LIST)
}

/// Counts each value once, and each byte of a text.
fn traversal(value: &Val<'_>) -> u64 {
    if let Some(text) = value.as_str() {
        return text.len() as u64 / 10;
    }
    if let Val::Bytes(bytes) = value {
        return bytes.len() as u64 / 10;
    }
    if let Some(items) = value.items() {
        return match items {
            // Numbers are recognized in place.
            Items::Json(items, None) => items
                .iter()
                .fold(0, |sum, item| sum.saturating_add(json_traversal(item))),
            items => items.iter().fold(0, |sum, item| sum.saturating_add(traversal(&item))),
        };
    }
    match value.entries() {
        Some(entries) => entries.into_iter().fold(0, |sum, (key, value)| {
            sum.saturating_add(traversal(&key)).saturating_add(traversal(&value))
        }),
        None => 1,
    }
}

fn json_traversal(value: &Value) -> u64 {
    match value {
        Value::Number(_) => 1,
        value => traversal(&Val::from_json(value)),
    }
}
