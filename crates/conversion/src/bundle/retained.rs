//! Values that a version has no field for any more, in reads and writes.

use super::edit::ConvertedEdit;
use super::own::OwnFields;
use super::stored::{Views, Write};
use super::written::{self, Records};
use super::{Bundle, Stored, ToStore};
use crate::error::{Cause, ConvertError};
use crate::residual::{self, Patch, SchemaPath, retained};
use crate::union::UNION;
use insula_api::Json;
use insula_cel::Budget;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Returns what is stored beside an object.
pub(super) fn encoded(
    mut residuals: BTreeMap<String, Patch>,
    retained: &BTreeMap<String, Patch>,
    records: &Records,
    own: Option<&OwnFields>,
) -> Option<Vec<u8>> {
    retained::add(&mut residuals, retained);
    written::encode(residual::encode(&residuals), records, own)
}

impl<'a> Views<'a> {
    /// Splits an object of a version: notes the values that its schema has no field for, and
    /// returns the others, with those that it has a field for again.
    pub(super) fn split(&mut self, version: usize, object: &Json) -> Json {
        let target = &self.bundle.versions[version];
        let patch = self.retained.remove(&target.name);
        let (shown, patch) = retained::split(&target.schema, patch.as_ref(), object);
        self.retained.extend(patch.map(|patch| (target.name.clone(), patch)));
        shown
    }

    /// Returns the view of a version with those retained values that it has a field for again;
    /// before a write, without those that it has none for.
    pub(super) fn with_retained(&mut self, version: usize, shown: Json) -> Json {
        let target = &self.bundle.versions[version];
        let kept = self.retained.get(&target.name);
        let patch = self.residuals.get(&target.name);
        let unknown = |patch: &Patch| target.prunes() && retained::has_unknown(&target.schema, patch);
        let is_split = self.to_write && (kept.is_some() || patch.is_some_and(unknown));
        let has_patch = patch.is_some();
        let shown = match kept {
            // The union keeps what no version has a field for.
            Some(kept) if self.to_write && !target.prunes() => {
                let shown = target.tidied(retained::within(&target.schema, kept, shown));
                self.retained.remove(&target.name);
                shown
            }
            _ if is_split => target.tidied(self.split(version, &shown)),
            Some(kept) => target.tidied(retained::show(&target.schema, kept, shown)),
            None if has_patch || self.shows_lost(version) => target.tidied(shown),
            None => shown,
        };
        match self.residuals.get(&target.name) {
            Some(patch) if self.awaits_lists && !target.prunes() => residual::waiting_in(&target.schema, patch, shown),
            _ => shown,
        }
    }

    /// Returns the views of an object that is to be written: what its schema has no field for is
    /// beside it.
    pub(super) fn open_to_write(
        bundle: &'a Bundle,
        root: usize,
        stored: Stored<'a>,
        budget: &mut Budget,
    ) -> Result<Self, ConvertError> {
        let mut views = Self::open(bundle, root, stored, budget)?;
        views.prepare_to_write();
        Ok(views)
    }

    /// Returns the values that a version has no field for after an edit: they stay with the items
    /// that the edit tells apart, also where the version shows nothing of these.
    pub(super) fn carried(&self, version: usize, edit: &ConvertedEdit<'_>) -> Vec<(String, Option<Patch>)> {
        let schema = &self.bundle.versions[version].schema;
        let own = self
            .retained
            .iter()
            .filter(|(name, _)| self.bundle.index(name) == Ok(version));
        let after = own.map(|(name, patch)| {
            let view = self.view(version);
            let whole = retained::whole(schema, patch, view.clone());
            let (whole, new) = (edit.onto(&whole), edit.onto(view));
            (name.clone(), retained::unknown_beside(schema, &whole, Some(&new)))
        });
        after.collect()
    }

    /// Puts what the stored version has no field for beside the object.
    pub(super) fn prepare_to_write(&mut self) {
        self.to_write = true;
        let version = &self.bundle.versions[self.root];
        if !self.has_unknown && matches!(self.raw, Cow::Borrowed(_)) {
            self.note_lost();
            return;
        }
        let object = self.object.clone();
        let raw = self.split(self.root, &object);
        self.note_lost();
        self.raw = Cow::Owned(self.with_lost(self.root, raw));
        self.stored = Cow::Owned(version.tidied(self.raw.clone().into_owned()));
    }
}

