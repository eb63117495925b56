//! The APIs that each logical cluster serves, computed from one snapshot without state for each
//! cluster.
//!
//! A route (`widgets.example.io` in the tenant's cluster) leads from a resource name to a bundle in
//! `system:bound-crds` or to a definition of the cluster. A binding or definition wins a name by
//! creating its route under `Guard::Absent`. The same transaction writes the bundle and the
//! binding's status, so discovery, reads and writes change at one revision. The parsed form of a
//! route or bundle is cached with each stored object.

use crate::{
    Api, CompiledKind, Gates, Origin, Served, System, bundle, compile, ids, indexes, parts,
    proof::{BlockingExecutor, Proof, Prover},
    registration,
    routes::ResourceRoute,
};
use dashmap::DashMap;
use insula_api::{
    ClusterName, FieldError, Json, Object, ObjectKey, Scope,
    names::annotations::{MADE_AS, V1BETA1},
};
use insula_meter::Meter;
use insula_store::{Entry, Snapshot};
use parking_lot::Mutex;
use std::{
    borrow::Cow,
    collections::{BTreeSet, VecDeque},
    ops::ControlFlow,
    sync::{Arc, Weak},
};

/// Limit on the searched APIs that the catalog keeps alive, used or not.
const SEARCHED_MAX: usize = 16;

/// The compiler, cache and resolver of APIs.
pub struct Catalog {
    system: System,
    /// Compiled APIs by fingerprint. A definition with the same content in a thousand clusters is
    /// compiled once. The references are weak: the parsed forms of the stored objects keep an API
    /// alive.
    compiled: DashMap<u64, Weak<Api>>,
    /// The APIs searched last. Admission, the status of the rules and the first bundle need the
    /// result of a search one after the other.
    searched: Mutex<VecDeque<Arc<Api>>>,
    bundles: Served,
    prover: Prover,
}

type Compiled = Result<Arc<Api>, Vec<FieldError>>;

impl Catalog {
    /// Returns a catalog of the built-in kinds.
    pub fn new(prover: Prover) -> Self {
        Catalog {
            system: System::load(),
            compiled: DashMap::new(),
            searched: Mutex::default(),
            bundles: Served::system(Arc::new(bundle_api())),
            prover,
        }
    }

    /// Leaves out the built-in kinds and versions that the server's settings switch off.
    pub fn close(&mut self, gates: &Gates) {
        self.system.close(gates);
    }

    /// Adds a kind that every cluster serves.
    ///
    /// # Errors
    /// Returns the field errors of a definition that is not valid, does not compile, or has the
    /// name of another kind.
    pub fn add(&mut self, kind: CompiledKind) -> Result<(), Vec<FieldError>> {
        self.system.add(kind)
    }

    /// Sets the executor for long work of the server for itself. The default runs it on the
    /// caller's thread.
    pub fn work_aside(&mut self, aside: BlockingExecutor) {
        self.prover.aside = aside;
    }

    /// Returns the built-in kinds.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// Resolves a resource name in a cluster: first among the built-in kinds, then by the route of
    /// a binding or a definition.
    pub fn resolve(&self, snapshot: &Snapshot, cluster: &ClusterName, group: &str, plural: &str) -> Option<Served> {
        if let Some(served) = self.system.get(group, plural) {
            return is_for(served, cluster).then(|| served.charged_to(snapshot.meter()));
        }
        if group == ids::INTERNAL && plural == "bundles" && *cluster == ClusterName::bound_crds() {
            return Some(self.bundles.charged_to(snapshot.meter()));
        }
        let key = ids::resource_route(cluster, group, plural);
        let route = snapshot.get(&key)?;
        self.follow(snapshot, cluster, key, &route)
    }

    /// Returns all resources that a cluster serves: built-in kinds first, then by the name of their
    /// route.
    pub fn served(&self, snapshot: &Snapshot, cluster: &ClusterName) -> Vec<Served> {
        let built_in = self.built_in(cluster);
        let mut all: Vec<Served> = built_in.map(|served| served.charged_to(snapshot.meter())).collect();
        if *cluster == ClusterName::bound_crds() {
            all.push(self.bundles.charged_to(snapshot.meter()));
        }
        all.extend(self.routed(snapshot, cluster));
        all
    }

    fn built_in<'a>(&'a self, cluster: &'a ClusterName) -> impl Iterator<Item = &'a Served> {
        self.system.iter().filter(move |served| is_for(served, cluster))
    }

    /// Returns the resources that a cluster serves in addition to the built-in kinds.
    pub fn routed(&self, snapshot: &Snapshot, cluster: &ClusterName) -> Vec<Served> {
        self.routed_where(snapshot, cluster, |_| true)
    }

