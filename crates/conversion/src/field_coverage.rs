//! Field coverage: the outcome of every field in another version.
//!
//! Derived from the compiled plans, so that it describes the conversion itself and not its author's
//! intent:
//!
//! ```text
//! v1 → v2   .spec.firstName   moved to .spec.name.first
//!           .spec.label       carried
//!           .spec.size        computed into .spec.liters by conversions[0].rules[1]
//!           .spec.hint        preserved
//!           .spec.scratch     dropped
//! ```

use crate::bundle::{Bundle, LossPolicy, Version};
use crate::carried::Claims;
use crate::convert::Converter;
use crate::passthrough::{Kind, Passthrough, known_kind};
use crate::path::{Path, Segment, covers};
use crate::plan::Plan;
use insula_schema::{Node, Structural, Type};
use std::fmt;

mod hidden;
mod made;
mod reads;

pub(crate) use hidden::hidden;
use reads::{How, Read, below, reads};

/// Coverage of the fields of one version in another version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldCoverage {
    /// The version converted from.
    pub from: String,
    /// The version converted to.
    pub to: String,
    /// Fields of `from`, in order of the schema; then the elements, map entries, labels and
    /// annotations that rules name.
    pub fields: Vec<CoveredField>,
    /// Fields of `to` that have a value without a source.
    pub made: Vec<Made>,
}

/// A field whose value has no source in the other version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// The field, in the version converted to.
    pub path: Path,
    /// The origin of its value.
    pub by: Maker,
}

/// Origin of a value without a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Maker {
    /// A constant of the rule at this path: `conversions[0].rules[2]`.
    Rule(String),
    /// A default of the schema.
    Default,
}

impl Maker {
    /// Returns the origin in one word, for output.
    pub fn word(&self) -> &'static str {
        match self {
            Maker::Rule(_) => "constant",
            Maker::Default => "default",
        }
    }

    /// Returns the path of the rule, if a rule is the origin.
    pub fn rule(&self) -> Option<&str> {
        match self {
            Maker::Rule(rule) => Some(rule),
            Maker::Default => None,
        }
    }
}

/// A field with its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoveredField {
    /// The field; `[]` stands for the items of a list and the values of a map.
    pub path: Path,
    /// Its outcome in the other version.
    pub outcome: FieldOutcome,
}

/// Outcome of a field in another version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldOutcome {
    /// It has the same path there.
    Carried,
    /// Rules move it to other paths.
    Moved {
        /// The paths in the other version; the first is its own if a rule only copies it.
        to: Vec<Path>,
    },
    /// Expressions compute other values from it.
    Computed {
        /// The rules that read it.
        by: Vec<Computed>,
    },
    /// The other version does not show it; it is kept in the residual.
    Preserved,
    /// The other version does not show it, although it has the same field and no rule moves or
    /// writes it. Rules with such a field are refused.
    Withheld,
    /// It is lost: its author lists it under `drop`, or the definition has no rules and the storage
    /// version lacks it.
    Dropped,
}

/// A rule that reads a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Computed {
    /// Path of the rule: `conversions[0].rules[2]`.
    pub rule: String,
    /// The path that it writes.
    pub to: Path,
}

/// Returns the coverage of every direction that has its own plan: between the hub and each other
/// version, and between pairs that have rules. Other directions go through the hub.
pub fn field_coverage(bundle: &Bundle) -> Vec<FieldCoverage> {
    let directions = bundle.converters.iter().filter_map(|((from, to), converter)| {
        let claims = bundle.claims(*from, *to);
        let (from, to) = (bundle.versions.get(*from)?, bundle.versions.get(*to)?);
        let losing = bundle.loss_policy() == LossPolicy::None;
        let mut fields = of_direction(converter, from, losing);
        if let Some(claims) = claims.filter(|_| !losing) {
            withheld(&mut fields, claims, from, to);
        }
        Some(FieldCoverage {
            from: from.name.clone(),
            to: to.name.clone(),
            made: made::made(converter, &fields, &to.schema),
            fields,
        })
    });
    directions.collect()
}

