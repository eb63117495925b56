//! Enumerations of one version whose words the other version has in parts: in two enumerations, or
//! as booleans.

use super::choices::texts;
use super::names::names_alike;
use super::{Guess, Loose, Source, Suggestion, is_object, joined};
use crate::passthrough::Scalar::Boolean;
use crate::passthrough::{Kind, known_kind};
use crate::path::{Path, Segment};
use std::collections::BTreeMap;

/// Separators between the parts of a word.
const SEPARATORS: [char; 3] = ['/', ':', '.'];
/// Confidence in an enumeration whose words are made of those of two others.
const IN_PARTS: f64 = 0.9;
/// Confidence in booleans that are named like the words of an enumeration.
const AS_FLAGS: f64 = 0.8;
/// Least similarity of a word and the name of its boolean.
const WORD_MIN: f64 = 0.6;
/// Least similarity of the names of the enumeration and of the object with the booleans.
const NAMES_MIN: f64 = 0.6;

/// Maximum number of enumerations of one version, and of words of one of them: each is compared
/// with all pairs of others.
const ENUMERATIONS_MAX: usize = 32;

/// Finds enumerations that the other version has in parts. Only outside of lists: inside, a rule
/// reads one field of each item.
pub(super) fn find(olds: &[Loose<'_>], news: &[Loose<'_>]) -> Vec<Suggestion> {
    let mut out = Vec::new();
    for shape in SHAPES {
        for whole in enumerations(olds) {
            out.extend(shape(whole, news).map(|parts| parts.suggestion(false)));
        }
        for whole in enumerations(news) {
            out.extend(shape(whole, olds).map(|parts| parts.suggestion(true)));
        }
    }
    out
}

fn enumerations<'p, 's>(places: &'p [Loose<'s>]) -> impl Iterator<Item = &'p Loose<'s>> + Clone {
    let words = |place: &&Loose<'_>| (1..=ENUMERATIONS_MAX).contains(&place.node.choices().len());
    places.iter().filter(words).take(ENUMERATIONS_MAX)
}

/// Finds the parts of an enumeration among the fields of the other version.
type Shape = fn(&Loose<'_>, &[Loose<'_>]) -> Option<Parts>;

const SHAPES: [Shape; 2] = [in_parts, as_flags];

/// An enumeration and the fields that say the same, with an expression for each of these, and one
/// over the whole object for the enumeration.
struct Parts {
    whole: Path,
    parts: Vec<(Path, String)>,
    together: String,
    confidence: f64,
    reason: &'static str,
}

impl Parts {
    fn suggestion(self, swapped: bool) -> Suggestion {
        let whole = self.whole;
        let guess = |(path, expression): &(Path, String)| {
            Guess::new(Source::Field(whole.clone()), path.clone(), Some(expression.clone()))
        };
        let apart: Vec<Guess> = self.parts.iter().map(guess).collect();
        let together = vec![Guess::new(Source::Object(self.together), whole.clone(), None)];
        let parts: Vec<Path> = self.parts.into_iter().map(|(path, _)| path).collect();
        let ((old, forth), (new, back)) = match swapped {
            true => ((parts, together), (vec![whole], apart)),
            false => ((vec![whole], apart), (parts, together)),
        };
        Suggestion {
            old,
            new,
            confidence: self.confidence,
            reasons: vec![self.reason.to_owned()],
            forth,
            back,
            work: None,
        }
    }
}

fn path(place: &Loose<'_>) -> Path {
    joined(&[], &place.path)
}

/// Writes a map literal of texts.
fn table(entries: &BTreeMap<String, &str>) -> String {
    let entries: Vec<String> = entries
        .iter()
        .map(|(key, value)| format!("'{key}': '{value}'"))
        .collect();
    format!("{{{}}}", entries.join(", "))
}

