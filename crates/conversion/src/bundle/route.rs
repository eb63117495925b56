//! Ways between versions: the tree of a stored object, and the converters along its edges.

use super::{Bundle, LossPolicy, Version, written};
use crate::carried::Claims;
use crate::convert::Converter;
use crate::error::ConvertError;
use crate::residual::retained;
use crate::trace::Trace;
use insula_api::Json;
use insula_cel::Budget;
use std::borrow::Cow;

impl Bundle {
    /// Returns the pairs of versions with the claims of the rules between them. A version with
    /// rules of its own to a storage version that is no hub has no pair but with that.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&Version, &Version, &Claims)> {
        let (root, lossless) = (self.storage, self.loss_policy == LossPolicy::Lossless);
        let beside = move |version: usize| self.is_direct(root, version);
        let all = self.claims.iter().filter(move |_| lossless);
        all.filter_map(move |((a, b), claims)| {
            let lone = beside(*a) && *b != root || beside(*b) && *a != root;
            (!lone).then(|| Some((self.versions.get(*a)?, self.versions.get(*b)?, claims)))?
        })
    }

    /// Returns the conversions that follow an edit in version `from`, in the order of a write: up
    /// to the stored version, then from there to the others.
    pub(crate) fn edit_hops(&self, from: &str) -> Vec<(&str, &str)> {
        let root = self.storage;
        let Ok(mut at) = self.index(from) else {
            return Vec::new();
        };
        // Without a residual, the laws do not apply.
        if self.loss_policy == LossPolicy::None {
            return Vec::new();
        }
        let (mut known, mut edit_hops) = (vec![at], Vec::new());
        while let Some(parent) = self.parent(root, at) {
            edit_hops.push((at, parent));
            known.push(parent);
            at = parent;
        }
        let others = (0..self.versions.len()).filter(|version| !known.contains(version));
        edit_hops.extend(others.filter_map(|version| Some((self.parent(root, version)?, version))));
        let name = |version: usize| self.versions[version].name.as_str();
        edit_hops.into_iter().map(|(a, b)| (name(a), name(b))).collect()
    }

    /// Returns the converters from `a` to `b`: the pair's own, else those through the union or hub.
    pub(super) fn hops(&self, a: usize, b: usize) -> impl Iterator<Item = &Converter> {
        let edge = |pair| self.converters.get(&pair).or_else(|| self.shared.get(&pair));
        let direct = edge((a, b));
        let by_top = [(a, self.top), (self.top, b)].into_iter().filter_map(edge);
        let is_far = direct.is_none();
        direct.into_iter().chain(by_top.filter(move |_| is_far))
    }

    pub(super) fn can_fail(&self, a: usize, b: usize) -> bool {
        self.hops(a, b)
            .any(|hop| hop.can_fail() || self.over_budget && hop.ruled)
    }

    /// Returns true if the author says something about a field between two versions.
    pub(crate) fn are_decided(&self, a: &str, b: &str) -> bool {
        let (Ok(a), Ok(b)) = (self.index(a), self.index(b)) else {
            return false;
        };
        self.hops(a, b).chain(self.hops(b, a)).any(|hop| hop.decided)
    }

    /// Returns the stored version if `to` can be read from the object alone: there is no residual
    /// and nothing between the two. The hub alone shows all of the union that it has.
    pub(super) fn readable_root(&self, version: &str, residual: Option<&[u8]>, to: usize) -> Option<usize> {
        let root = self.index(version).ok()?;
        let alone = residual.is_none_or(written::is_alone);
        let is_alone = alone && self.loss_policy != LossPolicy::None;
        let is_next = root == self.hub && to != root || self.parent(root, to) == Some(root);
        (is_alone && is_next).then_some(root)
    }

    /// Returns true if the schema of a version has fields for all that an object holds. Other
    /// versions may show what it has none for.
    pub(super) fn knows(&self, version: usize, object: &Json) -> bool {
        retained::unknown(&self.versions[version].schema, object).is_none()
    }

    /// Reads a stored object that needs no residual, in version `to`.
    pub(super) fn read_alone(
        &self,
        root: usize,
        to: usize,
        stored: Cow<'_, Json>,
        budget: &mut Budget,
    ) -> Result<Json, ConvertError> {
        let mut object = stored;
        let version = &self.versions[root];
        if version.has_defaults {
            insula_schema::default(object.to_mut(), &version.schema);
        }
        let mut hops = self.hops(root, to).peekable();
        if hops.peek().is_none() {
            return Ok(self.relabelled(&object, to));
        }
        for hop in hops {
            object = Cow::Owned(match object {
                Cow::Borrowed(object) => hop.run(object, budget, None)?,
                Cow::Owned(object) => hop.run_over(object, budget)?,
            });
        }
        Ok(object.into_owned())
    }

    pub(super) fn route(
        &self,
        a: usize,
        b: usize,
        object: &Json,
        budget: &mut Budget,
        mut trace: Option<&mut Trace>,
    ) -> Result<Json, ConvertError> {
        if self.is_part(a, b) {
            return Ok(self.versions[b].tidied(object.clone()));
        }
        let mut made: Option<Json> = None;
        let mut hops = self.hops(a, b).peekable();
        while let Some(hop) = hops.next() {
            // The trace records the inputs of the last converter's rules.
            let trace = if hops.peek().is_none() { trace.take() } else { None };
            made = Some(hop.run(made.as_ref().unwrap_or(object), budget, trace)?);
        }
        Ok(made.unwrap_or_else(|| self.relabelled(object, b)))
    }

    /// Converts an object that is a side of an edit, and traces the inputs of computed values.
    pub(super) fn side(
        &self,
        a: usize,
        b: usize,
        object: &Json,
        budget: &mut Budget,
    ) -> Result<(Json, Trace), ConvertError> {
        let mut trace = Trace::default();
        if self.is_part(a, b) {
            return Ok((object.clone(), trace));
        }
        let mut made: Option<Json> = None;
        let mut hops = self.hops(a, b).peekable();
        while let Some(hop) = hops.next() {
            let source = made.as_ref().unwrap_or(object);
            made = Some(match hops.peek() {
                Some(_) => hop.run(source, budget, None)?,
                None => hop.run_side(source, budget, &mut trace)?,
            });
        }
        Ok((made.unwrap_or_else(|| self.relabelled(object, b)), trace))
    }

    /// Returns the parent of `version` in the tree of versions whose root is the stored version.
    pub(super) fn parent(&self, root: usize, version: usize) -> Option<usize> {
        if version == root {
            None
        } else if version == self.top || root == self.top || self.is_direct(root, version) {
            Some(root)
        } else {
            Some(self.top)
        }
    }

    /// Returns true if there is a union and the hub is made from a stored version beside it, past
    /// the union: two versions with rules share nothing with a third.
    pub(super) fn is_alone_with(&self, root: usize) -> bool {
        self.top != self.hub && root != self.hub && self.parent(root, self.hub) == Some(root)
    }

    /// Returns true if a rule on the way from the stored version may fail.
    pub(super) fn chain_can_fail(&self, root: usize, version: usize) -> bool {
        let mut at = version;
        while let Some(parent) = self.parent(root, at) {
            if self.can_fail(parent, at) {
                return true;
            }
            at = parent;
        }
        false
    }

    /// Returns true if `to` is the union and `from` the hub: the hub's object is one of the union.
    pub(super) fn is_part(&self, from: usize, to: usize) -> bool {
        self.top != self.hub && (from, to) == (self.hub, self.top)
    }

    /// Returns true if a version is converted by its rules with the stored version alone, past the
    /// union: if it has none with the hub, or is the hub and the only other version.
    fn is_direct(&self, root: usize, version: usize) -> bool {
        let ruled = |a, b| self.converters.get(&(a, b)).is_some_and(|converter| converter.ruled);
        let are_ruled = |a, b| ruled(a, b) || ruled(b, a);
        if version == self.hub {
            // The hub is made from the union, unless there is no version to share it with.
            let versions = self.versions.len() - usize::from(self.top != self.hub);
            return versions == 2 && are_ruled(root, version);
        }
        root != self.hub && are_ruled(root, version) && !are_ruled(version, self.hub)
    }
}
