//! Generated texts that fit a node's format, pattern and length.

use super::random::Random;
use insula_goformat::regexp::{Limits, Syntax};
use insula_schema::Node;
use regex_syntax::hir::{Class, Hir, HirKind};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Texts on which programs often fail: empty, blank, numbers, booleans, units, separators, other
/// alphabets.
const TEXTS: &[&str] = &[
    "",
    "a",
    "b",
    "ab",
    "a b",
    "A",
    "1",
    "0",
    "-5",
    "1.5",
    "true",
    " ",
    "a-b",
    "a/b",
    "a,b",
    "a=b",
    "a:b",
    "é☃",
    "10Mi",
    "1h30m",
    "x.y",
    "None",
    "2024-02-29T12:00:00Z",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

/// Maximum number of repetitions where a pattern sets no upper bound.
const REPEAT: u32 = 3;

/// The parsed patterns of a search: parsing takes longer than generating a text.
#[derive(Default)]
pub(super) struct Patterns(RefCell<HashMap<String, Option<Rc<Hir>>>>);

impl Patterns {
    fn parsed(&self, pattern: &str) -> Option<Rc<Hir>> {
        if let Some(known) = self.0.borrow().get(pattern) {
            return known.clone();
        }
        let parsed = parse(pattern).map(Rc::new);
        self.0.borrow_mut().insert(pattern.to_owned(), parsed.clone());
        parsed
    }
}

/// Generates a text. The node may still refuse it, by length or by a pattern that no text matches.
pub(super) fn text(node: &Node, patterns: &Patterns, random: &mut Random) -> String {
    let made = match (node.format().and_then(samples), node.pattern()) {
        (_, Some(pattern)) => of_pattern(pattern, patterns, random).unwrap_or_default(),
        (Some(samples), None) => one(samples, random),
        (None, None) => one(TEXTS, random),
    };
    let max = node.max_length().unwrap_or(usize::MAX);
    let mut fitted: String = made.chars().take(max).collect();
    while fitted.chars().count() < node.min_length().unwrap_or(0).min(1_000) {
        fitted.push('a');
    }
    fitted
}

fn one(texts: &[&str], random: &mut Random) -> String {
    random.pick(texts).copied().unwrap_or_default().to_owned()
}

fn samples(format: &str) -> Option<&'static [&'static str]> {
    Some(match format {
        "date-time" => &[
            "2024-02-29T12:00:00Z",
            "1970-01-01T00:00:00Z",
            "2024-02-29T23:30:15.25+02:00",
        ],
        "date" => &["2024-02-29", "1970-01-01"],
        "duration" => &["0s", "90s", "1h30m", "-1s"],
        "byte" => &["", "aGVsbG8=", "/w=="],
        "uuid" | "uuid3" | "uuid4" | "uuid5" => &["6f1c0e52-9c39-4a0b-8a3e-0d3b1c2d4e5f"],
        "ipv4" => &["127.0.0.1", "10.1.2.3"],
        "ipv6" => &["::1", "2001:db8::1"],
        "cidr" => &["10.0.0.0/8"],
        "uri" | "url" => &["https://example.com/a?b=c"],
        "email" => &["a@example.com"],
        "hostname" => &["example.com", "a"],
        "mac" => &["01:23:45:67:89:ab"],
        _ => return None,
    })
}

/// Generates a text that most likely matches the pattern. Anchors are ignored: a text may match a
/// pattern in its middle.
fn of_pattern(pattern: &str, patterns: &Patterns, random: &mut Random) -> Option<String> {
    let hir = patterns.parsed(pattern)?;
    let mut bytes = Vec::new();
    sample(&hir, random, &mut bytes);
    String::from_utf8(bytes).ok()
}

fn parse(pattern: &str) -> Option<Hir> {
    let syntax = Syntax::parse(pattern, &Limits::USUAL).ok()?;
    Some(syntax.hir().clone())
}

fn sample(hir: &Hir, random: &mut Random, out: &mut Vec<u8>) {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => out.extend_from_slice(&literal.0),
        HirKind::Class(Class::Bytes(_)) => {}
        HirKind::Class(Class::Unicode(class)) => {
            let ranges = class
                .ranges()
                .iter()
                .map(|r| (u32::from(r.start()), u32::from(r.end())));
            let printable: Vec<_> = ranges.clone().filter_map(printable).collect();
            let ranges = if printable.is_empty() {
                ranges.collect()
            } else {
                printable
            };
            let code = random
                .pick(&ranges)
                .map(|(low, high)| low + random.below((high - low + 1) as usize) as u32);
            let character = code.and_then(char::from_u32).unwrap_or('a');
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
        HirKind::Repetition(repetition) => {
            let max = repetition
                .max
                .unwrap_or(repetition.min + REPEAT)
                .min(repetition.min + REPEAT);
            let times = repetition.min + random.below((max - repetition.min + 1) as usize) as u32;
            (0..times.min(1_000)).for_each(|_| sample(&repetition.sub, random, out));
        }
        HirKind::Capture(capture) => sample(&capture.sub, random, out),
        HirKind::Concat(parts) => parts.iter().for_each(|part| sample(part, random, out)),
        HirKind::Alternation(parts) => {
            if let Some(part) = random.pick(parts) {
                sample(part, random, out);
            }
        }
    }
}

/// Returns the printable ASCII characters of a range.
fn printable((low, high): (u32, u32)) -> Option<(u32, u32)> {
    let (low, high) = (low.max(0x20), high.min(0x7e));
    (low <= high).then_some((low, high))
}
