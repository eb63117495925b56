//! The edge: the stages that every request passes, whatever its protocol.
//!
//! ```text
//! Parsed ── admit: authenticate, take a permit ──> Authenticated ──> handle (HTTP) | call (gRPC)
//!    └────────────── guarded: within its time, panics stay inside ──────────────────┘
//! ```
//! Nothing of a body is read before [`ApiServer::admit`] knows the sender and has found room for
//! the request.

use crate::{
    ApiServer,
    handle::Answer,
    limits::InFlightPermit,
    reply::Reply,
    stage::{Authenticated, Parsed},
    status,
};
use futures_util::FutureExt;
use insula_auth::audit::Record;
use std::{panic::AssertUnwindSafe, pin::pin, time::Duration};

impl ApiServer {
    /// Does what a request asks for within its time. A panic becomes a 500 and stays in its
    /// request. The audit log is told what the client will be.
    pub(crate) async fn guarded(&self, time: Duration, record: &Record, work: impl Future<Output = Answer>) -> Answer {
        let outcome = {
            // Pinned where it is: moving what an answer grows in costs as much as a part of the
            // answer.
            let work = pin!(AssertUnwindSafe(work).catch_unwind());
            tokio::time::timeout(time, work).await
        };
        let refusal = match outcome {
            Ok(Ok(answer)) => return answer.inspect_err(|refusal| refusal.tell(record)),
            Ok(Err(_)) => {
                let refusal = Reply::from(status::panicked());
                refusal.tell(record);
                record.panicked();
                return Err(refusal);
            }
            Err(_) => Reply::from(status::timeout()),
        };
        refusal.tell(record);
        Err(refusal)
    }

    /// Finds out who sends a request, and takes a permit for it. From here on it costs something,
    /// if only the time until a revision is there.
    pub(crate) async fn admit(&self, parsed: Parsed) -> Result<(Authenticated, InFlightPermit), Reply> {
        let authenticated = parsed.authenticate(&self.authenticator, &self.registry).await?;
        let permit = self.limits.request(authenticated.payer())?;
        Ok((authenticated, permit))
    }
}
