//! Rules that somebody who changed a schema probably wants: renames, moves, and the conversions of
//! type between them.
//!
//! What crosses by itself needs no rule. Of the rest, every place of one version is compared with
//! every place of the other: names (as sets of words, so that `firstName` is like `name.first`),
//! descriptions, enumerations, bounds. The best pairs win. Inside of lists and maps that go
//! together, the same happens with the fields of their items. Where two places differ in more than
//! their name, there is a table for it: units, words of enumerations, opposites, keys, parts of
//! texts.
//!
//! A suggestion is a guess with its reasons. Nothing here is applied without somebody reading it,
//! and [`Suggestions::try_out`] asks admission first.

use crate::passthrough::{self, Except, Kind, known_kind};
use crate::path::{Path, Segment};
use insula_api::Json;
use insula_schema::{Node, Structural};
use serde_json::json;

mod choices;
mod compare;
mod names;
mod places;
mod several;
mod tried;
mod units;

use compare::compare;
use places::{Loose, loose};

/// Two candidates closer than this are told apart by luck.
const TIE: f64 = 0.04;
/// The keys of two lists that go together.
const BOTH_KEYS: f64 = 0.9;
/// ItemIndex of one version that are compared: the work grows with the product of both.
const PLACES_MAX: usize = 1_000;

/// ItemIndex that seem to be the same thing.
#[derive(Debug, Clone, PartialEq)]
pub struct Suggestion {
    /// In the old version: one, or the parts of one.
    pub old: Vec<Path>,
    /// In the new version: one, or the parts of one.
    pub new: Vec<Path>,
    /// From 0 to 1.
    pub confidence: f64,
    /// Why.
    pub reasons: Vec<String>,
    /// Rules that make the new of the old.
    pub forth: Vec<Guess>,
    /// And back.
    pub back: Vec<Guess>,
    /// Why its rules would be refused as they are. They are in no draft then.
    pub work: Option<String>,
}

/// One rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Guess {
    /// What it reads.
    pub source: Source,
    /// What it writes.
    pub to: Path,
    /// CEL over `self`, or a map of such; none for a move.
    pub transformation: Option<Json>,
    /// Whether some values cannot be converted.
    pub may_fail: bool,
}

/// What a rule reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A field.
    Field(Path),
    /// The object, by an expression.
    Object(String),
}

/// What is done to a value on the way: CEL over `self`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Step(String);

impl Step {
    fn new(text: impl Into<String>) -> Step {
        Step(text.into())
    }
}

impl Guess {
    fn new(source: Source, to: Path, transformation: Option<String>) -> Guess {
        Guess {
            source,
            to,
            transformation: transformation.map(Json::from),
            may_fail: false,
        }
    }

    fn rule(&self) -> Json {
        // Where items go, their index or key has no name.
        let unnamed = self.to.segments().iter().map(|segment| match segment {
            Segment::Each(_) => Segment::Each(String::new()),
            other => other.clone(),
        });
        let to = Path::from_segments(unnamed.collect()).to_string();
        let mut rule = match &self.source {
            Source::Field(path) => json!({"field": path.to_string(), "destination": to}),
            Source::Object(text) => json!({"from": text, "to": to}),
        };
        if let Some(transformation) = &self.transformation {
            rule["transformation"] = transformation.clone();
        }
        if self.may_fail {
            rule["mayFail"] = json!(true);
        }
        rule
    }
}

impl Suggestion {
    fn moved(old: Path, new: Path, confidence: f64, reasons: Vec<String>) -> Suggestion {
        Self::stepped((old, None), (new, None), confidence, reasons)
    }

    /// One place for one, with what makes each value.
    fn stepped(
        (old, home): (Path, Option<Json>),
        (new, there): (Path, Option<Json>),
        confidence: f64,
        reasons: Vec<String>,
    ) -> Suggestion {
        let guess = |from: &Path, to: &Path, transformation: Option<Json>| Guess {
            source: Source::Field(from.clone()),
            to: to.clone(),
            transformation,
            may_fail: false,
        };
        Suggestion {
            forth: vec![guess(&old, &new, there)],
            back: vec![guess(&new, &old, home)],
            old: vec![old],
            new: vec![new],
            confidence,
            reasons,
            work: None,
        }
    }
}

