//! Suggested rules for a changed schema: renames, moves and type conversions between them.
//!
//! Fields that pass through need no rule. All other fields of one version are compared with those
//! of the other: names (as sets of words, so that `firstName` resembles `name.first`),
//! descriptions, enumerations, bounds. The best pairs win. The same comparison runs inside lists
//! and maps that belong together, on the fields of their items. Where two fields differ in more
//! than their name, tables help: units, words of enumerations, opposites, keys, parts of texts.
//!
//! A suggestion is a guess with its reasons. The author must review it; [`Suggestions::try_out`]
//! checks it as admission would.

use crate::bundle::VersionSchema;
use crate::passthrough::{self, Except, Kind, known_kind};
use crate::path::{Path, Segment};
use insula_api::Json;
use insula_meter::{Ended, Meter};
use insula_schema::Node;
use serde_json::json;

mod across;
mod anchors;
mod choices;
mod compare;
mod cost;
mod enumerated;
mod inlined;
mod lists;
mod names;
mod places;
mod references;
mod rivals;
mod several;
mod suggestion;
mod tried;
mod units;

use across::Crossings;
use anchors::{Anchors, Context};
use compare::compare;
use places::{Loose, Objects, Walk, unchanged};
use suggestion::Step;
pub use suggestion::{Guess, SURE, Source, Suggestion, Suggestions};

/// Score difference below which two candidates count as equal.
const TIE: f64 = 0.04;
/// Least score of similar fields that alone of their type changed in their object.
const ALONE: f64 = 0.65;
/// Score of the only maps of one shape, if their names have a word in common.
const ONLY_OF_SHAPE: f64 = 0.7;
/// Highest score of fields whose names tell them apart: less than what becomes a rule unasked.
const TOLD_APART: f64 = 0.5;
/// Score of the keys of two lists that belong together.
const BOTH_KEYS: f64 = 0.9;
/// Maximum number of fields of one version that are compared: the cost grows with the product of
/// both numbers.
const PLACES_MAX: usize = 1_000;

/// Compares two versions. The meter pays.
///
/// # Errors
/// The request may compute no further.
pub fn suggest(old: &VersionSchema, new: &VersionSchema, meter: &Meter) -> Result<Suggestions, Ended> {
    let mut out = Suggestions {
        versions: (old.name.clone(), new.name.clone()),
        ..Suggestions::default()
    };
    let objects = Objects {
        old: old.schema.root(),
        new: new.schema.root(),
        above: (&[], &[]),
        carried: true,
        meter,
    };
    scope(objects, &[], &mut out)?;
    out.pairs.iter_mut().for_each(across::only_to_status);
    out.pairs.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
    Ok(out)
}

/// Two unmatched fields and their similarity.
#[derive(Clone)]
struct Pair {
    old: usize,
    new: usize,
    score: f64,
    /// Whole objects go before their fields.
    first: bool,
    reasons: Vec<String>,
    link: Link,
}

/// Relation between the values of two fields.
#[derive(Clone)]
enum Link {
    /// Equal values.
    Move,
    /// An expression in each direction.
    Steps(Step, Step),
    /// In one version, the value is a field inside the other's object.
    Below { old: Vec<Segment>, new: Vec<Segment> },
    /// Entries of a map are items of a list, which hold the key. The old version has the list if
    /// `swapped`.
    Keyed {
        key: String,
        to_item: Json,
        to_entry: Json,
        swapped: bool,
    },
    /// Lists or maps whose items are matched.
    Items,
}

/// Paths that already have a counterpart, in each version.
struct Used {
    old: Vec<Vec<Segment>>,
    new: Vec<Vec<Segment>>,
}

fn taken(used: &[Vec<Segment>], path: &[Segment]) -> bool {
    used.iter()
        .any(|other| other.starts_with(path) || path.starts_with(other))
}

impl Used {
    fn len(&self) -> u64 {
        (self.old.len() + self.new.len()) as u64
    }

    fn note(&mut self, found: &Suggestion) {
        let segments = |paths: &[Path]| paths.iter().map(|path| path.segments().to_vec()).collect::<Vec<_>>();
        self.old.extend(segments(&found.old));
        self.new.extend(segments(&found.new));
    }
}

