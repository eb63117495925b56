//! Objects that carry their residual in an annotation.
//!
//! If nobody stores a residual beside an object, as in a conversion webhook, it travels in an
//! annotation of the object. The object and its annotation together are the stored form, in
//! whichever version.
//!
//! ```text
//! v2 {name: {first: Bob}, mood: ok}    →  v1 {firstName: Bob}, insula.io/residual: mood = ok of v2
//! v1 {firstName: Rob}, the annotation  →  v2 {name: {first: Rob}, mood: ok}
//! ```
//!
//! Converting there and back returns the same object. An edit in between is kept: the hidden fields
//! are merged into the edited object, items without keys by index. Removing the annotation removes
//! the hidden fields.

use crate::bundle::{Bundle, LossPolicy, Stored, ToStore, VersionSchema};
use crate::error::{Cause, ConvertError};
use crate::rules::RuleSet;
use insula_api::{FieldError, FieldPath, Json};
use insula_cel::Budget;
use serde_json::Map;

/// Name of the annotation that holds the residual.
pub const RESIDUAL_ANNOTATION: &str = "insula.io/residual";
/// Maximum number of bytes of all annotations of an object: Kubernetes' limit.
const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

/// One API, compiled once for each version as the storage version.
#[derive(Debug)]
pub struct Portable {
    bundles: Vec<Bundle>,
}

/// A converted object.
#[derive(Debug, Clone, PartialEq)]
pub struct Converted {
    /// The object, with the annotation if the other version cannot show all fields.
    pub object: Json,
    /// True if the annotation was malformed and its contents are lost.
    pub broken: bool,
}

impl Portable {
    /// Compiles rules around `storage`, unless they name another hub.
    ///
    /// # Errors
    /// Returns the errors of the rules, or that objects of one version cannot be made from another.
    pub fn compile(
        group: &str,
        versions: &[VersionSchema],
        storage: &str,
        rules: Option<&RuleSet>,
        path: &FieldPath,
    ) -> Result<Portable, Vec<FieldError>> {
        let mut rules = rules.cloned().unwrap_or_default();
        // The hub stays the same for every storage version.
        rules.hub.get_or_insert_with(|| storage.to_owned());
        let compile = |target: &VersionSchema| {
            Bundle::compile(
                group,
                versions.to_vec(),
                &target.name,
                Some(&rules),
                LossPolicy::Lossless,
                path,
            )
        };
        Ok(Portable {
            bundles: versions
                .iter()
                .map(|version| compile(version).map(Bundle::without_records))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Converts an object to version `to`, so that the original can be restored from the result.
    ///
    /// # Errors
    /// Fails if a version does not exist, a rule fails for this object, or the annotations exceed
    /// 256 KiB.
    pub fn convert(&self, object: &Json, to: &str, budget: &mut Budget) -> Result<Converted, ConvertError> {
        let from = object["apiVersion"].as_str().unwrap_or_default();
        let from = insula_api::names::version_of(from);
        let Some(bundle) = self.bundles.iter().find(|bundle| bundle.storage() == to) else {
            return Err(self.failure(from, to, Cause::UnknownVersion(to.to_owned())));
        };
        if from == to {
            return Ok(Converted {
                object: object.clone(),
                broken: false,
            });
        }
        let mut plain = object.clone();
        let carried = take_annotation(&mut plain);
        let moved = |carried: Option<&[u8]>, budget: &mut Budget| -> Result<ToStore, ConvertError> {
            let stored = Stored {
                value: &plain,
                version: from,
                residual: carried,
            };
            let shown = bundle.get(stored, to, budget)?;
            bundle.put(&shown, to, Some(stored), budget)
        };
        let (made, broken) = match moved(carried.as_deref(), budget) {
            // Anybody can write annotations. Refusing the object would make it unreadable.
            Err(ConvertError {
                cause: Cause::Residual(_),
                ..
            }) => (moved(None, budget)?, true),
            made => (made?, false),
        };
        let ToStore { mut value, residual } = made;
        keep_metadata(&plain, &mut value);
        if let Some(residual) = residual {
            self.attach_residual(&mut value, residual, (from, to))?;
        }
        Ok(Converted { object: value, broken })
    }

    fn attach_residual(
        &self,
        object: &mut Json,
        residual: Vec<u8>,
        (from, to): (&str, &str),
    ) -> Result<(), ConvertError> {
        let broken = |why: &str| self.failure(from, to, Cause::Residual(why.to_owned()));
        let text = String::from_utf8(residual).map_err(|_| broken("it is no text"))?;
        let metadata = object.as_object_mut().map(|object| {
            let metadata = object.entry("metadata").or_insert_with(|| Json::Object(Map::new()));
            metadata.as_object_mut()
        });
        let annotations = metadata.flatten().and_then(|metadata| {
            let annotations = metadata
                .entry("annotations")
                .or_insert_with(|| Json::Object(Map::new()));
            annotations.as_object_mut()
        });
        let annotations = annotations.ok_or_else(|| broken("the object's metadata holds no annotations"))?;
        annotations.insert(RESIDUAL_ANNOTATION.to_owned(), Json::String(text));
        let bytes = |(name, value): (&String, &Json)| name.len() + value.as_str().map_or(0, str::len);
        let all: usize = annotations.iter().map(bytes).sum();
        if all > ANNOTATIONS_BYTES_MAX {
            return Err(broken(&format!(
                "with what {to} cannot show, annotations take {all} bytes; an object holds {ANNOTATIONS_BYTES_MAX}"
            )));
        }
        Ok(())
    }

    fn failure(&self, from: &str, to: &str, cause: Cause) -> ConvertError {
        match self.bundles.first() {
            Some(bundle) => bundle.failure(from, to, cause),
            None => ConvertError {
                group: String::new(),
                from: from.to_owned(),
                to: to.to_owned(),
                rule: None,
                cause,
            },
        }
    }
}

/// Removes the annotation and returns its value. Removes maps that are empty without it, too.
fn take_annotation(object: &mut Json) -> Option<Vec<u8>> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let carried = annotations.remove(RESIDUAL_ANNOTATION)?;
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    // A value that is not text is malformed.
    Some(carried.as_str().unwrap_or("?").as_bytes().to_vec())
}

/// Restores metadata, of which rules change labels and annotations only.
fn keep_metadata(source: &Json, object: &mut Json) {
    let Some(Json::Object(mut kept)) = source.get("metadata").cloned() else {
        return;
    };
    for part in ["labels", "annotations"] {
        match object.get("metadata").and_then(|metadata| metadata.get(part)) {
            Some(value) => kept.insert(part.to_owned(), value.clone()),
            None => kept.remove(part),
        };
    }
    if let Some(object) = object.as_object_mut() {
        object.insert("metadata".to_owned(), Json::Object(kept));
    }
}
