//! Resolution of paths and names in one version, against its schema and the metadata that rules may
//! use.

use crate::passthrough::known_kind;
use crate::path::{Path, Segment, is_identifier};
use insula_cel::{Decl, Field, Program, Shape, Type};
use insula_schema::{Node, Structural};
use serde_json::json;
use std::cell::OnceCell;

/// Schema node of a path; `None` beneath fields that the schema does not describe.
pub(crate) type SchemaNode<'s> = Option<&'s Node>;

/// The scope of rules in one version: its name, schema and readable metadata.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VersionScope<'s> {
    /// The version's name.
    pub(crate) name: &'s str,
    pub(crate) schema: &'s Structural,
    /// The schema that expressions see.
    declares: &'s Structural,
    metadata: &'s Structural,
    /// Declaration of the whole object, made for the first expression: most directions have none.
    declared: &'s OnceCell<Decl>,
}

/// Maximum number of characters of a label's value and of a namespace's name.
const LABEL_MAX: u64 = 63;
/// Maximum number of characters of a name.
const NAME_MAX: u64 = 253;
/// Maximum number of bytes of all annotations together.
const ANNOTATIONS_MAX: u64 = 256 * 1024;

/// Returns a schema of labels, annotations and names, which every object has and no schema
/// describes. Its bounds are those that every server enforces; they price expressions over
/// metadata.
pub(crate) fn metadata_schema() -> Structural {
    let text = |most: u64| json!({"type": "string", "maxLength": most});
    let schema = json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {
        "labels": {"type": "object", "additionalProperties": text(LABEL_MAX)},
        "annotations": {"type": "object", "additionalProperties": text(ANNOTATIONS_MAX)},
        "name": text(NAME_MAX), "namespace": text(LABEL_MAX), "generateName": text(NAME_MAX),
    }}}});
    Structural::parse_trusted(&schema).unwrap_or_default()
}

impl<'s> VersionScope<'s> {
    pub(crate) fn new(
        name: &'s str,
        schema: &'s Structural,
        metadata: &'s Structural,
        declared: &'s OnceCell<Decl>,
    ) -> Self {
        VersionScope {
            name,
            schema,
            declares: schema,
            metadata,
            declared,
        }
    }

    /// Returns the same scope with more fields, which expressions do not see.
    pub(crate) fn with_fields_of(self, schema: &'s Structural) -> Self {
        VersionScope { schema, ..self }
    }

    /// Returns true if it has fields that expressions do not see.
    pub(crate) fn is_wide(&self) -> bool {
        !std::ptr::eq(self.schema, self.declares)
    }

    /// Returns the declaration of the whole object for expressions: the schema's fields,
    /// `apiVersion`, `kind` and the metadata that rules may read.
    pub(crate) fn declaration(&self) -> Decl {
        let declare = || {
            let root = self.declares.declaration();
            let root = widened(self.declares.root(), root).unwrap_or_else(|| root.clone());
            let mut fields: Vec<Field> = match root.shape() {
                Shape::Object { fields, .. } => fields.clone(),
                _ => Vec::new(),
            };
            fields.retain(|f| !["apiVersion", "kind", "metadata"].contains(&&*f.name));
            let metadata = self.metadata.root().property("metadata");
            let metadata = metadata.and_then(|node| node.declaration("object.metadata"));
            fields.extend([
                field("apiVersion", Decl::scalar(Type::String)),
                field("kind", Decl::scalar(Type::String)),
                field("metadata", metadata.unwrap_or_else(Decl::dynamic)),
            ]);
            Decl::object(root.name(), fields)
        };
        self.declared.get_or_init(declare).clone()
    }

    pub(crate) fn root(&self) -> SchemaNode<'s> {
        Some(self.schema.root())
    }

    /// Returns the node of a path from the root of the object. Of `metadata`, only labels and
    /// annotations may be written.
    pub(crate) fn find(&self, path: &[Segment]) -> Result<SchemaNode<'s>, String> {
        match path.first() {
            Some(Segment::Field(name)) if name == "metadata" => match path.get(1) {
                Some(Segment::Field(part)) if part == "labels" || part == "annotations" => {
                    descend(Some(self.metadata.root()), path, self.name)
                }
                _ => Err("of metadata, rules may touch labels and annotations only".to_owned()),
            },
            Some(Segment::Field(name)) if name == "apiVersion" || name == "kind" => {
                Err(format!("{name} is not the rules' to touch"))
            }
            _ => descend(self.root(), path, self.name),
        }
    }

    /// Returns the node of a path that is read: rules may read more of `metadata` than they may
    /// write.
    pub(crate) fn find_source(&self, path: &[Segment]) -> Result<SchemaNode<'s>, String> {
        match path.first() {
            Some(Segment::Field(name)) if name == "metadata" => {
                self.reads_metadata(path.get(1))?;
                descend(Some(self.metadata.root()), path, self.name)
            }
            _ => self.find(path),
        }
    }

    fn reads_metadata(&self, part: Option<&Segment>) -> Result<(), String> {
        const READABLE: [&str; 5] = ["name", "namespace", "generateName", "labels", "annotations"];
        match part {
            Some(Segment::Field(part)) if READABLE.contains(&part.as_str()) => Ok(()),
            _ => Err(format!("of metadata, rules may read {} only", READABLE.join(", "))),
        }
    }

    /// Checks the paths that an expression reads of the whole object. The type checker reports
    /// undeclared fields.
    fn reads(&self, path: &[String]) -> Result<(), String> {
        match path.first().map(String::as_str) {
            None => Err(
                "name the fields that are read; the whole object holds metadata that changes with every write"
                    .to_owned(),
            ),
            Some("metadata") => {
                let part = path.get(1).map(|name| Segment::Field(name.clone()));
                self.reads_metadata(part.as_ref())
            }
            Some(_) => Ok(()),
        }
    }
}

