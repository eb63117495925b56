//! Faults that a world has.

use crate::dice::Dice;

/// Names of the faults, by which a run can leave them out.
pub const FAULTS: [&str; 7] = ["lose", "refuse", "full", "crash", "reload", "forget", "lag"];

/// Weights of what can go wrong; 0 where the seed has switched it off.
pub(crate) struct Faults {
    pub(crate) lose: usize,
    pub(crate) refuse: usize,
    pub(crate) full: usize,
    pub(crate) crash: usize,
    pub(crate) reload: usize,
    pub(crate) forget: usize,
    pub(crate) lag: usize,
}

impl Faults {
    /// Chooses the faults of a world, without some of them.
    pub(crate) fn choose(dice: &Dice, without: &[&str]) -> Self {
        let sometimes = |name: &str, weight: usize| {
            // The seed draws the same with and without.
            let has = dice.chance(50);
            if has && !without.contains(&name) { weight } else { 0 }
        };
        Faults {
            lose: sometimes("lose", 6),
            refuse: sometimes("refuse", 3),
            full: sometimes("full", 3),
            crash: sometimes("crash", 1),
            reload: sometimes("reload", 1),
            forget: sometimes("forget", 1),
            lag: sometimes("lag", 97),
        }
    }
}
