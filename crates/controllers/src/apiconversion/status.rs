//! Status of an APIConversion: conditions, and for each direction the coverage of every field, the
//! cost of the rules, and the rules that may fail. It has at most 8 KiB, however many fields and
//! versions the schema has: everyone who watches rules reads it.

use crate::write::{drop_condition, sort_conditions};
use insula_api::{Condition, FieldError, Json, Timestamp, aggregate, set_condition};
use insula_catalog::{Api, Proof, parts};
use insula_conversion::{
    Bundle, CoveredField, FieldCoverage, FieldOutcome, Outlook, Path, RuleSet, Source, field_coverage,
    proof::{FINDINGS_SHOWN, Misfit},
};
use serde_json::json;
use std::sync::Arc;

/// Bytes of a status, as JSON.
const STATUS_BYTES_MAX: usize = 8 * 1_024;
/// Bytes of all that a status has beside messages and directions: types, reasons, times, commas.
const FRAME_BYTES_MAX: usize = 1_024;
/// Bytes of the message of the condition `Valid`, as JSON.
const VALID_BYTES_MAX: usize = 3_072;
/// Bytes of the message of the condition `Fitting`, as JSON.
const FITTING_BYTES_MAX: usize = 2_048;
/// Bytes of a message that names fields, as JSON.
const NAMES_BYTES_MAX: usize = 512;
/// Destinations and rules that one row names.
const NAMED_MAX: usize = 8;
/// Fields that a condition names.
const SHOWN_MAX: usize = 5;

/// Result of checking the rules.
pub(crate) enum Outcome {
    /// The status is about these very rules and this schema already.
    Known,
    /// They compile against the schema, and were searched for counterexamples.
    Compiled(Arc<Api>, Proof),
    /// They came before what they belong to.
    Wait(Awaited),
    /// They do not compile: errors by field.
    Wrong(Vec<FieldError>),
}

/// Thing that rules wait for.
pub(crate) enum Awaited {
    /// A schema or definition of their name.
    Schema,
    /// These versions of the definition.
    Versions(Vec<String>),
    /// A definition without these versions, for which there are no rules; those of the others fit.
    Removal(Vec<String>),
}

/// Returns the fingerprint of these rules with this schema. The suffix is the number of the form of
/// this status: an older one is written anew.
pub(super) fn observed(api: &Api) -> String {
    format!("{:016x}-3", api.fingerprint)
}

/// Position of an APIConversion among those of its schema. Each shows what its own rules do; the
/// first also shows fields without rules.
pub(super) struct PartView<'a> {
    pub(super) name: &'a str,
    /// Name of the schema or definition.
    pub(super) schema: &'a str,
    /// All APIConversions of the schema, sorted by name.
    pub(super) parts: &'a [OwnRules],
}

/// Rules of one of several APIConversions of a schema.
pub(crate) struct OwnRules {
    pub(super) name: String,
    /// The rules, if they can be read on their own.
    pub(super) rules: Option<RuleSet>,
}

impl OwnRules {
    /// Returns true if a rule, or an entry of `drop` or `preserve`, names this field or one around
    /// or inside of it.
    fn name_field(&self, direction: &FieldCoverage, path: &Path) -> bool {
        let directions = self.rules.iter().flat_map(|rules| &rules.conversions);
        let mut own = directions.filter(|own| own.from == direction.from && own.to == direction.to);
        own.any(|own| {
            let listed = own.drop.iter().chain(&own.preserve);
            let read = own.rules.iter().filter_map(|rule| match &rule.source {
                Source::Field(path) => Some(path),
                Source::Expression(_) => None,
            });
            listed.chain(read).any(|named| named.overlaps(path))
        })
    }
}

