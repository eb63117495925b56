//! Decision about one resource: the next batch, the end of the migration, or the obstacle to it.

use super::{
    request,
    world::{Owner, Ready, Resource, World},
};
use crate::write::sort_conditions;
use insula_api::{Condition, set_condition};
use insula_registry::{Intent, Plan};

/// Seconds in which the resource of a request may still appear.
const PATIENCE_SECONDS: i64 = 60;
/// Seconds until objects that could not be written are tried again.
const AGAIN_SECONDS: u64 = 60;
/// Seconds until a bundle may have followed its definition.
const FOLLOWS_SECONDS: u64 = 1;
/// On definitions as in Kubernetes, and on bindings.
const MIGRATING: &str = "StorageMigrating";

pub(super) fn decide(world: &World) -> Plan {
    match &world.resource {
        Resource::AtRest => Plan::rest(),
        Resource::Ready(ready) => step(world, ready),
        Resource::Changing => wait(world, 1),
        Resource::Following => Plan {
            intents: Vec::new(),
            again_after: Some(FOLLOWS_SECONDS),
        },
        Resource::Unknown => unknown(world),
    }
}

/// Waits for a request that cannot be served yet. Automatic migrations wait for a change of the
/// owner.
fn wait(world: &World, seconds: u64) -> Plan {
    Plan {
        intents: Vec::new(),
        again_after: world.request.is_some().then_some(seconds),
    }
}

fn unknown(world: &World) -> Plan {
    let Some((entry, value)) = &world.request else {
        return Plan::rest();
    };
    let since = entry.object.meta.creation_timestamp;
    let waited = since.map_or(PATIENCE_SECONDS, |since| world.now.since(since));
    if waited < PATIENCE_SECONDS {
        return wait(world, (PATIENCE_SECONDS - waited).clamp(1, 5) as u64);
    }
    Plan {
        intents: vec![Intent::Update(
            entry.clone(),
            request::fail(value, "resource not found", world.now),
        )],
        again_after: None,
    }
}

fn step(world: &World, ready: &Ready) -> Plan {
    let scan = &ready.scan;
    let mut intents: Vec<Intent> = ready.guard.iter().cloned().collect();
    for (entry, object) in &scan.batch {
        intents.push(Intent::Rewrite(entry.clone(), object.clone()));
    }
    intents.extend(scan.events.iter().cloned());
    if let Some((entry, value)) = &world.request {
        let value = match scan.is_over() {
            false => request::run(value, &progress(ready), world.revision, world.now),
            true if scan.is_done() => request::succeed(value, world.revision, world.now),
            true => request::fail(value, &stuck(ready), world.now),
        };
        intents.push(Intent::Update(entry.clone(), value));
    }
    intents.extend(ready.owner.as_ref().map(|owner| show(world, ready, owner)));
    let again_after = match (scan.is_over(), scan.is_done()) {
        (true, true) => None,
        (true, false) => Some(AGAIN_SECONDS),
        // An empty batch means that the rate limit of this second is used up.
        (false, _) => Some(u64::from(scan.batch.is_empty())),
    };
    Plan { intents, again_after }
}

fn stuck(ready: &Ready) -> String {
    let scan = &ready.scan;
    format!(
        "{} of {} objects cannot be stored in {}, e.g.: {}",
        scan.stuck, scan.total, ready.storage, scan.why
    )
}

/// Returns the share of the objects that are done, in steps of ten percent, so that watches do not
/// get every batch.
fn progress(ready: &Ready) -> String {
    let scan = &ready.scan;
    let percent = scan.written() * 10 / scan.total.max(1) * 10;
    format!("{percent}% of {} objects are stored in {}", scan.total, ready.storage)
}

/// Writes the progress into the owner; at the end, the one version that is left.
fn show(world: &World, ready: &Ready, owner: &Owner) -> Intent {
    let (entry, old) = match owner {
        Owner::Binding(entry, value) | Owner::Definition(entry, value) => (entry, value),
    };
    let mut value = old.clone();
    let scan = &ready.scan;
    let ends = |reason: &str, message: String| {
        Condition::fails(MIGRATING, reason, message).severity(match (owner, scan.is_done()) {
            (Owner::Definition(..), _) => "",
            (Owner::Binding(..), true) => "Info",
            (Owner::Binding(..), false) => "Error",
        })
    };
    let shown = if scan.is_done() {
        let message = "The migration has succeeded and the stored versions have been updated";
        owner.show_stored(&mut value, &world.key, &ready.storage);
        ends("MigrationSucceeded", message.to_owned())
    } else if scan.is_over() {
        ends("MigrationFailed", stuck(ready))
    } else {
        Condition::holds(MIGRATING).because("MigrationRunning", progress(ready))
    };
    set_condition(&mut value, &shown, world.now);
    if matches!(owner, Owner::Binding(..)) {
        sort_conditions(&mut value);
    }
    Intent::Update(entry.clone(), value)
}
