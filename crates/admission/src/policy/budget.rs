//! The CEL budget of one write, which all policies and the conditions of all webhooks of a
//! workspace share.
//!
//! Kubernetes gives each policy a budget of its own, and an administrator of the cluster writes
//! them. Here a tenant does: their number must not multiply the price of a write. The limits of a
//! single policy are Kubernetes', within the budget of the write. The exporter of a bound API has a
//! budget of its own, so that no policy of a tenant makes those of a provider run out of it.

use super::evaluate::Failure;
use insula_api::{ClusterName, Json};
use insula_cel::{Budget, OBJECT_COST_MAX};
use insula_meter::Meter;
use std::sync::atomic::{AtomicU64, Ordering};

/// Cost units of one write for the hooks of one workspace, in all attempts: two policies that spend
/// all that Kubernetes lets a policy spend, or 57 checks of rights.
const WRITE_COST_MAX: u64 = 2 * OBJECT_COST_MAX;
/// Cost units of a policy beside its expressions: matching, and views of the request.
const POLICY_COST: u64 = 100;
/// Bytes of a value that is copied for the price of one unit, as in CEL.
const BYTES_PER_UNIT: usize = 10;

/// Cost units that are left for a write.
#[derive(Debug)]
pub struct WriteBudget {
    own: HomeBudget,
    exporter: HomeBudget,
}

/// Cost units that are left for the policies and webhooks of one workspace.
#[derive(Debug)]
pub(crate) struct HomeBudget {
    left: AtomicU64,
    meter: Meter,
}

impl WriteBudget {
    /// Returns the budget of a write that a meter pays for.
    pub fn new(meter: &Meter) -> Self {
        WriteBudget {
            own: HomeBudget::new(meter),
            exporter: HomeBudget::new(meter),
        }
    }

    /// Returns the budget of the hooks of `home` for a write in `cluster`.
    pub(crate) fn of_home(&self, home: &ClusterName, cluster: &ClusterName) -> &HomeBudget {
        match home == cluster {
            true => &self.own,
            false => &self.exporter,
        }
    }
}

/// A portion of the budget, for some expressions of one policy. The units that they use are charged
/// to the write when it is dropped.
pub(crate) struct Portion<'a> {
    pub(super) cel: Budget,
    given: u64,
    of: &'a HomeBudget,
}

impl HomeBudget {
    pub(super) fn new(meter: &Meter) -> Self {
        HomeBudget {
            left: AtomicU64::new(WRITE_COST_MAX),
            meter: meter.clone(),
        }
    }

    /// The meter that pays.
    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Returns a portion of at most some units.
    pub(crate) fn portion(&self, most: u64) -> Portion<'_> {
        let given = self.left().min(most);
        Portion {
            cel: Budget::new(given, &self.meter),
            given,
            of: self,
        }
    }

    /// Charges a policy, before it is evaluated on its inputs.
    ///
    /// # Errors
    /// The budget is exhausted. It stays so.
    pub(crate) fn charge_policy(&self) -> Result<(), Failure> {
        self.charge_work(POLICY_COST)
    }

    /// Charges the copies of a value that a policy changes or reads beside its expressions.
    ///
    /// # Errors
    /// The budget is exhausted.
    pub(crate) fn charge_copies(&self, value: &Json) -> Result<(), Failure> {
        self.charge_work(units(value))
    }

    /// Charges work that is no evaluation, whose budget pays the meter itself.
    fn charge_work(&self, units: u64) -> Result<(), Failure> {
        self.meter.spend(units).map_err(|_| Failure::OutOfBudget)?;
        self.charge(units)
    }

    fn charge(&self, units: u64) -> Result<(), Failure> {
        let pay = |left: u64| Some(left.saturating_sub(units));
        let before = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay);
        match before.is_ok_and(|left| left > units) {
            true => Ok(()),
            false => Err(Failure::OutOfBudget),
        }
    }

    fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }
}

impl Drop for Portion<'_> {
    fn drop(&mut self) {
        let used = self.given - self.cel.remaining().min(self.given);
        // An exhausted budget is reported by the next evaluation.
        let _ = self.of.charge(used);
    }
}

/// Returns the units of a copy: one for each value, and one for some bytes of text.
fn units(value: &Json) -> u64 {
    let text = |text: &str| (text.len() / BYTES_PER_UNIT) as u64;
    match value {
        Json::Null | Json::Bool(_) | Json::Number(_) => 1,
        Json::String(string) => 1 + text(string),
        Json::Array(list) => 1 + list.iter().map(units).sum::<u64>(),
        Json::Object(map) => 1 + map.iter().map(|(key, value)| text(key) + units(value)).sum::<u64>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use insula_cel::{Activation, Program};
    use serde_json::json;

    #[test]
    fn portions_are_charged_to_the_write() {
        let (write, program) = (
            HomeBudget::new(&Meter::unbounded()),
            Program::compile("self + 1", &["self"]).expect("compiles"),
        );
        let value = json!(1);
        let activation = Activation::new().with("self", &value);
        let mut portion = write.portion(OBJECT_COST_MAX);
        program.eval(&activation, &mut portion.cel).expect("a value");
        let used = portion.cel.used();
        assert!(used > 0);
        drop(portion);
        assert_eq!(write.left(), WRITE_COST_MAX - used);
        // A portion is no larger than what is left.
        write.charge(WRITE_COST_MAX - used - 5).expect("is left");
        assert_eq!(write.portion(OBJECT_COST_MAX).cel.remaining(), 5);
        assert_eq!(
            write.charge_copies(&json!({"text": "x".repeat(1_000)})),
            Err(Failure::OutOfBudget)
        );
        assert!(write.portion(OBJECT_COST_MAX).cel.exhausted());
        assert_eq!(write.charge_policy(), Err(Failure::OutOfBudget));
    }
}
