//! Enforcement of ResourceQuotas at commit. The creation of an object that a quota limits updates
//! the quota's `status.used` in the same transaction, guarded by the quota's revision. Of two
//! creations that compete for the last place, one conflicts, retries and is refused. A deletion
//! frees its place when a reconciler counts again ([`recount`]), which reads keys only.
//!
//! A quota counts in its namespace or, with the annotation [`CLUSTER_SCOPED`], in the whole
//! workspace, as in kcp. A creation in a workspace without quotas costs one lookup in an empty
//! range.

use dashmap::DashMap;
use futures_util::lock::{Mutex, OwnedMutexGuard};
use insula_access::Target;
use insula_api::{ClusterName, Json, Object, ObjectKey, Resources, Scope};
use insula_catalog::{Catalog, Result, ScopeKind, Served, ids, object::rewrite};
use insula_cel::Quantity;
use insula_store::{Entry, Guard, Snapshot, Write};
use serde_json::{Map, json};
use std::{cell::LazyCell, cmp::Ordering, collections::BTreeMap, ops::ControlFlow, sync::Arc};

/// Marks a quota that counts in its whole workspace.
pub const CLUSTER_SCOPED: &str = "experimental.quota.kcp.io/cluster-scoped";

/// Maximum number of quotas that one creation charges: one transaction, which has its own limit,
/// holds them all.
const NAMESPACE_QUOTAS_MAX: usize = 64;
const WORKSPACE_QUOTAS_MAX: usize = 32;
/// Maximum number of quotas in a workspace: a creation reads each of them to find those that count
/// in the whole workspace.
const QUOTAS_MAX: usize = 5_000;

/// Resources of the core group that a quota may name without `count/`. Those of workloads are
/// served where a workspace defines or binds them.
const PLAIN: &[&str] = &[
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
];

/// A parsed ResourceQuota.
struct Quota {
    everywhere: bool,
    /// The quota selects pods, which this server does not serve.
    selective: bool,
    hard: BTreeMap<String, Quantity>,
    /// Usage in the status; empty if the limits have changed since.
    used: BTreeMap<String, i64>,
}

impl Quota {
    fn read(object: &Object) -> Self {
        let value = object.body_value();
        let amounts = |list: &Json| -> BTreeMap<String, Quantity> {
            let amounts = list.as_object().into_iter().flatten();
            amounts
                .filter_map(|(name, amount)| Some((name.clone(), Quantity::parse(amount.as_str()?).ok()?)))
                .collect()
        };
        let (spec, status) = (&value["spec"], &value["status"]);
        let used = match spec["hard"] == status["hard"] {
            true => amounts(&status["used"]),
            false => BTreeMap::new(),
        };
        let some = |field: &Json| match field {
            Json::Array(list) => !list.is_empty(),
            Json::Object(map) => !map.is_empty(),
            _ => false,
        };
        Quota {
            everywhere: value["metadata"]["annotations"][CLUSTER_SCOPED] == "true",
            selective: some(&spec["scopes"]) || some(&spec["scopeSelector"]),
            hard: amounts(&spec["hard"]),
            used: used
                .into_iter()
                .filter_map(|(name, amount)| Some((name, amount.whole()?)))
                .collect(),
        }
    }
}

/// Returns the names under which quotas may limit a resource of a cluster; empty for resources that
/// are not counted.
fn names(group: &str, plural: &str) -> Vec<String> {
    match group {
        // Kubernetes does not count events.
        "" if plural == "events" => Vec::new(),
        "" if PLAIN.contains(&plural) => vec![plural.to_owned(), format!("count/{plural}")],
        "" => vec![format!("count/{plural}")],
        _ => vec![format!("count/{plural}.{group}")],
    }
}

/// Resolves the resource that a name in a quota means.
fn counted(catalog: &Catalog, snapshot: &Snapshot, cluster: &ClusterName, name: &str) -> Option<Served> {
    let (plural, group) = match name.strip_prefix("count/") {
        Some(counted) => counted.split_once('.').unwrap_or((counted, "")),
        None => (PLAIN.iter().find(|plain| **plain == name).copied()?, ""),
    };
    let served = catalog.resolve(snapshot, cluster, group, plural)?;
    let is_counted = served.alias.is_none() && !names(group, plural).is_empty() && !served.api.strategy.traits().review;
    is_counted.then_some(served)
}

/// Calls `visit` on the quotas that count in a namespace (empty: objects of no namespace).
fn each(snapshot: &Snapshot, cluster: &ClusterName, namespace: &str, mut visit: impl FnMut(&Entry, &Quota)) {
    let scope = Scope::cluster(ids::resourcequotas(), cluster.clone());
    snapshot.for_each(&scope, |entry| {
        let quota = entry.object.parsed(Quota::read);
        if quota.everywhere || *entry.key.namespace == *namespace {
            visit(entry, &quota);
        }
        ControlFlow::Continue(())
    });
}

