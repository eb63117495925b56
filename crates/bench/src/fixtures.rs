//! Fixtures of the benchmarks: one kind of object of about 2 kB, in two versions that differ in a
//! chosen number of fields.

use insula_access::Target;
use insula_api::{Clock, ClusterName, FieldPath, Json, Object, ObjectKey, Rng, Timestamp};
use insula_catalog::{Api, Origin, Served, ids};
use insula_conversion::{Bundle, LossPolicy, VersionSchema, parse_rules};
use insula_meter::Meter;
use insula_registry::Deps;
use insula_schema::Structural;
use insula_store::{Guard, Store, Txn, Write};
use serde_json::{Map, json};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// API group of the benchmarks' kind.
pub const GROUP: &str = "bench.example.io";
/// Its plural.
pub const PLURAL: &str = "widgets";
/// Fields in `spec` that make 2 kB: about as many to the byte as in kcp's own load test (160 leaves
/// in 6 kB).
const FIELDS: usize = 64;
const SPEC_BYTES: usize = 1_900;
/// Default number of fields that are renamed in `v2`, one of them by CEL.
pub const MOVES: usize = 10;

/// Returns the name of field `i` in a version in which the first `moved` fields are renamed.
fn field(i: usize, moved: usize) -> String {
    if i < moved {
        format!("g{i:03}")
    } else {
        format!("f{i:03}")
    }
}

/// Returns the number of fields of an object with `moved` renamed ones.
fn fields(moved: usize) -> usize {
    FIELDS.max(moved)
}

/// Returns an object of 2 kB. `moved` fields are renamed in `v2`, by one rule each; with more than
/// 64 the fields are smaller.
pub fn widget(name: &str, version: &str, moved: usize) -> Json {
    let names = if version == "v1" { 0 } else { moved };
    // Names, quotes and punctuation take ten bytes of a field, its number six.
    let padding = "x".repeat(SPEC_BYTES / fields(moved) - 16);
    let spec: Map<String, Json> = (0..fields(moved))
        .map(|i| {
            let text = format!("v{i:05}{padding}");
            // The first rule may compute: upper case in `v2`.
            let text = if i == 0 && names > 0 { text.to_uppercase() } else { text };
            (field(i, names), json!(text))
        })
        .collect();
    json!({"apiVersion": format!("{GROUP}/{version}"), "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

/// Returns the schema of a version of the kind.
pub fn widget_schema(version: &str, moved: usize) -> Json {
    let names = if version == "v1" { 0 } else { moved };
    let fields: Map<String, Json> = (0..fields(moved))
        .map(|i| (field(i, names), json!({"type": "string", "maxLength": 63})))
        .collect();
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}})
}

/// Returns rules between `v1` and a `v2` with `moved` renamed fields: moves, the first one through
/// CEL if `computed`.
pub fn rules(moved: usize, computed: bool) -> Json {
    let side = |from: usize, to: usize, function: &str| -> Vec<Json> {
        (0..moved)
            .map(|i| {
                let mut rule = json!({
                    "field": format!(".spec.{}", field(i, from)), "destination": format!(".spec.{}", field(i, to)),
                });
                if i == 0 && computed {
                    rule["transformation"] = json!(format!("self.{function}()"));
                }
                rule
            })
            .collect()
    };
    json!({"hub": "v1", "conversions": [
        {"from": "v1", "to": "v2", "rules": side(0, moved, "upperAscii")},
        {"from": "v2", "to": "v1", "rules": side(moved, 0, "lowerAscii")},
    ]})
}

/// Returns a conversion between `v1` (stored) and `v2` by `moved` pure moves; with none the
/// versions have one shape.
pub fn bundle(moved: usize) -> Bundle {
    let version = |name: &str| VersionSchema {
        name: name.to_owned(),
        served: true,
        schema: Arc::new(
            Structural::parse_trusted(&widget_schema(name, moved)).expect("the fixture's schema is valid"),
        ),
    };
    let at = FieldPath::new("spec");
    let rules = parse_rules(&rules(moved, false), &at).expect("the fixture's rules parse");
    let rules = (moved > 0).then_some(&rules);
    let versions = vec![version("v1"), version("v2")];
    Bundle::compile(GROUP, versions, "v1", rules, LossPolicy::Lossless, &at).expect("the fixture's rules compile")
}

