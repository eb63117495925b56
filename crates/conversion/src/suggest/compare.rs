//! Similarity of two fields, and the relation between their values.

use super::anchors::Context;
use super::{Link, Loose, Step, choices, crosses, inner, is_object, kinds_match, lists, names, units};
use crate::passthrough::Scalar::{Boolean, Integer, Number, String as Text};
use crate::passthrough::{Kind, known_kind, same_shape};
use crate::path::Segment;
use insula_schema::{ListType, Node};
use serde_json::{Map, Value as Json, json};

/// Least score of a suggestion.
const SCORE_MIN: f64 = 0.5;
/// Score of two fields of one object with equal bounds and different names.
const BESIDE: f64 = 0.52;
/// Least score of fields with one enumeration of at least [`CHOICES_MANY`] words.
const LIKE_CHOICES: f64 = 0.65;
const CHOICES_MANY: usize = 3;
/// Loss of lists whose items' fields have other bounds.
const OTHER_BOUNDS: f64 = 0.1;
/// Factor for fields of objects that have other counterparts.
const APART: f64 = 0.85;
/// Score of a map and the map of its shape in the object that took its place.
const WRAPPED_MAP: f64 = 0.9;
/// Score of a value and a field with a common name, two levels below.
const WRAPPED_TWICE: f64 = 0.8;
/// Endings of the names of objects that took the place of a value.
const ENDINGS: &[&str] = &["Ref", "Reference", "Config", "Spec", "Settings", "Options"];
/// Names of fields that often hold the former value when a scalar becomes an object.
const CANONICAL: &[&str] = &[
    "name", "value", "number", "count", "size", "amount", "mode", "type", "kind", "id",
];
/// Names of fields that often hold the key when a map becomes a list.
const KEYS: &[&str] = &["name", "key", "id"];

/// Result of a comparison: score, reasons, link.
pub(super) type Found = (f64, Vec<String>, Link);
/// A link, the factor for the score, and a reason.
type Linked = (Link, f64, Option<&'static str>);

/// Compares two fields; `None` if they are not similar, or no expression converts one to the other.
pub(super) fn compare(a: &Loose<'_>, b: &Loose<'_>, context: Context) -> Option<Found> {
    let starts = context.starts();
    let mut named = a.words.like(&b.words, starts);
    if a.unit != b.unit {
        let bare = a.bare.like(&b.bare, starts);
        if bare.score > named.score {
            named = bare;
        }
    }
    let mut reasons = Vec::new();
    if let Some(score) = wraps(a, b).or_else(|| wraps(b, a)).filter(|score| *score > named.score) {
        named.score = score;
        "in an object of the same name".clone_into(&mut named.reason);
    }
    if let Some((score, reason)) = lists::by_items(a, b, named.score).filter(|(score, _)| *score > named.score) {
        named.score = score;
        reason.clone_into(&mut named.reason);
    }
    if context.says_nothing(a, b, named.score) {
        return None;
    }
    let (link, factor, how) = match enumerated(a, b) {
        Some((link, own)) => {
            if own && named.score < 0.8 {
                named.score = 0.8;
                "one of its words is the other's name".clone_into(&mut named.reason);
            }
            (link, 0.9, Some("other words"))
        }
        None => link(a, b, named.opposite)?,
    };
    let mut score = named.score;
    reasons.push(named.reason);
    let (one, other) = (a.node.description(), b.node.description());
    if !one.is_empty() && one == other {
        score = score / 2.0 + 0.5;
        reasons.push("same description".to_owned());
    } else if !one.is_empty() && !other.is_empty() {
        score = 0.85 * score + 0.15 * a.words.described_like(&b.words);
    }
    let (chosen, other) = (!a.node.choices().is_empty(), !b.node.choices().is_empty());
    if chosen != other && matches!(link, Link::Move) {
        // An arbitrary text is rarely one of a few choices.
        score *= 0.7;
    }
    if chosen && other {
        let all = |x: &Node, y: &Node| x.choices().iter().all(|choice| y.choices().contains(choice));
        if all(a.node, b.node) && all(b.node, a.node) {
            score += 0.3 * (1.0 - score);
            // Many words are rarely the same by chance.
            if a.node.choices().len() >= CHOICES_MANY {
                score = score.max(LIKE_CHOICES);
            }
            reasons.push("same enumeration".to_owned());
        } else if matches!(link, Link::Move) && !a.node.choices().iter().any(|c| b.node.choices().contains(c)) {
            score *= 0.5;
        }
    }
    if same_bounds(a.node, b.node) {
        score += 0.15 * (1.0 - score);
        // One field was removed and one added in the same object.
        let beside = a.path.split_last().map(|(_, above)| above) == b.path.split_last().map(|(_, above)| above);
        if beside && matches!(link, Link::Move) {
            score = score.max(BESIDE);
        }
        reasons.push("same bounds".to_owned());
    }
    reasons.extend(how.map(str::to_owned));
    score *= factor;
    if matches!(context, Context::Apart) {
        score *= APART;
    }
    (score >= SCORE_MIN).then_some((score, reasons, link))
}

/// Scores a field of an object as the value that the object replaces.
fn wraps(whole: &Loose<'_>, part: &Loose<'_>) -> Option<f64> {
    let (Segment::Field(name), above) = part.path.split_last()? else {
        return None;
    };
    if !matches!(known_kind(whole.node), Some(Kind::Scalar(_))) {
        // A map became one of several ways to say the same: `selector` and `selector.matchLabels`.
        let is_map = whole.node.additional().is_some();
        return (is_map && above == whole.path && same_shape(whole.node, part.node)).then_some(WRAPPED_MAP);
    }
    let canonical = CANONICAL.contains(&name.as_str());
    if above == whole.path {
        return Some(if canonical { 0.95 } else { 0.7 });
    }
    // `flavor` and `flavor.filter.name`.
    if canonical && above.split_last().is_some_and(|(_, around)| around == whole.path) {
        return Some(WRAPPED_TWICE);
    }
    // `class` and `classRef.name`.
    let (Segment::Field(object), around) = above.split_last()? else {
        return None;
    };
    let ending = object.strip_prefix(whole.name())?;
    (canonical && around == whole.above() && ENDINGS.contains(&ending)).then_some(0.9)
}

/// Bounds of a value: range, sizes, pattern and format, default.
type Bounds<'n> = (
    (Option<f64>, Option<f64>),
    (Option<usize>, Option<usize>, Option<usize>),
    (Option<&'n str>, Option<&'n str>),
    Option<&'n Json>,
);