impl Write<'_, '_> {
    /// Carries the values that versions have no field for over to the new views.
    pub(super) fn retain(&mut self) {
        let Some(old) = &self.old else { return };
        let after = old.retained.iter().filter_map(|(name, patch)| {
            if let Some(carried) = self.carried.get(name) {
                return Some((name.clone(), carried.clone()?));
            }
            // Without a union, what it kept lives and dies in the hub.
            let version = self.bundle.index(name).ok();
            let new = version.and_then(|version| Some((version, self.views.get(&version)?)));
            let patch = match new {
                Some((version, new)) => {
                    retained::after(&self.bundle.versions[version].schema, patch, old.view(version), new)
                }
                None => Some(patch.clone()),
            };
            Some((name.clone(), patch?))
        });
        self.retained = old.without_shown(self.views.keys().copied(), after.collect());
    }
}

impl Bundle {
    /// Returns the versions that have no field at a path: what objects hold in it there can be
    /// retired.
    pub fn lacking<'b>(&'b self, path: &SchemaPath) -> impl Iterator<Item = &'b str> {
        let lacking = self.named().filter(|version| !path.is_in(&version.schema));
        lacking.map(|version| version.name.as_str())
    }

    /// Returns a stored object without what it holds in a field that a version has no more, or all
    /// of them; `None` if it holds nothing there. What readers see stays the same.
    ///
    /// # Errors
    /// The object's version does not exist, or its residual is malformed.
    pub fn retire(
        &self,
        stored: Stored<'_>,
        version: Option<&str>,
        path: &SchemaPath,
    ) -> Result<Option<ToStore>, ConvertError> {
        let root = &self.versions[self.index(stored.version)?];
        let malformed = |why| self.failure(&root.name, &root.name, Cause::Residual(why));
        let (mut residuals, beside) = residual::decode(stored.residual).map_err(malformed)?;
        let records = written::records(beside.as_ref()).map_err(malformed)?;
        let own = written::own(beside.as_ref()).map_err(malformed)?;
        let mut all = retained::take(&mut residuals);
        let mut value = Cow::Borrowed(stored.value);
        if retained::unknown(&root.schema, stored.value).is_some() {
            let (shown, patch) = retained::split(&root.schema, all.get(&root.name), stored.value);
            value = Cow::Owned(shown);
            all.extend(patch.map(|patch| (root.name.clone(), patch)));
        }
        let mut gone = false;
        for (patches, is_retained) in [(&mut residuals, false), (&mut all, true)] {
            let names: Vec<String> = patches.keys().cloned().collect();
            for name in names {
                let target = self.versions.iter().find(|version| version.name == name);
                // Without a union, the hub shows what was stored for one.
                let target = target.or_else(|| (name == UNION).then(|| &self.versions[self.hub]));
                let schema = target.map(|version| &*version.schema);
                let is_meant = name == UNION || version.is_none_or(|version| version == name);
                let has_field = schema.is_some_and(|schema| path.is_in(schema));
                if !is_meant || has_field && !is_retained {
                    continue;
                }
                let Some(patch) = patches.remove(&name) else { continue };
                let (left, went) = match schema.filter(|_| has_field) {
                    // A field of another type has values of its own beside those it takes no more.
                    Some(schema) => {
                        let refused = retained::beyond(schema, &patch);
                        let removed = refused.map(|refused| path.remove_refused_from(refused, schema));
                        let (left, went) = removed.unwrap_or_default();
                        (retained::both(retained::known(schema, &patch), left), went)
                    }
                    None => path.remove_from(patch, schema),
                };
                gone |= went;
                // The residual of the union tells that the others are relative to it.
                let left = left.or_else(|| (name == UNION).then(|| Patch::Fields(BTreeMap::new())));
                patches.extend(left.map(|left| (name, left)));
            }
        }
        Ok(gone.then(|| ToStore {
            value: value.into_owned(),
            residual: encoded(residuals, &all, &records, own.as_ref()),
        }))
    }
}
