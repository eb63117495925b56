//! Compiled versions and rules of one API. Reads and writes stored objects in every version.

use crate::carried::Claims;
use crate::convert::Converter;
use crate::error::{Cause, ConvertError};
use crate::passthrough::same_shape;
use crate::path::Path;
use crate::rules::{RuleSet, Validation};
use crate::trace::Trace;
use crate::union::UNION;
use insula_api::{FieldError, FieldPath, Json};
use insula_cel::Budget;
use insula_schema::{Node, Structural};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

mod compile;
mod edit;
mod gained;
mod idle;
mod joined;
mod metadata;
mod overwritten;
mod own;
mod price;
mod recompute;
mod renamed;
mod retained;
mod route;
mod shared_list;
mod stored;
mod written;

pub use price::{MayFail, Outlook};
pub use recompute::{Difference, Owns, Recomputed, Step, Writer};
pub use written::{RULES_UNKNOWN, Written, written};

/// Maximum number of versions that one API may have.
pub const VERSIONS_MAX: usize = 64;

/// One version of an API.
#[derive(Debug, Clone)]
pub struct VersionSchema {
    /// Its name, e.g. `v1beta1`.
    pub name: String,
    /// True if clients can use it; only served versions must be readable.
    pub served: bool,
    /// Its schema.
    pub schema: Arc<Structural>,
}

/// Treatment of fields that another version lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossPolicy {
    /// Nothing is lost: fields that another version cannot hold are kept in a residual.
    Lossless,
    /// Kubernetes' strategy `None`: only `apiVersion` changes, and fields that the storage version
    /// lacks are lost.
    None,
}

/// An object as it is stored.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'a> {
    /// The object in `version`.
    pub value: &'a Json,
    /// The version in which it was stored; may differ from the current storage version.
    pub version: &'a str,
    /// The residual stored with it: canonical JSON.
    pub residual: Option<&'a [u8]>,
}

/// An object to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct ToStore {
    /// The object in the storage version.
    pub value: Json,
    /// The residual to store with it: canonical JSON; `None` when nothing is lost.
    pub residual: Option<Vec<u8>>,
}

impl ToStore {
    /// Borrows the object as one that is stored in the given version.
    pub fn stored<'a>(&'a self, version: &'a str) -> Stored<'a> {
        Stored {
            value: &self.value,
            version,
            residual: self.residual.as_deref(),
        }
    }
}

/// Compiled plans between all versions of one API. Immutable; shared by all tenants that bind the
/// API.
#[derive(Debug)]
pub struct Bundle {
    group: String,
    /// The kind of objects that searches make.
    kind: String,
    /// The versions, and the union of them behind, if the hub lacks a field of any.
    pub(crate) versions: Vec<Version>,
    storage: usize,
    hub: usize,
    /// The version that all others are made from: the union, else the hub.
    top: usize,
    /// Plans between the union and the versions.
    shared: BTreeMap<(usize, usize), Converter>,
    pub(crate) loss_policy: LossPolicy,
    validation: Validation,
    /// True if any rule reads or writes labels, annotations or names.
    pub(crate) rules_see_metadata: bool,
    /// Labels and annotations that rules write or move away: (map, key).
    ruled_metadata: BTreeSet<(String, String)>,
    pub(crate) converters: BTreeMap<(usize, usize), Converter>,
    /// Paths that rules claim between two versions: lower index first.
    pub(crate) claims: BTreeMap<(usize, usize), Claims>,
    /// Fingerprints of the rules, both ways, between each two versions that have some.
    rules: BTreeMap<(usize, usize), u64>,
    /// Fields that versions have for themselves.
    own: own::OwnTrees,
    /// Fields that versions show from places of the union with other names.
    renamed: Vec<renamed::Renamed>,
    /// Lists that versions beside the hub have in common.
    lists: Vec<shared_list::SharedList>,
    /// Descriptions of those that are not one list in all versions that have them.
    lists_apart: Vec<String>,
    /// True if objects record the rules that wrote them.
    records_rules: bool,
    /// True if all expressions together may exceed the cost budget of one object.
    over_budget: bool,
    /// Rules beside the hub that relate no fields of the union.
    idle: Vec<idle::Idle>,
    /// Number of pairs of paths that rules beside the hub relate.
    pairs_beside: usize,
}

#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) name: String,
    served: bool,
    pub(crate) schema: Arc<Structural>,
    /// True if reading can add defaults that were absent when the object was stored.
    has_defaults: bool,
    /// Paths that the author allows to be lost.
    pub(crate) drop: Vec<Path>,
}

impl Bundle {
    /// Compiles schemas and rules and performs every check that needs no object. `path` locates the
    /// rules in error messages (`spec`).
    ///
    /// # Errors
    /// Returns an error for each rule that names a missing field, does not compile or contradicts
    /// another rule, with its path.
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

