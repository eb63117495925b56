//! Expiry of Events: deletes those whose last write is older than the configured lifetime, of all
//! workspaces together and at most once a minute, so that no event needs a timer.

use crate::runtime::Reconciler;
use insula_api::{Object, ResourceId, Scope, Timestamp};
use insula_catalog::ids;
use insula_registry::{Deps, Intent, Plan};
use insula_store::{Change, Entry, Snapshot};
use std::{ops::ControlFlow, sync::Arc};

/// Seconds between two walks: an event may outlive its lifetime by that.
const PERIOD_SECONDS: u64 = 60;
/// Events deleted in one transaction; a store takes 128 operations.
const BATCH: usize = 100;

/// Deletes expired events.
pub(crate) struct Events {
    registry: Arc<Deps>,
}

/// World: the result of one walk.
pub(crate) struct World {
    /// Expired events, at most [`BATCH`].
    expired: Vec<Entry>,
    /// Other events exist.
    others: bool,
}

impl Events {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        Events { registry }
    }
}

/// Returns the time of the last write of an event, from its managed fields. Clients may edit these,
/// so it is never later than `now`.
fn written(object: &Object, now: Timestamp) -> Timestamp {
    let created = object.meta.creation_timestamp.unwrap_or(Timestamp(0));
    let noted = object.parsed(|object| {
        let value = object.body_value();
        let managers = value["metadata"]["managedFields"].as_array().into_iter().flatten();
        let times = managers.filter_map(|manager| Timestamp::parse(manager["time"].as_str()?));
        times.map(|time| time.0).max().unwrap_or_default()
    });
    Timestamp(created.0.max(*noted).min(now.0))
}

impl Reconciler for Events {
    /// All events are reconciled together.
    type Key = ();
    type World = World;

    fn name(&self) -> &'static str {
        "event"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![ids::events()]
    }

    fn keys(&self, change: &Change, _snapshot: &Snapshot) -> Vec<()> {
        match (&change.new, self.registry.event_ttl_seconds) {
            (Some(_), 1..) => vec![()],
            _ => Vec::new(),
        }
    }

    fn settle(&self) -> u64 {
        PERIOD_SECONDS
    }

    fn observe(&self, (): &(), snapshot: &Snapshot) -> World {
        let (now, ttl) = (self.registry.clock.now(), self.registry.event_ttl_seconds as i64);
        let mut world = World {
            expired: Vec::new(),
            others: false,
        };
        snapshot.for_each(&Scope::everywhere(ids::events()), |entry| {
            let object = &entry.object;
            let created = object.meta.creation_timestamp.unwrap_or(Timestamp(0));
            // The time of creation is decoded already, and decides for most events.
            let is_over = now.since(created) > ttl && now.since(written(object, now)) > ttl;
            match is_over && object.meta.finalizers.is_empty() {
                true if world.expired.len() == BATCH => return ControlFlow::Break(()),
                true => world.expired.push(entry.clone()),
                false => world.others = true,
            }
            ControlFlow::Continue(())
        });
        world
    }

    fn decide(&self, world: &World) -> Plan {
        let again_after = match (world.expired.len() == BATCH, world.others) {
            (true, _) => Some(0),
            (false, true) => Some(PERIOD_SECONDS),
            (false, false) => None,
        };
        Plan {
            intents: world.expired.iter().cloned().map(Intent::Delete).collect(),
            again_after,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestControlPlane, pass};
    use serde_json::json;

    #[tokio::test]
    async fn events_go_an_hour_after_they_were_written_last() {
        let mut rig = TestControlPlane::new().await;
        let org = rig.workspace("root", "org").await;
        let look = |rig: &TestControlPlane| Events::new(rig.registry.clone());
        for i in 0..BATCH + 50 {
            let event = format!(
                "{{apiVersion: v1, kind: Event, metadata: {{name: e{i}, namespace: default}}, \
                 involvedObject: {{namespace: default}}}}"
            );
            rig.create(&org, "events", &event).await;
        }
        rig.tick(3000);
        rig.patch(&org, "v1", "events", "default/e7", json!({"count": 2}))
            .await
            .expect("is written");
        assert_eq!(pass(&rig.registry, &look(&rig)).await, 0, "it is early");
        rig.tick(1000);
        while pass(&rig.registry, &look(&rig)).await > 0 {}
        assert!(
            rig.get(&org, "v1", "events", "default/e7").is_some(),
            "it was written since"
        );
        assert!(rig.get(&org, "v1", "events", "default/e8").is_none());
        rig.tick(3000);
        pass(&rig.registry, &look(&rig)).await;
        assert!(rig.get(&org, "v1", "events", "default/e7").is_none());
    }
}
