//! Paths in field errors, as Kubernetes prints them.

use std::fmt;

/// Path of a field: `spec.versions[0].schema`, `metadata.annotations[a.b/c]`; the empty path prints
/// as `<nil>`.
#[derive(Debug, Clone, PartialEq, Eq, Default, PartialOrd, Ord, Hash)]
pub struct FieldPath(String);

impl FieldPath {
    /// Returns the root.
    pub fn root() -> Self {
        FieldPath::default()
    }

    /// Starts a path with a field.
    pub fn new(name: &str) -> Self {
        FieldPath(name.to_owned())
    }

    /// Appends a field.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() {
            FieldPath(name.to_owned())
        } else {
            FieldPath(format!("{}.{name}", self.0))
        }
    }

    /// Appends an item of a list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        FieldPath(format!("{}[{index}]", self.0))
    }

    /// Appends an entry of a map.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        FieldPath(format!("{}[{key}]", self.0))
    }

    /// Returns true for the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the text, empty at the root.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "<nil>" } else { &self.0 })
    }
}
