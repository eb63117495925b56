//! Fields whose value a rule hides: both versions have the field, and the rule writes another value
//! to it.

use super::{CoveredField, FieldCoverage, FieldOutcome, below, starts};
use crate::bundle::Bundle;
use crate::convert::Converter;
use crate::passthrough::{Except, known_kind};
use crate::path::{Path, Segment};
use crate::plan::{Op, RuleFacts};
use insula_schema::Node;

/// A field that a rule hides.
pub(crate) struct Hidden<'b> {
    /// The field, in the version converted from.
    pub(crate) field: Path,
    /// The same field in the version converted to.
    pub(crate) place: Path,
    /// The rule that writes there.
    pub(crate) rule: &'b RuleFacts,
}

/// Returns the fields of a direction that rules hide. Their values are kept, but no rule says which
/// of two values the other version shows.
pub(crate) fn hidden<'b>(bundle: &'b Bundle, direction: &FieldCoverage) -> Vec<Hidden<'b>> {
    let schemas = bundle.schema(&direction.from).zip(bundle.schema(&direction.to));
    let converter = bundle.converter(&direction.from, &direction.to);
    let (Some(converter), Some((from, to))) = (converter, schemas) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let at = Location {
        from: (Vec::new(), from.root()),
        to: (Vec::new(), to.root()),
    };
    let kept = |field: &&CoveredField| field.outcome == FieldOutcome::Preserved;
    let fields: Vec<&CoveredField> = direction.fields.iter().filter(kept).collect();
    inside(
        &converter.plan.ops,
        &converter.plan.except,
        &at,
        converter,
        &fields,
        &mut found,
    );
    found
}

/// An object or item of both versions, with the paths to it.
struct Location<'s> {
    from: (Vec<Segment>, &'s Node),
    to: (Vec<Segment>, &'s Node),
}

fn inside<'b>(
    ops: &[Op],
    except: &Except,
    at: &Location<'_>,
    converter: &'b Converter,
    fields: &[&CoveredField],
    found: &mut Vec<Hidden<'b>>,
) {
    for field in fields {
        let path = field.path.segments();
        let rest = path.get(at.from.0.len()..).unwrap_or_default();
        if rest.is_empty() || !starts(path, &at.from.0) || !except.covers(rest) {
            continue;
        }
        let (own, other) = (descend(at.from.1, rest), descend(at.to.1, rest));
        let is_shared = own.zip(other).is_some_and(|(own, other)| is_alike(own, other));
        let place: Vec<Segment> = at.to.0.iter().chain(rest).cloned().collect();
        let Some(rule) = writer(converter, &place).filter(|_| is_shared) else {
            continue;
        };
        found.push(Hidden {
            field: field.path.clone(),
            place: Path::from_segments(place),
            rule,
        });
    }
    for op in ops {
        let Op::Each(each) = op else { continue };
        let items = |node, path: &[crate::trace::Seg]| {
            let mut segments = below(&[], path);
            segments.push(Segment::Each(String::new()));
            descend(node, &segments)
        };
        let (Some(from), Some(to)) = (items(at.from.1, &each.from), items(at.to.1, &each.to)) else {
            continue;
        };
        let every = |path: Vec<Segment>| path.into_iter().chain([Segment::Each(String::new())]).collect();
        let inner = Location {
            from: (every(below(&at.from.0, &each.from)), from),
            to: (every(below(&at.to.0, &each.to)), to),
        };
        // Items that are made from nothing carry no field.
        if each.passthrough.is_some() {
            inside(&each.body, &each.except, &inner, converter, fields, found);
        }
    }
}

/// Returns the rule that writes a path: a loop fills the whole list or map.
fn writer<'b>(converter: &'b Converter, place: &[Segment]) -> Option<&'b RuleFacts> {
    let place = Path::from_segments(place.to_vec()).to_string();
    let plain = |path: &str| path.split('[').next().unwrap_or_default().to_owned();
    let writes = |facts: &&RuleFacts| {
        let (written, place) = (plain(&facts.destination), plain(&place));
        let is_within = |a: &str, b: &str| {
            a.strip_prefix(b)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        is_within(&place, &written) || is_within(&written, &place)
    };
    converter.facts.iter().find(writes)
}

/// Returns true if values of one can stand in the other: their kinds are equal, and those of their
/// items.
fn is_alike(own: &Node, other: &Node) -> bool {
    known_kind(own) == known_kind(other)
        && match (contents(own), contents(other)) {
            (Some(own), Some(other)) => is_alike(own, other),
            (own, other) => own.is_none() && other.is_none(),
        }
}

fn contents(node: &Node) -> Option<&Node> {
    node.items().or_else(|| node.additional())
}

fn descend<'s>(node: &'s Node, path: &[Segment]) -> Option<&'s Node> {
    path.iter().try_fold(node, |node, segment| match segment {
        Segment::Field(name) => node.child(name),
        _ => contents(node),
    })
}
