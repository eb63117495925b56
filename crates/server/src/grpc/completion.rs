//! Completion of writes whose callers are gone.
//!
//! A write is dropped with its call at the client's deadline, or when the client cancels it or
//! loses its connection. Dropped between two of its steps it would leave a part of its effect, or
//! an effect without the record of its `request_id`, whose repetition is then refused. So a write
//! that has begun continues without its caller, within the time of a request. An abandoned write
//! keeps its in-flight permit, so that abandoning calls does not raise a user's limit.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::response::Response;
use insula_apiserver::call::Admitted;
use insula_edge::port::PriorityRuntimes;
use tokio::time::timeout;
use tracing::{Instrument, instrument::Instrumented};

type Work = Instrumented<Pin<Box<dyn Future<Output = Response> + Send>>>;

/// A write that goes on when it is dropped, once it has begun.
pub(crate) struct Completion {
    /// `None` before its first step, after its end and while it runs: after a panic it does not go
    /// on.
    begun: Option<Work>,
    /// The write before its first step.
    ready: Option<Work>,
    admitted: Option<Admitted>,
    time_max: Duration,
    runtimes: Arc<PriorityRuntimes>,
}

impl Completion {
    /// Returns the write. After its call it goes on for some time at most.
    pub(crate) fn new(
        work: impl Future<Output = Response> + Send + 'static,
        admitted: Option<Admitted>,
        time_max: Duration,
        runtimes: &Arc<PriorityRuntimes>,
    ) -> Self {
        let work: Pin<Box<dyn Future<Output = Response> + Send>> = Box::pin(work);
        Completion {
            begun: None,
            ready: Some(work.in_current_span()),
            admitted,
            time_max,
            runtimes: Arc::clone(runtimes),
        }
    }
}

impl Future for Completion {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response> {
        let ready = self.ready.take();
        let mut work = self.begun.take().or(ready).expect("it is polled to its end only");
        let polled = Pin::new(&mut work).poll(context);
        if polled.is_pending() {
            self.begun = Some(work);
        }
        polled
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        let admitted = self.admitted.take();
        let Some(work) = self.begun.take() else { return };
        let mut meter = None;
        if let Some(admitted) = &admitted {
            admitted.caller.leave();
            meter = admitted.caller.meter().cloned();
        }
        let time_max = self.time_max;
        let rest = async move {
            if timeout(time_max, work).await.is_err() {
                tracing::warn!("a write whose caller is gone did not end in its time");
            }
            drop(admitted);
        };
        let meter = meter.unwrap_or_else(|| self.runtimes.meter());
        self.runtimes.spawn(&meter, rest);
    }
}