impl PartView<'_> {
    fn is_alone(&self) -> bool {
        self.parts.len() < 2
    }

    /// Returns true for a rule of this object, and for none in the first object.
    fn owns(&self, rule: Option<&str>) -> bool {
        match rule.and_then(parts::split) {
            Some((part, _)) => part == self.name,
            None => self.is_alone() || self.parts.first().is_some_and(|first| first.name == self.name),
        }
    }

    /// Returns the name of one of this object's rules, as its author counts them.
    fn own_name<'r>(&self, rule: &'r str) -> &'r str {
        match parts::split(rule) {
            Some((part, path)) if part == self.name => path,
            _ => rule,
        }
    }

    /// Returns the fields that this object's rules concern.
    fn own_coverage(&self, mut all: Vec<FieldCoverage>) -> Vec<FieldCoverage> {
        for direction in all.iter_mut().filter(|_| !self.is_alone()) {
            let fields = std::mem::take(&mut direction.fields);
            let own = |field: &CoveredField| {
                let rules = field.outcome.rules();
                let names = |part: &&OwnRules| part.name_field(direction, &field.path);
                let mut named = self.parts.iter().filter(names).peekable();
                match (rules.is_empty(), named.peek().is_some()) {
                    (false, _) => rules.into_iter().any(|rule| self.owns(Some(rule))),
                    (true, true) => named.any(|part| part.name == self.name),
                    (true, false) => self.owns(None),
                }
            };
            direction.fields = fields.into_iter().filter(own).collect();
        }
        all
    }

    /// Returns the condition `Valid` for errors. Rules without errors do not serve without the
    /// others.
    fn invalid(&self, reason: &str, errors: &[FieldError]) -> Condition {
        let is_other = |error: &FieldError| !self.owns(Some(error.field.as_str())) && !self.is_alone();
        let named = |error: &&FieldError| parts::split(error.field.as_str()).is_some();
        let reason = match errors.iter().filter(named).all(is_other) && errors.iter().any(is_other) {
            true => "OtherPartInvalid",
            false => reason,
        };
        invalid(reason, &parts::errors_for(self.name, errors.to_vec()))
    }
}

/// The conditions of rules.
const KINDS: [&str; 4] = ["Valid", "Lossless", "Covered", "Fitting"];

/// Notes in the conditions that they are about the present generation: it is another way to write
/// the same rules.
fn observe(object: &mut Json) {
    let generation = object["metadata"]["generation"].clone();
    let conditions = object["status"]["conditions"].as_array_mut();
    for condition in conditions.into_iter().flatten() {
        if KINDS.iter().any(|kind| condition["type"] == *kind) && generation.is_i64() {
            condition["observedGeneration"] = generation.clone();
        }
    }
}

/// Writes the status of rules.
pub(super) fn write(object: &mut Json, part: &PartView<'_>, outcome: &Outcome, now: Timestamp) {
    let (conditions, table) = match outcome {
        Outcome::Known => return observe(object),
        Outcome::Wait(awaited) => (vec![waiting(part.schema, awaited)], None),
        Outcome::Wrong(errors) => (vec![part.invalid("InvalidRules", errors)], None),
        Outcome::Compiled(api, proof) => {
            let field_coverage = part.own_coverage(field_coverage(&api.bundle));
            let found = proof.as_ref().err().map(Vec::as_slice).unwrap_or_default();
            let mut conditions = vec![
                valid(part, found),
                lossless(found, &field_coverage),
                covered(&api.bundle, &field_coverage),
            ];
            conditions.extend(proof.as_ref().ok().map(|searched| {
                let own = |misfit: &&Misfit| part.owns(misfit.rule.as_ref().map(|(at, _)| at.as_str()));
                fitting(&searched.misfits.iter().filter(own).collect::<Vec<_>>())
            }));
            let messages = conditions.iter().map(|condition| json_len(&condition.message));
            let room = STATUS_BYTES_MAX - FRAME_BYTES_MAX;
            let room = room.saturating_sub(messages.sum());
            let directions = directions(part, &field_coverage, &api.bundle.outlooks(), room);
            (conditions, Some((observed(api), directions)))
        }
    };
    for kind in KINDS {
        match conditions.iter().find(|condition| condition.kind == kind) {
            Some(condition) => {
                let condition = condition.clone().observed(object);
                set_condition(object, &condition, now);
            }
            None => drop_condition(object, kind),
        }
    }
    sort_conditions(object);
    let Some(status) = object["status"].as_object_mut() else {
        return;
    };
    match table {
        Some((observed, directions)) => {
            status.insert("observed".into(), Json::from(observed));
            status.insert("directions".into(), directions);
        }
        None => {
            status.remove("observed");
            status.remove("directions");
        }
    }
}

