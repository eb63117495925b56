//! Values that one version accepts and another one refuses: bounds, enumerations and required
//! fields that differ between schemas. A read shows such a value as it is, so no law is broken; the
//! author is told, with the smallest example of every kind.

use super::finding::{writer, written};
use super::shrink::{places, plainer, replaced, without};
use super::{METER_UNITS, Search, WORK_MAX, Write, generate, values};
use crate::bundle::{Bundle, ToStore};
use crate::laws::Observed;
use crate::object_budget;
use insula_api::{FieldError, FieldPath, Finding, Json};
use insula_meter::Meter;
use std::collections::BTreeMap;
use std::fmt;

/// Maximum number of kinds of misfits that one search reports.
const MISFITS_MAX: usize = 256;
/// Maximum number of sequences of writes that are tried to make one example smaller.
const TRIES_MAX: usize = 300;

/// A value that a version shows although its schema refuses it.
#[derive(Debug, Clone, PartialEq)]
pub struct Misfit {
    /// The version that shows it.
    pub version: String,
    /// Path of the field in that version.
    pub field: String,
    /// The error of that version's schema, with the field.
    pub error: String,
    /// The rule that writes the field, and its destination; `None` for a field without a rule.
    pub rule: Option<(FieldPath, String)>,
    /// The writes, in order, to one object. Each is valid in its own version.
    pub script: Vec<Write>,
}

impl Misfit {
    /// Advice for the author.
    pub const HELP: &'static str = "give both versions the same bounds, convert to a value that the schema accepts, \
                                    or give the field a default";

    /// Returns the misfit as a validation error at its rule.
    pub(super) fn as_error(&self, bundle: &Bundle) -> FieldError {
        let detail = format!(
            "{self}; what would help: {}, or leave out spec.validation",
            Misfit::HELP
        );
        let error = match &self.rule {
            Some((at, text)) => FieldError::invalid(at, &Json::from(text.as_str()), detail),
            None if bundle.has_rules() => {
                FieldError::invalid_text(&FieldPath::new("spec").child("conversions"), "", detail)
            }
            None => FieldError::invalid_text(&FieldPath::new("spec").child("validation"), "Refuse", detail),
        };
        error.found_as(Finding::Misfit)
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} would refuse {}; shown by ", self.version, self.error)?;
        written(&self.script, f)
    }
}

/// Identity of a kind of misfit: version, field without indices, and error without values.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    version: String,
    field: String,
    error: String,
}

impl Kind {
    fn from_error(version: &str, error: &FieldError) -> Kind {
        let detail = error.detail.chars().filter(|c| !c.is_ascii_digit());
        Kind {
            version: version.to_owned(),
            field: general(error.field.as_str()),
            error: format!("{:?} {}", error.kind, detail.collect::<String>()),
        }
    }
}

/// Returns a path with `[]` for every item and entry.
pub(crate) fn general(path: &str) -> String {
    let mut parts = path.split('[');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("[]");
        out.push_str(part.rsplit_once(']').map_or("", |(_, rest)| rest));
    }
    out
}

/// The smallest sequence of writes of each kind that a search came across.
#[derive(Debug, Default)]
pub(super) struct Misfits(BTreeMap<Kind, Vec<Write>>);

impl Misfits {
    /// Looks for misfits in the views after a sequence of writes.
    pub(super) fn look(&mut self, bundle: &Bundle, script: &[Write], after: &Observed<'_>, meter: &Meter) {
        let writer = script.last().map(|write| write.version.as_str());
        for version in bundle.served().filter(|version| Some(*version) != writer) {
            let (Some(schema), Ok(view)) = (bundle.schema(version), after.view(version)) else {
                continue;
            };
            let errors = insula_schema::validate(view, schema, meter);
            for error in errors.iter().filter(|error| !insula_schema::is_consequence(error)) {
                let kind = Kind::from_error(version, error);
                let room = self.0.len() < MISFITS_MAX;
                match self.0.get_mut(&kind) {
                    Some(known) if size(script) < size(known) => *known = script.to_vec(),
                    None if room => drop(self.0.insert(kind, script.to_vec())),
                    _ => {}
                }
            }
        }
    }

