//! Reads and writes of stored objects. The crate's documentation describes the algebra.

use super::edit::{ConvertedEdit, residual_of, union_of};
use super::metadata::{same_content, with_metadata};
use super::own::OwnFields;
use super::retained::encoded;
use super::written::{self, Records};
use super::{Bundle, Stored, ToStore};
use crate::error::{Cause, ConvertError};
use crate::residual::{self, Patch, retained};
use crate::trace::Trace;
use crate::union::UNION;
use insula_api::Json;
use insula_cel::Budget;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The views of one stored object: the object in each version, made on demand.
pub(super) struct Views<'a> {
    pub(super) bundle: &'a Bundle,
    pub(super) root: usize,
    /// The object as it was stored.
    pub(super) object: Cow<'a, Json>,
    /// The stored object, without defaults that were added later.
    pub(super) raw: Cow<'a, Json>,
    pub(super) stored: Cow<'a, Json>,
    pub(super) residuals: BTreeMap<String, Patch>,
    /// Values that a version has no field for any more; before a write, all those of each version
    /// that is made.
    pub(super) retained: BTreeMap<String, Patch>,
    pub(super) records: Records,
    /// Fields that each version had for itself when the object was stored; `None` if an earlier
    /// program stored it.
    pub(super) own: Option<OwnFields>,
    /// Values that a version has no field for: others may have one.
    pub(super) lost: Vec<Patch>,
    /// True if the stored object itself holds such values.
    pub(super) has_unknown: bool,
    /// True if a write follows that may bring lists back: what the union has for their items waits.
    pub(super) awaits_lists: bool,
    /// True if a write follows, which needs to know what versions have no field for.
    pub(super) to_write: bool,
    pub(super) made: BTreeMap<usize, Json>,
}

impl<'a> Views<'a> {
    pub(super) fn open(
        bundle: &'a Bundle,
        root: usize,
        stored: Stored<'a>,
        budget: &mut Budget,
    ) -> Result<Self, ConvertError> {
        let mut views = Self::decode(bundle, root, stored)?;
        if views.are_split()
            && let Ok(joined) = views.joined(budget)
        {
            // An object whose rules fail reads as far as it did before.
            views.residuals = joined.residuals;
        }
        Ok(views.with_gained(budget))
    }

    /// Returns the views of an object as it was stored.
    pub(super) fn decode(bundle: &'a Bundle, root: usize, stored: Stored<'a>) -> Result<Self, ConvertError> {
        let version = &bundle.versions[root];
        let malformed = |why| bundle.failure(&version.name, &version.name, Cause::Residual(why));
        let (mut residuals, beside) = residual::decode(stored.residual).map_err(malformed)?;
        let records = written::records(beside.as_ref()).map_err(malformed)?;
        let own = written::own(beside.as_ref()).map_err(malformed)?;
        let retained = retained::take(&mut residuals);
        let object = Cow::Borrowed(stored.value);
        let back = retained.get(&version.name);
        let raw = match back.filter(|patch| retained::knows(&version.schema, patch)) {
            Some(patch) => Cow::Owned(retained::show(&version.schema, patch, stored.value.clone())),
            None => Cow::Borrowed(stored.value),
        };
        let mut stored = raw.clone();
        if version.has_defaults {
            insula_schema::default(stored.to_mut(), &version.schema);
        }
        Ok(Views {
            bundle,
            root,
            object,
            raw,
            stored,
            residuals,
            retained,
            records,
            own,
            lost: Vec::new(),
            has_unknown: false,
            awaits_lists: false,
            to_write: false,
            made: BTreeMap::new(),
        })
    }

    /// Returns the object as readers of version `to` receive it.
    pub(super) fn read(mut self, to: usize, budget: &mut Budget) -> Result<Json, ConvertError> {
        if to == self.root {
            return Ok(self.bundle.relabelled(&self.raw, to));
        }
        self.make(to, budget)?;
        Ok(self.made.remove(&to).unwrap_or_default())
    }

