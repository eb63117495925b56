//! Turns of a workspace that used all that it may.
//!
//! Its requests are computed one after the other, each as soon as the account allows. So they
//! disturb others by one request at a time. Refused, they would come again all at once, after the
//! second that clients are told to wait. Who waits too long for a turn is refused all the same, or
//! a flood would fill the memory.

use super::{ConnectionMeter, FairShare, Limit, Tenant, TenantUsage};
use std::{pin::pin, time::Duration};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{sleep, timeout},
};

/// Who waits longer is told to come again.
const PATIENCE: Duration = Duration::from_secs(1);
/// What takes longer waits for something else, such as a webhook or a disk, and others of its
/// workspace go on.
const TURN: Duration = Duration::from_millis(50);

/// A workspace used all that it may, and others of its requests come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the workspace used {percent} % of the server's cores lately, and may use no more while others ask")]
pub(crate) struct Spent {
    percent: usize,
}

/// A request that may be computed: of a workspace that used all that it may, the only one.
#[derive(Debug, Default)]
pub(crate) struct ThrottleSlot(Option<OwnedSemaphorePermit>);

impl FairShare {
    /// Waits until the tenant may compute. From here on it pays for the connection.
    pub(crate) async fn turn(&self, meter: &ConnectionMeter, tenant: &Tenant) -> Result<ThrottleSlot, Spent> {
        let account = self.charge_to(meter, tenant);
        let (Tenant::Workspace(_), Some(limit)) = (tenant, self.0.limit) else {
            return Ok(ThrottleSlot::default());
        };
        // Nobody overtakes those who wait.
        if account.turns.available_permits() > 0 && account.rest(limit.seconds, meter.now()).is_zero() {
            return Ok(ThrottleSlot::default());
        }
        let turn = timeout(PATIENCE, account.turn(limit, meter)).await;
        let turn = turn.map_err(|_| Spent { percent: limit.percent })?;
        // Somebody else may have asked on the connection meanwhile.
        meter.pay_from(&account);
        Ok(turn)
    }
}

impl TenantUsage {
    async fn turn(&self, limit: Limit, meter: &ConnectionMeter) -> ThrottleSlot {
        let turn = self.turns.clone().acquire_owned().await;
        loop {
            let rest = self.rest(limit.seconds, meter.now());
            if rest.is_zero() {
                // Nobody closes it.
                return ThrottleSlot(turn.ok());
            }
            sleep(rest).await;
        }
    }
}

impl ThrottleSlot {
    /// Does what the turn is for.
    pub(crate) async fn hold<T>(self, work: impl Future<Output = T>) -> T {
        if self.0.is_none() {
            return work.await;
        }
        let mut work = pin!(work);
        match timeout(TURN, &mut work).await {
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
    use std::future::pending;

    const SECOND: Duration = Duration::from_secs(1);

    /// A workspace that used so many seconds of two cores, of which it may use a quarter, while
    /// somebody else is there.
    fn spent(seconds: u32) -> (FairShare, ConnectionMeter, Tenant) {
        let fair_share = FairShare::new(2, 25);
        let loud = Tenant::Workspace(ClusterName::parse("loud").expect("a name"));
        let (meter, other) = (fair_share.meter(Duration::ZERO), fair_share.meter(Duration::ZERO));
        fair_share.charge_to(&other, &Tenant::User("quiet".into()));
        fair_share.charge_to(&meter, &loud);
        meter.charge(seconds * SECOND);
        (fair_share, meter, loud)
    }

    #[tokio::test]
    async fn requests_come_one_after_the_other() {
        let (fair_share, meter, loud) = spent(1);
        let turn = || fair_share.turn(&meter, &loud);
        assert!(turn().now_or_never().is_none(), "it waits");
        // Time goes on while it waits, and less than a second ago somebody else asked.
        let (first, _) = join(turn(), async { meter.is_behind(SECOND / 10 * 9) }).await;
        let first = first.expect("a turn");
        assert!(first.0.is_some());
        assert!(turn().now_or_never().is_none(), "the first one has not ended");
        drop(first);
        let second = turn().now_or_never().expect("nobody else waits").expect("a turn");
        assert!(second.0.is_none(), "it has used less by now");
    }

    #[tokio::test]
    async fn who_waits_too_long_is_refused() {
        let (fair_share, meter, loud) = spent(1_000);
        let refused = fair_share
            .turn(&meter, &loud)
            .await
            .expect_err("it is over its limit for seconds");
        let text = "the workspace used 25 % of the server's cores lately, and may use no more while others ask";
        assert_eq!(refused.to_string(), text);
        let user = Tenant::User("loud".into());
        assert!(
            fair_share
                .turn(&meter, &user)
                .now_or_never()
                .is_some_and(|turn| turn.is_ok()),
            "the limit is for workspaces"
        );
    }

    #[tokio::test]
    async fn what_waits_for_something_else_holds_up_nobody() {
        let (fair_share, meter, loud) = spent(0);
        let account = fair_share.charge_to(&meter, &loud);
        let limit = fair_share.0.limit.expect("a limit");
        let first = account.turn(limit, &meter).await;
        let first = pin!(first.hold(pending::<()>()));
        let next = pin!(account.turn(limit, &meter));
        assert!(matches!(select(first, next).await, Either::Right(_)));
    }
}
