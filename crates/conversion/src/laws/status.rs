//! The law of the status: who may write `/status` alone writes no spec, in no version.

use super::{Law, Laws, Observed, Violation, same};
use crate::object_budget;
use serde_json::Value as Json;
use std::borrow::Cow;

impl Laws<'_> {
    /// Checks a write of another status through a version, beside what it shows; `None` takes the
    /// status away. A write that a server or a rule refuses changes nothing.
    pub(crate) fn status(&self, version: &str, stored: &Observed<'_>, status: Option<&Json>) -> Result<(), Violation> {
        let shown = self.read(stored, version, Law::Status)?;
        let Some(schema) = self.bundle.schema(version) else {
            return Ok(());
        };
        let mut written = shown.clone();
        if let Some(fields) = written.as_object_mut() {
            match status {
                Some(status) => fields.insert("status".to_owned(), status.clone()),
                None => fields.remove("status"),
            };
        }
        insula_schema::default(&mut written, schema);
        if written == *shown
            || !insula_schema::validate_update(&written, shown, schema, &self.meter)
                .errors
                .is_empty()
        {
            return Ok(());
        }
        let old = stored.to_store().stored(self.bundle.storage());
        let Ok(after) = self
            .bundle
            .put(&written, version, Some(old), &mut object_budget(&self.meter))
        else {
            return Ok(());
        };
        let after = Observed::new(self.bundle, Cow::Owned(after), &self.meter);
        self.put_get(&written, version, &after)?;
        for other in self.bundle.served() {
            let [had, has] = [stored, &after].map(|stored| self.read(stored, other, Law::Status));
            same(&beside(had?), &beside(has?)).map_err(|place| Violation {
                law: Law::Status,
                version: other.to_owned(),
                place,
            })?;
        }
        self.non_interference(version, stored, &after)
    }
}

/// Returns an object without its status.
fn beside(object: &Json) -> Json {
    let fields = object.as_object().into_iter().flatten();
    let fields = fields.filter(|(name, _)| *name != "status");
    Json::Object(fields.map(|(name, value)| (name.clone(), value.clone())).collect())
}
