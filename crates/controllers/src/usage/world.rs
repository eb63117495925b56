//! World of the usage reconciler.

use crate::loaded::Loaded;
use insula_api::{
    ObjectKey, Timestamp,
    kinds::{self, ApiExport, ApiResourceSchema},
};
use insula_catalog::{
    ids,
    version_uses::{UseRecord, route_of},
};
use insula_store::{Entry, Snapshot};
use std::collections::BTreeMap;

/// World of one key.
pub(crate) enum World {
    /// Nothing exists, or nothing is to be done.
    Rest,
    /// An export with the uses of its versions.
    Export(Box<ExportWorld>),
    /// A record whose route is gone, and the key of the route.
    Orphan(Box<(Entry, ObjectKey)>),
}

/// An export with the uses of its versions.
pub(crate) struct ExportWorld {
    pub(super) export: Loaded<ApiExport>,
    /// Versions that the offered schemas serve, in the order of the export.
    pub(super) offered: Vec<Offered>,
    /// Last use by each tenant, by the name of the route and the version.
    pub(super) uses: BTreeMap<(String, String), Vec<Timestamp>>,
    pub(super) now: Timestamp,
}

/// A version on offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Offered {
    pub(super) group: String,
    pub(super) resource: String,
    pub(super) version: String,
}

pub(super) fn of_export(snapshot: &Snapshot, key: &ObjectKey, records: &[ObjectKey], now: Timestamp) -> World {
    let Some(export) = Loaded::<ApiExport>::get(snapshot, key).filter(|export| !export.is_deleting()) else {
        return World::Rest;
    };
    let mut uses: BTreeMap<(String, String), Vec<Timestamp>> = BTreeMap::new();
    for record in records.iter().filter_map(|record| snapshot.get(record)) {
        let Some(current) = UseRecord::current(snapshot, &record) else {
            continue;
        };
        for (version, at) in current.as_ref().iter().flat_map(|record| &record.versions) {
            let version = (record.key.name.to_string(), version.to_string());
            uses.entry(version).or_default().push(*at);
        }
    }
    World::Export(Box::new(ExportWorld {
        offered: offered(snapshot, key, &export.view),
        export,
        uses,
        now,
    }))
}

fn offered(snapshot: &Snapshot, key: &ObjectKey, export: &ApiExport) -> Vec<Offered> {
    let mut offered = Vec::new();
    for resource in &export.spec.resources {
        let schema = ObjectKey::cluster_scoped(ids::apiresourceschemas(), key.cluster.clone(), &resource.schema);
        let Some(schema) = snapshot.get(&schema) else { continue };
        let schema: ApiResourceSchema = kinds::read(&schema.object.body_value());
        let served = schema.spec.versions.into_iter().filter(|version| version.served);
        offered.extend(served.map(|version| Offered {
            group: resource.group.clone(),
            resource: resource.name.clone(),
            version: version.name,
        }));
    }
    offered
}

pub(super) fn of_record(snapshot: &Snapshot, record: &ObjectKey) -> World {
    let route = route_of(record);
    match snapshot.get(record) {
        Some(record) if snapshot.get(&route).is_none() => World::Orphan(Box::new((record, route))),
        _ => World::Rest,
    }
}
