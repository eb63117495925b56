//! gRPC calls: admission, limits and time, as for requests over HTTP.
//!
//! The edge (`edge.rs`) admits a call and hands it to a service, with its [`Caller`]. The service
//! reads the workspace from the message, asks [`Caller::permit`] for each right, and then
//! [enters](ApiServer::enter) the workspace: from there on the call counts against the workspace's
//! limits.

mod inner;
mod objects;
mod request;

use crate::{
    request::{Answer, Parsed},
    request_stages::Authenticated,
    server::ApiServer,
};
use axum::body::Body;
use futures_util::{FutureExt, future::BoxFuture};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
pub use inner::{Lines, Unserved};
use insula_api::{ClusterName, ClusterPath, Timestamp, Uid, measure::TRACE};
use insula_auth::{
    Attributes, ClusterFacts, EXTRA_CREDENTIAL, Forbidden, Permit, USER_ANONYMOUS, UserInfo, audit::Record, permit,
};
use insula_catalog::locate;
use insula_edge::{
    guard::{
        fair_share::{Charged, ConnectionMeter, ThrottleSlot},
        limits::{CountedPermit, InFlightPermit},
    },
    port::{
        Arrival, Cut, GuardedBody, LastFrame,
        crossing::{self, Carried},
    },
};
use insula_meter::Meter;
use insula_pipeline::{
    Refusal, Sender,
    impersonation::{self, GROUP_FRONT, SERVICE_ACCOUNT},
};
use insula_store::Snapshot;
pub use objects::{Done, Page};
pub use request::{Action, CallPath, ObjectRequest, PageRequest, WatchRequest};
use std::{
    any::Any,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::Notify, time::sleep};
use tracing::Instrument;

/// Annotation of an audit event with the id of the call that made the request.
const CALL_ID: &str = "insula.io/call-id";

/// Distinct warnings of a call that are kept.
const WARNINGS_MAX: usize = 16;

/// A gRPC call with the parameters of its headers.
pub struct Call {
    /// The request, its body unread.
    pub request: Request<Body>,
    /// The facts about it.
    pub arrival: Arrival,
    /// The workspace whose own issuers may authenticate the caller.
    pub workspace: Option<ClusterPath>,
    /// The deadline that the client sets.
    pub time: Option<Duration>,
    /// Access that the method takes.
    pub access: Access,
    /// True when its answer is a stream, which counts as a watch.
    pub streams: bool,
    /// Time of the call at most, unless it is that of a request.
    pub longest: Option<Duration>,
}

/// Access that a method takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// None: credentials are not read. For health.
    Open,
    /// A valid credential.
    Authenticated,
}

/// The sender of an admitted call.
pub struct Caller {
    sender: Sender,
    payer: Arc<str>,
    meter: Option<Arc<ConnectionMeter>>,
    /// Pays for the work of the call.
    work: Meter,
    /// Notified when the client does not wait any more, and the call goes on.
    gone: Notify,
    record: Record,
    /// Warnings of the requests that the call has made.
    warnings: Mutex<Vec<String>>,
    /// Path of the method.
    method: String,
    inner: inner::Sender,
}

/// An admitted call: its sender, with its permit. Work that goes on when its caller is gone keeps
/// it.
#[derive(Clone)]
pub struct Admitted {
    /// The sender.
    pub caller: Arc<Caller>,
    _permit: Arc<InFlightPermit>,
}

impl Carried for Caller {}

/// The reason why a caller cannot have a certificate.
#[derive(Debug)]
pub enum NotCertifiable {
    /// A right that is missing.
    Forbidden(Forbidden),
    /// A fact about the identity.
    Because(&'static str),
}

/// A workspace that answers a call, with the permits of the call.
pub struct Entered {
    _permit: CountedPermit,
    slot: ThrottleSlot,
}

impl ApiServer {
    /// Serves a gRPC call through the edge.
    ///
    /// # Errors
    /// The refusal of a call that is not admitted, or not answered in its time.
    pub async fn call<F>(
        &self,
        call: Call,
        serve: impl FnOnce(Request<Body>, Option<Admitted>) -> F,
    ) -> Result<Response<Body>, Refusal>
    where
        F: Future<Output = Response<Body>>,
    {
        let (record, meter) = (call.arrival.record.clone(), call.arrival.work.clone());
        let most = call.longest.unwrap_or(self.limits.settings.request_time);
        let time = call.time.map_or(most, |time| time.min(most));
        let called = pin!(self.called(call, serve));
        self.guarded(time, (&record, &meter), called).await
    }