/// Returns a schema with 64 leaves of all usual kinds, and an object that fills half of them.
pub fn sixty_four_leaves() -> (Json, Json) {
    let (mut groups, mut values) = (Map::new(), Map::new());
    for group in 0..8 {
        groups.insert(
            format!("group{group}"),
            json!({"type": "object", "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-z0-9-]+$"},
            "mode": {"type": "string", "enum": ["Fast", "Safe", "Off"], "default": "Safe"},
            "replicas": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 100, "default": 1},
            "weight": {"type": "number", "exclusiveMinimum": true, "minimum": 0},
            "enabled": {"type": "boolean", "default": true},
            "since": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "maxItems": 16, "items": {"type": "string"}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        }, "required": ["name"]}),
        );
        values.insert(
            format!("group{group}"),
            json!({
                "name": format!("name-{group}"), "weight": 1.5, "since": "2026-11-21T09:40:00Z",
                "tags": ["a", "b"], "labels": {"team": "blue"}, "unknown": {"goes": "away"},
            }),
        );
    }
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": groups}}});
    let object =
        json!({"apiVersion": "bench.example.io/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": values});
    (schema, object)
}

/// A clock that stands still.
#[derive(Debug)]
pub struct StillClock;

impl Clock for StillClock {
    fn now(&self) -> Timestamp {
        Timestamp(1_795_000_000)
    }
}

/// Randomness that counts: different numbers for each call, the same in every run.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Rng for Counter {
    fn fill(&self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            let n = self
                .0
                .fetch_add(1, Ordering::Relaxed)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15);
            chunk.copy_from_slice(&n.to_le_bytes()[..chunk.len()]);
        }
    }
}

/// A tenant with the benchmarks' kind bound, over a store.
pub struct Tenant {
    /// The registry.
    pub registry: Deps,
    cluster: ClusterName,
    api: Arc<Api>,
}

impl Tenant {
    /// Creates the LogicalCluster of the tenant and compiles the kind with [`MOVES`] rules, one of
    /// them CEL.
    pub async fn new(store: Arc<dyn Store>) -> Tenant {
        let url = "https://127.0.0.1:6443".to_owned();
        let registry = Deps::new(store, Arc::new(StillClock), Arc::new(Counter::default()), url);
        let cluster = ClusterName::parse("2xj8k1p0q9z7w3ab").expect("a cluster name");
        let logical = json!({
            "apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster", "metadata": {"name": "cluster"},
            "status": {"phase": "Ready"},
        });
        let key = ids::logical_cluster(&cluster);
        put(&*registry.store, key, &logical).await;
        let names = json!({"plural": PLURAL, "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
        let version = |name: &str| {
            let schema = json!({"openAPIV3Schema": widget_schema(name, MOVES)});
            json!({"name": name, "served": true, "storage": name == "v1", "schema": schema})
        };
        let bundle = json!({"kind": "Bundle", "rules": rules(MOVES, true), "spec": {
            "group": GROUP, "scope": "Cluster", "names": names, "versions": [version("v1"), version("v2")],
        }});
        let api = registry
            .catalog
            .compile(&bundle)
            .expect("the fixture's bundle compiles");
        Tenant { registry, cluster, api }
    }

    /// Returns the kind in a version.
    pub fn target(&self, version: &str) -> Target {
        let served = Served {
            api: self.api.clone(),
            identity: "0123456789abcdef".into(),
            origin: Origin::Bound {
                binding: "widgets".into(),
            },
            terminating: false,
            alias: None,
            guard: None,
            route: None,
            pending_calls: None,
            meter: Meter::unbounded(),
        };
        Target::for_the_server(self.cluster.clone(), served, version.into())
    }
}

/// Writes an object to the store without its strategy.
pub async fn put(store: &dyn Store, key: ObjectKey, value: &Json) {
    let object = Arc::new(Object::new(value, None).expect("the fixture is an object"));
    store
        .commit(Txn::one(Guard::Absent(key.clone()), Write::Put(key, object)))
        .await
        .expect("the fixture is written");
}

#[cfg(test)]
mod tests {
    use super::*;
    use insula_conversion::{Stored, unmetered_budget};

    #[test]
    fn the_two_versions_are_of_one_size_and_convert_into_each_other() {
        for moved in [0, 1, 10, 100] {
            let (v1, v2) = (widget("a", "v1", moved), widget("a", "v2", moved));
            let bytes = v1.to_string().len();
            assert!((1_900..2_200).contains(&bytes), "{bytes}");
            assert_eq!(v2.to_string().len(), bytes);
            let bundle = bundle(moved);
            let stored = Stored {
                value: &v1,
                version: "v1",
                residual: None,
            };
            let seen = bundle.get(stored, "v2", &mut unmetered_budget()).expect("converts");
            let back = bundle
                .put(&seen, "v2", Some(stored), &mut unmetered_budget())
                .expect("converts");
            assert_eq!(back.value, v1, "{moved} moves");
            assert_eq!(bundle.is_identity("v1", "v2"), moved == 0);
        }
    }
}
