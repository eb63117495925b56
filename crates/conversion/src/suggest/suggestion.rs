//! The answer of a comparison of two versions: pairs of fields, and the rules between them.

use crate::path::{Path, Segment};
use insula_api::Json;
use serde_json::json;

/// Confidence in percent from which on a suggestion becomes a rule unasked. Below it most pairs
/// have one word in common.
pub const SURE: u8 = 60;

/// A pair of fields that probably hold the same value, with rules for both directions.
#[derive(Debug, Clone, PartialEq)]
pub struct Suggestion {
    /// Paths in the old version: one, or several that hold parts.
    pub old: Vec<Path>,
    /// Paths in the new version: one, or several that hold parts.
    pub new: Vec<Path>,
    /// Confidence from 0 to 1.
    pub confidence: f64,
    /// Reasons, for the author.
    pub reasons: Vec<String>,
    /// Rules from the old version to the new one.
    pub forth: Vec<Guess>,
    /// Rules from the new version to the old one.
    pub back: Vec<Guess>,
    /// The reason why admission would refuse its rules; such a suggestion is left out of
    /// [`Suggestions::rules`].
    pub work: Option<String>,
}

/// One suggested rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Guess {
    /// The source that it reads.
    pub source: Source,
    /// The path that it writes.
    pub to: Path,
    /// CEL over `self`, or a map of expressions; `None` for a move.
    pub transformation: Option<Json>,
    /// True if some values cannot be converted; written as `mayFail`.
    pub may_fail: bool,
}

/// Source of a suggested rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A field.
    Field(Path),
    /// A CEL expression over the whole object.
    Object(String),
}

/// CEL over `self` that converts a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step(pub(super) String);

impl Step {
    pub(super) fn new(text: impl Into<String>) -> Step {
        Step(text.into())
    }
}

impl Guess {
    pub(super) fn new(source: Source, to: Path, transformation: Option<String>) -> Guess {
        Guess {
            source,
            to,
            transformation: transformation.map(Json::from),
            may_fail: false,
        }
    }

    pub(super) fn rule(&self) -> Json {
        // In destinations, indices and keys of items have no variable.
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
    /// Returns the confidence in percent.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share, between 0 and 1"
    )]
    pub fn percent(&self) -> u8 {
        (self.confidence * 100.0).round() as u8
    }

    pub(super) fn moved(old: Path, new: Path, confidence: f64, reasons: Vec<String>) -> Suggestion {
        Self::stepped((old, None), (new, None), confidence, reasons)
    }

    /// Pairs one field with one field, with the expression of each direction.
    pub(super) fn stepped(
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

/// All suggestions for two versions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Suggestions {
    /// The old and the new version.
    pub versions: (String, String),
    /// The pairs, most confident first.
    pub pairs: Vec<Suggestion>,
    /// Paths of the old version without a counterpart.
    pub only_old: Vec<Path>,
    /// Paths of the new version without a counterpart.
    pub only_new: Vec<Path>,
}

impl Suggestions {
    /// Leaves out pairs with less confidence, in percent; their fields have no counterpart.
    pub fn retain_confident(&mut self, least: u8) {
        let (kept, unsure): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pairs)
            .into_iter()
            .partition(|pair| pair.percent() >= least);
        self.only_old.extend(unsure.iter().flat_map(|pair| pair.old.clone()));
        self.only_new.extend(unsure.iter().flat_map(|pair| pair.new.clone()));
        self.pairs = kept;
    }

    /// Returns the `spec` of an APIConversion with the rules of both directions.
    pub fn rules(&self) -> Json {
        let (old, new) = &self.versions;
        let fit = || self.pairs.iter().filter(|pair| pair.work.is_none());
        let rules =
            |guesses: fn(&Suggestion) -> &Vec<Guess>| fit().flat_map(guesses).map(Guess::rule).collect::<Json>();
        json!({"conversions": [
            {"from": old, "to": new, "rules": rules(|pair| &pair.forth)},
            {"from": new, "to": old, "rules": rules(|pair| &pair.back)},
        ]})
    }
}
