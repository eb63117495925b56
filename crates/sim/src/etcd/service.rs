//! The gRPC methods of a modelled etcd that a store calls, at one of its members, without a
//! network.

use crate::{
    Plant,
    dice::Dice,
    etcd::{
        model::{Member, State},
        runtime::Runtime,
    },
};
use etcd_client::proto::{
    PbCompactionRequest, PbCompactionResponse, PbDeleteRequest, PbDeleteResponse, PbEvent, PbPutRequest, PbPutResponse,
    PbRangeRequest, PbStatusRequest, PbStatusResponse, PbTxnOpRequest, PbTxnOpResponse, PbTxnRequest, PbTxnRequestOp,
    PbTxnResponse, PbWatchRequest, PbWatchRequestUnion, PbWatchResponse,
};
use futures_util::{Stream, StreamExt};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming, body::Body, server::Grpc};
use tonic_prost::ProstCodec;
use tower::service_fn;

/// Messages of a watch that a client has not taken.
const MESSAGES_MAX: usize = 4;
/// Greatest time between two messages of a watch that has something to say, in milliseconds.
const MESSAGE_PAUSE_MAX: usize = 40;
/// Greatest time between two notices of progress, in milliseconds.
const PROGRESS_MAX: usize = 5_000;

/// A modelled etcd.
pub(crate) struct Etcd {
    state: Mutex<State>,
    /// Changes with the state.
    changed: watch::Sender<()>,
    dice: Dice,
    runtime: Arc<Runtime>,
}

/// An open watch.
struct Watching {
    member: usize,
    /// Number of the member's watches when it was opened.
    opened: u64,
    range: (Vec<u8>, Vec<u8>),
    /// The revision at which it was opened, and that of its next event.
    first: i64,
    next: i64,
    /// The rest of a revision that a faulty etcd splits.
    left: Vec<PbEvent>,
}

/// The next message of a watch.
enum Message {
    Send(PbWatchResponse),
    /// There is nothing to say.
    Wait,
    End(Status),
}

impl Etcd {
    pub(crate) fn new(members: usize, plant: Option<Plant>, dice: Dice, runtime: Arc<Runtime>) -> Arc<Etcd> {
        Arc::new(Etcd {
            state: Mutex::new(State::new(members, plant, dice.fork())),
            changed: watch::Sender::new(()),
            dice,
            runtime,
        })
    }

