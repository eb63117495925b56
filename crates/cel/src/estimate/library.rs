//! Cost estimates of the functions of Kubernetes' libraries and of cel-go's extensions, as each
//! declares its price.

use super::operand::{CHARACTER, Call, Operand, PATTERN_CHARACTER, matching};
use super::origin::{Origin, Step};
use super::{LIST, OBJECT, Range, Walk};
use crate::cost::{AUTHORIZATION, NAMED_PATTERN_CHARACTERS_MAX};
use crate::types::Type;
use cel::common::ast::{Expr, LiteralValue};

/// Bytes of a line of YAML for each byte of JSON: the deepest one is indented by all its levels.
const YAML_LINE: u64 = 2 * crate::compare::DEPTH_MAX as u64 + 4;

/// Characters of the longest name of a format.
const FORMAT_CHARACTERS_MAX: u64 = 64;
/// Bytes of an address: version 4 and version 6.
const ADDRESS: Range = Range { min: 4, max: 16 };

/// Estimates a library function; `None` for functions without a price of their own.
pub(super) fn call(walk: &Walk<'_>, name: &str, has_target: bool, operands: &[Operand<'_>]) -> Option<Call> {
    Some(match (name, operands) {
        ("check", _) => Call::costs(Range::exactly(AUTHORIZATION)),
        ("fieldSelector" | "labelSelector", [_, text]) => Call::costs(selector(text.size())),
        ("isSorted" | "sum" | "min" | "max" | "indexOf" | "lastIndexOf", [target, ..]) if has_target => {
            Call::costs(traversal(walk, target))
        }
        ("lowerAscii" | "upperAscii" | "substring" | "trim" | "url" | "jsonpatch.escapeKey", [text, ..]) => {
            Call::makes(text.size().scaled(CHARACTER), text.size())
        }
        ("ip", [cidr]) if has_target && cidr.ty == Type::Opaque("net.CIDR") => Call::ONE,
        ("cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver", [text, ..]) => {
            Call::costs(text.size().scaled(CHARACTER))
        }
        ("ip.isCanonical", [text]) => Call::costs(text.size().scaled(2.0 * CHARACTER)),
        ("containsIP", [_, other]) => Call::costs(parsed(ADDRESS.plus(ADDRESS).scaled(CHARACTER), other)),
        ("containsCIDR", [_, other]) => {
            let masked = ADDRESS.scaled(CHARACTER).plus(Range::ONE);
            Call::costs(parsed(ADDRESS.plus(ADDRESS).scaled(CHARACTER).plus(masked), other))
        }
        ("validate", [_, text]) => {
            let pattern = NAMED_PATTERN_CHARACTERS_MAX as f64 * PATTERN_CHARACTER;
            Call::costs(text.size().scaled(CHARACTER).scaled(pattern))
        }
        ("replace", [text, from, to, ..]) => Call::makes(
            text.size().scaled(2.0 * CHARACTER),
            replaced(text.size(), from.size(), to.size()),
        ),
        ("split", [text, _, rest @ ..]) => {
            let pieces = rest.first().and_then(literal).map_or(text.size().max, |n| n as u64);
            Call::makes(text.size().scaled(2.0 * CHARACTER), Range::up_to(pieces))
        }
        ("join", [list, rest @ ..]) => {
            let size = joined(walk, list, rest.first());
            Call::makes(size.scaled(CHARACTER), size)
        }
        ("find" | "findAll", [text, pattern, ..]) => {
            Call::makes(matching(text.size(), pattern.size()), Range::up_to(text.size().max))
        }
        ("_==_", [left, right]) if left.ty == right.ty => return same(&left.ty, right.size),
        ("json.encode", [value]) => {
            let size = super::document::text(walk, value);
            Call::makes(size.scaled(CHARACTER), size)
        }
        ("yaml.encode", [value]) => {
            let size = super::document::text(walk, value);
            // Effort is charged while the text is written. A line is indented by its depth.
            Call::makes(size.scaled(CHARACTER), size.times(Range::exactly(YAML_LINE)))
        }
        _ => return extension(name, operands),
    })
}