    /// Returns the resources of one group that a cluster serves, built-in kinds first. Skips the
    /// routes of other groups by their names, without a read of their objects.
    pub fn served_in(&self, snapshot: &Snapshot, cluster: &ClusterName, group: &str) -> Vec<Served> {
        let system = self.built_in(cluster).filter(|served| **served.group() == *group);
        let mut all: Vec<Served> = system.map(|served| served.charged_to(snapshot.meter())).collect();
        if group == ids::INTERNAL && *cluster == ClusterName::bound_crds() {
            all.push(self.bundles.charged_to(snapshot.meter()));
        }
        all.extend(self.routed_where(snapshot, cluster, |name| ids::group_of(name) == group));
        all
    }

    fn routed_where(&self, snapshot: &Snapshot, cluster: &ClusterName, wanted: impl Fn(&str) -> bool) -> Vec<Served> {
        let mut found = Vec::new();
        let scope = Scope::cluster(ids::resource_routes(), cluster.clone());
        let wanted = |key: &ObjectKey| wanted(&key.name);
        snapshot.for_each_wanted(&scope, wanted, |route| {
            found.extend(self.follow(snapshot, cluster, route.key.clone(), route));
            ControlFlow::Continue(())
        });
        found
    }

    /// Returns the API of a resource from the first cluster that serves it in a version, or else in
    /// any. With an identity, considers only routes to the exporter with that identity.
    pub fn routed_anywhere(
        &self,
        snapshot: &Snapshot,
        (group, version, plural): (&str, &str, &str),
        identity: Option<&str>,
    ) -> Option<Served> {
        let name = ids::resource_route(&ClusterName::root(), group, plural).name;
        let serves = |served: &Served| served.served_versions().any(|served| *served.name == *version);
        let mut found: Option<Served> = None;
        let mut seen = BTreeSet::new();
        snapshot.for_each_indexed(&indexes::ROUTES_BY_NAME, &name, |route| {
            let said = route.object.parsed(ResourceRoute::read);
            let meant = identity.is_none_or(|identity| *said.identity == *identity);
            // Most routes lead to a bundle that another one led to.
            if meant && said.bundle.as_ref().is_none_or(|bundle| seen.insert(bundle.clone())) {
                let next = self.follow(snapshot, &route.key.cluster, route.key.clone(), route);
                if found.is_none() || next.as_ref().is_some_and(serves) {
                    found = next;
                }
            }
            match found.as_ref().is_some_and(serves) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        // The result belongs to no cluster, so it carries no guard on the route it came from.
        found.map(|served| Served { guard: None, ..served })
    }

    fn follow(&self, snapshot: &Snapshot, cluster: &ClusterName, key: ObjectKey, route: &Entry) -> Option<Served> {
        let said = route.object.parsed(ResourceRoute::read);
        let guard = Some((key, route.revision));
        let source = match (&said.bundle, &said.definition) {
            (Some(bundle), _) => snapshot.get(&ids::bundle(bundle))?,
            (None, Some(definition)) => snapshot.get(&definition.key(cluster))?,
            (None, None) => return None,
        };
        let api = self.compiled(&source.object).ok()?;
        let (origin, owner) = match (&said.binding, &said.definition) {
            (Some(name), _) => (
                Origin::Bound { binding: name.clone() },
                ObjectKey::cluster_scoped(ids::apibindings(), cluster.clone(), name),
            ),
            (None, Some(definition)) => (
                Origin::Local {
                    definition: definition.clone(),
                },
                definition.key(cluster),
            ),
            (None, None) => return None,
        };
        let owner = snapshot.get(&owner);
        let terminating = said.closing || owner.is_none_or(|owner| owner.object.meta.is_deleting());
        Some(Served {
            api,
            identity: said.identity.clone(),
            origin,
            terminating,
            alias: None,
            guard,
            route: Some(said),
            pending_calls: None,
            meter: snapshot.meter().clone(),
        })
    }

    /// Returns the API that a bundle or a CustomResourceDefinition defines. Compiles each content
    /// at most once.
    ///
    /// # Errors
    /// Returns the field errors of a definition that does not compile.
    pub fn compiled(&self, source: &Object) -> Compiled {
        source
            .parsed(|source| self.compile(&source.body_value()))
            .as_ref()
            .clone()
    }

    /// Compiles a bundle or a definition given as JSON.
    ///
    /// # Errors
    /// Returns the field errors of a definition that does not compile.
    pub fn compile(&self, source: &Json) -> Compiled {
        let is_bundle = source["kind"] == "Bundle";
        let registered = match source["kind"] == registration::KIND {
            true => registration::wanted(source),
            false => None,
        };
        let definition = compile::Definition {
            spec: registered.as_ref().unwrap_or(&source["spec"]),
            accepted_names: source
                .pointer("/status/acceptedNames")
                .filter(|n| n["plural"].as_str().is_some_and(|p| !p.is_empty())),
            rules: source.get("rules").filter(|rules| rules.is_object()),
            strategy: if is_bundle {
                insula_conversion::LossPolicy::Lossless
            } else {
                insula_conversion::LossPolicy::None
            },
            strict_scale: source["metadata"]["annotations"][MADE_AS] == V1BETA1,
        };
        let fingerprint = compile::fingerprint(&definition);
        if let Some(api) = self.compiled.get(&fingerprint).and_then(|weak| weak.upgrade()) {
            return Ok(api);
        }
        let api = Arc::new(compile::compile(&definition, None)?);
        self.compiled.insert(fingerprint, Arc::downgrade(&api));
        Ok(api)
    }

    /// Returns the API of an APIResourceSchema with its rules, as both are stored in a cluster.
    /// `None` if there is no such schema, or it does not compile.
    pub fn stored(&self, snapshot: &Snapshot, cluster: &ClusterName, schema: &str) -> Option<Arc<Api>> {
        let key = ObjectKey::cluster_scoped(ids::apiresourceschemas(), cluster.clone(), schema);
        let found = snapshot.get(&key)?.object.body_value();
        let rules = parts::joined(snapshot, cluster, schema);
        self.compile(&bundle::of_schema(&found, rules.as_ref())).ok()
    }

    /// Compiles a new bundle and searches its rules for a counterexample to the conversion laws. A
    /// meter that has ended gives no verdict.
    ///
    /// # Errors
    /// Returns the field errors of a bundle that does not compile or whose rules break a law.
    pub fn prove(&self, source: &Json, meter: &Meter) -> Compiled {
        let api = self.compile(source)?;
        let refused = self.proof(&api, meter).as_ref().as_ref().err().cloned();
        refused.map_or(Ok(api), Err)
    }

    /// Returns the result of the search for a counterexample in an API's rules. Searches each API
    /// once, unless the meter ends before the search does: then the result is no verdict.
    pub fn proof<'a>(&self, api: &'a Arc<Api>, meter: &Meter) -> Cow<'a, Proof> {
        if let Some(known) = api.proof.get() {
            return Cow::Borrowed(known);
        }
        // Not in the cell: a search waits for its turn, and all others would wait for the cell.
        let proof = self.prover.prove(&api.bundle, meter);
        if meter.check().is_err() {
            return Cow::Owned(proof);
        }
        let mut searched = self.searched.lock();
        searched.truncate(SEARCHED_MAX - 1);
        searched.push_front(Arc::clone(api));
        Cow::Borrowed(api.proof.get_or_init(|| proof))
    }

