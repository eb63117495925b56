//! Subresources of a kind's own, each with its types of request and response.

use crate::{Resource, blocking, convert, definition};
use futures_util::{Stream, StreamExt, future::BoxFuture, stream::BoxStream};
use insula_api::{FieldError, Json, Timestamp};
use insula_auth::UserInfo;
use insula_catalog::{
    Error, Named, ObjectChange, SubresourceAnswer, SubresourceBody, SubresourceHandler, SubresourceRequest,
    SubresourceTypes,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{fmt::Display, future::Future, marker::PhantomData, panic::AssertUnwindSafe, sync::Arc};

/// A subresource that the program answers: `POST …/robots/r2/charge`, or `GET …/robots/r2/log`.
///
/// Whoever may use the verb on `robots/charge` may call it: `get` for GET, `create` for POST,
/// `update` for PUT, `delete` for DELETE.
pub trait Subresource<T: Resource>: Send + Sync + 'static {
    /// The type of a request's body. Clients see its schema in OpenAPI.
    type Request: DeserializeOwned + JsonSchema + Send;
    /// The type of the answer's body. Clients see its schema in OpenAPI.
    type Response: Serialize + JsonSchema + Send;
    /// The verbs that exist.
    const VERBS: &'static [Verb] = &[Verb::Create];
    /// The kind of requests and responses in discovery; None for the kind of the object.
    const KIND: Option<&'static str> = None;

    /// Answers a call. If the answer changes the object and another client has written it
    /// meanwhile, the call runs again with the present object.
    ///
    /// # Errors
    /// Returns the refusal for the client.
    fn call(
        &self,
        call: Call<T, Self::Request>,
    ) -> impl Future<Output = Result<Reply<T, Self::Response>, Refusal>> + Send;
}

/// A verb of a subresource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// GET.
    Get,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// DELETE.
    Delete,
}

impl Verb {
    /// Returns the verb of Kubernetes.
    pub fn as_str(self) -> &'static str {
        self.of_request().name()
    }

    fn of_request(self) -> insula_api::Verb {
        match self {
            Verb::Get => insula_api::Verb::Get,
            Verb::Create => insula_api::Verb::Create,
            Verb::Update => insula_api::Verb::Update,
            Verb::Delete => insula_api::Verb::Delete,
        }
    }

    fn from_request(verb: insula_api::Verb) -> Option<Self> {
        let all = [Verb::Get, Verb::Create, Verb::Update, Verb::Delete];
        all.into_iter().find(|known| known.of_request() == verb)
    }
}

/// A call of a subresource.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Call<T, R> {
    /// The verb.
    pub verb: Verb,
    /// The object as it is stored.
    pub object: T,
    /// The body; None if it is empty.
    pub request: Option<R>,
    /// Parameters of the query.
    pub query: Vec<(String, String)>,
    /// The caller.
    pub user: Arc<UserInfo>,
    /// The logical cluster of the workspace.
    pub cluster: String,
    /// The time of the server.
    pub now: Timestamp,
    /// True if nothing may change: the server writes no change, and the call should do nothing
    /// elsewhere.
    pub dry_run: bool,
}

/// The answer to a call.
pub struct Reply<T, R> {
    code: u16,
    change: Option<Change<T>>,
    body: Body<R>,
}

enum Change<T> {
    Object(T),
    Status(T),
}

enum Body<R> {
    Document(R),
    Text(String),
    Stream(BoxStream<'static, Result<Vec<u8>, String>>),
}

impl<T, R> Reply<T, R> {
    /// Answers with a document and the status 200, or 201 for POST.
    pub fn new(response: R) -> Self {
        Self {
            code: 0,
            change: None,
            body: Body::Document(response),
        }
    }

    /// Answers with text, such as a log.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            code: 0,
            change: None,
            body: Body::Text(text.into()),
        }
    }

    /// Answers with text that is sent as it comes, such as a log that is followed.
    ///
    /// A client that reads slowly slows the stream down, and the stream is dropped when the client
    /// goes, when the server ends, and soon after the caller loses the right to it. It counts
    /// against the open watches of the caller and of the workspace. An error, or a panic, breaks
    /// the answer off.
    pub fn stream<S, B, E>(pieces: S) -> Self
    where
        S: Stream<Item = Result<B, E>> + Send + 'static,
        B: Into<Vec<u8>>,
        E: Display,
    {
        let pieces = AssertUnwindSafe(pieces).catch_unwind().map(|piece| match piece {
            Ok(Ok(piece)) => Ok(piece.into()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it panicked".to_owned()),
        });
        Self {
            code: 0,
            change: None,
            body: Body::Stream(blocking::stream(pieces).boxed()),
        }
    }

    /// Sets the HTTP status: 200, 201, or 202 for what happens later.
    #[must_use]
    pub fn code(self, code: u16) -> Self {
        Self { code, ..self }
    }

    /// Writes the object before the answer, as PUT of the object does: through the strategy, and
    /// without its status.
    #[must_use]
    pub fn update(self, object: T) -> Self {
        Self {
            change: Some(Change::Object(object)),
            ..self
        }
    }

    /// Writes the object's status before the answer.
    #[must_use]
    pub fn update_status(self, object: T) -> Self {
        Self {
            change: Some(Change::Status(object)),
            ..self
        }
    }
}