    pub(super) fn make(&mut self, version: usize, budget: &mut Budget) -> Result<(), ConvertError> {
        if version == self.root || self.made.contains_key(&version) {
            return Ok(());
        }
        let Some(parent) = self.bundle.parent(self.root, version) else {
            return Ok(());
        };
        self.make(parent, budget)?;
        let target = &self.bundle.versions[version];
        let patch = self.residuals.get(&target.name);
        let mut trace = Trace::default();
        let wanted = patch.is_some_and(Patch::has_guard);
        let base = self
            .bundle
            .route(parent, version, self.view(parent), budget, wanted.then_some(&mut trace))?;
        let base = self.with_lost(version, base);
        let shown = match patch {
            Some(patch) => residual::apply_objects(&target.schema, patch, base, &trace),
            None => base,
        };
        let shown = self.with_shared_lists(version, shown, budget);
        let shown = self.with_retained(version, shown);
        self.made.insert(version, shown);
        Ok(())
    }

    /// Returns a view; [`Views::make`] must have made it.
    pub(super) fn view(&self, version: usize) -> &Json {
        self.made.get(&version).unwrap_or(&self.stored)
    }
}

/// Writes a new object.
pub(super) fn create(bundle: &Bundle, x: &Json, from: usize, budget: &mut Budget) -> Result<ToStore, ConvertError> {
    let root = bundle.storage;
    let mut views = BTreeMap::from([(from, x.clone())]);
    let mut at = from;
    while let Some(parent) = bundle.parent(root, at) {
        let mut up = bundle.route(at, parent, &views[&at], budget, None)?;
        if bundle.share_lists(from, parent) {
            bundle.give_lists((from, None, x), (parent, &mut up));
            up = bundle.versions[parent].tidied(up);
        }
        views.insert(parent, up);
        at = parent;
    }
    let mut write = Write {
        bundle,
        root,
        old: None,
        raw: None,
        views,
        residuals: BTreeMap::new(),
        retained: BTreeMap::new(),
        carried: BTreeMap::new(),
        records: Records::new(),
        writer: Some(from),
        own: None,
        from,
        budget,
    };
    write.finish()
}

/// Writes over a stored object.
pub(super) fn update(
    bundle: &Bundle,
    x: &Json,
    from: usize,
    old: Stored<'_>,
    budget: &mut Budget,
) -> Result<ToStore, ConvertError> {
    let root = bundle.index(old.version)?;
    if root != bundle.storage {
        let moved = migrate(bundle, root, old, budget)?;
        return update(
            bundle,
            x,
            from,
            moved.stored(&bundle.versions[bundle.storage].name),
            budget,
        );
    }
    let mut before = Views::open_to_write(bundle, root, old, budget)?;
    before.make(from, budget)?;
    if let Some(unchanged) = without_conversion(&before, x, from, old) {
        return Ok(unchanged);
    }
    write_over(before, x, from, Some(from), budget)
}

/// Writes an object of a version over the views of a stored object. `writer`: as in [`Write`].
pub(super) fn write_over(
    mut before: Views<'_>,
    x: &Json,
    from: usize,
    writer: Option<usize>,
    budget: &mut Budget,
) -> Result<ToStore, ConvertError> {
    let (bundle, root) = (before.bundle, before.root);
    let mut views = BTreeMap::from([(from, x.clone())]);
    let (mut raw, mut carried) = (None, BTreeMap::new());
    let mut at = from;
    while let Some(parent) = bundle.parent(root, at) {
        before.make(parent, budget)?;
        before.make_sharers(parent, budget);
        let onto = if parent == root {
            &*before.raw
        } else {
            before.view(parent)
        };
        let target = &bundle.versions[parent];
        let edit = ConvertedEdit::convert(bundle, (at, parent), (before.view(at), &views[&at]), budget)?;
        let mut merged = edit.onto(&before.with_foreign(parent, onto));
        carried.extend(before.carried(parent, &edit));
        if bundle.has_lists(parent) {
            bundle.give_lists((from, Some(before.view(from)), x), (parent, &mut merged));
        }
        if parent == root && target.has_defaults {
            raw = Some(merged.clone());
        }
        views.insert(parent, target.tidied(merged));
        at = parent;
    }
    let (residuals, records, own) = (before.residuals.clone(), before.records.clone(), before.own.clone());
    let mut write = Write {
        bundle,
        root,
        old: Some(before),
        raw,
        views,
        residuals,
        retained: BTreeMap::new(),
        carried,
        records,
        writer,
        own,
        from,
        budget,
    };
    write.finish()
}