/// Compares two objects: whole objects, or two items.
fn scope(objects: Objects<'_, '_>, keys: &[(Segment, Segment)], out: &mut Suggestions) -> Result<(), Ended> {
    let Walk { olds, news, moved, .. } = Walk::new(objects, out)?;
    let meter = objects.meter;
    let (above_old, above_new) = objects.above;
    let mut used = Used {
        old: moved.0,
        new: moved.1,
    };
    // Inside items, a rule reads one field of each item.
    let whole = objects.whole();
    if whole {
        meter.spend(cost::of_all(compared(&olds), compared(&news)))?;
        for split in in_several(compared(&olds), compared(&news)) {
            used.note(&split);
            out.pairs.push(split);
        }
    }
    pair_keys((above_old, above_new), keys, &mut used, out);
    let pairs = ranked(objects, (&olds, &news), out)?;
    let mut chosen: Vec<&Pair> = Vec::new();
    for pair in &pairs {
        let (a, b) = (&olds[pair.old], &news[pair.new]);
        meter.spend(used.len())?;
        if taken(&used.old, &a.path) || taken(&used.new, &b.path) {
            continue;
        }
        meter.spend(cost::of_choice(olds.len() + news.len(), used.len(), pairs.len()))?;
        let alone = matches!(pair.link, Link::Move)
            && !a.words.are_apart(&b.words)
            && a.above() == b.above()
            && a.is_alone(&olds, &used.old)
            && b.is_alone(&news, &used.new);
        used.old.push(a.path.clone());
        used.new.push(b.path.clone());
        let rival = rivals::rival(pair, (&pairs, &chosen), (&olds, &news), meter)?;
        let rival = rival.map(|other| match other.old == pair.old {
            true => joined(above_new, &news[other.new].path),
            false => joined(above_old, &olds[other.old].path),
        });
        chosen.push(pair);
        let mut pair = rivals::weighed(pair, &pairs, (&olds, &news), above_old);
        if alone && pair.score < ALONE {
            pair.score = ALONE;
            pair.reasons.push("no others of their type have changed".to_owned());
        }
        settle(&pair, rival.as_ref(), (a, b), objects, out)?;
    }
    meter.spend((olds.len() + news.len()) as u64 * used.len())?;
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
        // Objects are matched by their fields.
        let ends = |place: &&Loose<'_>| place.node.properties().next().is_none();
        let free = places.iter().filter(ends).filter(|place| !taken(used, &place.path));
        free.map(|place| joined(above, &place.path)).collect()
    };
    out.only_old.extend(left(&olds, &used.old, above_old));
    out.only_new.extend(left(&news, &used.new, above_new));
    Ok(())
}

/// Pairs the keys of two lists that belong together.
fn pair_keys(
    (above_old, above_new): (&[Segment], &[Segment]),
    keys: &[(Segment, Segment)],
    used: &mut Used,
    out: &mut Suggestions,
) {
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
}

fn compared<'p, 's>(places: &'p [Loose<'s>]) -> &'p [Loose<'s>] {
    &places[..places.len().min(PLACES_MAX)]
}

/// Returns the fields that the other version has in several.
fn in_several(olds: &[Loose<'_>], news: &[Loose<'_>]) -> Vec<Suggestion> {
    [several::splits(olds, news), enumerated::find(olds, news)].concat()
}

