//! Served resources. An [`Api`] is one resource in all its versions, compiled and shared by
//! content. A [`Served`] is an API in one logical cluster.

use crate::{
    Builtin, Error, Named, Scale, Strategy, Subresource, SubresourceHandler, SubresourceTypes,
    names::NameRule,
    proof::Proof,
    registration::{self, DefinitionKind, DefinitionName},
    routes::ResourceRoute,
    webhook::{PendingCalls, Webhook},
};
use insula_api::{FieldError, Json, Object, ResourceId};
use insula_conversion::{Bundle, ConvertError, Stored, object_budget};
use insula_meter::Meter;
use insula_schema::Structural;
use std::{
    fmt,
    sync::{Arc, OnceLock},
};

/// The scope of a resource's objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScopeKind {
    /// Directly in the logical cluster.
    Cluster,
    /// In a namespace.
    Namespaced,
}

/// The names of a resource in discovery.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names {
    /// Plural, e.g. `widgets`.
    pub plural: Arc<str>,
    /// Singular, e.g. `widget`.
    pub singular: Arc<str>,
    /// Kind, e.g. `Widget`.
    pub kind: Arc<str>,
    /// Kind of the list, e.g. `WidgetList`.
    pub list_kind: Arc<str>,
    /// Short names for people.
    pub short_names: Vec<String>,
    /// Categories such as `all`.
    pub categories: Vec<String>,
}

/// A printer column.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Header.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    /// Display format.
    pub format: String,
    /// Human-readable description.
    pub description: String,
    /// Priority: 0 always shows the column, higher values only in wide output.
    pub priority: i64,
    /// Path of the value, e.g. `.spec.size`.
    pub path: insula_schema::JsonPath,
    /// The path as written.
    pub json_path: String,
}

/// One version of an API.
#[derive(Debug)]
pub struct ApiVersion {
    /// E.g. `v1`.
    pub name: Arc<str>,
    /// True if clients may use the version.
    pub served: bool,
    /// Warning for clients of a deprecated version.
    pub deprecated: Option<String>,
    /// Compiled structural schema.
    pub schema: Arc<Structural>,
    /// Schema for OpenAPI: as its author wrote it, or without `nullable` for built-in kinds.
    pub openapi: Json,
    /// True if `/status` exists.
    pub status: bool,
    /// `/scale`.
    pub scale: Option<Scale>,
    /// Printer columns; the age if the definition has none.
    pub columns: Vec<Column>,
    /// Fields that field selectors may use, e.g. `spec.color`.
    pub selectable: Vec<String>,
}

/// A resource in all its versions. Immutable; shared by every cluster that serves the same content.
pub struct Api {
    /// API group; empty for the core group.
    pub group: Arc<str>,
    /// Names.
    pub names: Names,
    /// Scope.
    pub scope: ScopeKind,
    /// Versions in the order of their definition.
    pub versions: Vec<ApiVersion>,
    /// Index of the storage version.
    pub storage: usize,
    /// Conversion between the versions.
    pub bundle: Bundle,
    /// Webhook that converts in the bundle's place, if the definition names one.
    pub webhook: Option<Arc<Webhook>>,
    /// Description of the kind, if it is built in.
    pub builtin: Option<&'static Builtin>,
    /// Behaviour that the schema cannot express.
    pub strategy: &'static dyn Strategy,
    /// True if names are path segments instead of DNS subdomains.
    pub path_segment_names: bool,
    /// Fingerprint of the definition. Stored bytes with the same fingerprint are served in their
    /// version without conversion.
    pub fingerprint: u64,
    /// Result of the search for a counterexample in the rules, after the first request for it.
    pub proof: OnceLock<Proof>,
    /// Field names of the same objects under an alias, set once all built-in kinds are loaded.
    pub spelling: OnceLock<Arc<Respelled>>,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Api({}.{} {:x})", self.names.plural, self.group, self.fingerprint)
    }
}

impl Api {
    /// Returns a version by name, served or not.
    #[inline]
    pub fn version(&self, name: &str) -> Option<&ApiVersion> {
        self.versions.iter().find(|v| &*v.name == name)
    }

    /// Returns the storage version.
    #[inline]
    pub fn storage_version(&self) -> &ApiVersion {
        &self.versions[self.storage]
    }

    /// Checks that a stored object reads in every served version, and can be stored again.
    ///
    /// # Errors
    /// Returns why it does not.
    pub fn reads(&self, object: &Object, meter: &Meter) -> Result<(), ConvertError> {
        self.reads_in(object, self.bundle.served().chain([self.bundle.storage()]), meter)
    }

