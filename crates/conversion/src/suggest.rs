//! Rules that somebody who changed a schema probably wants: renames, moves, and the conversions of type between them.
//!
//! What crosses by itself needs no rule. Of the rest, every place of one version is compared with every place of the
//! other: names (as sets of words, so that `firstName` is like `name.first`), descriptions, enumerations, bounds. The best
//! pairs win. Inside of lists and maps that go together, the same happens with the fields of their items.
//!
//! A suggestion is a guess with its reasons. Nothing here is applied without somebody reading it.

use crate::carry::{self, Except, Kind, known_kind, same_shape};
use crate::path::{Path, Segment};
use insula_api::Json;
use insula_schema::{Node, Structural};
use serde_json::json;

mod words;

use words::Words;

/// Pairs that are less alike are not worth reading.
const SCORE_MIN: f64 = 0.5;
/// Two candidates closer than this are told apart by luck.
const TIE: f64 = 0.04;
/// Places of one version that are compared: the work grows with the product of both.
const PLACES_MAX: usize = 1_000;

/// One pair of places that seem to be the same thing.
#[derive(Debug, Clone, PartialEq)]
pub struct Suggestion {
    /// In the old version.
    pub old: Path,
    /// In the new version.
    pub new: Path,
    /// From 0 to 1.
    pub confidence: f64,
    /// Why.
    pub reasons: Vec<String>,
    /// The expression that makes the new value of the old one, where they differ in type.
    pub forth: Option<Step>,
    /// And back.
    pub back: Option<Step>,
}

/// What is done to a value on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// CEL over `self`.
    pub transformation: String,
    /// Whether some values cannot be converted.
    pub may_fail: bool,
}

/// All that can be guessed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Suggestions {
    /// The pairs, the surest first.
    pub pairs: Vec<Suggestion>,
    /// Places of the old version without a counterpart.
    pub only_old: Vec<Path>,
    /// Places of the new version without a counterpart.
    pub only_new: Vec<Path>,
}

/// Compares two versions.
pub fn suggest(old: &Structural, new: &Structural) -> Suggestions {
    let mut out = Suggestions::default();
    scope(old.root(), new.root(), &[], &[], &mut out);
    out.pairs.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
    out
}

impl Suggestions {
    /// The `spec` of an APIConversion with rules for both directions.
    pub fn rules(&self, old: &str, new: &str) -> Json {
        let mut forth = Vec::new();
        let mut back = Vec::new();
        for pair in &self.pairs {
            forth.push(rule(&pair.old, &pair.new, pair.forth.as_ref()));
            back.push(rule(&pair.new, &pair.old, pair.back.as_ref()));
        }
        json!({"conversions": [
            {"from": old, "to": new, "rules": forth},
            {"from": new, "to": old, "rules": back},
        ]})
    }
}

fn rule(from: &Path, to: &Path, step: Option<&Step>) -> Json {
    // Where items go, their index or key has no name.
    let unnamed = to.segments().iter().map(|segment| match segment {
        Segment::Each(_) => Segment::Each(String::new()),
        other => other.clone(),
    });
    let to = Path::of(unnamed.collect());
    let mut rule = json!({"field": from.to_string(), "destination": to.to_string()});
    if let Some(step) = step {
        rule["transformation"] = json!(step.transformation);
        if step.may_fail {
            rule["mayFail"] = json!(true);
        }
    }
    rule
}

/// A place that has no counterpart at its own path.
struct Loose<'s> {
    path: Vec<Segment>,
    node: &'s Node,
    words: Words,
}

/// Two loose places, and how alike they are.
struct Pair {
    old: usize,
    new: usize,
    score: f64,
    reasons: Vec<String>,
    link: Link,
}

/// How a value of one place becomes a value of the other.
#[derive(Clone)]
enum Link {
    /// As it is.
    Move,
    /// By an expression in each direction.
    Steps(Step, Step),
    /// The value is the first element of the new list, or the old one.
    Into,
    OutOf,
    /// Item by item.
    Items,
}

