//! Watches on the wire: events flushed as they come.

use crate::{
    frames::{Encoder, Frames},
    handle::{Answer, ResourceRequest},
    limits::WatchPlace,
    negotiate::{Format, Offer},
    query::{At, WatchStart},
    reply::{self, Reply},
    stage,
};
use axum::body::Body;
use bytes::Bytes;
use futures_util::FutureExt;
use http::Response;
use insula_api::{ClusterName, Revision, Scope};
use insula_auth::audit::Open;
use insula_registry::{
    Error, Event, Origin, Registry, Target, Watch, ids, locate,
    view::{By, Sight},
};
use insula_store::{Cursor, Snapshot};
use std::{convert::Infallible, future::pending, sync::Arc};
use tokio::sync::watch;

mod times;

use times::{BOOKMARK_PERIOD, Tick, Times, lasting};

/// Everything that a running watch holds.
pub(crate) struct Running {
    registry: Arc<Registry>,
    watch: Watch,
    encoder: Encoder,
    /// Events that the watch has given and that are still to be encoded.
    unsent: Vec<Event>,
    /// Changes of what defines the resource.
    definition: Vec<Cursor>,
    /// Changes of the LogicalCluster: who watches may have to go.
    gate: Option<Cursor>,
    times: Times,
    /// Whether the client wants bookmarks.
    bookmarks: bool,
    /// Whether the end of the initial state is still to be marked, and the revision of that state.
    initial_end: Option<Revision>,
    closing: watch::Receiver<bool>,
    /// Where it ends, once that is known.
    last: Option<Revision>,
    ended: bool,
    _place: WatchPlace,
    _record: Open,
}

/// What a watch sends.
pub(crate) enum Events {
    /// What happens.
    Running(Box<Running>),
    /// These, and no more.
    Last(Option<Frames>),
}

impl Events {
    /// The next events; `None` at the end. Cancelling loses nothing.
    pub(crate) async fn frames(&mut self) -> Option<Frames> {
        match self {
            Events::Running(running) => running.frames().await,
            Events::Last(frames) => frames.take(),
        }
    }
}

/// Starts a watch.
pub(crate) async fn watch(request: &mut ResourceRequest<'_>) -> Answer {
    let negotiated = request.negotiate(Offer::Watch)?;
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
        .watch(&request.request.parsed.payer, request.request.place.cluster.as_ref())
        .map_err(Reply::from)?;
    let encoder = Encoder::new(request.renderer(negotiated)?, negotiated);
    let format = encoder.format();
    let registry = request.server.registry.clone();
    let target = registry.asking_to_watch(&request.target).into_owned();
    let events = match begin(&registry, target.clone(), options, start).await {
        Ok((watch, initial_end)) => Events::Running(Box::new(Running {
            encoder,
            unsent: Vec::new(),
            definition: definition_cursors(&registry, &target),
            gate: gate(&registry, &target),
            registry,
            watch,
            times: Times::new(timeout, BOOKMARK_PERIOD),
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
            let mut frames = Frames::default();
            encoder.error(&error, &mut frames);
            Events::Last(Some(frames))
        }
        Err(Begin::Refused(reply)) => return Err(reply),
    };
    let mut response = match request.request.parsed.upgrade.take() {
        Some(upgrade) => upgrade.send(&request.request.parsed.headers, events, format)?,
        None => streamed(events, format),
    };
    reply::add_warnings(&mut response, &request.warnings);
    Ok(response)
}

/// An answer that goes on as long as there are events.
fn streamed(events: Events, format: Format) -> Response<Body> {
    let frames = futures_util::stream::unfold(events, move |mut events| async move {
        let frames = events.frames().await?;
        Some((Ok::<Bytes, Infallible>(frames.streamed(format)), events))
    });
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
            stage::snapshot(registry, At::NotOlderThan(revision), None)
                .await
                .map_err(Begin::Refused)?;
            Ok((registry.watch_after(revision, target, options).map_err(refused)?, None))
        }
        WatchStart::Now => {
            let now = stage::snapshot(registry, At::Latest, None)
                .await
                .map_err(Begin::Refused)?
                .revision();
            Ok((registry.watch_after(now, target, options).map_err(refused)?, None))
        }
    }
}

/// What tells that the resource is defined anew or no more: built-ins never are.
fn definition_cursors(registry: &Registry, target: &Target) -> Vec<Cursor> {
    let claims = Scope::cluster(ids::claims(), target.cluster.clone());
    // A view changes with its export, and what it shows with the export's schemas.
    if let Sight::Across(across) = &target.sight {
        let exports = Scope::cluster(ids::apiexports(), target.cluster.clone());
        let bundles = Scope::cluster(ids::bundles(), ClusterName::bound_crds());
        let scopes = match across.by {
            By::Provider(_) => vec![exports, bundles],
            By::Everybody | By::Consumer(_) => Vec::new(),
        };
        return cursors(registry, scopes);
    }
    let source = match &target.served.origin {
        Origin::System => return Vec::new(),
        Origin::Bound { .. } => Scope::cluster(ids::bundles(), ClusterName::bound_crds()),
        Origin::Local { .. } => Scope::cluster(ids::customresourcedefinitions(), target.cluster.clone()),
    };
    cursors(registry, vec![claims, source])
}

