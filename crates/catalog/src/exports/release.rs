//! Identity of a release: the schemas and rules that an export offers at a time.

use crate::{Catalog, digest};
use insula_api::{ClusterName, kinds::ExportedResource};
use insula_store::Snapshot;

/// Letters and digits of an identifier.
const LENGTH: usize = 10;

/// Returns the identifier of a release, from group, plural and fingerprint of each resource. The
/// same schemas and rules have the same identifier, in any order.
pub fn release_id<'a>(offered: impl Iterator<Item = (&'a str, &'a str, u64)>) -> String {
    let mut offered: Vec<String> = offered
        .map(|(group, resource, fingerprint)| format!("{resource}.{group}={fingerprint:016x}"))
        .collect();
    offered.sort_unstable();
    digest::base62(&offered.join(","))[..LENGTH].to_owned()
}

/// Returns the identifier of the release that an export of a cluster offers. Schemas that do not
/// exist, or do not compile with their rules, are no part of it.
pub fn release_on_offer(
    catalog: &Catalog,
    snapshot: &Snapshot,
    cluster: &ClusterName,
    offered: &[ExportedResource],
) -> String {
    let stored = offered.iter().filter(|resource| resource.storage.r#virtual.is_none());
    let fingerprints = stored.filter_map(|resource| {
        let api = catalog.stored(snapshot, cluster, &resource.schema)?;
        Some((&*resource.group, &*resource.name, api.fingerprint))
    });
    release_id(fingerprints)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_known_by_its_content() {
        let one = release_id([("g", "a", 1), ("g", "b", 2)].into_iter());
        assert_eq!(one, release_id([("g", "b", 2), ("g", "a", 1)].into_iter()));
        assert_ne!(one, release_id([("g", "a", 1), ("g", "b", 3)].into_iter()));
    }
}