/// All that can be guessed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Suggestions {
    /// The pairs, the surest first.
    pub pairs: Vec<Suggestion>,
    /// ItemIndex of the old version without a counterpart.
    pub only_old: Vec<Path>,
    /// ItemIndex of the new version without a counterpart.
    pub only_new: Vec<Path>,
}

/// Compares two versions.
pub fn suggest(old: &Structural, new: &Structural) -> Suggestions {
    let mut out = Suggestions::default();
    scope(old.root(), new.root(), &[], &[], &[], &mut out);
    out.pairs.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
    out
}

impl Suggestions {
    /// The `spec` of an APIConversion with rules for both directions.
    pub fn rules(&self, old: &str, new: &str) -> Json {
        let fit = || self.pairs.iter().filter(|pair| pair.work.is_none());
        let rules =
            |guesses: fn(&Suggestion) -> &Vec<Guess>| fit().flat_map(guesses).map(Guess::rule).collect::<Json>();
        json!({"conversions": [
            {"from": old, "to": new, "rules": rules(|pair| &pair.forth)},
            {"from": new, "to": old, "rules": rules(|pair| &pair.back)},
        ]})
    }
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
    /// The value stands further inside, in one version or the other.
    Below { old: Vec<Segment>, new: Vec<Segment> },
    /// A map's entries are a list's items, which hold their key. The old version has the list if
    /// `swapped`.
    Keyed {
        key: String,
        to_item: Json,
        to_entry: Json,
        swapped: bool,
    },
    /// Item by item.
    Items,
}

/// What has a counterpart already, in each version.
#[derive(Default)]
struct Used {
    old: Vec<Vec<Segment>>,
    new: Vec<Vec<Segment>>,
}

fn taken(used: &[Vec<Segment>], path: &[Segment]) -> bool {
    used.iter()
        .any(|other| other.starts_with(path) || path.starts_with(other))
}

impl Used {
    fn note(&mut self, found: &Suggestion) {
        let segments = |paths: &[Path]| paths.iter().map(|path| path.segments().to_vec()).collect::<Vec<_>>();
        self.old.extend(segments(&found.old));
        self.new.extend(segments(&found.new));
    }
}