    async fn called<F>(&self, call: Call, serve: impl FnOnce(Request<Body>, Option<Admitted>) -> F) -> Answer
    where
        F: Future<Output = Response<Body>>,
    {
        let Call {
            request,
            arrival,
            workspace,
            time,
            access,
            streams,
            longest: _,
        } = call;
        // The client's deadline holds for a whole stream; the server's limit only until the stream
        // begins.
        let end = time.filter(|_| streams).map(|time| sleep(time).boxed());
        let (request, payer, admitted) = match access {
            Access::Open => (request, Arc::from(USER_ANONYMOUS), None),
            Access::Authenticated => {
                let (authenticated, permit) = self.admit(Parsed::call(request, arrival, workspace)).await?;
                let (request, caller) = authenticated.into_call()?;
                self.charge_caller(&caller).await?;
                let payer = caller.payer.clone();
                let _permit = Arc::new(permit);
                (request, payer, Some(Admitted { caller, _permit }))
            }
        };
        let held: Option<Box<dyn Any + Send>> = match streams {
            true => Some(Box::new(self.limits.watch(Some(&payer), None, None)?)),
            false => admitted
                .clone()
                .map(|admitted| -> Box<dyn Any + Send> { Box::new(admitted) }),
        };
        let response = serve(request, admitted).await;
        Ok(response.map(|body| GuardedBody::wrap(body, end, last_frame, held)))
    }

    /// Charges the connection to the caller, until the call enters a workspace.
    async fn charge_caller(&self, caller: &Caller) -> Result<(), Refusal> {
        let charged = Charged::user(caller.payer.clone());
        Ok(self.tenants().slot(caller.meter.as_deref(), &charged).await.map(drop)?)
    }

    /// Enters a workspace with an authorised call, which counts against the workspace's limits from
    /// here on.
    ///
    /// # Errors
    /// The limit that the workspace has reached.
    pub fn enter<'a>(
        &'a self,
        caller: &'a Caller,
        cluster: &'a ClusterName,
    ) -> BoxFuture<'a, Result<Entered, Refusal>> {
        Box::pin(async move {
            let view = locate::logical_cluster(&self.registry.store.latest(), cluster);
            let entering = self.tenants().enter(cluster, view.as_deref(), caller.meter.as_deref());
            let (permit, slot) = entering.await?;
            Ok(Entered { _permit: permit, slot })
        })
    }
}

impl Entered {
    /// Does the work of the call within the workspace's throttle slot.
    // No bound `Send`: each caller would prove it for all that its work holds.
    pub async fn run<T>(self, work: impl Future<Output = T>) -> T {
        let span = tracing::info_span!(target: TRACE, "registry");
        self.slot.run(pin!(work.instrument(span))).await
    }
}

impl Authenticated {
    /// Returns the call with its caller, who is not anonymous.
    fn into_call(self) -> Result<(Request<Body>, Arc<Caller>), Refusal> {
        let (parsed, sender) = self.into_parts();
        if sender.user.name == USER_ANONYMOUS {
            parsed.record.refused("no credential was shown");
            return Err(Refusal::Unauthenticated);
        }
        let caller = Arc::new(Caller {
            inner: inner::Sender::from_request(&parsed),
            method: parsed.uri.path().to_owned(),
            sender,
            payer: parsed.payer,
            meter: parsed.meter,
            work: parsed.work,
            gone: Notify::default(),
            record: parsed.record,
            warnings: Mutex::default(),
        });
        let mut request = Request::new(parsed.body);
        *request.method_mut() = parsed.method;
        *request.uri_mut() = parsed.uri;
        *request.headers_mut() = parsed.headers;
        crossing::pass_caller(&mut request, Arc::clone(&caller));
        Ok((request, caller))
    }
}

impl Caller {
    /// The account whose limits the call counts against, as long as it has entered no workspace.
    pub fn payer(&self) -> &Arc<str> {
        &self.payer
    }

    /// Name of the user as whom the caller acts.
    pub fn name(&self) -> &str {
        &self.sender.user.name
    }

    /// Path of the method: `/insula.admin.v1.ClusterService/GetInfo`.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The record of the call.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Starts the record of a request that the call makes within the server.
    fn begin_record(&self, server: &ApiServer, uri: impl FnOnce() -> String) -> inner::Recorded {
        let named = || (Uid::random(&*server.registry.rng).to_string(), uri());
        inner::Recorded(self.inner.origin.record(named, CALL_ID))
    }

    /// Tells a record who makes the request.
    fn tell(&self, record: &Record) {
        record.known(self.sender.impersonator.as_ref().unwrap_or(&self.sender.user));
        if self.sender.impersonator.is_some() {
            record.acts_as(&self.sender.user);
        }
    }

    /// Pays for the work of the call.
    pub fn work(&self) -> &Meter {
        &self.work
    }

    /// The meter of the connection, which charges its tenant for CPU time.
    pub fn meter(&self) -> Option<&Arc<ConnectionMeter>> {
        self.meter.as_ref()
    }

    /// Says that the client has disconnected and the call continues.
    pub fn leave(&self) {
        self.gone.notify_one();
    }

