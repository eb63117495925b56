//! What one user may have open at once.

use crate::status::{self, StatusReply};
use dashmap::DashMap;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Watches of one user; the next one gets 429.
pub const WATCHES_PER_USER_MAX: usize = 10_000;
/// Requests of one user that are being answered; the next one gets 429.
pub const REQUESTS_PER_USER_MAX: usize = 1_000;

/// Counts by user. A user who has nothing open has no entry.
#[derive(Debug, Default)]
pub struct Limits {
    watches: Arc<DashMap<String, AtomicUsize>>,
    requests: Arc<DashMap<String, AtomicUsize>>,
}

/// A place that is given back when it is dropped.
#[derive(Debug)]
pub struct WatchPermit {
    counts: Arc<DashMap<String, AtomicUsize>>,
    user: String,
}

impl Limits {
    /// A place for a watch.
    pub fn watch(&self, user: &str) -> Result<WatchPermit, StatusReply> {
        take(&self.watches, user, WATCHES_PER_USER_MAX)
    }

    /// A place for a request.
    pub fn request(&self, user: &str) -> Result<WatchPermit, StatusReply> {
        take(&self.requests, user, REQUESTS_PER_USER_MAX)
    }
}

fn take(counts: &Arc<DashMap<String, AtomicUsize>>, user: &str, max: usize) -> Result<WatchPermit, StatusReply> {
    let count = counts.entry(user.to_owned()).or_default();
    // The entry's lock orders this with the removal in `drop`.
    if count.fetch_add(1, Ordering::Relaxed) >= max {
        count.fetch_sub(1, Ordering::Relaxed);
        return Err(status::too_many_requests());
    }
    drop(count);
    Ok(WatchPermit { counts: counts.clone(), user: user.to_owned() })
}

impl Drop for WatchPermit {
    fn drop(&mut self) {
        if let Some(count) = self.counts.get(&self.user) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
        self.counts.remove_if(&self.user, |_, count| count.load(Ordering::Relaxed) == 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back() {
        let limits = Limits::default();
        let held: Vec<WatchPermit> = (0..WATCHES_PER_USER_MAX).map(|_| limits.watch("u").expect("a place")).collect();
        assert!(limits.watch("u").is_err());
        assert!(limits.watch("v").is_ok(), "another user is not touched");
        drop(held);
        assert!(limits.watches.is_empty());
        assert!(limits.watch("u").is_ok());
    }
}