    /// Compiles the bundle that replaces `present`. Searches its rules only if the content differs.
    ///
    /// # Errors
    /// Returns the field errors of a bundle that does not compile or whose rules break a law.
    pub fn successor(&self, wanted: &Json, present: Option<&Object>, meter: &Meter) -> Compiled {
        let api = self.compile(wanted)?;
        let serves = |present: &Object| {
            let present = self.compiled(present);
            present.is_ok_and(|present| present.fingerprint == api.fingerprint)
        };
        if present.is_some_and(serves) {
            Ok(api)
        } else {
            self.prove(wanted, meter)
        }
    }

    /// Removes cache entries of APIs without users. The server calls it periodically, so churn
    /// leaks no memory.
    pub fn sweep(&self) {
        self.compiled.retain(|_, api| api.strong_count() > 0);
    }
}

/// Returns true if a cluster serves a built-in kind. Only the root and system clusters serve
/// Shards, which belong to the operator.
fn is_for(served: &Served, cluster: &ClusterName) -> bool {
    let operators_only = served.api.builtin.is_some_and(|builtin| builtin.operators_only);
    !operators_only || *cluster == ClusterName::root() || cluster.is_system()
}

/// Returns the API that shows bundles in `system:bound-crds` to operators. Only the reconciler
/// writes bundles.
fn bundle_api() -> Api {
    let spec = serde_json::json!({
        "group": ids::INTERNAL, "scope": "Cluster",
        "names": {"plural": "bundles", "singular": "bundle", "kind": "Bundle", "listKind": "BundleList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
    });
    let definition = compile::Definition {
        spec: &spec,
        accepted_names: None,
        rules: None,
        strategy: insula_conversion::LossPolicy::Lossless,
        strict_scale: false,
    };
    compile::compile(&definition, None).expect("the schema of bundles is fixed")
}
