//! Removal of what objects hold in a field that a version has no more.

use super::{Item, Patch};
use crate::path::{Path, Segment};
use insula_schema::{Node, Structural};
use serde_json::Value as Json;

/// A step of the path of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    /// Each item of a list, or each entry of a map.
    Each,
}

/// The path of a field, as schemas have it: `.spec.colors[].name`, with `[]` for the items of a
/// list and for the entries of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaPath(Vec<Step>);

impl SchemaPath {
    /// Reads a path.
    ///
    /// # Errors
    /// The text begins with no step, names nothing, or is about metadata.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no path of a field such as .spec.backup, .spec.users[].mail or .spec['example.io/mail']"
            )
        };
        let path = Path::parse(text)
            .ok()
            .filter(|_| text.starts_with(['.', '[']))
            .ok_or_else(wrong)?;
        let step = |segment: &Segment| match segment {
            Segment::Field(name) => Some(Step::Field(name.clone())),
            Segment::Each(variable) if variable.is_empty() => Some(Step::Each),
            Segment::Each(_) | Segment::Index(_) | Segment::Key(_) => None,
        };
        let steps: Option<Vec<Step>> = path.segments().iter().map(step).collect();
        let steps = steps.ok_or_else(wrong)?;
        match steps.first() {
            Some(Step::Field(first)) if !matches!(first.as_str(), "apiVersion" | "kind" | "metadata") => {
                Ok(SchemaPath(steps))
            }
            _ => Err(wrong()),
        }
    }

    /// Returns the path of a field of the conversion's own notation.
    pub(crate) fn from_path(path: &Path) -> Self {
        let step = |segment: &Segment| match segment {
            Segment::Field(name) => Step::Field(name.clone()),
            Segment::Index(_) | Segment::Each(_) | Segment::Key(_) => Step::Each,
        };
        SchemaPath(path.segments().iter().map(step).collect())
    }

    /// Returns true if a schema has the field, or keeps whatever is at its place.
    pub(crate) fn is_in(&self, schema: &Structural) -> bool {
        let mut node = schema.root();
        for step in &self.0 {
            let below = match step {
                Step::Field(name) => node.property(name),
                Step::Each => node.items().or(node.additional()),
            };
            match below {
                Some(below) => node = below,
                None => return node.preserves_unknown(),
            }
        }
        true
    }

    /// Returns what a patch sets at a path of fields.
    pub(crate) fn find_in(&self, patch: &Patch) -> Option<Patch> {
        let mut at = patch.clone().by_field();
        for step in &self.0 {
            at = match (step, at) {
                (Step::Field(name), Patch::Fields(mut fields)) => fields.remove(name)?,
                _ => return None,
            };
        }
        (!matches!(at, Patch::Unset { .. })).then_some(at)
    }

    /// Returns the patch of an object that has this patch at the path, which is one of fields.
    pub(crate) fn around(&self, patch: Patch) -> Patch {
        self.0.iter().rev().fold(patch, |patch, step| match step {
            Step::Field(name) => Patch::Fields([(name.clone(), patch)].into()),
            Step::Each => patch,
        })
    }

    /// Removes what a patch sets at the path, `node` being the schema of what it patches. Returns
    /// what is left of it, and whether something went.
    pub(crate) fn remove_from(&self, patch: Patch, schema: Option<&Structural>) -> (Option<Patch>, bool) {
        self.remove(patch, schema, false)
    }

    /// Removes the same, but for what the field at the path takes: values of another type alone.
    pub(crate) fn remove_refused_from(&self, patch: Patch, schema: &Structural) -> (Option<Patch>, bool) {
        self.remove(patch, Some(schema), true)
    }

    fn remove(&self, patch: Patch, schema: Option<&Structural>, is_refused: bool) -> (Option<Patch>, bool) {
        let mut removal = Removal {
            went: false,
            is_refused,
        };
        let left = without(patch, schema.map(Structural::root), &self.0, &mut removal);
        (left, removal.went)
    }
}

/// Removal of what is at a path.
struct Removal {
    /// True once something was there.
    went: bool,
    /// True if what the field takes stays.
    is_refused: bool,
}

/// Returns the rest of the path below a name, if it leads there: a name of a field, or any entry of
/// a map, also of one that has other fields now, or of a place that kept anything.
fn below<'s>(node: Option<&Node>, name: &str, path: &'s [Step]) -> Option<&'s [Step]> {
    let is_entry = node.is_none_or(|node| node.property(name).is_none());
    match path.split_first()? {
        (Step::Field(field), rest) if field == name => Some(rest),
        (Step::Each, rest) if is_entry => Some(rest),
        _ => None,
    }
}

