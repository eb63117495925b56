//! The law of write-back: a server takes back what it showed, also a value that the schema of the
//! version refuses, and a change of metadata or of the status beside it.

use super::{Law, Laws, Observed, Violation, same};
use crate::bundle::ToStore;
use crate::object_budget;
use insula_meter::Meter;
use insula_schema::Structural;
use serde_json::{Value as Json, json};
use std::borrow::Cow;

/// A finalizer that no generated object has.
const FINALIZER: &str = "example.com/write-back";

impl Laws<'_> {
    /// Checks what a version shows: written back, it is neither changed nor refused.
    pub(crate) fn write_back(&self, version: &str, stored: &Observed<'_>) -> Result<(), Violation> {
        let Some(schema) = self.bundle.schema(version) else {
            return Ok(());
        };
        let broken = |place| Violation {
            law: Law::WriteBack,
            version: version.to_owned(),
            place,
        };
        let shown = self.read(stored, version, Law::WriteBack)?;
        let mut taken = shown.clone();
        insula_schema::prune(&mut taken, schema);
        insula_schema::drop_nulls(&mut taken, schema);
        insula_schema::default(&mut taken, schema);
        same(shown, &taken).map_err(broken)?;
        // GetPut says the rest about an object that its version accepts.
        if insula_schema::validate(shown, schema, &self.meter).is_empty() {
            return Ok(());
        }
        let marked = with_finalizer(taken);
        refused(&marked, shown, schema, &self.meter).map_or(Ok(()), |error| Err(broken(error)))?;
        if let Some(error) = refused_beside_status(shown, schema, &self.meter) {
            return Err(broken(error));
        }
        let old = stored.to_store().stored(self.bundle.storage());
        let after: Result<ToStore, _> = self
            .bundle
            .put(&marked, version, Some(old), &mut object_budget(&self.meter));
        let after = after.map_err(|error| broken(error.to_string()))?;
        let after = Observed::new(self.bundle, Cow::Owned(after), &self.meter);
        same(&marked, self.read(&after, version, Law::WriteBack)?).map_err(broken)
    }

    /// Checks that all versions show the same metadata, but for labels and annotations that rules
    /// name.
    pub(crate) fn metadata(&self, stored: &Observed<'_>) -> Result<(), Violation> {
        let named: &[&str] = match self.bundle.rules_see_metadata() {
            true => &["labels", "annotations"],
            false => &[],
        };
        let part = |object: &Json| {
            let mut part = object["metadata"].clone();
            if let Some(part) = part.as_object_mut() {
                part.retain(|name, _| !named.contains(&name.as_str()));
            }
            part
        };
        let want = part(&stored.to_store().value);
        for version in self.bundle.served() {
            let shown = self.read(stored, version, Law::Metadata)?;
            same(&want, &part(shown)).map_err(|below| Violation {
                law: Law::Metadata,
                version: version.to_owned(),
                place: format!("metadata{below}"),
            })?;
        }
        Ok(())
    }
}

fn with_finalizer(mut object: Json) -> Json {
    if let Some(metadata) = object.get_mut("metadata").and_then(Json::as_object_mut) {
        let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
        if let Some(finalizers) = finalizers.as_array_mut() {
            finalizers.push(json!(FINALIZER));
        }
    }
    object
}

/// Returns the first error of an update in which no value changed.
fn refused(new: &Json, shown: &Json, schema: &Structural, meter: &Meter) -> Option<String> {
    let errors = insula_schema::validate_write_back(new, shown, schema, meter);
    errors.first().map(ToString::to_string)
}

/// Returns the first error outside of the status where a controller takes its status away through
/// `/status`. Rules of the whole object may read the status, and judge the change.
fn refused_beside_status(shown: &Json, schema: &Structural, meter: &Meter) -> Option<String> {
    if !schema.root().rules().is_empty() || shown.get("status").is_none() {
        return None;
    }
    let mut new = shown.clone();
    new.as_object_mut()?.remove("status");
    let errors = insula_schema::validate_write_back(&new, shown, schema, meter);
    let elsewhere = |error: &&insula_api::FieldError| {
        let field = insula_schema::place(error);
        !field.is_empty() && field != "status" && !field.starts_with("status.")
    };
    errors.iter().find(elsewhere).map(ToString::to_string)
}
