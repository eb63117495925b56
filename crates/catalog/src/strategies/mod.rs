//! Strategies of built-in kinds and of kcp kinds, one file for each kind or group. All of them are
//! pure functions. Checks that read other objects belong to admission; work that takes more than
//! one write belongs to a controller.

mod apis;
mod certificate;
mod coordination;
mod core;
mod definition;
mod event;
mod migration;
mod policies;
mod quota;
mod rbac;
mod tenancy;

#[cfg(test)]
mod tests;

pub use certificate::request as certificate_request;
pub use event::{FIELDS as EVENT_FIELDS, review as review_event};

use crate::{Custom, Strategy, ids};
use insula_api::Json;
use std::sync::Arc;

const ADMISSION: &str = "admissionregistration.k8s.io";

/// Returns the strategy of a built-in kind, or that of custom resources for all others.
pub fn of(group: &str, plural: &str) -> Arc<dyn Strategy> {
    match (group, plural) {
        ("", "namespaces") => Arc::new(core::Namespaces),
        ("", "configmaps") => Arc::new(core::ConfigMaps),
        ("", "secrets") => Arc::new(core::Secrets),
        ("", "serviceaccounts") => Arc::new(core::ServiceAccounts),
        ("certificates.k8s.io", "certificatesigningrequests") => Arc::new(certificate::Requests),
        ("", "resourcequotas") => Arc::new(quota::Quotas),
        ("", "events") => Arc::new(event::Events),
        ("coordination.k8s.io", "leases") => Arc::new(coordination::Leases),
        ("apiextensions.k8s.io", "customresourcedefinitions") => Arc::new(definition::Definitions),
        (ADMISSION, "validatingadmissionpolicies") => Arc::new(policies::ValidatingPolicies),
        (ADMISSION, "validatingadmissionpolicybindings") => Arc::new(policies::ValidatingBindings),
        (ADMISSION, "mutatingadmissionpolicies") => Arc::new(policies::MutatingPolicies),
        (ADMISSION, "mutatingadmissionpolicybindings") => Arc::new(policies::MutatingBindings),
        (ids::AUTHENTICATION | ids::AUTHORIZATION, _) => Arc::new(rbac::Reviews),
        (ids::RBAC, "roles") => Arc::new(rbac::Roles { namespaced: true }),
        (ids::RBAC, "clusterroles") => Arc::new(rbac::Roles { namespaced: false }),
        (ids::RBAC, "rolebindings") => Arc::new(rbac::Bindings { namespaced: true }),
        (ids::RBAC, "clusterrolebindings") => Arc::new(rbac::Bindings { namespaced: false }),
        (ADMISSION, "validatingwebhookconfigurations") => Arc::new(policies::WebhookConfigurations::Validating),
        (ADMISSION, "mutatingwebhookconfigurations") => Arc::new(policies::WebhookConfigurations::Mutating),
        ("storagemigration.k8s.io", "storageversionmigrations") => Arc::new(migration::StorageVersionMigrations),
        ("tenancy.kcp.io", "workspaceauthenticationconfigurations") => Arc::new(tenancy::AuthenticationConfigurations),
        ("tenancy.kcp.io", "workspaces") => Arc::new(tenancy::Workspaces),
        ("core.kcp.io", "shards") => Arc::new(tenancy::Shards),
        ("apis.kcp.io", "apibindings") => Arc::new(apis::ApiBindings),
        _ => Arc::new(Custom),
    }
}

/// Returns `object.<parent>.<field>` as a mutable list; creates it if needed.
pub fn list_at<'a>(object: &'a mut Json, parent: &str, field: &str) -> &'a mut Vec<Json> {
    let parent = &mut object[parent];
    if !parent[field].is_array() {
        parent[field] = Json::Array(Vec::new());
    }
    parent[field].as_array_mut().expect("made an array above")
}

/// Adds a finalizer unless the object already has it.
pub fn add_finalizer(object: &mut Json, finalizer: &str) {
    let list = list_at(object, "metadata", "finalizers");
    if !list.iter().any(|known| known == finalizer) {
        list.push(Json::String(finalizer.to_owned()));
    }
}
