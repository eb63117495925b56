//! Parsing of JSON to [`RuleSet`].

use super::{
    DIRECTIONS_MAX, Direction, FieldError, FieldPath, ITEM_RULES_DEPTH_MAX, Json, Map, Path, RULES_MAX, Rule, RuleAt,
    RuleSet, Source, Template,
};
use crate::path::{Segment, is_identifier};

type Object = Map<String, Json>;

/// Parses the `spec` of an APIConversion or APIConversionRules, or `spec.conversion` of an
/// APIResourceSchema. `path` is the path of `spec`.
///
/// # Errors
/// Returns an error for each malformed field.
pub fn parse_rules(spec: &Json, path: &FieldPath) -> Result<RuleSet, Vec<FieldError>> {
    let mut errors = Vec::new();
    let Some(spec) = spec.as_object() else {
        return Err(vec![FieldError::required(
            path,
            "conversion rules are an object with `conversions`",
        )]);
    };
    let hub = string(spec, "hub", path, &mut errors);
    let mut set = RuleSet {
        hub,
        conversions: Vec::new(),
    };
    let at = path.child("conversions");
    let entries = list(spec, "conversions", path, &mut errors);
    if entries.len() > DIRECTIONS_MAX {
        return Err(vec![FieldError::too_many(&at, entries.len(), DIRECTIONS_MAX)]);
    }
    for (i, entry) in entries.iter().enumerate() {
        let at = at.index(i);
        match entry.as_object() {
            Some(entry) if entry.contains_key("version") => spoke(entry, &at, &mut set, &mut errors),
            Some(entry) => pair(entry, &at, &mut set, &mut errors),
            None => errors.push(FieldError::type_invalid(&at, "", "must be an object")),
        }
    }
    if errors.is_empty() { Ok(set) } else { Err(errors) }
}

