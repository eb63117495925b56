//! Pruning: removal of unknown fields and of meaningless nulls.
//!
//! Below a node that preserves unknown fields, declared children are still pruned by their own
//! schemas. Values without a schema (items of an undeclared list, values of an open map) keep no
//! fields.

use crate::embedded;
use crate::node::{Children, Node};
use crate::structural::Structural;
use crate::value_path::{Keys, ValuePath};
use insula_api::Json;

/// Removes unknown fields. `apiVersion`, `kind` and `metadata` are known at the root and in
/// embedded resources.
pub fn prune(object: &mut Json, schema: &Structural) {
    walk(object, Some(schema.root()), Meta::Root);
}

/// Returns true if pruning would not change the value.
pub(crate) fn is_pruned(value: &Json, node: &Node, is_root: bool) -> bool {
    let mut report = Report::default();
    report.walk(
        value,
        Some(node),
        if is_root { Meta::Root } else { Meta::for_node(node) },
        &ValuePath::ROOT,
    );
    report.fields.is_empty()
}

/// Returns the unknown fields that [`prune`] would remove, in Kubernetes' order: those of the
/// object's metadata, the others by path, then those of embedded objects' metadata.
pub fn prune_report(object: &Json, schema: &Structural) -> Vec<String> {
    let mut report = Report::default();
    report.walk(object, Some(schema.root()), Meta::Root, &ValuePath::ROOT);
    let Report {
        mut root_metadata,
        mut fields,
        mut metadata,
    } = report;
    for list in [&mut root_metadata, &mut fields, &mut metadata] {
        list.sort_unstable();
    }
    root_metadata.append(&mut fields);
    root_metadata.append(&mut metadata);
    root_metadata
}

/// Removes nulls that are neither allowed nor replaced by a default, as Kubernetes does when it
/// decodes an object. Items of lists stay, because removing them would move others. Call it before
/// [`crate::default`].
pub fn drop_nulls(object: &mut Json, schema: &Structural) {
    drop_nulls_at(object, schema.root());
}

/// Object metadata of a node's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meta {
    Root,
    Embedded,
    None,
}

impl Meta {
    fn for_node(node: &Node) -> Meta {
        if node.embedded { Meta::Embedded } else { Meta::None }
    }

    fn knows(self, name: &str) -> bool {
        self != Meta::None && matches!(name, "apiVersion" | "kind" | "metadata")
    }
}

/// Decision about one field.
enum FieldAction<'a> {
    Drop,
    Keep,
    Descend(Option<&'a Node>),
}

fn field_action<'a>(
    node: Option<&'a Node>,
    children: Option<&mut Children<'a>>,
    name: &str,
    meta: Meta,
) -> FieldAction<'a> {
    if meta.knows(name) {
        return FieldAction::Keep;
    }
    let (Some(node), Some(children)) = (node, children) else {
        return FieldAction::Drop;
    };
    match children.child(name) {
        Some(child) => FieldAction::Descend(Some(child)),
        None if node.preserves_unknown => FieldAction::Keep,
        None => FieldAction::Drop,
    }
}

fn walk(value: &mut Json, node: Option<&Node>, meta: Meta) {
    match value {
        Json::Object(map) => {
            let mut children = node.map(Children::new);
            // Few objects have unknown fields: without one nothing is allocated, and the map is not
            // rebuilt.
            let mut dropped: Vec<String> = Vec::new();
            for (name, child) in map.iter_mut() {
                match field_action(node, children.as_mut(), name, meta) {
                    FieldAction::Drop => dropped.push(name.clone()),
                    FieldAction::Keep if name == "metadata" => match meta {
                        Meta::Root => embedded::prune_metadata(child),
                        Meta::Embedded => embedded::tidy_metadata(child),
                        Meta::None => {}
                    },
                    FieldAction::Keep => {}
                    FieldAction::Descend(child_node) => {
                        if child.is_object() || child.is_array() {
                            walk(child, child_node, child_node.map_or(Meta::None, Meta::for_node));
                        }
                    }
                }
            }
            for name in dropped {
                map.remove(&name);
            }
        }
        Json::Array(list) => {
            let items = node.and_then(Node::items);
            if items.is_none() && node.is_some_and(|n| n.preserves_unknown) {
                return;
            }
            for item in list {
                walk(item, items, items.map_or(Meta::None, Meta::for_node));
            }
        }
        _ => {}
    }
}

#[derive(Default)]
struct Report {
    root_metadata: Vec<String>,
    fields: Vec<String>,
    metadata: Vec<String>,
}

impl Report {
    fn walk(&mut self, value: &Json, node: Option<&Node>, meta: Meta, at: &ValuePath<'_>) {
        match value {
            Json::Object(map) => {
                let mut children = node.map(Children::new);
                for (name, child) in map {
                    let declared = meta.knows(name) || node.is_some_and(|n| n.property(name).is_some());
                    let at = if declared { at.field(name) } else { at.key(name) };
                    self.field(
                        name,
                        child,
                        field_action(node, children.as_mut(), name, meta),
                        meta,
                        &at,
                    );
                }
            }
            Json::Array(list) => {
                let items = node.and_then(Node::items);
                if items.is_none() && node.is_some_and(|n| n.preserves_unknown) {
                    return;
                }
                for (index, item) in list.iter().enumerate() {
                    self.walk(item, items, items.map_or(Meta::None, Meta::for_node), &at.index(index));
                }
            }
            _ => {}
        }
    }

    fn field(&mut self, name: &str, child: &Json, field_action: FieldAction<'_>, meta: Meta, at: &ValuePath<'_>) {
        match field_action {
            FieldAction::Drop => self.fields.push(at.text(Keys::Dotted)),
            FieldAction::Keep if name == "metadata" && meta != Meta::None => {
                let base = at.text(Keys::Bracketed);
                let found = if meta == Meta::Root {
                    &mut self.root_metadata
                } else {
                    &mut self.metadata
                };
                found.extend(embedded::unknown_metadata(child).map(|path| format!("{base}.{path}")));
            }
            FieldAction::Keep => {}
            FieldAction::Descend(node) => self.walk(child, node, node.map_or(Meta::None, Meta::for_node), at),
        }
    }
}

fn drop_nulls_at(value: &mut Json, node: &Node) {
    match value {
        Json::Object(map) => {
            let mut children = Children::new(node);
            // Few objects have nulls: without one nothing is allocated, and the map is not rebuilt.
            let mut dropped: Vec<String> = Vec::new();
            for (name, child) in map.iter_mut() {
                if matches!(child, Json::Null | Json::Object(_) | Json::Array(_))
                    && let Some(node) = children.child(name)
                {
                    if !child.is_null() {
                        drop_nulls_at(child, node);
                    } else if !node.nullable && node.default.is_none() {
                        dropped.push(name.clone());
                    }
                }
            }
            for name in dropped {
                map.remove(&name);
            }
        }
        Json::Array(list) => {
            if let Some(items) = node.items() {
                for item in list {
                    drop_nulls_at(item, items);
                }
            }
        }
        _ => {}
    }
}
