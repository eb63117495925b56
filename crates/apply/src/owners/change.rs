//! Effect of a change on the managers of an object, each in the version of its fields.

use super::managers::{Manager, Managers};
use super::{Versions, Writer};
use crate::fields::{Element, FieldSet};
use crate::typed::{Comparison, compare, reconcile};
use insula_api::Json;
use std::collections::BTreeMap;

/// Effect of a change on all managers except its writer.
pub(super) struct Effect {
    /// The change in the writer's version.
    pub(super) comparison: Comparison,
    /// Fields of each manager that the change takes over.
    pub(super) taken: BTreeMap<Manager, FieldSet>,
    /// Fields of each manager that the change removes.
    removed: BTreeMap<Manager, FieldSet>,
    /// Managers in versions that are no longer served.
    outdated: Vec<Manager>,
}

impl Effect {
    /// Applies the effect to the managers.
    pub(super) fn settle(&self, managers: &mut Managers) {
        let changed = self.taken.iter().chain(&self.removed);
        changed.for_each(|(manager, fields)| managers.subtract(manager, fields));
        self.outdated.iter().for_each(|manager| {
            managers.0.remove(manager);
        });
    }
}

/// Computes the effect of a change by the writer, whose own entry is left out.
pub(super) fn effect(
    old: &Json,
    new: &Json,
    managers: &Managers,
    own: Option<&Manager>,
    writer: &Writer<'_>,
    versions: &dyn Versions,
) -> Result<Effect, String> {
    let shape = versions.shape(writer.api_version).ok_or("the version is not served")?;
    let mut comparison = compare(shape, old, new);
    comparison.cut(writer.ignored);
    let mut effect = Effect {
        comparison: Comparison::default(),
        taken: BTreeMap::new(),
        removed: BTreeMap::new(),
        outdated: Vec::new(),
    };
    let mut known = BTreeMap::from([(writer.api_version, comparison)]);
    for (manager, entry) in managers.0.iter().filter(|(manager, _)| Some(*manager) != own) {
        let version = &*entry.api_version;
        let Some(shape) = versions.shape(version) else {
            effect.outdated.push(manager.clone());
            continue;
        };
        if !known.contains_key(version) {
            let old = versions.convert(old, writer.api_version, version)?;
            let new = versions.convert(new, writer.api_version, version)?;
            let mut comparison = compare(shape, &old, &new);
            comparison.cut(writer.ignored);
            known.insert(version, comparison);
        }
        let Some(comparison) = known.get(version) else { continue };
        let taken = comparison.touched(&entry.fields);
        if !taken.is_empty() {
            effect.taken.insert(manager.clone(), taken);
        }
        if !comparison.removed.is_empty() {
            effect.removed.insert(manager.clone(), comparison.removed.clone());
        }
    }
    effect.comparison = known.remove(writer.api_version).unwrap_or_default();
    Ok(effect)
}

/// Adapts the managers' fields to the current schemas.
pub(super) fn under_schemas(managers: &mut Managers, versions: &dyn Versions) {
    for entry in managers.0.values_mut() {
        if let Some(shape) = versions.shape(&entry.api_version) {
            entry.fields = reconcile(shape, std::mem::take(&mut entry.fields));
        }
    }
}

/// Removes fields that the server maintains, which have no owner.
pub(super) fn without_own(fields: &mut FieldSet) {
    let metadata = Element::field("metadata");
    let mut own = FieldSet::default();
    for field in ["apiVersion", "kind", "metadata"] {
        own.insert(&[Element::field(field)]);
    }
    for field in [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ] {
        own.insert(&[metadata.clone(), Element::field(field)]);
    }
    fields.subtract(&own);
}
