//! The loop of a controller: changes in, reconciliations out.

use super::{Action, Clusters, Controller, Key, ReconcileResult, Reconciler, Request, informer::Objects, queue::Queue};
use crate::blocking;
use futures_util::{
    StreamExt,
    stream::{self, BoxStream, SelectAll},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
    runtime::events::{Recorder, Reporter},
};
use serde_json::json;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::task::{Id, JoinError, JoinSet};

/// Time to wait if there is nothing to do.
const IDLE: Duration = Duration::from_secs(3600);

/// Work in progress.
struct Loop<'a, R: Reconciler> {
    controller: &'a Controller<R>,
    clusters: &'a Clusters,
    objects: Objects<R::Object>,
    queue: Queue<Key>,
    running: JoinSet<ReconcileResult>,
    keys: Vec<(Id, Key)>,
}

/// Runs a controller for as long as the future is polled.
pub(super) async fn run<R: Reconciler>(controller: &Controller<R>, clusters: &Clusters) {
    let client = clusters.watching();
    let mut changes = Objects::<R::Object>::changes(client.clone());
    let others = controller.watches.iter().map(|watch| watch(client.clone()));
    let mut others: SelectAll<BoxStream<'static, Key>> = stream::select_all(others);
    let mut work = Loop {
        controller,
        clusters,
        objects: Objects::new(),
        queue: Queue::new(),
        running: JoinSet::new(),
        keys: Vec::new(),
    };
    tracing::info!(controller = R::NAME, "the controller runs");
    loop {
        work.start_due();
        let due = work.next();
        tokio::select! {
            Some(change) = changes.next() => match change {
                Ok(change) => work.take(change),
                 Err(error) => tracing::warn!(controller = R::NAME, %error, "the watch ended; it begins again"),
            },
            Some(key) = others.next() => work.queue.add(key, Instant::now()),
            Some(ended) = work.running.join_next_with_id() => work.end(ended),
            () = tokio::time::sleep_until(due.into()) => {}
        }
    }
}

impl<R: Reconciler> Loop<'_, R> {
    fn take(&mut self, change: kube::runtime::watcher::Event<R::Object>) {
        let now = Instant::now();
        for key in self.objects.take(change) {
            match self.objects.get(&key) {
                Some(_) => self.queue.add(key, now),
                // It has no finalizer of ours, or its cleanup is done.
                None => self.queue.forget(&key),
            }
        }
    }

    /// Starts what is due, up to the number of workers.
    fn start_due(&mut self) {
        let now = Instant::now();
        while self.queue.running() < self.controller.workers {
            let Some(key) = self.queue.pop(now) else { return };
            let Some(object) = self.objects.get(&key) else {
                self.queue.done(key, None, now);
                continue;
            };
            let client = self.clusters.client(&key.cluster);
            let reporter = Reporter {
                controller: R::NAME.to_owned(),
                instance: None,
            };
            let request = Request {
                key: key.clone(),
                object,
                recorder: Recorder::new(client.clone(), reporter),
                client,
                manager: R::NAME,
            };
            let reconciler = Arc::clone(&self.controller.reconciler);
            let task = reconcile(reconciler, request, self.controller.finalizer);
            let id = self.running.spawn(blocking::future(task)).id();
            self.keys.push((id, key));
        }
    }

    fn next(&self) -> Instant {
        let idle = Instant::now() + IDLE;
        match self.queue.running() < self.controller.workers {
            true => self.queue.next().map_or(idle, |due| due.min(idle)),
            false => idle,
        }
    }

    fn end(&mut self, ended: Result<(Id, ReconcileResult), JoinError>) {
        let (id, result) = match ended {
            Ok((id, result)) => (id, result),
            Err(error) => (error.id(), Err(error.into())),
        };
        let Some(place) = self.keys.iter().position(|(known, _)| *known == id) else {
            return;
        };
        let (_, key) = self.keys.swap_remove(place);
        let now = Instant::now();
        match result {
            Ok(action) => self.queue.done(key, action.after, now),
            Err(error) => {
                let name = key.to_string();
                let pause = self.queue.failed(key, now);
                let again = pause.as_secs_f64();
                tracing::warn!(controller = R::NAME, object = name, %error, again, "a reconciliation failed");
            }
        }
    }
}

/// Reconciles one object, with the finalizer of the controller.
async fn reconcile<R: Reconciler>(
    reconciler: Arc<R>,
    request: Request<R::Object>,
    finalizer: Option<&'static str>,
) -> ReconcileResult {
    let metadata = request.object.meta();
    let deleting = metadata.deletion_timestamp.is_some();
    let Some(finalizer) = finalizer else {
        return match deleting {
            true => Ok(Action::await_change()),
            false => reconciler.reconcile(&request).await,
        };
    };
    let held = request.object.finalizers().iter().any(|name| name == finalizer);
    match (deleting, held) {
        (false, true) => reconciler.reconcile(&request).await,
        (true, false) => Ok(Action::await_change()),
        (false, false) => {
            let finalizers = [request.object.finalizers(), &[finalizer.to_owned()]].concat();
            set_finalizers(&request, finalizers).await?;
            // The change of the object leads to the next run.
            Ok(Action::await_change())
        }
        (true, true) => {
            let action = reconciler.cleanup(&request).await?;
            let mut finalizers = request.object.finalizers().to_vec();
            finalizers.retain(|name| name != finalizer);
            set_finalizers(&request, finalizers).await?;
            Ok(action)
        }
    }
}

/// Writes the finalizers over those of the object that was seen.
async fn set_finalizers<K>(request: &Request<K>, finalizers: Vec<String>) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let api: Api<DynamicObject> = request.dynamic();
    let metadata = json!({"finalizers": finalizers, "resourceVersion": request.object.resource_version()});
    let patch = Patch::Merge(json!({"metadata": metadata}));
    match api
        .patch_metadata(&request.key.name, &PatchParams::default(), &patch)
        .await
    {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        done => done.map(drop),
    }
}