/// What tells that a cluster is switched off, is gone, or waits no longer for the one who watches.
fn gate(registry: &Registry, target: &Target) -> Option<Cursor> {
    let is_one = !target.is_across() && !target.cluster.is_system();
    let scope = Scope::cluster(ids::logicalclusters(), target.cluster.clone());
    let now = registry.store.latest().revision();
    registry.store.watch(scope, now).ok().filter(|_| is_one)
}

fn cursors(registry: &Registry, scopes: Vec<Scope>) -> Vec<Cursor> {
    let now = registry.store.latest().revision();
    scopes
        .into_iter()
        .filter_map(|scope| registry.store.watch(scope, now).ok())
        .collect()
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
    Redefined,
    Gate,
    /// All that happened before the end has been told.
    Last,
    Time(Tick),
    Closing,
}

impl Running {
    /// The next events; `None` at the end. Cancelling loses nothing.
    async fn frames(&mut self) -> Option<Frames> {
        let mut out = Frames::default();
        while !self.ended {
            if !self.unsent.is_empty() {
                return Some(self.unsent().await);
            }
            if self.watch.is_live()
                && let Some(revision) = self.initial_end.take()
            {
                self.encoder.bookmark(revision, true, &mut out);
                return Some(out);
            }
            match self.wake().await {
                Wake::Events(Ok(events)) => self.unsent = events,
                Wake::Events(Err(error)) => {
                    self.ended = true;
                    self.encoder.error(&error, &mut out);
                }
                Wake::Redefined => self.last = self.redefined_at(),
                Wake::Gate if self.is_open() => {}
                Wake::Time(Tick::Bookmark) => self.bookmark(&mut out),
                Wake::Last | Wake::Gate | Wake::Closing | Wake::Time(Tick::End) => {
                    self.ended = true;
                    // The last thing a client learns is where to go on.
                    self.bookmark(&mut out);
                }
            }
            if !out.is_empty() {
                return Some(out);
            }
        }
        None
    }

    async fn wake(&mut self) -> Wake {
        let Running {
            watch,
            definition,
            gate,
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
        let redefined = async {
            match definition.as_mut_slice() {
                [claims, source] => tokio::select! {
                    _ = claims.next() => {}
                    _ = source.next() => {}
                },
                _ => pending().await,
            }
        };
        let gated = async {
            match gate {
                Some(gate) => drop(gate.next().await),
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            events = watch.next(registry) => Wake::Events(events),
            () = redefined => Wake::Redefined,
            () = gated => Wake::Gate,
            tick = times.next() => Wake::Time(tick),
            _ = closing.wait_for(|closing| *closing) => Wake::Closing,
        }
    }

    /// Whether the cluster still lets its content be watched. It tells about itself even when it is switched off.
    fn is_open(&self) -> bool {
        let target = &self.watch.target;
        let snapshot = self.registry.store.latest();
        let itself = target.served.resource_id() == ids::logicalclusters();
        let awaited = match &target.sight {
            Sight::For(duty) => duty.is_awaited(&snapshot, &target.cluster),
            Sight::Within | Sight::Through(_) | Sight::Across(_) => true,
        };
        awaited && locate::logical_cluster(&snapshot, &target.cluster).is_some_and(|view| itself || !view.inactive)
    }

    /// The revision at which the resource turned out to be another one. What happened up to it is still told: a definition that is
    /// deleted takes its objects along, and may be gone itself before their events were looked at.
    fn redefined_at(&self) -> Option<Revision> {
        let snapshot = self.registry.store.latest();
        self.is_redefined(&snapshot).then(|| snapshot.revision())
    }

    fn is_redefined(&self, snapshot: &Snapshot) -> bool {
        let target = &self.watch.target;
        let Target { cluster, served, .. } = target;
        if let Sight::Across(across) = &target.sight {
            // Other generations are shown as they come; the watch ends with the version.
            let By::Provider(through) = &across.by else {
                return false;
            };
            let (catalog, api) = (&self.registry.catalog, &served.api);
            let now = through.export.resolve(catalog, snapshot, &api.group, &api.names.plural);
            return now.is_none_or(|now| {
                now.identity != served.identity || !now.served_versions().any(|known| known.name == target.version)
            });
        }
        let now = self
            .registry
            .catalog
            .resolve(snapshot, cluster, served.group(), &served.names().plural);
        now.is_none_or(|now| now.api.fingerprint != served.api.fingerprint || now.identity != served.identity)
    }

    /// Events that have come. An object that cannot be shown ends the watch with an ERROR.
    async fn unsent(&mut self) -> Frames {
        let (target, cache) = (&self.watch.target, &self.registry.cache);
        let (mut out, shown) = self.encoder.events(target, cache, &self.unsent).await;
        self.unsent.clear();
        if let Err(error) = shown {
            self.encoder.error(&error, &mut out);
            self.ended = true;
        }
        out
    }

    /// Where to go on, for clients that want to know.
    fn bookmark(&self, out: &mut Frames) {
        if self.bookmarks {
            self.encoder.bookmark(self.watch.position(), false, out);
        }
    }
}