/// Parses the rules inside an APIResourceSchema: `spec.conversion.{hub, conversions}`, or
/// `spec.hubVersion` with `spec.versions[].conversion`. Returns `None` if it has none.
///
/// # Errors
/// Returns an error for each malformed field.
pub fn rules_in_schema(api_resource_schema: &Json) -> Result<Option<RuleSet>, Vec<FieldError>> {
    let spec = &api_resource_schema["spec"];
    let path = FieldPath::new("spec");
    let mut found = None;
    if let Some(conversion) = spec.get("conversion")
        && (conversion.get("conversions").is_some() || conversion.get("hub").is_some())
    {
        let mut inner = conversion.clone();
        // `strategy` and `webhook` belong to the definition.
        if let Some(map) = inner.as_object_mut() {
            map.retain(|key, _| key == "conversions" || key == "hub");
        }
        found = Some(parse_rules(&inner, &path.child("conversion"))?);
    }
    let mut errors = Vec::new();
    let hub = spec
        .as_object()
        .and_then(|s| string(s, "hubVersion", &path, &mut errors));
    let mut set = RuleSet {
        hub: hub.clone(),
        conversions: Vec::new(),
    };
    let versions = spec
        .get("versions")
        .and_then(Json::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    for (i, version) in versions.iter().enumerate() {
        let at = path.child("versions").index(i).child("conversion");
        let (Some(Json::Object(rules)), Some(name)) = (version.get("conversion"), version["name"].as_str()) else {
            continue;
        };
        match &hub {
            Some(hub) => from_and_to_hub(rules, name, hub, &at, &mut set, &mut errors),
            None => errors.push(FieldError::required(
                &path.child("hubVersion"),
                "rules in versions[] are written around a hub",
            )),
        }
    }
    if !set.conversions.is_empty() && found.is_some() {
        errors.push(FieldError::forbidden(
            &path.child("conversion"),
            "rules are either here or in versions[].conversion, not in both",
        ));
    }
    match (errors.is_empty(), found) {
        (false, _) => Err(errors),
        (true, Some(found)) => Ok(Some(found)),
        (true, None) if hub.is_some() || !set.conversions.is_empty() => Ok(Some(set)),
        (true, None) => Ok(None),
    }
}

/// Parses `{version, fromHub, toHub}`.
fn spoke(entry: &Object, at: &FieldPath, set: &mut RuleSet, errors: &mut Vec<FieldError>) {
    known(entry, &["version", "fromHub", "toHub", "preserve", "drop"], at, errors);
    let version = string(entry, "version", at, errors);
    let Some(hub) = set.hub.clone() else {
        errors.push(FieldError::required(
            &FieldPath::new("spec").child("hub"),
            "fromHub and toHub need a hub version",
        ));
        return;
    };
    if let Some(version) = version {
        from_and_to_hub(entry, &version, &hub, at, set, errors);
    }
}

fn from_and_to_hub(
    entry: &Object,
    version: &str,
    hub: &str,
    at: &FieldPath,
    set: &mut RuleSet,
    errors: &mut Vec<FieldError>,
) {
    if version == hub {
        errors.push(FieldError::invalid(
            &at.child("version"),
            &Json::from(version),
            "the hub needs no rules of its own",
        ));
        return;
    }
    for (key, from, to) in [("fromHub", hub, version), ("toHub", version, hub)] {
        let from_spoke = key == "toHub";
        if !entry.contains_key(key) && !(from_spoke && (entry.contains_key("preserve") || entry.contains_key("drop"))) {
            continue;
        }
        let direction = Direction {
            from: from.to_owned(),
            to: to.to_owned(),
            rules: rules(entry, key, at, from, 0, errors),
            preserve: if from_spoke {
                paths(entry, "preserve", at, errors)
            } else {
                Vec::new()
            },
            drop: if from_spoke {
                paths(entry, "drop", at, errors)
            } else {
                Vec::new()
            },
            at: at.clone(),
        };
        add(set, direction, errors);
    }
}

/// Parses `{from, to, rules}`, or one rule of the per-rule list: `{from, rule, to, field}`.
fn pair(entry: &Object, at: &FieldPath, set: &mut RuleSet, errors: &mut Vec<FieldError>) {
    let single = !entry.contains_key("rules") && (entry.contains_key("rule") || entry.contains_key("field"));
    for key in ["from", "to"] {
        if !entry.contains_key(key) {
            errors.push(FieldError::required(
                &at.child(key),
                "each conversion names the two versions it is between",
            ));
        }
    }
    let from = string(entry, "from", at, errors);
    let to = string(entry, "to", at, errors);
    let (Some(from), Some(to)) = (from, to) else { return };
    if from == to {
        errors.push(FieldError::invalid(
            &at.child("to"),
            &Json::from(to),
            "from and to are the same version",
        ));
        return;
    }
    if single {
        let mut inner = entry.clone();
        inner.retain(|key, _| key != "from" && key != "to");
        let Some(parsed) = rule(&inner, at, &from, 0, errors) else {
            return;
        };
        if let Some(direction) = set.conversions.iter_mut().find(|d| d.from == from && d.to == to) {
            direction.rules.push(parsed);
        } else {
            let direction = Direction {
                from,
                to,
                rules: vec![parsed],
                preserve: Vec::new(),
                drop: Vec::new(),
                at: at.clone(),
            };
            set.conversions.push(direction);
        }
        return;
    }
    known(entry, &["from", "to", "rules", "preserve", "drop"], at, errors);
    if !["rules", "preserve", "drop"].iter().any(|key| entry.contains_key(*key)) {
        // Versions of equal shape need no entry at all; an empty one is a mistake.
        errors.push(FieldError::required(&at.child("rules"), ""));
    }
    let direction = Direction {
        rules: rules(entry, "rules", at, &from, 0, errors),
        preserve: paths(entry, "preserve", at, errors),
        drop: paths(entry, "drop", at, errors),
        from,
        to,
        at: at.clone(),
    };
    add(set, direction, errors);
}

fn add(set: &mut RuleSet, direction: Direction, errors: &mut Vec<FieldError>) {
    let key = serde_json::json!({"from": direction.from, "to": direction.to});
    crate::plan::conflicts(&direction.rules, errors);
    if set
        .conversions
        .iter()
        .any(|d| d.from == direction.from && d.to == direction.to)
    {
        errors.push(FieldError::duplicate(&direction.at, &key));
    }
    set.conversions.push(direction);
}

fn rules(
    holder: &Object,
    key: &'static str,
    at: &FieldPath,
    from: &str,
    depth: usize,
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
            Some(entry) => out.extend(rule(entry, &at, from, depth, errors)),
            None => errors.push(FieldError::type_invalid(&at, "", "must be an object")),
        }
    }
    out
}

const RULE_FIELDS: [&str; 11] = [
    "field",
    "destination",
    "transformation",
    "from",
    "to",
    "rule",
    "itemRules",
    "kind",
    "onlyIfAbsent",
    "mayFail",
    "description",
];

