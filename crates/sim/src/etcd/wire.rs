//! The way from a store to a member of the modelled etcd, on which requests and answers are late
//! or lost.

use crate::{
    dice::Dice,
    etcd::{runtime::Runtime, service::Etcd},
};
use etcd_client::Channel;
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};
use tokio::sync::oneshot;
use tonic::{Status, body::Body};
use tower::{service_fn, util::BoxCloneSyncService};

/// Percentages of requests by what becomes of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Losses {
    /// It never arrives. The pings of the connection tell.
    pub(crate) request: usize,
    /// It is executed, and its answer never arrives. The pings of the connection tell.
    pub(crate) answer: usize,
    /// The connection breaks before or after it is executed.
    pub(crate) broken: usize,
    /// It arrives so late that the client has given up, and is executed then.
    pub(crate) late: usize,
}

/// Greatest time that a request is on its way, in milliseconds; and one that is late.
const DELAY_MAX: usize = 20;
const LATE_MAX: usize = 20_000;
/// Time until a connection without answers is known to be broken: that of a ping, and of the
/// waiting for its answer.
const SILENCE: Duration = Duration::from_secs(7);

/// All ways to one etcd.
pub(crate) struct Wires {
    pub(crate) etcd: Arc<Etcd>,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) dice: Dice,
    pub(crate) losses: Mutex<Losses>,
}

/// Passage of one request.
enum Passage {
    Arrives,
    IsLost,
    LosesItsAnswer,
    Breaks { before: bool },
    IsLate,
}

impl Wires {
    /// Returns the channel to a member.
    pub(crate) fn channel(self: &Arc<Self>, member: usize) -> Channel {
        let (wires, runtime) = (self.clone(), self.runtime.clone());
        let service = service_fn(move |request: http::Request<Body>| {
            let (wires, is_watch) = (wires.clone(), request.uri().path().ends_with("/Watch"));
            let (answered, answer) = oneshot::channel();
            // Another task: the request goes its way when the client has given up.
            runtime.spawn("request", async move {
                let response = match is_watch {
                    true => wires.deliver(member, request).await,
                    false => wires.transfer(member, request).await,
                };
                // The client may have given up.
                drop(answered.send(response));
            });
            async move {
                let gone = |_| Status::unavailable("the world has ended");
                answer.await.map_err(gone)?.map_err(tower::BoxError::from)
            }
        });
        Channel::Custom(BoxCloneSyncService::new(service))
    }

    fn passage(&self) -> Passage {
        let losses = *self.losses.lock();
        let weights = [losses.request, losses.answer, losses.broken, losses.late];
        let arrives = 100 - weights.iter().sum::<usize>();
        let [request, answer, broken, late] = weights;
        match self.dice.weighted(&[arrives, request, answer, broken, late]) {
            0 => Passage::Arrives,
            1 => Passage::IsLost,
            2 => Passage::LosesItsAnswer,
            3 => Passage::Breaks {
                before: self.dice.chance(50),
            },
            _ => Passage::IsLate,
        }
    }

    /// Transfers a request to a member, and its answer back.
    async fn transfer(&self, member: usize, request: http::Request<Body>) -> Result<http::Response<Body>, Status> {
        let broken = || Err(Status::unknown("connection reset"));
        let passage = self.passage();
        let way = match passage {
            Passage::IsLost => {
                self.runtime.pause(SILENCE).await;
                return broken();
            }
            Passage::Breaks { before: true } => return broken(),
            Passage::IsLate => LATE_MAX,
            _ => DELAY_MAX,
        };
        self.pause(way).await;
        let answer = self.deliver(member, request).await;
        self.pause(DELAY_MAX).await;
        match passage {
            Passage::LosesItsAnswer => {
                self.runtime.pause(SILENCE).await;
                broken()
            }
            Passage::Breaks { .. } => broken(),
            _ => answer,
        }
    }

    async fn deliver(&self, member: usize, request: http::Request<Body>) -> Result<http::Response<Body>, Status> {
        if self.etcd.with(|state| state.members[member].is_away) {
            return Err(Status::unavailable("tcp connect error"));
        }
        Ok(self.etcd.clone().answer(member, request).await)
    }

    async fn pause(&self, greatest: usize) {
        self.runtime.pause_below(&self.dice, greatest).await;
    }
}
