//! The description of a built-in kind.

mod compiled;
mod table;

pub use compiled::{CompiledConversion, CompiledKind};
pub use table::{CellValue, Table, TableColumn};

use crate::{Custom, Strategy, SubresourceHandler, names::NameRule};
use insula_api::{FieldError, Json, Verb};
use insula_conversion::Code;
use std::fmt;

/// A built-in kind: its definition and, for a kind that needs more than a definition, its
/// behaviour.
///
/// ```text
/// Builtin { strategy: &Shards, ..Builtin::new(crd!("core.kcp.io_shards")) }
/// ```
pub struct Builtin {
    /// File of its CustomResourceDefinition.
    pub(crate) definition: &'static str,
    /// File of its APIConversion, if the versions differ in more than their names.
    pub(crate) conversions: Option<&'static str>,
    /// Other names under which clients see the objects.
    pub(crate) other_names: &'static [OtherName],
    /// Behaviour that the definition cannot express.
    pub(crate) strategy: &'static dyn Strategy,
    /// Table of the objects, if it is not that of the definition's printer columns.
    pub table: Option<Table>,
    /// Subresources beside `status` and `scale`, which the definition names.
    pub subresources: &'static [Subresource],
    /// Lists that a strategic merge patch merges by a key: path of the list and name of the key.
    pub merge_keys: &'static [(&'static str, &'static str)],
    /// Rule for the names of objects, if it is not that of the definition's `nameValidation`.
    pub(crate) name_rule: Option<NameRule>,
    /// Functions that convert between the versions in place of rules.
    pub(crate) code: &'static [Code],
    /// Functions that answer requests to subresources, by their names.
    pub(crate) handlers: &'static [(&'static str, &'static dyn SubresourceHandler)],
    /// True for kinds that a program adds to the server. They are to clients as custom resources.
    pub(crate) compiled: bool,
    /// A version that code converts, because its fields are in other places.
    pub(crate) coded_version: Option<CodedVersion>,
    /// Changes the definition before it is compiled, by the settings of the server.
    pub(crate) gate: Option<fn(&mut Json, &Gates)>,
    /// True if a permission claim may name the kind without an identity hash.
    pub claimable: bool,
    /// True if only the root and system clusters serve the kind.
    pub(crate) operators_only: bool,
}

/// A subresource of a built-in kind.
#[derive(Debug, Clone, Copy)]
pub struct Subresource {
    /// Last segment of its path.
    pub name: &'static str,
    /// Group, version and kind of its body, if they differ from the resource's own.
    pub body: Option<(&'static str, &'static str, &'static str)>,
    /// Verbs in discovery.
    pub verbs: &'static [Verb],
}

/// A version of a built-in kind whose fields are in other places than those of the storage version.
/// The functions only move fields: whatever else they find stays as it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CodedVersion {
    /// Name of the version.
    pub name: &'static str,
    /// Validates what the storage version cannot express.
    pub validate: fn(&Json) -> Vec<FieldError>,
    /// Converts an object of the storage version to this version.
    pub from_storage: fn(Json) -> Json,
    /// Converts an object of this version to the storage version.
    pub to_storage: fn(Json) -> Json,
}

/// Parts of built-in kinds that a server may leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gates {
    /// Serves CustomResourceDefinitions in `apiextensions.k8s.io/v1beta1`.
    pub definitions_v1beta1: bool,
    /// Reads the subresources of a definition in v1beta1. False drops them, as the feature gate
    /// `CustomResourceSubResources` of the proposal does.
    pub definition_subresources: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Gates {
            definitions_v1beta1: true,
            definition_subresources: true,
        }
    }
}

/// Another group and kind under which the objects of a built-in kind are served.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OtherName {
    /// The same fields under other names of group and kind.
    Renamed {
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        kind: &'static str,
    },
    /// A definition in which some fields have other names.
    Respelled {
        definition: &'static str,
        /// Pairs of field names: in the store and under the alias.
        fields: &'static [(&'static str, &'static str)],
    },
}

impl Builtin {
    /// Returns a kind that its definition describes completely.
    pub(crate) const fn new(definition: &'static str) -> Self {
        Builtin {
            definition,
            conversions: None,
            other_names: &[],
            strategy: &Custom,
            table: None,
            subresources: &[],
            merge_keys: &[],
            name_rule: None,
            code: &[],
            handlers: &[],
            compiled: false,
            coded_version: None,
            gate: None,
            claimable: false,
            operators_only: false,
        }
    }

    /// Returns the kind as one that a permission claim may name without an identity hash.
    pub(crate) const fn claimable(self) -> Self {
        Builtin {
            claimable: true,
            ..self
        }
    }
}

impl fmt::Debug for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builtin").finish_non_exhaustive()
    }
}

/// Names a definition of `config/crds`.
macro_rules! crd {
    ($name:literal) => {
        concat!("crds/", $name)
    };
}

/// Names the rules between the versions of a kind, in `config/conversions`.
macro_rules! conversions {
    ($name:literal) => {
        concat!("conversions/", $name)
    };
}

pub(crate) use {conversions, crd};
