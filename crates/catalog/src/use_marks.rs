//! Marks on a route for the versions that were used lately, read by every request for the resource.

use std::sync::atomic::{AtomicU64, Ordering};

/// Versions of an API that marks distinguish. Further ones never have a mark.
const MARKED_MAX: usize = 32;

/// Versions of one route that were used in the present hour: the hour in the upper half, a bit for
/// each version in the lower half.
#[derive(Debug, Default)]
pub struct UseMarks(AtomicU64);

impl UseMarks {
    /// Marks a version, by its index. Returns true if it had no mark for this hour.
    pub(crate) fn mark(&self, version: usize, period: i64) -> bool {
        if version >= MARKED_MAX {
            return true;
        }
        let (hour, bit) = ((period.unsigned_abs() & 0xffff_ffff) << 32, 1 << version);
        let marked = |known: u64| match known >> 32 == hour >> 32 {
            true => known | bit,
            false => hour | bit,
        };
        let known = self.0.load(Ordering::Relaxed);
        if marked(known) == known {
            return false;
        }
        let update = |known| Some(marked(known));
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
        before.is_ok_and(|before| marked(before) != before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_use_of_an_hour_is_new() {
        let marks = UseMarks::default();
        assert!(marks.mark(0, 7), "nothing was marked");
        assert!(!marks.mark(0, 7), "it is marked");
        assert!(marks.mark(1, 7), "another version");
        assert!(!marks.mark(0, 7) && !marks.mark(1, 7), "both are marked");
        assert!(marks.mark(1, 8), "another hour");
        assert!(marks.mark(0, 8), "the marks of the last hour are gone");
        assert!(marks.mark(32, 8) && marks.mark(32, 8), "there is no room for a mark");
    }
}
