//! Logical clusters: their names (flat keys) and paths (as people type them).

use crate::names::well_known;
use std::{fmt, sync::Arc};

/// The flat name of a logical cluster, e.g. `root`, `2xj8k1p0q9z7w3ab`, `system:bound-crds`.
///
/// It is the tenant part of every storage key, so that a name never holds `/` and, `system:…`
/// aside, never `:`: a colon path that leaked into a key once made objects of other tenants
/// reachable elsewhere.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterName(Arc<str>);

/// A workspace path as people write it: `root:org:team`, or a cluster name followed by children.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterPath(Arc<str>);

/// Error for a text that is no cluster name or path. The message is that of kcp
/// (`pkg/server/localproxy.go`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid cluster: {0:?} does not match the regex")]
pub struct InvalidCluster(pub String);

fn is_segment(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    !bytes.is_empty()
        && bytes.len() <= 63
        && bytes.iter().all(|b| inner(b) || *b == b'-')
        && bytes.first().is_some_and(inner)
        && bytes.last().is_some_and(inner)
}

impl ClusterName {
    /// Parses a flat name: one segment, or `system:` and one segment.
    ///
    /// # Errors
    /// Fails for any other text.
    pub fn parse(text: &str) -> Result<Self, InvalidCluster> {
        let rest = text.strip_prefix("system:").unwrap_or(text);
        if is_segment(rest) {
            Ok(ClusterName(text.into()))
        } else {
            Err(InvalidCluster(text.to_owned()))
        }
    }

    /// Returns `root`, the top of the workspace tree.
    pub fn root() -> Self {
        ClusterName(well_known::ROOT.into())
    }

    /// Returns `system:bound-crds`: the cluster of the bundles that bindings copied.
    pub fn bound_crds() -> Self {
        ClusterName(well_known::BOUND_CRDS.into())
    }

    /// Returns `system:admin`: the cluster of the platform's own objects.
    pub fn system_admin() -> Self {
        ClusterName(well_known::SYSTEM_ADMIN.into())
    }

    /// Returns true for clusters that tenants cannot reach.
    pub fn is_system(&self) -> bool {
        self.0.starts_with("system:")
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ClusterPath {
    /// Parses segments joined by `:`; `system:…` is one name and does not split.
    ///
    /// # Errors
    /// Fails if some segment is no name.
    pub fn parse(text: &str) -> Result<Self, InvalidCluster> {
        let fits = match text.strip_prefix("system:") {
            Some(rest) => is_segment(rest),
            None => text.split(':').all(is_segment),
        };
        if fits {
            Ok(ClusterPath(text.into()))
        } else {
            Err(InvalidCluster(text.to_owned()))
        }
    }

    /// Splits off the first segment, a cluster's name, from the workspace names below it.
    pub fn split_first(&self) -> (ClusterName, Vec<&str>) {
        if self.0.starts_with("system:") {
            return (ClusterName(self.0.clone()), Vec::new());
        }
        let mut parts = self.0.split(':');
        let first = parts.next().unwrap_or_default();
        (ClusterName(first.into()), parts.collect())
    }

    /// Appends a workspace name.
    pub fn join(&self, name: &str) -> ClusterPath {
        ClusterPath(format!("{}:{name}", self.0).into())
    }

    /// Returns the path without its last segment, if it has more than one.
    pub fn parent(&self) -> Option<ClusterPath> {
        if self.0.starts_with("system:") {
            return None;
        }
        self.0.rsplit_once(':').map(|(parent, _)| ClusterPath(parent.into()))
    }

    /// Returns the last segment.
    pub fn base(&self) -> &str {
        if self.0.starts_with("system:") {
            return &self.0;
        }
        self.0.rsplit_once(':').map_or(&*self.0, |(_, base)| base)
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&ClusterName> for ClusterPath {
    fn from(name: &ClusterName) -> Self {
        ClusterPath(name.0.clone())
    }
}

macro_rules! text {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}
text!(ClusterName);
text!(ClusterPath);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_segment() {
        for good in ["root", "a", "a-b", "system:admin", "0abc"] {
            assert!(ClusterName::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "-a",
            "a-",
            "A",
            "root:a",
            "a/b",
            "a.b",
            "system:",
            "system:a:b",
            "*",
            "..",
            "a%2fb",
        ] {
            assert!(ClusterName::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn paths_split_and_join() {
        let path = ClusterPath::parse("root:org:team").expect("a path");
        let (first, rest) = path.split_first();
        assert_eq!((first.as_str(), rest), ("root", vec!["org", "team"]));
        assert_eq!(path.parent().expect("has a parent").as_str(), "root:org");
        assert_eq!(path.base(), "team");
        for bad in ["", "root:", ":root", "root::a", "root:A", "root:../b", "system:a:b"] {
            assert!(ClusterPath::parse(bad).is_err(), "{bad}");
        }
    }
}
