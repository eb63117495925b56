//! Building of schema trees from parts of others: a conversion joins the fields of all versions of
//! an API in one tree.
//!
//! Composed trees describe structure alone: types, fields, identities of items, defaults. They are
//! not validated against.

use crate::node::{Below, ListType, Node};
use crate::structural::Structural;
use insula_api::Json;

impl Structural {
    /// Makes a schema of a composed tree.
    pub fn composed(mut root: Node) -> Structural {
        root.look_below();
        Structural::from_root(root)
    }
}

impl Node {
    /// Returns this value's structure without what is below it: no fields, items or values, and no
    /// bounds, rules and descriptions.
    #[must_use]
    pub fn outline(&self) -> Node {
        Node {
            kind: self.kind,
            nullable: self.nullable,
            int_or_string: self.int_or_string,
            preserves_unknown: self.preserves_unknown,
            embedded: self.embedded,
            default: self.default.clone(),
            list_type: self.list_type.clone(),
            map_type: self.map_type,
            ..<Node as Default>::default()
        }
    }

    /// Returns a declared field, to be changed.
    pub fn property_mut(&mut self, name: &str) -> Option<&mut Node> {
        let found = self.properties.binary_search_by(|(n, _)| (**n).cmp(name)).ok()?;
        self.properties.get_mut(found).map(|(_, node)| node)
    }

    /// Returns the schema of a list's items, to be changed.
    pub fn items_mut(&mut self) -> Option<&mut Node> {
        self.items.as_deref_mut()
    }

    /// Returns the schema of a map's values, to be changed.
    pub fn additional_mut(&mut self) -> Option<&mut Node> {
        self.additional.as_deref_mut()
    }

    /// Declares a field, in place of one of the same name.
    pub fn set_property(&mut self, name: &str, node: Node) {
        match self.properties.binary_search_by(|(n, _)| (**n).cmp(name)) {
            Ok(at) => self.properties[at].1 = node,
            Err(at) => self.properties.insert(at, (name.into(), node)),
        }
    }

    /// Declares the items of a list.
    pub fn set_items(&mut self, node: Node) {
        self.items = Some(Box::new(node));
    }

    /// Declares the values of a map.
    pub fn set_additional(&mut self, node: Node) {
        self.additional = Some(Box::new(node));
    }

    /// Changes the default.
    pub fn set_default(&mut self, default: Option<Json>) {
        self.default = default;
    }

    /// Allows null.
    pub fn allow_null(&mut self) {
        self.nullable = true;
    }

    /// Keeps unknown fields of this object.
    pub fn keep_unknown(&mut self) {
        self.preserves_unknown = true;
    }

    /// Changes the identity of a list's items.
    pub fn set_list_type(&mut self, list_type: ListType) {
        self.list_type = list_type;
    }

    /// Computes anew, here and below, what lets walks skip a subtree.
    fn look_below(&mut self) {
        let mut below = Below {
            defaults: self.default.is_some(),
            rules: !self.rules.is_empty(),
            lists: self.list_type != ListType::Atomic,
            embedded: self.embedded,
        };
        let fields = self.properties.iter_mut().map(|(_, node)| node);
        let inner = [&mut self.items, &mut self.additional].into_iter().flatten();
        for child in fields.chain(inner.map(|node| &mut **node)) {
            child.look_below();
            below.defaults |= child.below.defaults;
            below.rules |= child.below.rules;
            below.lists |= child.below.lists;
            below.embedded |= child.below.embedded;
        }
        self.below = below;
    }
}
