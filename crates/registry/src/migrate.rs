//! A stored object in today's storage version: what a write that changes nothing would store.

use crate::{Registry, owners};
use insula_api::Object;
use insula_catalog::{Error, Result, Served, stored};
use insula_conversion::{Stored, ToStore};
use insula_store::Entry;

impl Registry {
    /// Whether an object is stored as it would be today: in the storage version, and with owners of
    /// its fields in versions that are served.
    pub fn is_current(&self, served: &Served, entry: &Entry) -> bool {
        entry.object.version() == served.api.bundle.storage() && !owners::are_stale(served, entry)
    }

    /// The object as it is stored today, or nothing where it is already. Every served version reads
    /// as before, but for owners of fields in versions that are served no more: what they own is
    /// told in the storage version.
    pub fn migrated(&self, served: &Served, entry: &Entry) -> Result<Option<Object>> {
        if self.is_current(served, entry) {
            return Ok(None);
        }
        let object = &entry.object;
        let (mut moved, schema) = match object.version() == served.api.bundle.storage() {
            true => {
                let kept = ToStore {
                    value: object.body_value(),
                    residual: object.residual().map(|residual| residual.to_vec()),
                };
                (kept, object.schema())
            }
            false => (moved(served, entry)?, served.api.fingerprint),
        };
        if owners::are_stale(served, entry) {
            owners::retire(served, entry, &mut moved.value)?;
        }
        let made = Object::new(&moved.value, moved.residual.map(Into::into))
            .map(|object| object.written_under(schema))
            .map_err(|error| Error::Internal(format!("{:?}: {error}", entry.key)))?;
        // Owners that cannot be told in another version stay where they are.
        Ok((made != **object).then_some(made))
    }
}

fn moved(served: &Served, entry: &Entry) -> Result<ToStore> {
    let storage = served.api.bundle.storage();
    let value = entry.object.body_value();
    let stored = Stored {
        value: &value,
        version: entry.object.version(),
        residual: entry.object.residual(),
    };
    served
        .get(stored, storage)
        .and_then(|seen| served.put(&seen, storage, Some(stored)))
        .map_err(|failed| failed.or(|error| stored::read_error(served, entry, storage, error)))
}
