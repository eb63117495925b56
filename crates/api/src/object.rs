//! Stored objects: decoded metadata beside the canonical bytes of the storage version.

use crate::{Json, Meta, Revision, heads};
use serde::Deserialize;
use std::{
    any::Any,
    fmt,
    io::Write,
    sync::{Arc, OnceLock},
};

/// Stored object. Immutable: a change makes a new one.
///
/// Its body is compact JSON with sorted keys in the storage version and without
/// `metadata.resourceVersion`: the store assigns the revision only when it commits. A read writes
/// it between `head`, which ends with `"metadata":{`, and `tail`; in the storage version that is
/// two copies of bytes and no parsing. Most objects of a kind have the same head and share it (see
/// `heads.rs`).
pub struct Object {
    /// Decoded metadata.
    pub meta: Meta,
    head: Arc<str>,
    tail: Box<str>,
    /// Range in `head` of the version that the body is in, e.g. `v1`.
    version: (u32, u32),
    /// Fingerprint of the schema and rules that the bytes were written under; 0 if unknown.
    schema: u64,
    /// Residual: fields that the storage version cannot hold, as canonical JSON for the conversion
    /// crate. Clients never see it.
    residual: Option<Box<[u8]>>,
    /// Typed reading of this object, made at most once and freed with it. Unlike a cache beside the
    /// store it needs no invalidation, because the object never changes.
    parsed: OnceLock<Arc<dyn Any + Send + Sync>>,
}

