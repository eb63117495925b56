//! Findings of a search, and their messages.

use super::{Write, general, values};
use crate::bundle::Bundle;
use crate::error::ConvertError;
use crate::field_coverage::{FieldOutcome, field_coverage, hidden};
use crate::laws::{self, Law};
use insula_api::{FieldError, FieldPath, Json};
use serde_json::json;
use std::fmt;

/// Maximum number of bytes of an object that a message shows.
const SHOWN_MAX: usize = 1_024;
/// Findings that people are told in full; the others are counted.
pub const FINDINGS_SHOWN: usize = 5;

/// A sequence of writes that breaks a law or fails.
#[derive(Debug, Clone, PartialEq)]
pub struct Counterexample {
    /// The writes, in order, to one object. The last one shows the finding.
    pub script: Vec<Write>,
    /// The rule failure or broken law.
    pub finding: Finding,
    /// Number of the case that found it, from 0.
    pub case: u32,
    /// The seed that finds it again.
    pub seed: u64,
}

/// A failed expectation of the search.
#[derive(Debug, Clone, PartialEq)]
pub enum Finding {
    /// A rule fails although its author did not mark it `mayFail`.
    Fails(ConvertError),
    /// A law does not hold.
    Breaks(laws::Violation),
}

impl Finding {
    pub(super) fn is_like(&self, other: &Finding) -> bool {
        match (self, other) {
            (Finding::Fails(a), Finding::Fails(b)) => {
                a.rule.as_ref().map(|r| &r.path) == b.rule.as_ref().map(|r| &r.path)
            }
            (Finding::Breaks(a), Finding::Breaks(b)) => a.law == b.law && a.version == b.version,
            _ => false,
        }
    }

    /// Returns true for failures of one rule, and for laws that one field of a version breaks.
    pub(super) fn is_of_one_kind(&self, other: &Finding) -> bool {
        match (self, other) {
            (Finding::Breaks(a), Finding::Breaks(b)) => {
                a.version == b.version && general(&a.place) == general(&b.place)
            }
            _ => self.is_like(other),
        }
    }

    /// Returns the order of findings: lost values before writes that are refused.
    fn rank(&self) -> u8 {
        match self {
            Finding::Breaks(_) => 0,
            Finding::Fails(_) => 1,
        }
    }

    /// Returns advice for the author.
    pub fn help(&self) -> &'static str {
        match self {
            Finding::Fails(_) => {
                "bound the field in the schema (pattern, enum, minimum, maxLength), make the expression total \
                 (has(), orValue, a condition), give optional.none() where it has no value, or write mayFail: true, \
                 so that such writes are refused"
            }
            Finding::Breaks(violation) => match violation.law {
                Law::Carried => {
                    "move or write the field by rules in both directions, so that its values may differ, and report \
                     the rules: the field should be carried"
                }
                Law::Readable => {
                    "make every expression total, give optional.none() where it has no value, or write mayFail: true \
                     at the rule"
                }
                Law::WriteBack => {
                    "convert to a value that the schema keeps as it is, or give both versions the same type at the \
                     field"
                }
                Law::Status => {
                    "make fields outside of the status of such fields alone: who may write /status would change them"
                }
                _ => "write a rule for the way back, or put the field under drop if its loss is meant",
            },
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Fails(error) => write!(f, "{error}"),
            Finding::Breaks(violation) => write!(f, "{violation}"),
        }
    }
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; shown by ", self.finding)?;
        written(&self.script, f)?;
        write!(
            f,
            " (seed {}, case {}); what would help: {}",
            self.seed,
            self.case,
            self.finding.help()
        )
    }
}

/// Keeps the first five findings in full, and counts the others.
pub fn counted(mut found: Vec<FieldError>) -> Vec<FieldError> {
    let more = found.len().saturating_sub(FINDINGS_SHOWN);
    if more > 0 {
        found.truncate(FINDINGS_SHOWN);
        let why = format!("{more} more findings: insula conversion test -o json lists them");
        found.push(FieldError::invalid_text(
            &FieldPath::new("spec").child("conversions"),
            "",
            why,
        ));
    }
    found
}

/// Prints a sequence of writes: `{…} written as v1, then {…} written as v2`.
pub(super) fn written(script: &[Write], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (i, write) in script.iter().enumerate() {
        if i > 0 {
            f.write_str(", then ")?;
        }
        write!(f, "{} written as {}", shown(&write.object), write.version)?;
    }
    Ok(())
}

