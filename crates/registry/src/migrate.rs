//! Migration of stored objects to today's storage version: the form that a write without changes
//! would store.

use crate::owners;
use insula_api::Object;
use insula_catalog::{Error, Result, Served, stored};
use insula_conversion::{Stored, ToStore};
use insula_store::Entry;

/// Returns true if an object is stored in today's storage version and all owners of its fields
/// use served versions.
pub fn is_current(served: &Served, entry: &Entry) -> bool {
    entry.object.version() == served.api.bundle.storage() && !owners::are_stale(served, entry)
}

/// Returns the migrated object, or `None` if migration changes nothing. Every served version
/// reads as before, except for field owners in versions that are no longer served. Their fields
/// are recorded in the storage version.
///
/// # Errors
/// The object cannot be converted, or the converted object is malformed.
pub fn migrated(served: &Served, entry: &Entry) -> Result<Option<Object>> {
    if is_current(served, entry) {
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
    // Owners whose fields cannot be converted stay in their version.
    Ok((made != **object).then_some(made))
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
