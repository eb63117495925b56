//! APIBindRequests: gives the right to bind that was approved, once, and removes requests that
//! nobody decided on in time.
//!
//! Role, binding and the condition `Granted` are one transaction, so a right that is revoked later
//! is not given again. Admission has asked whether the approver may grant it.

use crate::{
    runtime::Reconciler,
    write::{alive, text, unchanged},
};
use insula_api::{Condition, Json, ObjectKey, ResourceId, Scope, Timestamp, Uid, set_condition};
use insula_catalog::{
    exports::{
        bind_grant,
        bind_request::{BindRequest, Decision, GRANTED},
    },
    ids,
};
use insula_registry::{Deps, Intent, Plan};
use insula_store::{Change, Entry, Snapshot};
use std::{ops::ControlFlow, sync::Arc};

/// Seconds after which a request is looked at again at the latest: a clock may be set.
const AGAIN_SECONDS_MAX: i64 = 3_600;

/// Reconciles APIBindRequests.
pub(crate) struct BindRequests {
    registry: Arc<Deps>,
}

/// World of a request that is not being deleted.
pub(crate) struct World {
    entry: Entry,
    request: Arc<BindRequest>,
    /// The export that the request is for, unless it is gone.
    export: Option<Entry>,
    /// The role and the binding of the right, each as it is wanted and as it is.
    right: [(ObjectKey, Json, Option<Entry>); 2],
    /// Guards that the workspace is not being deleted; `None` if it is.
    alive: Option<Vec<Intent>>,
    now: Timestamp,
}

impl BindRequests {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        BindRequests { registry }
    }
}

impl Reconciler for BindRequests {
    type Key = ObjectKey;
    type World = Option<World>;

    fn name(&self) -> &'static str {
        "bindrequest"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![ids::apibindrequests(), ids::apiexports()]
    }

    /// Returns the request itself, and all requests of the workspace of an export that is gone.
    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<ObjectKey> {
        if change.key.resource == ids::apibindrequests() {
            return change.new.iter().map(|_| change.key.clone()).collect();
        }
        let mut keys = Vec::new();
        if change.new.is_none() {
            let scope = Scope::cluster(ids::apibindrequests(), change.key.cluster.clone());
            snapshot.for_each(&scope, |entry| {
                keys.push(entry.key.clone());
                ControlFlow::Continue(())
            });
        }
        keys
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> Option<World> {
        let entry = snapshot.get(key).filter(|entry| !entry.object.meta.is_deleting())?;
        let request = entry.object.parsed(BindRequest::read);
        let at = |resource, name: &str| ObjectKey::cluster_scoped(resource, key.cluster.clone(), name);
        let export = snapshot.get(&at(ids::apiexports(), &request.export));
        let uid = Uid::parse(&request.export_uid);
        Some(World {
            export: export.filter(|export| !export.object.meta.is_deleting() && Some(export.object.meta.uid) == uid),
            right: request.right().map(|(resource, wanted)| {
                let key = at(resource, text(&wanted, "/metadata/name"));
                let there = snapshot.get(&key);
                (key, wanted, there)
            }),
            alive: alive(snapshot, &key.cluster),
            now: self.registry.clock.now(),
            request,
            entry,
        })
    }

    fn decide(&self, world: &Option<World>) -> Plan {
        world.as_ref().map_or_else(Plan::rest, decide)
    }
}

fn decide(world: &World) -> Plan {
    let World {
        entry,
        request,
        export,
        now,
        ..
    } = world;
    let Some(export) = export else {
        return Plan::new(vec![Intent::Delete(entry.clone())]);
    };
    if request.has_ended(*now) {
        return Plan::new(vec![Intent::Delete(entry.clone())]);
    }
    let mut value = entry.object.body_value();
    let mut intents = Vec::new();
    if let Some((decision, _)) = request.decided {
        set_condition(&mut value, &Condition::holds(decision.as_str()), *now);
        if decision == Decision::Approved && request.granted.is_none() {
            let Some(alive) = &world.alive else { return Plan::rest() };
            intents.extend(alive.iter().cloned());
            intents.push(unchanged(export.key.clone(), Some(export)));
            set_condition(&mut value, &grant(world, &mut intents), *now);
        }
    }
    intents.push(Intent::Update(entry.clone(), value));
    let left = request.end().since(*now).clamp(1, AGAIN_SECONDS_MAX);
    Plan {
        intents,
        again_after: Some(left.unsigned_abs()),
    }
}

