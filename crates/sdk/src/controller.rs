//! Controllers: level-based reconciliation of a kind, in all workspaces of a server or in one
//! cluster of any server.

mod informer;
mod leader;
mod queue;
mod run;
mod source;

pub use source::{Clusters, Workspaces, workspace_client};

use crate::Known;
use futures_util::future::BoxFuture;
use informer::{Watch, mapped, owned};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ObjectMeta, Patch, PatchParams},
    core::{ApiResource, NamespaceResourceScope},
    runtime::events::{Event, Recorder},
};
use serde::{Serialize, de::DeserializeOwned};
use std::{error::Error, fmt, fmt::Debug, future::Future, sync::Arc, time::Duration};

pub use kube::runtime::events::{Event as ObjectEvent, EventType};

/// The time of the next reconciliation after one that succeeded. A change of the object or of a
/// watched one comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Action {
    pub(crate) after: Option<Duration>,
}

impl Action {
    /// Reconciles again when something changes.
    pub fn await_change() -> Self {
        Self { after: None }
    }

    /// Reconciles again after a time, for example to look at something that cannot be watched.
    pub fn requeue(after: Duration) -> Self {
        Self { after: Some(after) }
    }
}

/// The result of a reconciliation. Any error is retried with back-off.
pub type ReconcileResult = Result<Action, Box<dyn Error + Send + Sync>>;

/// Default of the objects that a controller reconciles at the same time.
const WORKERS: usize = 4;

/// The name of an object. A reconciliation gets it in place of a change, because changes may be
/// lost or merged, while the state stays.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The logical cluster of the workspace; empty for a server without workspaces.
    pub cluster: String,
    /// The namespace; None for objects of the cluster.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in [Some(&self.cluster), self.namespace.as_ref()].into_iter().flatten() {
            if !part.is_empty() {
                write!(f, "{part}/")?;
            }
        }
        f.write_str(&self.name)
    }
}

/// The logic of a controller: it reads the state of the world and moves it towards the desired one.
/// It runs after each change, after its own failures, and after the start for every object, so it
/// must do nothing where nothing is to do.
pub trait Reconciler: Send + Sync + 'static {
    /// The kind whose objects are reconciled.
    type Object: Known;
    /// Name of the controller: in logs, in events, and as manager of the fields that it applies.
    const NAME: &'static str;

    /// Reconciles an object that exists and is not being deleted.
    ///
    /// # Errors
    /// Any error; the object is reconciled again after a pause that doubles with each failure.
    fn reconcile(&self, request: &Request<Self::Object>) -> impl Future<Output = ReconcileResult> + Send;

    /// Cleans up after an object that is being deleted and has the controller's finalizer
    /// ([`Controller::finalizer`]). The finalizer goes when it succeeds. It may run again after it
    /// has succeeded, if the object changed meanwhile.
    ///
    /// # Errors
    /// As [`Reconciler::reconcile`].
    fn cleanup(&self, _request: &Request<Self::Object>) -> impl Future<Output = ReconcileResult> + Send {
        async { Ok(Action::await_change()) }
    }
}

/// An object to reconcile, with a client of its workspace.
pub struct Request<K> {
    /// Its name.
    pub key: Key,
    /// The object, as the informer saw it last.
    pub object: Arc<K>,
    /// A client of the object's workspace.
    pub client: Client,
    manager: &'static str,
    recorder: Recorder,
}

