//! A registry in memory with all reconcilers, driven step by step: no clock, no tasks, the same run
//! every time.

use crate::{
    account::Accounts,
    account_token::AccountTokens,
    aggregation::Aggregation,
    apibinding::ApiBindings,
    apiconversion::ApiConversions,
    apiexport::{ApiExports, EndpointSlices},
    bindrequest::BindRequests,
    bootstrap,
    bundle::Bundles,
    crd::Definitions,
    extension::ExtensionTrusts,
    garbage::Garbage,
    logicalcluster::LogicalClusters,
    maintain::Maintenance,
    migration::Migrations,
    mount::Mounts,
    namespace::Namespaces,
    partition::PartitionSets,
    plan_yaml::PlanYaml,
    policy::Policies,
    quota::Quotas,
    rollout_status::RolloutStatus,
    runtime::Reconciler,
    thirdparty::Registrations,
    usage::Usages,
    workspace::Workspaces,
    workspacetype::WorkspaceTypes,
};
use insula_access::Target;
use insula_api::{Clock, ClusterName, ClusterPath, Json, Object, ObjectKey, Revision, Rng, Scope, Timestamp};
use insula_auth::UserInfo;
use insula_catalog::{Error, Part, ids, locate};
use insula_meter::ServerWork;
use insula_registry::{Change, DeleteOptions, Deps, FieldValidation, Propagation, SentKeys, WriteOptions, verbs};
use insula_store::{Change as Event, MemoryStore, Txn, Write};
use serde_json::json;
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

/// Rounds until everything must be at rest.
const ROUNDS_MAX: usize = 40;

struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

/// SplitMix64: a repeatable sequence.
struct TestRng(AtomicU64);

impl Rng for TestRng {
    fn fill(&self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            let mut x = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            chunk.copy_from_slice(&(x ^ (x >> 31)).to_le_bytes()[..chunk.len()]);
        }
    }
}

/// A server in memory.
pub(crate) struct TestControlPlane {
    pub(crate) registry: Arc<Deps>,
    pub(crate) user: UserInfo,
}

impl TestControlPlane {
    /// Starts a server.
    pub(crate) async fn new() -> TestControlPlane {
        let registry = empty_registry();
        bootstrap(&registry).await.expect("the root workspace is written");
        let user = UserInfo::authenticated("alice", "", vec!["system:kcp:admin".to_owned()]);
        let rig = TestControlPlane {
            registry: Arc::new(registry),
            user,
        };
        rig.settle().await;
        rig
    }

    /// Lets time pass.
    pub(crate) fn tick(&mut self, seconds: i64) {
        let now = self.registry.clock.now().0 + seconds;
        let registry = Arc::get_mut(&mut self.registry).expect("one owner");
        registry.clock = Arc::new(TestClock(AtomicI64::new(now)));
    }

    pub(crate) fn cluster(&self, path: &str) -> ClusterName {
        let path = ClusterPath::parse(path).expect("a path");
        locate::locate(&self.registry.store.latest().for_server(ServerWork::Tool), &path)
            .expect("the workspace is there")
    }

    pub(crate) fn target(&self, path: &str, api_version: &str, plural: &str, namespace: &str) -> Option<Target> {
        let cluster = self.cluster(path);
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let served = self.registry.catalog.resolve(
            &self.registry.store.latest().for_server(ServerWork::Tool),
            &cluster,
            group,
            plural,
        )?;
        let target = Target::for_the_server(cluster, served, version.into());
        Some(match namespace {
            "" => target,
            namespace => target.in_namespace(namespace.into()),
        })
    }

