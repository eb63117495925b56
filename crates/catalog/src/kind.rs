//! The description of a built-in kind.

pub mod message;
mod table;

pub use table::{CellValue, Table, TableColumn};

use message::Message;

use crate::{Custom, Strategy, names::NameRule};
use std::fmt;

/// A built-in kind: its definition and, for a kind that needs more than a definition, its
/// behaviour.
///
/// ```text
/// Builtin { strategy: &Shards, ..Builtin::new(crd!("core.kcp.io_shards")) }
/// ```
pub struct Builtin {
    /// A CustomResourceDefinition as YAML.
    pub(crate) definition: &'static str,
    /// An APIConversion as YAML, if the versions differ in more than their names.
    pub(crate) conversions: Option<&'static str>,
    /// Other names under which clients see the objects.
    pub(crate) other_names: &'static [OtherName],
    /// Behaviour that the definition cannot express.
    pub(crate) strategy: &'static dyn Strategy,
    /// Table of the objects, if it is not that of the definition's printer columns.
    pub table: Option<Table>,
    /// Protobuf messages that clients may send.
    pub(crate) messages: &'static [Message],
    /// Subresources beside `status` and `scale`, which the definition names.
    pub subresources: &'static [Subresource],
    /// Lists that a strategic merge patch merges by a key: path of the list and name of the key.
    pub merge_keys: &'static [(&'static str, &'static str)],
    /// Rule for the names of objects, if it is not that of the definition's `nameValidation`.
    pub(crate) name_rule: Option<NameRule>,
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
    pub verbs: &'static [&'static str],
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
            messages: &[],
            subresources: &[],
            merge_keys: &[],
            name_rule: None,
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

/// Includes a definition of `config/crds`.
macro_rules! crd {
    ($name:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../config/crds/",
            $name,
            ".yaml"
        ))
    };
}

/// Includes the rules between the versions of a kind, from `config/conversions`.
macro_rules! conversions {
    ($name:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../config/conversions/",
            $name,
            ".yaml"
        ))
    };
}

pub(crate) use {conversions, crd};
