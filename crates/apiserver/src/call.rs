//! gRPC calls: what they share with requests over HTTP, before and while a service answers them.
//!
//! A call is admitted at the same [edge](crate::edge) and then handed to a service, with its
//! [`Caller`] among its extensions. The service learns from the message which workspace the call is
//! about, asks [`Caller::permit`] for each right, and then [enters](ApiServer::enter) the
//! workspace: from there on it pays for the call.

use crate::{
    fair_share::{ConnectionMeter, Tenant, ThrottleSlot},
    impersonate,
    limits::CountedPermit,
    reply::Reply,
    request::{Answer, Parsed},
    server::ApiServer,
    stage::Authenticated,
    status,
};
use axum::body::{Body, Bytes};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use insula_api::{ClusterName, ClusterPath};
use insula_auth::{Attributes, ClusterFacts, Forbidden, Permit, USER_ANONYMOUS, UserInfo, audit::Record, permit};
use insula_registry::access;
use insula_store::Snapshot;
use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Sleep, sleep};

/// A gRPC call and what its headers say about it.
pub struct Call {
    /// The request, its body unread.
    pub request: Request<Body>,
    /// The workspace whose own issuers may vouch for the caller.
    pub workspace: Option<ClusterPath>,
    /// The time that the client gives it.
    pub time: Option<Duration>,
    /// Callers that may make it.
    pub access: Access,
    /// True when its answer is a stream, which counts as a watch.
    pub streams: bool,
}

/// Callers that may make a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Anybody; credentials are not looked at. For health.
    Open,
    /// Whoever shows a credential.
    Authenticated,
}

/// A refusal in HTTP's terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The status code.
    pub code: u16,
    /// For people.
    pub message: String,
    /// Seconds after which the call may be made again.
    pub retry_after: Option<u32>,
}

impl From<Reply> for Refusal {
    fn from(reply: Reply) -> Self {
        let status = match reply {
            Reply::Status(status) | Reply::Warned(status, _) => *status,
            Reply::NotFoundPage | Reply::HomeIsComing => status::bad_request("nothing is served at this path"),
        };
        Refusal {
            code: status.code,
            message: status.message().to_owned(),
            retry_after: status.retry_after,
        }
    }
}

/// The sender of an admitted call. An extension of the request that a service gets.
pub struct Caller {
    user: UserInfo,
    /// The user who showed the credential, where they act as another.
    impersonator: Option<UserInfo>,
    payer: Arc<str>,
    meter: Option<Arc<ConnectionMeter>>,
    record: Record,
}

/// A workspace that answers a call and pays for it.
pub struct Entered {
    _permit: CountedPermit,
    turn: ThrottleSlot,
}

impl ApiServer {
    /// Serves a gRPC call through the edge.
    ///
    /// # Errors
    /// The refusal of a call that came to no service, or did not end in its time.
    pub async fn call<F>(&self, call: Call, serve: impl FnOnce(Request<Body>) -> F) -> Result<Response<Body>, Refusal>
    where
        F: Future<Output = Response<Body>>,
    {
        let record = call.request.extensions().get::<Record>().cloned().unwrap_or_default();
        let most = self.limits.settings.request_time;
        let time = call.time.map_or(most, |time| time.min(most));
        let called = self.called(call, serve);
        self.guarded(time, &record, called).await.map_err(Refusal::from)
    }

    async fn called<F>(&self, call: Call, serve: impl FnOnce(Request<Body>) -> F) -> Answer
    where
        F: Future<Output = Response<Body>>,
    {
        let Call {
            request,
            workspace,
            time,
            access,
            streams,
        } = call;
        // What the client gives counts for all of a stream; our own limit is for what comes before
        // it.
        let end = time.filter(|_| streams).map(|time| Box::pin(sleep(time)));
        let (request, payer, permit) = match access {
            Access::Open => (request, Arc::from(USER_ANONYMOUS), None),
            Access::Authenticated => {
                let meter = request.extensions().get::<Arc<ConnectionMeter>>().cloned();
                let (authenticated, permit) = self.admit(Parsed::call(request, workspace)).await?;
                let (request, caller) = authenticated.into_call(meter)?;
                self.charge(&caller).await?;
                (request, caller.payer.clone(), Some(permit))
            }
        };
        let held: Option<Box<dyn Any + Send>> = match streams {
            true => Some(Box::new(self.limits.watch(&payer, None)?)),
            false => permit.map(|permit| -> Box<dyn Any + Send> { Box::new(permit) }),
        };
        let response = serve(request).await;
        Ok(response.map(|body| {
            let answered = Answered {
                body: Some(body),
                end,
                _held: held,
            };
            Body::new(answered)
        }))
    }

    /// Has the caller pay for the connection, until a workspace does.
    async fn charge(&self, caller: &Caller) -> Result<(), Reply> {
        let Some(meter) = &caller.meter else { return Ok(()) };
        let turn = self.fair_share.turn(meter, &Tenant::User(caller.payer.clone())).await;
        turn.map(drop)
            .map_err(|spent| status::too_many_requests(&spent.to_string()).into())
    }

