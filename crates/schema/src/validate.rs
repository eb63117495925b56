//! Schema validation: one walk over a value and its schema, without allocation for valid values.
//!
//! Messages and kinds of errors are Kubernetes' (its validator is a fork of go-openapi's). Updates
//! ratchet: the walk carries the old value along, and drops the errors of a node whose value did
//! not change. It compares the values only if there are errors.

use crate::list_type::Correlation;
use crate::node::{Children, Junctors, Limits, ListType, Node};
use crate::number::{Number, compare, in_range, is_multiple, same, shown};
use crate::ratchet::{Beside, changed_beside, place};
use crate::value_path::{Keys, ValuePath};
use insula_api::{FieldError, FieldErrorKind, FieldPath, Json};
use insula_goformat::regexp::{Exhausted, Work};

/// Errors after which the walk ends: a body of three megabytes can have a million, each with a
/// message.
const ERRORS_MAX: usize = 1000;

/// Characters of a text that was not matched, in its error.
const SHOWN_CHARACTERS_MAX: usize = 60;

/// The fields of the root whose errors are never dropped.
const TYPE_FIELDS: [&str; 2] = ["apiVersion", "kind"];

/// Validates types, bounds and junctors. `old` is the value before the write, if there is one.
/// Patterns take their work from `work`.
pub(crate) fn validate_value(
    value: &Json,
    old: Option<&Json>,
    node: &Node,
    work: &mut Work,
    errors: &mut Vec<FieldError>,
) {
    let mut walk = Walk::new(work);
    walk.node(value, old, node, &ValuePath::ROOT);
    errors.append(&mut walk.errors);
    errors.append(&mut walk.undecided);
}

/// Returns true for equal values. The items of a keyed list are compared by their keys, in any
/// order. Visits each value once.
fn is_unchanged(value: &Json, old: &Json, node: &Node) -> bool {
    match (value, old) {
        (Json::Array(list), Json::Array(before)) if matches!(node.list_type, ListType::Map { .. }) => {
            let Some(items) = node.items() else { return false };
            let mut correlation = Correlation::new(Some(old), node);
            let same = |item| {
                let old = correlation.find(item);
                old.is_some_and(|old| is_unchanged(item, old, items))
            };
            list.len() == before.len() && list.iter().all(same)
        }
        (Json::Object(map), Json::Object(before)) => {
            let mut children = Children::new(node);
            let same = |(name, value): (&String, &Json)| match (before.get(name), children.child(name)) {
                (Some(old), Some(node)) => is_unchanged(value, old, node),
                (Some(old), None) => value == old,
                (None, _) => false,
            };
            map.len() == before.len() && map.iter().all(same)
        }
        _ => value == old,
    }
}

/// Returns true for an error of a whole object of which only a part beside its other fields
/// changed: a field that it lacks, or an error of its alternatives. Else such an error would lock
/// labels and finalizers.
fn is_of_unchanged_object(error: &FieldError, new: &Json, beside: Beside) -> bool {
    let field = error.field.as_str();
    match error.kind {
        FieldErrorKind::Required => field != "status" && !field.contains(['.', '[']) && new.get(field).is_none(),
        _ => beside == Beside::Metadata && place(error).is_empty(),
    }
}

struct Walk<'w> {
    errors: Vec<FieldError>,
    /// Values that no work was left to match. They refuse the object even where an alternative or a
    /// negation does not need the match, since it is not known.
    undecided: Vec<FieldError>,
    work: &'w mut Work,
    /// Number of visited values. Decides which of several failing alternatives came closest.
    visits: usize,
}

impl<'w> Walk<'w> {
    fn new(work: &'w mut Work) -> Self {
        Self {
            errors: Vec::new(),
            undecided: Vec::new(),
            work,
            visits: 0,
        }
    }

    /// Validates a value against a branch of a junctor. Returns the errors and the number of
    /// visits.
    fn branch(&mut self, value: &Json, branch: &Node, at: &ValuePath<'_>) -> (Vec<FieldError>, usize) {
        let mut walk = Walk::new(self.work);
        walk.node(value, None, branch, at);
        let Walk {
            errors,
            mut undecided,
            work: _,
            visits,
        } = walk;
        self.undecided.append(&mut undecided);
        (errors, visits)
    }

