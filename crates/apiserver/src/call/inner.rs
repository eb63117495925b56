//! Requests of the HTTP API that a call makes within the server, for its caller: those that have no
//! other form, or that another server answers.
//!
//! They pass the same stages from authorization on, with admission, the limits of the workspace and
//! an audit record of their own, which names the call.

use super::{
    CallPath, Caller,
    request::{self, WatchRequest},
};
use crate::{
    audit,
    dispatch::serve_authenticated,
    reauthorize,
    reply::{self, Form, Replied, Reply, header_text},
    request::Parsed,
    request_stages::Authenticated,
    server::ApiServer,
    status,
};
use axum::body::{Body, Bytes, to_bytes};
use futures_util::{Stream, StreamExt, future::BoxFuture, stream::unfold};
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use insula_access::PeerCertificate;
use insula_api::{Json, Timestamp};
use insula_auth::{
    audit::{Origin, Record},
    certificate::Mark,
};
use insula_catalog::Error;
use insula_edge::port::{Arrival, RequestKind};
use insula_pipeline::Refusal;
use std::pin::{Pin, pin};

/// Lines of a stream, without their ends.
pub type Lines = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

/// Bytes of an answer, or of a line of a stream, of an extension server.
const PROXIED_BYTES_MAX: usize = 32 << 20;

/// The failure of a request of the HTTP API that a call made.
pub enum Unserved {
    /// This server refused it.
    Refused(Refusal),
    /// Another server answered: an extension server, or that of a mount.
    Elsewhere {
        /// HTTP status.
        status: StatusCode,
        /// JSON, or text.
        body: Bytes,
        /// Seconds after which the request may be made again.
        retry_after: Option<u32>,
    },
}

/// The parts of a call's sender that its requests have in common.
pub(super) struct Sender {
    /// Credentials, impersonation headers and `User-Agent`.
    headers: HeaderMap,
    peer: Option<PeerCertificate>,
    pub(super) origin: Origin,
}

impl Sender {
    pub(super) fn from_request(parsed: &Parsed) -> Self {
        let mut headers = reauthorize::credentials(&parsed.headers);
        if let Some(agent) = parsed.headers.get(header::USER_AGENT) {
            headers.insert(header::USER_AGENT, agent.clone());
        }
        Sender {
            headers,
            peer: parsed.peer.clone(),
            origin: parsed.record.origin(),
        }
    }
}

impl Sender {
    /// Returns the program of the sender, as it names itself.
    pub(super) fn agent(&self) -> String {
        header_text(&self.headers, header::USER_AGENT).unwrap_or_default()
    }

    /// Returns the last second of the certificate of the connection.
    pub(super) fn certificate_end(&self) -> Option<Timestamp> {
        self.peer.as_ref()?.end()
    }
}

/// Reads an answer.
pub(super) fn json(bytes: &[u8]) -> Result<Json, Unserved> {
    serde_json::from_slice(bytes).map_err(|error| {
        let why = format!("an answer is no JSON: {error}");
        Unserved::Refused(Refusal::from(Error::Internal(why)))
    })
}

/// The audit record of a request. A request that ends without an answer is recorded, too.
pub(super) struct Recorded(pub(super) Record);

impl Drop for Recorded {
    fn drop(&mut self) {
        if !self.0.is_answered() {
            self.0
                .refused("the call ended before the answer; what it asked for may have happened");
            self.0.answered(0);
        }
    }
}

impl ApiServer {
    /// Returns the mark of the credential with which the sender of a call came, for a certificate
    /// that is to end with it.
    pub fn credential_mark(&self, caller: &Caller) -> Option<Mark> {
        let Sender { headers, peer, .. } = &caller.inner;
        let authorization = headers.get_all(header::AUTHORIZATION).into_iter();
        self.authenticator
            .mark(peer.as_ref(), authorization.map(HeaderValue::as_bytes))
    }

    /// Serves a request of the HTTP API for the sender of an admitted call, who must not be within
    /// [`ApiServer::enter`] of the same workspace: the request enters it by itself. The path names
    /// a cluster or a virtual workspace.
    ///
    /// # Errors
    /// The refusal.
    pub(super) async fn serve_for(&self, caller: &Caller, request: Request<Vec<u8>>) -> Result<Bytes, Unserved> {
        let reply = Box::pin(self.respond_for(caller, request, false)).await;
        served(reply.map_err(Unserved::Refused)?).await
    }