    fn warnings(&self) -> MutexGuard<'_, Vec<String>> {
        // The list is consistent between any two statements.
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the warnings of an answer of the HTTP API.
    fn warned(&self, warnings: impl Iterator<Item = String>) {
        for warning in warnings {
            let mut known = self.warnings();
            if known.len() < WARNINGS_MAX && !known.contains(&warning) {
                known.push(warning);
            }
        }
    }

    /// Returns the distinct warnings of the requests that the call has made so far,
    /// and forgets them.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings())
    }

    /// Completes when the client has disconnected and the call continues. At most one task waits
    /// for it.
    pub async fn gone(&self) {
        self.gone.notified().await;
    }

    /// Returns the user as whom the caller acts, for records. It says nothing about whether they
    /// may act as that user: [`Caller::user`] and [`Caller::permit`] do.
    pub fn acting_user(&self) -> &UserInfo {
        &self.sender.user
    }

    /// Returns the user as whom the caller acts outside of workspaces.
    ///
    /// # Errors
    /// The caller may not act as that user there.
    pub fn user(&self) -> Result<&UserInfo, Forbidden> {
        if let Some(caller) = &self.sender.impersonator {
            impersonation::allowed(caller, &self.sender.user, None, &ClusterFacts::default())
                .map_err(|refused| refused.1)?;
        }
        Ok(&self.sender.user)
    }

    /// Returns the user as whom the caller acts, if their name and groups are all there is to them:
    /// then a certificate can name them.
    ///
    /// # Errors
    /// The caller may not act as that user outside of workspaces, or the reason why the identity is
    /// more than that.
    pub fn certifiable(&self) -> Result<&UserInfo, NotCertifiable> {
        if self
            .sender
            .impersonator
            .as_ref()
            .is_some_and(|caller| caller.is_in(GROUP_FRONT))
        {
            return Err(NotCertifiable::Because("another server names the user"));
        }
        let user = self.user().map_err(NotCertifiable::Forbidden)?;
        let is_bound = user.extra.keys().any(|key| key != EXTRA_CREDENTIAL);
        match is_bound || user.name.starts_with(SERVICE_ACCOUNT) {
            true => Err(NotCertifiable::Because(
                "the identity is more than a name and groups, and counts in some workspaces alone",
            )),
            false => Ok(user),
        }
    }

    /// Returns the last second of the certificate that the caller shows, if there is one.
    pub fn certificate_end(&self) -> Option<Timestamp> {
        self.inner.certificate_end()
    }

    /// Returns the message of a refusal that tells nothing of the cluster.
    pub fn forbidden_message(&self, attributes: &Attributes) -> String {
        insula_auth::forbidden_message(&self.sender.user, attributes)
    }

    /// Asks for a right in a cluster at a state. Impersonation takes the right to it there, as over
    /// HTTP.
    ///
    /// # Errors
    /// The refusal.
    pub fn permit(&self, snapshot: &Snapshot, cluster: &ClusterName, right: Attributes) -> Result<Permit, Forbidden> {
        let right = Attributes {
            cluster: Some(cluster.clone()),
            ..right
        };
        let _span = tracing::info_span!(target: TRACE, "authorize").entered();
        let facts = insula_access::facts(snapshot, cluster);
        let Some(caller) = &self.sender.impersonator else {
            return permit(&self.sender.user, right, &facts);
        };
        let mut user = self.sender.user.clone();
        impersonation::confine(&mut user, cluster);
        impersonation::allowed(caller, &user, Some(cluster), &facts).map_err(|refused| refused.1)?;
        permit(&user, right, &facts)
    }

    /// Asks for a right on an offer in a cluster, such as an export, for a write in the cluster
    /// `of`, in which the caller has been permitted before. As in admission, the caller need not
    /// have access to the offer's cluster.
    ///
    /// # Errors
    /// The refusal.
    pub fn permit_offer(
        &self,
        snapshot: &Snapshot,
        (of, cluster): (&ClusterName, &ClusterName),
        right: Attributes,
    ) -> Result<Permit, Forbidden> {
        let right = Attributes {
            cluster: Some(cluster.clone()),
            ..right
        };
        let facts = ClusterFacts {
            entered: true,
            unfinished: false,
            ..insula_access::facts(snapshot, cluster)
        };
        let mut user = self.sender.user.clone();
        if self.sender.impersonator.is_some() {
            impersonation::confine(&mut user, of);
        }
        permit(&user, right, &facts)
    }
}

/// Returns the trailers with which a stream is cut: as the guard answers before the body.
fn last_frame(cut: Cut) -> LastFrame {
    let mut trailers = HeaderMap::new();
    trailers.insert(
        "grpc-status",
        HeaderValue::from(match cut {
            // DEADLINE_EXCEEDED
            Cut::Late => 4_u16,
            // INTERNAL
            Cut::Panicked => 13,
        }),
    );
    Some(Ok(Frame::trailers(trailers)))
}
