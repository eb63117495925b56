//! Deterministic random numbers from a seed (SplitMix64).

/// A generator whose numbers the seed determines.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`, or 0 if `n` is 0.
    pub(super) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % (n.max(1) as u64)).unwrap_or_default()
    }

    /// Returns true with a probability of `of_100` percent.
    pub(super) fn chance(&mut self, of_100: usize) -> bool {
        self.below(100) < of_100
    }

    /// Returns one of the values, or `None` if there are none.
    pub(super) fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len()))
    }

    /// Returns an independent generator, whose numbers do not depend on how many others draw.
    pub(super) fn fork(&mut self) -> Random {
        Random(self.next())
    }
}
