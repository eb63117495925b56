//! A store that measures the commits of another one.

use std::{sync::Arc, time::Instant};

use insula_api::{Revision, Scope, measure::TRACE};
use insula_store::{
    BoxFuture, CommitError, Cursor, Gone, Measures, Member, Pinned, Sharing, SnapshotError, Store, Txn,
};
use tracing::{Instrument, field::Empty};

use crate::metrics::{CommitOutcome, Metrics};

/// A store whose commits are counted and timed.
pub(crate) struct MeasuredStore {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Store for MeasuredStore {
    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Revision, CommitError>> {
        Box::pin(async move {
            let started = Instant::now();
            let span = tracing::info_span!(
                target: TRACE,
                "store commit",
                insula.outcome = Empty,
                otel.status_description = Empty,
            );
            let done = self.inner.commit(txn).instrument(span.clone()).await;
            let outcome = match &done {
                Ok(_) => CommitOutcome::Committed,
                Err(CommitError::Conflict { .. }) => CommitOutcome::Conflict,
                Err(_) => CommitOutcome::Failed,
            };
            span.record("insula.outcome", outcome.name());
            if outcome == CommitOutcome::Failed {
                span.record(
                    "otel.status_description",
                    "the commit failed, or its outcome is unknown",
                );
            }
            self.metrics.commit(outcome, started.elapsed());
            done
        })
    }

    fn snapshot(&self, at_least: Revision) -> BoxFuture<'_, Result<Pinned, SnapshotError>> {
        self.inner.snapshot(at_least)
    }

    fn at_revision(&self, exactly: Revision) -> Result<Pinned, Gone> {
        self.inner.at_revision(exactly)
    }

    fn latest(&self) -> Pinned {
        self.inner.latest()
    }

    fn watch(&self, scope: Scope, after: Revision) -> Result<Cursor, Gone> {
        self.inner.watch(scope, after)
    }

    fn compact(&self, upto: Revision) -> BoxFuture<'_, Result<(), Gone>> {
        self.inner.compact(upto)
    }

    fn health(&self) -> Result<(), String> {
        self.inner.health()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), String>> {
        self.inner.ready()
    }

    fn alarm(&self) -> Option<String> {
        self.inner.alarm()
    }

    fn members(&self) -> BoxFuture<'_, Result<Vec<Member>, String>> {
        self.inner.members()
    }

    fn share(&self, sharing: Sharing) {
        self.inner.share(sharing);
    }

    fn measures(&self) -> Measures {
        self.inner.measures()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}
