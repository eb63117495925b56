//! Values that belong to other versions, too, since a release.
//!
//! A version gets a field that another one had for itself, a field comes back, or the stored
//! version loses one that others still have. What a version holds in such a field counts as
//! written through it: every version that has the field shows the value.
//!
//! ```text
//! release 1   v1 {url}      v2 {url, f}     stored {url: u}    residual of v2: set f = 1
//! release 2   v1 {url, f}   v2 {url, f}     v1 shows {url: u, f: 1}, and so does v2
//! release 3   v1 {url}      v2 {url, f}     v2 shows {url: u, f: 1} still
//! ```

use super::Bundle;
use super::edit::{residual_of, traced};
use super::stored::{Views, write_over};
use crate::error::ConvertError;
use crate::path::Path;
use crate::residual::{self, Patch, SchemaPath, retained};
use crate::trace::Trace;
use crate::union::UNION;
use insula_api::Json;
use insula_cel::Budget;
use std::borrow::Cow;
use std::collections::BTreeMap;

fn joined(a: Option<Patch>, b: Option<Patch>) -> Option<Patch> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.and(b)),
        (a, b) => a.or(b),
    }
}

impl<'a> Views<'a> {
    /// Returns the views with each value in every version that has its field by now. An object
    /// whose rules fail reads as far as it did before.
    pub(super) fn with_gained(mut self, budget: &mut Budget) -> Self {
        self.give_renamed();
        self.drop_overwritten();
        if let Ok(Some(views)) = self.with_hub(budget) {
            self = views;
        }
        self.note_lost();
        let (bundle, root) = (self.bundle, self.root);
        // The union first: it gives to all that are made from it; then by the rules of the version
        // that holds the values, as far as there is one. A list may bring back what the union has
        // in its items.
        let top = Some(bundle.top).filter(|_| !bundle.is_alone_with(root));
        let others = || (0..bundle.versions.len()).filter(|version| *version != bundle.top);
        for version in top.into_iter().chain(others()).chain(top) {
            let target = &bundle.versions[version];
            let is_back = |patch: &Patch| retained::knows(&target.schema, patch);
            let gains =
                self.gained_fields(version).next().is_some() || self.retained.get(&target.name).is_some_and(is_back);
            if version != root && gains {
                self.write(version, budget);
            }
        }
        if self.shows_lost(root) {
            self.show_lost();
            // A list that is there again may have been what the hub waited for.
            if let Ok(Some(views)) = self.with_hub(budget) {
                self = views;
                self.note_lost();
            }
        }
        for version in top.into_iter().chain(others()) {
            let is_shown = |patch: &Patch| self.divide(version, patch).0.is_some();
            if version != root && self.lost.iter().chain(self.of_union(version)).any(is_shown) {
                self.write(version, budget);
            }
        }
        self
    }

    /// Writes through a version what it holds for others, too.
    fn write(&mut self, version: usize, budget: &mut Budget) {
        if let Ok(views) = self.with_written(version, budget) {
            *self = views;
        }
    }

    /// Gives the stored version what others have lost and it has a field for.
    fn show_lost(&mut self) {
        let object = self.object.clone();
        let shown = self.split(self.root, &object);
        let shown = self.with_lost(self.root, shown);
        self.stored = Cow::Owned(self.bundle.versions[self.root].tidied(shown.clone()));
        self.retained = self.without_shown(std::iter::once(self.root), self.retained.clone());
        self.raw = Cow::Owned(shown.clone());
        self.object = Cow::Owned(shown);
        self.note_lost();
    }

    /// Returns what lies beside the object for the union, if a version is made from that: a version
    /// that goes takes the names of its places with it.
    fn of_union(&self, version: usize) -> Option<&Patch> {
        let top = &self.bundle.versions[self.bundle.top];
        let is_parent = !top.prunes() && self.bundle.parent(self.root, version) == Some(self.bundle.top);
        self.residuals.get(UNION).filter(|_| is_parent)
    }

    /// Returns the values in fields that a version has, and the one that it is made from has not;
    /// and the others.
    fn divide(&self, version: usize, patch: &Patch) -> (Option<Patch>, Option<Patch>) {
        match self.bundle.parent(self.root, version) {
            Some(parent) => {
                let versions = &self.bundle.versions;
                retained::divide(&versions[parent].schema, &versions[version].schema, patch)
            }
            None => (None, Some(patch.clone())),
        }
    }

