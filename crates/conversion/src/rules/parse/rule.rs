//! Parsing of one rule, in every notation.

use super::Object;
use super::read::{flag, known, list, parse_path, string};
use crate::path::{Path, Segment, is_identifier};
use crate::rules::{ITEM_RULES_DEPTH_MAX, RULES_MAX, Rule, RuleAt, Source, Template};
use insula_api::{FieldError, FieldPath, Json};

/// The item rules around a rule, outermost first, with the names that they have.
pub(super) type Sets<'s> = &'s [Option<String>];

pub(super) fn rules(
    holder: &Object,
    key: &'static str,
    at: &FieldPath,
    from: &str,
    sets: Sets<'_>,
    errors: &mut Vec<FieldError>,
) -> Vec<Rule> {
    let at_list = at.child(key);
    let entries = list(holder, key, at, errors);
    if entries.len() > RULES_MAX {
        errors.push(FieldError::too_many(&at_list, entries.len(), RULES_MAX));
        return Vec::new();
    }
    let mut out = Vec::new();
    for (i, entry) in entries.iter().enumerate() {
        let at = at_list.index(i);
        match entry.as_object() {
            Some(entry) => out.extend(rule(entry, &at, from, sets, errors)),
            None => errors.push(FieldError::type_invalid(&at, "", "must be an object")),
        }
    }
    out
}

const RULE_FIELDS: [&str; 12] = [
    "field",
    "destination",
    "transformation",
    "from",
    "to",
    "rule",
    "itemRules",
    "use",
    "kind",
    "onlyIfAbsent",
    "mayFail",
    "description",
];

pub(super) fn rule(
    entry: &Object,
    at: &FieldPath,
    from: &str,
    sets: Sets<'_>,
    errors: &mut Vec<FieldError>,
) -> Option<Rule> {
    let depth = sets.len();
    let before = errors.len();
    known(entry, &RULE_FIELDS, at, errors);
    let sides = sides(entry, at, errors)?;
    let place = RuleAt {
        path: at.clone(),
        source: sides.0,
        destination: sides.1,
    };
    let source = string(entry, place.source, at, errors);
    let destination = string(entry, place.destination, at, errors);
    let (source, destination) = (source?, destination?);
    let destination = if depth > 0 {
        destination.strip_prefix("item").unwrap_or(&destination)
    } else {
        &destination
    };
    let destination = parse_path(destination, &at.child(place.destination), errors);
    let source = source_of(&source, &place, from, depth, errors);
    if let Some(kind) = entry.get("kind")
        && !matches!(kind.as_str(), Some("list" | "map" | "value"))
    {
        errors.push(FieldError::not_supported(
            &at.child("kind"),
            kind,
            &["list", "map", "value"],
        ));
    }
    let transformation = entry
        .get("transformation")
        .and_then(|t| template(t, &at.child("transformation"), 0, errors));
    let (set, item_rules) = item_rules(entry, at, from, sets, errors);
    let uses = used(entry, at, sets, errors);
    if transformation.is_some() && !item_rules.is_empty() {
        errors.push(FieldError::forbidden(
            &at.child("transformation"),
            "either transformation or itemRules, not both",
        ));
    }
    let needs_path = transformation.is_some() || !item_rules.is_empty() || uses.is_some();
    if matches!(source, Some(Source::Expression(_))) && needs_path {
        let why = "transformation, itemRules and use need a source that is a path, such as v1.spec.colors";
        errors.push(FieldError::forbidden(&at.child(place.source), why));
    }
    let parsed = Rule {
        source: source?,
        destination: destination?,
        transformation,
        item_rules,
        set,
        uses,
        only_if_absent: flag(entry, "onlyIfAbsent", at, errors),
        may_fail: flag(entry, "mayFail", at, errors),
        at: place,
    };
    (errors.len() == before).then_some(parsed)
}

/// Parses `itemRules`: a list, or `{name, rules}` for rules that one of them may use.
fn item_rules(
    entry: &Object,
    at: &FieldPath,
    from: &str,
    sets: Sets<'_>,
    errors: &mut Vec<FieldError>,
) -> (Option<String>, Vec<Rule>) {
    let at_rules = at.child("itemRules");
    let Some(given) = entry.get("itemRules") else {
        return (None, Vec::new());
    };
    if sets.len() >= ITEM_RULES_DEPTH_MAX {
        let why = format!("itemRules may be nested at most {ITEM_RULES_DEPTH_MAX} deep");
        errors.push(FieldError::forbidden(&at_rules, why));
        return (None, Vec::new());
    }
    let Json::Object(named) = given else {
        let inner = [sets, &[None]].concat();
        return (None, rules(entry, "itemRules", at, from, &inner, errors));
    };
    known(named, &["name", "rules"], &at_rules, errors);
    let name = string(named, "name", &at_rules, errors);
    let inner = [sets, std::slice::from_ref(&name)].concat();
    let parsed = rules(named, "rules", &at_rules, from, &inner, errors);
    (name, parsed)
}

