//! What is served: an [`Api`] is one resource in all its versions, compiled and shared by content;
//! a [`Served`] is an API as one logical cluster sees it.

use crate::{
    Error, Named, Strategy,
    proof::Proof,
    webhook::{PendingCalls, Webhook},
};
use insula_api::{FieldError, Json, ResourceId};
use insula_conversion::Bundle;
use insula_schema::Structural;
use std::{
    fmt,
    sync::{Arc, OnceLock},
};

/// Whether objects live in namespaces.
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
    /// For people.
    pub description: String,
    /// 0 shows always, more only in wide output.
    pub priority: i64,
    /// Where the value stands, e.g. `.spec.size`.
    pub path: insula_schema::JsonPath,
    /// The path as written.
    pub json_path: String,
}

/// Paths of the scale subresource, as written (`.spec.replicas`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// Path of the wanted replicas.
    pub spec_replicas: String,
    /// Path of the observed replicas.
    pub status_replicas: String,
    /// Path of the selector as text, or empty.
    pub selector: String,
}

/// One version of an API.
#[derive(Debug)]
pub struct ApiVersion {
    /// E.g. `v1`.
    pub name: Arc<str>,
    /// Whether clients may use it.
    pub served: bool,
    /// The warning that its users get, if it is deprecated.
    pub deprecated: Option<String>,
    /// Whether it is marked deprecated (an own warning text may be empty).
    pub schema: Arc<Structural>,
    /// The schema as its author wrote it, for OpenAPI.
    pub openapi: Json,
    /// Whether `/status` exists.
    pub status: bool,
    /// `/scale`.
    pub scale: Option<Scale>,
    /// Printer columns.
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
    /// Converts between the versions.
    pub bundle: Bundle,
    /// Who converts in the bundle's place, if its definition names somebody.
    pub webhook: Option<Arc<Webhook>>,
    /// What the schema cannot say.
    pub strategy: Arc<dyn Strategy>,
    /// Names are path segments instead of DNS subdomains.
    pub path_segment_names: bool,
    /// Changes whenever schemas, rules or versions do: objects written under it need no second
    /// look.
    pub fingerprint: u64,
    /// What the search for a counterexample said of its rules, once somebody asked.
    pub proof: OnceLock<Proof>,
    /// How an alias calls the fields of the same objects, once the kinds of the system are put
    /// together.
    pub spelling: OnceLock<Arc<Respelled>>,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Api({}.{} {:x})", self.names.plural, self.group, self.fingerprint)
    }
}

impl Api {
    /// A version by name, whether served or not.
    #[inline]
    pub fn version(&self, name: &str) -> Option<&ApiVersion> {
        self.versions.iter().find(|v| &*v.name == name)
    }

    /// The version that objects are stored in.
    #[inline]
    pub fn storage_version(&self) -> &ApiVersion {
        &self.versions[self.storage]
    }

    /// Group and plural, as messages name them.
    pub fn named(&self) -> Named {
        Named {
            group: self.group.clone(),
            resource: self.names.plural.clone(),
        }
    }

    /// Group and kind, as refusals of fields name them.
    pub fn kind(&self) -> Named {
        Named {
            group: self.group.clone(),
            resource: self.names.kind.clone(),
        }
    }

    /// `group/version` of a version.
    pub fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() {
            version.to_owned()
        } else {
            format!("{}/{version}", self.group)
        }
    }

    /// `NotFound` for an object.
    pub fn not_found(&self, name: &str) -> Error {
        Error::NotFound {
            resource: self.named(),
            name: name.to_owned(),
        }
    }

    /// `Invalid` for an object.
    pub fn invalid(&self, name: &str, errors: Vec<FieldError>) -> Error {
        Error::Invalid {
            subject: self.kind(),
            name: name.to_owned(),
            errors,
        }
    }

    /// `Conflict` in the usual words.
    pub fn modified(&self, name: &str) -> Error {
        let detail = "the object has been modified; please apply your changes to the latest version and try again";
        Error::Conflict {
            resource: self.named(),
            name: name.to_owned(),
            detail: detail.to_owned(),
        }
    }

    /// `Forbidden` with a reason.
    pub fn forbidden(&self, name: &str, why: impl Into<String>) -> Error {
        Error::Forbidden {
            resource: self.named(),
            name: name.to_owned(),
            why: why.into(),
            cause: None,
        }
    }
}