/// Compares two objects: the whole, or two items.
fn scope(
    old: &Node,
    new: &Node,
    above_old: &[Segment],
    above_new: &[Segment],
    keys: &[(Segment, Segment)],
    out: &mut Suggestions,
) {
    let (mut olds, mut news) = (Vec::new(), Vec::new());
    let mut at = Vec::new();
    loose(old, new, &mut at, &mut olds, &mut news, (above_old, above_new), out);
    let mut used = Used::default();
    // A rule for all items reads one field of each.
    let whole = above_old.is_empty() && above_new.is_empty();
    if whole {
        for split in several::splits(&olds, &news) {
            used.note(&split);
            out.pairs.push(split);
        }
    }
    for (old, new) in keys {
        let [old, new] =
            [(above_old, old), (above_new, new)].map(|(above, key)| joined(above, std::slice::from_ref(key)));
        used.old.push(old.segments()[above_old.len()..].to_vec());
        used.new.push(new.segments()[above_new.len()..].to_vec());
        out.pairs.push(Suggestion::moved(
            old,
            new,
            BOTH_KEYS,
            vec!["both are the key of their list".to_owned()],
        ));
    }
    let pairs = ranked(&olds, &news);
    for pair in &pairs {
        let (a, b) = (&olds[pair.old], &news[pair.new]);
        if taken(&used.old, &a.path) || taken(&used.new, &b.path) {
            continue;
        }
        used.old.push(a.path.clone());
        used.new.push(b.path.clone());
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
    if whole {
        let free_old: Vec<_> = olds.iter().filter(|place| !taken(&used.old, &place.path)).collect();
        let free_new: Vec<_> = news.iter().filter(|place| !taken(&used.new, &place.path)).collect();
        let entries = several::entries(&free_old, &free_new, false);
        for entry in entries.into_iter().chain(several::entries(&free_new, &free_old, true)) {
            used.note(&entry);
            out.pairs.push(entry);
        }
    }
    let left = |places: &[Loose<'_>], used: &[Vec<Segment>], above: &[Segment]| -> Vec<Path> {
        // An object is its fields.
        let ends = |place: &&Loose<'_>| place.node.properties().next().is_none();
        let free = places.iter().filter(ends).filter(|place| !taken(used, &place.path));
        free.map(|place| joined(above, &place.path)).collect()
    };
    out.only_old.extend(left(&olds, &used.old, above_old));
    out.only_new.extend(left(&news, &used.new, above_new));
}

/// Every pair that is alike, the best first.
fn ranked(olds: &[Loose<'_>], news: &[Loose<'_>]) -> Vec<Pair> {
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
    pairs
}

/// Notes a pair that was chosen.
fn settle(
    pair: &Pair,
    rival: Option<&Path>,
    (a, b): (&Loose<'_>, &Loose<'_>),
    (above_old, above_new): (&[Segment], &[Segment]),
    out: &mut Suggestions,
) {
    let (old, new) = (joined(above_old, &a.path), joined(above_new, &b.path));
    let mut reasons = pair.reasons.clone();
    let mut confidence = pair.score.min(0.99);
    if let Some(rival) = rival {
        confidence *= 0.8;
        reasons.push(format!("{rival} is as much alike"));
    }
    let inside = |path: &Path, more: &[Segment]| joined(path.segments(), more);
    out.pairs.push(match &pair.link {
        Link::Move => Suggestion::moved(old, new, confidence, reasons),
        Link::Steps(Step(there), Step(home)) => {
            Suggestion::stepped((old, Some(json!(home))), (new, Some(json!(there))), confidence, reasons)
        }
        Link::Below {
            old: below_old,
            new: below_new,
        } => Suggestion::moved(inside(&old, below_old), inside(&new, below_new), confidence, reasons),
        Link::Keyed {
            key,
            to_item,
            to_entry,
            swapped,
        } => {
            let entry = |path: &Path| inside(path, &[Segment::Each("key".to_owned())]);
            let item = |path: &Path| inside(path, &[Segment::Each("i".to_owned())]);
            let under = |path: &Path| inside(path, &[Segment::Key(format!("self.{key}"))]);
            let guess = |from: Path, to: Path, template: &Json| {
                let mut guess = Guess::new(Source::Field(from), to, None);
                guess.transformation = Some(template.clone());
                vec![guess]
            };
            let (map, list) = if *swapped { (&new, &old) } else { (&old, &new) };
            let to_list = guess(entry(map), item(list), to_item);
            let to_map = guess(item(list), under(map), to_entry);
            let (forth, back) = if *swapped { (to_map, to_list) } else { (to_list, to_map) };
            let (old, new) = (vec![old], vec![new]);
            Suggestion {
                old,
                new,
                confidence,
                reasons,
                forth,
                back,
                work: None,
            }
        }
        Link::Items => return items((a.node, &old), (b.node, &new), pair.score, out),
    });
}

/// Two lists or maps that go together: their items are compared. Fields that items share at one
/// path need a rule only if the lists stand elsewhere, and one of them is enough to make the loop.
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
    scope(from, to, &above_old, &above_new, &keys(a, b), out);
    if old != new && out.pairs.len() == before {
        let reasons = vec!["items have fields in common".to_owned()];
        let pair = Suggestion::moved(old.clone(), new.clone(), score.min(0.99), reasons);
        out.pairs.push(pair);
    }
}

/// The keys of two lists, where each has one and they are called differently.
fn keys(a: &Node, b: &Node) -> Vec<(Segment, Segment)> {
    use insula_schema::ListType::Map;
    let key = |keys: &[String]| Segment::Field(keys.first().cloned().unwrap_or_default());
    match (a.list_type(), b.list_type()) {
        (Map { keys: x }, Map { keys: y }) if x.len() == 1 && y.len() == 1 && x != y => vec![(key(x), key(y))],
        _ => Vec::new(),
    }
}

fn joined(above: &[Segment], path: &[Segment]) -> Path {
    Path::from_segments(above.iter().chain(path).cloned().collect())
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
    passthrough::compile(Some(a), b, &Except::default(), &mut Vec::new()).is_some()
}
