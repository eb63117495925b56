//! Removal of API versions from an export. An update that stops serving a version which tenants
//! used lately is refused, unless an annotation of the export names the version and the schema that
//! serves it now. A schema never changes, so an annotation of an earlier removal does not confirm a
//! later one.

use crate::kinds::review::Review;
use insula_api::{
    ClusterName, FieldError, FieldPath, Json, ObjectKey, Timestamp, counted,
    kinds::{self, ApiExport, ApiResourceSchema, ExportedResource},
    names::annotations::CONFIRM_REMOVAL,
};
use insula_catalog::{exports::ExportName, ids, version_uses::for_each_of_export};
use std::collections::BTreeMap;

/// Seconds of a day.
const DAY_SECONDS: i64 = 86_400;
/// Number of workspaces that a refusal names.
const NAMED_MAX: usize = 5;

/// A version that an update stops serving.
struct Removal {
    /// Name of the route, which tenants' records have.
    route: String,
    /// Schema that serves it now.
    schema: String,
    version: String,
    /// True if its schema says that it is deprecated.
    deprecated: bool,
    /// Path and value of the field that removes it.
    at: (FieldPath, Json),
}

impl Removal {
    /// Returns the text that confirms the removal: `rev1.widgets.example.io/v1`.
    fn confirmation(&self) -> String {
        format!("{}/{}", self.schema, self.version)
    }
}

/// Tenants that use one version, with the time of their last use.
type Tenants = Vec<(Timestamp, ClusterName)>;

/// Tenants by the name of the route and the version.
type Used = BTreeMap<(String, String), Tenants>;

/// Returns the errors of an update that removes versions which tenants used lately. Warns of
/// removed versions that never were deprecated.
pub(super) fn review(review: &Review<'_>, new: &Json, old: &Json) -> Vec<FieldError> {
    let (new_view, old_view): (ApiExport, ApiExport) = (kinds::read(new), kinds::read(old));
    let days = old_view.spec.retirement_days().max(new_view.spec.retirement_days());
    let used = used(review, old, days);
    let removals = removals(review, &new_view, &old_view, &used);
    let confirmed = new_view.metadata.annotation(CONFIRM_REMOVAL).unwrap_or_default();
    let is_confirmed = |removal: &Removal| confirmed.split(',').any(|one| one.trim() == removal.confirmation());
    let tenants = |removal: &Removal| used.get(&(removal.route.clone(), removal.version.clone()));
    let refused: Vec<&Removal> = removals
        .iter()
        .filter(|removal| tenants(removal).is_some() && !is_confirmed(removal))
        .collect();
    // The annotation has to name them all at once, with what it confirms already.
    let all = removals.iter().filter(|removal| tenants(removal).is_some());
    let all: Vec<String> = all.map(Removal::confirmation).collect();
    for removal in removals.iter().filter(|removal| !removal.deprecated) {
        review.warn(format!(
            "{}/{} was never deprecated: its users got no warning",
            removal.route, removal.version
        ));
    }
    let refusal = |removal: &&Removal| {
        let used = tenants(removal)
            .map(|tenants| message(review, tenants))
            .unwrap_or_default();
        let why = format!(
            "removes {}/{}, which {used} within {days} days: keep it in spec.versions with served: true and \
             deprecated: true until they use another version, or confirm its removal by the annotation \
             {CONFIRM_REMOVAL}: {:?}",
            removal.route,
            removal.version,
            all.join(",")
        );
        FieldError::invalid(&removal.at.0, &removal.at.1, why)
    };
    refused.iter().map(refusal).collect()
}

