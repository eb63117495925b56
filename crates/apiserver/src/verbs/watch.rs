//! Watches: streams of events, each flushed as it comes.

use super::ResourceRequest;
use crate::{
    negotiate::{Format, Supported},
    query::WatchStart,
    reauthorize::Credentials,
    reply,
    request::Answer,
    request_stages::Permitted,
    watch_encoder::{EncodedEvents, Encoder},
    websocket,
};
use axum::body::Body;
use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt, stream::unfold};
use http::Response;
use insula_access::{Authenticator, Target};
use insula_api::Revision;
use insula_auth::audit::OpenCall;
use insula_catalog::Error;
use insula_edge::guard::limits::{MeasuredWatch, WatchEnd, WatchPermit};
use insula_pipeline::{ReadAt, Refusal};
use insula_registry::{Deps, Event, Watch, verbs};
use std::{collections::VecDeque, convert::Infallible, sync::Arc};
use tokio::sync::watch;

mod dependencies;
mod times;

use dependencies::Dependencies;
use times::{Tick, Times, watch_timeout};

/// Bytes of objects that are encoded at once, rounded up to a whole event: events that the client
/// does not read are not encoded.
const STEP_BYTES: usize = 128 << 10;

/// The state of a running watch.
pub(crate) struct Running {
    registry: Arc<Deps>,
    authenticator: Arc<Authenticator>,
    watch: Watch,
    encoder: Encoder,
    /// Events that the watch has returned and that are still to be encoded.
    unsent: VecDeque<Event>,
    dependencies: Dependencies,
    credentials: Credentials,
    /// True when the user's right to the watch is to be checked again.
    is_review_due: bool,
    times: Times,
    /// True if the client wants bookmarks.
    bookmarks: bool,
    /// Revision of the initial state, as long as its end is still to be marked.
    initial_end: Option<Revision>,
    closing: watch::Receiver<bool>,
    /// Revision at which the watch ends, once that is known.
    last: Option<Revision>,
    ended: bool,
    measured: MeasuredWatch,
    _permit: WatchPermit,
    _record: OpenCall,
}

/// The events of a watch.
pub(crate) enum Events {
    /// A running watch.
    Running(Box<Running>),
    /// Events that are already encoded, and no more.
    Last(Option<EncodedEvents>),
}

impl Events {
    /// Streams the events in batches, each encoded when it is polled for.
    pub(crate) fn stream(self) -> impl Stream<Item = EncodedEvents> {
        unfold(self, |mut events| async move {
            let batch = events.next_batch().await?;
            Some((batch, events))
        })
    }

    async fn next_batch(&mut self) -> Option<EncodedEvents> {
        match self {
            Events::Running(running) => running.next_batch().await,
            Events::Last(batch) => batch.take(),
        }
    }
}

/// Starts a watch.
pub(crate) async fn watch(request: &mut ResourceRequest<'_>) -> Answer {
    let negotiated = request.negotiate(Supported::Watch)?;
    let server = request.server;
    let Permitted { parsed, authorized } = &request.request;
    let scope = authorized.scope();
    let (mut options, start) = parsed.query.watch()?;
    if !request.name.is_empty() {
        let by_name = ("metadata.name".into(), request.name.clone(), true);
        options.fields.terms.push(by_name);
    }
    let timeout = watch_timeout(parsed.query.timeout_seconds()?, server.registry.rng.next_u64());
    let bookmarks = parsed.query.flag("allowWatchBookmarks");
    let permit = server
        .limits
        .watch(parsed.watch_payer(), scope.cluster.as_ref(), scope.own_limits())?;
    let encoder = Encoder::new(request.renderer(negotiated)?, negotiated);
    let format = encoder.format();
    let registry = server.registry.clone();
    // From the state that resolved and authorised the request, so that no change is missed while
    // the watch begins.
    let dependencies = Dependencies::follow(&registry, &request.target, scope.snapshot.revision());
    let credentials = Credentials::from_request(parsed)?;
    let events = match begin(&registry, &request.target, options, start).await {
        Ok((watch, initial_end)) => Events::Running(Box::new(Running {
            authenticator: server.authenticator.clone(),
            encoder,
            unsent: VecDeque::new(),
            dependencies,
            credentials,
            is_review_due: false,
            registry,
            watch,
            times: Times::new(timeout, server.bookmark_period),
            bookmarks,
            initial_end,
            closing: server.closing.clone(),
            last: None,
            ended: false,
            measured: MeasuredWatch {
                measures: server.limits.watches.clone(),
                end: WatchEnd::Client,
            },
            _permit: permit,
            _record: request.request.parsed.record.open(),
        })),
        // Clients expect the error of a compacted revision within the stream.
        Err(Begin::Expired(error)) => {
            let mut last = EncodedEvents::default();
            encoder.error(&error, &mut last);
            Events::Last(Some(last))
        }
        Err(Begin::Refused(reply)) => return Err(reply),
    };
    let parsed = &mut request.request.parsed;
    let upgrade = parsed.upgrade.take();
    let mut response = match upgrade.filter(|_| websocket::is_websocket(&parsed.headers)) {
        Some(upgrade) => upgrade.send(&parsed.headers, events.stream().map(EncodedEvents::split), format)?,
        None => streamed(events, format),
    };
    reply::add_warnings(&mut response, &request.warnings);
    Ok(response)
}

