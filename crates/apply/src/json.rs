//! JSON patches (RFC 6902) with the behaviour of Kubernetes' library. Pointers and operations come
//! from the `json-patch` crate; this module executes them. The crate's own `patch` does not fit:
//! Kubernetes' `replace` adds a missing field, its `test` takes an absent field for null, and the
//! work of a patch must be counted while it runs.

use crate::PATCH_DEPTH_MAX;
use crate::decode::{Extent, extent};
use crate::error::{JSON_PATCH_OPERATIONS_MAX, PatchError};
use insula_api::Json;
use insula_meter::{Empty, Fuel, Meter};
use json_patch::jsonptr::{Pointer, Token};
use json_patch::{
    AddOperation, CopyOperation, MoveOperation, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation,
};

/// Maximum number of bytes that `copy` operations may add together, since copies of copies grow
/// exponentially: Kubernetes' limit.
pub const COPY_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Maximum number of values that all operations together may touch. 10,000 insertions at the head
/// of a list of 5,000 items fit; a patch that would keep a core busy for minutes does not.
const WORK_NODES_MAX: u64 = 50_000_000;
/// Nanoseconds of touching a value: most are moved together, and some are copied.
const NODE_NANOSECONDS: u64 = 10;

/// Applies a JSON patch: all of its operations, or none. A meter pays for it.
///
/// # Errors
/// Fails if the patch is not a list of operations, one of them fails, or there are too many.
pub fn json_patch(target: &mut Json, patch: &Json, meter: &Meter) -> Result<(), PatchError> {
    let Json::Array(operations) = patch else {
        return Err(PatchError::malformed(
            "error decoding patch: a JSON patch must be a list of operations",
        ));
    };
    if !operations.iter().all(Json::is_object) {
        return Err(PatchError::malformed(
            "error decoding patch: each operation of a JSON patch must be an object",
        ));
    }
    if operations.len() > JSON_PATCH_OPERATIONS_MAX {
        return Err(PatchError::TooMany { got: operations.len() });
    }
    let mut editor = Editor {
        document: target.clone(),
        copied: 0,
        work: Fuel::new(WORK_NODES_MAX, NODE_NANOSECONDS, meter),
    };
    for (index, operation) in operations.iter().enumerate() {
        editor
            .run(operation)
            .map_err(|why| PatchError::Failed { at: index, why })?;
    }
    *target = editor.document;
    Ok(())
}

/// A document that is being patched, with the work done so far.
struct Editor {
    document: Json,
    copied: usize,
    work: Fuel,
}

/// Reason why an operation failed. Names paths of the patch, never values of the object.
type Problem = String;

impl Editor {
    fn run(&mut self, operation: &Json) -> Result<(), Problem> {
        // Errors of deserialization name fields of the operation only.
        let operation: PatchOperation = serde_json::from_value(operation.clone()).map_err(|error| error.to_string())?;
        match operation {
            PatchOperation::Add(AddOperation { path, value }) => self.add(&path, value),
            PatchOperation::Remove(RemoveOperation { path }) => self.remove(&path).map(drop),
            PatchOperation::Replace(ReplaceOperation { path, value }) => self.replace(&path, value),
            PatchOperation::Move(MoveOperation { from, path }) => self.relocate(&from, &path),
            PatchOperation::Copy(CopyOperation { from, path }) => self.copy(&from, &path),
            PatchOperation::Test(TestOperation { path, value }) => self.test(&path, &value),
        }
    }

    fn work(&mut self, nodes: usize) -> Result<(), Problem> {
        let spent = self.work.spend(nodes as u64);
        spent.map_err(|Empty| format!("the patch touches more than {WORK_NODES_MAX} values; split it"))
    }

    /// Counts the size of a value for `path`; refuses it if it would be too deep there.
    fn admit(&mut self, path: &Pointer, value: &Json) -> Result<Extent, Problem> {
        let extent = extent(value);
        self.work(extent.nodes)?;
        if path.count().saturating_add(extent.depth) > PATCH_DEPTH_MAX {
            return Err(format!("the result would be nested more than {PATCH_DEPTH_MAX} deep"));
        }
        Ok(extent)
    }

    fn get(&self, path: &Pointer) -> Result<&Json, Problem> {
        path.resolve(&self.document).map_err(|_| missing(path))
    }

