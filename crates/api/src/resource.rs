//! Keys of objects, their prefixes and order.

use crate::{ClusterName, cluster::InvalidCluster};
use std::{fmt, sync::Arc};

/// Point in the one order of all changes. Only the store assigns revisions; clients see them as
/// `resourceVersion`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Resource with a storage prefix of its own: group, plural name, and identity of its exporter.
///
/// Two exporters of `widgets.example.io` differ by `identity` (hex SHA-256 of the export's secret),
/// so that they never share a prefix. Built-ins and plain definitions have the empty identity.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId {
    /// API group; empty for the core group.
    pub group: Arc<str>,
    /// Plural resource name.
    pub resource: Arc<str>,
    /// Exporter's identity hash or empty.
    pub identity: Arc<str>,
}

impl ResourceId {
    /// Creates the id of a resource without an exporter.
    pub fn local(group: &str, resource: &str) -> Self {
        ResourceId {
            group: group.into(),
            resource: resource.into(),
            identity: Arc::default(),
        }
    }

    /// Returns `resource.group`, or just `resource` in the core group, as messages of Kubernetes
    /// do.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.resource.to_string()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }
}

impl fmt::Debug for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.group, self.resource, self.identity)
    }
}

/// Group, version, plural resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersionResource {
    /// API group; empty for the core group.
    pub group: Arc<str>,
    /// Version, e.g. `v1alpha1`.
    pub version: Arc<str>,
    /// Plural resource name.
    pub resource: Arc<str>,
}

impl GroupVersionResource {
    /// Returns `group/version`, or just the version in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// Key of one object. Ordered as its encoding is.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ObjectKey {
    /// The resource's prefix.
    pub resource: ResourceId,
    /// The logical cluster.
    pub cluster: ClusterName,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// Object name.
    pub name: Arc<str>,
}

/// Resources of a scope.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Resources {
    /// All resources.
    All,
    /// Those with one group and name, of every exporter and of definitions. Only in scopes of all
    /// clusters.
    Named {
        /// API group; empty for the core group.
        group: Arc<str>,
        /// Plural resource name.
        resource: Arc<str>,
    },
    /// One resource.
    One(ResourceId),
}

impl Resources {
    /// Returns the resource, if it is one.
    pub fn one(&self) -> Option<&ResourceId> {
        match self {
            Resources::One(resource) => Some(resource),
            Resources::All | Resources::Named { .. } => None,
        }
    }

    /// Returns true if the resource is among these.
    pub fn contains(&self, id: &ResourceId) -> bool {
        match self {
            Resources::All => true,
            Resources::Named { group, resource } => *group == id.group && *resource == id.resource,
            Resources::One(one) => one == id,
        }
    }
}

/// Part of the key space: everything, or a resource, one of its clusters, or one of its namespaces.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    /// The resources.
    pub resources: Resources,
    /// One cluster (needs a resource), or all.
    pub cluster: Option<ClusterName>,
    /// One namespace (needs a cluster), or all.
    pub namespace: Option<Arc<str>>,
}

impl ObjectKey {
    /// Creates the key of a cluster-scoped object.
    pub fn cluster_scoped(resource: ResourceId, cluster: ClusterName, name: &str) -> Self {
        ObjectKey {
            resource,
            cluster,
            // Shared by all; `"".into()` would be an allocation for each key.
            namespace: Arc::default(),
            name: name.into(),
        }
    }

    /// Encodes the key to the bytes that order keys:
    /// `group/resource/identity/cluster/namespace/name`.
    ///
    /// No part but the name may hold a `/` and names of Kubernetes' objects never do, so that the
    /// encoding is unique and the lists across clusters, in a cluster and in a namespace are
    /// prefixes of one another. `/` as the separator (not a NUL) gives the order that Kubernetes
    /// clients see: `alpha-b/x` before `alpha/x`.
    pub fn encode(&self) -> Arc<[u8]> {
        let ResourceId {
            group,
            resource,
            identity,
        } = &self.resource;
        let parts = [group, resource, identity, self.cluster.as_str(), &self.namespace];
        let mut out = Vec::with_capacity(parts.iter().map(|p| p.len() + 1).sum::<usize>() + self.name.len());
        for part in parts {
            out.extend_from_slice(part.as_bytes());
            out.push(b'/');
        }
        out.extend_from_slice(self.name.as_bytes());
        out.into()
    }