    /// Gives a version what others have no field for and it has one: with all that is in it, which
    /// lives and dies there from now on.
    fn claim(&mut self, version: usize) {
        let name = &self.bundle.versions[version].name;
        let mut claimed = self.retained.remove(name);
        for (other, patch) in std::mem::take(&mut self.retained) {
            // What a version has a field for again is its own, and goes by its rules.
            let (known, beyond) = match self.bundle.schema(&other) {
                Some(schema) => (retained::known(schema, &patch), retained::beyond(schema, &patch)),
                None => (None, Some(patch)),
            };
            let (own, rest) = beyond.map(|patch| self.divide(version, &patch)).unwrap_or_default();
            claimed = joined(claimed, own);
            self.retained.extend(joined(known, rest).map(|patch| (other, patch)));
        }
        if let Some(patch) = self.of_union(version) {
            let (own, rest) = self.divide(version, patch);
            claimed = joined(claimed, own);
            let rest = rest.unwrap_or_else(|| Patch::Fields(BTreeMap::new()));
            self.residuals.insert(UNION.to_owned(), rest);
        }
        self.retained.extend(claimed.map(|patch| (name.clone(), patch)));
    }

    /// Returns the fields that a version had for itself when the object was stored, and shares now.
    fn gained_fields(&self, version: usize) -> impl Iterator<Item = SchemaPath> {
        self.shared_since(version).map(|path| SchemaPath::from_path(&path))
    }

    /// Returns the same fields, as rules and notes name them.
    pub(super) fn shared_since(&self, version: usize) -> impl Iterator<Item = Path> {
        let fields = self
            .own
            .as_ref()
            .and_then(|own| own.get(&self.bundle.versions[version].name));
        let fields = fields.into_iter().flatten();
        let shared = fields.filter(move |field| self.bundle.shares(self.root, version, field));
        shared.filter_map(|field| Path::parse(field).ok())
    }

    /// Notes what versions have no field for: others may have one.
    pub(super) fn note_lost(&mut self) {
        let root = &self.bundle.versions[self.root];
        let unknown = match self.to_write {
            true => None,
            false => retained::unknown(&root.schema, &self.object),
        };
        self.has_unknown = unknown.is_some();
        if self.has_unknown {
            // An object whose last field is one of them is empty, not left out.
            insula_schema::prune(self.stored.to_mut(), &root.schema);
        }
        let of_root = self.retained.get(&root.name).cloned();
        let of_others = self.retained.iter().filter(|(name, _)| **name != root.name);
        // What a version has a field for again is its own, and goes by its rules.
        let of_others = of_others.filter_map(|(name, patch)| match self.bundle.schema(name) {
            Some(schema) => retained::beyond(schema, patch),
            None => Some(patch.clone()),
        });
        self.lost = unknown.into_iter().chain(of_root).chain(of_others).collect();
    }

    /// Returns a conversion of the stored object with what other versions have lost and this one
    /// has not.
    pub(super) fn with_lost(&self, version: usize, base: Json) -> Json {
        if !self.is_next(version) {
            return base;
        }
        let schema = &self.bundle.versions[version].schema;
        self.lost
            .iter()
            .fold(base, |base, lost| retained::show(schema, lost, base))
    }

    /// Returns true if a version is the stored one or made from it.
    fn is_next(&self, version: usize) -> bool {
        version == self.root || self.bundle.parent(self.root, version) == Some(self.root)
    }

    /// Returns true if a version shows what others have lost.
    pub(super) fn shows_lost(&self, version: usize) -> bool {
        let knows = |lost: &Patch| retained::knows(&self.bundle.versions[version].schema, lost);
        self.is_next(version) && self.lost.iter().any(knows)
    }

    /// Returns what versions retain without what others of them show: it is theirs.
    pub(super) fn without_shown(
        &self,
        shown: impl Iterator<Item = usize>,
        retained: BTreeMap<String, Patch>,
    ) -> BTreeMap<String, Patch> {
        let shown = shown.filter(|version| self.shows_lost(*version));
        shown.fold(retained, |retained, version| {
            let schema = &self.bundle.versions[version].schema;
            let object = self.view(version);
            let left = |(name, patch): (String, Patch)| Some((name, retained::not_shown(schema, &patch, object)?));
            retained.into_iter().filter_map(left).collect()
        })
    }

