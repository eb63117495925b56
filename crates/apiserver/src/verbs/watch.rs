//! Watches: streams of events, each flushed as it comes.

use super::ResourceRequest;
use crate::{
    limits::WatchPermit,
    negotiate::{Format, Supported},
    query::{ReadAt, WatchStart},
    reauthorize::Credentials,
    reply::{self, Reply},
    request::Answer,
    stage,
    watch_encoder::{EncodedEvents, Encoder},
};
use axum::body::Body;
use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt, stream::unfold};
use http::Response;
use insula_api::Revision;
use insula_auth::audit::Open;
use insula_registry::{Error, Event, Registry, Target, Watch, access::Authenticator};
use std::{collections::VecDeque, convert::Infallible, sync::Arc};
use tokio::sync::watch;

mod dependencies;
mod times;

use dependencies::Dependencies;
use times::{Tick, Times, lasting};

/// Bytes of objects that are encoded at once, rounded up to a whole event: what a client does not
/// take is not encoded.
const STEP_BYTES: usize = 128 << 10;

/// Everything that a running watch holds.
pub(crate) struct Running {
    registry: Arc<Registry>,
    authenticator: Arc<Authenticator>,
    watch: Watch,
    encoder: Encoder,
    /// Events that the watch has given and that are still to be encoded.
    unsent: VecDeque<Event>,
    dependencies: Dependencies,
    credentials: Credentials,
    /// True when it is time to check again that the user may watch.
    is_review_due: bool,
    times: Times,
    /// Whether the client wants bookmarks.
    bookmarks: bool,
    /// Whether the end of the initial state is still to be marked, and the revision of that state.
    initial_end: Option<Revision>,
    closing: watch::Receiver<bool>,
    /// Where it ends, once that is known.
    last: Option<Revision>,
    ended: bool,
    _place: WatchPermit,
    _record: Open,
}

/// What a watch sends.
pub(crate) enum Events {
    /// What happens.
    Running(Box<Running>),
    /// These, and no more.
    Last(Option<EncodedEvents>),
}

impl Events {
    /// All events, as far as they are asked for.
    pub(crate) fn stream(self) -> impl Stream<Item = EncodedEvents> {
        unfold(self, |mut events| async move {
            let frames = events.frames().await?;
            Some((frames, events))
        })
    }

    async fn frames(&mut self) -> Option<EncodedEvents> {
        match self {
            Events::Running(running) => running.frames().await,
            Events::Last(frames) => frames.take(),
        }
    }
}

/// Starts a watch.
pub(crate) async fn watch(request: &mut ResourceRequest<'_>) -> Answer {
    let negotiated = request.negotiate(Supported::Watch)?;
    let query = &request.request.parsed.query;
    let (mut options, start) = query.watch()?;
    if !request.name.is_empty() {
        options
            .fields
            .terms
            .push(("metadata.name".into(), request.name.clone(), true));
    }
    let timeout = lasting(query.timeout_seconds()?, request.server.registry.rng.next_u64());
    let bookmarks = query.flag("allowWatchBookmarks");
    let place = request
        .server
        .limits
        .watch(&request.request.parsed.payer, request.request.scope.cluster.as_ref())
        .map_err(Reply::from)?;
    let encoder = Encoder::new(request.renderer(negotiated)?, negotiated);
    let format = encoder.format();
    let registry = request.server.registry.clone();
    let target = registry.asking_to_watch(&request.target).into_owned();
    // From the state that resolved and authorised the request, whatever is waited for from here on.
    let dependencies = Dependencies::follow(&registry, &target, request.request.scope.snapshot.revision());
    let events = match begin(&registry, target, options, start).await {
        Ok((watch, initial_end)) => Events::Running(Box::new(Running {
            authenticator: request.server.authenticator.clone(),
            encoder,
            unsent: VecDeque::new(),
            dependencies,
            credentials: Credentials::from_request(&request.request.parsed),
            is_review_due: false,
            registry,
            watch,
            times: Times::new(timeout, request.server.bookmark_period),
            bookmarks,
            initial_end,
            closing: request.server.closing.clone(),
            last: None,
            ended: false,
            _place: place,
            _record: request.request.parsed.record.open(),
        })),
        // A revision that is gone is told within the stream: that is where clients look for it.
        Err(Begin::Expired(error)) => {
            let mut frames = EncodedEvents::default();
            encoder.error(&error, &mut frames);
            Events::Last(Some(frames))
        }
        Err(Begin::Refused(reply)) => return Err(reply),
    };
    let mut response = match request.request.parsed.upgrade.take() {
        Some(upgrade) => {
            let batches = events.stream().map(EncodedEvents::split);
            upgrade.send(&request.request.parsed.headers, batches, format)?
        }
        None => streamed(events, format),
    };
    reply::add_warnings(&mut response, &request.warnings);
    Ok(response)
}