/// Formats the use: `2 workspaces used (root:bob, root:eve; last at 2026-11-21T09:40:00Z)`.
fn message(review: &Review<'_>, tenants: &Tenants) -> String {
    let mut latest: Vec<&(Timestamp, ClusterName)> = tenants.iter().collect();
    latest.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    let names = review.names();
    let named = latest.iter().take(NAMED_MAX);
    let mut named: Vec<String> = named.map(|(_, cluster)| names.name(cluster).to_string()).collect();
    if tenants.len() > NAMED_MAX {
        named.push("…".to_owned());
    }
    let last = latest.first().map(|(at, _)| at.to_string()).unwrap_or_default();
    let workspaces = counted(tenants.len(), "workspace");
    format!("{workspaces} used ({}; last at {last})", named.join(", "))
}

/// Returns the tenants of an export that used a version within some days, by the name of the route
/// and the version.
fn used(review: &Review<'_>, export: &Json, days: u32) -> Used {
    let mut used = Used::new();
    let export = ExportName {
        cluster: review.cluster.clone(),
        name: export["metadata"]["name"].as_str().unwrap_or_default().into(),
    };
    for_each_of_export(review.snapshot, &export, |key, record| {
        for (version, at) in &record.versions {
            if review.now.since(*at) < i64::from(days) * DAY_SECONDS {
                let version = (key.name.to_string(), version.to_string());
                used.entry(version).or_default().push((*at, key.cluster.clone()));
            }
        }
    });
    used
}

/// Returns the versions that the export serves now and no longer after the update. Tenants of a
/// schema that does not exist are still served by the one before it, so their uses tell its
/// versions. A new schema that does not exist gives a warning.
fn removals(review: &Review<'_>, new: &ApiExport, old: &ApiExport, used: &Used) -> Vec<Removal> {
    let resources = FieldPath::new("spec").child("resources");
    let mut removals = Vec::new();
    for before in &old.spec.resources {
        let is_same = |other: &&ExportedResource| other.group == before.group && other.name == before.name;
        let after = new.spec.resources.iter().position(|other| is_same(&other));
        let offered = after.map(|index| (index, &new.spec.resources[index]));
        if offered.is_some_and(|(_, after)| after.schema == before.schema) {
            continue;
        }
        let (kept, at) = match offered {
            None => (Vec::new(), (resources.clone(), Json::from(before.name.as_str()))),
            Some((index, after)) => match schema(review, &after.schema) {
                None => {
                    review.warn(format!(
                        "APIResourceSchema {} does not exist yet: it is not checked which versions it removes",
                        after.schema
                    ));
                    continue;
                }
                Some(new_schema) => {
                    let at = (
                        resources.index(index).child("schema"),
                        Json::from(after.schema.as_str()),
                    );
                    (served(&new_schema), at)
                }
            },
        };
        let route = ids::resource_route(review.cluster, &before.group, &before.name).name;
        let (versions, deprecated) = match schema(review, &before.schema) {
            Some(schema) => (served(&schema), deprecated(&schema)),
            None => {
                let of_route = used.keys().filter(|(name, _)| **name == *route);
                let versions: Vec<String> = of_route.map(|(_, version)| version.clone()).collect();
                (versions.clone(), versions)
            }
        };
        let removed = versions.into_iter().filter(|version| !kept.contains(version));
        removals.extend(removed.map(|version| Removal {
            route: route.to_string(),
            schema: before.schema.clone(),
            deprecated: deprecated.contains(&version),
            version,
            at: at.clone(),
        }));
    }
    removals
}

fn schema(review: &Review<'_>, name: &str) -> Option<ApiResourceSchema> {
    let key = ObjectKey::cluster_scoped(ids::apiresourceschemas(), review.cluster.clone(), name);
    review
        .snapshot
        .get(&key)
        .map(|schema| kinds::read(&schema.object.body_value()))
}

fn served(schema: &ApiResourceSchema) -> Vec<String> {
    let served = schema.spec.versions.iter().filter(|version| version.served);
    served.map(|version| version.name.clone()).collect()
}

fn deprecated(schema: &ApiResourceSchema) -> Vec<String> {
    let deprecated = schema.spec.versions.iter().filter(|version| version.deprecated);
    deprecated.map(|version| version.name.clone()).collect()
}