    /// Returns the views as after such a write. Where the version shows another value by now, that
    /// one counts.
    fn with_written(&self, version: usize, budget: &mut Budget) -> Result<Self, ConvertError> {
        let bundle = self.bundle;
        let target = &bundle.versions[version];
        let mut whole = self.copied();
        whole.awaits_lists = true;
        whole.prepare_to_write();
        whole.set_aside(version);
        whole.claim(version);
        whole.make(version, budget)?;
        let object = target.tidied(whole.view(version).clone());
        let mut before = self.copied();
        before.awaits_lists = true;
        before.prepare_to_write();
        before.claim(version);
        let aside = before.set_aside(version);
        before.without_gained(version, whole.retained.remove(&target.name));
        let retained = before.retained.clone();
        before.make(version, budget)?;
        if *before.view(version) == object {
            before.retained = retained;
            before.add_retained(aside);
            return Ok(before.into_unmade());
        }
        let written = write_over(before, &object, version, None, budget)?;
        let root = &bundle.versions[self.root].name;
        let mut views = Views::decode(bundle, self.root, written.stored(root))?.into_owned(bundle);
        views.add_retained(aside);
        views.keep_gains(self, version);
        views.note_lost();
        Ok(views)
    }

    /// Keeps what other versions than one still have to give: nothing tells it any more from what
    /// they hold for themselves.
    fn keep_gains(&mut self, before: &Self, version: usize) {
        for other in (0..self.bundle.versions.len()).filter(|other| *other != version) {
            let mut gains: Vec<String> = before.shared_since(other).map(|path| path.to_string()).collect();
            if !gains.is_empty() {
                let name = self.bundle.versions[other].name.clone();
                let own = self.own.get_or_insert_default().entry(name).or_default();
                gains.retain(|field| !own.contains(field));
                own.extend(gains);
            }
        }
    }

    /// Takes out what other versions than one have a field for again: each is written by the rules
    /// of the version that retains it.
    fn set_aside(&mut self, version: usize) -> BTreeMap<String, Patch> {
        let bundle = self.bundle;
        let mut aside = BTreeMap::new();
        for (name, patch) in std::mem::take(&mut self.retained) {
            let schema = bundle.schema(&name).filter(|_| name != bundle.versions[version].name);
            let known = schema.and_then(|schema| retained::known(schema, &patch));
            let rest = match schema {
                Some(schema) if known.is_some() => retained::beyond(schema, &patch),
                _ => Some(patch),
            };
            aside.extend(known.map(|known| (name.clone(), known)));
            self.retained.extend(rest.map(|rest| (name, rest)));
        }
        aside
    }

    fn add_retained(&mut self, patches: BTreeMap<String, Patch>) {
        for (name, patch) in patches {
            let all = joined(Some(patch), self.retained.remove(&name));
            self.retained.extend(all.map(|all| (name, all)));
        }
    }

    /// Returns the views before any was made, of an object that is split.
    fn into_unmade(mut self) -> Self {
        self.object = self.raw.clone();
        self.made.clear();
        (self.awaits_lists, self.to_write) = (false, false);
        self.note_lost();
        self
    }

    /// Takes what belongs to others, too, out of what a version holds. `left`: what it has no field
    /// for, or no list yet.
    fn without_gained(&mut self, version: usize, left: Option<Patch>) {
        let target = &self.bundle.versions[version];
        let gained: Vec<SchemaPath> = self.gained_fields(version).collect();
        let mut patch = self.residuals.remove(&target.name);
        for path in gained {
            patch = patch.and_then(|patch| path.remove_from(patch, Some(&*target.schema)).0);
        }
        let patch = patch.or_else(|| (target.name == UNION).then(|| Patch::Fields(BTreeMap::new())));
        self.residuals.extend(patch.map(|patch| (target.name.clone(), patch)));
        self.retained.remove(&target.name);
        self.retained.extend(left.map(|left| (target.name.clone(), left)));
        self.note_lost();
    }

    /// Returns the views with one place for what the hub shows beside the stored version: the
    /// union's, while there is one, else the hub's own. `None` if it has no other.
    fn with_hub(&self, budget: &mut Budget) -> Result<Option<Self>, ConvertError> {
        let (bundle, root) = (self.bundle, self.root);
        if bundle.top != bundle.hub && !bundle.is_alone_with(root) {
            // Of the hub itself, the union shows all.
            let is_of_hub = !self.residuals.contains_key(UNION) || self.has_of_hub();
            let is_of_hub = self.own.is_some() && is_of_hub;
            return Ok(is_of_hub.then(|| self.with_union()));
        }
        let hub = &bundle.versions[bundle.hub];
        let knows = |kept: &Patch| retained::knows(&hub.schema, kept);
        match self.residuals.contains_key(UNION) || self.retained.get(UNION).is_some_and(knows) {
            true => self.without_union(budget).map(Some),
            false => Ok(None),
        }
    }

    /// Returns true if the hub had something as its own: it was not made from a union.
    fn has_of_hub(&self) -> bool {
        let hub = &self.bundle.versions[self.bundle.hub].name;
        self.root != self.bundle.hub && self.own.as_ref().is_some_and(|own| own.contains_key(hub))
    }

