//! Informers: watches of the reconciler's kind, whose objects are kept, and of other kinds, which
//! only name keys.

use super::Key;
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use kube::{
    Api, Client,
    api::ObjectMeta,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use std::{
    collections::{HashMap, HashSet},
    fmt::Debug,
    sync::Arc,
};

/// Annotation with the logical cluster of an object.
const CLUSTER: &str = "kcp.io/cluster";

/// A watch of another kind: keys to reconcile.
pub(super) type Watch = Box<dyn Fn(Client) -> BoxStream<'static, Key> + Send + Sync>;

/// Returns the key of an object.
pub(super) fn key_of(metadata: &ObjectMeta) -> Key {
    Key {
        cluster: cluster_of(metadata),
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}

fn cluster_of(metadata: &ObjectMeta) -> String {
    let annotation = metadata.annotations.as_ref().and_then(|all| all.get(CLUSTER));
    annotation.cloned().unwrap_or_default()
}

/// Watches a kind whose objects belong to those of `K`.
pub(super) fn owned<K, O>() -> Watch
where
    K: kube::Resource<DynamicType = ()>,
    O: kube::Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static,
{
    mapped::<O>(|metadata| {
        let own = |version: &str| version.split('/').next() == Some(&*K::group(&()));
        let owners = metadata.owner_references.iter().flatten();
        let owners = owners.filter(|owner| owner.kind == K::kind(&()) && own(&owner.api_version));
        owners
            .map(|owner| (metadata.namespace.clone(), owner.name.clone()))
            .collect()
    })
}

/// Watches a kind whose objects name those to reconcile.
pub(super) fn mapped<O>(names: impl Fn(&ObjectMeta) -> Vec<(Option<String>, String)> + Send + Sync + 'static) -> Watch
where
    O: kube::Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static,
{
    let names = Arc::new(names);
    Box::new(move |client| {
        let names = Arc::clone(&names);
        let api: Api<PartialObjectMeta<O>> = Api::all(client);
        let changes = watcher(api, watcher::Config::default()).default_backoff();
        let keys = changes.filter_map(move |change| {
            let keys = match change {
                Ok(Event::Apply(object) | Event::InitApply(object) | Event::Delete(object)) => {
                    keys_of(&*names, &object.metadata)
                }
                Ok(Event::Init | Event::InitDone) => Vec::new(),
                Err(error) => {
                    tracing::warn!(kind = %O::kind(&()), %error, "a watch ended; it begins again");
                    Vec::new()
                }
            };
            async move { Some(stream::iter(keys)) }
        });
        keys.flatten().boxed()
    })
}

fn keys_of(names: impl Fn(&ObjectMeta) -> Vec<(Option<String>, String)>, metadata: &ObjectMeta) -> Vec<Key> {
    let cluster = cluster_of(metadata);
    let key = |(namespace, name)| Key {
        cluster: cluster.clone(),
        namespace,
        name,
    };
    names(metadata).into_iter().map(key).collect()
}

/// Objects of the reconciler's kind, as a watch shows them.
pub(super) struct Objects<K> {
    objects: HashMap<Key, Arc<K>>,
    /// Keys that a list has shown so far.
    listed: Option<HashSet<Key>>,
}

impl<K> Objects<K>
where
    K: kube::Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static,
{
    pub(super) fn new() -> Self {
        Self {
            objects: HashMap::new(),
            listed: None,
        }
    }

    /// Returns the changes of all objects that a client sees.
    pub(super) fn changes(client: Client) -> BoxStream<'static, Result<Event<K>, watcher::Error>> {
        let api: Api<K> = Api::all(client);
        watcher(api, watcher::Config::default()).default_backoff().boxed()
    }

    pub(super) fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.objects.get(key).cloned()
    }

    /// Takes a change. Returns the keys that it is about.
    pub(super) fn take(&mut self, change: Event<K>) -> Vec<Key> {
        match change {
            Event::Init => {
                self.listed = Some(HashSet::new());
                Vec::new()
            }
            Event::InitApply(object) | Event::Apply(object) => {
                let key = key_of(object.meta());
                if let Some(listed) = &mut self.listed {
                    listed.insert(key.clone());
                }
                self.objects.insert(key.clone(), Arc::new(object));
                vec![key]
            }
            Event::Delete(object) => {
                let key = key_of(object.meta());
                self.objects.remove(&key);
                vec![key]
            }
            Event::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                let gone: Vec<Key> = self
                    .objects
                    .keys()
                    .filter(|key| !listed.contains(*key))
                    .cloned()
                    .collect();
                for key in &gone {
                    self.objects.remove(key);
                }
                gone
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    fn map(cluster: &str, name: &str) -> ConfigMap {
        let metadata = json!({"name": name, "namespace": "default", "annotations": {CLUSTER: cluster}});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    #[test]
    fn objects_of_two_workspaces_are_two() {
        let mut objects = Objects::new();
        let keys = [
            objects.take(Event::Apply(map("one", "a"))),
            objects.take(Event::Apply(map("two", "a"))),
        ];
        assert_eq!(
            keys.concat().iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["one/default/a", "two/default/a"]
        );
        assert!(objects.get(&keys[0][0]).is_some() && objects.get(&keys[1][0]).is_some());
    }

    #[test]
    fn a_list_forgets_what_it_does_not_show() {
        let mut objects = Objects::new();
        let gone = objects.take(Event::Apply(map("one", "a")));
        objects.take(Event::Init);
        objects.take(Event::InitApply(map("one", "b")));
        assert_eq!(objects.take(Event::InitDone), gone);
        assert!(objects.get(&gone[0]).is_none());
    }
}