    /// Makes the examples smaller.
    pub(super) fn smallest(self, bundle: &Bundle, how: Search, meter: &Meter) -> Vec<Misfit> {
        let share = how.work.min(WORK_MAX) / (self.0.len() as u64).max(1);
        let smallest = |(kind, script): (Kind, Vec<Write>)| {
            let mut shrinking = Shrinking {
                bundle,
                meter,
                kind,
                tries: 0,
                work: share,
            };
            let script = shrinking.shrink(script);
            let error = shrinking.shows(&script)?;
            let (version, field) = (shrinking.kind.version, error.field.to_string());
            let rule = writer(bundle, &version, &field);
            Some(Misfit {
                rule: rule.map(|(at, text)| (at.clone(), text.to_owned())),
                error: error.to_string(),
                version,
                field,
                script,
            })
        };
        let mut misfits: Vec<Misfit> = self.0.into_iter().filter_map(smallest).collect();
        // The easiest to understand come first.
        misfits.sort_by_key(|misfit| size(&misfit.script));
        misfits
    }
}

fn size(script: &[Write]) -> u64 {
    // An example of one write is easier to understand than one of two.
    script.iter().map(|write| 100 + values(&write.object)).sum()
}

struct Shrinking<'b> {
    bundle: &'b Bundle,
    meter: &'b Meter,
    kind: Kind,
    tries: usize,
    work: u64,
}

impl Shrinking<'_> {
    fn shrink(&mut self, mut script: Vec<Write>) -> Vec<Write> {
        if let Some(last) = script.last().filter(|_| script.len() > 1) {
            let alone = vec![last.clone()];
            if self.attempt(&alone) {
                script = alone;
            }
        }
        let mut shrinks = true;
        while shrinks {
            shrinks = false;
            for (write, path) in places(&script) {
                if let Some(less) = without(&script, write, &path)
                    && self.attempt(&less)
                {
                    (script, shrinks) = (less, true);
                }
            }
        }
        for (write, path) in places(&script) {
            for plain in plainer(&script, write, &path) {
                let Some(plain) = replaced(&script, write, &path, plain) else {
                    continue;
                };
                if self.attempt(&plain) {
                    script = plain;
                    break;
                }
            }
        }
        script
    }

    /// Returns true if a sequence shows the misfit; false once the work is used up, or the request
    /// has ended.
    fn attempt(&mut self, script: &[Write]) -> bool {
        self.tries += 1;
        let work = script.iter().map(|write| values(&write.object)).sum();
        let Some(left) = self
            .work
            .checked_sub(work)
            .filter(|_| self.tries <= TRIES_MAX && self.meter.spend(work * METER_UNITS).is_ok())
        else {
            self.work = 0;
            return false;
        };
        self.work = left;
        self.shows(script).is_some()
    }

    /// Returns the error, if all writes of the sequence are valid and it shows the misfit.
    fn shows(&self, script: &[Write]) -> Option<FieldError> {
        let bundle = self.bundle;
        let read = |after: &ToStore, version: &str| {
            let stored = after.stored(bundle.storage());
            bundle.get(stored, version, &mut object_budget(self.meter)).ok()
        };
        let mut stored: Option<ToStore> = None;
        for write in script {
            let schema = bundle.schema(&write.version)?;
            let object = match &stored {
                None => generate::normal(write.object.clone(), schema, self.meter)?,
                Some(before) => {
                    generate::edited(write.object.clone(), &read(before, &write.version)?, schema, self.meter)?
                }
            };
            let old = stored.as_ref().map(|before| before.stored(bundle.storage()));
            stored = Some(
                bundle
                    .put(&object, &write.version, old, &mut object_budget(self.meter))
                    .ok()?,
            );
        }
        let view = read(&stored?, &self.kind.version)?;
        let mut errors = insula_schema::validate(&view, bundle.schema(&self.kind.version)?, self.meter).into_iter();
        errors.find(|error| Kind::from_error(&self.kind.version, error) == self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::general;

    #[test]
    fn items_and_entries_count_as_one() {
        assert_eq!(general("spec.ports[3].name"), "spec.ports[].name");
        assert_eq!(general("spec.labels[a.b/c][0]"), "spec.labels[][]");
        assert_eq!(general("spec.mode"), "spec.mode");
    }
}
