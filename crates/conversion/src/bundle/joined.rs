//! Objects that a program stored which gave each version a home of its own.

use super::edit::{ConvertedEdit, edited, residual_of, traced};
use super::stored::Views;
use super::{Bundle, LossPolicy, Stored};
use crate::error::ConvertError;
use crate::merge::Side;
use crate::residual::{self, Patch};
use crate::trace::Trace;
use crate::union::UNION;
use insula_api::Json;
use insula_cel::Budget;
use std::collections::BTreeMap;

/// An object whose values have one home each.
pub(super) struct Joined {
    pub(super) residuals: BTreeMap<String, Patch>,
    /// Values that another home's took the place of, as `.spec.unit of v2`.
    pub(super) replaced: Vec<String>,
}

/// Returns the values of an object of an earlier program that gave way to those of another version:
/// see [`Bundle::replaced_values`].
fn replaced(bundle: &Bundle, root: usize, stored: Stored<'_>, budget: &mut Budget) -> Vec<String> {
    let Ok(views) = Views::decode(bundle, root, stored) else {
        return Vec::new();
    };
    if !views.are_split() {
        return Vec::new();
    }
    views.joined(budget).map(|joined| joined.replaced).unwrap_or_default()
}

impl Bundle {
    /// Returns false for the residual of an object without [`Bundle::replaced_values`], by its
    /// bytes alone: today's program writes the name of the union into each.
    pub fn may_replace_values(&self, residual: &[u8]) -> bool {
        let name = format!("\"{UNION}\":");
        self.top != self.hub && !residual.windows(name.len()).any(|bytes| bytes == name.as_bytes())
    }

    /// Returns the values of a stored object, as `.spec.unit of v2`, that differ from another
    /// version's although they are one value, and were written earlier. Only a program that gave
    /// each version a home of its own has stored such objects; the next write joins the homes.
    pub fn replaced_values(&self, stored: Stored<'_>, budget: &mut Budget) -> Vec<String> {
        match (self.loss_policy, stored.residual, self.index(stored.version)) {
            (LossPolicy::Lossless, Some(_), Ok(root)) if self.top != self.hub => replaced(self, root, stored, budget),
            _ => Vec::new(),
        }
    }
}

/// Notes the values of a version that show otherwise now.
fn note_replaced(version: &str, before: &Json, after: &Json, path: &mut String, replaced: &mut Vec<String>) {
    let end = path.len();
    match (before, after) {
        (Json::Object(before), Json::Object(after)) => {
            for (name, value) in before {
                let after = after.get(name).unwrap_or(&Json::Null);
                path.push_str(&format!(".{name}"));
                note_replaced(version, value, after, path, replaced);
                path.truncate(end);
            }
        }
        (before, after) if before != after => replaced.push(format!("{path} of {version}")),
        _ => {}
    }
}

impl Views<'_> {
    /// Returns true for an object that an earlier program stored: each version had a home of its
    /// own for what it shares with others.
    pub(super) fn are_split(&self) -> bool {
        let is_of_today = self.own.is_some() || self.bundle.top == self.bundle.hub;
        !is_of_today && !self.residuals.is_empty() && !self.residuals.contains_key(UNION)
    }

    /// Returns the residuals of such an object with one home for each value, and the values that
    /// gave way: where two homes differ, the one that was written last counts.
    pub(super) fn joined(&self, budget: &mut Budget) -> Result<Joined, ConvertError> {
        let (bundle, top) = (self.bundle, self.bundle.top);
        let plain = bundle.route(self.root, top, &self.stored, budget, None)?;
        let schema = &bundle.versions[top].schema;
        let mut union = plain.clone();
        let mut shown = Vec::new();
        for version in self.by_last_write() {
            let target = &bundle.versions[version];
            let Some(patch) = self.residuals.get(&target.name) else {
                continue;
            };
            let (base, trace) = traced(bundle, top, version, &plain, budget)?;
            // The hub had all that versions share, before there was a union.
            let whole = match version == bundle.hub {
                true => &bundle.versions[top],
                false => target,
            };
            let object = whole.tidied(residual::apply_objects(&whole.schema, patch, base.clone(), &trace));
            let edit = ConvertedEdit::convert(bundle, (version, top), (&base, &object), budget)?;
            union = edit.onto(&union);
            let own = edit.onto(&plain);
            shown.push((version, object, own));
        }
        let mut residuals = self.residuals.clone();
        let none = Trace::default();
        let shared = residual::diff_objects(schema, Side::new(&plain, &none), &union);
        let shared = shared.unwrap_or_else(|| Patch::Fields(BTreeMap::new()));
        residuals.insert(UNION.to_owned(), shared);
        let mut replaced = Vec::new();
        for (version, before, own) in shown {
            let target = &bundle.versions[version];
            let is = bundle.route(top, version, &union, budget, None)?;
            // What the version itself brings in is no edit to it.
            let object = edited(bundle, (top, version), (&own, &union), &before, budget)?;
            let object = target.tidied(object);
            note_replaced(&target.name, &before, &object, &mut String::new(), &mut replaced);
            let patch = residual_of(bundle, (top, version), (&union, &is), &object, budget)?;
            match patch {
                Some(patch) => residuals.insert(target.name.clone(), patch),
                None => residuals.remove(&target.name),
            };
        }
        Ok(Joined { residuals, replaced })
    }

    /// Returns the versions that are made from the union, the one that was written last at the end:
    /// `metadata.managedFields` tells when.
    fn by_last_write(&self) -> Vec<usize> {
        let managers = self.raw["metadata"]["managedFields"].as_array();
        let last = |version: &usize| {
            let name = &self.bundle.versions[*version].name;
            let own = managers.into_iter().flatten().filter(|manager| {
                let version = manager["apiVersion"].as_str().map(insula_api::names::version_of);
                version == Some(name.as_str())
            });
            // RFC 3339 in UTC: the order of the texts is that of the times.
            own.filter_map(|manager| manager["time"].as_str()).max()
        };
        let top = self.bundle.top;
        let made = |version: &usize| self.bundle.parent(self.root, *version) == Some(top);
        let mut versions: Vec<usize> = (0..top).filter(made).collect();
        versions.sort_by_key(last);
        versions
    }
}
