//! Drafts of rules between the versions of an API, or of an old and a new one.

use insula_api::Json;
use insula_catalog::Api;
use insula_conversion::{Guess, GuessSource, Path, Suggestion, VersionSchema, proof::Search, suggest};
use insula_meter::Meter;
use serde::Serialize;

/// The suggestions for two versions.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Draft {
    /// The old version.
    pub from: String,
    /// The new version.
    pub to: String,
    /// Fields that belong together, most confident first.
    pub pairs: Vec<Pair>,
    /// Fields of the old version without a counterpart.
    pub only_in_from: Vec<String>,
    /// Fields of the new version without a counterpart.
    pub only_in_to: Vec<String>,
    /// Errors of admission for the rules as they are.
    pub refused: Vec<String>,
    /// The `spec` of an APIConversion with its rules.
    #[serde(skip)]
    pub rules: Json,
}

/// Fields of two versions that probably hold the same value.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pair {
    /// One field, or the parts of a field.
    pub from: Vec<String>,
    /// As `from`.
    pub to: Vec<String>,
    /// Confidence in percent.
    pub confidence: u8,
    /// Reasons, for the author.
    pub reasons: Vec<String>,
    /// Transformations of the old value to the new one; empty for a move.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub transformations: Vec<String>,
    /// Reason why its rules would be refused; the draft then leaves them out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs_work: Option<String>,
}

/// Reason why there are no two versions to draft rules for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoVersions {
    /// The old, or the new, API has no such version.
    Unknown(Side, String),
    /// The API has no version that the old one does not have.
    NothingNew(Side),
    /// Both versions have this name.
    Equal(String),
}

/// One of two APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The old one.
    Old,
    /// The new one.
    New,
}

impl Draft {
    /// Returns true if every field has a counterpart, and admission takes the rules.
    pub fn is_complete(&self) -> bool {
        self.refused.is_empty()
            && self.only_in_from.is_empty()
            && self.only_in_to.is_empty()
            && self.pairs.iter().all(|pair| pair.needs_work.is_none())
    }
}

impl Pair {
    pub(super) fn new(pair: &Suggestion) -> Pair {
        let made = |guess: &Guess| match (&guess.source, &guess.transformation) {
            (_, Some(Json::String(text))) => Some(text.clone()),
            (_, Some(template)) => Some(template.to_string()),
            (GuessSource::Object(text), None) => Some(text.clone()),
            (GuessSource::Field(_), None) => None,
        };
        Pair {
            from: texts(&pair.old),
            to: texts(&pair.new),
            confidence: pair.percent(),
            reasons: pair.reasons.clone(),
            transformations: pair.forth.iter().filter_map(made).collect(),
            needs_work: pair.work.clone(),
        }
    }

    /// Returns the pair as a line: `v1 .spec.size ↔ v2 .spec.bytes by int(self) (97%)`.
    pub(super) fn line(&self, (from, to): (&str, &str)) -> String {
        let by = match self.transformations.is_empty() {
            true => String::new(),
            false => format!(" by {}", self.transformations.join("; ")),
        };
        let (old, new) = (self.from.join(", "), self.to.join(", "));
        format!("{from} {old} ↔ {to} {new}{by} ({}%)", self.confidence)
    }
}

fn texts(paths: &[Path]) -> Vec<String> {
    paths.iter().map(ToString::to_string).collect()
}

/// Drafts rules for two versions, and checks them as a server would. Suggestions with less
/// confidence, in percent, are left out. A meter pays; once it has ended, what is left is no draft.
pub fn draft(
    min_confidence: u8,
    group: &str,
    (from, to): (&VersionSchema, &VersionSchema),
    meter: &Meter,
    progress: &mut dyn FnMut(usize, usize),
) -> Draft {
    let mut found = suggest(from, to, meter).unwrap_or_default();
    found.retain_confident(min_confidence);
    let pairs = found.pairs.len();
    let refused = found.try_out(group, (from, to), (Search::default(), meter), &mut |trial| {
        progress(pairs, trial)
    });
    Draft {
        from: from.name.clone(),
        to: to.name.clone(),
        pairs: found.pairs.iter().map(Pair::new).collect(),
        only_in_from: texts(&found.only_old),
        only_in_to: texts(&found.only_new),
        refused: refused.iter().map(ToString::to_string).collect(),
        rules: found.rules(),
    }
}

/// Returns the versions to draft rules for. Where nothing is named and a single API has more than
/// two served versions, these are every other one and the stored one: a server needs rules for all.
///
/// # Errors
/// [`NoVersions`].
pub fn versions_to_draft(
    old: &Api,
    new: Option<&Api>,
    (from, to): (Option<&str>, Option<&str>),
) -> Result<Vec<(VersionSchema, VersionSchema)>, NoVersions> {
    if new.is_none()
        && from.is_none()
        && to.is_none()
        && let Some(pairs) = several(old)
    {
        return Ok(pairs);
    }
    let (later, side) = new.map_or((old, Side::Old), |new| (new, Side::New));
    let find = |api: &Api, name: &str, side: Side| {
        schema_of(api, name).ok_or_else(|| NoVersions::Unknown(side, name.to_owned()))
    };
    let from = find(old, from.unwrap_or(old.bundle.storage()), Side::Old)?;
    let fresh = |name: &&str| *name != from.name && (new.is_none() || old.bundle.schema(name).is_none());
    let to = match to {
        Some(name) => name,
        None => later
            .bundle
            .versions()
            .filter(fresh)
            .last()
            .ok_or(NoVersions::NothingNew(side))?,
    };
    if to == from.name {
        return Err(NoVersions::Equal(to.to_owned()));
    }
    let to = find(later, to, side)?;
    Ok(vec![(from, to)])
}

fn several(api: &Api) -> Option<Vec<(VersionSchema, VersionSchema)>> {
    let stored = schema_of(api, api.bundle.storage())?;
    let others = api.bundle.served().filter(|version| *version != stored.name);
    let pairs: Vec<_> = others
        .filter_map(|version| Some((schema_of(api, version)?, stored.clone())))
        .collect();
    (pairs.len() > 1).then_some(pairs)
}

fn schema_of(api: &Api, name: &str) -> Option<VersionSchema> {
    let version = api.versions.iter().find(|version| *version.name == *name)?;
    Some(VersionSchema {
        name: version.name.to_string(),
        served: true,
        schema: version.schema.clone(),
    })
}