    /// Has a workspace answer a call of somebody who may make it: from here on it pays for it,
    /// within its limits.
    ///
    /// # Errors
    /// The limit that the workspace is at.
    pub async fn enter(&self, caller: &Caller, cluster: &ClusterName) -> Result<Entered, Refusal> {
        let refused = |status| Refusal::from(Reply::from(status));
        let permit = self.limits.in_workspace(cluster).map_err(refused)?;
        let turn = match &caller.meter {
            Some(meter) => self.fair_share.turn(meter, &Tenant::Workspace(cluster.clone())).await,
            None => Ok(ThrottleSlot::default()),
        };
        let turn = turn.map_err(|spent| refused(status::too_many_requests(&spent.to_string())))?;
        Ok(Entered { _permit: permit, turn })
    }
}

impl Entered {
    /// Does what the workspace was entered for.
    pub async fn hold<T>(self, work: impl Future<Output = T>) -> T {
        self.turn.hold(work).await
    }
}

impl Authenticated {
    /// The call with its caller, who is not anonymous.
    fn into_call(self, meter: Option<Arc<ConnectionMeter>>) -> Result<(Request<Body>, Arc<Caller>), Reply> {
        let (parsed, user, impersonator) = self.into_parts();
        if user.name == USER_ANONYMOUS {
            parsed.record.refused("no credential was shown");
            return Err(Reply::unauthorized());
        }
        let caller = Arc::new(Caller {
            user,
            impersonator,
            payer: parsed.payer,
            meter,
            record: parsed.record,
        });
        let mut request = Request::new(parsed.body);
        *request.method_mut() = parsed.method;
        *request.uri_mut() = parsed.uri;
        *request.headers_mut() = parsed.headers;
        request.extensions_mut().insert(Arc::clone(&caller));
        Ok((request, caller))
    }
}

impl Caller {
    /// The name of the account that pays while no workspace does.
    pub fn payer(&self) -> &Arc<str> {
        &self.payer
    }

    /// The record of the call.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The user as whom the caller acts beside all workspaces.
    ///
    /// # Errors
    /// The caller may not act as that user there.
    pub fn user(&self) -> Result<&UserInfo, Forbidden> {
        if let Some(caller) = &self.impersonator {
            impersonate::allowed(caller, &self.user, None, &ClusterFacts::default()).map_err(|refused| refused.1)?;
        }
        Ok(&self.user)
    }

    /// The message of a refusal, as it is told where nothing else may be.
    pub fn forbidden_message(&self, attributes: &Attributes) -> String {
        insula_auth::forbidden_message(&self.user, attributes)
    }

    /// Asks for a right in a cluster at a state. Who acts as another is asked for the right to do
    /// so there, as over HTTP.
    ///
    /// # Errors
    /// The refusal.
    pub fn permit(&self, snapshot: &Snapshot, cluster: &ClusterName, asked: Attributes) -> Result<Permit, Forbidden> {
        let asked = Attributes {
            cluster: Some(cluster.clone()),
            ..asked
        };
        let facts = access::facts(snapshot, cluster);
        let Some(caller) = &self.impersonator else {
            return permit(&self.user, asked, &facts);
        };
        let mut user = self.user.clone();
        impersonate::confine(&mut user, cluster);
        impersonate::allowed(caller, &user, Some(cluster), &facts).map_err(|refused| refused.1)?;
        permit(&user, asked, &facts)
    }
}

/// The body of an answer. It keeps the permit of its call until it has been sent, ends with the
/// time that the client gave, and keeps a panic inside, as the guard does before it.
struct Answered {
    /// Nothing after its end.
    body: Option<Body>,
    end: Option<Pin<Box<Sleep>>>,
    _held: Option<Box<dyn Any + Send>>,
}

/// The codes of gRPC that a stream may be broken off with.
#[derive(Debug, Clone, Copy)]
enum Broken {
    DeadlineExceeded = 4,
    Internal = 13,
}

impl Answered {
    fn broken_off(&mut self, code: Broken) -> Option<Result<Frame<Bytes>, axum::Error>> {
        self.body = None;
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from(code as u16));
        Some(Ok(Frame::trailers(trailers)))
    }
}

impl HttpBody for Answered {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(body).poll_frame(context)));
        match polled {
            Ok(Poll::Ready(frame)) => return Poll::Ready(frame),
            Ok(Poll::Pending) => {}
            Err(_) => return Poll::Ready(self.broken_off(Broken::Internal)),
        }
        let late = self
            .end
            .as_mut()
            .is_some_and(|end| end.as_mut().poll(context).is_ready());
        match late {
            true => Poll::Ready(self.broken_off(Broken::DeadlineExceeded)),
            false => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}
