//! PartitionSets: a Partition for each combination of label values that shards have.

use crate::{loaded::Loaded, runtime::Reconciler, write::sort_conditions};
use insula_api::{
    ClusterName, Condition, Json, LabelSelector, ObjectKey, ResourceId, Scope, SelectorError, Timestamp,
    kinds::{Partition, PartitionSet},
    names::api_versions,
    set_condition,
};
use insula_catalog::{digest, ids};
use insula_registry::{Deps, Intent, Plan};
use insula_store::{Change, Entry, Snapshot};
use serde_json::{Map, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    sync::Arc,
};

/// Maximum number of characters of a Partition's name, and the number of those that are a digest
/// if it is cut.
const NAME_MAX: usize = 63;
const DIGEST: usize = 5;

/// Reconciles PartitionSets.
pub(crate) struct PartitionSets {
    registry: Arc<Deps>,
}

/// World of a set.
pub(crate) struct World {
    set: Option<Loaded<PartitionSet>>,
    /// Partitions that the set owns, by name.
    partitions: BTreeMap<String, Loaded<Partition>>,
    shards: Vec<Entry>,
    now: Timestamp,
}

impl PartitionSets {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        PartitionSets { registry }
    }
}

impl Reconciler for PartitionSets {
    type Key = ObjectKey;
    type World = World;

    fn name(&self) -> &'static str {
        "partition"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![ids::partitionsets(), ids::partitions(), ids::shards()]
    }

    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<ObjectKey> {
        let resource = &change.key.resource;
        if *resource == ids::partitionsets() {
            return change.new.iter().map(|_| change.key.clone()).collect();
        }
        if *resource == ids::shards() {
            let mut keys = Vec::new();
            snapshot.for_each(&Scope::everywhere(ids::partitionsets()), |set| {
                keys.push(set.key.clone());
                ControlFlow::Continue(())
            });
            return keys;
        }
        // A partition that loses its owner is replaced.
        let old = change.old.iter().flat_map(|old| &old.object.meta.owner_references);
        let owners = old.filter(|owner| owner.kind == "PartitionSet");
        owners
            .map(|owner| ObjectKey::cluster_scoped(ids::partitionsets(), change.key.cluster.clone(), &owner.name))
            .collect()
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> World {
        let set = Loaded::<PartitionSet>::get(snapshot, key);
        let uid = set.as_ref().map(|set| set.entry.object.meta.uid.to_string());
        let mut partitions = BTreeMap::new();
        snapshot.for_each(&Scope::cluster(ids::partitions(), key.cluster.clone()), |entry| {
            let mut owners = entry.object.meta.owner_references.iter();
            if owners.any(|owner| Some(&owner.uid) == uid.as_ref()) {
                partitions.insert(entry.key.name.to_string(), Loaded::from_entry(entry.clone()));
            }
            ControlFlow::Continue(())
        });
        let shards = Scope::cluster(ids::shards(), ClusterName::root());
        World {
            set,
            partitions,
            shards: snapshot.range(&shards, None, usize::MAX),
            now: self.registry.clock.now(),
        }
    }

    fn decide(&self, world: &World) -> Plan {
        decide(world)
    }
}

fn decide(world: &World) -> Plan {
    let Some(set) = world.set.as_ref().filter(|set| !set.is_deleting()) else {
        return Plan::rest();
    };
    let mut value = set.value.clone();
    if !value["status"].is_object() {
        value["status"] = json!({});
    }
    let mut intents = Vec::new();
    match selector(&set.view.spec.shard_selector) {
        Err(error) => {
            let invalid = Condition::fails("PartitionSetValid", "InvalidSelector", error.to_string());
            set_condition(&mut value, &invalid, world.now);
        }
        Ok(selector) => {
            let wanted = wanted(world, set, &selector);
            value["status"]["count"] = json!(wanted.len());
            if wanted.is_empty()
                && let Some(status) = value["status"].as_object_mut()
            {
                status.remove("count");
            }
            intents = differences(world, &set.entry, &wanted);
            for condition in ["PartitionSetValid", "PartitionsReady"] {
                set_condition(&mut value, &Condition::holds(condition), world.now);
            }
        }
    }
    sort_conditions(&mut value);
    intents.push(set.update(value));
    Plan::new(intents)
}

/// Parses a selector of shards: none selects all.
///
/// # Errors
/// Fails for a malformed selector.
pub(crate) fn selector(selector: &Json) -> Result<LabelSelector, SelectorError> {
    match selector {
        Json::Null => LabelSelector::from_json(&json!({})),
        selector => LabelSelector::from_json(selector),
    }
}

/// Returns the wanted partitions by name: one for each combination of values of the dimensions
/// among the selected shards. Shards that lack one of the labels belong to none.
fn wanted(world: &World, set: &Loaded<PartitionSet>, selector: &LabelSelector) -> BTreeMap<String, Json> {
    let spec = &set.view.spec;
    let dimensions: BTreeSet<&str> = spec.dimensions.iter().map(String::as_str).collect();
    let chosen = world
        .shards
        .iter()
        .filter(|shard| selector.matches(&shard.object.meta.labels));
    let combinations: BTreeSet<Vec<&str>> = chosen
        .filter_map(|shard| dimensions.iter().map(|key| shard.object.meta.label(key)).collect())
        .collect();
    let partition = |values: Vec<&str>| {
        let mut choice = spec.shard_selector.clone();
        if !choice["matchLabels"].is_object() {
            choice["matchLabels"] = json!({});
        }
        let labels: Map<String, Json> = dimensions
            .iter()
            .zip(&values)
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        if let Some(match_labels) = choice["matchLabels"].as_object_mut() {
            match_labels.extend(labels);
        }
        (name(&set.entry.key.name, &values), choice)
    };
    combinations.into_iter().map(partition).collect()
}

