//! Faults of the modelled etcd, of the ways to it, and of the servers on it.

use crate::{
    Settings,
    etcd::{wire::Losses, world::World},
};
use insula_api::Revision;
use insula_store::Store;
use std::{sync::Arc, time::Duration};

/// Names of the faults, in the order of their weights.
pub const FAULTS: [&str; 10] = [
    "losses",
    "away",
    "lag",
    "leaderless",
    "watch-ends",
    "full",
    "compaction",
    "far-compaction",
    "server-crash",
    "slots",
];

/// Greatest pauses between two faults, and greatest time that one lasts, in milliseconds.
const PAUSE_MAX: usize = 2_000;
const LAST_MAX: usize = 8_000;

/// Causes one fault after another, until it is dropped. Faults overlap.
pub(crate) async fn play(world: Arc<World>, settings: Settings) {
    let dice = world.dice.fork();
    let weights = [6, 4, 4, 2, 4, 2, 3, 2, 2, 1];
    let weights: Vec<usize> = FAULTS
        .iter()
        .zip(weights)
        .map(|(name, weight)| if settings.without.contains(name) { 0 } else { weight })
        .collect();
    loop {
        world.runtime.pause_below(&dice, PAUSE_MAX).await;
        if weights.iter().sum::<usize>() == 0 {
            continue;
        }
        let (fault, member) = (FAULTS[dice.weighted(&weights)], dice.below(3));
        let server = dice.below(world.servers());
        let lasts = Duration::from_millis(dice.below(LAST_MAX) as u64);
        world.tell(format!("{fault}: member {member}, server {server}, {lasts:?}"));
        match fault {
            "losses" => {
                let percent = || dice.below(15);
                *world.wires.losses.lock() = Losses {
                    request: percent(),
                    answer: percent(),
                    broken: percent(),
                    late: percent(),
                };
                later(&world, lasts, |world| *world.wires.losses.lock() = Losses::default());
            }
            "away" => {
                world.etcd.with(|state| state.members[member].is_away = true);
                later(&world, lasts, move |world| {
                    world.etcd.with(|state| state.members[member].is_away = false)
                });
            }
            "lag" => {
                world.etcd.with(|state| state.members[member].lags = true);
                later(&world, lasts, move |world| {
                    world.etcd.with(|state| state.catch_up(member))
                });
            }
            "leaderless" => {
                world.etcd.with(|state| state.members[member].is_leaderless = true);
                later(&world, lasts, move |world| {
                    world.etcd.with(|state| state.members[member].is_leaderless = false);
                });
            }
            "watch-ends" => world.etcd.with(|state| state.members[member].watches += 1),
            "full" => {
                world.etcd.with(|state| state.takes_last_space = true);
                later(&world, lasts, |world| {
                    world
                        .etcd
                        .with(|state| (state.is_full, state.takes_last_space) = (false, false));
                });
            }
            "compaction" | "far-compaction" => {
                // A server compacts what it has had for a while; another user of etcd may do more.
                let back = if fault == "compaction" {
                    dice.below(200) as u64
                } else {
                    0
                };
                let upto = Revision(world.store(server).latest().revision().0.saturating_sub(back));
                // One that is too late does nothing.
                let _ = world.store(server).compact(upto).await;
            }
            "server-crash" => world.crash(server),
            _ => drop(world.begin_slots().await),
        }
    }
}

/// Ends a fault after a time.
fn later(world: &Arc<World>, time: Duration, end: impl FnOnce(&World) + Send + 'static) {
    let (world, runtime) = (world.clone(), world.runtime.clone());
    runtime.spawn("a fault's end", async move {
        world.runtime.pause(time).await;
        end(&world);
    });
}

/// Ends all faults.
pub(crate) fn heal(world: &World) {
    *world.wires.losses.lock() = Losses::default();
    world.etcd.with(|state| {
        state.is_full = false;
        state.takes_last_space = false;
        for member in 0..state.members.len() {
            state.members[member].is_away = false;
            state.members[member].is_leaderless = false;
            state.catch_up(member);
        }
    });
}
