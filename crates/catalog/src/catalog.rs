//! What each logical cluster serves: a function of one snapshot, with no state for each cluster.
//!
//! A claim (`widgets.example.io` in the tenant's cluster) says who serves a resource name there: a
//! bundle in `system:bound-crds` or a definition of the cluster. Making a claim under
//! `Guard::Absent` is how a name is won, in the same transaction that writes the bundle and the
//! binding's status; so discovery, reads and writes change at one revision. What claims and bundles
//! say is read once for each state of them, and kept with the object itself.

use crate::{
    Api, Origin, Served, System, compile, ids,
    proof::{BlockingExecutor, Proof, Prover},
    routes::ResourceRoute,
};
use dashmap::DashMap;
use insula_api::{ClusterName, FieldError, Json, Object, ObjectKey, Scope};
use insula_store::{Entry, Snapshot};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    ops::ControlFlow,
    sync::{Arc, Weak},
};

/// APIs that are kept after a search, used or not.
const SEARCHED_MAX: usize = 16;

/// Compiles and finds APIs.
pub struct Catalog {
    system: System,
    /// Compiled APIs by content, so that the same definition in a thousand clusters is compiled
    /// once. Weak: the views of the objects that use an API keep it.
    compiled: DashMap<u64, Weak<Api>>,
    /// What was searched last: admission, the rules' status and the first bundle ask one after the
    /// other.
    searched: Mutex<VecDeque<Arc<Api>>>,
    bundles: Served,
    prover: Prover,
}

type Compiled = Result<Arc<Api>, Vec<FieldError>>;

impl Catalog {
    /// A catalog of the built-in kinds.
    pub fn new(prover: Prover) -> Self {
        Catalog {
            system: System::load(),
            compiled: DashMap::new(),
            searched: Mutex::default(),
            bundles: Served::system(Arc::new(bundle_api())),
            prover,
        }
    }

    /// Where searches and other long work run; on the caller's thread if nothing is said.
    pub fn work_aside(&mut self, aside: BlockingExecutor) {
        self.prover.aside = aside;
    }

    /// The built-in kinds.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// Finds what serves a resource in a cluster: built-in, then bound, then local.
    pub fn resolve(&self, snapshot: &Snapshot, cluster: &ClusterName, group: &str, plural: &str) -> Option<Served> {
        if let Some(served) = self.system.get(group, plural) {
            return is_for(served, cluster).then(|| served.clone());
        }
        if group == ids::INTERNAL && plural == "bundles" && *cluster == ClusterName::bound_crds() {
            return Some(self.bundles.clone());
        }
        let key = ids::claim(cluster, group, plural);
        let claim = snapshot.get(&key)?;
        self.follow(snapshot, cluster, key, &claim)
    }

    /// Everything that a cluster serves, in order of group and name: built-ins first.
    pub fn served(&self, snapshot: &Snapshot, cluster: &ClusterName) -> Vec<Served> {
        let mut all: Vec<Served> = self.built_in(cluster).cloned().collect();
        if *cluster == ClusterName::bound_crds() {
            all.push(self.bundles.clone());
        }
        all.extend(self.claimed(snapshot, cluster));
        all
    }

    fn built_in<'a>(&'a self, cluster: &'a ClusterName) -> impl Iterator<Item = &'a Served> {
        self.system.iter().filter(move |served| is_for(served, cluster))
    }

    /// What a cluster serves beyond the built-ins.
    pub fn claimed(&self, snapshot: &Snapshot, cluster: &ClusterName) -> Vec<Served> {
        self.claimed_where(snapshot, cluster, |_| true)
    }

    /// What a cluster serves of one group, built-ins first. Looks at the names of others, and at
    /// nothing else of them.
    pub fn served_in(&self, snapshot: &Snapshot, cluster: &ClusterName, group: &str) -> Vec<Served> {
        let system = self.built_in(cluster).filter(|served| **served.group() == *group);
        let mut all: Vec<Served> = system.cloned().collect();
        if group == ids::INTERNAL && *cluster == ClusterName::bound_crds() {
            all.push(self.bundles.clone());
        }
        all.extend(self.claimed_where(snapshot, cluster, |name| ids::group_of(name) == group));
        all
    }

    fn claimed_where(&self, snapshot: &Snapshot, cluster: &ClusterName, wanted: impl Fn(&str) -> bool) -> Vec<Served> {
        let mut found = Vec::new();
        let scope = Scope::cluster(ids::claims(), cluster.clone());
        let wanted = |key: &ObjectKey| wanted(&key.name);
        snapshot.for_each_wanted(&scope, wanted, |claim| {
            found.extend(self.follow(snapshot, cluster, claim.key.clone(), claim));
            ControlFlow::Continue(())
        });
        found
    }