    fn add(&mut self, path: &Pointer, value: Json) -> Result<(), Problem> {
        self.admit(path, &value)?;
        self.put(path, value)
    }

    /// Adds a value of known extent.
    fn put(&mut self, path: &Pointer, value: Json) -> Result<(), Problem> {
        let Some((parent, last)) = path.split_back() else {
            self.document = value;
            return Ok(());
        };
        let parent = parent.resolve_mut(&mut self.document).map_err(|_| missing(parent))?;
        match parent {
            Json::Object(fields) => {
                fields.insert(last.decoded().into_owned(), value);
                Ok(())
            }
            Json::Array(items) => {
                let at = if last.encoded() == "-" {
                    items.len()
                } else {
                    index(&last, items.len(), path)?
                };
                let shifted = items.len() - at;
                items.insert(at, value);
                self.work(shifted)
            }
            _ => Err(format!("{path} is below a value that is neither object nor list")),
        }
    }

    fn remove(&mut self, path: &Pointer) -> Result<Json, Problem> {
        let Some((parent, last)) = path.split_back() else {
            return Err("the whole object cannot be removed".to_owned());
        };
        let parent = parent.resolve_mut(&mut self.document).map_err(|_| missing(parent))?;
        match parent {
            Json::Object(fields) => fields.remove(last.decoded().as_ref()).ok_or_else(|| missing(path)),
            Json::Array(items) => {
                let count = items.len().checked_sub(1).ok_or_else(|| missing(path))?;
                let at = index(&last, count, path)?;
                let removed = items.remove(at);
                self.work(count - at)?;
                Ok(removed)
            }
            _ => Err(missing(path)),
        }
    }

    fn replace(&mut self, path: &Pointer, value: Json) -> Result<(), Problem> {
        self.admit(path, &value)?;
        let in_list = path
            .parent()
            .map(|parent| self.get(parent).map(Json::is_array))
            .transpose()?;
        if in_list == Some(true) {
            let place = path.resolve_mut(&mut self.document).map_err(|_| missing(path))?;
            *place = value;
            return Ok(());
        }
        self.put(path, value)
    }

    fn relocate(&mut self, from: &Pointer, path: &Pointer) -> Result<(), Problem> {
        if from == path {
            return self.get(path).map(drop);
        }
        if path.starts_with(from) {
            return Err(format!("{from} cannot be moved into itself"));
        }
        let value = self.remove(from)?;
        self.add(path, value)
    }

    fn copy(&mut self, from: &Pointer, path: &Pointer) -> Result<(), Problem> {
        // Counted before the copy is made: an oversized copy must never exist.
        let found = extent(self.get(from)?);
        self.work(found.nodes)?;
        self.copied = self.copied.saturating_add(found.bytes);
        if self.copied > COPY_BYTES_MAX {
            return Err(format!("copies may add at most {COPY_BYTES_MAX} bytes in all"));
        }
        let value = self.get(from)?.clone();
        self.add(path, value)
    }

    fn test(&mut self, path: &Pointer, value: &Json) -> Result<(), Problem> {
        // A comparison ends with the smaller value, and this one came with the patch.
        let holds = match self.get(path) {
            Ok(found) => equal(found, value),
            Err(_) => value.is_null(),
        };
        if holds {
            Ok(())
        } else {
            Err(format!("{path} is not what the test wants"))
        }
    }
}

fn missing(path: &Pointer) -> Problem {
    format!("nothing at {path}")
}

/// Parses an index of a list, at most `max`.
fn index(token: &Token<'_>, max: usize, path: &Pointer) -> Result<usize, Problem> {
    let text = token.encoded();
    // Without sign and leading zero: `01` is a name, not an index.
    let is_number = text == "0" || (!text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit()));
    let found = if is_number { text.parse::<usize>().ok() } else { None };
    found
        .filter(|at| *at <= max)
        .ok_or_else(|| format!("{path} is not a place in the list"))
}

/// Compares two values; numbers are equal by value: `1` equals `1.0`.
fn equal(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => a == b || (a.is_f64() || b.is_f64()) && a.as_f64() == b.as_f64(),
        (Json::Array(a), Json::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| equal(a, b)))
        }
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests;