/// Prints an object as `kubectl apply` takes it.
pub(super) fn shown(object: &Json) -> String {
    let mut shown = object.clone();
    if let Some(fields) = shown.as_object_mut() {
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.entry("name").or_insert_with(|| json!("a"));
        }
    }
    let mut text = shown.to_string();
    if text.len() > SHOWN_MAX {
        let end = (0..=SHOWN_MAX)
            .rev()
            .find(|i| text.is_char_boundary(*i))
            .unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    text
}

impl Counterexample {
    /// Returns the order of counterexamples: the gravest first, of equals the smallest.
    pub(super) fn rank(&self) -> (u8, usize, u64) {
        let values = self.script.iter().map(|write| values(&write.object)).sum();
        (self.finding.rank(), self.script.len(), values)
    }

    /// Returns the finding as a validation error, at the path of the rule that most likely causes
    /// it.
    pub(super) fn as_error(&self, bundle: &Bundle) -> FieldError {
        let rule = match &self.finding {
            Finding::Fails(error) => failed(bundle, error),
            Finding::Breaks(violation) => writer(bundle, &violation.version, &violation.place),
        };
        let error = match rule {
            Some((at, text)) => FieldError::invalid(at, &Json::from(text), self.to_string()),
            None => FieldError::invalid_text(&FieldPath::new("spec").child("conversions"), "", self.to_string()),
        };
        error.found_as(insula_api::Finding::Counterexample)
    }
}

/// Returns an error for each field that a plan withholds from a version which has it, too. The
/// search needs an object that shows such a field; this check does not.
pub(super) fn withheld(bundle: &Bundle) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for direction in field_coverage(bundle) {
        let (from, to) = (&direction.from, &direction.to);
        for field in direction
            .fields
            .iter()
            .filter(|field| field.outcome == FieldOutcome::Withheld)
        {
            let why =
                format!("{from} and {to} have this field and no rule moves or writes it, but {to} would not show it");
            let at = FieldPath::new("spec").child("conversions");
            errors.push(FieldError::invalid(&at, &Json::from(field.path.to_string()), why));
        }
    }
    errors
}

/// Returns an error for each rule that hides a field which both versions have: one for each rule.
pub(super) fn hiding(bundle: &Bundle) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = Vec::new();
    for direction in field_coverage(bundle) {
        let (from, to) = (&direction.from, &direction.to);
        for hidden in hidden(bundle, &direction) {
            let (field, place, rule) = (&hidden.field, &hidden.place, hidden.rule);
            if errors.iter().any(|error| error.field == rule.written_at) {
                continue;
            }
            let why = format!(
                "{from} has {field}, too, which would be {place} of {to} without this rule: its value would be \
                 hidden. Say which one counts: write onlyIfAbsent: true, read the field by a rule, or put it under drop"
            );
            errors.push(FieldError::invalid(
                &rule.written_at,
                &Json::from(rule.destination.as_str()),
                why,
            ));
        }
    }
    errors
}

fn failed<'b>(bundle: &'b Bundle, error: &ConvertError) -> Option<(&'b FieldPath, &'b str)> {
    let facts = &bundle.converter(&error.from, &error.to)?.facts;
    Some(facts.get(error.rule.as_ref()?.index)?.blamed(&error.cause))
}

/// Returns the rule that writes a field of a version: of several, the one whose path has the most
/// segments in common.
pub(super) fn writer<'b>(bundle: &'b Bundle, version: &str, field: &str) -> Option<(&'b FieldPath, &'b str)> {
    let from = |from: &&str| bundle.converter(from, version);
    let into = bundle.versions().collect::<Vec<_>>();
    let facts = into.iter().filter_map(from).flat_map(|converter| &converter.facts);
    let overlaps = facts.filter_map(|facts| Some((overlap(&facts.destination, field)?, facts)));
    // The first of equal ones.
    let best = overlaps.reduce(|best, other| if other.0 > best.0 { other } else { best });
    best.map(|(_, facts)| (&facts.written_at, facts.destination.as_str()))
}

/// Returns the number of common segments, if one path contains the other; all items count as one.
fn overlap(a: &str, b: &str) -> Option<usize> {
    let steps = |path: &str| -> Vec<String> {
        let plain = path
            .split('[')
            .enumerate()
            .map(|(at, part)| match part.split_once(']') {
                Some((_, rest)) if at > 0 => rest,
                _ => part,
            });
        let path: String = plain.collect();
        let steps = path.split('.').filter(|step| !step.is_empty());
        steps.map(str::to_owned).collect()
    };
    let (a, b) = (steps(a), steps(b));
    let common = a.len().min(b.len());
    (common > 0 && a[..common] == b[..common]).then_some(common)
}