    /// Returns the views with what the hub had as its own in the place of the union.
    fn with_union(&self) -> Self {
        let hub = &self.bundle.versions[self.bundle.hub].name;
        let mut views = self.copied();
        let of_hub = views.residuals.remove(hub).map(Patch::by_field);
        let patch = joined(of_hub, views.residuals.remove(UNION));
        let patch = patch.unwrap_or_else(|| Patch::Fields(BTreeMap::new()));
        views.residuals.insert(UNION.to_owned(), patch);
        // What the stored version retains is its own, also where it is the hub.
        if self.root != self.bundle.hub {
            let kept = joined(views.retained.remove(hub), views.retained.remove(UNION));
            views.retained.extend(kept.map(|kept| (UNION.to_owned(), kept)));
        }
        let own = views.own.get_or_insert_default();
        let fields = own.remove(hub).unwrap_or_default();
        own.entry(UNION.to_owned()).or_default().extend(fields);
        views
    }

    /// Returns the views with what the union had in the place of the hub.
    fn without_union(&self, budget: &mut Budget) -> Result<Self, ConvertError> {
        let (bundle, root) = (self.bundle, self.root);
        let hub = &bundle.versions[bundle.hub];
        let mut views = self.copied();
        let own = views.own.get_or_insert_default();
        let fields = own.remove(UNION).unwrap_or_default();
        own.entry(hub.name.clone()).or_default().extend(fields);
        let (base, trace) = match root == bundle.hub {
            true => (self.raw.clone().into_owned(), Trace::default()),
            false => traced(bundle, root, bundle.hub, &self.stored, budget)?,
        };
        let of_union = views.residuals.remove(UNION).map(Patch::by_field);
        let mut kept = views.retained.remove(UNION);
        let mut of_hub = None;
        if root != bundle.hub {
            // What comes back is written through the hub.
            of_hub = kept.as_ref().and_then(|kept| retained::known(&hub.schema, kept));
            kept = kept.and_then(|kept| retained::beyond(&hub.schema, &kept));
        }
        let mut object = base.clone();
        for patch in of_union.iter().chain(views.residuals.get(&hub.name)) {
            object = residual::apply_objects(&hub.schema, patch, object, &trace);
        }
        if let Some(patch) = &of_union {
            object = residual::waiting_in(&hub.schema, patch, object);
        }
        let (object, kept) = retained::split(&hub.schema, kept.as_ref(), &object);
        // Beside a union that the hub is not made from, they are the hub's.
        let is_of_hub = bundle.top != bundle.hub;
        let (of_hub, kept) = match is_of_hub {
            true => (joined(of_hub, kept), None),
            false => (of_hub, kept),
        };
        views.retained.extend(kept.map(|kept| (UNION.to_owned(), kept)));
        let of_hub = joined(views.retained.remove(&hub.name), of_hub);
        views.retained.extend(of_hub.map(|patch| (hub.name.clone(), patch)));
        if root == bundle.hub {
            let object = match views.retained.get(&hub.name) {
                Some(back) => retained::show(&hub.schema, back, object),
                None => object,
            };
            views.stored = Cow::Owned(hub.tidied(object.clone()));
            views.object = Cow::Owned(object.clone());
            views.raw = Cow::Owned(object);
        } else {
            let object = hub.tidied(object);
            let patch = residual_of(bundle, (root, bundle.hub), (&self.stored, &base), &object, budget)?;
            views.residuals.remove(&hub.name);
            views.residuals.extend(patch.map(|patch| (hub.name.clone(), patch)));
        }
        Ok(views)
    }

    /// Returns the views of an object that they hold themselves.
    fn into_owned(self, bundle: &Bundle) -> Views<'_> {
        Views {
            bundle,
            root: self.root,
            object: Cow::Owned(self.object.into_owned()),
            raw: Cow::Owned(self.raw.into_owned()),
            stored: Cow::Owned(self.stored.into_owned()),
            residuals: self.residuals,
            retained: self.retained,
            records: self.records,
            own: self.own,
            lost: self.lost,
            has_unknown: self.has_unknown,
            awaits_lists: self.awaits_lists,
            to_write: self.to_write,
            made: self.made,
        }
    }

    fn copied(&self) -> Self {
        Views {
            object: self.object.clone(),
            raw: self.raw.clone(),
            stored: self.stored.clone(),
            residuals: self.residuals.clone(),
            retained: self.retained.clone(),
            records: self.records.clone(),
            own: self.own.clone(),
            lost: self.lost.clone(),
            made: BTreeMap::new(),
            ..*self
        }
    }
}