/// Returns the quotas that count objects of the key's resource and namespace.
pub fn concerned(snapshot: &Snapshot, key: &ObjectKey) -> Vec<ObjectKey> {
    let names = LazyCell::new(|| names(&key.resource.group, &key.resource.resource));
    let mut found = Vec::new();
    each(snapshot, &key.cluster, &key.namespace, |entry, quota| {
        if names.iter().any(|name| quota.hard.contains_key(name)) {
            found.push(entry.key.clone());
        }
    });
    found
}

/// Returns a quota's status, counted in a snapshot.
pub fn recount(catalog: &Catalog, snapshot: &Snapshot, entry: &Entry) -> Json {
    let quota = entry.object.parsed(Quota::read);
    let counts = quota.hard.keys().filter_map(|name| {
        let count = count(catalog, snapshot, entry, &quota, name)?;
        Some((name.clone(), amount(count)))
    });
    status(&entry.object.body_value(), counts.collect())
}

fn status(value: &Json, used: Map<String, Json>) -> Json {
    match value["spec"].get("hard") {
        Some(hard) => json!({"hard": hard, "used": used}),
        None => json!({}),
    }
}

fn count(catalog: &Catalog, snapshot: &Snapshot, entry: &Entry, quota: &Quota, name: &str) -> Option<i64> {
    let served = counted(catalog, snapshot, &entry.key.cluster, name)?;
    let scope = Scope {
        resources: Resources::One(served.resource_id()),
        cluster: Some(entry.key.cluster.clone()),
        namespace: (!quota.everywhere).then(|| entry.key.namespace.clone()),
    };
    let none = quota.selective || (!quota.everywhere && served.api.scope == ScopeKind::Cluster);
    Some(if none { 0 } else { snapshot.count(&scope) as i64 })
}

/// Formats a count as Go formats quantities.
fn amount(count: i64) -> Json {
    let text = count.to_string();
    json!(Quantity::parse(&text).map_or(text, |quantity| quantity.to_string()))
}

/// Returns the guards and writes that charge the limiting quotas for the creation of an object.
///
/// # Errors
/// 403 with Kubernetes' message if a quota is exceeded.
pub fn charge(
    catalog: &Catalog,
    snapshot: &Snapshot,
    target: &Target,
    name: &str,
    limiting: Vec<Entry>,
) -> Result<Vec<(Guard, Write)>> {
    let mut charged = Vec::new();
    for entry in limiting {
        let quota = entry.object.parsed(Quota::read);
        let mut value = entry.object.body_value();
        let mut used = match quota.used.is_empty() {
            // The limits changed after the last count.
            true => recount(catalog, snapshot, &entry)["used"].take(),
            false => value["status"]["used"].take(),
        };
        let mut exceeded = BTreeMap::new();
        for limited in names(&target.served.api.group, &target.served.api.names.plural) {
            let Some(hard) = quota.hard.get(&limited) else { continue };
            let known = quota.used.get(&limited).copied();
            let Some(now) = known.or_else(|| count(catalog, snapshot, &entry, &quota, &limited)) else {
                continue;
            };
            match Quantity::of_integer(now + 1).compare(hard) {
                Ordering::Greater => {
                    exceeded.insert(limited, (now, hard.to_string()));
                }
                _ => used[&limited] = amount(now + 1),
            }
        }
        if !exceeded.is_empty() {
            let why = message(&entry.key.name, &exceeded);
            return Err(target.served.api.quota_exceeded(name, why));
        }
        let Json::Object(used) = used else { continue };
        value["status"] = status(&value, used);
        let object = rewrite(&entry.object, &value)?;
        charged.push((
            Guard::At(entry.key.clone(), entry.revision),
            Write::Put(entry.key, Arc::new(object)),
        ));
    }
    Ok(charged)
}

fn message(quota: &str, exceeded: &BTreeMap<String, (i64, String)>) -> String {
    let list = |value: &dyn Fn(&(i64, String)) -> String| {
        let pairs = exceeded
            .iter()
            .map(|(name, numbers)| format!("{name}={}", value(numbers)));
        pairs.collect::<Vec<_>>().join(",")
    };
    let used = list(&|(used, _)| amount(*used).as_str().unwrap_or_default().to_owned());
    format!(
        "exceeded quota: {quota}, requested: {}, used: {used}, limited: {}",
        list(&|_| "1".to_owned()),
        list(&|(_, hard)| hard.clone()),
    )
}

/// Returns the quotas that limit a target's objects.
pub fn limiting(snapshot: &Snapshot, target: &Target) -> Vec<Entry> {
    let api = &target.served.api;
    let names = LazyCell::new(|| names(&api.group, &api.names.plural));
    let mut found = Vec::new();
    let namespace = target.namespace.as_deref().unwrap_or_default();
    each(snapshot, &target.cluster, namespace, |entry, quota| {
        if !quota.selective && names.iter().any(|name| quota.hard.contains_key(name)) {
            found.push(entry.clone());
        }
    });
    found
}