    pub(crate) fn options(&self) -> WriteOptions<'_> {
        WriteOptions {
            user: &self.user,
            dry_run: false,
            field_validation: FieldValidation::Strict,
            body_bytes: 0,
            keys: SentKeys::default(),
            manager: String::new(),
            record: insula_auth::audit::Record::default(),
        }
    }

    /// Creates an object given as YAML.
    pub(crate) async fn try_create(&self, path: &str, plural: &str, yaml: &str) -> Result<Json, Error> {
        let body: Json = serde_saphyr::from_str(yaml).expect("YAML");
        let namespace = body["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let version = body["apiVersion"].as_str().expect("an apiVersion").to_owned();
        let target = self
            .target(path, &version, plural, &namespace)
            .ok_or(Error::UnknownResource)?;
        let written = verbs::create(&self.registry, &target, body, &self.options()).await?;
        insula_catalog::stored::value(&target.served, &written.entry, &target.version)
    }

    /// Creates an object that is fine.
    pub(crate) async fn create(&self, path: &str, plural: &str, yaml: &str) -> Json {
        match self.try_create(path, plural, yaml).await {
            Ok(value) => value,
            Err(error) => panic!("{plural}: {error}"),
        }
    }

    /// Reads an object as clients do.
    pub(crate) fn get(&self, path: &str, api_version: &str, plural: &str, name: &str) -> Option<Json> {
        let (namespace, name) = name.rsplit_once('/').unwrap_or(("", name));
        let target = self.target(path, api_version, plural, namespace)?;
        let entry = self.registry.store.latest().get(&target.key(name))?;
        Some(insula_catalog::stored::value(&target.served, &entry, &target.version).expect("it can be shown"))
    }

    /// Merges fields into an object.
    pub(crate) async fn patch(
        &self,
        path: &str,
        api_version: &str,
        plural: &str,
        name: &str,
        patch: Json,
    ) -> Result<(), Error> {
        let (namespace, name) = name.rsplit_once('/').unwrap_or(("", name));
        let target = self
            .target(path, api_version, plural, namespace)
            .ok_or(Error::UnknownResource)?;
        let change = |old: &Json| {
            let mut new = old.clone();
            merge(&mut new, &patch);
            Ok(new)
        };
        let part = if patch.get("status").is_some() {
            Part::Status
        } else {
            Part::Main
        };
        verbs::update(
            &self.registry,
            &target,
            name,
            Change::Patch(&change),
            part,
            &self.options(),
        )
        .await
        .map(drop)
    }

    pub(crate) async fn delete(&self, path: &str, api_version: &str, plural: &str, name: &str) -> Result<(), Error> {
        self.delete_as(path, api_version, plural, name, None).await
    }

    /// Deletes with a propagation policy.
    pub(crate) async fn delete_as(
        &self,
        path: &str,
        api_version: &str,
        plural: &str,
        name: &str,
        propagation: Option<Propagation>,
    ) -> Result<(), Error> {
        let (namespace, name) = name.rsplit_once('/').unwrap_or(("", name));
        let target = self
            .target(path, api_version, plural, namespace)
            .ok_or(Error::UnknownResource)?;
        let how = DeleteOptions {
            propagation,
            ..DeleteOptions::default()
        };
        verbs::delete(&self.registry, &target, name, &how, &self.options())
            .await
            .map(drop)
    }

    /// Creates a workspace and waits for it.
    pub(crate) async fn workspace(&self, parent: &str, name: &str) -> String {
        let yaml = format!(
            "{{apiVersion: tenancy.kcp.io/v1alpha1, kind: Workspace, metadata: {{name: {name}}}, \
             spec: {{type: {{name: universal, path: root}}}}}}"
        );
        self.create(parent, "workspaces", &yaml).await;
        self.settle().await;
        format!("{parent}:{name}")
    }

    /// Lets every reconciler look at everything until none writes any more, and checks that this
    /// comes to an end. Returns how many transactions that took.
    pub(crate) async fn settle(&self) -> usize {
        let registry = &self.registry;
        let mut total = 0;
        for _ in 0..ROUNDS_MAX {
            let mut commits = 0;
            commits += pass(registry, &Workspaces::new(registry.clone())).await;
            commits += pass(registry, &LogicalClusters::new(registry.clone())).await;
            commits += pass(registry, &Maintenance::new(registry.clone())).await;
            commits += pass(registry, &Mounts::new(registry.clone())).await;
            commits += pass(registry, &WorkspaceTypes::new(registry.clone())).await;
            commits += pass(registry, &ApiExports::new(registry.clone())).await;
            commits += pass(registry, &EndpointSlices::new(registry.clone())).await;
            commits += pass(registry, &ApiConversions::new(registry.clone())).await;
            commits += pass(registry, &ApiBindings::new(registry.clone())).await;
            commits += pass(registry, &BindRequests::new(registry.clone())).await;
            commits += pass(registry, &RolloutStatus::new(registry.clone())).await;
            commits += pass(registry, &Definitions::new(registry.clone())).await;
            commits += pass(registry, &Registrations::new(registry.clone())).await;
            commits += pass(registry, &Migrations::new(registry.clone())).await;
            commits += pass(registry, &Namespaces::new(registry.clone())).await;
            commits += pass(registry, &Accounts::new(registry.clone())).await;
            commits += pass(registry, &ExtensionTrusts::new(registry.clone())).await;
            commits += pass(registry, &AccountTokens::new(registry.clone())).await;
            commits += pass(registry, &PartitionSets::new(registry.clone())).await;
            commits += pass(registry, &Policies::new(registry.clone())).await;
            commits += pass(registry, &Quotas::new(registry.clone())).await;
            commits += pass(registry, &Aggregation::new(registry.clone())).await;
            commits += pass(registry, &Usages::new(registry.clone())).await;
            commits += pass(registry, &Garbage::new(registry.clone())).await;
            if commits == 0 {
                return total;
            }
            total += commits;
        }
        panic!("a reconciler never comes to rest");
    }

    /// Collects bundles.
    pub(crate) async fn collect(&self) -> usize {
        let keys = self.registry.store.latest().for_server(ServerWork::Tool).range(
            &Scope::everywhere(insula_catalog::ids::bundles()),
            None,
            999,
        );
        let bundles = Bundles::new(self.registry.clone());
        let mut collected = 0;
        for entry in keys {
            let plan = bundles
                .decide(&bundles.observe(&entry.key, &self.registry.store.latest().for_server(ServerWork::Tool)));
            collected += usize::from(
                insula_registry::commit(&self.registry, &plan)
                    .await
                    .expect("no conflict")
                    .is_some(),
            );
        }
        collected
    }

    /// Returns the keys of all objects of a resource.
    pub(crate) fn keys(&self, resource: insula_api::ResourceId) -> Vec<ObjectKey> {
        let all = self.registry.store.latest().for_server(ServerWork::Tool).range(
            &Scope::everywhere(resource),
            None,
            usize::MAX,
        );
        all.into_iter().map(|entry| entry.key).collect()
    }
}