    /// Checks that a stored object reads in some versions. One that was written under this schema
    /// and its rules does.
    ///
    /// # Errors
    /// Returns why it does not.
    pub fn reads_in<'v>(
        &self,
        object: &Object,
        versions: impl IntoIterator<Item = &'v str>,
        meter: &Meter,
    ) -> Result<(), ConvertError> {
        if object.schema() == self.fingerprint {
            return Ok(());
        }
        let value = object.body_value();
        let stored = Stored {
            value: &value,
            version: object.version(),
            residual: object.residual(),
        };
        versions.into_iter().try_for_each(|version| {
            let seen = self.bundle.get(stored, version, &mut object_budget(meter));
            seen.map(drop)
        })
    }

    /// Returns the rule for the names of objects. Workspaces have a stricter rule in their schema.
    pub fn name_rule(&self) -> NameRule {
        match self.builtin.and_then(|builtin| builtin.name_rule) {
            Some(rule) => rule,
            None if self.path_segment_names => NameRule::PathSegment,
            None => NameRule::Subdomain,
        }
    }

    /// Returns true for a kind that a program adds to the server.
    pub fn is_compiled(&self) -> bool {
        self.builtin.is_some_and(|builtin| builtin.compiled)
    }

    /// Returns the function that answers requests to a subresource.
    pub fn handler(&self, name: &str) -> Option<&'static dyn SubresourceHandler> {
        let found = self.builtin?.handlers.iter().find(|(known, _)| *known == name);
        found.map(|(_, handler)| *handler)
    }

    /// Returns the subresources that a program answers, with the types of their bodies.
    pub fn typed_subresources(&self) -> impl Iterator<Item = (&'static Subresource, &'static SubresourceTypes)> {
        let known = self.builtin.map(|builtin| builtin.subresources).unwrap_or_default();
        known
            .iter()
            .filter_map(|known| Some((known, self.handler(known.name)?.types()?)))
    }

    /// Returns a subresource of a built-in kind beside `status` and `scale`.
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.builtin?.subresources.iter().find(|known| known.name == name)
    }

    /// Returns group and plural, in the form of error messages.
    pub fn named(&self) -> Named {
        Named {
            group: self.group.clone(),
            resource: self.names.plural.clone(),
        }
    }

    /// Returns group and kind, in the form of error messages about fields.
    pub fn kind(&self) -> Named {
        Named {
            group: self.group.clone(),
            resource: self.names.kind.clone(),
        }
    }

    /// Returns the `apiVersion` of a version: `group/version`.
    pub fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() {
            version.to_owned()
        } else {
            format!("{}/{version}", self.group)
        }
    }

    /// Returns `NotFound` for an object.
    pub fn not_found(&self, name: &str) -> Error {
        Error::NotFound {
            resource: self.named(),
            name: name.to_owned(),
        }
    }

    /// Returns `Invalid` for an object.
    pub fn invalid(&self, name: &str, errors: Vec<FieldError>) -> Error {
        Error::Invalid {
            subject: self.kind(),
            name: name.to_owned(),
            errors,
        }
    }

    /// Returns `Conflict` with Kubernetes' message for a concurrent modification.
    pub fn modified(&self, name: &str) -> Error {
        let detail = "the object has been modified; please apply your changes to the latest version and try again";
        Error::Conflict {
            resource: self.named(),
            name: name.to_owned(),
            detail: detail.to_owned(),
        }
    }

    /// Returns `Forbidden` with a reason.
    pub fn forbidden(&self, name: &str, why: impl Into<String>) -> Error {
        Error::Forbidden {
            resource: self.named(),
            name: name.to_owned(),
            why: why.into(),
            cause: None,
        }
    }

    /// 403: the value of a field does not exist or does not fit.
    pub fn wrong_value(&self, name: &str, field: &'static str, why: impl Into<String>) -> Error {
        Error::WrongValue {
            resource: self.named(),
            name: name.to_owned(),
            why: why.into(),
            field,
        }
    }

    /// 403: a quota or a limit has no room for the object.
    pub fn quota_exceeded(&self, name: &str, why: impl Into<String>) -> Error {
        Error::QuotaExceeded {
            resource: self.named(),
            name: name.to_owned(),
            why: why.into(),
        }
    }
}

/// The origin of a served resource; earlier variants take precedence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Built in.
    System,
    /// Bound by the APIBinding of this name.
    Bound { binding: Arc<str> },
    /// Defined by a CustomResourceDefinition or a ThirdPartyResource of the cluster.
    Local { definition: DefinitionName },
}

