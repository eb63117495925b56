//! What paths and names mean in one version: schema nodes, and the little of metadata that rules may touch.

use crate::carry::known_kind;
use crate::path::{Path, Segment};
use insula_cel::Program;
use insula_schema::{Node, Structural};
use serde_json::json;

/// A place of a schema; `None` beneath fields that the schema does not describe.
pub(crate) type Place<'s> = Option<&'s Node>;

/// One version as rules see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'s> {
    /// The version's name.
    pub(crate) name: &'s str,
    pub(crate) schema: &'s Structural,
    metadata: &'s Structural,
}

/// Labels and annotations, which every object has and no schema describes.
pub(crate) fn metadata_schema() -> Structural {
    let strings = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let schema = json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {
        "labels": strings, "annotations": strings,
        "name": {"type": "string"}, "namespace": {"type": "string"}, "generateName": {"type": "string"},
    }}}});
    Structural::parse_trusted(&schema).unwrap_or_default()
}

impl<'s> View<'s> {
    pub(crate) fn new(name: &'s str, schema: &'s Structural, metadata: &'s Structural) -> Self {
        View { name, schema, metadata }
    }

    pub(crate) fn root(&self) -> Place<'s> {
        Some(self.schema.root())
    }

    /// The place of a path from the root of the object. `metadata` is labels and annotations only.
    pub(crate) fn find(&self, path: &[Segment]) -> Result<Place<'s>, String> {
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

    /// The place of a path that is read: of metadata, a little more may be read than written.
    pub(crate) fn find_source(&self, path: &[Segment]) -> Result<Place<'s>, String> {
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

    /// Checks what an expression reads of the whole object.
    fn reads(&self, path: &[String]) -> Result<(), String> {
        let segments: Vec<Segment> = path.iter().map(|name| Segment::Field(name.clone())).collect();
        match path.first().map(String::as_str) {
            None => Err(
                "name the fields that are read; the whole object holds metadata that changes with every write"
                    .to_owned(),
            ),
            Some("metadata") => self.reads_metadata(segments.get(1)),
            Some("apiVersion" | "kind") => Ok(()),
            Some(_) => descend(self.root(), &segments, self.name).map(|_| ()),
        }
    }
}

/// The place of a path from `from`.
pub(crate) fn descend<'s>(from: Place<'s>, path: &[Segment], version: &str) -> Result<Place<'s>, String> {
    let mut here = from;
    for (depth, segment) in path.iter().enumerate() {
        let Some(node) = here else { return Ok(None) };
        let open = node.preserves_unknown() || known_kind(node).is_none();
        let next = match segment {
            Segment::Field(name) => node.child(name).or_else(|| {
                // What an expression selects of a list by a constant index.
                node.items().filter(|_| name.bytes().all(|b| b.is_ascii_digit()))
            }),
            Segment::Index(_) => node.items(),
            Segment::Each(_) | Segment::Key(_) => node.items().or_else(|| node.additional()),
        };
        here = match next {
            Some(node) => Some(node),
            None if open => None,
            None => {
                let place = Path::of(path[..=depth].to_vec());
                return Err(match segment {
                    Segment::Field(_) => format!("there is no field {place} in {version}"),
                    Segment::Index(_) => format!("{} is no list in {version}", Path::of(path[..depth].to_vec())),
                    Segment::Each(_) | Segment::Key(_) => {
                        format!(
                            "{} is neither a list nor a map in {version}",
                            Path::of(path[..depth].to_vec())
                        )
                    }
                });
            }
        };
    }
    Ok(here)
}

/// Checks that everything a program reads is declared. `this` is where `self` stands; `None` for the whole object.
pub(crate) fn check_references(program: &Program, view: &View<'_>, this: Option<Place<'_>>) -> Result<(), String> {
    for reference in program.references() {
        if reference.variable == view.name || reference.variable == "self" && this.is_none() {
            view.reads(&reference.path)?;
        } else if let ("self", Some(place)) = (reference.variable.as_str(), this) {
            let segments: Vec<Segment> = reference.path.iter().map(|name| Segment::Field(name.clone())).collect();
            descend(place, &segments, view.name)?;
        }
    }
    Ok(())
}

/// The key of a label or annotation that belongs to the system.
pub(crate) fn reserved(path: &Path) -> bool {
    match path.segments() {
        [Segment::Field(metadata), Segment::Field(_), Segment::Field(key), ..] if metadata == "metadata" => {
            let domain = key.split('/').next().unwrap_or_default();
            key.contains('/') && (domain == "kcp.io" || domain.ends_with(".kcp.io"))
        }
        _ => false,
    }
}