/// Returns the node of a path below `from`.
pub(crate) fn descend<'s>(from: SchemaNode<'s>, path: &[Segment], version: &str) -> Result<SchemaNode<'s>, String> {
    let mut here = from;
    for (depth, segment) in path.iter().enumerate() {
        let Some(node) = here else { return Ok(None) };
        let open = node.preserves_unknown() || known_kind(node).is_none();
        let next = match segment {
            Segment::Field(name) => node.child(name).or_else(|| {
                // Expressions select a list item by a constant index as a field.
                node.items().filter(|_| name.bytes().all(|b| b.is_ascii_digit()))
            }),
            Segment::Index(_) => node.items(),
            Segment::Each(_) | Segment::Key(_) => node.items().or_else(|| node.additional()),
        };
        here = match next {
            Some(node) => Some(node),
            None if open => None,
            None => {
                let place = Path::from_segments(path[..=depth].to_vec());
                return Err(match segment {
                    Segment::Field(_) => format!("there is no field {place} in {version}"),
                    Segment::Index(_) => format!(
                        "{} is no list in {version}",
                        Path::from_segments(path[..depth].to_vec())
                    ),
                    Segment::Each(_) | Segment::Key(_) => {
                        format!(
                            "{} is neither a list nor a map in {version}",
                            Path::from_segments(path[..depth].to_vec())
                        )
                    }
                });
            }
        };
    }
    Ok(here)
}

fn field(name: &str, decl: Decl) -> Field {
    Field {
        name: name.into(),
        written: name.into(),
        decl,
    }
}

/// Widens a declaration with `dyn` for fields that the schema does not describe: validation rules
/// may not read them, conversions may. `None` if that changes nothing.
fn widened(node: &Node, decl: &Decl) -> Option<Decl> {
    let bounded = |new: Decl| Some(new.bounded(decl.max_elements(), decl.min_bytes()));
    match decl.shape() {
        Shape::Scalar(_) => None,
        Shape::List { items, kind } => bounded(Decl::list(widened(node.items()?, items)?, kind.clone())),
        Shape::Map { values } => bounded(Decl::map(widened(node.additional()?, values)?)),
        Shape::Object { .. } if node.preserves_unknown() && node.properties().next().is_none() => Some(Decl::dynamic()),
        Shape::Object { name, fields } => {
            let mut changed = false;
            let mut all = Vec::with_capacity(fields.len());
            for known in fields {
                let wider = node.property(&known.name).and_then(|child| widened(child, &known.decl));
                changed |= wider.is_some();
                let decl = wider.unwrap_or_else(|| known.decl.clone());
                all.push(Field { decl, ..known.clone() });
            }
            let missing = node
                .properties()
                .filter(|(name, _)| is_identifier(name) && decl.field(name).is_none());
            let before = all.len();
            all.extend(missing.map(|(name, _)| field(name, Decl::dynamic())));
            (changed || all.len() > before).then(|| Decl::object(name, all))
        }
    }
}

/// Returns the declaration of a path below `from`; `dyn` beneath undeclared fields.
pub(crate) fn descend_decl(from: &Decl, path: &[Segment]) -> Decl {
    path.iter().fold(from.clone(), |here, segment| {
        let next = match (segment, here.shape()) {
            (Segment::Field(name), Shape::Object { .. }) => here.field(name).map(|f| f.decl.clone()),
            (Segment::Field(_) | Segment::Each(_) | Segment::Key(_), Shape::Map { values }) => Some(values.clone()),
            (Segment::Index(_) | Segment::Each(_) | Segment::Key(_), Shape::List { items, .. }) => Some(items.clone()),
            _ => None,
        };
        next.unwrap_or_else(Decl::dynamic)
    })
}

/// Checks that a program does not read the whole object, which changes with every write. `whole`:
/// `self` is the object, too.
pub(crate) fn reads_named_fields(program: &Program, view: &VersionScope<'_>, whole: bool) -> Result<(), String> {
    program
        .references()
        .iter()
        .filter(|reference| reference.variable == view.name || whole && reference.variable == "self")
        .try_for_each(|reference| view.reads(&reference.path))
}

/// Returns true for labels and annotations whose keys belong to the system.
pub(crate) fn reserved(path: &Path) -> bool {
    match path.segments() {
        [Segment::Field(metadata), Segment::Field(_), Segment::Field(key), ..] if metadata == "metadata" => {
            let domain = key.split('/').next().unwrap_or_default();
            key.contains('/') && (domain == "kcp.io" || domain.ends_with(".kcp.io"))
        }
        _ => false,
    }
}
