//! Decision about the usage of one export.

use super::world::{ExportWorld, Offered, World};
use insula_api::{
    ClusterName, Json, Timestamp,
    kinds::{RETIREMENT_DAYS, VersionUsage},
};
use insula_catalog::ids;
use insula_registry::{Intent, Plan};
use serde_json::json;

/// Seconds of a day.
const DAY_SECONDS: i64 = 86_400;
/// Seconds until tenants are counted again: their last use gets older without a change.
const AGAIN_SECONDS: u64 = 3_600;
/// Least difference of two times of last use, in seconds: the status changes at most this often.
const RESOLUTION_SECONDS: i64 = 3_600;

pub(super) fn decide(world: &World) -> Plan {
    match world {
        World::Rest => Plan::rest(),
        World::Orphan(orphan) => {
            let (record, route) = &**orphan;
            Plan::new(vec![
                Intent::Delete(record.clone()),
                Intent::Expect(route.clone(), None),
            ])
        }
        World::Export(world) => summarize(world),
    }
}

fn summarize(world: &ExportWorld) -> Plan {
    let mut value = world.export.value.clone();
    if !value["status"].is_object() {
        value["status"] = json!({});
    }
    let usage: Vec<Json> = world.offered.iter().map(|offered| usage_of(world, offered)).collect();
    value["status"]["usage"] = Json::Array(usage);
    if world.export.view.status.usage_since.is_empty() {
        // Requests are counted before the first summary.
        let first = world.uses.values().flatten().min().copied();
        let since = first.map_or(world.now, |first| first.min(world.now));
        value["status"]["usageSince"] = json!(since.to_string());
    }
    Plan {
        intents: vec![world.export.update(value)],
        again_after: Some(AGAIN_SECONDS),
    }
}

/// Returns the entry of one version in the status.
fn usage_of(world: &ExportWorld, offered: &Offered) -> Json {
    let Offered {
        group,
        resource,
        version,
    } = offered;
    let route = ids::resource_route(&ClusterName::root(), group, resource).name;
    let uses = world.uses.get(&(route.to_string(), version.clone()));
    let uses = uses.map_or(&[][..], Vec::as_slice);
    // Without protection the count still covers a time.
    let days = match world.export.view.spec.retirement_days() {
        0 => RETIREMENT_DAYS,
        days => days,
    };
    let is_recent = |at: &&Timestamp| world.now.since(**at) < i64::from(days) * DAY_SECONDS;
    let tenants = uses.iter().filter(is_recent).count();
    let mut usage = json!({"group": group, "resource": resource, "version": version, "tenants": tenants});
    if let Some(last) = uses.iter().max() {
        let shown = shown(world, offered).filter(|known| last.since(*known) < RESOLUTION_SECONDS);
        usage["lastUsed"] = json!(shown.unwrap_or(*last).to_string());
    }
    usage
}

/// Returns the time of the last use that the status shows now.
fn shown(world: &ExportWorld, offered: &Offered) -> Option<Timestamp> {
    let is_it = |known: &&VersionUsage| {
        known.group == offered.group && known.resource == offered.resource && known.version == offered.version
    };
    let known = world.export.view.status.usage.iter().find(is_it)?;
    Timestamp::parse(&known.last_used)
}
