//! Randomness from a seed.

use insula_api::Rng;
use std::sync::atomic::{AtomicU64, Ordering};

/// A repeatable sequence of random numbers (SplitMix64).
pub struct Dice(AtomicU64);

impl Dice {
    /// Starts the sequence of a seed.
    pub fn new(seed: u64) -> Dice {
        Dice(AtomicU64::new(seed))
    }

    fn draw(&self) -> u64 {
        let mut x = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Starts another sequence.
    pub fn fork(&self) -> Dice {
        Dice::new(self.draw())
    }

    /// Draws a number below `end`; 0 for an `end` of 0.
    pub fn below(&self, end: usize) -> usize {
        let drawn = self.draw() % u64::try_from(end.max(1)).unwrap_or(u64::MAX);
        usize::try_from(drawn).unwrap_or_default()
    }

    /// Returns true in so many of a hundred draws.
    pub fn chance(&self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Draws one of several.
    ///
    /// # Panics
    /// There are none.
    pub fn pick<'a, T>(&self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// Draws the place of one of several weights.
    pub fn weighted(&self, weights: &[usize]) -> usize {
        let mut left = self.below(weights.iter().sum());
        for (place, weight) in weights.iter().enumerate() {
            if left < *weight {
                return place;
            }
            left -= weight;
        }
        0
    }
}

impl Rng for Dice {
    fn fill(&self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            chunk.copy_from_slice(&self.draw().to_le_bytes()[..chunk.len()]);
        }
    }
}
