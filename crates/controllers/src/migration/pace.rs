//! Rate limit of rewrites over all tenants together, so that writes of tenants have priority.

use insula_api::Timestamp;
use std::sync::{Mutex, PoisonError};

/// Objects a second.
const PER_SECOND: usize = 1000;

/// Budget that is left of the present second.
#[derive(Default)]
pub(crate) struct Pace(Mutex<Option<(Timestamp, usize)>>);

impl Pace {
    /// Takes up to a number of objects from the budget. Returns how many; none until the next
    /// second once it is used up.
    pub(crate) fn take(&self, wanted: usize, now: Timestamp) -> usize {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = match *state {
            Some((second, left)) if second == now => left,
            _ => PER_SECOND,
        };
        let taken = wanted.min(left);
        *state = Some((now, left - taken));
        taken
    }

    /// Returns unused objects to the budget.
    pub(crate) fn give_back(&self, unused: usize, now: Timestamp) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((second, left)) = &mut *state
            && *second == now
        {
            *left = (*left + unused).min(PER_SECOND);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_only_so_many() {
        let pace = Pace::default();
        let (now, next) = (Timestamp(1), Timestamp(2));
        assert_eq!(
            [pace.take(900, now), pace.take(900, now), pace.take(900, now)],
            [900, 100, 0]
        );
        pace.give_back(30, now);
        assert_eq!([pace.take(900, now), pace.take(900, next)], [30, 900]);
    }
}
