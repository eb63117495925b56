//! Structural schemas: the tree of a compiled `openAPIV3Schema`.

use crate::declare::{ObjectRole, declaration};
use crate::node::Node;
use insula_cel::Decl;
use std::sync::OnceLock;

/// A compiled schema. Immutable; share it by `Arc`.
#[derive(Debug, Clone, Default)]
pub struct Structural {
    root: Node,
    declaration: OnceLock<Decl>,
}

impl Structural {
    /// Returns the schema of a struct, without the checks that Go's decoder makes.
    #[must_use]
    pub fn of_struct(mut self) -> Structural {
        self.root.drop_decoder_checks();
        self
    }

    /// Returns the schema with its nodes open for unknown fields: it validates and defaults, but
    /// never prunes.
    #[must_use]
    pub fn preserving_unknown(mut self) -> Structural {
        self.root.preserve_unknown();
        self
    }

    /// Returns the node at a path of field names. Any name reaches map values, `*` reaches list
    /// items.
    pub fn node(&self, path: &[&str]) -> Option<&Node> {
        path.iter().try_fold(&self.root, |node, name| match node.child(name) {
            Some(child) => Some(child),
            None if *name == "*" => node.items(),
            None => None,
        })
    }

    pub(crate) fn from_root(root: Node) -> Structural {
        Structural {
            root,
            declaration: OnceLock::new(),
        }
    }

    /// Returns the declaration of an object for expressions: types and bounds of its fields.
    /// Computed on first use.
    pub fn declaration(&self) -> &Decl {
        let declare = || declaration(&self.root, ObjectRole::AsObject, "object").unwrap_or_else(Decl::dynamic);
        self.declaration.get_or_init(declare)
    }

    /// Returns the schema of the whole object.
    pub fn root(&self) -> &Node {
        &self.root
    }
}