/// Compares two objects: the whole, or two items.
fn scope(old: &Node, new: &Node, above_old: &[Segment], above_new: &[Segment], out: &mut Suggestions) {
    let (mut olds, mut news) = (Vec::new(), Vec::new());
    let mut at = Vec::new();
    loose(old, new, &mut at, &mut olds, &mut news, (above_old, above_new), out);
    let mut pairs = Vec::new();
    for (i, a) in olds.iter().enumerate().take(PLACES_MAX) {
        for (j, b) in news.iter().enumerate().take(PLACES_MAX) {
            pairs.extend(compare(a, b).map(|(score, reasons, link)| Pair {
                old: i,
                new: j,
                score,
                reasons,
                link,
            }));
        }
    }
    // Among equals, the place that holds more.
    let depth = |pair: &Pair| olds[pair.old].path.len();
    pairs.sort_by(|a, b| b.score.total_cmp(&a.score).then(depth(a).cmp(&depth(b))));
    let taken = |paths: &[Vec<Segment>], path: &[Segment]| {
        paths
            .iter()
            .any(|other| other.starts_with(path) || path.starts_with(other))
    };
    let (mut used_old, mut used_new): (Vec<Vec<Segment>>, Vec<Vec<Segment>>) = (Vec::new(), Vec::new());
    for pair in &pairs {
        let (a, b) = (&olds[pair.old], &news[pair.new]);
        if taken(&used_old, &a.path) || taken(&used_new, &b.path) {
            continue;
        }
        used_old.push(a.path.clone());
        used_new.push(b.path.clone());
        let rival = pairs.iter().find(|other| {
            let shares = (other.old == pair.old) != (other.new == pair.new);
            let nested = |x: &[Segment], y: &[Segment]| x.starts_with(y) || y.starts_with(x);
            let same = nested(&olds[other.old].path, &a.path) && nested(&news[other.new].path, &b.path);
            shares && !same && pair.score - other.score < TIE
        });
        let rival = rival.map(|other| match other.old == pair.old {
            true => joined(above_new, &news[other.new].path),
            false => joined(above_old, &olds[other.old].path),
        });
        settle(pair, rival.as_ref(), (a, b), (above_old, above_new), out);
    }
    let left = |places: &[Loose<'_>], used: &[Vec<Segment>], above: &[Segment]| -> Vec<Path> {
        // An object is its fields.
        let ends = |place: &&Loose<'_>| place.node.properties().next().is_none();
        let free = places.iter().filter(ends).filter(|place| !taken(used, &place.path));
        free.map(|place| joined(above, &place.path)).collect()
    };
    out.only_old.extend(left(&olds, &used_old, above_old));
    out.only_new.extend(left(&news, &used_new, above_new));
}

/// Notes a pair that was chosen.
fn settle(
    pair: &Pair,
    rival: Option<&Path>,
    (a, b): (&Loose<'_>, &Loose<'_>),
    (above_old, above_new): (&[Segment], &[Segment]),
    out: &mut Suggestions,
) {
    let (mut old, mut new) = (joined(above_old, &a.path), joined(above_new, &b.path));
    let (mut forth, mut back) = (None, None);
    let first = |path: Path| Path::of(path.segments().iter().cloned().chain([Segment::Index(0)]).collect());
    match &pair.link {
        Link::Move => {}
        Link::Steps(there, home) => (forth, back) = (Some(there.clone()), Some(home.clone())),
        Link::Into => new = first(new),
        Link::OutOf => old = first(old),
        Link::Items => return items((a.node, &old), (b.node, &new), pair.score, out),
    }
    let mut reasons = pair.reasons.clone();
    let mut confidence = pair.score.min(0.99);
    if let Some(rival) = rival {
        confidence *= 0.8;
        reasons.push(format!("{rival} is as much alike"));
    }
    out.pairs.push(Suggestion {
        old,
        new,
        confidence,
        reasons,
        forth,
        back,
    });
}

/// Two lists or maps that go together: their items are compared. Fields that items share at one path need a rule only if the
/// lists stand elsewhere, and one of them is enough to make the loop.
fn items((a, old): (&Node, &Path), (b, new): (&Node, &Path), score: f64, out: &mut Suggestions) {
    let (Some(from), Some(to)) = (inner(a), inner(b)) else {
        return;
    };
    let each = |node: &Node, path: &Path| -> Vec<Segment> {
        let depth = path.segments().iter().filter(|s| matches!(s, Segment::Each(_))).count();
        let name = if node.items().is_some() { "i" } else { "key" };
        let name = if depth == 0 {
            name.to_owned()
        } else {
            format!("{name}{}", depth + 1)
        };
        path.segments().iter().cloned().chain([Segment::Each(name)]).collect()
    };
    let (above_old, above_new) = (each(a, old), each(b, new));
    let before = out.pairs.len();
    scope(from, to, &above_old, &above_new, out);
    if old != new && out.pairs.len() == before {
        out.pairs.push(Suggestion {
            old: old.clone(),
            new: new.clone(),
            confidence: score.min(0.99),
            reasons: vec!["items have fields in common".to_owned()],
            forth: None,
            back: None,
        });
    }
}

