//! One API's versions and rules, compiled; what is stored, and how it is read and written in every
//! version.

use crate::convert::Converter;
use crate::error::{Cause, ConvertError};
use crate::passthrough::same_shape;
use crate::path::Path;
use crate::rules::RuleSet;
use crate::trace::Trace;
use insula_api::{FieldError, FieldPath, Json};
use insula_cel::Budget;
use insula_schema::{Node, Structural};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

mod compile;
mod price;
mod stored;

pub use price::{MayFail, Outlook};

/// Versions of one API.
pub const VERSIONS_MAX: usize = 64;

/// One version of an API.
#[derive(Debug, Clone)]
pub struct VersionSchema {
    /// Its name, e.g. `v1beta1`.
    pub name: String,
    /// Whether it is served; only served versions must be readable.
    pub served: bool,
    /// Its schema.
    pub schema: Arc<Structural>,
}

/// What becomes of fields that another version lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossPolicy {
    /// Nothing is lost: what a version shows and another cannot hold is kept as a residual.
    Lossless,
    /// Kubernetes' `None` for plain definitions: only `apiVersion` changes, and fields that the
    /// storage version lacks are lost.
    None,
}

/// An object as it is stored.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'a> {
    /// The object in `version`.
    pub value: &'a Json,
    /// The version it was stored in; not always today's storage version.
    pub version: &'a str,
    /// What was stored beside it.
    pub residual: Option<&'a [u8]>,
}

/// An object to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct ToStore {
    /// The object in the storage version.
    pub value: Json,
    /// What is stored beside it: canonical JSON.
    pub residual: Option<Vec<u8>>,
}

impl ToStore {
    /// The same, borrowed, in the given storage version.
    pub fn stored<'a>(&'a self, version: &'a str) -> Stored<'a> {
        Stored {
            value: &self.value,
            version,
            residual: self.residual.as_deref(),
        }
    }
}

/// Compiled plans between all versions of one API. Immutable; shared by all tenants that bind it.
#[derive(Debug)]
pub struct Bundle {
    group: String,
    pub(crate) versions: Vec<Version>,
    storage: usize,
    hub: usize,
    loss_policy: LossPolicy,
    /// Whether any rule reads or writes labels, annotations or names.
    rules_see_metadata: bool,
    pub(crate) converters: BTreeMap<(usize, usize), Converter>,
    /// Whether all expressions together may cost more than one object's conversions are allowed.
    over_budget: bool,
}

#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) name: String,
    served: bool,
    pub(crate) schema: Arc<Structural>,
    /// Whether a read can add defaults that were not there when the object was stored.
    has_defaults: bool,
    /// Paths whose loss the author accepts.
    pub(crate) drop: Vec<Path>,
}

impl Bundle {
    /// Compiles and checks everything that needs no object. `path` is where the rules stand
    /// (`spec`).
    ///
    /// # Errors
    /// Every rule that names what does not exist, does not compile, or contradicts another; each
    /// with its field.
    pub fn compile(
        group: &str,
        versions: Vec<VersionSchema>,
        storage: &str,
        rules: Option<&RuleSet>,
        loss_policy: LossPolicy,
        path: &FieldPath,
    ) -> Result<Bundle, Vec<FieldError>> {
        compile::compile(group, versions, storage, rules, loss_policy, path)
    }

    /// Reads a stored object in version `to`.
    ///
    /// # Errors
    /// A version that does not exist, or a rule that fails for this object.
    pub fn get(&self, stored: Stored<'_>, to: &str, budget: &mut Budget) -> Result<Json, ConvertError> {
        let to = self.index(to)?;
        if self.loss_policy == LossPolicy::None {
            return Ok(match self.index(stored.version) {
                Ok(root) if root != to => self.renamed(&self.relabelled(stored.value, root), to),
                _ => self.relabelled(stored.value, to),
            });
        }
        if let Some(root) = self.readable_root(stored.version, stored.residual, to) {
            return self.read_alone(root, to, Cow::Borrowed(stored.value), budget);
        }
        let root = self.index(stored.version)?;
        stored::Views::open(self, root, stored)?.read(to, budget)
    }

    /// As [`Bundle::get`] of an object that its caller needs no more: what stays where it is is not
    /// copied.
    ///
    /// # Errors
    /// As [`Bundle::get`].
    pub fn get_owned(
        &self,
        value: Json,
        version: &str,
        residual: Option<&[u8]>,
        to: &str,
        budget: &mut Budget,
    ) -> Result<Json, ConvertError> {
        let target = self.index(to)?;
        if let Some(root) = self.readable_root(version, residual, target) {
            return self.read_alone(root, target, Cow::Owned(value), budget);
        }
        let stored = Stored {
            value: &value,
            version,
            residual,
        };
        self.get(stored, to, budget)
    }