    fn node(&mut self, value: &Json, old: Option<&Json>, node: &Node, at: &ValuePath<'_>) {
        if self.errors.len() + self.undecided.len() >= ERRORS_MAX {
            return;
        }
        self.visits += 1;
        if let (Json::String(new), Some(Json::String(old))) = (value, old)
            && new == old
        {
            // Whatever is wrong with it was wrong before: it need not be matched again.
            return;
        }
        let before = (self.errors.len(), self.undecided.len());
        if value.is_null() {
            if !node.nullable {
                self.kind(value, node, at);
                self.choices(value, node, at);
            }
        } else {
            self.kind(value, node, at);
            match value {
                Json::Object(map) => self.object(map, old, node, at),
                Json::Array(list) => self.list(list, old, node, at),
                Json::Number(number) => self.range(Number::from_json(number), node, at),
                _ => {}
            }
            if let Some(limits) = &node.limits {
                self.limits(value, node, limits, at);
            }
            if let Some(junctors) = &node.junctors {
                self.junctors(value, junctors, at);
            }
        }
        let now = (self.errors.len(), self.undecided.len());
        if let Some(old) = old.filter(|_| now != before) {
            if is_unchanged(value, old, node) {
                self.errors.truncate(before.0);
                self.undecided.truncate(before.1);
            } else if at.is_root()
                && let Some(beside) = changed_beside(value, old)
            {
                self.errors
                    .retain(|error| !is_of_unchanged_object(error, value, beside));
            }
        }
    }

    fn object(&mut self, map: &serde_json::Map<String, Json>, old: Option<&Json>, node: &Node, at: &ValuePath<'_>) {
        for name in &node.required {
            if !map.contains_key(name) {
                self.errors
                    .push(FieldError::required(&at.field(name).path(Keys::Dotted), ""));
            }
        }
        if node.properties.is_empty() && node.additional.is_none() {
            return;
        }
        let old = old.and_then(Json::as_object);
        let mut children = Children::new(node);
        for (name, child) in map {
            if let Some(field) = children.child(name) {
                // As in Kubernetes: old and new are compared in one version, so that their
                // apiVersion and kind are always equal.
                let compared = !(at.is_root() && TYPE_FIELDS.contains(&name.as_str()));
                let old = old.filter(|_| compared).and_then(|old| old.get(name));
                self.node(child, old, field, &at.key(name));
            }
        }
    }

    fn list(&mut self, list: &[Json], old: Option<&Json>, node: &Node, at: &ValuePath<'_>) {
        let Some(items) = node.items() else { return };
        let mut old = Correlation::new(old, node);
        for (index, item) in list.iter().enumerate() {
            self.node(item, old.find(item), items, &at.index(index));
        }
    }

    fn push(&mut self, at: &ValuePath<'_>, value: &Json, words: std::fmt::Arguments<'_>) {
        let name = at.text(Keys::Dotted);
        let detail = format!("{name} in body {words}");
        self.errors
            .push(FieldError::invalid(&at.path(Keys::Dotted), value, detail));
    }

    /// Adds an error at the whole object, with the path in its message.
    fn push_whole(&mut self, text: String) {
        self.errors
            .push(FieldError::invalid_text(&FieldPath::root(), "\"\"", text));
    }

    fn kind(&mut self, value: &Json, node: &Node, at: &ValuePath<'_>) {
        if node.takes_type_of(value) {
            return;
        }
        let types = match node.kind {
            Some(kind) if !node.int_or_string => kind.as_str(),
            _ => "integer,string",
        };
        // If a format is declared, Kubernetes' validator compares formats: those of numbers are
        // Go's type names.
        let (want, got) = match (node.format(), value) {
            (Some(format), Json::Number(n)) => match Number::from_json(n) {
                Number::Int(_) => (format, "int64"),
                Number::Float(_) => (format, "float64"),
            },
            (Some(format), Json::Bool(_) | Json::Object(_)) => (format, ""),
            _ => (types, kind_of(value)),
        };
        let detail = format!("{} in body must be of type {want}: \"{got}\"", at.text(Keys::Dotted));
        self.errors.push(FieldError::type_invalid(
            &at.path(Keys::Dotted),
            format!("\"{got}\""),
            detail,
        ));
    }