/// Answers with a body that lasts as long as there are events.
fn streamed(events: Events, format: Format) -> Response<Body> {
    let batches = events
        .stream()
        .map(move |events| Ok::<Bytes, Infallible>(events.into_stream_bytes(format)));
    let mut response = reply::bytes(200, Vec::new(), content_type(format));
    *response.body_mut() = Body::from_stream(batches);
    response
}

/// The refusal of a watch that did not begin.
enum Begin {
    /// The revision is compacted.
    Expired(Error),
    Refused(Refusal),
}

/// Begins a watch. Returns it with the revision of its initial state, if the end of that state is
/// to be marked.
async fn begin(
    registry: &Deps,
    target: &Target,
    options: insula_registry::WatchOptions,
    start: WatchStart,
) -> Result<(Watch, Option<Revision>), Begin> {
    let refused = |error: Error| match error {
        Error::Expired { .. } => Begin::Expired(error),
        other => Begin::Refused(Refusal::from(other)),
    };
    match start {
        WatchStart::State { at, bookmark } => {
            let snapshot = insula_pipeline::snapshot(registry, at, None)
                .await
                .map_err(Begin::Refused)?
                .charged_to(&target.served.meter);
            let watch = verbs::watch_with_state(registry, &snapshot, target, options)
                .await
                .map_err(refused)?;
            Ok((watch, bookmark.then(|| snapshot.revision())))
        }
        WatchStart::After(revision) => {
            // A server that lags behind another waits until it has seen the revision.
            insula_pipeline::snapshot(registry, ReadAt::NotOlderThan(revision), None)
                .await
                .map_err(Begin::Refused)?;
            Ok((
                verbs::watch_after(registry, revision, target, options).map_err(refused)?,
                None,
            ))
        }
        WatchStart::Now => {
            let now = insula_pipeline::snapshot(registry, ReadAt::Latest, None)
                .await
                .map_err(Begin::Refused)?
                .revision();
            Ok((
                verbs::watch_after(registry, now, target, options).map_err(refused)?,
                None,
            ))
        }
    }
}

fn content_type(format: Format) -> &'static str {
    match format {
        Format::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        Format::Json | Format::Yaml => format.content_type(),
    }
}

/// An occasion that a running watch waits for.
enum Wake {
    Events(Result<Vec<Event>, Error>),
    /// The state that the watch depends on may have changed.
    Changed,
    /// All events before the end are encoded.
    Last,
    Time(Tick),
    Closing,
}