    /// Writes `x`, an object of version `from` that its caller has pruned, defaulted and validated,
    /// over what is stored.
    ///
    /// # Errors
    /// A rule that fails for this object, in any served version: nothing is stored that cannot be
    /// read.
    pub fn put(
        &self,
        x: &Json,
        from: &str,
        old: Option<Stored<'_>>,
        budget: &mut Budget,
    ) -> Result<ToStore, ConvertError> {
        let from = self.index(from)?;
        if self.loss_policy == LossPolicy::None {
            return Ok(ToStore {
                value: self.relabelled(x, self.storage),
                residual: None,
            });
        }
        match old {
            None => stored::create(self, x, from, budget),
            Some(old) => stored::update(self, x, from, old, budget),
        }
    }

    /// Converts an object without what is stored beside it: for tools and partial objects.
    ///
    /// # Errors
    /// An `apiVersion` or version that does not exist, or a rule that fails for this object.
    pub fn convert(&self, object: &Json, to: &str, budget: &mut Budget) -> Result<Json, ConvertError> {
        let from = object["apiVersion"].as_str().unwrap_or_default();
        let from = self.index(from.rsplit('/').next().unwrap_or_default())?;
        let to = self.index(to)?;
        if self.loss_policy == LossPolicy::None {
            return Ok(self.renamed(object, to));
        }
        if from == to {
            return Ok(self.relabelled(object, to));
        }
        self.route(from, to, object, budget, None)
    }

    /// Whether objects of the two versions differ in `apiVersion` only, so that bytes may be
    /// spliced (where no residual is stored).
    pub fn is_identity(&self, from: &str, to: &str) -> bool {
        let (Ok(from), Ok(to)) = (self.index(from), self.index(to)) else {
            return false;
        };
        let (a, b) = (&self.versions[from].schema, &self.versions[to].schema);
        from == to || same_shape(a.root(), b.root()) && !self.hops(from, to).any(|hop| hop.ruled)
    }

    /// The storage version.
    pub fn storage(&self) -> &str {
        &self.versions[self.storage].name
    }

    /// The hub.
    pub fn hub(&self) -> &str {
        &self.versions[self.hub].name
    }

    /// What becomes of fields that another version lacks.
    pub(crate) fn loss_policy(&self) -> LossPolicy {
        self.loss_policy
    }

    /// Whether every version shows what was written through it, to the last field: none is given
    /// up, and none dropped.
    pub fn shows_what_is_written(&self) -> bool {
        self.loss_policy == LossPolicy::Lossless && self.versions.iter().all(|version| version.drop.is_empty())
    }

    /// Whether what is stored is read with defaults in its own version.
    pub fn storage_has_defaults(&self) -> bool {
        self.versions[self.storage].has_defaults
    }

    /// All versions, in the order of the schema.
    pub fn versions(&self) -> impl Iterator<Item = &str> {
        self.versions.iter().map(|version| version.name.as_str())
    }

    /// The schema of a version.
    pub fn schema(&self, version: &str) -> Option<&Arc<Structural>> {
        self.versions.iter().find(|v| v.name == version).map(|v| &v.schema)
    }

    /// The versions that clients can use.
    pub fn served(&self) -> impl Iterator<Item = &str> {
        self.versions.iter().filter(|v| v.served).map(|v| v.name.as_str())
    }

    /// Whether rules read or write labels, annotations or names.
    pub fn rules_see_metadata(&self) -> bool {
        self.rules_see_metadata
    }

    /// Whether somebody wrote rules between its versions.
    pub fn has_rules(&self) -> bool {
        self.converters.values().any(|converter| converter.ruled)
    }

    /// The direction's own plan.
    pub(crate) fn converter(&self, from: &str, to: &str) -> Option<&Converter> {
        self.converters.get(&(self.index(from).ok()?, self.index(to).ok()?))
    }

    /// What objects of a version have as their `apiVersion`.
    pub(crate) fn api_version_of(&self, version: &str) -> Option<Json> {
        Some(self.api_version(self.index(version).ok()?))
    }

