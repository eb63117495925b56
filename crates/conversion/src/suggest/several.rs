//! Texts that were split into several fields, and fields that became entries of one map.

use super::{Guess, Loose, Source, Suggestion, joined};
use crate::passthrough::Scalar::{Integer, String as Text};
use crate::passthrough::{Kind, known_kind};
use crate::path::{Path, Segment};

/// A known kind of text with two parts: the names of the whole and the parts, the separator, and
/// whether the second part may be absent.
struct Known {
    whole: &'static [&'static str],
    first: &'static [&'static str],
    second: &'static [&'static str],
    separator: char,
    optional: bool,
}

const KNOWN: &[Known] = &[
    Known {
        whole: &[
            "address",
            "endpoint",
            "hostport",
            "server",
            "listen",
            "target",
            "authority",
        ],
        first: &["host", "hostname", "ip", "address"],
        second: &["port"],
        separator: ':',
        optional: false,
    },
    Known {
        whole: &["image"],
        first: &["repository", "repo", "name", "image"],
        second: &["tag", "version"],
        separator: ':',
        optional: true,
    },
    Known {
        whole: &["cidr", "subnet", "network"],
        first: &["address", "ip", "network", "prefix"],
        second: &["length", "bits", "mask"],
        separator: '/',
        optional: false,
    },
    Known {
        whole: &["name", "fullname"],
        first: &["first"],
        second: &["last"],
        separator: ' ',
        optional: true,
    },
    Known {
        whole: &["range", "ports"],
        first: &["min", "from", "start", "first", "low"],
        second: &["max", "to", "end", "last", "high"],
        separator: '-',
        optional: false,
    },
];

/// Confidence by name only: enough for a question.
const BY_NAME: f64 = 0.7;
/// Confidence if the pattern contains the separator.
const BY_PATTERN: f64 = 0.9;
/// Confidence for removed fields of one type, where a map of that type was added.
const BY_TYPE: f64 = 0.45;

/// Finds texts of one version that the other holds in parts. Only outside of lists: inside, a rule
/// reads one field of each item.
pub(super) fn splits(olds: &[Loose<'_>], news: &[Loose<'_>]) -> Vec<Suggestion> {
    let mut out = Vec::new();
    for whole in olds {
        out.extend(split(whole, news).map(|split| split.suggestion(false)));
    }
    for whole in news {
        out.extend(split(whole, olds).map(|split| split.suggestion(true)));
    }
    out
}

struct Split {
    whole: Path,
    parts: [Path; 2],
    number: bool,
    known: &'static Known,
    by_pattern: bool,
}

fn split(whole: &Loose<'_>, others: &[Loose<'_>]) -> Option<Split> {
    if known_kind(whole.node)? != Kind::Scalar(Text) || !whole.node.choices().is_empty() {
        return None;
    }
    let named = |place: &Loose<'_>, names: &[&str]| names.iter().any(|name| place.words.ends_with(name));
    KNOWN
        .iter()
        .filter(|known| named(whole, known.whole))
        .find_map(|known| {
            let near = |place: &&Loose<'_>| {
                let above = place.path.split_last().map(|(_, above)| above);
                // In an object with the text's name, or beside it.
                above == Some(whole.path.as_slice()) || above == whole.path.split_last().map(|(_, above)| above)
            };
            let find = |names: &[&str], kinds: &[Kind]| {
                let fits = |place: &&Loose<'_>| known_kind(place.node).is_some_and(|kind| kinds.contains(&kind));
                others
                    .iter()
                    .filter(near)
                    .filter(fits)
                    .find(|place| named(place, names))
            };
            let first = find(known.first, &[Kind::Scalar(Text)])?;
            let second = find(known.second, &[Kind::Scalar(Text), Kind::Scalar(Integer)])?;
            let siblings = first.path.split_last()?.1 == second.path.split_last()?.1 && first.path != second.path;
            siblings.then(|| Split {
                whole: joined(&[], &whole.path),
                parts: [joined(&[], &first.path), joined(&[], &second.path)],
                number: known_kind(second.node) == Some(Kind::Scalar(Integer)),
                known,
                by_pattern: whole
                    .node
                    .pattern()
                    .is_some_and(|pattern| pattern.contains(known.separator)),
            })
        })
}

impl Split {
    fn suggestion(self, swapped: bool) -> Suggestion {
        let Split {
            whole,
            parts,
            number,
            known,
            by_pattern,
        } = self;
        let (separator, [first, second]) = (known.separator, &parts);
        let part = |index: &str, to: &Path, number: bool| {
            let text = format!("self.split('{separator}')[{index}]");
            let text = if number { format!("int({text})") } else { text };
            Guess::new(Source::Field(whole.clone()), to.clone(), Some(text))
        };
        // `[?1]` is an element that may be absent.
        let apart = vec![
            part("0", first, false),
            part(if number { "1" } else { "?1" }, second, number),
        ];
        let value = if number {
            format!("string(self{second})")
        } else {
            format!("self{second}")
        };
        let text = if known.optional {
            format!("self{first} + (has(self{second}) ? '{separator}' + {value} : '')")
        } else {
            format!("self{first} + '{separator}' + {value}")
        };
        let together = vec![Guess::new(Source::Object(text), whole.clone(), None)];
        let reason = format!("a text of two parts with {separator:?} between them");
        let (confidence, why) = if by_pattern {
            (BY_PATTERN, "its pattern has that")
        } else {
            (BY_NAME, "by its name")
        };
        let reasons = vec![reason, why.to_owned()];
        let (one, both) = (vec![whole], parts.to_vec());
        let ((old, forth), (new, back)) = if swapped {
            ((both, together), (one, apart))
        } else {
            ((one, apart), (both, together))
        };
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
}

/// Finds removed fields where a map of such values was added: each may be the entry of its name.
pub(super) fn entries(fields: &[&Loose<'_>], maps: &[&Loose<'_>], swapped: bool) -> Vec<Suggestion> {
    let mut of_kind = maps.iter().filter(|place| place.node.additional().is_some());
    let (Some(map), None) = (of_kind.next(), of_kind.next()) else {
        return Vec::new();
    };
    let kind = map.node.additional().and_then(known_kind);
    let beside = |place: &&&Loose<'_>| {
        let parent = |path: &[Segment]| path.split_last().map(|(_, above)| above.to_vec());
        known_kind(place.node) == kind && parent(&place.path) == parent(&map.path)
    };
    let fields: Vec<_> = fields.iter().filter(beside).collect();
    if fields.len() < 2 || !matches!(kind, Some(Kind::Scalar(_))) {
        return Vec::new();
    }
    let entry = |field: &&&Loose<'_>| {
        let (field, entry) = (
            joined(&[], &field.path),
            joined(&map.path, &[Segment::Field(field.name().to_owned())]),
        );
        let (old, new) = if swapped { (entry, field) } else { (field, entry) };
        Suggestion::moved(
            old,
            new,
            BY_TYPE,
            vec!["a map of such values is in its place".to_owned()],
        )
    };
    fields.iter().map(entry).collect()
}