/// Where a served resource comes from; earlier ones win.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Built in.
    System,
    /// Bound by the APIBinding of this name.
    Bound { binding: Arc<str> },
    /// Defined by a CustomResourceDefinition of the cluster.
    Local { definition: Arc<str> },
}

/// An API as one logical cluster serves it.
#[derive(Debug, Clone)]
pub struct Served {
    /// The compiled API.
    pub api: Arc<Api>,
    /// The exporter's identity, empty unless bound.
    pub identity: Arc<str>,
    /// Where it comes from.
    pub origin: Origin,
    /// It goes away: nothing may be created.
    pub terminating: bool,
    /// Another spelling of the same objects: group and kind that clients see, in the place of the
    /// API's own.
    pub alias: Option<Alias>,
    /// Writes hold only while this object is at this revision (the claim that routes here).
    pub guard: Option<(insula_api::ObjectKey, insula_api::Revision)>,
    /// Calls of the request to webhooks; none where no webhook converts the kind or reviews the
    /// write.
    pub questions: Option<Arc<PendingCalls>>,
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
    /// How the fields are called there, where they have other names than in the store.
    pub respelled: Option<Arc<Respelled>>,
}

/// A kind whose fields have other names under its alias.
#[derive(Debug, Clone)]
pub struct Respelled {
    /// The kind as the alias shows it; it stores nothing.
    pub api: Arc<Api>,
    /// Fields of the object, as the store and as the alias call them.
    pub fields: &'static [(&'static str, &'static str)],
}

impl Served {
    /// A built-in resource.
    pub fn system(api: Arc<Api>) -> Self {
        let identity = "".into();
        Served {
            api,
            identity,
            origin: Origin::System,
            terminating: false,
            alias: None,
            guard: None,
            questions: None,
        }
    }

    /// The prefix of its objects.
    #[inline]
    pub fn resource_id(&self) -> ResourceId {
        ResourceId {
            group: self.api.group.clone(),
            resource: self.api.names.plural.clone(),
            identity: self.identity.clone(),
        }
    }

    /// The group that clients see.
    #[inline]
    pub fn group(&self) -> &Arc<str> {
        self.alias.as_ref().map_or(&self.api.group, |alias| &alias.group)
    }

    /// The names that clients see.
    #[inline]
    pub fn names(&self) -> &Names {
        self.alias.as_ref().map_or(&self.api.names, |alias| &alias.names)
    }

    /// How an alias calls the fields.
    #[inline]
    pub(crate) fn respelled(&self) -> Option<&Respelled> {
        self.alias.as_ref().and_then(|alias| alias.respelled.as_deref())
    }

    /// The API whose schemas are those of what clients see.
    fn shown(&self) -> &Api {
        self.respelled().map_or(&self.api, |respelled| &respelled.api)
    }

    /// A version by name, whether served or not.
    #[inline]
    pub fn version(&self, name: &str) -> Option<&ApiVersion> {
        self.shown().version(name)
    }

    /// The versions that clients may use, in order of the definition.
    pub fn served_versions(&self) -> impl Iterator<Item = &ApiVersion> {
        self.shown()
            .versions
            .iter()
            .filter(|v| v.served && self.alias.as_ref().is_none_or(|alias| alias.version == v.name))
    }

    /// `group/version` that clients see.
    pub fn api_version(&self, version: &str) -> String {
        let group = self.group();
        if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        }
    }
}