/// Returns true for a patch that is no part of what a node has: a value, or fields or items of what
/// was an object or a list.
fn is_of_another_type(patch: &Patch, node: &Node) -> bool {
    match patch {
        Patch::Set { .. } => true,
        Patch::Fields(_) => node.properties().next().is_none() && node.additional().is_none(),
        Patch::Within(_) | Patch::Items { .. } => node.items().is_none(),
        Patch::Unset { .. } => false,
    }
}

fn without(patch: Patch, node: Option<&Node>, path: &[Step], removal: &mut Removal) -> Option<Patch> {
    if path.is_empty() {
        let takes = |node: &Node| !is_of_another_type(&patch, node);
        let goes = !removal.is_refused || !node.is_some_and(takes);
        removal.went |= goes;
        return (!goes).then_some(patch);
    }
    let in_item = |patch: Patch, removal: &mut Removal| match path.split_first() {
        Some((Step::Each, rest)) => without(patch, node.and_then(Node::items), rest, removal),
        _ => Some(patch),
    };
    match patch {
        Patch::Fields(fields) => {
            let left = fields.into_iter().filter_map(|(name, patch)| {
                let left = match below(node, &name, path) {
                    Some(rest) => without(patch, node.and_then(|node| node.child(&name)), rest, removal),
                    None => Some(patch),
                };
                Some((name, left?))
            });
            let left: std::collections::BTreeMap<_, _> = left.collect();
            (!left.is_empty()).then_some(Patch::Fields(left))
        }
        Patch::Within(entries) => {
            let left = entries
                .into_iter()
                .filter_map(|(at, patch)| Some((at, in_item(patch, removal)?)));
            let left: Vec<_> = left.collect();
            (!left.is_empty()).then_some(Patch::Within(left))
        }
        Patch::Items { items, of, guard } => {
            let items = items.into_iter().map(|item| match item {
                Item::Base(at, patch) => Item::Base(at, patch.and_then(|patch| in_item(patch, removal))),
                Item::New(value) => match path.split_first() {
                    Some((Step::Each, rest)) => Item::New(item_without(value, rest, &mut removal.went)),
                    _ => Item::New(value),
                },
            });
            let items = items.collect();
            Some(Patch::Items { items, of, guard })
        }
        Patch::Set { value, guard } => {
            let value = value_without(value, path, &mut removal.went)?;
            Some(Patch::Set { value, guard })
        }
        Patch::Unset { .. } => Some(patch),
    }
}

/// Returns what is left of an item of a list, which stays in its place.
fn item_without(item: Json, path: &[Step], went: &mut bool) -> Json {
    value_without(item, path, went).unwrap_or_else(|| Json::Object(Default::default()))
}

fn value_without(value: Json, path: &[Step], went: &mut bool) -> Option<Json> {
    let Some((step, rest)) = path.split_first() else {
        *went = true;
        return None;
    };
    match (value, step) {
        (Json::Object(map), _) => {
            let was_empty = map.is_empty();
            let left = map.into_iter().filter_map(|(name, value)| {
                let value = match below(None, &name, path) {
                    Some(rest) => value_without(value, rest, went)?,
                    None => value,
                };
                Some((name, value))
            });
            let left: serde_json::Map<_, _> = left.collect();
            (was_empty || !left.is_empty()).then_some(Json::Object(left))
        }
        (Json::Array(items), Step::Each) => {
            let items = items.into_iter().map(|item| item_without(item, rest, went));
            Some(Json::Array(items.collect()))
        }
        (value, _) => Some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_schemas() {
        for right in [
            ".spec.a",
            ".spec.a[].b",
            ".spec.a[][].b",
            ".status",
            ".spec.m[]",
            ".spec['a.b/c'].d",
            "['example.io/zone'].d",
        ] {
            assert!(SchemaPath::parse(right).is_ok(), "{right}");
        }
        for wrong in [
            "",
            ".",
            "spec",
            ".spec.",
            ".spec..a",
            ".spec[0]",
            ".spec[i].a",
            ".spec[self.name]",
            ".spec.a/b",
            ".spec.a[]b",
            ".metadata.labels",
            ".[]",
            ".a[",
            ".a]",
        ] {
            assert!(SchemaPath::parse(wrong).is_err(), "{wrong}");
        }
    }
}