/// What stands at one path only, on each side; lists of one path with other items are compared at once.
fn loose<'s>(
    old: &'s Node,
    new: &'s Node,
    at: &mut Vec<Segment>,
    olds: &mut Vec<Loose<'s>>,
    news: &mut Vec<Loose<'s>>,
    above: (&[Segment], &[Segment]),
    out: &mut Suggestions,
) {
    for (name, a) in old.properties() {
        if reserved(at, name) {
            continue;
        }
        at.push(Segment::Field(name.to_owned()));
        match new.property(name) {
            Some(b) if same_shape(a, b) => {}
            Some(b) if is_object(a) && is_object(b) => loose(a, b, at, olds, news, above, out),
            Some(b) if inner(a).is_some_and(is_object) && inner(b).is_some_and(is_object) && kinds_match(a, b) => {
                items((a, &joined(above.0, at)), (b, &joined(above.1, at)), 1.0, out);
            }
            Some(b) if crosses(a, b) && crosses(b, a) => {}
            other => {
                everything(a, at, olds);
                if let Some(b) = other {
                    everything(b, at, news);
                }
            }
        }
        at.pop();
    }
    for (name, b) in new.properties() {
        if old.property(name).is_none() && !reserved(at, name) {
            at.push(Segment::Field(name.to_owned()));
            everything(b, at, news);
            at.pop();
        }
    }
}

fn reserved(at: &[Segment], name: &str) -> bool {
    at.is_empty() && matches!(name, "apiVersion" | "kind" | "metadata")
}

/// A place and, if it is an object, what is below it.
fn everything<'s>(node: &'s Node, at: &mut Vec<Segment>, out: &mut Vec<Loose<'s>>) {
    out.push(Loose {
        path: at.clone(),
        node,
        words: Words::of(at, node.description()),
    });
    for (name, child) in node.properties() {
        at.push(Segment::Field(name.to_owned()));
        everything(child, at, out);
        at.pop();
    }
}

fn joined(above: &[Segment], path: &[Segment]) -> Path {
    Path::of(above.iter().chain(path).cloned().collect())
}

fn inner(node: &Node) -> Option<&Node> {
    node.items().or_else(|| node.additional())
}

fn is_object(node: &Node) -> bool {
    node.properties().next().is_some() && known_kind(node) == Some(Kind::Object)
}

fn kinds_match(a: &Node, b: &Node) -> bool {
    a.items().is_some() == b.items().is_some()
}

fn crosses(a: &Node, b: &Node) -> bool {
    carry::compile(Some(a), b, &Except::default(), &mut Vec::new()).is_some()
}

/// How alike two places are; none if not at all, or if nothing makes a value of one from the other.
fn compare(a: &Loose<'_>, b: &Loose<'_>) -> Option<(f64, Vec<String>, Link)> {
    // Spec and status say different things by the same names.
    if a.path.first() != b.path.first() && a.path.len() > 1 && b.path.len() > 1 {
        return None;
    }
    let named = a.words.like(&b.words);
    let (link, factor, how) = link(a, b, named.opposite)?;
    let mut score = named.score;
    let mut reasons = vec![named.reason];
    let (one, other) = (a.node.description(), b.node.description());
    if !one.is_empty() && one == other {
        score = score / 2.0 + 0.5;
        reasons.push("same description".to_owned());
    } else if !one.is_empty() && !other.is_empty() {
        score = 0.85 * score + 0.15 * a.words.described_like(&b.words);
    }
    if !a.node.choices().is_empty() && !b.node.choices().is_empty() {
        let all = |x: &Node, y: &Node| x.choices().iter().all(|choice| y.choices().contains(choice));
        if all(a.node, b.node) && all(b.node, a.node) {
            score += 0.3 * (1.0 - score);
            reasons.push("same enumeration".to_owned());
        } else if !a.node.choices().iter().any(|choice| b.node.choices().contains(choice)) {
            score *= 0.5;
        }
    }
    if same_bounds(a.node, b.node) {
        score += 0.15 * (1.0 - score);
        reasons.push("same bounds".to_owned());
    }
    reasons.extend(how);
    score *= factor;
    (score >= SCORE_MIN).then_some((score, reasons, link))
}