    /// The ways that an edit of a version goes, in the order of a write: from it up to the stored
    /// one, and from those to the others.
    pub(crate) fn edit_hops(&self, from: &str) -> Vec<(&str, &str)> {
        let root = self.storage;
        let Ok(mut at) = self.index(from) else {
            return Vec::new();
        };
        // Without the laws, nothing is followed.
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

    /// An object in another version, and what was computed of what there.
    pub(crate) fn traced(&self, object: &Json, to: &str, budget: &mut Budget) -> Result<(Json, Trace), ConvertError> {
        let from = object["apiVersion"].as_str().unwrap_or_default();
        let from = self.index(from.rsplit('/').next().unwrap_or_default())?;
        let mut trace = Trace::default();
        let made = self.route(from, self.index(to)?, object, budget, Some(&mut trace))?;
        Ok((made, trace))
    }

    /// The object without what its author lets be lost.
    pub(crate) fn without_dropped(&self, object: &Json, version: &str) -> Json {
        let mut kept = object.clone();
        if let Ok(version) = self.index(version) {
            crate::residual::forget(&mut kept, &Json::Null, &self.versions[version].drop);
        }
        kept
    }

    fn index(&self, version: &str) -> Result<usize, ConvertError> {
        let found = self.versions.iter().position(|v| v.name == version);
        found.ok_or_else(|| self.failure(version, version, Cause::UnknownVersion(version.to_owned())))
    }

    pub(crate) fn failure(&self, from: &str, to: &str, cause: Cause) -> ConvertError {
        ConvertError {
            group: self.group.clone(),
            from: from.to_owned(),
            to: to.to_owned(),
            rule: None,
            cause,
        }
    }

    fn api_version(&self, version: usize) -> Json {
        let name = &self.versions[version].name;
        Json::String(if self.group.is_empty() {
            name.clone()
        } else {
            format!("{}/{name}", self.group)
        })
    }

    /// The same object under another version's name, as far as its schema goes, and with its
    /// defaults.
    fn relabelled(&self, object: &Json, to: usize) -> Json {
        let mut out = self.renamed(object, to);
        insula_schema::default(&mut out, &self.versions[to].schema);
        out
    }

    /// The same object under another version's name, as far as its schema goes. Without rules its
    /// defaults are for those who write in it: Kubernetes adds none to what was stored in another
    /// version.
    fn renamed(&self, object: &Json, to: usize) -> Json {
        let mut out = object.clone();
        if let Some(map) = out.as_object_mut() {
            map.insert("apiVersion".to_owned(), self.api_version(to));
        }
        insula_schema::prune(&mut out, &self.versions[to].schema);
        out
    }

    /// The converters from `a` to `b`: the pair's own, else by the hub.
    fn hops(&self, a: usize, b: usize) -> impl Iterator<Item = &Converter> {
        let direct = self.converters.get(&(a, b));
        let by_hub = [(a, self.hub), (self.hub, b)]
            .into_iter()
            .filter_map(|pair| self.converters.get(&pair));
        let hub_needed = direct.is_none();
        direct.into_iter().chain(by_hub.filter(move |_| hub_needed))
    }

    fn can_fail(&self, a: usize, b: usize) -> bool {
        self.hops(a, b)
            .any(|hop| hop.can_fail() || self.over_budget && hop.ruled)
    }

    /// The version of a stored object, where another one is made of the object alone: nothing lies
    /// beside it, and no third version between them.
    fn readable_root(&self, version: &str, residual: Option<&[u8]>, to: usize) -> Option<usize> {
        let root = self.index(version).ok()?;
        let readable_root = residual.is_none() && self.loss_policy != LossPolicy::None;
        (readable_root && self.parent(root, to) == Some(root)).then_some(root)
    }

    /// That object in that version.
    fn read_alone(
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

    fn route(
        &self,
        a: usize,
        b: usize,
        object: &Json,
        budget: &mut Budget,
        mut trace: Option<&mut Trace>,
    ) -> Result<Json, ConvertError> {
        let mut made: Option<Json> = None;
        for hop in self.hops(a, b) {
            // Inputs of the last hop's rules are what its results were computed from.
            let trace = if hop.to == self.versions[b].name {
                trace.take()
            } else {
                None
            };
            made = Some(hop.run(made.as_ref().unwrap_or(object), budget, trace)?);
        }
        Ok(made.unwrap_or_else(|| self.relabelled(object, b)))
    }

    /// In the tree of versions whose root is stored, the version that `version` is read from.
    fn parent(&self, root: usize, version: usize) -> Option<usize> {
        let direct = |a, b| self.converters.get(&(a, b)).is_some_and(|c| c.ruled);
        if version == root {
            None
        } else if version == self.hub || root == self.hub || direct(root, version) || direct(version, root) {
            Some(root)
        } else {
            Some(self.hub)
        }
    }
}

impl Version {
    /// What was merged or patched, as a reader gets it: an object that is back in place has its
    /// defaults again.
    fn tidied(&self, mut object: Json) -> Json {
        insula_schema::prune(&mut object, &self.schema);
        if self.has_defaults {
            insula_schema::default(&mut object, &self.schema);
        }
        object
    }
}

fn has_defaults(node: &Node) -> bool {
    node.default().is_some()
        || node.items().is_some_and(has_defaults)
        || node.additional().is_some_and(has_defaults)
        || node.properties().any(|(_, child)| has_defaults(child))
}
