//! A stored object in today's storage version: what a write that changes nothing would store.

use crate::{Error, Registry, Result, Served, representation};
use insula_api::Object;
use insula_conversion::Stored;
use insula_store::Entry;

impl Registry {
    /// The object as it is stored today, or nothing where it is in today's storage version already. Every served version
    /// reads as before.
    pub fn migrated(&self, served: &Served, entry: &Entry) -> Result<Option<Object>> {
        let api = &served.api;
        let storage = api.bundle.storage();
        if entry.object.version() == storage {
            return Ok(None);
        }
        let value = entry.object.body_value();
        let stored = Stored {
            value: &value,
            version: entry.object.version(),
            residual: entry.object.residual().map(|residual| &**residual),
        };
        let mut budget = insula_conversion::object_budget();
        let moved = api
            .bundle
            .get(stored, storage, &mut budget)
            .and_then(|seen| api.bundle.put(&seen, storage, Some(stored), &mut budget))
            .map_err(|error| representation::read_error(served, entry, storage, &error))?;
        Object::new(&moved.value, moved.residual.map(Into::into))
            .map(|object| Some(object.written_under(api.fingerprint)))
            .map_err(|error| Error::Internal(format!("{:?}: {error}", entry.key)))
    }
}