/// Whether both have bounds, the same ones.
fn same_bounds(a: &Node, b: &Node) -> bool {
    let of = |node: &Node| {
        let numbers = (node.minimum().map(|m| m.0), node.maximum().map(|m| m.0));
        let sizes = (node.max_length(), node.max_items(), node.min_length());
        let texts = (node.pattern().map(str::to_owned), node.format().map(str::to_owned));
        (numbers, sizes, texts, node.default().cloned())
    };
    let none = ((None, None), (None, None, None), (None, None), None);
    of(a) != none && of(a) == of(b)
}

/// What makes a value of one place from the other, how much that costs of confidence, and a word on it.
fn link(a: &Loose<'_>, b: &Loose<'_>, opposite: bool) -> Option<(Link, f64, Option<String>)> {
    use crate::carry::Scalar::{Boolean, Integer, Number, String as Text};
    let (from, to) = (a.node, b.node);
    let step = |text: &str, may_fail: bool| Step {
        transformation: text.to_owned(),
        may_fail,
    };
    let (have, want) = (known_kind(from)?, known_kind(to)?);
    let steps = |there: Step, home: Step, how: &str| Some((Link::Steps(there, home), 0.85, Some(how.to_owned())));
    match (have, want) {
        (Kind::Scalar(Boolean), Kind::Scalar(Boolean)) if opposite => {
            steps(step("!self", false), step("!self", false), "the opposite")
        }
        (Kind::Scalar(Text), Kind::Scalar(Integer)) => {
            steps(step("int(self)", true), step("string(self)", false), "text to number")
        }
        (Kind::Scalar(Integer), Kind::Scalar(Text)) => {
            steps(step("string(self)", false), step("int(self)", true), "number to text")
        }
        (Kind::Scalar(Text), Kind::Scalar(Number)) => steps(
            step("double(self)", true),
            step("string(self)", false),
            "text to number",
        ),
        (Kind::Scalar(Number), Kind::Scalar(Text)) => steps(
            step("string(self)", false),
            step("double(self)", true),
            "number to text",
        ),
        (Kind::Scalar(x), Kind::Scalar(y)) => (x == y).then_some((Link::Move, 1.0, None)),
        (Kind::Scalar(x), Kind::List) => (to.items().and_then(known_kind) == Some(Kind::Scalar(x)))
            .then(|| (Link::Into, 0.9, Some("the first of a list".to_owned()))),
        (Kind::List, Kind::Scalar(x)) => (from.items().and_then(known_kind) == Some(Kind::Scalar(x)))
            .then(|| (Link::OutOf, 0.9, Some("the first of a list".to_owned()))),
        (Kind::Object, Kind::Object) if is_object(from) && is_object(to) => {
            same_shape(from, to).then(|| (Link::Move, 1.0, Some("same fields".to_owned())))
        }
        (Kind::List, Kind::List) | (Kind::Object, Kind::Object) => containers(from, to),
        _ => None,
    }
}

/// Lists and maps go together if their items do.
fn containers(from: &Node, to: &Node) -> Option<(Link, f64, Option<String>)> {
    if same_shape(from, to) {
        return Some((Link::Move, 1.0, None));
    }
    let (x, y) = (inner(from)?, inner(to)?);
    if !kinds_match(from, to) {
        return None;
    }
    if !(is_object(x) && is_object(y)) {
        return (crosses(from, to) && crosses(to, from)).then_some((Link::Move, 0.9, None));
    }
    let best = |(name, a): (&str, &Node)| {
        let of = |(other, b): (&str, &Node)| {
            if crosses(a, b) {
                words::names_alike(name, other)
            } else {
                0.0
            }
        };
        y.properties().map(of).fold(0.0, f64::max)
    };
    let shared: f64 = x.properties().map(best).sum();
    #[expect(clippy::cast_precision_loss, reason = "numbers of fields")]
    let share = 2.0 * shared / (x.properties().count() + y.properties().count()) as f64;
    Some((Link::Items, 0.75 + 0.25 * share, None))
}