    /// What serves a resource in the first cluster that has it, of the exporter with an identity if
    /// one is given.
    pub fn claimed_by(
        &self,
        snapshot: &Snapshot,
        (group, plural): (&str, &str),
        identity: Option<&str>,
    ) -> Option<Served> {
        let name = ids::claim(&ClusterName::root(), group, plural).name;
        let mut found = None;
        let wanted = |key: &ObjectKey| key.name == name;
        snapshot.for_each_wanted(&Scope::everywhere(ids::claims()), wanted, |claim| {
            let meant = |said: &ResourceRoute| identity.is_none_or(|identity| *said.identity == *identity);
            if meant(&claim.object.parsed(ResourceRoute::read)) {
                found = self.follow(snapshot, &claim.key.cluster, claim.key.clone(), claim);
            }
            match found {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            }
        });
        // It is nobody's in particular: no cluster's claim has to stay for it.
        found.map(|served| Served { guard: None, ..served })
    }

    fn follow(&self, snapshot: &Snapshot, cluster: &ClusterName, key: ObjectKey, claim: &Entry) -> Option<Served> {
        let said = claim.object.parsed(ResourceRoute::read);
        let guard = Some((key, claim.revision));
        let source = match (&said.bundle, &said.definition) {
            (Some(bundle), _) => snapshot.get(&ids::bundle(bundle))?,
            (None, Some(name)) => {
                let resource = ids::customresourcedefinitions();
                snapshot.get(&ObjectKey::cluster_scoped(resource, cluster.clone(), name))?
            }
            (None, None) => return None,
        };
        let api = self.compiled(&source.object).ok()?;
        let (origin, owner) = match (&said.binding, &said.definition) {
            (Some(name), _) => (Origin::Bound { binding: name.clone() }, (ids::apibindings(), name)),
            (None, Some(name)) => (
                Origin::Local {
                    definition: name.clone(),
                },
                (ids::customresourcedefinitions(), name),
            ),
            (None, None) => return None,
        };
        let owner = snapshot.get(&ObjectKey::cluster_scoped(owner.0, cluster.clone(), owner.1));
        let terminating = owner.is_none_or(|owner| owner.object.meta.is_deleting());
        Some(Served {
            api,
            identity: said.identity.clone(),
            origin,
            terminating,
            alias: None,
            guard,
            questions: None,
        })
    }

    /// The API that a bundle or a CustomResourceDefinition defines, compiled at most once for each
    /// content.
    pub fn compiled(&self, source: &Object) -> Compiled {
        source
            .parsed(|source| self.compile(&source.body_value()))
            .as_ref()
            .clone()
    }

    /// Compiles a bundle or a definition given as JSON.
    pub fn compile(&self, source: &Json) -> Compiled {
        let is_bundle = source["kind"] == "Bundle";
        let definition = compile::Definition {
            spec: &source["spec"],
            accepted_names: source
                .pointer("/status/acceptedNames")
                .filter(|n| n["plural"].as_str().is_some_and(|p| !p.is_empty())),
            rules: source.get("rules").filter(|rules| rules.is_object()),
            strategy: if is_bundle {
                insula_conversion::LossPolicy::Lossless
            } else {
                insula_conversion::LossPolicy::None
            },
        };
        let fingerprint = compile::fingerprint(&definition);
        if let Some(api) = self.compiled.get(&fingerprint).and_then(|weak| weak.upgrade()) {
            return Ok(api);
        }
        let api = Arc::new(compile::compile(&definition, None)?);
        self.compiled.insert(fingerprint, Arc::downgrade(&api));
        Ok(api)
    }

    /// Compiles a bundle that is to serve, and searches its rules for a reason why it must not.
    pub fn prove(&self, source: &Json) -> Compiled {
        let api = self.compile(source)?;
        match self.proof(&api) {
            Ok(_) => Ok(api),
            Err(errors) => Err(errors.clone()),
        }
    }

    /// What the search for a counterexample says of an API's rules.
    pub fn proof<'a>(&self, api: &'a Arc<Api>) -> &'a Proof {
        api.proof.get_or_init(|| {
            let proof = self.prover.prove(&api.bundle);
            let mut searched = self.searched.lock();
            searched.truncate(SEARCHED_MAX - 1);
            searched.push_front(Arc::clone(api));
            proof
        })
    }

    /// A bundle that is to serve where `present` does. What serves already is not asked again.
    pub fn successor(&self, wanted: &Json, present: Option<&Object>) -> Compiled {
        let api = self.compile(wanted)?;
        let serves = |present: &Object| {
            let present = self.compiled(present);
            present.is_ok_and(|present| present.fingerprint == api.fingerprint)
        };
        if present.is_some_and(serves) {
            Ok(api)
        } else {
            self.prove(wanted)
        }
    }

    /// Forgets APIs that nothing uses any more. Called now and then, so that churn leaves nothing
    /// behind.
    pub fn sweep(&self) {
        self.compiled.retain(|_, api| api.strong_count() > 0);
    }
}

/// Shards are the operator's: tenants do not even see the kind.
fn is_for(served: &Served, cluster: &ClusterName) -> bool {
    let is_shards = **served.group() == *"core.kcp.io" && *served.names().plural == *"shards";
    !is_shards || *cluster == ClusterName::root() || cluster.is_system()
}

/// Bundles are shown in `system:bound-crds` for operators to look at; the reconciler alone writes
/// them.
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
    };
    compile::compile(&definition, None).expect("the schema of bundles is fixed")
}
