//! Updates: any write except apply makes its writer own the changed fields.

use super::change::{effect, under_schemas, without_own};
use super::managers::{Entry, Managers, Operation};
use super::{Versions, Writer};
use insula_api::Json;

/// Returns the managers after `old` was replaced by `new`, both in the writer's version and without
/// `managedFields`. For a created object, `old` is empty.
///
/// # Errors
/// Returns the reason why the objects cannot be compared in some manager's version.
pub fn update(
    old: &Json,
    new: &Json,
    mut managers: Managers,
    writer: &Writer<'_>,
    versions: &dyn Versions,
) -> Result<Managers, String> {
    under_schemas(&mut managers, versions);
    let effect = effect(old, new, &managers, None, writer, versions)?;
    effect.settle(&mut managers);
    let mut own = effect.comparison.into_touched();
    without_own(&mut own);
    if own.is_empty() {
        return Ok(managers);
    }
    let entry = managers
        .0
        .entry(writer.identity(Operation::Update))
        .or_insert_with(|| Entry {
            api_version: writer.api_version.into(),
            fields: Default::default(),
            time: None,
        });
    entry.fields.unite(own);
    entry.time = Some(writer.now);
    managers.cap();
    Ok(managers)
}
