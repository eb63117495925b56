//! Leader election by a Lease: one process at a time runs a controller.
//!
//! A holder renews the Lease. Others take it when it is free, or when it has not changed for as
//! long as its holder has promised, by the clock of the one that waits.

use super::{Clusters, Controller, Reconciler, run::run as work};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff,
};
use kube::{Api, api::PostParams};
use std::{
    future::Future,
    hash::{BuildHasher, Hasher, RandomState},
    pin::pin,
    process,
    time::{Duration, Instant},
};
use tokio::time::sleep;

/// Time after which others may take a Lease that is not renewed.
const LEASE: Duration = Duration::from_secs(15);
/// Time without a renewal after which a holder stops. Shorter than [`LEASE`], so that two never run
/// at the same time.
const GIVE_UP: Duration = Duration::from_secs(10);
const RENEW: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_secs(1);

/// The place of a Lease.
#[derive(Debug, Clone)]
pub(super) struct LeaseName {
    pub(super) namespace: String,
    pub(super) lease: String,
}

/// Runs a controller until `stop` completes, and only while this process holds the Lease if there
/// is one.
pub(super) async fn run<R: Reconciler>(
    controller: Controller<R>,
    clusters: Clusters,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    let mut stop = pin!(stop);
    let Some(place) = &controller.lease else {
        tokio::select! {
            () = work(&controller, &clusters) => {}
            () = &mut stop => {}
        }
        return;
    };
    let candidate = Candidate::new(&clusters, place);
    loop {
        tokio::select! {
            () = candidate.acquire() => {}
            () = &mut stop => return,
        }
        tracing::info!(controller = R::NAME, lease = place.lease, "this process leads");
        tokio::select! {
            () = work(&controller, &clusters) => {}
            () = candidate.keep() => tracing::warn!(controller = R::NAME, "the lease is lost"),
            () = &mut stop => {
                candidate.release().await;
                return;
            }
        }
    }
}

/// A process that may hold a Lease.
struct Candidate {
    leases: Api<Lease>,
    name: String,
    identity: String,
}

/// The state of a Lease as a candidate saw it, and since when.
struct Seen {
    revision: Option<String>,
    since: Instant,
}

impl Candidate {
    fn new(clusters: &Clusters, place: &LeaseName) -> Self {
        let random = RandomState::new().build_hasher().finish();
        Self {
            leases: Api::namespaced(clusters.home(), &place.namespace),
            name: place.lease.clone(),
            identity: format!("{}-{random:016x}", process::id()),
        }
    }

    /// Completes when this process holds the Lease.
    async fn acquire(&self) {
        let mut seen = Seen {
            revision: None,
            since: Instant::now(),
        };
        loop {
            match self.try_acquire(&mut seen).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::warn!(lease = self.name, %error, "the lease cannot be read; trying again"),
            }
            sleep(RETRY).await;
        }
    }

    async fn try_acquire(&self, seen: &mut Seen) -> Result<bool, kube::Error> {
        let Some(present) = self.leases.get_opt(&self.name).await? else {
            let metadata = ObjectMeta {
                name: Some(self.name.clone()),
                ..ObjectMeta::default()
            };
            let lease = Lease {
                metadata,
                spec: Some(self.claimed_spec(None)),
            };
            return won(self.leases.create(&PostParams::default(), &lease).await);
        };
        if seen.revision != present.metadata.resource_version {
            *seen = Seen {
                revision: present.metadata.resource_version.clone(),
                since: Instant::now(),
            };
        }
        let spec = present.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let promised = spec
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok());
        let promised = promised.map_or(LEASE, Duration::from_secs);
        if !holder.is_empty() && holder != self.identity && seen.since.elapsed() < promised {
            return Ok(false);
        }
        self.write(present, Some(&spec)).await
    }

    /// Completes when this process holds the Lease no longer.
    async fn keep(&self) {
        let mut renewed = Instant::now();
        loop {
            sleep(RENEW).await;
            let asked = Instant::now();
            match tokio::time::timeout(GIVE_UP.saturating_sub(renewed.elapsed()), self.renew()).await {
                Ok(Ok(true)) => renewed = asked,
                Ok(Ok(false)) => return,
                Ok(Err(_)) | Err(_) if renewed.elapsed() < GIVE_UP => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }

    async fn renew(&self) -> Result<bool, kube::Error> {
        let present = self.leases.get(&self.name).await?;
        let spec = present.spec.clone().unwrap_or_default();
        match spec.holder_identity.as_deref() == Some(&*self.identity) {
            true => self.write(present, Some(&spec)).await,
            false => Ok(false),
        }
    }

    /// Frees the Lease, so that another process need not wait.
    async fn release(&self) {
        let Ok(mut present) = self.leases.get(&self.name).await else {
            return;
        };
        let Some(spec) = present.spec.as_mut() else { return };
        if spec.holder_identity.as_deref() == Some(&*self.identity) {
            spec.holder_identity = Some(String::new());
            // Without it, others wait for the time of the Lease.
            drop(self.leases.replace(&self.name, &PostParams::default(), &present).await);
        }
    }

    async fn write(&self, mut present: Lease, old: Option<&LeaseSpec>) -> Result<bool, kube::Error> {
        present.spec = Some(self.claimed_spec(old));
        won(self.leases.replace(&self.name, &PostParams::default(), &present).await)
    }

    fn claimed_spec(&self, old: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(jiff::Timestamp::now());
        let same = old.filter(|old| old.holder_identity.as_deref() == Some(&*self.identity));
        let transitions = old.and_then(|old| old.lease_transitions).unwrap_or_default();
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(LEASE.as_secs()).ok(),
            acquire_time: same
                .and_then(|old| old.acquire_time.clone())
                .or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(transitions + i32::from(same.is_none() && old.is_some())),
            ..LeaseSpec::default()
        }
    }
}

/// Returns true for a write that succeeded, and false for one that came second.
fn won<T>(written: Result<T, kube::Error>) -> Result<bool, kube::Error> {
    match written {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}