/// Returns the guard and write that a new or changed quota needs: an unchanged write of the
/// namespace (or logical cluster) that it counts in. Creations are guarded by that object, so one
/// that was decided before the quota existed conflicts and retries. The guard also serializes the
/// creation of quotas, so their number never exceeds what one creation can charge.
///
/// # Errors
/// 403 if the maximum number of quotas is reached.
pub fn announced(
    snapshot: &Snapshot,
    target: &Target,
    new: &Object,
    old: Option<&Object>,
) -> Result<Vec<(Guard, Write)>> {
    if target.served.resource_id() != ids::resourcequotas() {
        return Ok(Vec::new());
    }
    let said = |object: &Object| {
        let value = object.body_value();
        (
            value["metadata"]["annotations"][CLUSTER_SCOPED] == "true",
            value["spec"].clone(),
        )
    };
    let now = said(new);
    let before = old.map(said);
    if before.as_ref() == Some(&now) {
        return Ok(Vec::new());
    }
    if before.is_none_or(|before| before.0 != now.0) {
        check_number(snapshot, target, now.0, new)?;
    }
    let place = match (now.0, target.namespace.as_deref()) {
        (false, Some(namespace)) => ObjectKey::cluster_scoped(ids::namespaces(), target.cluster.clone(), namespace),
        _ => ids::logical_cluster(&target.cluster),
    };
    let found = snapshot.get(&place);
    let written = found.map(|entry| {
        (
            Guard::At(place.clone(), entry.revision),
            Write::Put(place, entry.object),
        )
    });
    Ok(written.into_iter().collect())
}

fn check_number(snapshot: &Snapshot, target: &Target, everywhere: bool, new: &Object) -> Result<()> {
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let mut count = 0;
    each(snapshot, &target.cluster, namespace, |_, quota| {
        count += usize::from(quota.everywhere == everywhere);
    });
    let full = match everywhere {
        true if count >= WORKSPACE_QUOTAS_MAX => Some(("workspace", count, "that count in all of it")),
        false if count >= NAMESPACE_QUOTAS_MAX => Some(("namespace", count, "that count in all of it")),
        _ => {
            let all = snapshot.count(&Scope::cluster(ids::resourcequotas(), target.cluster.clone()));
            (all >= QUOTAS_MAX).then_some(("workspace", all, "in its namespaces"))
        }
    };
    let Some((place, count, of)) = full else {
        return Ok(());
    };
    let why = format!("the {place} has {count} quotas {of}, and may have no more: put their limits into fewer");
    Err(target.served.api.forbidden(&new.meta.name, why))
}

/// Returns the scope in which creations under these quotas are serialized: a namespace, or (empty)
/// the whole workspace.
pub fn place(target: &Target, limiting: &[Entry]) -> Option<Arc<str>> {
    let everywhere = |entry: &Entry| entry.object.parsed(Quota::read).everywhere;
    let namespace = match limiting.iter().any(everywhere) {
        true => "".into(),
        false => target.namespace.clone().unwrap_or_default(),
    };
    (!limiting.is_empty()).then_some(namespace)
}

/// Locks that serialize creations under one quota or under the object limit of a workspace. Without
/// them all but one of the concurrent creations would conflict. Other creations do not wait.
#[derive(Default)]
pub struct CreateLocks(Arc<Locks>);

type LockKey = (ClusterName, Arc<str>);
type Locks = DashMap<LockKey, Arc<Mutex<()>>>;

/// A held lock. Dropping it releases the lock.
pub struct CreateLock {
    places: Arc<Locks>,
    place: LockKey,
    held: Option<OwnedMutexGuard<()>>,
}

impl CreateLocks {
    /// Waits for the lock of a namespace, or (empty) of the whole cluster.
    pub async fn take(&self, cluster: &ClusterName, namespace: Arc<str>) -> CreateLock {
        let place = (cluster.clone(), namespace);
        let lock = self.0.entry(place.clone()).or_default().clone();
        // Created before the wait, so that a cancelled creation also removes the lock.
        let mut turn = CreateLock {
            places: self.0.clone(),
            place,
            held: None,
        };
        turn.held = Some(lock.lock_owned().await);
        turn
    }
}

impl Drop for CreateLock {
    fn drop(&mut self) {
        self.held.take();
        // Each waiter holds a reference to the lock. Without any the entry is removed.
        self.places
            .remove_if(&self.place, |_, lock| Arc::strong_count(lock) == 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn a_cancelled_wait_leaves_no_lock() {
        let locks = CreateLocks::default();
        let cluster = ClusterName::parse("one").expect("a name");
        let take = || locks.take(&cluster, "default".into());
        let first = take().now_or_never().expect("nobody holds it");
        let mut second = Box::pin(take());
        assert!(second.as_mut().now_or_never().is_none(), "the first one holds it");
        // Its drop finds another waiter and keeps the entry.
        drop(first);
        drop(second);
        assert!(locks.0.is_empty());
        let third = take().now_or_never().expect("nobody holds it");
        assert_eq!(locks.0.len(), 1);
        drop(third);
        assert!(locks.0.is_empty());
    }
}