    /// Returns the resources of a group in a version, which the objects of a path name.
    ///
    /// # Errors
    /// The refusal.
    pub fn discover_for<'a>(&'a self, caller: &'a Caller, path: &'a CallPath) -> BoxFuture<'a, Result<Json, Unserved>> {
        Box::pin(async move {
            let request = request::discovery(path).map_err(Unserved::Refused)?;
            json(&self.serve_for(caller, request).await?)
        })
    }

    /// Serves a watch for the sender of an admitted call that is answered with a stream, and counts
    /// against the watches of its sender as such. Returns the lines of its events, which
    /// end as those of a watch over HTTP do.
    ///
    /// # Errors
    /// The answer of a watch that does not begin.
    pub fn watch_for<'a>(
        &'a self,
        caller: &'a Caller,
        request: &'a WatchRequest,
    ) -> BoxFuture<'a, Result<Lines, Unserved>> {
        Box::pin(async move {
            let request = request.to_http().map_err(Unserved::Refused)?;
            let reply = Box::pin(self.respond_for(caller, request, true)).await;
            let reply = reply.map_err(Unserved::Refused)?;
            match reply.response.status() {
                StatusCode::OK => Ok(lines(reply.response.into_body())),
                _ => Err(elsewhere(reply).await),
            }
        })
    }

    async fn respond_for(&self, caller: &Caller, request: Request<Vec<u8>>, in_stream: bool) -> Replied {
        let record = caller.begin_record(self, || request.uri().to_string());
        let mut request = request.map(Body::from);
        request.headers_mut().extend(caller.inner.headers.clone());
        let arrival = Arrival {
            certificate: caller.inner.peer.clone(),
            meter: caller.meter.clone(),
            work: caller.work.clone(),
            record: record.0.clone(),
            ..Arrival::default()
        };
        let replied = {
            let served = pin!(self.answer_for(caller, (request, arrival), in_stream));
            served.await
        };
        match replied {
            Ok(reply) => {
                let reply = audit::record_response(&record.0, reply).await;
                record.0.answered(reply.response.status().as_u16());
                caller.warned(reply::warnings(reply.response.headers()));
                Ok(reply)
            }
            Err(refusal) => {
                reply::record_refusal(&refusal, &record.0);
                record.0.answered(status::code(&refusal));
                caller.warned(refusal.parts().1.iter().cloned());
                Err(refusal)
            }
        }
    }

    async fn answer_for(
        &self,
        caller: &Caller,
        (request, arrival): (Request<Body>, Arrival),
        in_stream: bool,
    ) -> Replied {
        let mut parsed = Parsed::new(request, arrival)?;
        parsed.payer = caller.payer.clone();
        parsed.within_watch = in_stream;
        let authenticated = Authenticated::known(parsed, caller.sender.clone());
        serve_authenticated(self, authenticated, None, &mut RequestKind::default()).await
    }
}

async fn served(reply: Reply) -> Result<Bytes, Unserved> {
    if !reply.response.status().is_success() {
        return Err(elsewhere(reply).await);
    }
    bytes(reply).await
}

/// Returns the failure of another server.
async fn elsewhere(reply: Reply) -> Unserved {
    let status = reply.response.status();
    let retry_after = reply.response.headers().get(header::RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
    match bytes(reply).await {
        Ok(body) => Unserved::Elsewhere {
            status,
            body,
            retry_after,
        },
        Err(failure) => failure,
    }
}

async fn bytes(reply: Reply) -> Result<Bytes, Unserved> {
    // What is held is held until the body is read.
    let Reply {
        response,
        form,
        held: _held,
    } = reply;
    let body = response.into_body();
    let most = match form {
        Form::Proxied => PROXIED_BYTES_MAX,
        Form::Own | Form::InChunks | Form::Lasting => usize::MAX,
    };
    // Bodies of this server's own answers are in memory; those of mounts come from elsewhere.
    to_bytes(body, most).await.map_err(|error| Unserved::Elsewhere {
        status: StatusCode::BAD_GATEWAY,
        body: error.to_string().into(),
        retry_after: None,
    })
}

/// Splits a body into lines.
fn lines(body: Body) -> Lines {
    let chunks = body.into_data_stream();
    let split = unfold(
        (chunks, Vec::new()),
        |(mut chunks, mut rest): (_, Vec<u8>)| async move {
            loop {
                if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    let after = rest.split_off(end + 1);
                    rest.truncate(end);
                    return Some((Bytes::from(rest), (chunks, after)));
                }
                let chunk = chunks.next().await?.ok()?;
                if rest.len() + chunk.len() > PROXIED_BYTES_MAX {
                    return None;
                }
                rest.extend_from_slice(&chunk);
            }
        },
    );
    Box::pin(split)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream::iter;
    use std::convert::Infallible;

    #[tokio::test]
    async fn lines_are_whole_wherever_their_body_is_cut() {
        let chunks = ["{\"a\":1}\n{", "\"b\"", ":2}\n\n{\"c\":", "3}\nrest"];
        let chunks = iter(chunks.map(|chunk| Ok::<_, Infallible>(Bytes::from(chunk))));
        let found: Vec<Bytes> = lines(Body::from_stream(chunks)).collect().await;
        assert_eq!(found, ["{\"a\":1}", "{\"b\":2}", "", "{\"c\":3}"]);
    }
}