/// Returns, as YAML, the plan of a reconciler for a key in a world of nothing but some objects.
///
/// The objects are YAML documents in their storage versions; the annotation `kcp.io/cluster` names
/// the cluster of each, `root` by default. They are stored as they are: nothing is admitted,
/// defaulted or validated.
pub(crate) async fn plan<R: Reconciler>(reconciler: impl FnOnce(Arc<Deps>) -> R, key: &R::Key, world: &str) -> String {
    let registry = Arc::new(empty_registry());
    let documents: Vec<Json> = serde_saphyr::from_multiple(world).expect("YAML");
    let writes = documents.into_iter().map(|value| {
        let object = Object::new(&value, None).expect("an object");
        Write::Put(key_of(&registry, &value), Arc::new(object))
    });
    let txn = Txn {
        guards: Vec::new(),
        writes: writes.collect(),
    };
    let changes: Vec<Event> = txn.writes.iter().filter_map(created).collect();
    registry.store.commit(txn).await.expect("the world is stored");
    let reconciler = reconciler(registry.clone());
    for change in changes {
        drop(reconciler.keys(&change, &registry.store.latest().for_server(ServerWork::Tool)));
    }
    let plan = reconciler.decide(&reconciler.observe(key, &registry.store.latest().for_server(ServerWork::Tool)));
    PlanYaml(&plan).to_string()
}

/// Returns the creation that a write is.
fn created(write: &Write) -> Option<Event> {
    let Write::Put(key, object) = write else { return None };
    Some(Event {
        key: key.clone(),
        revision: Revision(1),
        old: None,
        new: Some(object.clone()),
    })
}

/// Returns the key that a document is stored under.
fn key_of(registry: &Deps, value: &Json) -> ObjectKey {
    let text = |pointer: &str| value.pointer(pointer).and_then(Json::as_str).unwrap_or_default();
    let (group, _) = text("/apiVersion").split_once('/').unwrap_or_default();
    let resource = match text("/kind") {
        ids::RESOURCE_ROUTE => ids::resource_routes(),
        kind => {
            let mut system = registry.catalog.system().iter();
            let served = system.find(|served| **served.group() == *group && *served.names().kind == *kind);
            served.expect("a built-in kind").resource_id()
        }
    };
    let cluster = text("/metadata/annotations/kcp.io~1cluster");
    let cluster = if cluster.is_empty() { "root" } else { cluster };
    ObjectKey {
        resource,
        cluster: ClusterName::parse(cluster).expect("a cluster"),
        namespace: text("/metadata/namespace").into(),
        name: text("/metadata/name").into(),
    }
}

fn empty_registry() -> Deps {
    let clock = Arc::new(TestClock(AtomicI64::new(1_795_255_200)));
    let rng = Arc::new(TestRng(AtomicU64::new(7)));
    Deps::new(
        Arc::new(MemoryStore::new()),
        clock,
        rng,
        "https://server:6443".to_owned(),
    )
}

/// Reconciles every key of one reconciler once.
pub(crate) async fn pass<R: Reconciler>(registry: &Deps, reconciler: &R) -> usize {
    let snapshot = registry.store.latest().for_server(ServerWork::Tool);
    let mut keys = HashSet::new();
    let mut order = Vec::new();
    for scope in reconciler.scopes() {
        for entry in snapshot.range(&scope, None, usize::MAX) {
            let event = Event {
                key: entry.key.clone(),
                revision: entry.revision,
                old: None,
                new: Some(entry.object.clone()),
            };
            for key in reconciler.keys(&event, &snapshot) {
                if keys.insert(key.clone()) {
                    order.push(key);
                }
            }
        }
    }
    let mut commits = 0;
    for key in order {
        let plan = reconciler.decide(&reconciler.observe(&key, &registry.store.latest().for_server(ServerWork::Tool)));
        match insula_registry::commit(registry, &plan).await {
            Ok(Some(_)) => commits += 1,
            Ok(None) => {}
            Err(error) => panic!("{} {key:?}: {error}", reconciler.name()),
        }
    }
    commits
}

fn merge(target: &mut Json, patch: &Json) {
    let Json::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        match value {
            Json::Null => drop(target.as_object_mut().map(|fields| fields.remove(key))),
            value => merge(&mut target[key], value),
        }
    }
}