/// An answer that goes on as long as there are events.
fn streamed(events: Events, format: Format) -> Response<Body> {
    let frames = events
        .stream()
        .map(move |events| Ok::<Bytes, Infallible>(events.into_stream_bytes(format)));
    let mut response = reply::bytes(200, Vec::new(), content_type(format));
    *response.body_mut() = Body::from_stream(frames);
    response
}

enum Begin {
    Expired(Error),
    Refused(Reply),
}

/// The watch, and the revision whose state it starts with if the end of that state is to be marked.
async fn begin(
    registry: &Registry,
    target: Target,
    options: insula_registry::WatchOptions,
    start: WatchStart,
) -> Result<(Watch, Option<Revision>), Begin> {
    let refused = |error: Error| match error {
        Error::Expired { .. } => Begin::Expired(error),
        other => Begin::Refused(Reply::error(&other)),
    };
    match start {
        WatchStart::State { at, bookmark } => {
            let snapshot = stage::snapshot(registry, at, None).await.map_err(Begin::Refused)?;
            registry.prepare_to_select(&target, &snapshot, &options.fields).await;
            let watch = registry.watch_with_state(&snapshot, target, options).map_err(refused)?;
            Ok((watch, bookmark.then(|| snapshot.revision())))
        }
        WatchStart::After(revision) => {
            // A server that lags behind another waits until it has seen the revision.
            stage::snapshot(registry, ReadAt::NotOlderThan(revision), None)
                .await
                .map_err(Begin::Refused)?;
            Ok((registry.watch_after(revision, target, options).map_err(refused)?, None))
        }
        WatchStart::Now => {
            let now = stage::snapshot(registry, ReadAt::Latest, None)
                .await
                .map_err(Begin::Refused)?
                .revision();
            Ok((registry.watch_after(now, target, options).map_err(refused)?, None))
        }
    }
}

fn content_type(format: Format) -> &'static str {
    match format {
        Format::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        Format::Json | Format::Yaml => format.content_type(),
    }
}

/// What a running watch waits for.
enum Wake {
    Events(Result<Vec<Event>, Error>),
    /// The state that it depends on may be another one.
    Changed,
    /// All that happened before the end has been told.
    Last,
    Time(Tick),
    Closing,
}

impl Running {
    /// The next events; `None` at the end. Cancelling loses nothing.
    async fn frames(&mut self) -> Option<EncodedEvents> {
        let mut out = EncodedEvents::default();
        while !self.ended {
            if self.is_review_due {
                self.review(&mut out).await;
            } else if !self.unsent.is_empty() {
                self.encode(&mut out).await;
            } else if self.watch.is_live()
                && let Some(revision) = self.initial_end.take()
            {
                self.encoder.bookmark(revision, true, &mut out);
            } else {
                match self.wake().await {
                    Wake::Events(Ok(events)) => self.unsent = events.into(),
                    Wake::Events(Err(error)) => {
                        self.ended = true;
                        self.encoder.error(&error, &mut out);
                    }
                    Wake::Changed => self.last = self.ends_at(),
                    Wake::Time(Tick::Bookmark) => self.is_review_due = true,
                    Wake::Last | Wake::Closing | Wake::Time(Tick::End) => {
                        self.ended = true;
                        // The last thing a client learns is where to go on.
                        self.bookmark(&mut out);
                    }
                }
            }
            if !out.is_empty() {
                return Some(out);
            }
            // A watch that has nothing to send for all its looking must not keep a thread from
            // others.
            if self.unsent.is_empty() {
                tokio::task::yield_now().await;
            }
        }
        None
    }

    /// Events come last: a busy watch, too, notices that it has to end.
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

    /// The revision at which the watch turned out to have to end. What happened up to it is still
    /// told: a definition that is deleted takes its objects along, and may be gone itself before
    /// their events were looked at.
    fn ends_at(&self) -> Option<Revision> {
        let snapshot = self.registry.store.latest();
        let holds = dependencies::hold(&self.registry, &self.watch.target, &snapshot);
        (!holds).then(|| snapshot.revision())
    }

    /// Checks that the user may still watch; says why not, or else where the watch stands.
    async fn review(&mut self, out: &mut EncodedEvents) {
        let refusal = self.credentials.refusal(&self.authenticator, &self.registry).await;
        self.is_review_due = false;
        match refusal {
            Some(status) => {
                self.ended = true;
                self.encoder.refusal(&status, out);
            }
            None => self.bookmark(out),
        }
    }

    /// Encodes the next of the events that have come. An object that cannot be shown ends the watch
    /// with an ERROR.
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
        if let Err(error) = shown {
            self.encoder.error(&error, out);
            self.ended = true;
        }
    }

    /// Where to go on, for clients that want to know and have all that came before.
    fn bookmark(&self, out: &mut EncodedEvents) {
        let is_complete = self.unsent.is_empty() && self.watch.is_live() && self.initial_end.is_none();
        if self.bookmarks && is_complete {
            self.encoder.bookmark(self.watch.position(), false, out);
        }
    }
}