/// Returns what to store if the write changes nothing, or only metadata that no rule sees.
fn without_conversion(before: &Views<'_>, x: &Json, from: usize, old: Stored<'_>) -> Option<ToStore> {
    let bundle = before.bundle;
    let own;
    let shown = if from == before.root {
        own = bundle.relabelled(&before.raw, from);
        &own
    } else {
        before.view(from)
    };
    let stands = || old.residual.map(<[u8]>::to_vec);
    if shown == x {
        return Some(ToStore {
            value: old.value.clone(),
            residual: stands(),
        });
    }
    same_content(bundle, shown, x).then(|| ToStore {
        value: with_metadata(bundle, &before.raw, x),
        residual: match before.raw {
            Cow::Borrowed(_) => stands(),
            Cow::Owned(_) => encoded(
                before.residuals.clone(),
                &before.retained,
                &before.records,
                Some(&bundle.own_fields(before.root, &before.residuals, (&before.retained, before.own.as_ref()))),
            ),
        },
    })
}

/// Moves a stored object to the current storage version; every version reads as before.
fn migrate(bundle: &Bundle, root: usize, old: Stored<'_>, budget: &mut Budget) -> Result<ToStore, ConvertError> {
    let mut before = Views::open_to_write(bundle, root, old, budget)?;
    let mut views = BTreeMap::new();
    let mut residuals = before.residuals.clone();
    for (v, version) in bundle.versions.iter().enumerate() {
        match before.make(v, budget) {
            Ok(()) => views.insert(v, before.view(v).clone()),
            Err(error) if version.served || v == bundle.storage => return Err(error),
            Err(_) => None,
        };
        residuals.remove(&version.name);
    }
    if bundle.is_alone_with(root) {
        let union = union_of(bundle, root, (&views[&bundle.hub], &views[&root]), budget)?;
        views.insert(bundle.top, union);
    }
    let records = bundle.moved_records(&before.records, root);
    let retained = before.without_shown(views.keys().copied(), before.retained.clone());
    let mut write = Write {
        bundle,
        root: bundle.storage,
        old: None,
        raw: None,
        views,
        residuals,
        retained,
        carried: BTreeMap::new(),
        records,
        writer: None,
        own: before.own,
        from: root,
        budget,
    };
    write.finish()
}

/// A write in progress: the new views made so far, and their residuals.
pub(super) struct Write<'a, 'b> {
    pub(super) bundle: &'a Bundle,
    /// The version that the object is stored in.
    pub(super) root: usize,
    pub(super) old: Option<Views<'a>>,
    /// The object to store without defaults, if its schema has some.
    pub(super) raw: Option<Json>,
    pub(super) views: BTreeMap<usize, Json>,
    pub(super) residuals: BTreeMap<String, Patch>,
    /// Retained values of a write that has no old views.
    pub(super) retained: BTreeMap<String, Patch>,
    /// Retained values of versions that a converted edit has reached, after it.
    pub(super) carried: BTreeMap<String, Option<Patch>>,
    pub(super) records: Records,
    /// The version of the client that writes; `None` if nobody wrote anything new.
    pub(super) writer: Option<usize>,
    /// Fields that versions had for themselves before.
    pub(super) own: Option<OwnFields>,
    /// The version that is written.
    pub(super) from: usize,
    pub(super) budget: &'b mut Budget,
}

impl Write<'_, '_> {
    pub(super) fn finish(&mut self) -> Result<ToStore, ConvertError> {
        let (bundle, root, from) = (self.bundle, self.root, self.from);
        let mut known: Vec<usize> = self.views.keys().copied().filter(|v| *v != root).collect();
        // Parents first: a version's residual depends on the new view of its parent.
        known.sort_by_key(|v| bundle.parent(root, *v) != Some(root));
        for version in known {
            self.remember(version)?;
        }
        let mut order: Vec<usize> = (0..bundle.versions.len())
            .filter(|v| !self.views.contains_key(v))
            .collect();
        // Parents first: versions other than the root's children are read from the hub.
        order.sort_unstable_by_key(|v| (bundle.parent(root, *v) != Some(root), *v));
        for version in order {
            let needed = self.needed(version);
            let must_read = bundle.versions[version].served && version != from && bundle.chain_can_fail(root, version);
            if needed || must_read {
                match self.follow(version, needed) {
                    // The version is not served; its residual stays as it is.
                    Err(_) if !bundle.versions[version].served => {}
                    followed => followed?,
                }
            }
        }
        // Tells that what versions share has one home: earlier programs had one for each version.
        if bundle.top != bundle.hub && !self.residuals.is_empty() {
            let none = || Patch::Fields(BTreeMap::new());
            self.residuals.entry(UNION.to_owned()).or_insert_with(none);
        }
        self.retain();
        self.record();
        let read = self.views.remove(&root).unwrap_or_default();
        let mut value = self.raw.take().unwrap_or(read);
        let own = bundle.own_fields(root, &self.residuals, (&self.retained, self.own.as_ref()));
        if let Some(map) = value.as_object_mut() {
            map.insert("apiVersion".to_owned(), bundle.api_version(root));
        }
        Ok(ToStore {
            value,
            residual: encoded(
                std::mem::take(&mut self.residuals),
                &self.retained,
                &self.records,
                Some(&own),
            ),
        })
    }

