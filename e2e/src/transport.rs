//! Ways of a request to its server: HTTPS, or a call within this process.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Request, Response, Version, header::CONTENT_LENGTH};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::body::{Body, Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as Legacy, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::ClientConfig;

use crate::Who;

/// Body of an answer, over HTTPS or of a call.
pub type AnswerBody = UnsyncBoxBody<Bytes, String>;

type Https = Legacy<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A server in this process, which answers calls.
pub trait InProcess: Send + Sync {
    /// Answers a request of an identity. A token is in the request, a certificate is not.
    fn answer(self: Arc<Self>, who: Who, request: Request<Full<Bytes>>) -> BoxFuture<'static, Response<AnswerBody>>;
}

/// Way of the requests of a client.
#[derive(Clone)]
pub(crate) enum Transport {
    Https {
        http: Box<Https>,
        /// HTTP/1.1 alone: the one version in which a connection becomes a WebSocket.
        http1: Box<Https>,
    },
    Call {
        server: Arc<dyn InProcess>,
        who: Who,
    },
}

impl Transport {
    pub(crate) fn https(config: &ClientConfig) -> Self {
        let connector = || {
            HttpsConnectorBuilder::new()
                .with_tls_config(config.clone())
                .https_only()
        };
        let both = connector().enable_http1().enable_http2().build();
        let first = connector().enable_http1().build();
        Transport::Https {
            http: Box::new(Legacy::builder(TokioExecutor::new()).build(both)),
            http1: Box::new(Legacy::builder(TokioExecutor::new()).build(first)),
        }
    }

    /// Returns the same way over HTTP/1.1 alone.
    pub(crate) fn over_http1(&self) -> Self {
        let http1 = Box::new(self.http1().clone());
        Transport::Https {
            http: http1.clone(),
            http1,
        }
    }

    /// Sends a request.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<AnswerBody>, String> {
        match self {
            Transport::Https { http, .. } => {
                let response = http.request(request).await.map_err(|error| format!("{error:?}"))?;
                Ok(response.map(|body| body.map_err(|error| format!("{error:?}")).boxed_unsync()))
            }
            Transport::Call { server, who } => Ok(Arc::clone(server).answer(who.clone(), as_received(request)).await),
        }
    }

    /// Sends a request on a connection that may change to another protocol.
    pub(crate) async fn upgrade(&self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        self.http1().request(request).await.unwrap()
    }

    fn http1(&self) -> &Https {
        match self {
            Transport::Https { http1, .. } => http1,
            Transport::Call { .. } => panic!("a call in the process has no connection"),
        }
    }
}

/// Returns a request as it arrives over HTTP/2.
fn as_received(mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
    *request.version_mut() = Version::HTTP_2;
    if let Some(length) = request.body().size_hint().exact().filter(|length| *length > 0) {
        request
            .headers_mut()
            .entry(CONTENT_LENGTH)
            .or_insert(HeaderValue::from(length));
    }
    request
}
