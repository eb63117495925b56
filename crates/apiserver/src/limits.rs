//! What one user may have open at once.

use crate::status::{self, StatusReply};
use dashmap::DashMap;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What may be open, and how long and large a request may be.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Bytes of a request's body (kube-apiserver: 3 MiB); more than [`crate::body::BODY_BYTES_MAX`] is never read.
    pub body_bytes: usize,
    /// Time to answer a request that is not a watch.
    pub request_time: Duration,
    /// Requests that are being answered, of all users.
    pub requests: usize,
    /// Requests of one user that are being answered; the next one gets 429.
    pub requests_per_user: usize,
    /// Watches of one user; the next one gets 429.
    pub watches_per_user: usize,
}

/// Counts by user. A user who has nothing open has no entry.
#[derive(Debug)]
pub struct Limits {
    /// How much.
    pub settings: Settings,
    watches: Arc<DashMap<String, AtomicUsize>>,
    requests: Arc<DashMap<String, AtomicUsize>>,
    all: Arc<Semaphore>,
}

/// A place among the requests that are being answered.
#[derive(Debug)]
pub struct RequestPermit {
    _user: WatchPermit,
    _all: OwnedSemaphorePermit,
}

/// A place that is given back when it is dropped.
#[derive(Debug)]
pub struct WatchPermit {
    counts: Arc<DashMap<String, AtomicUsize>>,
    user: String,
}

impl Limits {
    /// Nothing is open yet.
    pub fn new(settings: Settings) -> Self {
        let all = Arc::new(Semaphore::new(settings.requests));
        Limits {
            settings,
            watches: Arc::default(),
            requests: Arc::default(),
            all,
        }
    }

    /// A place for a watch.
    pub fn watch(&self, user: &str) -> Result<WatchPermit, StatusReply> {
        take(&self.watches, user, self.settings.watches_per_user)
    }

    /// A place for a request.
    pub fn request(&self, user: &str) -> Result<RequestPermit, StatusReply> {
        let own = take(&self.requests, user, self.settings.requests_per_user)?;
        let all = self
            .all
            .clone()
            .try_acquire_owned()
            .map_err(|_| status::too_many_requests())?;
        Ok(RequestPermit { _user: own, _all: all })
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
    Ok(WatchPermit {
        counts: counts.clone(),
        user: user.to_owned(),
    })
}

impl Drop for WatchPermit {
    fn drop(&mut self) {
        if let Some(count) = self.counts.get(&self.user) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
        self.counts
            .remove_if(&self.user, |_, count| count.load(Ordering::Relaxed) == 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        let request_time = Duration::from_secs(60);
        Limits::new(Settings {
            body_bytes: 1,
            request_time,
            requests: 3,
            requests_per_user: 2,
            watches_per_user: 2,
        })
    }

    #[test]
    fn places_come_back() {
        let limits = limits();
        let held: Vec<WatchPermit> = (0..2).map(|_| limits.watch("u").expect("a place")).collect();
        assert!(limits.watch("u").is_err());
        assert!(limits.watch("v").is_ok(), "another user is not touched");
        drop(held);
        assert!(limits.watches.is_empty());
        assert!(limits.watch("u").is_ok());
    }

    #[test]
    fn requests_are_counted_by_user_and_together() {
        let limits = limits();
        let held: Vec<RequestPermit> = (0..2).map(|_| limits.request("u").expect("a place")).collect();
        assert!(limits.request("u").is_err());
        let _other = limits.request("v").expect("a place");
        assert!(limits.request("w").is_err(), "the server is full");
        drop(held);
        assert!(limits.request("w").is_ok());
    }
}