fn bounds(node: &Node) -> Bounds<'_> {
    (
        (node.minimum().map(|m| m.0), node.maximum().map(|m| m.0)),
        (node.max_length(), node.max_items(), node.min_length()),
        (node.pattern(), node.format()),
        node.default(),
    )
}

/// Returns true if both nodes have bounds and they are equal.
fn same_bounds(a: &Node, b: &Node) -> bool {
    let none = ((None, None), (None, None, None), (None, None), None);
    bounds(a) != none && bounds(a) == bounds(b)
}

/// Links fields by the words of an enumeration; true if the other field's name is one of the words.
fn enumerated(a: &Loose<'_>, b: &Loose<'_>) -> Option<(Link, bool)> {
    match (known_kind(a.node)?, known_kind(b.node)?) {
        (Kind::Scalar(Text), Kind::Scalar(Text)) | (Kind::List, Kind::List) => {
            let (forth, back) = choices::between(a.node, b.node)?;
            Some((Link::Steps(forth, back), false))
        }
        (Kind::Scalar(Boolean), Kind::Scalar(Text)) => {
            let (forth, back, own) = choices::of_boolean(a.name(), b.node)?;
            Some((Link::Steps(forth, back), own))
        }
        (Kind::Scalar(Text), Kind::Scalar(Boolean)) => {
            let (back, forth, own) = choices::of_boolean(b.name(), a.node)?;
            Some((Link::Steps(forth, back), own))
        }
        _ => None,
    }
}

fn link(a: &Loose<'_>, b: &Loose<'_>, opposite: bool) -> Option<Linked> {
    let (from, to) = (a.node, b.node);
    match (known_kind(from)?, known_kind(to)?) {
        (Kind::Scalar(Boolean), Kind::Scalar(Boolean)) if opposite => Some((
            Link::Steps(Step::new("!self"), Step::new("!self")),
            0.85,
            Some("the opposite"),
        )),
        (Kind::Scalar(Text), Kind::Scalar(number @ (Integer | Number))) if from.choices().is_empty() => {
            let (forth, back, how) = text_and_number(b, number == Integer, a);
            Some((Link::Steps(back, forth), 0.85, Some(how)))
        }
        (Kind::Scalar(number @ (Integer | Number)), Kind::Scalar(Text)) if to.choices().is_empty() => {
            let (forth, back, how) = text_and_number(a, number == Integer, b);
            Some((Link::Steps(forth, back), 0.85, Some(how)))
        }
        (Kind::Scalar(x), Kind::Scalar(y)) => match (a.unit, b.unit) {
            (Some(one), Some(other)) if one != other => {
                let (forth, back) = units::numbers(one, other)?;
                Some((Link::Steps(forth, back), 0.85, Some("another unit")))
            }
            _ => (x == y).then_some((Link::Move, 1.0, None)),
        },
        (Kind::Scalar(_), Kind::List) => one_of_many(a, b, false),
        (Kind::List, Kind::Scalar(_)) => one_of_many(b, a, true),
        (Kind::Object, Kind::Object) if is_object(from) && is_object(to) => {
            same_shape(from, to).then_some((Link::Move, 1.0, Some("same fields")))
        }
        (Kind::List, Kind::List) | (Kind::Object, Kind::Object) => containers(a, b),
        (Kind::Scalar(Text), Kind::Object) => document(a, b, false),
        (Kind::Object, Kind::Scalar(Text)) => document(b, a, true),
        (Kind::Object, Kind::List) => keyed(from, to, false),
        (Kind::List, Kind::Object) => keyed(to, from, true),
        _ => None,
    }
}