impl Running {
    /// Returns the next batch of events; `None` at the end. Cancellation loses nothing.
    async fn next_batch(&mut self) -> Option<EncodedEvents> {
        let mut out = EncodedEvents::default();
        while !self.ended {
            if self.is_review_due {
                self.review(&mut out).await;
            } else if !self.unsent.is_empty() {
                self.encode(&mut out).await;
            } else if self.watch.is_live()
                && let Some(revision) = self.initial_end.take()
            {
                let marked = self.encoder.bookmark(revision, true, &mut out);
                self.end_on_error(marked, &mut out);
            } else {
                match self.wake().await {
                    Wake::Events(Ok(events)) => self.unsent = events.into(),
                    Wake::Events(Err(error)) => self.end_on_error(Err(error), &mut out),
                    Wake::Changed => self.last = self.ends_at(),
                    Wake::Time(Tick::Bookmark) => self.is_review_due = true,
                    ended @ (Wake::Last | Wake::Closing | Wake::Time(Tick::End)) => {
                        self.end(match ended {
                            Wake::Last => WatchEnd::Redefined,
                            Wake::Closing => WatchEnd::Shutdown,
                            _ => WatchEnd::Timeout,
                        });
                        // The last event tells the client at which revision to go on.
                        self.bookmark(&mut out);
                    }
                }
            }
            if !out.is_empty() {
                return Some(out);
            }
            // A watch whose changes are all filtered out must not keep its thread from others.
            if self.unsent.is_empty() {
                tokio::task::yield_now().await;
            }
        }
        None
    }

    /// Waits for the next occasion. Events have the lowest priority, so that a busy watch ends in
    /// time.
    async fn wake(&mut self) -> Wake {
        let Running {
            watch,
            dependencies,
            closing,
            times,
            registry,
            last,
            ..
        } = self;
        if let Some(last) = *last {
            let rest = match watch.position() < last {
                true => watch.next(registry).now_or_never(),
                false => None,
            };
            return rest.map_or(Wake::Last, Wake::Events);
        }
        tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => Wake::Closing,
            tick = times.next() => Wake::Time(tick),
            () = dependencies.changed(registry) => Wake::Changed,
            events = watch.next(registry) => Wake::Events(events),
        }
    }

    /// Returns the revision at which the watch has to end, if its dependencies no longer hold.
    /// Events up to it are still sent: a deleted definition deletes its objects, and may be gone
    /// before their events are encoded.
    fn ends_at(&self) -> Option<Revision> {
        let snapshot = self.registry.store.latest().charged_to(&self.watch.target.served.meter);
        let holds = dependencies::hold(&self.registry, &self.watch.target, &snapshot);
        (!holds).then(|| snapshot.revision())
    }

    /// Checks that the user may still watch: ends with the refusal, or sends a bookmark.
    async fn review(&mut self, out: &mut EncodedEvents) {
        let refusal = self.credentials.refusal(&self.authenticator, &self.registry).await;
        self.is_review_due = false;
        let latest = self.registry.store.measures().revision;
        let lag = latest.0.saturating_sub(self.watch.position().0);
        self.measured.measures.lag.observe_count(lag);
        match refusal {
            Some(status) => {
                self.end(WatchEnd::Forbidden);
                self.encoder.refusal(&status, out);
            }
            None => self.bookmark(out),
        }
    }

    /// Encodes the next unsent events. An object that cannot be rendered ends the watch with an
    /// ERROR.
    async fn encode(&mut self, out: &mut EncodedEvents) {
        let (target, cache) = (&self.watch.target, &self.registry.cache);
        let mut bytes = 0;
        let fits = |event: &&Event| {
            let fits = bytes < STEP_BYTES;
            bytes += event.entry.object.size();
            fits
        };
        let count = self.unsent.iter().take_while(fits).count();
        let step = &self.unsent.make_contiguous()[..count];
        let shown = self.encoder.events(target, cache, step, out).await;
        self.unsent.drain(..count);
        self.end_on_error(shown, out);
    }

    fn end(&mut self, why: WatchEnd) {
        self.ended = true;
        self.measured.end = why;
    }

    /// Ends the watch with an ERROR event if its last step failed.
    fn end_on_error(&mut self, step: Result<(), Error>, out: &mut EncodedEvents) {
        if let Err(error) = step {
            self.end(match &error {
                Error::Expired { .. } => WatchEnd::Expired,
                _ => WatchEnd::Error,
            });
            self.encoder.error(&error, out);
        }
    }

    /// Sends a bookmark to clients that want one and have all events before it.
    fn bookmark(&mut self, out: &mut EncodedEvents) {
        let is_complete = self.unsent.is_empty() && self.watch.is_live() && self.initial_end.is_none();
        if self.bookmarks && is_complete {
            let marked = self.encoder.bookmark(self.watch.position(), false, out);
            self.end_on_error(marked, out);
        }
    }
}
