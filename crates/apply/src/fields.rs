//! Sets of fields: the fields that a manager owns, in the form of `fieldsV1`.
//!
//! ```text
//! {"f:spec": {".": {}, "f:ports": {"k:{\"port\":80}": {".": {}, "f:note": {}}}}}
//!     spec, spec.ports[port=80] and spec.ports[port=80].note; not spec.ports
//! ```

mod codec;
mod element;
mod set;

pub use element::{Element, Path};
pub(crate) use set::FieldNode;
pub use set::FieldSet;