/// A refused call.
#[derive(Debug, Clone, PartialEq)]
pub enum Refusal {
    /// Fields of the request are invalid (422).
    Invalid(Vec<FieldError>),
    /// The request makes no sense (400).
    BadRequest(String),
    /// The object's state does not allow it (409).
    Conflict(String),
    /// The caller may not do this (403).
    Forbidden(String),
    /// Something that the call needs is not there for the moment (503).
    Unavailable(String),
    /// The program failed (500).
    Internal(String),
}

/// Returns a subresource as the server takes it.
pub(crate) fn described<T: Resource, S: Subresource<T>>(
    name: &str,
    handler: S,
) -> (insula_catalog::Subresource, Box<dyn SubresourceHandler>) {
    let keep = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    let verbs: Vec<insula_api::Verb> = S::VERBS.iter().map(|verb| verb.of_request()).collect();
    let body = |kind| {
        (
            keep(T::group(&()).into_owned()),
            keep(T::version(&()).into_owned()),
            kind,
        )
    };
    let subresource = insula_catalog::Subresource {
        name: keep(name.to_owned()),
        body: S::KIND.map(body),
        verbs: verbs.leak(),
    };
    let camel: String = name.split('-').map(capital).collect();
    let named = |suffix: &str| format!("{}{camel}{suffix}", T::kind(&()));
    let types = SubresourceTypes {
        request: (named("Request"), definition::body_schema::<S::Request>()),
        response: (named("Response"), definition::body_schema::<S::Response>()),
    };
    let of = PhantomData;
    (subresource, Box::new(Handler { handler, types, of }))
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.collect::<String>() + letters.as_str()
}

struct Handler<T, S> {
    handler: S,
    types: SubresourceTypes,
    of: PhantomData<fn() -> T>,
}

impl<T: Resource, S: Subresource<T>> SubresourceHandler for Handler<T, S> {
    fn types(&self) -> Option<&SubresourceTypes> {
        Some(&self.types)
    }

    fn call(&self, request: SubresourceRequest) -> BoxFuture<'_, insula_catalog::Result<SubresourceAnswer>> {
        Box::pin(blocking::future(self.answer(request)))
    }
}

impl<T: Resource, S: Subresource<T>> Handler<T, S> {
    async fn answer(&self, request: SubresourceRequest) -> insula_catalog::Result<SubresourceAnswer> {
        let name = request.object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let verb = Verb::from_request(request.verb).ok_or(Error::MethodNotAllowed)?;
        let object = convert::read::<T>(&request.object).map_err(Error::Internal)?;
        let body = request.body.map(|body| {
            let read = S::Request::deserialize(&body);
            read.map_err(|error| Error::BadRequest(format!("the body of the request: {error}")))
        });
        let call = Call {
            verb,
            object,
            request: body.transpose()?,
            query: request.query,
            user: request.user,
            cluster: request.cluster.to_string(),
            now: request.now,
            dry_run: request.dry_run,
        };
        let Reply { code, change, body } = self.handler.call(call).await.map_err(|no| refused::<T>(no, name))?;
        if !matches!(code, 0 | 200..=202) {
            let why = format!("a subresource answers with 200, 201 or 202, not with {code}");
            return Err(Error::Internal(why));
        }
        let json = |object: &T| convert::json(object).map_err(Error::Internal);
        Ok(SubresourceAnswer {
            code: match (code, verb) {
                (0, Verb::Create) => 201,
                (0, _) => 200,
                (code, _) => code,
            },
            change: match change {
                None => None,
                Some(Change::Object(object)) => Some(ObjectChange::Object(json(&object)?)),
                Some(Change::Status(object)) => Some(ObjectChange::Status(json(&object)?)),
            },
            body: match body {
                Body::Document(document) => {
                    let document = serde_json::to_value(document);
                    let document = document.map_err(|error| Error::Internal(error.to_string()))?;
                    SubresourceBody::Document(labelled::<T, S>(document))
                }
                Body::Text(text) => SubresourceBody::Text(text),
                Body::Stream(pieces) => SubresourceBody::Stream(pieces),
            },
        })
    }
}

/// Returns a document with the version and kind that discovery shows, unless it has its own.
fn labelled<T: Resource, S: Subresource<T>>(mut document: Json) -> Json {
    if let (Json::Object(map), Some(kind)) = (&mut document, S::KIND) {
        map.entry("apiVersion").or_insert_with(|| T::api_version(&()).into());
        map.entry("kind").or_insert_with(|| kind.into());
    }
    document
}

fn refused<T: Resource>(refusal: Refusal, name: String) -> Error {
    let group = T::group(&()).as_ref().into();
    let resource = |resource: std::borrow::Cow<'_, str>| Named {
        group,
        resource: resource.as_ref().into(),
    };
    match refusal {
        Refusal::Invalid(errors) => Error::Invalid {
            subject: resource(T::kind(&())),
            name,
            errors,
        },
        Refusal::BadRequest(why) => Error::BadRequest(why),
        Refusal::Conflict(detail) => Error::Conflict {
            resource: resource(T::plural(&())),
            name,
            detail,
        },
        Refusal::Forbidden(why) => Error::Forbidden {
            resource: resource(T::plural(&())),
            name,
            why,
            cause: None,
        },
        Refusal::Unavailable(why) => Error::Unavailable(why),
        Refusal::Internal(why) => Error::Internal(why),
    }
}