    /// Decodes the bytes of [`ObjectKey::encode`].
    ///
    /// # Errors
    /// Fails if a part is missing, or the cluster is no name.
    pub fn decode(bytes: &[u8]) -> Result<Self, InvalidCluster> {
        let bad = || InvalidCluster(String::from_utf8_lossy(bytes).into_owned());
        let text = std::str::from_utf8(bytes).map_err(|_| bad())?;
        let mut parts = text.splitn(6, '/');
        let mut next = || parts.next().ok_or_else(bad);
        let (group, resource, identity) = (next()?, next()?, next()?);
        let (cluster, namespace, name) = (next()?, next()?, next()?);
        Ok(ObjectKey {
            resource: ResourceId {
                group: group.into(),
                resource: resource.into(),
                identity: identity.into(),
            },
            cluster: ClusterName::parse(cluster)?,
            namespace: namespace.into(),
            name: name.into(),
        })
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.encode()))
    }
}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ObjectKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.encode().cmp(&other.encode())
    }
}

impl Scope {
    /// Selects all objects of all resources in every cluster.
    pub fn everything() -> Self {
        Scope {
            resources: Resources::All,
            cluster: None,
            namespace: None,
        }
    }

    /// Selects all objects of a resource in every cluster.
    pub fn everywhere(resource: ResourceId) -> Self {
        Scope {
            resources: Resources::One(resource),
            cluster: None,
            namespace: None,
        }
    }

    /// Selects all objects of the resources with a name, of every exporter and in every cluster.
    pub fn named(group: Arc<str>, resource: Arc<str>) -> Self {
        Scope {
            resources: Resources::Named { group, resource },
            cluster: None,
            namespace: None,
        }
    }

    /// Selects all objects of a resource in one cluster.
    pub fn cluster(resource: ResourceId, cluster: ClusterName) -> Self {
        Scope {
            resources: Resources::One(resource),
            cluster: Some(cluster),
            namespace: None,
        }
    }

    /// Selects all objects of a resource in one namespace of a cluster.
    pub fn namespace(resource: ResourceId, cluster: ClusterName, namespace: &str) -> Self {
        Scope {
            resources: Resources::One(resource),
            cluster: Some(cluster),
            namespace: Some(namespace.into()),
        }
    }

    /// Returns the bytes with which the keys of this scope begin.
    pub fn prefix(&self) -> Vec<u8> {
        let ResourceId {
            group,
            resource,
            identity,
        } = match &self.resources {
            Resources::All => return Vec::new(),
            Resources::Named { group, resource } => return format!("{group}/{resource}/").into_bytes(),
            Resources::One(resource) => resource,
        };
        let mut out = format!("{group}/{resource}/{identity}/").into_bytes();
        if let Some(cluster) = &self.cluster {
            out.extend_from_slice(cluster.as_str().as_bytes());
            out.push(b'/');
            if let Some(namespace) = &self.namespace {
                out.extend_from_slice(namespace.as_bytes());
                out.push(b'/');
            }
        }
        out
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}*", String::from_utf8_lossy(&self.prefix()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey {
            resource: ResourceId::local("example.io", "widgets"),
            cluster: ClusterName::root(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    #[test]
    fn keys_encode_and_decode() {
        for key in [key("", "a"), key("default", "a.b:c"), key("ns", "")] {
            assert_eq!(ObjectKey::decode(&key.encode()).expect("decodes"), key);
        }
        assert!(ObjectKey::decode(b"a/b").is_err());
        assert!(ObjectKey::decode(b"g/r//root:a/ns/n").is_err());
    }

    #[test]
    fn scopes_are_prefixes_of_one_another() {
        let widgets = ResourceId::local("example.io", "widgets");
        let all = Scope::everywhere(widgets.clone());
        let one = Scope::cluster(widgets.clone(), ClusterName::root());
        let namespace = Scope::namespace(widgets, ClusterName::root(), "default");
        assert!(all.prefix().starts_with(&Scope::everything().prefix()));
        assert!(one.prefix().starts_with(&all.prefix()));
        assert!(namespace.prefix().starts_with(&one.prefix()));
        assert!(key("default", "a").encode().starts_with(&namespace.prefix()));
        assert!(!key("default-b", "a").encode().starts_with(&namespace.prefix()));
        assert!(key("alpha-b", "x") < key("alpha", "x"), "Kubernetes orders raw keys");
    }
}