    /// Names the kind of the objects, for those that a search makes; without it their kind is
    /// `Kind`.
    #[must_use]
    pub fn of_kind(self, kind: &str) -> Bundle {
        let kind = kind.to_owned();
        Bundle { kind, ..self }
    }

    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    /// Reads a stored object in version `to`.
    ///
    /// # Errors
    /// Fails if a version does not exist or a rule fails for this object.
    pub fn get(&self, stored: Stored<'_>, to: &str, budget: &mut Budget) -> Result<Json, ConvertError> {
        let Stored {
            value,
            version,
            residual,
        } = stored;
        self.read((Cow::Borrowed(value), version, residual), to, Self::knows, budget)
    }

    /// Reads like [`Bundle::get`], but consumes the object: values that do not move are not copied.
    ///
    /// # Errors
    /// Fails as [`Bundle::get`] does.
    pub fn get_owned(
        &self,
        value: Json,
        version: &str,
        residual: Option<&[u8]>,
        to: &str,
        budget: &mut Budget,
    ) -> Result<Json, ConvertError> {
        self.read((Cow::Owned(value), version, residual), to, Self::knows, budget)
    }

    /// Reads like [`Bundle::get_owned`] an object that was written by this bundle: its schema has
    /// fields for all that it holds.
    ///
    /// # Errors
    /// Fails as [`Bundle::get`] does.
    pub fn get_current(
        &self,
        value: Json,
        version: &str,
        residual: Option<&[u8]>,
        to: &str,
        budget: &mut Budget,
    ) -> Result<Json, ConvertError> {
        self.read((Cow::Owned(value), version, residual), to, |_, _, _| true, budget)
    }