impl FieldOutcome {
    /// Returns the outcome in one word, for output.
    pub fn word(&self) -> &'static str {
        match self {
            FieldOutcome::Carried => "carried",
            FieldOutcome::Moved { .. } => "moved",
            FieldOutcome::Computed { .. } => "computed",
            FieldOutcome::Preserved => "preserved",
            FieldOutcome::Withheld => "withheld",
            FieldOutcome::Dropped => "dropped",
        }
    }

    /// Returns the paths in the other version that hold the value or values computed from it.
    pub fn destinations(&self) -> Vec<&Path> {
        match self {
            FieldOutcome::Moved { to } => to.iter().collect(),
            FieldOutcome::Computed { by } => by.iter().map(|computed| &computed.to).collect(),
            FieldOutcome::Carried | FieldOutcome::Preserved | FieldOutcome::Withheld | FieldOutcome::Dropped => {
                Vec::new()
            }
        }
    }

    /// Returns the paths of the rules that compute with it.
    pub fn rules(&self) -> Vec<&str> {
        match self {
            FieldOutcome::Computed { by } => by.iter().map(|computed| computed.rule.as_str()).collect(),
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for FieldOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        let parts: Vec<String> = match self {
            FieldOutcome::Moved { to } => to.iter().map(|to| format!("to {to}")).collect(),
            FieldOutcome::Computed { by } => by.iter().map(|by| format!("into {} by {}", by.to, by.rule)).collect(),
            FieldOutcome::Carried | FieldOutcome::Preserved | FieldOutcome::Withheld | FieldOutcome::Dropped => {
                return Ok(());
            }
        };
        write!(f, " {}", parts.join(" and "))
    }
}

/// Returns the paths that the rules of a direction read, each with the path written from it.
pub(crate) fn touched(converter: &Converter) -> Vec<(Vec<Segment>, Vec<Segment>)> {
    reads(converter).into_iter().map(|read| (read.path, read.to)).collect()
}

/// Calls back with each field of a version, also with objects, lists and their contents, and
/// whether its value stays with the version alone in a conversion that loses nothing. `back`: the
/// way back, by which a value of a narrower type does not come.
pub(crate) fn each_field(
    converter: &Converter,
    back: Option<&Converter>,
    from: &Version,
    then: &mut dyn FnMut(&[Segment], &Node, bool),
) {
    let reads = reads(converter);
    let written: Vec<Vec<Segment>> = back.into_iter().flat_map(touched).map(|(_, to)| to).collect();
    let is_one_way = |path: &[Segment], node: &Node| {
        let is_leaf = !matches!(known_kind(node), Some(Kind::Object | Kind::List));
        let comes = |back: &Converter| passes_from_root(&back.plan, path) || written.iter().any(|to| starts(path, to));
        // In items, nothing tells later whether both still show the same.
        let is_plain = path.iter().all(|segment| matches!(segment, Segment::Field(_)));
        is_leaf && is_plain && back.is_some_and(|back| !comes(back))
    };
    let mut then = |path: &[Segment], node: &Node| {
        let outcome = outcome(path, &converter.plan, &reads, converter, from, false);
        // A list or map is shared if rules name one of its items or entries.
        let has_named = reads.iter().any(|read| {
            let is_named = match read.path.get(path.len()) {
                Some(Segment::Index(_) | Segment::Key(_)) => true,
                Some(Segment::Field(name)) => node.additional().is_some() && node.property(name).is_none(),
                Some(Segment::Each(_)) | None => false,
            };
            is_named && starts(&read.path, path)
        });
        let is_own = match outcome {
            FieldOutcome::Preserved => true,
            FieldOutcome::Carried => is_one_way(path, node),
            _ => false,
        };
        then(path, node, is_own && !has_named);
    };
    for (name, node) in from.schema.root().properties() {
        if !matches!(name, "apiVersion" | "kind" | "metadata") {
            each_node(node, &mut vec![Segment::Field(name.to_owned())], &mut then);
        }
    }
}

