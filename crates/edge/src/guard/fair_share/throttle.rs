//! Throttle slots: the queue of a workspace above its CPU cap.
//!
//! Its requests run one at a time, each as soon as the workspace's usage has decayed to the cap. So
//! they slow others down by one request at a time. Refused at once, they would all be retried
//! together after the second of `Retry-After`. A request that waits too long is refused all the
//! same: a flood would fill the memory.

use super::{Charged, ConnectionMeter, FairShare, Limit, Tenant, TenantUsage};
use std::time::Duration;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{sleep, timeout},
};

/// Time that a request waits for its slot before it is refused.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Time after which a request gives its slot to the next one of its workspace: one that takes
/// longer waits for something else, such as a webhook or a disk.
const SLOT_TIME: Duration = Duration::from_millis(50);

/// The refusal of a request above the workspace's CPU cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the workspace used {percent} % of the server's cores lately, and may use no more while others ask")]
pub struct OverCpuLimit {
    percent: usize,
}

/// The right of a request to run. In a workspace above its cap one request at a time has it; others
/// have one without a permit.
#[derive(Debug, Default)]
pub struct ThrottleSlot(Option<OwnedSemaphorePermit>);

impl FairShare {
    /// Waits until a request of the tenant may run. From here on the connection is charged to the
    /// tenant.
    ///
    /// # Errors
    /// The workspace was above its cap for too long.
    pub async fn throttle_slot(
        &self,
        meter: &ConnectionMeter,
        charged: &Charged,
    ) -> Result<ThrottleSlot, OverCpuLimit> {
        let usage = self.charge_to(meter, charged);
        let (Tenant::Workspace(_), Some(limit)) = (&charged.tenant, self.0.limit) else {
            return Ok(ThrottleSlot::default());
        };
        // No request overtakes those that wait.
        if usage.slots.available_permits() > 0 && usage.delay(limit.seconds, meter.now()).is_zero() {
            return Ok(ThrottleSlot::default());
        }
        let slot = timeout(WAIT_MAX, usage.wait_for_slot(limit, meter)).await;
        let slot = slot.map_err(|_| OverCpuLimit { percent: limit.percent })?;
        // A request of another tenant may have come on the connection meanwhile.
        meter.charge_usage(&usage);
        Ok(slot)
    }
}

impl TenantUsage {
    async fn wait_for_slot(&self, limit: Limit, meter: &ConnectionMeter) -> ThrottleSlot {
        let permit = self.slots.clone().acquire_owned().await;
        loop {
            let delay = self.delay(limit.seconds, meter.now());
            if delay.is_zero() {
                // The semaphore is never closed.
                return ThrottleSlot(permit.ok());
            }
            sleep(delay).await;
        }
    }
}

impl ThrottleSlot {
    /// Does the work of the request within the slot. The work is pinned by the caller: each
    /// function that takes a future by value makes the request's own future larger by its size.
    pub async fn run<T>(self, mut work: impl Future<Output = T> + Unpin) -> T {
        if self.0.is_none() {
            return work.await;
        }
        match timeout(SLOT_TIME, &mut work).await {
            Ok(done) => done,
            Err(_) => {
                drop(self);
                work.await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{
        FutureExt,
        future::{Either, join, select},
    };
    use insula_api::ClusterName;
    use std::{future::pending, pin::pin};

    const SECOND: Duration = Duration::from_secs(1);

    /// A workspace that is capped at a quarter of two cores, has used some CPU seconds, and is not
    /// alone.
    fn with_usage(seconds: u32) -> (FairShare, ConnectionMeter, Charged) {
        let fair_share = FairShare::new(2, 25);
        let loud = Charged::workspace(ClusterName::parse("loud").expect("a name"), None);
        let (meter, other) = (fair_share.meter(Duration::ZERO), fair_share.meter(Duration::ZERO));
        fair_share.charge_to(&other, &Charged::user("quiet".into()));
        fair_share.charge_to(&meter, &loud);
        meter.charge(seconds * SECOND);
        (fair_share, meter, loud)
    }

    #[tokio::test]
    async fn requests_above_the_cap_run_one_at_a_time() {
        let (fair_share, meter, loud) = with_usage(1);
        let slot = || fair_share.throttle_slot(&meter, &loud);
        assert!(slot().now_or_never().is_none(), "it waits");
        // Usage decays while it waits, and the other tenant's request is less than a second old.
        let (first, _) = join(slot(), async { meter.is_throttled(SECOND / 10 * 9) }).await;
        let first = first.expect("a slot");
        assert!(first.0.is_some());
        assert!(slot().now_or_never().is_none(), "the first one has not ended");
        drop(first);
        let second = slot().now_or_never().expect("no other request waits").expect("a slot");
        assert!(second.0.is_none(), "its usage has decayed");
    }

    #[tokio::test]
    async fn requests_that_wait_too_long_are_refused() {
        let (fair_share, meter, loud) = with_usage(1_000);
        let refused = fair_share
            .throttle_slot(&meter, &loud)
            .await
            .expect_err("it is over its limit for seconds");
        let text = "the workspace used 25 % of the server's cores lately, and may use no more while others ask";
        assert_eq!(refused.to_string(), text);
        let user = Charged::user("loud".into());
        assert!(
            fair_share
                .throttle_slot(&meter, &user)
                .now_or_never()
                .is_some_and(|slot| slot.is_ok()),
            "the cap is for workspaces"
        );
    }

    #[tokio::test]
    async fn a_request_that_takes_long_gives_up_its_slot() {
        let (fair_share, meter, loud) = with_usage(0);
        let usage = fair_share.charge_to(&meter, &loud);
        let limit = fair_share.0.limit.expect("a limit");
        let first = usage.wait_for_slot(limit, &meter).await;
        let first = pin!(first.run(pending::<()>()));
        let next = pin!(usage.wait_for_slot(limit, &meter));
        assert!(matches!(select(first, next).await, Either::Right(_)));
    }
}
