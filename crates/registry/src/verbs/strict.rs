//! Strict decoding: reports of unknown and repeated fields of a request's body.
//!
//! Kubernetes decodes built-in kinds into structs and reports what it meets on the way, in the
//! order of the document. It decodes custom resources into maps, whose unknown fields it finds when
//! it prunes them: after the repeated fields, sorted.

use super::{
    check::nameless,
    options::{FieldValidation, Repeated, SentKeys, WriteOptions},
};
use crate::metadata;
use insula_access::Target;
use insula_api::{FieldError, FieldPath, Json, distinct};
use insula_catalog::Result;
use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet},
};

/// Length of paths that are sorted by their places. Longer ones come last: looking each up would
/// cost a client's bytes times its keys.
const ORDERED_PATH_BYTES_MAX: usize = 256;

/// The source of an object whose fields are checked.
pub(super) enum UnknownFields {
    /// The body of a request.
    Create,
    /// The result of a patch.
    Patch,
}

/// Reports duplicate fields and unknown ones: as an error, as warnings, or not at all.
pub(super) fn check_fields(
    target: &Target,
    body: &Json,
    options: &WriteOptions<'_>,
    from: UnknownFields,
) -> Result<Vec<String>> {
    if options.field_validation == FieldValidation::Ignore {
        return Ok(Vec::new());
    }
    let schema = &target.api_version()?.schema;
    let unknown = insula_schema::prune_report(body, schema)
        .into_iter()
        .chain(metadata::unknown(body))
        .chain(target.served.api.strategy.unknown_fields(body));
    let unknown = distinct(unknown);
    let (mut fields, lines) = match &options.keys.repeated {
        Repeated::Fields(fields) => (fields.iter().map(|field| Problem::duplicate(field)).collect(), &[][..]),
        Repeated::Lines(lines) => (Vec::new(), &lines[..]),
    };
    fields.extend(unknown.iter().map(|field| Problem::unknown(field)));
    if target.served.api.strategy.traits().built_in {
        in_order(&mut fields, &options.keys, body);
    }
    let fields = fields
        .iter()
        .map(|problem| format!("{} \"{}\"", problem.what, problem.field));
    if options.field_validation == FieldValidation::Warn {
        return Ok(lines.iter().cloned().chain(fields).collect());
    }
    let lines = (!lines.is_empty()).then(|| format!("yaml: unmarshal errors:\n  {}", lines.join("\n  ")));
    let problems: Vec<String> = lines.into_iter().chain(fields).collect();
    if problems.is_empty() {
        return Ok(problems);
    }
    let text = format!("strict decoding error: {}", problems.join(", "));
    Err(match from {
        UnknownFields::Create => super::check::not_handled(target, &text),
        UnknownFields::Patch => {
            let error = FieldError::invalid_text(&FieldPath::new("patch"), body.to_string(), text);
            nameless(error)
        }
    })
}

/// A field that strict decoding refuses.
struct Problem<'a> {
    what: &'static str,
    field: &'a str,
    /// The occurrence of the field at which it is reported.
    occurrence: usize,
}

impl<'a> Problem<'a> {
    fn duplicate(field: &'a str) -> Self {
        Problem {
            what: "duplicate field",
            field,
            occurrence: 1,
        }
    }

    fn is_unknown(&self) -> bool {
        self.occurrence == 0
    }

    fn unknown(field: &'a str) -> Self {
        Problem {
            what: "unknown field",
            field,
            occurrence: 0,
        }
    }
}

/// Sorts problems by their places in the document. The values of unknown fields are skipped, so
/// that nothing below them is reported.
fn in_order(problems: &mut Vec<Problem<'_>>, keys: &SentKeys<'_>, body: &Json) {
    if problems.len() < 2 {
        return;
    }
    let unknown: HashSet<&str> = problems
        .iter()
        .filter(|one| one.is_unknown())
        .map(|one| one.field)
        .collect();
    problems.retain(|one| one.is_unknown() || !prefixes(one.field).any(|above| unknown.contains(above)));
    let wanted = problems.iter().filter(|one| one.field.len() <= ORDERED_PATH_BYTES_MAX);
    let places: HashMap<&str, [Option<usize>; 2]> = wanted.map(|one| (one.field, [None; 2])).collect();
    let (places, next) = (RefCell::new(places), Cell::new(0));
    let meet = |path: &str| {
        next.set(next.get() + 1);
        if path.len() > ORDERED_PATH_BYTES_MAX {
            return;
        }
        let mut places = places.borrow_mut();
        let free = places
            .get_mut(path)
            .and_then(|met| met.iter_mut().find(|place| place.is_none()));
        if let Some(free) = free {
            *free = Some(next.get());
        }
    };
    match keys.in_order {
        Some(in_order) => in_order(&meet),
        None => visit_sorted(body, &mut String::new(), &meet),
    }
    let places = places.into_inner();
    let place = |one: &Problem<'_>| places.get(one.field).and_then(|met| met[one.occurrence]);
    problems.sort_by_key(|one| place(one).unwrap_or(usize::MAX));
}

/// Returns a path and those above it.
fn prefixes(path: &str) -> impl Iterator<Item = &str> {
    let ends = path
        .char_indices()
        .filter(|(_, c)| matches!(c, '.' | '['))
        .map(|(end, _)| end);
    ends.chain([path.len()]).map(|end| &path[..end])
}

/// Visits the paths of all fields in the order in which Go writes an object.
fn visit_sorted(value: &Json, path: &mut String, meet: &dyn Fn(&str)) {
    let length = path.len();
    match value {
        Json::Object(map) => {
            for (key, value) in map {
                if length > 0 {
                    path.push('.');
                }
                path.push_str(key);
                meet(path);
                visit_sorted(value, path, meet);
                path.truncate(length);
            }
        }
        Json::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                visit_sorted(value, path, meet);
                path.truncate(length);
            }
        }
        _ => {}
    }
}
