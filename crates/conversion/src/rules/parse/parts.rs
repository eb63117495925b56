//! Parsing of one rule set that several objects hold.
//!
//! `{parts: [{name, spec}, …]}` joins the `spec` of each object. Directions between the same two
//! versions become one. Errors and rules are at `NAME:spec.…`, so that a message names the object.

use super::{Direction, FieldError, FieldPath, Json, Malformed, RuleSet, Validation, conflicts, finished, parse_rules};

/// Returns the objects of a joined rule set.
pub(super) fn parts_in(spec: &Json) -> Option<&[Json]> {
    spec.get("parts")?.as_array().map(Vec::as_slice)
}

/// Parses all parts. What one part says about the whole (`hub`, `validation`) holds for the others.
pub(super) fn joined(parts: &[Json]) -> Result<RuleSet, Malformed> {
    let mut errors = Vec::new();
    let hub = agreed(parts, "hub", &mut errors);
    agreed(parts, "validation", &mut errors);
    let mut set = RuleSet::default();
    for part in parts {
        let mut spec = part["spec"].clone();
        if let (Some(fields), Some(hub)) = (spec.as_object_mut(), hub) {
            fields.insert("hub".to_owned(), Json::from(hub));
        }
        match parse_rules(&spec, &path(part)) {
            Ok(own) => add(&mut set, own),
            Err(malformed) => {
                errors.extend(malformed.errors);
                add(&mut set, malformed.rest);
            }
        }
    }
    conflicts(&set, &mut errors);
    finished(set, errors)
}

fn name(part: &Json) -> &str {
    part["name"].as_str().unwrap_or_default()
}

fn path(part: &Json) -> FieldPath {
    FieldPath::new(&format!("{}:spec", name(part)))
}

/// Returns the value of a field that all parts which have it agree on. A part that says something
/// else is an error that names both.
fn agreed<'p>(parts: &'p [Json], field: &str, errors: &mut Vec<FieldError>) -> Option<&'p str> {
    let mut stated = parts
        .iter()
        .filter_map(|part| Some((part, part["spec"].get(field)?.as_str()?)));
    let (first, value) = stated.next()?;
    for (part, other) in stated.filter(|(_, other)| *other != value) {
        let why = format!(
            "APIConversion {:?} of the same rules says {value}: parts of one rule set agree, or leave \
             it to one of them",
            name(first)
        );
        errors.push(FieldError::invalid(&path(part).child(field), &Json::from(other), why));
    }
    Some(value)
}

fn add(set: &mut RuleSet, own: RuleSet) {
    set.hub = set.hub.take().or(own.hub);
    if own.validation == Validation::Refuse {
        set.validation = own.validation;
    }
    for direction in own.conversions {
        let same = |other: &&mut Direction| other.from == direction.from && other.to == direction.to;
        match set.conversions.iter_mut().find(same) {
            Some(known) => {
                known.rules.extend(direction.rules);
                known.preserve.extend(direction.preserve);
                known.drop.extend(direction.drop);
            }
            None => set.conversions.push(direction),
        }
    }
}