fn waiting(name: &str, awaited: &Awaited) -> Condition {
    let why = match awaited {
        Awaited::Schema => format!(
            "no APIResourceSchema or CustomResourceDefinition {name:?} in this workspace: create it, or give the \
             conversion the name of the schema it belongs to, or the label {}",
            insula_api::names::labels::SCHEMA[0]
        ),
        Awaited::Versions(missing) => format!(
            "CustomResourceDefinition {name:?} has no version {}: these rules wait for it, and what was served before \
             is served on",
            missing.join(", ")
        ),
        Awaited::Removal(unnamed) => format!(
            "CustomResourceDefinition {name:?} has {}, for which there are no rules: these wait until it has not, and \
             what was served before is served on",
            unnamed.join(", ")
        ),
    };
    Condition::fails("Valid", "SchemaNotFound", why).severity("Info")
}

fn invalid(reason: &str, errors: &[FieldError]) -> Condition {
    Condition::fails("Valid", reason, clipped(aggregate(errors), VALID_BYTES_MAX))
}

/// Returns the condition `Valid`: no counterexample was found.
fn valid(part: &PartView<'_>, found: &[FieldError]) -> Condition {
    if found.is_empty() {
        Condition::holds("Valid")
    } else {
        part.invalid("CounterexampleFound", found)
    }
}

/// Returns the condition `Lossless`: every version shows, after any write, all that was ever
/// written through it.
fn lossless(found: &[FieldError], field_coverage: &[FieldCoverage]) -> Condition {
    if !found.is_empty() {
        let why = "the search found an object for which the rules do not hold; the condition Valid shows it";
        return Condition::fails("Lossless", "CounterexampleFound", why);
    }
    match named(field_coverage, |_, fate| *fate == FieldOutcome::Dropped) {
        None => Condition::holds("Lossless"),
        Some(named) => {
            let why = format!("under drop, and so lost when another version is written: {named}");
            Condition::fails("Lossless", "FieldsDropped", why).severity("Info")
        }
    }
}

/// Returns the condition `Covered`: every field of a served version has a counterpart in the
/// others.
fn covered(bundle: &Bundle, all: &[FieldCoverage]) -> Condition {
    let served = |name: &str| bundle.served().any(|served| served == name);
    let kept = |field_coverage: &FieldCoverage, fate: &FieldOutcome| {
        *fate == FieldOutcome::Preserved && served(&field_coverage.from) && served(&field_coverage.to)
    };
    match named(all, kept) {
        None => Condition::holds("Covered"),
        Some(named) => {
            let why = format!("kept for their own version, and not shown in the other: {named}");
            Condition::fails("Covered", "FieldsPreserved", why).severity("Info")
        }
    }
}

/// Returns the condition `Fitting`: no version shows a value that its schema refuses. The message
/// has one line for each kind of such values, as many as fit.
fn fitting(misfits: &[&Misfit]) -> Condition {
    if misfits.is_empty() {
        return Condition::holds("Fitting");
    }
    let mut message = format!(
        "values that one version accepts and another refuses are shown as they are ({}); to prevent them, {}:",
        misfits.len(),
        Misfit::HELP
    );
    let mut room = FITTING_BYTES_MAX - json_len(&message);
    let mut more = misfits.len();
    for misfit in misfits.iter().take(FINDINGS_SHOWN) {
        let line = format!("\n{misfit}");
        let Some(rest) = room.checked_sub(json_len(&line)) else {
            break;
        };
        (room, more) = (rest, more - 1);
        message.push_str(&line);
    }
    if more > 0 {
        message.push_str(&format!("\nand {more} more: insula conversion test lists them"));
    }
    Condition::fails("Fitting", "ValuesRefused", message).severity("Info")
}

/// Names the first wanted fields, and the number of further ones.
fn named(all: &[FieldCoverage], wanted: impl Fn(&FieldCoverage, &FieldOutcome) -> bool) -> Option<String> {
    let of = |field_coverage: &'_ FieldCoverage| -> Vec<String> {
        let fields = field_coverage
            .fields
            .iter()
            .filter(|field| wanted(field_coverage, &field.outcome));
        let (from, to) = (&field_coverage.from, &field_coverage.to);
        fields
            .map(|field| format!("{} of {from} in {to}", field.path))
            .collect()
    };
    let names: Vec<String> = all.iter().flat_map(of).collect();
    let shown = names.get(..SHOWN_MAX.min(names.len()))?.join(", ");
    match names.len() {
        0 => None,
        n if n > SHOWN_MAX => Some(format!(
            "{}, and {} more",
            clipped(shown, NAMES_BYTES_MAX),
            n - SHOWN_MAX
        )),
        _ => Some(clipped(shown, NAMES_BYTES_MAX)),
    }
}