/// Adds the creation of the role and the binding that are missing. Returns the condition `Granted`;
/// one of these names that grants something else is no reason to bind it.
fn grant(world: &World, intents: &mut Vec<Intent>) -> Condition {
    let there = world
        .right
        .iter()
        .map(|(key, wanted, entry)| (key, wanted, entry.as_ref()));
    for (_, wanted, entry) in there.clone() {
        let Some(entry) = entry else { continue };
        let value = entry.object.body_value();
        if !bind_grant::grants_the_same(&value, wanted) || entry.object.meta.is_deleting() {
            let how = "; then use `insula access grant --bind`";
            return Condition::fails(GRANTED, "NameTaken", bind_grant::other_grant(&value) + how);
        }
    }
    for (key, wanted, entry) in there {
        intents.push(match entry {
            Some(_) => unchanged(key.clone(), entry),
            None => Intent::Create(key.clone(), wanted.clone()),
        });
    }
    Condition::holds(GRANTED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestControlPlane;
    use insula_api::{ClusterPath, condition, names::api_versions};
    use insula_catalog::exports::{
        ExportName,
        bind_request::{self, Requester},
    };
    use serde_json::json;

    const RBAC: &str = "rbac.authorization.k8s.io/v1";

    /// An export of `root:org`, and a request of alice that waits for 100 seconds.
    struct Scene {
        rig: TestControlPlane,
        org: String,
        name: String,
    }

    impl Scene {
        async fn new() -> Self {
            let rig = TestControlPlane::new().await;
            let org = rig.workspace("root", "org").await;
            let export = "{apiVersion: apis.kcp.io/v1alpha2, kind: APIExport, metadata: {name: widgets}}";
            let export = rig.create(&org, "apiexports", export).await;
            let uid = Uid::parse(export["metadata"]["uid"].as_str().unwrap()).unwrap();
            let of = ExportName {
                cluster: rig.cluster(&org),
                name: "widgets".into(),
            };
            let requester = Requester {
                user: "alice".to_owned(),
                groups: vec!["shop".to_owned()],
                workspace: ClusterPath::parse("root:tenant").unwrap(),
                cluster: rig.cluster(&org),
            };
            let expires = Timestamp(rig.registry.clock.now().0 + 100);
            let (key, value) = bind_request::request((&of, &uid), &requester, "", expires);
            let plan = Plan::new(vec![Intent::Create(key.clone(), value)]);
            insula_registry::commit(&rig.registry, &plan).await.unwrap();
            rig.settle().await;
            let name = key.name.to_string();
            Scene { rig, org, name }
        }

        fn request(&self) -> Option<Json> {
            self.rig
                .get(&self.org, api_versions::REQUESTS, "apibindrequests", &self.name)
        }

        fn binding(&self) -> Option<Json> {
            let name = "insula:bind:widgets:user:alice";
            self.rig.get(&self.org, RBAC, "clusterrolebindings", name)
        }

        async fn decide(&self, decision: &str) {
            let decided = self.try_decide(json!({"decision": decision})).await;
            decided.expect("the administrator decides");
        }

        async fn try_decide(&self, spec: Json) -> Result<(), insula_catalog::Error> {
            let patch = json!({"spec": spec});
            let patched = self
                .rig
                .patch(&self.org, api_versions::REQUESTS, "apibindrequests", &self.name, patch);
            patched.await?;
            self.rig.settle().await;
            Ok(())
        }

        fn granted(&self) -> Json {
            let request = self.request().expect("is kept");
            condition(&request, GRANTED).map_or(Json::Null, |it| it["status"].clone())
        }
    }

    #[tokio::test]
    async fn an_approved_request_gives_the_right_once() {
        let scene = Scene::new().await;
        assert_eq!((scene.binding(), scene.granted()), (None, Json::Null));
        scene.decide("Approved").await;
        assert_eq!(scene.granted(), "True");
        let binding = scene.binding().expect("the right");
        assert_eq!(binding["subjects"][0]["name"], "alice");
        assert_eq!(binding["roleRef"]["name"], "insula:bind:widgets");
        // A right that is revoked is not given again.
        let deleted = scene.rig.delete(
            &scene.org,
            RBAC,
            "clusterrolebindings",
            "insula:bind:widgets:user:alice",
        );
        deleted.await.unwrap();
        scene.rig.settle().await;
        assert_eq!((scene.binding(), scene.granted()), (None, json!("True")));
    }

    #[tokio::test]
    async fn an_approval_may_name_a_group_of_the_user() {
        let scene = Scene::new().await;
        for refused in [
            json!({"decision": "Approved", "group": "platform"}),
            json!({"decision": "Denied", "group": "shop"}),
            json!({"group": "shop"}),
        ] {
            let error = scene
                .try_decide(refused.clone())
                .await
                .expect_err("no group of alice's");
            assert!(error.to_string().contains("spec.group"), "{refused}: {error}");
        }
        let approved = scene.try_decide(json!({"decision": "Approved", "group": "shop"})).await;
        approved.expect("alice is in the group");
        assert_eq!((scene.binding(), scene.granted()), (None, json!("True")));
        let of_group = "insula:bind:widgets:group:shop";
        let binding = scene.rig.get(&scene.org, RBAC, "clusterrolebindings", of_group);
        let subject = binding.expect("the right of the group")["subjects"][0].clone();
        assert_eq!((&subject["kind"], &subject["name"]), (&json!("Group"), &json!("shop")));
        let changed = scene.try_decide(json!({"group": null})).await;
        changed.expect_err("a decision is final");
    }

    #[tokio::test]
    async fn a_role_of_the_name_that_grants_more_is_not_bound() {
        let scene = Scene::new().await;
        let role = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, \
                    metadata: {name: 'insula:bind:widgets'}, \
                    rules: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]}";
        scene.rig.create(&scene.org, "clusterroles", role).await;
        scene.decide("Approved").await;
        assert_eq!((scene.binding(), scene.granted()), (None, json!("False")));
    }

    #[tokio::test]
    async fn requests_end_with_their_time_and_with_their_export() {
        let mut scene = Scene::new().await;
        scene.rig.tick(99);
        scene.rig.settle().await;
        scene.decide("Denied").await;
        scene.rig.tick(99);
        scene.rig.settle().await;
        assert!(scene.request().is_some(), "a decision is kept as long as it could wait");
        assert_eq!(scene.binding(), None);
        scene.rig.tick(2);
        scene.rig.settle().await;
        assert_eq!(scene.request(), None);

        let mut undecided = Scene::new().await;
        undecided.rig.tick(101);
        undecided.rig.settle().await;
        assert_eq!(undecided.request(), None);

        let orphan = Scene::new().await;
        let export = orphan
            .rig
            .delete(&orphan.org, "apis.kcp.io/v1alpha2", "apiexports", "widgets");
        export.await.unwrap();
        orphan.rig.settle().await;
        assert_eq!(orphan.request(), None);
    }
}