fn name(set: &str, values: &[&str]) -> String {
    let whole = [&[set], values].concat().join("-").to_lowercase();
    let safe: String = whole
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' })
        .collect();
    // Two combinations may become one text.
    let digest: String = digest::base62(&values.join("/")).chars().take(8).collect();
    let digest = digest.to_lowercase();
    let name = format!("{safe}-{digest}");
    if name.len() <= NAME_MAX {
        return name;
    }
    // kcp's form of long names: their first 58 characters and five that keep them unique.
    let start: String = safe.chars().take(NAME_MAX - DIGEST).collect();
    let end: String = digest.chars().take(DIGEST).collect();
    format!("{start}{end}")
}

fn differences(world: &World, set: &Entry, wanted: &BTreeMap<String, Json>) -> Vec<Intent> {
    let mut intents = Vec::new();
    for (name, selector) in wanted {
        match world.partitions.get(name) {
            Some(partition) if partition.view.spec.selector == *selector => {}
            Some(partition) => {
                let mut value = partition.value.clone();
                value["spec"]["selector"] = selector.clone();
                intents.push(partition.update(value));
            }
            None => {
                let owner = json!({
                    "apiVersion": api_versions::TOPOLOGY, "kind": "PartitionSet", "name": &*set.key.name,
                    "uid": set.object.meta.uid.to_string(), "controller": true,
                });
                let partition = json!({
                    "apiVersion": api_versions::TOPOLOGY, "kind": "Partition",
                    "metadata": {"name": name, "ownerReferences": [owner]}, "spec": {"selector": selector},
                });
                let key = ObjectKey::cluster_scoped(ids::partitions(), set.key.cluster.clone(), name);
                intents.push(Intent::Create(key, partition));
            }
        }
    }
    let stale = world.partitions.iter().filter(|(name, _)| !wanted.contains_key(*name));
    intents.extend(stale.map(|(_, partition)| Intent::Delete(partition.entry.clone())));
    intents
}

#[cfg(test)]
mod tests {
    use crate::testing::TestControlPlane;
    use insula_api::Json;
    use serde_json::json;

    const API: &str = "topology.kcp.io/v1alpha1";

    /// Names of every length around the limit; what is cut may be shorter than the cut.
    #[test]
    fn names_have_at_most_63_characters() {
        for length in 1..120 {
            let (one, other) = (
                super::name(&"s".repeat(length), &["a"]),
                super::name(&"s".repeat(length), &["b"]),
            );
            assert!(one.len() <= super::NAME_MAX, "{length}: {one}");
            assert_ne!(one, other);
        }
    }

    #[tokio::test]
    async fn sets_have_a_partition_for_each_combination() {
        let rig = TestControlPlane::new().await;
        let org = rig.workspace("root", "org").await;
        for (name, region, kind) in [("a", "north", "fast"), ("b", "north", "slow"), ("c", "south", "fast")] {
            let shard = json!({
                "apiVersion": "core.kcp.io/v1alpha1", "kind": "Shard",
                "metadata": {"name": name, "labels": {"region": region, "kind": kind}},
                "spec": {"baseURL": "https://shard:6443"},
            });
            rig.create("root", "shards", &shard.to_string()).await;
        }
        let set = json!({
            "apiVersion": API, "kind": "PartitionSet", "metadata": {"name": "set"},
            "spec": {"dimensions": ["region"], "shardSelector": {"matchLabels": {"kind": "fast"}}},
        });
        rig.create(&org, "partitionsets", &set.to_string()).await;
        rig.settle().await;
        let count =
            |rig: &TestControlPlane| rig.get(&org, API, "partitionsets", "set").unwrap()["status"]["count"].clone();
        assert_eq!(count(&rig), 2);
        let partitions = |rig: &TestControlPlane| -> Vec<Json> {
            let keys = rig.keys(insula_catalog::ids::partitions());
            keys.iter()
                .filter_map(|key| rig.get(&org, API, "partitions", &key.name))
                .collect()
        };
        let selectors: Vec<Json> = partitions(&rig).iter().map(|p| p["spec"]["selector"].clone()).collect();
        assert_eq!(
            selectors,
            [
                json!({"matchLabels": {"kind": "fast", "region": "north"}}),
                json!({"matchLabels": {"kind": "fast", "region": "south"}}),
            ]
        );
        // Another dimension makes others, and the old ones go.
        let wider = json!({"spec": {"dimensions": ["region", "kind"], "shardSelector": null}});
        rig.patch(&org, API, "partitionsets", "set", wider).await.unwrap();
        rig.settle().await;
        assert_eq!(count(&rig), 3);
        // What somebody deletes comes back, and goes with its set.
        let one = partitions(&rig)[0]["metadata"]["name"].as_str().unwrap().to_owned();
        rig.delete(&org, API, "partitions", &one).await.unwrap();
        rig.settle().await;
        assert_eq!(partitions(&rig).len(), 3);
        rig.delete(&org, API, "partitionsets", "set").await.unwrap();
        rig.settle().await;
        assert!(partitions(&rig).is_empty());
    }
}
