//! Counts of extension servers that are not available, for metrics. APIServices have names that
//! tenants choose, so their reasons alone are labels.

use crate::server::ApiServer;
use insula_api::{Scope, measure::Counter};
use insula_catalog::{aggregation::ApiService, ids};
use insula_meter::ServerWork;
use std::ops::ControlFlow;

/// Reasons in the conditions of APIServices. The last one stands for all others: the first check
/// runs, or a user wrote the condition.
const REASONS: [&str; 4] = ["FailedDiscoveryCheck", "ServedLocally", "ServiceNotFound", "Unchecked"];

/// Counts of the servers that became unavailable, by reason.
#[derive(Debug, Default)]
pub struct Outages([Counter; 4]);

fn index(reason: &str) -> usize {
    let known = REASONS.iter().position(|one| *one == reason);
    known.unwrap_or(REASONS.len() - 1)
}

impl Outages {
    /// Counts a server that failed its check after it had passed one.
    pub(crate) fn count(&self, reason: &str) {
        self.0[index(reason)].inc();
    }

    /// Returns the counts with the names of their reasons.
    pub fn read(&self) -> impl Iterator<Item = (&'static str, u64)> {
        REASONS.into_iter().zip(self.0.iter().map(Counter::get))
    }
}

impl ApiServer {
    /// Returns the number of APIServices of all workspaces that are not available now, by reason.
    pub fn unavailable_services(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let mut counts = [0; REASONS.len()];
        let snapshot = self.registry.store.latest().for_server(ServerWork::Housekeeping);
        snapshot.for_each(&Scope::everywhere(ids::apiservices()), |entry| {
            let service = entry.object.parsed(ApiService::read);
            if service.backend.is_some() && !service.available {
                counts[index(&service.reason)] += 1;
            }
            ControlFlow::Continue(())
        });
        REASONS.into_iter().zip(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_of_users_are_no_labels() {
        let outages = Outages::default();
        for reason in ["ServiceNotFound", "chosen", "", "ServiceNotFound"] {
            outages.count(reason);
        }
        let counts: Vec<u64> = outages.read().map(|(_, count)| count).collect();
        assert_eq!(counts, [0, 0, 2, 2]);
    }
}