/// Finds two enumerations in one object whose words make the words of `whole`, but for case.
///
/// ```text
/// source: a/widget, b/tool  ↔  ref: {group: a, b; kind: Widget, Tool}
/// ```
fn in_parts(whole: &Loose<'_>, others: &[Loose<'_>]) -> Option<Parts> {
    let words: Vec<&str> = texts(whole.node)?.into_iter().filter(|word| !word.is_empty()).collect();
    let split = |separator: char| -> Option<Vec<(&str, &str)>> {
        let parts = words.iter().map(|word| word.split_once(separator));
        parts.collect::<Option<Vec<_>>>().filter(|parts| parts.len() > 1)
    };
    let (separator, split) = SEPARATORS
        .iter()
        .find_map(|separator| Some((*separator, split(*separator)?)))?;
    let part = |part: fn(&(&str, &str)) -> String, other: &Loose<'_>| -> Option<BTreeMap<String, String>> {
        let choices = texts(other.node)?;
        let found = |(word, parts): (&&str, &(&str, &str))| {
            let found = choices.iter().find(|choice| choice.eq_ignore_ascii_case(&part(parts)));
            Some(((*word).to_owned(), (*found?).to_owned()))
        };
        let is_whole = choices.len() <= words.len();
        words
            .iter()
            .zip(&split)
            .map(found)
            .collect::<Option<_>>()
            .filter(|_| is_whole)
    };
    let near = enumerations(others).filter(|place| place.path.first() == whole.path.first());
    let mut fit: Option<Parts> = None;
    for one in near.clone() {
        let Some(firsts) = part(|(first, _)| (*first).to_owned(), one) else {
            continue;
        };
        for other in near
            .clone()
            .filter(|place| place.above() == one.above() && place.path != one.path)
        {
            let Some(seconds) = part(|(_, second)| (*second).to_owned(), other) else {
                continue;
            };
            let to = |table_of: &BTreeMap<String, String>| {
                let entries = table_of.iter().map(|(word, part)| (word.clone(), part.as_str()));
                format!("{}[?self]", table(&entries.collect()))
            };
            let pairs = words
                .iter()
                .map(|&word| (format!("{}{separator}{}", firsts[word], seconds[word]), word));
            let words = pairs.collect();
            let parts = Parts {
                whole: path(whole),
                parts: vec![(path(one), to(&firsts)), (path(other), to(&seconds))],
                together: format!(
                    "{}[?(self{} + '{separator}' + self{})]",
                    table(&words),
                    path(one),
                    path(other)
                ),
                confidence: IN_PARTS,
                reason: "words that are made of those of two enumerations",
            };
            // Of two such pairs nothing tells which one it is.
            if fit.replace(parts).is_some() {
                return None;
            }
        }
    }
    fit
}

/// Finds an object of booleans that are named like the words of `whole`, but for one word: that
/// none of them is true.
///
/// ```text
/// provisioning: Thin, Thick, Eager  ↔  provisioning: {thinDisk, eagerZero}
/// ```
fn as_flags(whole: &Loose<'_>, others: &[Loose<'_>]) -> Option<Parts> {
    let words = texts(whole.node)?;
    let object = others
        .iter()
        .filter(|place| place.path.first() == whole.path.first())
        .find(|place| {
            let mut fields = place.node.properties();
            is_object(place.node)
                && place.node.properties().count() + 1 == words.len()
                && words.len() > 2
                && fields.all(|(_, field)| known_kind(field) == Some(Kind::Scalar(Boolean)))
                && names_alike(place.name(), whole.name()) >= NAMES_MIN
        })?;
    let mut flags: Vec<(&str, &str)> = Vec::new();
    for (name, _) in object.node.properties() {
        let mut scored: Vec<(f64, &str)> = words.iter().map(|word| (names_alike(name, word), *word)).collect();
        scored.sort_by(|x, y| y.0.total_cmp(&x.0));
        let (best, word) = *scored.first()?;
        let is_clear = best >= WORD_MIN && scored.get(1).is_none_or(|(next, _)| *next < best);
        if !is_clear || flags.iter().any(|(_, other)| *other == word) {
            return None;
        }
        flags.push((name, word));
    }
    let rest = words.iter().find(|word| flags.iter().all(|(_, flag)| flag != *word))?;
    let field_path = |name: &str| joined(&object.path, &[Segment::Field(name.to_owned())]);
    let field = |name: &str| format!("self{}", field_path(name));
    let tests = flags.iter().map(|(name, word)| {
        let field = field(name);
        format!("has({field}) && {field} ? optional.of('{word}') : ")
    });
    let given: Vec<String> = flags.iter().map(|(name, _)| format!("has({})", field(name))).collect();
    let together = format!(
        "{}{} ? optional.of('{rest}') : optional.none()",
        tests.collect::<String>(),
        given.join(" || ")
    );
    let part = |(name, word): &(&str, &str)| (field_path(name), format!("self == '{word}'"));
    Some(Parts {
        whole: path(whole),
        parts: flags.iter().map(part).collect(),
        together,
        confidence: AS_FLAGS,
        reason: "booleans with the names of its words",
    })
}