fn each_node(node: &Node, path: &mut Vec<Segment>, then: &mut dyn FnMut(&[Segment], &Node)) {
    then(path, node);
    let fields = node
        .properties()
        .map(|(name, child)| (Segment::Field(name.to_owned()), child));
    let contents = node.items().or_else(|| node.additional()).into_iter();
    for (segment, child) in fields.chain(contents.map(|child| (Segment::Each(String::new()), child))) {
        path.push(segment);
        each_node(child, path, then);
        path.pop();
    }
}

fn of_direction(converter: &Converter, from: &Version, losing: bool) -> Vec<CoveredField> {
    let reads = reads(converter);
    let mut paths: Vec<Vec<Segment>> = leaves_of(&from.schema).into_iter().map(|(path, _)| path).collect();
    // Paths that rules name and the schema does not: an element, an entry of a map, a label.
    for read in &reads {
        if !paths
            .iter()
            .any(|path| starts(path, &read.path) || starts(&read.path, path))
            || read.path.iter().any(|segment| matches!(segment, Segment::Index(_)))
        {
            paths.push(read.path.clone());
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    paths.retain(|path| !path.is_empty() && seen.insert(path.clone()));
    let outcome = |path: Vec<Segment>| CoveredField {
        outcome: outcome(&path, &converter.plan, &reads, converter, from, losing),
        path: Path::from_segments(path),
    };
    paths.into_iter().map(outcome).collect()
}

fn outcome(
    path: &[Segment],
    plan: &Plan,
    reads: &[Read],
    converter: &Converter,
    from: &Version,
    losing: bool,
) -> FieldOutcome {
    if from.drop.iter().any(|drop| starts(path, drop.segments())) {
        return FieldOutcome::Dropped;
    }
    let mut moved: Vec<Path> = Vec::new();
    let mut by: Vec<Computed> = Vec::new();
    let mut carried = passes_from_root(plan, path);
    for read in reads {
        let covered = starts(path, &read.path);
        let rest = path.get(read.path.len()..).unwrap_or_default();
        match &read.how {
            How::Move(passthrough) if covered && passes(passthrough, rest) => {
                lands(path, read, rest, &mut carried, &mut moved)
            }
            How::Items(Some(passthrough)) if covered && !rest.is_empty() && passes(passthrough, rest) => {
                lands(path, read, rest, &mut carried, &mut moved);
            }
            // Items of any type, which have no paths of their own.
            How::Items(Some(_)) if is_every(&read.path, path) => {
                lands(&read.path, read, &[], &mut carried, &mut moved);
            }
            // The items of a list of scalars, which is a path of its own.
            How::Move(_) if is_every(&read.path, path) && !moved.iter().any(|to| to.segments() == read.to) => {
                moved.push(Path::from_segments(read.to.clone()));
            }
            How::Compute(rule) if covered || starts(&read.path, path) => {
                let rule = converter.facts.get(*rule).map(|facts| facts.path.clone());
                let computed = Computed {
                    rule: rule.unwrap_or_default(),
                    to: Path::from_segments(read.to.clone()),
                };
                if !by.contains(&computed) {
                    by.push(computed);
                }
            }
            How::Move(_) | How::Items(_) | How::Compute(_) => {}
        }
    }
    // A rule that only reads leaves the value at its path, too.
    if carried && !moved.is_empty() {
        moved.insert(0, Path::from_segments(path.to_vec()));
    }
    match (moved.is_empty(), carried, by.is_empty()) {
        (false, ..) => FieldOutcome::Moved { to: moved },
        (true, true, _) => FieldOutcome::Carried,
        (true, false, false) => FieldOutcome::Computed { by },
        (true, false, true) if losing => FieldOutcome::Dropped,
        (true, false, true) => FieldOutcome::Preserved,
    }
}

/// Returns true if `items` is the path of all items of the list or map at `path`.
fn is_every(items: &[Segment], path: &[Segment]) -> bool {
    matches!(items.split_last(), Some((Segment::Each(_), list)) if starts(list, path) && list.len() == path.len())
}

/// Marks fields that the other version has, too, and does not show although no rule claims them.
fn withheld(fields: &mut [CoveredField], claims: &Claims, from: &Version, to: &Version) {
    for field in fields {
        let shown = match &field.outcome {
            FieldOutcome::Carried | FieldOutcome::Dropped => true,
            FieldOutcome::Moved { to } => to.contains(&field.path),
            _ => false,
        };
        if !shown && claims.have_in_common(from.schema.root(), to.schema.root(), field.path.segments()) {
            field.outcome = FieldOutcome::Withheld;
        }
    }
}

/// Records the destination of a value: its own path, or another one.
fn lands(path: &[Segment], read: &Read, rest: &[Segment], carried: &mut bool, moved: &mut Vec<Path>) {
    let to = joined(&read.to, rest);
    if to.segments() == path {
        *carried = true;
    } else if !moved.contains(&to) {
        moved.push(to);
    }
}

fn joined(path: &[Segment], rest: &[Segment]) -> Path {
    Path::from_segments(path.iter().chain(rest).cloned().collect())
}

/// Returns true if `path` is at or below `prefix`.
fn starts(path: &[Segment], prefix: &[Segment]) -> bool {
    covers(prefix, path)
}

/// Returns the paths of a schema that hold values of their own: scalars, lists and maps of scalars,
/// and fields without a description.
fn leaves_of(schema: &Structural) -> Vec<(Vec<Segment>, &Node)> {
    let mut out = Vec::new();
    for (name, node) in schema.root().properties() {
        if !matches!(name, "apiVersion" | "kind" | "metadata") {
            leaves(node, &mut vec![Segment::Field(name.to_owned())], &mut out);
        }
    }
    out
}

fn leaves<'s>(node: &'s Node, path: &mut Vec<Segment>, out: &mut Vec<(Vec<Segment>, &'s Node)>) {
    let mut below = node.properties().peekable();
    let inner = node.items().or_else(|| node.additional());
    let structured = |node: &Node| matches!(node.kind(), Some(Type::Object | Type::Array));
    if below.peek().is_none() && !inner.is_some_and(structured) {
        return out.push((path.clone(), node));
    }
    for (name, child) in below {
        path.push(Segment::Field(name.to_owned()));
        leaves(child, path, out);
        path.pop();
    }
    if let Some(inner) = inner {
        path.push(Segment::Each(String::new()));
        leaves(inner, path, out);
        path.pop();
    }
}

/// Returns true if a conversion leaves a field where it is.
pub(crate) fn passes_as_it_is(converter: &Converter, path: &[Segment]) -> bool {
    passes_from_root(&converter.plan, path)
}

fn passes_from_root(plan: &Plan, path: &[Segment]) -> bool {
    match path {
        [Segment::Field(metadata), Segment::Field(part), Segment::Field(key), ..] if metadata == "metadata" => {
            matches!(part.as_str(), "labels" | "annotations")
                && !plan.left.iter().any(|(map, left)| *map == part && left == key)
        }
        [Segment::Field(name), rest @ ..] => plan.fields.get(name).is_some_and(|how| passes(how, rest)),
        _ => false,
    }
}

fn passes(passthrough: &Passthrough, path: &[Segment]) -> bool {
    let Some((first, rest)) = path.split_first() else {
        return true;
    };
    match (passthrough, first) {
        (Passthrough::Whole, _) => true,
        (Passthrough::Scalar { .. }, _) => false,
        (Passthrough::Object { fields, .. }, Segment::Field(name)) => {
            fields.get(name).is_some_and(|how| passes(how, rest))
        }
        (Passthrough::Object { fields, .. }, _) => fields.rest().is_some_and(|how| passes(how, rest)),
        (Passthrough::List { items, .. }, _) => passes(items, rest),
    }
}
