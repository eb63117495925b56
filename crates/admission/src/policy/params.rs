//! Parameters: objects that a binding passes to its policy as `params`.

use super::request::Request;
use insula_api::{ClusterName, Json, LabelSelector, ObjectKey, Resources, Scope};
use insula_catalog::{
    Catalog, ScopeKind, Served,
    policies::spec::{ParamKind, ParamRef},
    stored,
};
use insula_store::Snapshot;
use std::sync::Arc;

/// The served resource of a kind of parameters, and the version to read.
pub(crate) struct ParamSource {
    served: Served,
    version: Arc<str>,
}

/// Finds the resource that serves a kind, or returns the reason why the policy cannot be used.
pub(crate) fn source(
    catalog: &Catalog,
    snapshot: &Snapshot,
    cluster: &ClusterName,
    kind: &ParamKind,
) -> Result<ParamSource, String> {
    let (group, version) = kind.group_version();
    let mut served = catalog.served(snapshot, cluster).into_iter();
    let found = served.find(|served| {
        **served.group() == *group
            && *served.names().kind == *kind.kind
            && served.served_versions().any(|known| &*known.name == version)
    });
    match found {
        Some(served) => Ok(ParamSource {
            served,
            version: version.into(),
        }),
        None => Err(format!("failed to find resource referenced by paramKind: '{kind}'")),
    }
}

/// Returns the parameters of a binding; `None` is one evaluation without any. The write pays for
/// each. Fails with the reason why the binding cannot be used.
pub(crate) fn collect(
    request: &Request<'_>,
    cluster: &ClusterName,
    source: Option<&ParamSource>,
    param_ref: Option<&ParamRef>,
) -> Result<Vec<Option<Json>>, String> {
    let (Some(source), Some(param_ref)) = (source, param_ref) else {
        return Ok(vec![None]);
    };
    let (snapshot, namespace) = (request.snapshot, request.namespace());
    let namespace = match (source.served.api.scope, param_ref.namespace.as_str()) {
        (ScopeKind::Cluster, "") => "",
        (ScopeKind::Cluster, _) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
        (ScopeKind::Namespaced, "") if namespace.is_empty() => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".to_owned(),
            );
        }
        (ScopeKind::Namespaced, "") => namespace,
        (ScopeKind::Namespaced, given) => given,
    };
    let key = ObjectKey {
        resource: source.served.resource_id(),
        cluster: cluster.clone(),
        namespace: namespace.into(),
        name: param_ref.name.as_str().into(),
    };
    let found = match &param_ref.selector {
        Some(selector) => {
            let selector = LabelSelector::from_json(selector).map_err(|error| error.to_string())?;
            let scope = Scope {
                resources: Resources::One(key.resource),
                cluster: Some(key.cluster),
                namespace: Some(key.namespace),
            };
            let mut all = snapshot.range(&scope, None, usize::MAX);
            all.retain(|entry| selector.matches(&entry.object.meta.labels));
            all
        }
        None => snapshot.get(&key).into_iter().collect(),
    };
    if found.is_empty() && param_ref.parameter_not_found_action == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    let values = found.iter().map(|entry| {
        let value = stored::value(&source.served, entry, &source.version).map_err(|error| error.to_string())?;
        let budget = request.budget_of(cluster);
        let paid = budget.charge_policy().and_then(|()| budget.charge_copies(&value));
        paid.map(|()| Some(value)).map_err(|failure| failure.to_string())
    });
    values.collect()
}