    fn choices(&mut self, value: &Json, node: &Node, at: &ValuePath<'_>) {
        let choices = node.choices();
        if choices.is_empty() || choices.iter().any(|choice| same(choice, value)) {
            return;
        }
        let texts: Vec<String> = choices
            .iter()
            .map(|c| match c {
                Json::String(text) => text.clone(),
                other => other.to_string(),
            })
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        self.errors
            .push(FieldError::not_supported(&at.path(Keys::Dotted), value, &texts));
    }

    fn limits(&mut self, value: &Json, node: &Node, limits: &Limits, at: &ValuePath<'_>) {
        self.choices(value, node, at);
        match value {
            Json::String(text) => self.string(text, value, limits, at),
            Json::Number(number) => self.number(Number::from_json(number), value, limits, at),
            Json::Array(list) => self.count((list.len(), "items"), (limits.min_items, limits.max_items), at),
            Json::Object(map) => self.count(
                (map.len(), "properties"),
                (limits.min_properties, limits.max_properties),
                at,
            ),
            _ => {}
        }
    }

    fn count(&mut self, (count, words): (usize, &str), (min, max): (Option<usize>, Option<usize>), at: &ValuePath<'_>) {
        if let Some(max) = max.filter(|max| count > *max) {
            self.errors
                .push(FieldError::too_many(&at.path(Keys::Dotted), count, max));
        }
        if let Some(min) = min.filter(|min| count < *min) {
            self.push(
                at,
                &Json::from(count),
                format_args!("should have at least {min} {words}"),
            );
        }
    }

    /// Reports the first failure of length and pattern; the format is checked separately.
    fn string(&mut self, text: &str, value: &Json, limits: &Limits, at: &ValuePath<'_>) {
        // A character has at least one byte, so only strings of too many bytes need counting.
        if let Some(max) = limits
            .max_length
            .filter(|max| text.len() > *max && text.chars().count() > *max)
        {
            self.errors.push(FieldError::too_long(&at.path(Keys::Dotted), max));
        } else if let Some(min) = limits
            .min_length
            .filter(|min| text.len() < *min * 4 && text.chars().count() < *min)
        {
            self.push(at, value, format_args!("should be at least {min} chars long"));
        } else if let Some(pattern) = &limits.pattern {
            match pattern.matches(text, self.work) {
                Ok(true) => {}
                Ok(false) => self.push(at, value, format_args!("should match '{}'", pattern.source())),
                Err(Exhausted) => self.unmatched(text, at),
            }
        }
        if let (Some(check), Some(format)) = (limits.check, &limits.format)
            && !check(text)
        {
            let detail = format!("{} in body must be of type {format}: {value}", at.text(Keys::Dotted));
            self.errors.push(FieldError::type_invalid(
                &at.path(Keys::Dotted),
                value.to_string(),
                detail,
            ));
        }
    }

    /// Refuses a text for which no work was left.
    fn unmatched(&mut self, text: &str, at: &ValuePath<'_>) {
        let begin: String = text.chars().take(SHOWN_CHARACTERS_MAX).collect();
        let shown = Json::from(if begin.len() < text.len() { begin + "…" } else { begin });
        let detail = format!(
            "{} in body could not be matched with its pattern: its {} bytes need more than what is left of the \
             {} units of work that matching the patterns of one object may take; the schema needs a maxLength here \
             or a simpler pattern, or the text must be shorter",
            at.text(Keys::Dotted),
            text.len(),
            self.work.limit()
        );
        self.undecided.push(FieldError::invalid_text(
            &at.path(Keys::Dotted),
            shown.to_string(),
            detail,
        ));
    }