    /// Returns true if there is a residual for this version, or for one that is read from it.
    fn needed(&self, version: usize) -> bool {
        let retained = self.old.iter().flat_map(|old| old.retained.keys());
        let retained: Vec<usize> = retained.filter_map(|name| self.bundle.index(name).ok()).collect();
        let has = |v: usize| self.residuals.contains_key(&self.bundle.versions[v].name) || retained.contains(&v);
        let root = self.root;
        let shows_lost = self.old.as_ref().is_some_and(|old| old.shows_lost(version));
        let shares_list = self.bundle.share_lists(self.from, version)
            || self.old.as_ref().is_some_and(|old| old.has_shared_list(version));
        shows_lost
            || shares_list
            || has(version)
            || (0..self.bundle.versions.len()).any(|v| self.bundle.parent(root, v) == Some(version) && has(v))
    }

    /// Stores in a residual what the conversion to this version would lose.
    fn remember(&mut self, version: usize) -> Result<(), ConvertError> {
        let target = &self.bundle.versions[version];
        let Some(parent) = self.bundle.parent(self.root, version) else {
            return Ok(());
        };
        let Some(above) = self.views.get(&parent) else {
            return Ok(());
        };
        let base = self.bundle.route(parent, version, above, self.budget, None)?;
        let mut object = Cow::Borrowed(&self.views[&version]);
        if !target.drop.is_empty() {
            residual::forget(object.to_mut(), &base, &target.drop);
        }
        let patch = residual_of(self.bundle, (parent, version), (above, &base), &object, self.budget)?;
        match patch {
            Some(patch) => self.residuals.insert(target.name.clone(), patch),
            None => self.residuals.remove(&target.name),
        };
        if let Cow::Owned(kept) = object {
            self.views.insert(version, kept);
        }
        Ok(())
    }

    /// Makes the new view of a version that was not written: its old view merged with the converted
    /// edit.
    fn follow(&mut self, version: usize, needed: bool) -> Result<(), ConvertError> {
        let bundle = self.bundle;
        let target = &bundle.versions[version];
        let Some(parent) = bundle.parent(self.root, version) else {
            return Ok(());
        };
        if !self.views.contains_key(&parent) {
            self.follow(parent, false)?;
        }
        let Some(above) = self.views.get(&parent) else {
            return Ok(());
        };
        let old = self.old.as_mut().filter(|_| needed);
        let mut old = old.and_then(|old| old.make(version, self.budget).is_ok().then_some(old));
        let made = match &mut old {
            Some(old) => {
                old.make_sharers(version, self.budget);
                let sides = (old.view(parent), above);
                ConvertedEdit::convert(bundle, (parent, version), sides, self.budget).map(|edit| {
                    self.carried.extend(old.carried(version, &edit));
                    target.tidied(edit.onto(&old.with_foreign(version, old.view(version))))
                })
            }
            None => bundle.route(parent, version, above, self.budget, None),
        };
        let mut made = made?;
        let shares_list = bundle.share_lists(self.from, version);
        let is_kept = old.is_some() || shares_list;
        if shares_list {
            let before = old.map(|old| old.view(self.from));
            bundle.give_lists((self.from, before, &self.views[&self.from]), (version, &mut made));
            made = target.tidied(made);
        }
        self.views.insert(version, made);
        match is_kept {
            true => self.remember(version),
            false => Ok(()),
        }
    }
}