/// Links a text and an object of unknown fields at the same path: the text is a document.
fn document(text: &Loose<'_>, object: &Loose<'_>, swapped: bool) -> Option<Linked> {
    let is_free = text.node.choices().is_empty() && text.node.pattern().is_none() && text.node.format().is_none();
    if text.path != object.path || !is_free || !object.node.preserves_unknown() {
        return None;
    }
    let (decoded, encoded) = (Step::new("yaml.decode(self)"), Step::new("yaml.encode(self)"));
    let link = match swapped {
        false => Link::Steps(decoded, encoded),
        true => Link::Steps(encoded, decoded),
    };
    Some((link, 0.85, Some("a document in a text")))
}

/// Returns expressions between a number and a text, with a description.
fn text_and_number(number: &Loose<'_>, whole: bool, text: &Loose<'_>) -> (Step, Step, &'static str) {
    let unit = units::number_and_text(number.node, number.unit, text.node).filter(|_| whole);
    let plain = || {
        let back = if whole { "int(self)" } else { "double(self)" };
        (Step::new("string(self)"), Step::new(back), "a number and its text")
    };
    unit.unwrap_or_else(plain)
}

/// Links a value and a list of such values: a text holds the joined items, or the value is the
/// first item.
fn one_of_many(one: &Loose<'_>, many: &Loose<'_>, swapped: bool) -> Option<Linked> {
    let item = many.node.items()?;
    let kind = known_kind(one.node)?;
    if known_kind(item)? == kind {
        if let Some(separator) = separator(one).filter(|_| kind == Kind::Scalar(Text)) {
            let split = Step::new(format!("self == '' ? [] : self.split('{separator}')"));
            let join = match one.node.max_length() {
                None => format!("self.join('{separator}')"),
                Some(most) => {
                    let text = format!("self.join('{separator}')");
                    format!("size({text}) <= {most} ? optional.of({text}) : optional.none()")
                }
            };
            let (forth, back) = if swapped {
                (Step::new(join), split)
            } else {
                (split, Step::new(join))
            };
            return Some((Link::Steps(forth, back), 0.8, Some("a list in a text")));
        }
        let first = vec![Segment::Index(0)];
        return Some((below(swapped, vec![], first), 0.9, Some("the first of a list")));
    }
    let name = holder(one.node, item, many.name())?;
    let first = vec![Segment::Index(0), Segment::Field(name)];
    Some((below(swapped, vec![], first), 0.8, Some("in the first of a list")))
}

fn below(swapped: bool, old: Vec<Segment>, new: Vec<Segment>) -> Link {
    if swapped {
        Link::Below { old: new, new: old }
    } else {
        Link::Below { old, new }
    }
}

/// Returns the separator of a text that seems to hold a list.
fn separator(text: &Loose<'_>) -> Option<&'static str> {
    let description = text.node.description().to_ascii_lowercase();
    if description.contains("comma") {
        Some(",")
    } else if description.contains("semicolon") {
        Some(";")
    } else if description.contains("separated by space") || description.contains("space-separated") {
        Some(" ")
    } else {
        // A single text with a plural name.
        let name = text.name();
        (name.len() > 3 && name.ends_with('s') && !name.ends_with("ss")).then_some(",")
    }
}

/// Returns the name of the object's field that holds the former value. `list` is the name of the
/// list of such objects.
fn holder(value: &Node, object: &Node, list: &str) -> Option<String> {
    let same = |node: &Node| known_kind(node) == known_kind(value) && crosses(value, node);
    let fits: Vec<&str> = object
        .properties()
        .filter(|(_, node)| same(node))
        .map(|(name, _)| name)
        .collect();
    let named = named_or_only(&fits, CANONICAL);
    // `addresses[].address`.
    let singular = || fits.iter().find(|name| names::names_alike(name, list) >= 1.0).copied();
    named.or_else(singular).map(str::to_owned)
}

fn named_or_only<'n>(fits: &[&'n str], names: &[&str]) -> Option<&'n str> {
    let named = fits.iter().find(|name| names.contains(name));
    named.or(fits.first().filter(|_| fits.len() == 1)).copied()
}

