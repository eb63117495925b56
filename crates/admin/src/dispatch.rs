//! Calls from their bytes to the functions of the services.
//!
//! tonic's generated servers compile its whole call path once for each method, which would be a
//! tenth of the program. Here one codec carries bytes, and only the decoding of a request and the
//! encoding of its answer know their types.

use crate::{session::AdminService, status};
use futures_util::{
    Stream, StreamExt,
    future::{BoxFuture, FutureExt},
    stream::BoxStream,
};
use insula_proto::admin::v1;
use prost::{
    Message,
    bytes::{Buf, BufMut, Bytes},
};
use std::{
    convert::Infallible,
    task::{Context, Poll},
};
use tonic::{
    Code, Request, Response, Status,
    body::Body,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    server::{Grpc, ServerStreamingService, UnaryService},
};

type Unary = fn(AdminService, Request<Bytes>) -> BoxFuture<'static, Result<Response<Bytes>, Status>>;
type Answers = BoxStream<'static, Result<Bytes, Status>>;
type Streaming = fn(AdminService, Request<Bytes>) -> BoxFuture<'static, Result<Response<Answers>, Status>>;
type Answer = BoxFuture<'static, http::Response<Body>>;
/// A method: a call, with the most bytes of a message, to its answer.
type Method = fn(AdminService, usize, http::Request<Body>) -> Answer;

macro_rules! table {
    ($($module:ident::$service:ident $name:literal {
        $($kind:ident $path:literal $function:ident;)*
    })*) => {
        /// Full names of the services.
        pub(crate) const SERVICES: &[&str] = &[$($name),*];

        fn method(path: &str) -> Option<Method> {
            match path {
                $($($path => Some(table!(@$kind v1::$module::$service, $function)),)*)*
                _ => None,
            }
        }
    };
    (@unary $service:path, $function:ident) => {{
        use $service as Service;
        |service, bytes_max, request| {
            let function: Unary = |service, request| {
                async move { Ok(encoded(Service::$function(&service, decoded(request)?).await?)) }.boxed()
            };
            unary(UnaryCall(service, function), bytes_max, request)
        }
    }};
    (@server_streaming $service:path, $function:ident) => {{
        use $service as Service;
        |service, bytes_max, request| {
            let function: Streaming = |service, request| {
                async move { Ok(streamed(Service::$function(&service, decoded(request)?).await?)) }.boxed()
            };
            server_streaming(StreamingCall(service, function), bytes_max, request)
        }
    }};
    // The service itself decodes what comes later, so tonic's codec has the types.
    (@client_streaming $service:path, $function:ident) => {{
        use $service as Service;
        |service, bytes_max, request| {
            let function = tower::service_fn(move |request| {
                let service = service.clone();
                async move { Service::$function(&service, request).await }
            });
            let codec = Checked(tonic_prost::ProstCodec::default());
            let mut grpc = Grpc::new(codec).apply_max_message_size_config(Some(bytes_max), None);
            async move { grpc.client_streaming(function, request).await }.boxed()
        }
    }};
}
insula_proto::for_each_service!(table);

fn decoded<M: Message + Default>(request: Request<Bytes>) -> Result<Request<M>, Status> {
    let (metadata, extensions, bytes) = request.into_parts();
    let message = M::decode(bytes).map_err(|error| status::undecodable(&error.to_string()))?;
    Ok(Request::from_parts(metadata, extensions, message))
}

fn encoded<M: Message>(response: Response<M>) -> Response<Bytes> {
    response.map(|message| message.encode_to_vec().into())
}

fn streamed<M: Message, S>(response: Response<S>) -> Response<Answers>
where
    S: Stream<Item = Result<M, Status>> + Send + 'static,
{
    response.map(|stream| {
        stream
            .map(|message| message.map(|message| Bytes::from(message.encode_to_vec())))
            .boxed()
    })
}

fn unary(call: UnaryCall, bytes_max: usize, request: http::Request<Body>) -> Answer {
    let mut grpc = Grpc::new(Raw).apply_max_message_size_config(Some(bytes_max), None);
    async move { grpc.unary(call, request).await }.boxed()
}

fn server_streaming(call: StreamingCall, bytes_max: usize, request: http::Request<Body>) -> Answer {
    let mut grpc = Grpc::new(Raw).apply_max_message_size_config(Some(bytes_max), None);
    async move { grpc.server_streaming(call, request).await }.boxed()
}

/// All services, as one for the router.
#[derive(Clone)]
pub(crate) struct Dispatch {
    service: AdminService,
    /// Bytes of a message at most.
    bytes_max: usize,
}

impl Dispatch {
    pub(crate) fn new(service: AdminService, bytes_max: usize) -> Self {
        Dispatch { service, bytes_max }
    }
}

impl<B> tower::Service<http::Request<B>> for Dispatch
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<tower::BoxError>,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let request = request.map(Body::new);
        let Dispatch { service, bytes_max } = self.clone();
        match method(request.uri().path()) {
            Some(method) => method(service, bytes_max, request).map(Ok).boxed(),
            None => std::future::ready(Ok(Status::unimplemented("").into_http())).boxed(),
        }
    }
}

/// A call that has one answer.
struct UnaryCall(AdminService, Unary);

impl UnaryService<Bytes> for UnaryCall {
    type Response = Bytes;
    type Future = BoxFuture<'static, Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        self.1(self.0.clone(), request)
    }
}

/// A call that has a stream of answers.
struct StreamingCall(AdminService, Streaming);

impl ServerStreamingService<Bytes> for StreamingCall {
    type Response = Bytes;
    type ResponseStream = Answers;
    type Future = BoxFuture<'static, Result<Response<Answers>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        self.1(self.0.clone(), request)
    }
}

/// A codec that refuses bytes that are no message as the caller's fault.
struct Checked<C>(C);

impl<C: Codec> Codec for Checked<C> {
    type Encode = C::Encode;
    type Decode = C::Decode;
    type Encoder = C::Encoder;
    type Decoder = Checked<C::Decoder>;

    fn encoder(&mut self) -> C::Encoder {
        self.0.encoder()
    }

    fn decoder(&mut self) -> Checked<C::Decoder> {
        Checked(self.0.decoder())
    }
}

impl<D: Decoder<Error = Status>> Decoder for Checked<D> {
    type Item = D::Item;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<D::Item>, Status> {
        self.0.decode(from).map_err(|refusal| match refusal.code() {
            Code::Internal => status::undecodable(refusal.message()),
            _ => refusal,
        })
    }
}

/// The codec of messages that are bytes already.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
