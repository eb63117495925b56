//! Decision about the status of a rollout.

use super::World;
use crate::{
    rollout::{self, Hold},
    rollout_steps,
    write::sort_conditions,
};
use insula_api::{
    Json, Timestamp,
    kinds::{ApiExportRollout, RolloutState},
};
use insula_catalog::exports::history_value;
use insula_registry::Plan;
use serde_json::json;

/// State of a rollout, as its status says it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Standing {
    /// Reason, one word.
    reason: &'static str,
    /// Message for people; empty for a rollout that is complete.
    message: String,
}

pub(super) fn decide(world: &World) -> Plan {
    let Some(export) = world.export.as_ref().filter(|export| !export.is_deleting()) else {
        return Plan::rest();
    };
    if world.later.is_some() {
        return Plan {
            intents: Vec::new(),
            again_after: world.later,
        };
    }
    let rollout = &export.view.spec.rollout;
    let known = &export.view.status.rollout;
    let mut value = export.value.clone();
    if !value["status"].is_object() {
        value["status"] = json!({});
    }
    let (state, again_after) = advance(rollout, known, world);
    let standing = standing(world, rollout, &state);
    let mut status = json!({
        "release": world.release.id,
        "observed": world.release.observed,
        "reason": standing.reason,
        "bindings": world.bindings, "current": world.current, "held": world.held,
    });
    if !standing.message.is_empty() {
        status["message"] = json!(standing.message);
    }
    if world.unbound > 0 {
        status["unbound"] = json!(world.unbound);
    }
    if rollout.paused {
        status["paused"] = json!(true);
    }
    // Writes that end a release add it (`insula_registry`).
    if !known.history.is_empty() {
        status["history"] = history_value(&known.history);
    }
    let named = world.named.iter();
    let named =
        named.map(|held| json!({"workspace": held.workspace.as_str(), "name": held.name, "message": held.message}));
    let named: Vec<Json> = named.collect();
    if !named.is_empty() {
        status["heldBindings"] = json!(named);
    }
    let waiting: usize = world.pending.iter().sum();
    if waiting > 0 || !rollout.steps.is_empty() {
        status["waiting"] = json!(waiting);
    }
    if !rollout.steps.is_empty() {
        status["steps"] = json!(rollout.steps.len() + 1);
        status["step"] = json!(state.step);
        if !state.step_done_time.is_empty() {
            status["stepDoneTime"] = json!(state.step_done_time);
        }
    }
    value["status"]["rollout"] = status;
    if !rollout.is_all_or_nothing() {
        let is_asked_for = *rollout != ApiExportRollout::default();
        if world.held > 0 || is_asked_for || rollout::has_rolled_out(&value) {
            rollout::show_rolled_out(&mut value, hold(world, &standing), world.now);
        }
    }
    sort_conditions(&mut value);
    let intents = match value == export.value {
        true => Vec::new(),
        false => vec![export.update(value)],
    };
    Plan { intents, again_after }
}

/// Returns what the condition says of a rollout that is not complete.
fn hold(world: &World, standing: &Standing) -> Option<Hold> {
    let message = standing.message.clone();
    match standing.reason {
        "Complete" => None,
        "Held" | "TooManyHeld" => Some(Hold::of_objects(message)),
        _ if world.held > 0 => Some(Hold::of_objects(message)),
        reason => Some(Hold { reason, message }),
    }
}

/// Returns the state of a rollout in steps, and the seconds until it may go on by itself. A step
/// ends when each of its bindings has moved or stays; its pause begins then, unless more of them
/// stay than may.
fn advance(rollout: &ApiExportRollout, known: &RolloutState, world: &World) -> (RolloutState, Option<u64>) {
    let mut state = RolloutState {
        release: world.release.id.clone(),
        step: 1,
        ..RolloutState::default()
    };
    if known.release == world.release.id {
        state = known.clone();
    }
    let last = rollout.steps.len() + 1;
    state.step = state.step.clamp(1, last);
    if rollout_steps::is_at_once(rollout, &state.release) {
        state.step = last;
    }
    loop {
        let is_done = world.pending[..state.step].iter().all(|pending| *pending == 0);
        if !is_done {
            state.step_done_time.clear();
            return (state, None);
        }
        let done = Timestamp::parse(&state.step_done_time).unwrap_or(world.now);
        state.step_done_time = done.to_string();
        if state.step == last || rollout.paused || stops(world, rollout) {
            return (state, None);
        }
        let left = rollout.steps[state.step - 1].pause_seconds - world.now.since(done);
        if left > 0 {
            return (state, u64::try_from(left).ok());
        }
        state.step += 1;
        state.step_done_time.clear();
    }
}

/// Returns true if more bindings stay than may, and nobody said to go on with this release.
fn stops(world: &World, rollout: &ApiExportRollout) -> bool {
    let is_accepted = !rollout.with_held.is_empty() && rollout.with_held == world.release.id;
    world.held > held_max(rollout, world.bindings) && !is_accepted
}

/// Returns the reason and the message of a rollout.
fn standing(world: &World, rollout: &ApiExportRollout, state: &RolloutState) -> Standing {
    let says = |reason, message: String| Standing { reason, message };
    let waiting: usize = world.pending.iter().sum();
    if let Some(schema) = world.release.broken.first() {
        return says(
            "SchemaInvalid",
            format!("APIResourceSchema {schema:?} does not exist, or does not compile with its rules"),
        );
    }
    let last = rollout.steps.len() + 1;
    let step_is_done = world.pending[..state.step].iter().all(|pending| *pending == 0);
    let is_stopped = step_is_done && state.step < last && stops(world, rollout);
    if is_stopped {
        return says("TooManyHeld", stopped(world, rollout, state.step));
    }
    if waiting > 0 && rollout.paused {
        return says(
            "Paused",
            format!("paused: {waiting} of {} bindings wait", world.bindings),
        );
    }
    match (waiting, those_that_stay(world)) {
        (0, None) => says("Complete", String::new()),
        (0, Some(held)) => says("Held", held),
        (waiting, held) => {
            let counts = format!("{waiting} of {} bindings have not taken it over yet", world.bindings);
            says(
                "Progressing",
                held.map_or(counts.clone(), |held| format!("{counts}; {held}")),
            )
        }
    }
}

/// Returns the message about bindings that stay, if there are any.
fn those_that_stay(world: &World) -> Option<String> {
    let first = world.named.first()?;
    Some(format!(
        "{} of {} bindings stay on the previous generation, e.g. {} in {}: {}",
        world.held, world.bindings, first.name, first.workspace, first.message
    ))
}

/// Returns the message of a rollout that has stopped after a step: the tenant, the object, the
/// rule, and the ways on.
fn stopped(world: &World, rollout: &ApiExportRollout, step: usize) -> String {
    let (steps, release) = (rollout.steps.len() + 1, &world.release.id);
    let name = world.export.as_ref().map_or("", |export| &*export.entry.key.name);
    let allowed = held_max(rollout, world.bindings);
    let held = those_that_stay(world).unwrap_or_default();
    format!(
        "stopped after step {step} of {steps}, because more than {allowed} bindings stay (spec.rollout.maxHeld): \
         {held}; correct the objects or publish a release that fits them, or go on without them: insula export \
         resume {name} --with-held (spec.rollout.withHeld: {release})"
    )
}

/// Returns the number of bindings that may stay before a step stops the rollout.
pub(super) fn held_max(rollout: &ApiExportRollout, bindings: usize) -> usize {
    rollout.max_held.map(|max| max.allowed(bindings)).unwrap_or_default()
}