/// Estimates the list and set functions of cel-go's extensions.
fn extension(name: &str, operands: &[Operand<'_>]) -> Option<Call> {
    Some(match (name, operands) {
        ("sets.contains" | "sets.intersects", [one, two]) => pairs(one.size(), two.size(), 1.0),
        ("sets.equivalent", [one, two]) => pairs(one.size(), two.size(), 2.0),
        ("lists.range", [count]) => list(1.0, Range::exactly(literal_or(count, u64::MAX))),
        ("reverse", [of]) => list(1.0, of.size()),
        ("slice", [of, from, to]) => {
            let (from, to) = (literal_or(from, 0), literal_or(to, of.size().max));
            // Reversed bounds wrap, as in cel-go: the size is unbounded.
            list(1.0, Range::exactly(to.wrapping_sub(from)))
        }
        ("flatten", [of]) => list(1.0, of.size()),
        ("flatten", [of, depth]) => list(literal_or(depth, u64::MAX) as f64, of.size()),
        ("distinct", [of]) => list(2.0, of.size().times(of.size())),
        ("sort", [of]) => sorted(of),
        ("@sortByAssociatedKeys", [_, keys]) => sorted(keys),
        ("math.greatest" | "math.least", [one]) => Call::costs(one.size().or(Range::ONE)),
        ("math.greatest" | "math.least", several) => Call::costs(Range::exactly(several.len() as u64)),
        ("json.decode" | "yaml.decode", [text]) => {
            Call::makes(text.size().scaled(CHARACTER), Range::up_to(text.size().max))
        }
        _ => return None,
    })
}

fn pairs(one: Range, two: Range, factor: f64) -> Call {
    Call::costs(one.times(two).scaled(factor).plus(Range::ONE))
}

/// Estimates a call that makes a list.
fn list(factor: f64, size: Range) -> Call {
    Call::makes(size.scaled(factor).plus(Range::ONE).plus(LIST), size)
}

/// Estimates a sort, which compares each item with each.
fn sorted(of: &Operand<'_>) -> Call {
    let pairs = of.size().times(of.size());
    let item = match &of.ty {
        Type::List(item) => (**item).clone(),
        _ => Type::Dyn,
    };
    let (plain, texts) = (list(2.0, pairs), list(2.0 + CHARACTER, pairs));
    match item {
        Type::String | Type::Bytes => texts,
        Type::Dyn | Type::Param(_) => Call {
            cost: plain.cost.or(texts.cost),
            size: Some(pairs),
        },
        _ => plain,
    }
}

fn literal(operand: &Operand<'_>) -> Option<i64> {
    match &operand.expr.expr {
        Expr::Literal(LiteralValue::Int(n)) => Some(*n.inner()),
        _ => None,
    }
}

fn literal_or(operand: &Operand<'_>, default: u64) -> u64 {
    literal(operand).map_or(default, |n| u64::try_from(n).unwrap_or(0))
}

/// Estimates the parsing of a selector: a list of requirements, each an object with a list. The
/// shortest requirement has two characters.
fn selector(text: Range) -> Range {
    let requirements = text.scaled(0.5).scaled((LIST.max + OBJECT.max) as f64);
    LIST.plus(text.scaled(CHARACTER)).plus(requirements)
}

/// Estimates one visit of each item, with texts read character by character.
fn traversal(walk: &Walk<'_>, target: &Operand<'_>) -> Range {
    match &target.ty {
        Type::List(item) if matches!(**item, Type::String | Type::Bytes) => {
            let item = Range::ONE.plus(items(walk, target).scaled(CHARACTER));
            target.size().times(item)
        }
        Type::List(_) => target.size(),
        _ => target.size().scaled(CHARACTER),
    }
}

/// Returns the declared size of a list's items. Where the environment bounds unknown sizes, items
/// of a computed list have the size of their expression.
fn items(walk: &Walk<'_>, list: &Operand<'_>) -> Range {
    let origin = match &list.origin {
        Origin::Computed => Origin::Computed,
        origin => origin.step(walk.env, Step::Values),
    };
    let computed = |most| match list.contents(walk) {
        Some(contents) => contents.value,
        None => Range::up_to(most),
    };
    let closer = || walk.env.largest.map(computed);
    origin.size().or_else(closer).unwrap_or(Range::ANY)
}

fn joined(walk: &Walk<'_>, list: &Operand<'_>, separator: Option<&Operand<'_>>) -> Range {
    let count = list.size();
    let texts = match &list.ty {
        Type::List(_) => count.times(items(walk, list)),
        _ => Range::ZERO,
    };
    let Some(separator) = separator else { return texts };
    let between = Range {
        min: count.min.saturating_sub(1),
        max: count.max.saturating_sub(1),
    };
    texts.plus(separator.size().times(between))
}

/// Adds the cost of parsing a text argument.
fn parsed(cost: Range, other: &Operand<'_>) -> Range {
    let text = cost.plus(other.size().scaled(CHARACTER));
    match &other.ty {
        Type::String => text,
        Type::Dyn => cost.or(text),
        _ => cost,
    }
}

/// Returns the sizes of the shortest and the longest result of replacing. An empty `from` puts `to`
/// around every character.
fn replaced(text: Range, from: Range, to: Range) -> Range {
    let most = match from.min {
        0 => (text.max.saturating_add(1), text.max),
        shortest if to.max <= shortest => (0, text.max),
        shortest => (text.max.div_ceil(shortest), 0),
    };
    let least = match from.max {
        0 => (text.min.saturating_add(1), text.min),
        longest if longest <= to.min => (0, text.min),
        longest => (text.min.div_ceil(longest), 0),
    };
    let size = |(count, kept): (u64, u64), to: u64| count.saturating_mul(to).saturating_add(kept);
    Range {
        min: size(least, to.min),
        max: size(most, to.max),
    }
}

/// Estimates `==` of library types.
fn same(ty: &Type, size: Option<Range>) -> Option<Call> {
    let Type::Opaque(name) = ty else { return None };
    Some(match *name {
        "kubernetes.NamedFormat" => {
            let max = FORMAT_CHARACTERS_MAX;
            Call::costs(Range { min: 1, max }.scaled(CHARACTER))
        }
        "kubernetes.URL" => {
            let max = size.map_or(1, |size| size.max);
            Call::costs(Range { min: 1, max }.scaled(CHARACTER))
        }
        _ => Call::ONE,
    })
}
