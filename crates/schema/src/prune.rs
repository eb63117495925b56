//! Dropping what a schema does not know: unknown fields, and nulls that mean nothing.
//!
//! Below a node that preserves unknown fields, declared children are still pruned by their own
//! schemas. Values that no schema describes (items of an undescribed list, values of an open map)
//! keep no fields at all.

use crate::at::{At, Keys};
use crate::embedded;
use crate::node::{Children, Node};
use crate::structural::Structural;
use insula_api::Json;

/// Removes unknown fields. `apiVersion`, `kind` and `metadata` are known at the root and in
/// embedded resources.
pub fn prune(object: &mut Json, schema: &Structural) {
    walk(object, Some(schema.root()), Meta::Root);
}

/// Whether pruning would leave the value as it is.
pub(crate) fn is_pruned(value: &Json, node: &Node, is_root: bool) -> bool {
    let mut report = Report::default();
    report.walk(
        value,
        Some(node),
        if is_root { Meta::Root } else { Meta::of(node) },
        &At::ROOT,
    );
    report.fields.is_empty()
}

/// The unknown fields that [`prune`] would remove, in the order in which Kubernetes lists them:
/// those of the object's metadata, the others by path, then those of embedded objects' metadata.
pub fn prune_report(object: &Json, schema: &Structural) -> Vec<String> {
    let mut report = Report::default();
    report.walk(object, Some(schema.root()), Meta::Root, &At::ROOT);
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
/// decodes an object. Items of lists stay: removing them would move others. Call before
/// [`crate::default`].
pub fn drop_nulls(object: &mut Json, schema: &Structural) {
    drop_nulls_at(object, schema.root());
}

/// Whether the node's value carries object metadata of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meta {
    Root,
    Embedded,
    None,
}

impl Meta {
    fn of(node: &Node) -> Meta {
        if node.embedded { Meta::Embedded } else { Meta::None }
    }

    fn knows(self, name: &str) -> bool {
        self != Meta::None && matches!(name, "apiVersion" | "kind" | "metadata")
    }
}

/// What becomes of one field.
enum Fate<'a> {
    Drop,
    Keep,
    Descend(Option<&'a Node>),
}

fn fate<'a>(node: Option<&'a Node>, children: Option<&mut Children<'a>>, name: &str, meta: Meta) -> Fate<'a> {
    if meta.knows(name) {
        return Fate::Keep;
    }
    let (Some(node), Some(children)) = (node, children) else {
        return Fate::Drop;
    };
    match children.child(name) {
        Some(child) => Fate::Descend(Some(child)),
        None if node.preserves_unknown => Fate::Keep,
        None => Fate::Drop,
    }
}

fn walk(value: &mut Json, node: Option<&Node>, meta: Meta) {
    match value {
        Json::Object(map) => {
            let mut children = node.map(Children::of);
            // Almost no object has one: nothing is allocated, and the map is not rebuilt.
            let mut dropped: Vec<String> = Vec::new();
            for (name, child) in map.iter_mut() {
                match fate(node, children.as_mut(), name, meta) {
                    Fate::Drop => dropped.push(name.clone()),
                    Fate::Keep if name == "metadata" => match meta {
                        Meta::Root => embedded::prune_metadata(child),
                        Meta::Embedded => embedded::tidy_metadata(child),
                        Meta::None => {}
                    },
                    Fate::Keep => {}
                    Fate::Descend(child_node) => {
                        if child.is_object() || child.is_array() {
                            walk(child, child_node, child_node.map_or(Meta::None, Meta::of));
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
                walk(item, items, items.map_or(Meta::None, Meta::of));
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
    fn walk(&mut self, value: &Json, node: Option<&Node>, meta: Meta, at: &At<'_>) {
        match value {
            Json::Object(map) => {
                let mut children = node.map(Children::of);
                for (name, child) in map {
                    let declared = meta.knows(name) || node.is_some_and(|n| n.property(name).is_some());
                    let at = if declared { at.field(name) } else { at.key(name) };
                    self.field(name, child, fate(node, children.as_mut(), name, meta), meta, &at);
                }
            }
            Json::Array(list) => {
                let items = node.and_then(Node::items);
                if items.is_none() && node.is_some_and(|n| n.preserves_unknown) {
                    return;
                }
                for (index, item) in list.iter().enumerate() {
                    self.walk(item, items, items.map_or(Meta::None, Meta::of), &at.index(index));
                }
            }
            _ => {}
        }
    }

    fn field(&mut self, name: &str, child: &Json, fate: Fate<'_>, meta: Meta, at: &At<'_>) {
        match fate {
            Fate::Drop => self.fields.push(at.text(Keys::Dotted)),
            Fate::Keep if name == "metadata" && meta != Meta::None => {
                let base = at.text(Keys::Bracketed);
                let found = if meta == Meta::Root {
                    &mut self.root_metadata
                } else {
                    &mut self.metadata
                };
                found.extend(embedded::unknown_metadata(child).map(|path| format!("{base}.{path}")));
            }
            Fate::Keep => {}
            Fate::Descend(node) => self.walk(child, node, node.map_or(Meta::None, Meta::of), at),
        }
    }
}

fn drop_nulls_at(value: &mut Json, node: &Node) {
    match value {
        Json::Object(map) => {
            let mut children = Children::of(node);
            // Almost no object has one: nothing is allocated, and the map is not rebuilt.
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