    fn number(&mut self, number: Number, value: &Json, limits: &Limits, at: &ValuePath<'_>) {
        if let Some(step) = limits.multiple_of
            && !is_multiple(number, step)
        {
            self.push(
                at,
                value,
                format_args!("should be a multiple of {}", shown(step, number)),
            );
        }
        if let Some(max) = limits.maximum {
            let order = compare(number, max);
            let words = if limits.exclusive_maximum {
                "less than"
            } else {
                "less than or equal to"
            };
            if order.is_gt() || limits.exclusive_maximum && order.is_eq() {
                self.push(at, value, format_args!("should be {words} {}", shown(max, number)));
            }
        }
        if let Some(min) = limits.minimum {
            let order = compare(number, min);
            let words = if limits.exclusive_minimum {
                "greater than"
            } else {
                "greater than or equal to"
            };
            if order.is_lt() || limits.exclusive_minimum && order.is_eq() {
                self.push(at, value, format_args!("should be {words} {}", shown(min, number)));
            }
        }
    }

    /// Checks that the type and format can represent the number.
    fn range(&mut self, number: Number, node: &Node, at: &ValuePath<'_>) {
        let Some(kind) = node.kind.filter(|_| !node.int_or_string) else {
            return;
        };
        let format = node.format().unwrap_or("");
        if in_range(number, kind, format) {
            return;
        }
        let how = if format.is_empty() {
            "(default format)".to_owned()
        } else {
            format!("with format {format}")
        };
        let name = at.text(Keys::Dotted);
        self.push_whole(format!(
            "Checked value must be of type {} {how} in {name}",
            kind.as_str()
        ));
    }

    fn junctors(&mut self, value: &Json, junctors: &Junctors, at: &ValuePath<'_>) {
        let Junctors {
            all_of,
            any_of,
            one_of,
            not,
        } = junctors;
        if !any_of.is_empty() {
            let (valid, best) = self.alternatives(value, any_of, 1, at);
            if valid == 0 {
                self.push_whole(format!(
                    "\"{}\" must validate at least one schema (anyOf)",
                    at.text(Keys::Dotted)
                ));
                self.errors.extend(best);
            }
        }
        if !one_of.is_empty() {
            let (valid, best) = self.alternatives(value, one_of, usize::MAX, at);
            if valid != 1 {
                let found = match valid {
                    0 => "Found none valid".to_owned(),
                    n => format!("Found {n} valid alternatives"),
                };
                let name = at.text(Keys::Dotted);
                self.push_whole(format!(
                    "\"{name}\" must validate one and only one schema (oneOf). {found}"
                ));
                self.errors.extend(best);
            }
        }
        if !all_of.is_empty() {
            let before = self.errors.len();
            let mut valid = 0;
            for branch in all_of {
                let so_far = self.errors.len();
                self.node(value, None, branch, at);
                valid += usize::from(self.errors.len() == so_far);
            }
            if self.errors.len() > before {
                let none = if valid == 0 { ". None validated" } else { "" };
                let name = at.text(Keys::Dotted);
                self.push_whole(format!("\"{name}\" must validate all the schemas (allOf){none}"));
            }
        }
        if let Some(not) = not
            && self.branch(value, not, at).0.is_empty()
        {
            self.push_whole(format!(
                "\"{}\" must not validate the schema (not)",
                at.text(Keys::Dotted)
            ));
        }
    }

    /// Counts the alternatives that hold, up to `enough`. If none holds, returns the errors of the
    /// closest.
    fn alternatives(
        &mut self,
        value: &Json,
        branches: &[Node],
        enough: usize,
        at: &ValuePath<'_>,
    ) -> (usize, Vec<FieldError>) {
        let mut valid = 0;
        let mut best: Option<(Vec<FieldError>, usize)> = None;
        for branch in branches {
            let (errors, visits) = self.branch(value, branch, at);
            if errors.is_empty() {
                valid += 1;
                if valid >= enough {
                    break;
                }
            } else if best.as_ref().is_none_or(|(_, most)| visits > *most) {
                best = Some((errors, visits));
            }
        }
        let best = if valid == 0 { best } else { None };
        (valid, best.map(|(errors, _)| errors).unwrap_or_default())
    }
}

pub(crate) fn kind_of(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
        Json::Number(n) => match Number::from_json(n) {
            Number::Int(_) => "integer",
            Number::Float(_) => "number",
        },
    }
}