/// Returns all similar pairs, the best first.
fn ranked(
    objects: Objects<'_, '_>,
    (olds, news): (&[Loose<'_>], &[Loose<'_>]),
    out: &Suggestions,
) -> Result<Vec<Pair>, Ended> {
    let whole = objects.whole();
    let (olds, news) = (compared(olds), compared(news));
    objects.meter.spend(cost::of_all(olds, news))?;
    let across = whole.then(|| Crossings::find(olds, news));
    let anchors = Anchors::find(olds, news, across.as_ref(), objects.meter)?;
    let inlined = inlined::find(olds, news);
    let only = lists::only_of_shape(olds, news);
    let versions = (out.versions.0.as_str(), out.versions.1.as_str());
    let mut pairs = Vec::new();
    for (i, a) in olds.iter().enumerate() {
        for (j, b) in news.iter().enumerate() {
            if !across.as_ref().is_none_or(|across| across.allows(&a.path, &b.path)) {
                continue;
            }
            let only = only.contains(&(i, j));
            let Some(price) = cost::of_pair(a, b) else { continue };
            objects.meter.spend(price)?;
            if !only && objects.are_apart(&a.path, &b.path) {
                continue;
            }
            let crosses = whole && a.path.first() != b.path.first() && a.path.len() == 2 && b.path.len() == 2;
            let context = match crosses || inlined.contains(&(i, j)) {
                true => Context::Inside(a.above().len(), b.above().len()),
                false => anchors.context((i, olds), (j, news)),
            };
            let mut found = references::group(a, b, context, versions).or_else(|| compare(a, b, context));
            if only && found.as_ref().is_none_or(|(score, ..)| *score < ONLY_OF_SHAPE) {
                let reasons = vec!["no others of their type have changed".to_owned()];
                found = Some((ONLY_OF_SHAPE, reasons, Link::Move));
            }
            if let Some((score, reasons, _)) = &mut found
                && a.words.are_apart(&b.words)
            {
                *score = score.min(TOLD_APART);
                reasons.push("their names tell them apart".to_owned());
            }
            pairs.extend(found.map(|(score, reasons, link)| Pair {
                old: i,
                new: j,
                score,
                first: is_object(a.node) && anchors.paired(i, j) && unchanged(a.node, b.node),
                reasons,
                link,
            }));
        }
    }
    // Of equal pairs, the one that is higher up in both versions.
    let depth = |pair: &Pair| olds[pair.old].path.len() + news[pair.new].path.len();
    pairs.sort_by(|a, b| {
        let best = b.first.cmp(&a.first).then(b.score.total_cmp(&a.score));
        best.then(depth(a).cmp(&depth(b)))
    });
    Ok(pairs)
}

/// Records a chosen pair.
fn settle(
    pair: &Pair,
    rival: Option<&Path>,
    (a, b): (&Loose<'_>, &Loose<'_>),
    objects: Objects<'_, '_>,
    out: &mut Suggestions,
) -> Result<(), Ended> {
    let (above_old, above_new) = objects.above;
    let (old, new) = (joined(above_old, &a.path), joined(above_new, &b.path));
    let mut reasons = pair.reasons.clone();
    let mut confidence = pair.score.min(0.99);
    if let Some(rival) = rival {
        confidence *= 0.8;
        reasons.push(format!("{rival} is as much alike"));
    }
    let inside = |path: &Path, more: &[Segment]| each_named(joined(path.segments(), more));
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
            // The templates name the key.
            let entry = |path: &Path| joined(path.segments(), &[Segment::Each("key".to_owned())]);
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
        Link::Items => return items((a.node, &old), (b.node, &new), pair.score, (objects.meter, out)),
    });
    Ok(())
}

/// Compares the items of two lists or maps that belong together. Fields that have the same path in
/// both items need a rule only if the lists have different paths; one such rule suffices to create
/// the loop.
fn items(
    (a, old): (&Node, &Path),
    (b, new): (&Node, &Path),
    score: f64,
    (meter, out): (&Meter, &mut Suggestions),
) -> Result<(), Ended> {
    let (Some(from), Some(to)) = (inner(a), inner(b)) else {
        return Ok(());
    };
    let each = |node: &Node, path: &Path| -> Vec<Segment> {
        let name = if node.items().is_some() { "i" } else { "key" };
        let each = joined(path.segments(), &[Segment::Each(name.to_owned())]);
        each_named(each).segments().to_vec()
    };
    let (above_old, above_new) = (each(a, old), each(b, new));
    let before = out.pairs.len();
    let objects = Objects {
        old: from,
        new: to,
        above: (&above_old, &above_new),
        carried: true,
        meter,
    };
    scope(objects, &keys(a, b), out)?;
    if old != new && out.pairs.len() == before {
        let reasons = vec!["items have fields in common".to_owned()];
        let pair = Suggestion::moved(old.clone(), new.clone(), score.min(0.99), reasons);
        out.pairs.push(pair);
    }
    Ok(())
}

/// Names the items and entries below others apart: `lists[i].items[i2]`.
fn each_named(path: Path) -> Path {
    let mut depth = 0;
    let named = path.segments().iter().map(|segment| match segment {
        Segment::Each(name) => {
            depth += 1;
            match (depth, name.ends_with(char::is_numeric)) {
                (1, _) | (_, true) => segment.clone(),
                _ => Segment::Each(format!("{name}{depth}")),
            }
        }
        other => other.clone(),
    });
    Path::from_segments(named.collect())
}

/// Returns the keys of two lists, if each has one and their names differ.
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
