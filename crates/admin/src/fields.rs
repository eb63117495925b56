//! Fields of requests that all services have: update masks, etags, objects.

use crate::status::{self, Fault};
use insula_api::Json;
use insula_proto::{admin::v1::ErrorReason, value};
use prost_types::{FieldMask, Struct};
use tonic::{Code, Status};

/// The fields that an update changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mask(Vec<&'static str>);

impl Mask {
    /// Reads a mask. `known` has the fields of the thing that may be updated, each with true if
    /// the request sets it: an empty mask means these.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a field that is not known, and where nothing would be updated.
    pub(crate) fn read(mask: Option<&FieldMask>, known: &[(&'static str, bool)]) -> Result<Mask, Status> {
        let paths = mask.map(|mask| mask.paths.as_slice()).unwrap_or_default();
        let names = || {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            names.join(", ")
        };
        let mut fields = Vec::new();
        for path in paths {
            let found = known.iter().find(|(name, _)| name == path);
            match (found, path.as_str()) {
                (Some((name, _)), _) => fields.push(*name),
                (None, "*") => fields.extend(known.iter().map(|(name, _)| *name)),
                (None, "") => {
                    let problem = format!("has an empty path: name some of {}", names());
                    return Err(status::invalid("update_mask", problem));
                }
                (None, _) => {
                    let problem = format!("{path:?} cannot be updated: name some of {}", names());
                    return Err(status::invalid("update_mask", problem));
                }
            }
        }
        if paths.is_empty() {
            let set = known.iter().filter(|(_, is_set)| *is_set);
            fields.extend(set.map(|(name, _)| *name));
        }
        if fields.is_empty() {
            let problem = format!("names nothing, and the request sets nothing of {}", names());
            return Err(status::invalid("update_mask", problem));
        }
        Ok(Mask(fields))
    }

    /// Returns true if the update changes a field.
    pub(crate) fn has(&self, field: &str) -> bool {
        self.0.contains(&field)
    }
}

/// Reads an etag: a resourceVersion. `None` if it is empty.
///
/// # Errors
/// INVALID_ARGUMENT for a text that is no etag of this server.
pub(crate) fn etag(etag: &str) -> Result<Option<&str>, Status> {
    match etag {
        "" => Ok(None),
        etag if etag.len() <= 20 && etag.bytes().all(|byte| byte.is_ascii_digit()) => Ok(Some(etag)),
        _ => Err(status::invalid("etag", "is none: send the etag of an answer, or none")),
    }
}

/// Returns the etag of an object.
pub(crate) fn etag_of(object: &Json) -> String {
    let version = object["metadata"]["resourceVersion"].as_str();
    version.unwrap_or_default().to_owned()
}

/// Reads an object of a request.
///
/// # Errors
/// INVALID_ARGUMENT for an absent object, and for a value that JSON does not have.
pub(crate) fn object(field: &str, sent: Option<Struct>) -> Result<Json, Status> {
    let sent = sent.ok_or_else(|| status::invalid(field, "is required"))?;
    let object = value::to_json(sent);
    let object = object.map_err(|error| status::invalid(&format!("{field}.{}", error.field), error.problem))?;
    Ok(Json::Object(object))
}

/// Returns an object of an answer.
///
/// # Errors
/// OUT_OF_RANGE for an integer that a Struct cannot hold. The message names the object.
pub(crate) fn structure(object: &Json) -> Result<Struct, Status> {
    let map = object.as_object();
    let map = map.ok_or_else(|| Status::internal("an object is no object"))?;
    value::from_json(map).map_err(|error| {
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
        let name = match text("namespace") {
            "" => text("name").to_owned(),
            namespace => format!("{namespace}/{}", text("name")),
        };
        let kind = object["kind"].as_str().unwrap_or("object");
        let message = format!("{kind} {name:?}: {error}; read it over HTTP");
        Fault::new(Code::OutOfRange, ErrorReason::NotRepresentable, message)
            .resource(kind, &name)
            .status()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[(&str, bool)] = &[("labels", true), ("type", false)];

    fn mask(paths: &[&str]) -> Result<Mask, Code> {
        let mask = FieldMask {
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        };
        Mask::read(Some(&mask), KNOWN).map_err(|status| status.code())
    }

    #[test]
    fn masks_name_known_fields_or_mean_those_that_are_set() {
        assert_eq!(mask(&[]), Ok(Mask(vec!["labels"])));
        assert_eq!(mask(&["type"]), Ok(Mask(vec!["type"])));
        assert_eq!(mask(&["*"]), Ok(Mask(vec!["labels", "type"])));
        assert_eq!(mask(&["labels", "size"]), Err(Code::InvalidArgument));
        assert_eq!(mask(&[""]), Err(Code::InvalidArgument));
        let unset = Mask::read(None, &[("labels", false)]);
        assert_eq!(unset.map_err(|status| status.code()), Err(Code::InvalidArgument));
    }

    #[test]
    fn etags_are_resource_versions() {
        assert_eq!(etag("").expect("none"), None);
        assert_eq!(etag("17").expect("an etag"), Some("17"));
        for wrong in ["x", "-1", "1.5", "999999999999999999999"] {
            assert_eq!(
                etag(wrong).expect_err("no etag").code(),
                Code::InvalidArgument,
                "{wrong}"
            );
        }
    }
}
