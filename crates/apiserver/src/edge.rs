//! The edge: the stages that every request passes, whatever its protocol.
//!
//! ```text
//! Parsed ── admit: authenticate, take a permit ──> Authenticated ──> dispatch (HTTP) | call (gRPC)
//!    └────────────── guarded: within its time, panics stay inside ──────────────────┘
//! ```
//! No byte of a body is read before [`ApiServer::admit`] has authenticated the sender and taken a
//! permit.

use crate::{reply, request::Parsed, request_stages::Authenticated, server::ApiServer};
use futures_util::FutureExt;
use insula_api::measure::TRACE;
use insula_auth::audit::Record;
use insula_catalog::Error;
use insula_edge::guard::limits::InFlightPermit;
use insula_meter::{Bounds, Ended, Meter};
use insula_pipeline::Refusal;
use std::{panic::AssertUnwindSafe, time::Duration};
use tracing::Instrument;

impl ApiServer {
    /// Runs the work of a request within its time. A panic becomes a 500 of its request. Refusals
    /// are recorded in the audit log. The work is pinned by the caller, so that its large future
    /// stands in one place only.
    pub(crate) async fn guarded<T>(
        &self,
        time: Duration,
        (record, meter): (&Record, &Meter),
        work: impl Future<Output = Result<T, Refusal>> + Unpin,
    ) -> Result<T, Refusal> {
        let compute = self.limits.settings.compute_time;
        meter.bound(Some(Bounds { time, compute }));
        let work = AssertUnwindSafe(work).catch_unwind();
        let done = tokio::time::timeout(time, work).await;
        let ended = meter.check().err();
        // A body that streams has its own limits, and takes turns on.
        meter.bound(None);
        let refusal = match done {
            Ok(Ok(answer)) => match ended {
                None => return answer.inspect_err(|refusal| reply::record_refusal(refusal, record)),
                // What an evaluator returned at the end is no answer.
                Some(Ended::Late) => Refusal::Timeout,
                Some(Ended::Crowded) => Refusal::Limit(self.limits.over_compute(&Ended::Crowded.to_string())),
                Some(ended @ (Ended::Spent | Ended::Closing | Ended::Left)) => Refusal::Verb(Error::Ended(ended)),
            },
            Ok(Err(_)) => {
                reply::record_refusal(&Refusal::Panicked, record);
                record.panicked();
                return Err(Refusal::Panicked);
            }
            Err(_) => Refusal::Timeout,
        };
        reply::record_refusal(&refusal, record);
        Err(refusal)
    }

    /// Authenticates a request and takes a permit for it: from here on it costs resources, at
    /// least while it waits for a revision.
    pub(crate) async fn admit(&self, parsed: Parsed) -> Result<(Authenticated, InFlightPermit), Refusal> {
        let authenticating = parsed.authenticate(&self.authenticator, &self.registry);
        let span = tracing::info_span!(target: TRACE, "authenticate");
        let authenticated = authenticating.instrument(span).await?;
        let permit = self.limits.request(authenticated.payer())?;
        Ok((authenticated, permit))
    }
}