    fn read(
        &self,
        (value, version, residual): (Cow<'_, Json>, &str, Option<&[u8]>),
        to: &str,
        is_known: impl FnOnce(&Self, usize, &Json) -> bool,
        budget: &mut Budget,
    ) -> Result<Json, ConvertError> {
        let to = self.index(to)?;
        if self.loss_policy == LossPolicy::None {
            return Ok(match self.index(version) {
                Ok(root) if root != to => self.renamed(&self.relabelled(&value, root), to),
                _ => self.relabelled(&value, to),
            });
        }
        let root = self.readable_root(version, residual, to);
        if let Some(root) = root.filter(|root| is_known(self, *root, &value)) {
            return self.read_alone(root, to, value, budget);
        }
        let stored = Stored {
            value: &value,
            version,
            residual,
        };
        stored::Views::open(self, self.index(version)?, stored, budget)?.read(to, budget)
    }

    /// Writes `x`, an object of version `from`, over the stored object. The caller has pruned,
    /// defaulted and validated `x`.
    ///
    /// # Errors
    /// Fails if a rule fails for this object in any served version, so that every stored object can
    /// be read.
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

    /// Converts an object without a residual: for tools and partial objects.
    ///
    /// # Errors
    /// Fails if the `apiVersion` or version does not exist, or a rule fails for this object.
    pub fn convert(&self, object: &Json, to: &str, budget: &mut Budget) -> Result<Json, ConvertError> {
        let from = object["apiVersion"].as_str().unwrap_or_default();
        let from = self.index(insula_api::names::version_of(from))?;
        let to = self.index(to)?;
        if self.loss_policy == LossPolicy::None {
            return Ok(self.renamed(object, to));
        }
        if from == to {
            return Ok(self.relabelled(object, to));
        }
        self.route(from, to, object, budget, None)
    }

    /// Returns true if objects of the two versions differ only in `apiVersion`. Then stored bytes
    /// can be spliced, unless there is a residual.
    pub fn is_identity(&self, from: &str, to: &str) -> bool {
        let (Ok(from), Ok(to)) = (self.index(from), self.index(to)) else {
            return false;
        };
        let (a, b) = (&self.versions[from].schema, &self.versions[to].schema);
        from == to || same_shape(a.root(), b.root()) && !self.hops(from, to).any(|hop| hop.ruled)
    }

    /// Returns true if a version has the fields and the structure of a version of another bundle.
    pub fn has_shape_of(&self, version: &str, (other, of): (&Bundle, &str)) -> bool {
        let schemas = (self.schema(version), other.schema(of));
        matches!(schemas, (Some(own), Some(others)) if same_shape(own.root(), others.root()))
    }

    /// Returns the name of the storage version.
    pub fn storage(&self) -> &str {
        &self.versions[self.storage].name
    }

    /// Returns the name of the hub version, around which rules are written.
    pub fn hub(&self) -> &str {
        &self.versions[self.hub].name
    }

    /// Returns the treatment of fields that another version lacks.
    pub fn loss_policy(&self) -> LossPolicy {
        self.loss_policy
    }

    /// Returns the treatment of values that another version's schema refuses.
    pub fn validation(&self) -> Validation {
        self.validation
    }

    /// Returns true if every version shows all that was written through it: nothing is lost or
    /// dropped.
    pub fn shows_what_is_written(&self) -> bool {
        self.loss_policy == LossPolicy::Lossless && self.versions.iter().all(|version| version.drop.is_empty())
    }

    /// Returns true if reading a stored object in its own version applies defaults.
    pub fn storage_has_defaults(&self) -> bool {
        self.versions[self.storage].has_defaults
    }

    /// Returns the names of all versions, in the order of the schema.
    pub fn versions(&self) -> impl Iterator<Item = &str> {
        self.named().map(|version| version.name.as_str())
    }

    /// Returns the schema of a version, or `None` if there is no such version.
    pub fn schema(&self, version: &str) -> Option<&Arc<Structural>> {
        self.versions.iter().find(|v| v.name == version).map(|v| &v.schema)
    }

    /// Returns the names of the versions that clients can use.
    pub fn served(&self) -> impl Iterator<Item = &str> {
        self.named().filter(|v| v.served).map(|v| v.name.as_str())
    }

    /// Returns true if rules read or write labels, annotations or names.
    pub fn rules_see_metadata(&self) -> bool {
        self.rules_see_metadata
    }

    /// Returns true if the author wrote rules between its versions.
    pub fn has_rules(&self) -> bool {
        self.converters.values().any(|converter| converter.ruled)
    }

    /// Returns the converter of a direction that has its own plan.
    pub(crate) fn converter(&self, from: &str, to: &str) -> Option<&Converter> {
        self.converters.get(&(self.index(from).ok()?, self.index(to).ok()?))
    }

    /// The versions that clients know.
    fn named(&self) -> impl Iterator<Item = &Version> {
        self.versions.iter().filter(|version| version.name != UNION)
    }

    /// Returns the claims of the rules between two versions.
    pub(crate) fn claims(&self, a: usize, b: usize) -> Option<&Claims> {
        self.claims.get(&(a.min(b), a.max(b)))
    }

    /// Returns the `apiVersion` of objects of a version.
    pub(crate) fn api_version_of(&self, version: &str) -> Option<Json> {
        Some(self.api_version(self.index(version).ok()?))
    }

    /// Converts an object and traces the inputs of its computed values.
    pub(crate) fn traced(
        &self,
        object: &Json,
        (from, to): (&str, &str),
        budget: &mut Budget,
    ) -> Result<(Json, Trace), ConvertError> {
        edit::traced(self, self.index(from)?, self.index(to)?, object, budget)
    }

    /// Returns the object without the fields that the author allows to be lost.
    pub(crate) fn without_dropped<'o>(&self, object: &'o Json, version: &str) -> Cow<'o, Json> {
        let mut kept = Cow::Borrowed(object);
        if let Ok(version) = self.index(version)
            && let dropped = &self.versions[version].drop
            && !dropped.is_empty()
        {
            crate::residual::forget(kept.to_mut(), &Json::Null, dropped);
        }
        kept
    }

    /// Makes every version from the hub: what code does to fields is not known.
    pub(crate) fn without_union(&mut self) {
        self.versions
            .truncate(self.versions.len() - usize::from(self.top != self.hub));
        self.top = self.hub;
        self.shared.clear();
        self.lists.clear();
        self.renamed.clear();
    }

    pub(crate) fn index(&self, version: &str) -> Result<usize, ConvertError> {
        let found = self.versions.iter().position(|v| v.name == version);
        let found = found.or_else(|| (version == UNION).then_some(self.top));
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
        let name = match self.versions[version].name.as_str() {
            UNION => self.hub(),
            name => name,
        };
        Json::String(if self.group.is_empty() {
            name.to_owned()
        } else {
            format!("{}/{name}", self.group)
        })
    }

    /// Relabels the object with another version's `apiVersion`, prunes it by that schema and
    /// applies its defaults.
    fn relabelled(&self, object: &Json, to: usize) -> Json {
        let mut out = self.renamed(object, to);
        insula_schema::default(&mut out, &self.versions[to].schema);
        out
    }

    /// Relabels the object with another version's `apiVersion` and prunes it by that schema.
    /// Applies no defaults: without rules, Kubernetes adds none to objects that were stored in
    /// another version.
    fn renamed(&self, object: &Json, to: usize) -> Json {
        let mut out = object.clone();
        if let Some(map) = out.as_object_mut() {
            map.insert("apiVersion".to_owned(), self.api_version(to));
        }
        insula_schema::prune(&mut out, &self.versions[to].schema);
        out
    }
}

impl Version {
    /// Returns false for the union, which keeps what no version shows any more.
    fn prunes(&self) -> bool {
        self.name != UNION
    }

    /// Prunes and defaults a merged or patched object, as a reader receives it.
    fn tidied(&self, mut object: Json) -> Json {
        if self.prunes() {
            insula_schema::prune(&mut object, &self.schema);
        } else {
            crate::residual::settle(&self.schema, &mut object);
        }
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