/// An API as one logical cluster serves it.
#[derive(Debug, Clone)]
pub struct Served {
    /// The compiled API.
    pub api: Arc<Api>,
    /// The exporter's identity, empty unless bound.
    pub identity: Arc<str>,
    /// Origin of the resource.
    pub origin: Origin,
    /// True if the binding or definition is being deleted, or the binding gives the resource up, so
    /// creates fail.
    pub terminating: bool,
    /// Alias of the resource: the group and kind that clients see instead of the API's own.
    pub alias: Option<Alias>,
    /// Guard for writes: the route of the resource and its revision.
    pub guard: Option<(insula_api::ObjectKey, insula_api::Revision)>,
    /// The route of the resource; None for built-in kinds.
    pub route: Option<Arc<ResourceRoute>>,
    /// Webhook calls of the request; None if no webhook converts the kind or reviews the write.
    pub pending_calls: Option<Arc<PendingCalls>>,
    /// Pays for the conversions and validations of the request.
    pub meter: Meter,
}

/// Another group (and kind) under which stored objects are served.
#[derive(Debug, Clone)]
pub struct Alias {
    /// Group in URLs and `apiVersion`.
    pub group: Arc<str>,
    /// Names in URLs and `kind`.
    pub names: Names,
    /// The only version of the alias.
    pub version: Arc<str>,
    /// Field names under the alias, if they differ from those in the store.
    pub respelled: Option<Arc<Respelled>>,
}

/// The field names of a kind under its alias.
#[derive(Debug, Clone)]
pub struct Respelled {
    /// Kind that the alias shows; it stores nothing.
    pub api: Arc<Api>,
    /// Pairs of field names: in the store and under the alias.
    pub fields: &'static [(&'static str, &'static str)],
}

impl Served {
    /// Returns a built-in resource.
    pub fn system(api: Arc<Api>) -> Self {
        let identity = "".into();
        Served {
            api,
            identity,
            origin: Origin::System,
            terminating: false,
            alias: None,
            guard: None,
            route: None,
            pending_calls: None,
            meter: Meter::unbounded(),
        }
    }

    /// Returns the resource for a request that pays for the work on it.
    pub fn charged_to(&self, meter: &Meter) -> Self {
        Served {
            meter: meter.clone(),
            ..self.clone()
        }
    }

    /// Returns the resource id: the prefix of the keys of its objects.
    #[inline]
    pub fn resource_id(&self) -> ResourceId {
        ResourceId {
            group: self.api.group.clone(),
            resource: self.api.names.plural.clone(),
            identity: self.identity.clone(),
        }
    }

    /// Returns the group that clients see.
    #[inline]
    pub fn group(&self) -> &Arc<str> {
        self.alias.as_ref().map_or(&self.api.group, |alias| &alias.group)
    }

    /// Returns the names that clients see.
    #[inline]
    pub fn names(&self) -> &Names {
        self.alias.as_ref().map_or(&self.api.names, |alias| &alias.names)
    }

    /// Returns the field names of the alias, if they differ from those in the store.
    #[inline]
    pub(crate) fn respelled(&self) -> Option<&Respelled> {
        self.alias.as_ref().and_then(|alias| alias.respelled.as_deref())
    }

    /// Returns the API with the schemas that clients see.
    fn shown(&self) -> &Api {
        self.respelled().map_or(&self.api, |respelled| &respelled.api)
    }

    /// Returns a version by name, served or not.
    #[inline]
    pub fn version(&self, name: &str) -> Option<&ApiVersion> {
        self.shown().version(name)
    }

    /// Returns the served versions in the order of the definition.
    pub fn served_versions(&self) -> impl Iterator<Item = &ApiVersion> {
        self.shown()
            .versions
            .iter()
            .filter(|v| v.served && self.alias.as_ref().is_none_or(|alias| alias.version == v.name))
    }

    /// Returns true for objects of a ThirdPartyResource, and for ThirdPartyResources themselves.
    pub fn is_third_party(&self) -> bool {
        match &self.origin {
            Origin::Local { definition } => definition.kind != DefinitionKind::CustomResource,
            Origin::System => *self.api.names.kind == *registration::KIND,
            Origin::Bound { .. } => false,
        }
    }

    /// Returns the `apiVersion` that clients see: `group/version`.
    pub fn api_version(&self, version: &str) -> String {
        let group = self.group();
        if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        }
    }
}