impl<K> Request<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    /// Applies an object that belongs to this one (server-side apply), in the same namespace: it
    /// gets an owner reference, so that it is deleted with its owner.
    ///
    /// # Errors
    /// The server refuses it.
    pub async fn apply_owned<O>(&self, mut object: O) -> Result<O, kube::Error>
    where
        O: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Serialize
            + Debug,
    {
        let namespace = object.meta().namespace.clone().or_else(|| self.key.namespace.clone());
        let namespace = namespace.unwrap_or_else(|| "default".into());
        object.meta_mut().namespace = Some(namespace.clone());
        let references = object.meta_mut().owner_references.get_or_insert_default();
        references.extend(self.object.controller_owner_ref(&()));
        let api: Api<O> = Api::namespaced(self.client.clone(), &namespace);
        let params = PatchParams::apply(self.manager).force();
        // The types of k8s-openapi write `apiVersion` and `kind`.
        api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await
    }

    /// Sets fields of the status, by a merge patch of `/status`.
    ///
    /// # Errors
    /// The server refuses it.
    pub async fn patch_status(&self, status: impl Serialize) -> Result<(), kube::Error> {
        let patch = serde_json::json!({"status": status});
        let params = PatchParams {
            field_manager: Some(self.manager.to_owned()),
            ..PatchParams::default()
        };
        let api = self.dynamic();
        api.patch_status(&self.key.name, &params, &Patch::Merge(&patch))
            .await
            .map(drop)
    }

    fn dynamic(&self) -> Api<DynamicObject> {
        let resource = ApiResource::erase::<K>(&());
        match &self.key.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Publishes an event about the object.
    ///
    /// # Errors
    /// The server refuses it.
    pub async fn publish(&self, event: &Event) -> Result<(), kube::Error> {
        self.recorder.publish(event, &self.object.object_ref(&())).await
    }
}

/// A controller: a reconciler, and what it watches.
pub struct Controller<R: Reconciler> {
    reconciler: Arc<R>,
    finalizer: Option<&'static str>,
    workers: usize,
    lease: Option<leader::LeaseName>,
    watches: Vec<Watch>,
}

impl<R: Reconciler> Controller<R> {
    /// Returns the controller of a reconciler, which watches the reconciler's kind.
    pub fn new(reconciler: R) -> Self {
        Self {
            reconciler: Arc::new(reconciler),
            finalizer: None,
            workers: WORKERS,
            lease: None,
            watches: Vec::new(),
        }
    }

    /// Watches a kind whose objects belong to those of the reconciler: a change of one reconciles
    /// its owner.
    #[must_use]
    pub fn owns<O>(mut self) -> Self
    where
        O: kube::Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static,
    {
        self.watches.push(owned::<R::Object, O>());
        self
    }

    /// Watches another kind: a change of one of its objects reconciles the named ones, each a
    /// namespace and a name, in the same workspace.
    #[must_use]
    pub fn watches<O>(
        mut self,
        names: impl Fn(&ObjectMeta) -> Vec<(Option<String>, String)> + Send + Sync + 'static,
    ) -> Self
    where
        O: kube::Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static,
    {
        self.watches.push(mapped::<O>(names));
        self
    }

    /// Holds objects with a finalizer until [`Reconciler::cleanup`] succeeds. The controller adds
    /// it before the first reconciliation.
    #[must_use]
    pub fn finalizer(mut self, name: &'static str) -> Self {
        self.finalizer = Some(name);
        self
    }

    /// Sets the number of objects that are reconciled at the same time; at least 1. One object is
    /// never reconciled twice at a time.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// Runs the controller in one process at a time: the one that holds this Lease. With all
    /// workspaces of a server it lies in `root`.
    #[must_use]
    pub fn leader_election(mut self, namespace: &str, lease: &str) -> Self {
        self.lease = Some(leader::LeaseName {
            namespace: namespace.to_owned(),
            lease: lease.to_owned(),
        });
        self
    }

    /// Runs the controller until `stop` completes.
    pub fn run(self, clusters: Clusters, stop: impl Future<Output = ()> + Send + 'static) -> BoxFuture<'static, ()> {
        Box::pin(leader::run(self, clusters, stop))
    }
}

/// Returns the time before the next try after some failures in a row.
fn back_off(failures: u32) -> Duration {
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(300);
    FIRST
        .saturating_mul(1 << failures.saturating_sub(1).min(16))
        .min(LONGEST)
}