    /// Reads or changes the state.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let done = work(&mut self.state.lock());
        self.changed.send_replace(());
        done
    }

    /// Answers a request at a member.
    pub(crate) async fn answer(self: Arc<Self>, member: usize, request: http::Request<Body>) -> http::Response<Body> {
        macro_rules! unary {
            ($method:ident) => {
                Grpc::new(ProstCodec::default())
                    .unary(
                        service_fn(|request: Request<_>| {
                            let etcd = self.clone();
                            async move {
                                etcd.$method(member, request.into_inner())
                                    .await
                                    .map(Response::new)
                            }
                        }),
                        request,
                    )
                    .await
            };
        }
        match request.uri().path() {
            "/etcdserverpb.KV/Range" => unary!(range),
            "/etcdserverpb.KV/Put" => unary!(put),
            "/etcdserverpb.KV/DeleteRange" => unary!(delete),
            "/etcdserverpb.KV/Txn" => unary!(txn),
            "/etcdserverpb.KV/Compact" => unary!(compact),
            "/etcdserverpb.Maintenance/Status" => unary!(status),
            "/etcdserverpb.Watch/Watch" => {
                let watch = service_fn(|request: Request<Streaming<PbWatchRequest>>| {
                    let etcd = self.clone();
                    async move { etcd.watch(member, request.into_inner()).await.map(Response::new) }
                });
                Grpc::new(ProstCodec::default()).streaming(watch, request).await
            }
            other => unreachable!("nothing calls {other}"),
        }
    }

    /// Waits until a member has a revision, and knows the leader.
    async fn reached(&self, member: usize, revision: i64) -> Result<(), Status> {
        let mut changed = self.changed.subscribe();
        loop {
            let (applied, is_leaderless) = self.with_member(member, |member| (member.applied, member.is_leaderless));
            if is_leaderless {
                return Err(Status::unavailable("etcdserver: no leader"));
            }
            if applied >= revision {
                return Ok(());
            }
            // The sender lives as long as `self`.
            let _ = changed.changed().await;
        }
    }

    fn with_member<T>(&self, member: usize, read: impl FnOnce(&Member) -> T) -> T {
        read(&self.state.lock().members[member])
    }

    async fn range(
        &self,
        member: usize,
        request: PbRangeRequest,
    ) -> Result<etcd_client::proto::PbRangeResponse, Status> {
        let now = self.state.lock().revision;
        let is_stale = self.state.lock().has(&Plant::AnswersStale);
        self.reached(member, if is_stale { 0 } else { now }).await?;
        let state = self.state.lock();
        state.range(&request, state.members[member].applied)
    }

    async fn txn(&self, member: usize, request: PbTxnRequest) -> Result<PbTxnResponse, Status> {
        if self.with_member(member, |member| member.is_leaderless) {
            return Err(Status::unavailable("etcdserver: no leader"));
        }
        let response = self.with(|state| state.transact(&request))?;
        // Executed, and told once this member has executed it, too.
        let revision = response.header.as_ref().map_or(0, |header| header.revision);
        match self.reached(member, revision).await {
            Ok(()) => Ok(response),
            Err(_) => Err(Status::unavailable("etcdserver: request timed out")),
        }
    }

    async fn one(&self, member: usize, operation: PbTxnOpRequest) -> Result<(i64, Option<PbTxnOpResponse>), Status> {
        let request = PbTxnRequest {
            success: vec![PbTxnRequestOp {
                request: Some(operation),
            }],
            ..PbTxnRequest::default()
        };
        let response = self.txn(member, request).await?;
        let revision = response.header.as_ref().map_or(0, |header| header.revision);
        Ok((
            revision,
            response.responses.into_iter().next().and_then(|one| one.response),
        ))
    }

    async fn put(&self, member: usize, request: PbPutRequest) -> Result<PbPutResponse, Status> {
        let (revision, _) = self.one(member, PbTxnOpRequest::RequestPut(request)).await?;
        Ok(PbPutResponse {
            header: State::header(revision),
            prev_kv: None,
        })
    }

    async fn delete(&self, member: usize, request: PbDeleteRequest) -> Result<PbDeleteResponse, Status> {
        let (revision, response) = self.one(member, PbTxnOpRequest::RequestDeleteRange(request)).await?;
        let Some(PbTxnOpResponse::ResponseDeleteRange(deleted)) = response else {
            unreachable!("a deletion is answered as one");
        };
        Ok(PbDeleteResponse {
            header: State::header(revision),
            ..deleted
        })
    }

    async fn compact(&self, member: usize, request: PbCompactionRequest) -> Result<PbCompactionResponse, Status> {
        self.reached(member, 0).await?;
        let now = self.with(|state| state.compact(request.revision).map(|()| state.revision))?;
        Ok(PbCompactionResponse {
            header: State::header(now),
        })
    }

    async fn status(&self, member: usize, _: PbStatusRequest) -> Result<PbStatusResponse, Status> {
        Ok(PbStatusResponse {
            header: State::header(self.with_member(member, |member| member.applied)),
            version: "3.6.0".to_owned(),
            ..PbStatusResponse::default()
        })
    }

    async fn watch(
        self: Arc<Self>,
        member: usize,
        mut requests: Streaming<PbWatchRequest>,
    ) -> Result<impl Stream<Item = Result<PbWatchResponse, Status>> + Send + 'static, Status> {
        self.reached(member, 0).await?;
        let (sender, messages) = mpsc::channel(MESSAGES_MAX);
        let runtime = self.runtime.clone();
        runtime.spawn("watch", async move {
            let Some(Ok(request)) = requests.next().await else {
                return;
            };
            let Some(PbWatchRequestUnion::CreateRequest(create)) = request.request_union else {
                unreachable!("a watch begins with its creation");
            };
            let (opened, applied) = self.with_member(member, |member| (member.watches, member.applied));
            let created = PbWatchResponse {
                header: State::header(applied),
                created: true,
                ..PbWatchResponse::default()
            };
            if sender.send(Ok(created)).await.is_err() {
                return;
            }
            let first = match create.start_revision {
                0 => applied + 1,
                start => start,
            };
            let watching = Watching {
                member,
                opened,
                range: (create.key, create.range_end),
                first,
                next: first,
                left: Vec::new(),
            };
            tokio::select! {
                biased;
                () = sender.closed() => {}
                () = self.feed(watching, &sender) => {}
                // The client sends nothing more as long as it listens.
                _ = requests.next() => {}
            }
        });
        Ok(ReceiverStream::new(messages))
    }

    /// Sends the messages of a watch, at times of the dice.
    async fn feed(&self, mut watching: Watching, sender: &mpsc::Sender<Result<PbWatchResponse, Status>>) {
        let mut changed = self.changed.subscribe();
        loop {
            let (message, is_last) = match self.message(&mut watching) {
                Message::Send(message) => {
                    let is_last = message.canceled;
                    (Ok(message), is_last)
                }
                Message::End(status) => (Err(status), true),
                Message::Wait => {
                    tokio::select! {
                        biased;
                        // The sender lives as long as `self`.
                        _ = changed.changed() => continue,
                        () = self.runtime.pause_below(&self.dice, PROGRESS_MAX) => {}
                    }
                    (Ok(self.progress(&watching)), false)
                }
            };
            if sender.send(message).await.is_err() || is_last {
                return;
            }
            self.runtime.pause_below(&self.dice, MESSAGE_PAUSE_MAX).await;
        }
    }

    /// Returns some revisions at once: as many as the dice say.
    fn message(&self, watching: &mut Watching) -> Message {
        let state = self.state.lock();
        let member = &state.members[watching.member];
        if member.watches != watching.opened || member.is_away || member.is_leaderless {
            return Message::End(Status::unavailable("etcdserver: no leader"));
        }
        if watching.next < state.compacted {
            return Message::Send(PbWatchResponse {
                header: State::header(member.applied),
                canceled: true,
                compact_revision: state.compacted,
                ..PbWatchResponse::default()
            });
        }
        let upto = member.applied.min(watching.next + self.dice.below(5) as i64);
        let mut events = std::mem::take(&mut watching.left);
        for revision in watching.next..=upto {
            let mut some = state.events((&watching.range.0, &watching.range.1), revision);
            if revision == watching.first && revision <= state.compacted {
                // A watch that is opened at exactly the revision of the compaction: etcd 3.4 does
                // not refuse it, and leaves out deletions.
                some.retain(|event| event.r#type == 0);
            }
            events.extend(some);
        }
        watching.next = watching.next.max(upto + 1);
        if state.has(&Plant::SplitsRevisions) && events.len() > 1 && self.dice.chance(10) {
            watching.left = events.split_off(events.len() / 2);
        }
        match events.is_empty() {
            true if watching.next > member.applied => Message::Wait,
            true => Message::Send(PbWatchResponse {
                header: State::header(upto),
                ..PbWatchResponse::default()
            }),
            false => Message::Send(PbWatchResponse {
                header: State::header(member.applied),
                events,
                ..PbWatchResponse::default()
            }),
        }
    }

    /// Says that the watch has told everything up to its member's revision.
    fn progress(&self, watching: &Watching) -> PbWatchResponse {
        let applied = self.with_member(watching.member, |member| member.applied);
        PbWatchResponse {
            header: State::header(applied.min(watching.next - 1)),
            ..PbWatchResponse::default()
        }
    }
}
