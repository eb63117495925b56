//! Parsing of JSON to [`RuleSet`].

use super::{DIRECTIONS_MAX, Direction, FieldError, FieldPath, Json, Malformed, Map, RuleSet, Validation};
use read::{known, list, paths, string};
use rule::{rule, rules};

mod parts;
mod read;
mod rule;

type Object = Map<String, Json>;

/// Parses the `spec` of an APIConversion or APIConversionRules, or `spec.conversion` of an
/// APIResourceSchema. `path` is the path of `spec`. The rules of several objects are joined as
/// `{parts: [{name, spec}, …]}`.
///
/// # Errors
/// Returns an error for each malformed field, with the rules that are well-formed.
pub fn parse_rules(spec: &Json, path: &FieldPath) -> Result<RuleSet, Malformed> {
    if let Some(parts) = parts::parts_in(spec) {
        return parts::joined(parts);
    }
    let mut errors = Vec::new();
    let Some(spec) = spec.as_object() else {
        let why = "conversion rules are an object with `conversions`";
        return finished(RuleSet::default(), vec![FieldError::required(path, why)]);
    };
    let hub = string(spec, "hub", path, &mut errors);
    let mut set = RuleSet {
        hub,
        validation: read::validation(spec, path, &mut errors),
        ..RuleSet::default()
    };
    let at = path.child("conversions");
    let entries = list(spec, "conversions", path, &mut errors);
    if entries.len() > DIRECTIONS_MAX {
        return finished(set, vec![FieldError::too_many(&at, entries.len(), DIRECTIONS_MAX)]);
    }
    for (i, entry) in entries.iter().enumerate() {
        let at = at.index(i);
        match entry.as_object() {
            Some(entry) if entry.contains_key("version") => spoke(entry, &at, &mut set, &mut errors),
            Some(entry) => pair(entry, &at, &mut set, &mut errors),
            None => errors.push(FieldError::type_invalid(&at, "", "must be an object")),
        }
    }
    conflicts(&set, &mut errors);
    finished(set, errors)
}

/// Returns the set, or what is malformed in it and the rest.
fn finished(set: RuleSet, errors: Vec<FieldError>) -> Result<RuleSet, Malformed> {
    if errors.is_empty() {
        return Ok(set);
    }
    let rest = RuleSet {
        is_partial: true,
        ..set
    };
    Err(Malformed { errors, rest })
}

/// Reports rules of one direction that write the same path, in whichever entries they are.
fn conflicts(set: &RuleSet, errors: &mut Vec<FieldError>) {
    for direction in &set.conversions {
        crate::plan::conflicts(&direction.rules, errors);
    }
}

/// Parses the rules inside an APIResourceSchema: `spec.conversion.{hub, validation, conversions}`,
/// or `spec.hubVersion` with `spec.versions[].conversion`. Returns `None` if it has none.
///
/// # Errors
/// Returns an error for each malformed field.
pub fn rules_in_schema(api_resource_schema: &Json) -> Result<Option<RuleSet>, Malformed> {
    let spec = &api_resource_schema["spec"];
    let path = FieldPath::new("spec");
    let mut found = None;
    if let Some(conversion) = spec.get("conversion")
        && (conversion.get("conversions").is_some() || conversion.get("hub").is_some())
    {
        let mut inner = conversion.clone();
        // `strategy` and `webhook` belong to the definition.
        if let Some(map) = inner.as_object_mut() {
            map.retain(|key, _| matches!(key.as_str(), "conversions" | "hub" | "validation"));
        }
        found = Some(parse_rules(&inner, &path.child("conversion"))?);
    }
    let mut errors = Vec::new();
    let hub = spec
        .as_object()
        .and_then(|s| string(s, "hubVersion", &path, &mut errors));
    let mut set = RuleSet {
        hub: hub.clone(),
        ..RuleSet::default()
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
    conflicts(&set, &mut errors);
    if !set.conversions.is_empty() && found.is_some() {
        errors.push(FieldError::forbidden(
            &path.child("conversion"),
            "rules are either here or in versions[].conversion, not in both",
        ));
    }
    match (errors.is_empty(), found) {
        (false, found) => finished(found.unwrap_or(set), errors).map(Some),
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
            rules: rules(entry, key, at, from, &[], errors),
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
        let Some(parsed) = rule(&inner, at, &from, &[], errors) else {
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
        rules: rules(entry, "rules", at, &from, &[], errors),
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
    if set
        .conversions
        .iter()
        .any(|d| d.from == direction.from && d.to == direction.to)
    {
        errors.push(FieldError::duplicate(&direction.at, &key));
    }
    set.conversions.push(direction);
}
