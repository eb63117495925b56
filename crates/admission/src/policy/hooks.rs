//! Bound policies for the writes of a workspace, compiled once for each content and shared by all
//! workspaces.
//!
//! There is no state for a workspace. A parsed policy is cached with its object, so a change takes
//! effect with its own revision, and a workspace without bindings costs one lookup in an empty
//! range.

use crate::policy::{
    matching::{self, ResourceVersion, Subject},
    params::{self, ParamSource},
    request::Request,
};
use dashmap::DashMap;
use insula_api::{ClusterName, Object, ObjectKey, ResourceId, Scope};
use insula_catalog::{
    Catalog,
    policies::{
        compile::CompiledPolicy,
        spec::{BindingSpec, PolicySpec},
    },
};
use insula_store::Snapshot;
use sha2::{Digest, Sha256};
use std::sync::{Arc, Weak};

/// Compiled policies by content.
#[derive(Debug, Default)]
pub struct Policies {
    compiled: DashMap<[u8; 32], Weak<CompiledPolicy>>,
}

/// A policy with its bindings.
#[derive(Debug)]
pub(crate) struct Hook {
    /// The cluster of the policy, its bindings and their parameters.
    pub(crate) home: ClusterName,
    pub(crate) name: Arc<str>,
    pub(crate) policy: Arc<CompiledPolicy>,
    pub(crate) bindings: Vec<Binding>,
}

/// A binding.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) name: Arc<str>,
    pub(crate) spec: Arc<BindingSpec>,
}

impl Hook {
    /// Returns the version in which the policy sees a request, and the source of its parameters, if
    /// it has any. Returns `None` if the policy does not match the request. Fails with the reason
    /// why the policy cannot be used.
    pub(crate) fn matches(
        &self,
        subject: &Subject<'_>,
        catalog: &Catalog,
        snapshot: &Snapshot,
    ) -> Result<Option<(ResourceVersion, Option<ParamSource>)>, String> {
        let spec = &self.policy.spec;
        let Some(constraints) = &spec.match_constraints else {
            return Ok(None);
        };
        let Some(seen_as) = matching::matches(subject, constraints)? else {
            return Ok(None);
        };
        let kind = spec.param_kind.as_ref();
        let source = kind.map(|kind| params::source(catalog, snapshot, &self.home, kind));
        Ok(Some((seen_as, source.transpose()?)))
    }
}

impl Binding {
    /// Returns true if the binding matches a request that its policy matches. Fails if a selector
    /// is malformed.
    pub(crate) fn matches(&self, subject: &Subject<'_>) -> Result<bool, String> {
        match &self.spec.match_resources {
            None => Ok(true),
            Some(resources) => matching::matches(subject, resources).map(|found| found.is_some()),
        }
    }
}

impl Policies {
    /// Returns the compiled policy.
    pub(crate) fn compiled(&self, policy: &Object) -> Arc<CompiledPolicy> {
        let compile = |policy: &Object| {
            let value = policy.body_value();
            let content: [u8; 32] = Sha256::digest(value["spec"].to_string()).into();
            if let Some(known) = self.compiled.get(&content).and_then(|weak| weak.upgrade()) {
                return known;
            }
            let compiled = Arc::new(CompiledPolicy::compile(PolicySpec::read(&value)));
            self.compiled.insert(content, Arc::downgrade(&compiled));
            // Unused programs are removed now and then, so that churn does not leak memory.
            if self.compiled.len().is_power_of_two() {
                self.compiled.retain(|_, policy| policy.strong_count() > 0);
            }
            compiled
        };
        Arc::clone(&policy.parsed(compile))
    }

    /// Returns the bound policies for a write: those of the provider of a bound API first, then the
    /// workspace's own.
    pub(crate) fn hooks(&self, request: &Request<'_>, bindings: &ResourceId, policies: &ResourceId) -> Vec<Hook> {
        let homes = request.homes_of_hooks().into_iter();
        homes
            .flat_map(|home| self.in_cluster(request.snapshot, &home, bindings.clone(), policies))
            .collect()
    }

    /// Returns the bound policies of a cluster, in order of their names.
    fn in_cluster(
        &self,
        snapshot: &Snapshot,
        cluster: &ClusterName,
        bindings: ResourceId,
        policies: &ResourceId,
    ) -> Vec<Hook> {
        let found = snapshot.range(&Scope::cluster(bindings, cluster.clone()), None, usize::MAX);
        let mut hooks: Vec<Hook> = Vec::new();
        for entry in found {
            let spec = entry.object.parsed(|object| BindingSpec::read(&object.body_value()));
            let binding = Binding {
                name: entry.key.name.clone(),
                spec,
            };
            let name = &binding.spec.policy_name;
            match hooks.binary_search_by(|hook| (*hook.name).cmp(name)) {
                Ok(at) => hooks[at].bindings.push(binding),
                Err(at) => {
                    let key = ObjectKey::cluster_scoped(policies.clone(), cluster.clone(), name);
                    // The policy of the binding does not exist yet.
                    let Some(policy) = snapshot.get(&key) else { continue };
                    let hook = Hook {
                        home: cluster.clone(),
                        name: policy.key.name.clone(),
                        policy: self.compiled(&policy.object),
                        bindings: vec![binding],
                    };
                    hooks.insert(at, hook);
                }
            }
        }
        hooks
    }
}