/// Links lists or maps whose items match.
fn containers(a: &Loose<'_>, b: &Loose<'_>) -> Option<Linked> {
    let (from, to) = (a.node, b.node);
    if same_shape(from, to) {
        return Some((Link::Move, 1.0, None));
    }
    let (x, y) = (inner(from)?, inner(to)?);
    if !kinds_match(from, to) {
        return None;
    }
    let field = |name: Option<String>| name.map(Segment::Field);
    let each = |rest: Option<Segment>| {
        [Segment::Each("i".to_owned())]
            .into_iter()
            .chain(rest)
            .collect::<Vec<_>>()
    };
    match (is_object(x), is_object(y)) {
        (false, true) if from.items().is_some() => {
            let link = Link::Below {
                old: each(None),
                new: each(Some(field(holder(x, y, b.name()))?)),
            };
            return Some((link, 0.9, Some("items became objects")));
        }
        (true, false) if from.items().is_some() => {
            let link = Link::Below {
                old: each(Some(field(holder(y, x, a.name()))?)),
                new: each(None),
            };
            return Some((link, 0.9, Some("items were objects")));
        }
        (true, true) => {}
        _ => return (crosses(from, to) && crosses(to, from)).then_some((Link::Move, 0.9, None)),
    }
    let bounds = 1.0 - OTHER_BOUNDS * (1.0 - bounds_kept(x, y));
    Some((Link::Items, (0.75 + 0.25 * shared_fields(from, to)?) * bounds, None))
}

/// Returns the share of the fields of one name in two items that have the same bounds.
fn bounds_kept(x: &Node, y: &Node) -> f64 {
    let common: Vec<bool> = x
        .properties()
        .filter_map(|(name, a)| Some((a, y.property(name)?)))
        .map(|(a, b)| bounds(a) == bounds(b) && a.choices() == b.choices())
        .collect();
    #[expect(clippy::cast_precision_loss, reason = "numbers of fields")]
    let (kept, all) = (
        common.iter().filter(|kept| **kept).count() as f64,
        common.len().max(1) as f64,
    );
    kept / all
}

/// Returns the share of common fields, if both hold objects in the same kind of container.
pub(super) fn shared_fields(from: &Node, to: &Node) -> Option<f64> {
    let (x, y) = (
        inner(from).filter(|x| is_object(x))?,
        inner(to).filter(|y| is_object(y))?,
    );
    if !kinds_match(from, to) {
        return None;
    }
    let best = |(name, a): (&str, &Node)| {
        let of = |(other, b): (&str, &Node)| {
            if crosses(a, b) {
                names::names_alike(name, other)
            } else {
                0.0
            }
        };
        y.properties().map(of).fold(0.0, f64::max)
    };
    let shared: f64 = x.properties().map(best).sum();
    #[expect(clippy::cast_precision_loss, reason = "numbers of fields")]
    let fields = (x.properties().count() + y.properties().count()) as f64;
    Some(2.0 * shared / fields)
}

/// Links a map and a list of its entries.
fn keyed(map: &Node, list: &Node, swapped: bool) -> Option<Linked> {
    let (value, item) = (map.additional()?, list.items().filter(|item| is_object(item))?);
    let text = |name: &str| item.property(name).and_then(known_kind) == Some(Kind::Scalar(Text));
    let (key, sure) = match list.list_type() {
        ListType::Map { keys } if keys.len() == 1 => (keys.first()?.as_str(), 0.95),
        _ => (*KEYS.iter().find(|name| text(name))?, 0.8),
    };
    let mut to_item = Map::from_iter([(key.to_owned(), json!("key"))]);
    let to_entry = if is_object(value) {
        let mut fields = Map::new();
        for (name, node) in value.properties() {
            let fits = item.properties().filter(|(other, b)| *other != key && crosses(node, b));
            let scored = fits.map(|(other, _)| (names::names_alike(name, other), other));
            let best = scored
                .max_by(|x, y| x.0.total_cmp(&y.0))
                .filter(|(score, _)| *score >= SCORE_MIN);
            if let Some((_, other)) = best.filter(|(_, other)| !to_item.contains_key(*other)) {
                to_item.insert(other.to_owned(), json!(format!("self.{name}")));
                fields.insert(name.to_owned(), json!(format!("self.{other}")));
            }
        }
        (!fields.is_empty()).then_some(Json::Object(fields))?
    } else {
        let fits = item
            .properties()
            .filter(|(name, node)| *name != key && crosses(value, node));
        let fits: Vec<&str> = fits.map(|(name, _)| name).collect();
        let name = named_or_only(&fits, &["value"])?;
        to_item.insert(name.to_owned(), json!("self"));
        json!(format!("self.{name}"))
    };
    let link = Link::Keyed {
        key: key.to_owned(),
        to_item: Json::Object(to_item),
        to_entry,
        swapped,
    };
    Some((link, sure, Some("entries of a map and items with their key")))
}