/// Returns the bytes of a text in JSON.
fn json_len(text: &str) -> usize {
    Json::from(text).to_string().len()
}

/// Cuts a text to some bytes in JSON.
fn clipped(mut text: String, most: usize) -> String {
    if json_len(&text) <= most {
        return text;
    }
    let (mut low, mut high) = (0, text.len());
    while low + 1 < high {
        let middle = text.floor_char_boundary(low.midpoint(high));
        if middle <= low {
            break;
        }
        match json_len(&text[..middle]) <= most {
            true => low = middle,
            false => high = middle,
        }
    }
    text.truncate(low);
    text.push('…');
    text
}

/// A row of a direction.
struct Row {
    list: &'static str,
    value: Json,
    /// True for a field that merely stays where it is, which the schemas tell as well.
    is_plain: bool,
    is_kept: bool,
}

/// Returns what fits of each direction. Rows that tell most are chosen first.
fn directions(part: &PartView<'_>, all: &[FieldCoverage], outlooks: &[Outlook], mut room: usize) -> Json {
    let mut out: Vec<(Json, Vec<Row>)> = Vec::new();
    for field_coverage in all {
        let outlook = outlooks
            .iter()
            .find(|o| o.from == field_coverage.from && o.to == field_coverage.to);
        let mut direction = json!({"from": field_coverage.from, "to": field_coverage.to});
        if let Some(outlook) = outlook {
            direction["cost"] = Json::from(outlook.cost);
        }
        let bytes = direction.to_string().len() + LISTS_BYTES;
        if let Some(rest) = room.checked_sub(bytes) {
            room = rest;
            out.push((direction, rows(part, field_coverage, outlook).collect()));
        }
    }
    for plain in [false, true] {
        let rows = out.iter_mut().flat_map(|(_, rows)| rows);
        for row in rows.filter(|row| row.is_plain == plain) {
            let rest = room.checked_sub(row.value.to_string().len() + 1);
            row.is_kept = rest.is_some();
            room = rest.unwrap_or(room);
        }
    }
    out.into_iter()
        .map(|(direction, rows)| with_rows(direction, rows))
        .collect()
}

fn with_rows(mut direction: Json, rows: Vec<Row>) -> Json {
    let omitted = rows.iter().filter(|row| !row.is_kept).count();
    for Row { list, value, .. } in rows.into_iter().filter(|row| row.is_kept) {
        match direction[list].as_array_mut() {
            Some(rows) => rows.push(value),
            None => direction[list] = Json::Array(vec![value]),
        }
    }
    if omitted > 0 {
        direction["omitted"] = Json::from(omitted);
    }
    direction
}

/// Bytes of the names and brackets of a direction's lists, and of the number of omitted rows.
const LISTS_BYTES: usize = 56;

fn rows<'a>(
    part: &'a PartView<'_>,
    direction: &'a FieldCoverage,
    outlook: Option<&'a Outlook>,
) -> impl Iterator<Item = Row> + 'a {
    let may_fail = outlook.into_iter().flat_map(|outlook| &outlook.may_fail);
    let may_fail = may_fail.filter(|r| part.owns(Some(&r.rule))).map(|r| Row {
        list: "mayFail",
        value: json!({"rule": part.own_name(&r.rule), "reason": r.reason, "marked": r.marked}),
        is_plain: false,
        is_kept: false,
    });
    let fields = direction.fields.iter().map(|field| {
        let mut row = json!({"path": field.path.to_string(), "fate": field.outcome.word()});
        let to = field.outcome.destinations().into_iter().map(ToString::to_string);
        let rules = field.outcome.rules().into_iter();
        let rules = rules.map(|rule| part.own_name(rule).to_owned());
        for (name, named) in [("to", to.collect::<Vec<_>>()), ("rules", rules.collect())] {
            if !named.is_empty() {
                row[name] = named.into_iter().take(NAMED_MAX).collect();
            }
        }
        Row {
            list: "fields",
            value: row,
            is_plain: field.outcome == FieldOutcome::Carried,
            is_kept: false,
        }
    });
    may_fail.chain(fields)
}