/// Parses `use`, the name of the item rules directly around.
fn used(entry: &Object, at: &FieldPath, sets: Sets<'_>, errors: &mut Vec<FieldError>) -> Option<String> {
    if !entry.contains_key("use") {
        return None;
    }
    let at_use = at.child("use");
    let name = string(entry, "use", at, errors)?;
    for other in ["transformation", "itemRules", "onlyIfAbsent"] {
        if entry.contains_key(other) {
            errors.push(FieldError::forbidden(
                &at.child(other),
                "may not be combined with `use`",
            ));
        }
    }
    if sets.last() != Some(&Some(name.clone())) {
        let why = if sets.contains(&Some(name.clone())) {
            "names item rules further out: a rule uses those that it is one of"
        } else {
            "no itemRules around have this name: itemRules: {name: …, rules: […]}"
        };
        errors.push(FieldError::invalid(&at_use, &Json::from(name.as_str()), why));
    }
    Some(name)
}

/// Parses the source of a rule: a path, or an expression over the version `from`.
fn source_of(text: &str, place: &RuleAt, from: &str, depth: usize, errors: &mut Vec<FieldError>) -> Option<Source> {
    if place.source == "field" {
        // In itemRules `self.name` and `name` are the same field.
        let path = if depth > 0 {
            let rest = text.strip_prefix("self").filter(|rest| rest.starts_with(['.', '[']));
            rest.unwrap_or(text)
        } else {
            text
        };
        parse_path(path, &place.path.child("field"), errors).map(Source::Field)
    } else {
        // In itemRules the version's name means the whole object, which a path relative to the item
        // cannot reach.
        let roots = if depth > 0 { vec!["self"] } else { vec!["self", from] };
        Some(simple(text, &roots).unwrap_or(Source::Expression(text.to_owned())))
    }
}

/// Returns the names of the fields that hold the two sides of a rule.
fn sides(entry: &Object, at: &FieldPath, errors: &mut Vec<FieldError>) -> Option<(&'static str, &'static str)> {
    let has = |key: &str| entry.contains_key(key);
    if has("rule") {
        if !has("field") {
            errors.push(FieldError::required(
                &at.child("field"),
                "with `rule`, `field` names what is written",
            ));
            return None;
        }
        for other in ["destination", "transformation", "from", "to"] {
            if has(other) {
                errors.push(FieldError::forbidden(
                    &at.child(other),
                    "may not be combined with `rule`",
                ));
                return None;
            }
        }
        return Some(("rule", "field"));
    }
    let source = match (has("field"), has("from")) {
        (true, false) => Some("field"),
        (false, true) => Some("from"),
        (true, true) => {
            errors.push(FieldError::forbidden(
                &at.child("from"),
                "either `field` or `from` names the source, not both",
            ));
            None
        }
        (false, false) => {
            errors.push(FieldError::required(
                &at.child("field"),
                "`field` or `from` names the source",
            ));
            None
        }
    };
    let destination = match (has("destination"), has("to")) {
        (true, false) => Some("destination"),
        (false, true) => Some("to"),
        (true, true) => {
            errors.push(FieldError::forbidden(
                &at.child("to"),
                "either `destination` or `to` names the target, not both",
            ));
            None
        }
        (false, false) => {
            errors.push(FieldError::required(
                &at.child("destination"),
                "`destination` or `to` names the target",
            ));
            None
        }
    };
    Some((source?, destination?))
}

/// Parses an expression that is only a path: `v1.spec.firstName` is one, `v1.spec.a + 'x'` is not.
/// Names must be identifiers, since `a-b` is a difference in CEL; `__dot__` escapes are left to
/// CEL.
fn simple(expression: &str, roots: &[&str]) -> Option<Source> {
    let text = expression.trim();
    let (root, rest) = text.split_at(text.find(['.', '[']).unwrap_or(text.len()));
    if !roots.contains(&root) || rest.is_empty() {
        return None;
    }
    let path = Path::parse(rest).ok()?;
    let plain = path.segments().iter().all(|segment| match segment {
        Segment::Field(name) => is_identifier(name) && !name.contains("__") || rest.contains(&format!("['{name}']")),
        Segment::Index(_) | Segment::Each(_) => true,
        Segment::Key(_) => false,
    });
    plain.then_some(Source::Field(path))
}

fn template(value: &Json, at: &FieldPath, depth: usize, errors: &mut Vec<FieldError>) -> Option<Template> {
    if depth > ITEM_RULES_DEPTH_MAX {
        errors.push(FieldError::forbidden(
            at,
            format!("may be nested at most {ITEM_RULES_DEPTH_MAX} deep"),
        ));
        return None;
    }
    match value {
        Json::String(text) if text.trim().is_empty() => {
            errors.push(FieldError::invalid(at, value, "must be a CEL expression"));
            None
        }
        Json::String(text) => Some(Template::Expression(text.clone())),
        Json::Object(map) => {
            let fields = map
                .iter()
                .filter_map(|(k, v)| Some((k.clone(), template(v, &at.child(k), depth + 1, errors)?)));
            Some(Template::Fields(fields.collect()))
        }
        Json::Array(items) => {
            let items = items
                .iter()
                .enumerate()
                .filter_map(|(i, v)| template(v, &at.index(i), depth + 1, errors));
            Some(Template::Items(items.collect()))
        }
        Json::Number(_) | Json::Bool(_) => Some(Template::Constant(value.clone())),
        Json::Null => {
            errors.push(FieldError::invalid(
                at,
                value,
                "must be a CEL expression, or a map of CEL expressions",
            ));
            None
        }
    }
}