fn rule(entry: &Object, at: &FieldPath, from: &str, depth: usize, errors: &mut Vec<FieldError>) -> Option<Rule> {
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
    let source = if place.source == "field" {
        // In itemRules `self.name` and `name` are the same field.
        let text = if depth > 0 {
            source
                .strip_prefix("self")
                .filter(|r| r.starts_with(['.', '[']))
                .unwrap_or(&source)
        } else {
            &source
        };
        parse_path(text, &at.child("field"), errors).map(Source::Field)
    } else {
        // In itemRules the version's name means the whole object, which a path relative to the item
        // cannot reach.
        let roots = if depth > 0 { vec!["self"] } else { vec!["self", from] };
        Some(simple(&source, &roots).unwrap_or(Source::Expression(source)))
    };
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
    let item_rules = if entry.contains_key("itemRules") {
        if depth >= ITEM_RULES_DEPTH_MAX {
            let why = format!("itemRules may be nested at most {ITEM_RULES_DEPTH_MAX} deep");
            errors.push(FieldError::forbidden(&at.child("itemRules"), why));
            return None;
        }
        rules(entry, "itemRules", at, from, depth + 1, errors)
    } else {
        Vec::new()
    };
    if transformation.is_some() && !item_rules.is_empty() {
        errors.push(FieldError::forbidden(
            &at.child("transformation"),
            "either transformation or itemRules, not both",
        ));
    }
    if matches!(source, Some(Source::Expression(_))) && (transformation.is_some() || !item_rules.is_empty()) {
        let why = "transformation and itemRules need a source that is a path, such as v1.spec.colors";
        errors.push(FieldError::forbidden(&at.child(place.source), why));
    }
    let parsed = Rule {
        source: source?,
        destination: destination?,
        transformation,
        item_rules,
        only_if_absent: flag(entry, "onlyIfAbsent", at, errors),
        may_fail: flag(entry, "mayFail", at, errors),
        at: place,
    };
    (errors.len() == before).then_some(parsed)
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

fn paths(holder: &Object, key: &str, at: &FieldPath, errors: &mut Vec<FieldError>) -> Vec<Path> {
    let at_list = at.child(key);
    let mut out = Vec::new();
    let entries = list(holder, key, at, errors);
    if entries.len() > RULES_MAX {
        errors.push(FieldError::too_many(&at_list, entries.len(), RULES_MAX));
        return out;
    }
    for (i, entry) in entries.iter().enumerate() {
        match entry.as_str() {
            Some(text) => out.extend(parse_path(text, &at_list.index(i), errors)),
            None => errors.push(FieldError::type_invalid(
                &at_list.index(i),
                "",
                "must be a path, such as .spec.name",
            )),
        }
    }
    out
}

fn parse_path(text: &str, at: &FieldPath, errors: &mut Vec<FieldError>) -> Option<Path> {
    Path::parse(text)
        .map_err(|why| errors.push(FieldError::invalid(at, &Json::from(text), why)))
        .ok()
}

fn known(holder: &Object, fields: &[&str], at: &FieldPath, errors: &mut Vec<FieldError>) {
    for key in holder.keys().filter(|k| !fields.contains(&k.as_str())) {
        errors.push(FieldError::forbidden(
            &at.child(key),
            format!("unknown field; known are {}", fields.join(", ")),
        ));
    }
}

fn string(holder: &Object, key: &str, at: &FieldPath, errors: &mut Vec<FieldError>) -> Option<String> {
    match holder.get(key)? {
        Json::String(text) if !text.is_empty() => Some(text.clone()),
        other => {
            errors.push(FieldError::invalid(
                &at.child(key),
                other,
                "must be a string that is not empty",
            ));
            None
        }
    }
}

fn flag(holder: &Object, key: &str, at: &FieldPath, errors: &mut Vec<FieldError>) -> bool {
    match holder.get(key) {
        None => false,
        Some(Json::Bool(flag)) => *flag,
        Some(other) => {
            errors.push(FieldError::invalid(&at.child(key), other, "must be true or false"));
            false
        }
    }
}

fn list<'a>(holder: &'a Object, key: &str, at: &FieldPath, errors: &mut Vec<FieldError>) -> &'a [Json] {
    match holder.get(key) {
        None | Some(Json::Null) => &[],
        Some(Json::Array(items)) => items,
        Some(_) => {
            errors.push(FieldError::type_invalid(&at.child(key), "", "must be a list"));
            &[]
        }
    }
}