/// Error for bytes that are no object.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// Not JSON, or its metadata has the wrong types.
    #[error("not an object: {0}")]
    Json(#[from] serde_json::Error),
    /// A field every object has is missing.
    #[error("not an object: no {0}")]
    Missing(&'static str),
    /// A stored envelope is damaged.
    #[error("damaged envelope: {0}")]
    Envelope(&'static str),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    api_version: String,
    #[serde(default)]
    metadata: Meta,
}

/// Stored form: this byte, the schema's fingerprint (8 bytes, little endian), the length of the
/// residual (4 bytes, little endian), the residual, the body.
const ENVELOPE_V1: u8 = 1;

impl Object {
    /// Makes an object of a JSON value, which must have `apiVersion`, `kind` and `metadata`.
    /// `metadata.resourceVersion` is left out.
    ///
    /// # Errors
    /// Fails if one of the three is missing or has the wrong type.
    pub fn new(value: &Json, residual: Option<Box<[u8]>>) -> Result<Object, ObjectError> {
        let map = value.as_object().ok_or(ObjectError::Missing("fields"))?;
        let metadata = map
            .get("metadata")
            .and_then(Json::as_object)
            .ok_or(ObjectError::Missing("metadata"))?;
        let mut body = Vec::with_capacity(512);
        body.push(b'{');
        let mut splice_at = 0;
        for (i, (key, field)) in map.iter().enumerate() {
            if i > 0 {
                body.push(b',');
            }
            serde_json::to_writer(&mut body, key)?;
            body.push(b':');
            if key != "metadata" {
                serde_json::to_writer(&mut body, field)?;
                continue;
            }
            body.push(b'{');
            splice_at = body.len();
            let mut first = true;
            for (key, field) in metadata.iter().filter(|(key, _)| *key != "resourceVersion") {
                if !std::mem::take(&mut first) {
                    body.push(b',');
                }
                serde_json::to_writer(&mut body, key)?;
                body.push(b':');
                serde_json::to_writer(&mut body, field)?;
            }
            body.push(b'}');
        }
        body.push(b'}');
        Self::assemble(&body, splice_at, residual)
    }

    /// Copies the parts out of `body`, whose allocation is larger than its content.
    fn assemble(body: &[u8], splice_at: usize, residual: Option<Box<[u8]>>) -> Result<Object, ObjectError> {
        let known: Head = serde_json::from_slice(body)?;
        let body = std::str::from_utf8(body).map_err(|_| ObjectError::Missing("text"))?;
        let (head, tail) = body.split_at(splice_at);
        // Keys are sorted: it stands before the metadata.
        let at = value_start(head.as_bytes(), b"apiVersion").ok_or(ObjectError::Missing("apiVersion"))? + 1;
        let end = at + known.api_version.len();
        if head.get(at..end) != Some(&*known.api_version) {
            return Err(ObjectError::Missing("plain apiVersion"));
        }
        let start = known.api_version.find('/').map_or(at, |slash| at + slash + 1);
        Ok(Object {
            meta: known.metadata,
            version: (start as u32, end as u32),
            head: heads::shared(head),
            tail: tail.into(),
            schema: 0,
            residual,
            parsed: OnceLock::new(),
        })
    }

    /// Marks the object as written under a schema. While that schema serves it, its bytes need no
    /// conversion or check.
    #[must_use]
    pub fn written_under(mut self, schema: u64) -> Object {
        self.schema = schema;
        self
    }

    /// Returns the fingerprint of the schema that the bytes were written under; 0 if unknown.
    pub fn schema(&self) -> u64 {
        self.schema
    }

    /// Returns the version that the bytes are in.
    pub fn version(&self) -> &str {
        let (start, end) = self.version;
        &self.head[start as usize..end as usize]
    }

    /// Returns the canonical text, without a resourceVersion, in two parts.
    pub fn body(&self) -> [&str; 2] {
        [&self.head, &self.tail]
    }

    /// Returns the length of the canonical text in bytes.
    pub fn body_len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Returns the residual: canonical JSON of fields that the storage version cannot hold.
    pub fn residual(&self) -> Option<&[u8]> {
        self.residual.as_deref()
    }

    /// Estimates the bytes that this object occupies in memory.
    pub fn size(&self) -> usize {
        self.body_len() + self.residual.as_ref().map_or(0, |residual| residual.len()) + size_of::<Object>()
    }

    /// Returns the offset of `metadata`'s brace in what [`Object::write_to`] appends.
    pub fn metadata_at(&self) -> usize {
        self.head.len() - 1
    }

    /// Appends the object to `out` as clients see it at a revision.
    pub fn write_to(&self, revision: Revision, out: &mut Vec<u8>) {
        out.reserve(self.body_len() + 42);
        out.extend_from_slice(self.head.as_bytes());
        // Writing to a Vec cannot fail.
        let _ = write!(out, "\"resourceVersion\":\"{revision}\"");
        if !self.tail.starts_with('}') {
            out.push(b',');
        }
        out.extend_from_slice(self.tail.as_bytes());
    }

    /// Decodes the object to a value, with `metadata.resourceVersion` set.
    pub fn value(&self, revision: Revision) -> Json {
        let mut value = self.body_value();
        value["metadata"]["resourceVersion"] = Json::String(revision.to_string());
        value
    }

    /// Decodes the object to a value, without a resourceVersion.
    pub fn body_value(&self) -> Json {
        serde_json::from_str(&self.body().concat()).expect("a body is the JSON that Object::new wrote")
    }

    /// Encodes the object for the disk.
    pub fn to_stored(&self) -> Vec<u8> {
        let residual = self.residual.as_deref().unwrap_or_default();
        let mut out = Vec::with_capacity(13 + residual.len() + self.body_len());
        out.push(ENVELOPE_V1);
        out.extend_from_slice(&self.schema.to_le_bytes());
        out.extend_from_slice(&(residual.len() as u32).to_le_bytes());
        out.extend_from_slice(residual);
        for part in self.body() {
            out.extend_from_slice(part.as_bytes());
        }
        out
    }

    /// Decodes the bytes of [`Object::to_stored`].
    ///
    /// # Errors
    /// Fails for a damaged envelope or body.
    pub fn from_stored(stored: &[u8]) -> Result<Object, ObjectError> {
        let (&format, rest) = stored.split_first().ok_or(ObjectError::Envelope("empty"))?;
        if format != ENVELOPE_V1 {
            return Err(ObjectError::Envelope("unknown format"));
        }
        let (schema, rest) = rest.split_first_chunk::<8>().ok_or(ObjectError::Envelope("short"))?;
        let (length, rest) = rest.split_first_chunk::<4>().ok_or(ObjectError::Envelope("short"))?;
        let length = u32::from_le_bytes(*length) as usize;
        let (residual, body) = rest.split_at_checked(length).ok_or(ObjectError::Envelope("short"))?;
        let residual = (!residual.is_empty()).then(|| Box::from(residual));
        // `"metadata":{` is found by its bytes: keys are sorted and `apiVersion` and `kind` are the
        // only ones before it in most objects, but a body field that sorts before it may hold
        // anything, so the search walks top-level keys.
        let at = value_start(body, b"metadata").filter(|at| body.get(*at) == Some(&b'{'));
        let splice_at = at.ok_or(ObjectError::Missing("metadata"))? + 1;
        let object = Self::assemble(body, splice_at, residual)?;
        Ok(object.written_under(u64::from_le_bytes(*schema)))
    }

    /// Returns the typed reading `T` of this object, made by `make` the first time. A kind of
    /// objects has one such `T`; any other is made again on every call.
    pub fn parsed<T: Send + Sync + 'static>(&self, make: impl FnOnce(&Object) -> T) -> Arc<T> {
        if let Some(known) = self.parsed.get() {
            return match known.clone().downcast::<T>() {
                Ok(view) => view,
                Err(_) => Arc::new(make(self)),
            };
        }
        let made = Arc::new(make(self));
        match self.parsed.get_or_init(|| made.clone()).clone().downcast::<T>() {
            Ok(view) => view,
            Err(_) => made,
        }
    }
}

/// Finds the offset of the value of a field of the object that compact JSON begins with. What is
/// behind that object is not read.
pub(crate) fn value_start(body: &[u8], field: &[u8]) -> Option<usize> {
    let (mut depth, mut at) = (0u32, 0);
    while at < body.len() {
        match body[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth <= 1 => return None,
            b'}' | b']' => depth -= 1,
            b'"' => {
                let start = at;
                at += 1;
                while *body.get(at)? != b'"' {
                    at += if body[at] == b'\\' { 2 } else { 1 };
                }
                let is_key = depth == 1 && matches!(body[start - 1], b'{' | b',');
                if is_key && &body[start + 1..at] == field && body.get(at + 1) == Some(&b':') {
                    return Some(at + 2);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Object({} {}/{})",
            self.version(),
            self.meta.namespace,
            self.meta.name
        )
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.tail == other.tail && self.head == other.head && self.residual == other.residual
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample() -> Json {
        json!({"apiVersion": "example.io/v1", "kind": "Widget", "a": {"metadata": {"x": "\"}{"}},
            "metadata": {"name": "a", "namespace": "n", "labels": {"k": "v"}, "resourceVersion": "7",
                "uid": "6fa459ea-ee8a-4ca4-894e-db77e160355e", "creationTimestamp": "2026-11-21T09:40:00Z"},
            "spec": {"size": 3}})
    }

    #[test]
    fn the_revision_is_spliced_in() {
        let object = Object::new(&sample(), None).expect("an object");
        let mut out = Vec::new();
        object.write_to(Revision(42), &mut out);
        let back: Json = serde_json::from_slice(&out).expect("valid JSON");
        let mut want = sample();
        want["metadata"]["resourceVersion"] = json!("42");
        assert_eq!(back, want);
        assert_eq!(object.value(Revision(42)), want);
        assert_eq!(object.meta.label("k"), Some("v"));
        assert_eq!(object.version(), "v1");
    }

    #[test]
    fn empty_metadata_takes_a_revision_too() {
        let object = Object::new(&json!({"apiVersion": "v1", "kind": "X", "metadata": {}}), None).expect("an object");
        let mut out = Vec::new();
        object.write_to(Revision(1), &mut out);
        assert_eq!(
            out,
            br#"{"apiVersion":"v1","kind":"X","metadata":{"resourceVersion":"1"}}"#
        );
    }

    #[test]
    fn envelopes_round_trip() {
        for residual in [None, Some(Box::from(&b"{\"v2\":[]}"[..]))] {
            let object = Object::new(&sample(), residual).expect("an object").written_under(7);
            let back = Object::from_stored(&object.to_stored()).expect("reads");
            assert_eq!(back, object);
            assert_eq!(
                (back.version(), back.schema, &back.meta),
                (object.version(), 7, &object.meta)
            );
        }
        for damaged in [
            &b""[..],
            b"\x09",
            b"\x01\0\0",
            b"\x01\0\0\0\0\0\0\0\0\xff\xff\xff\xff{}",
            b"\x01\0\0\0\0\0\0\0\0\0\0\0\0{}",
            b"\x01\0\0\0\0\0\0\0\0\0\0\0\0{\"metadata\":{\"a\":\"\\",
        ] {
            assert!(Object::from_stored(damaged).is_err(), "{damaged:?}");
        }
    }

    #[test]
    fn equal_heads_are_shared() {
        let of = |name: &str, data: &str| {
            let map = json!({"apiVersion": "g/v1", "a": {"apiVersion": "x"}, "data": data, "metadata": {"name": name}});
            Object::new(&map, None).expect("an object")
        };
        let (first, second, other) = (of("a", "same"), of("b", "same"), of("c", "other"));
        assert!(Arc::ptr_eq(&first.head, &second.head));
        assert!(!Arc::ptr_eq(&first.head, &other.head));
        assert_eq!((first.version(), other.version()), ("v1", "v1"));
    }

    /// There is one for each object of every tenant: with the counts of its `Arc` it fits into 256
    /// bytes, a size that allocators have.
    #[test]
    fn an_object_is_small() {
        assert!(size_of::<Object>() <= 240, "{}", size_of::<Object>());
    }

    #[test]
    fn a_view_is_made_once() {
        let object = Object::new(&sample(), None).expect("an object");
        let first = object.parsed(|o| o.meta.name.len());
        assert!(Arc::ptr_eq(
            &first,
            &object.parsed::<usize>(|_| unreachable!("made once"))
        ));
        assert_eq!(*object.parsed(|_| "another type"), "another type");
    }
}
