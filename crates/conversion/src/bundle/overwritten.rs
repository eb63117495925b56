//! Values of a narrower type over which the stored version has written.
//!
//! A whole number goes into a field that takes any number, and no number comes back from there: the
//! version with the narrower field holds its value for itself, whatever is written in the other.
//! Once a release makes the types equal the value is one again, and the later write counts.

use super::stored::Views;
use crate::field_coverage::passes_as_it_is;
use crate::path::{Path, Segment};
use crate::residual::{Patch, SchemaPath, retained};
use serde_json::Value as Json;

/// Returns what a patch sets at a path of plain names.
fn set_at<'p>(patch: &'p Patch, path: &[Segment]) -> Option<&'p Json> {
    match (patch, path) {
        (Patch::Set { value, guard: None }, path) => value_at(value, path),
        (Patch::Fields(fields), [Segment::Field(name), rest @ ..]) => set_at(fields.get(name)?, rest),
        _ => None,
    }
}

fn value_at<'v>(value: &'v Json, path: &[Segment]) -> Option<&'v Json> {
    path.iter().try_fold(value, |value, segment| match segment {
        Segment::Field(name) => value.get(name),
        _ => None,
    })
}

impl Views<'_> {
    /// Removes what versions hold in fields that they share since a release, where the stored
    /// version shows another value in the same field.
    pub(super) fn drop_overwritten(&mut self) {
        let bundle = self.bundle;
        for version in (0..bundle.versions.len()).filter(|version| *version != self.root) {
            let target = &bundle.versions[version];
            let overwritten: Vec<SchemaPath> = self
                .shared_since(version)
                .filter(|path| self.is_overwritten(version, path))
                .map(|path| SchemaPath::from_path(&path))
                .collect();
            for path in overwritten {
                let patch = self.residuals.remove(&target.name);
                let left = patch.and_then(|patch| path.remove_from(patch, Some(&*target.schema)).0);
                self.residuals.extend(left.map(|left| (target.name.clone(), left)));
            }
        }
    }

    fn is_overwritten(&self, version: usize, path: &Path) -> bool {
        let held = self.residuals.get(&self.bundle.versions[version].name);
        let held = held.and_then(|patch| set_at(patch, path.segments()));
        let stands = value_at(&self.raw, path.segments());
        let root = &self.bundle.versions[self.root].schema;
        let node = path
            .segments()
            .iter()
            .try_fold(root.root(), |node, segment| match segment {
                Segment::Field(name) => node.child(name),
                _ => None,
            });
        let differ = held.zip(stands).is_some_and(|(held, stands)| {
            // A default is no value that somebody wrote, and an object or a list may show a part.
            let is_written = node.is_none_or(|node| node.default() != Some(stands));
            !retained::is_structured(held) && !retained::is_structured(stands) && held != stands && is_written
        });
        let mut hops = self.bundle.hops(version, self.root);
        differ && hops.all(|hop| passes_as_it_is(hop, path.segments()))
    }
}
