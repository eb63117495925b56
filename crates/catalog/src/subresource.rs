//! Subresources that a program answers itself, such as an action on an object.

use crate::Result;
use futures_util::{future::BoxFuture, stream::BoxStream};
use insula_api::{ClusterName, Json, Timestamp, Verb};
use insula_auth::UserInfo;
use std::sync::Arc;

/// A request to a subresource of an object.
#[derive(Debug, Clone)]
pub struct SubresourceRequest {
    /// The verb.
    pub verb: Verb,
    /// The object, in the version of the request.
    pub object: Json,
    /// The body; None if it is empty.
    pub body: Option<Json>,
    /// Parameters of the query, in their order.
    pub query: Vec<(String, String)>,
    /// The cluster of the object.
    pub cluster: ClusterName,
    /// The user, whose right to the subresource is checked.
    pub user: Arc<UserInfo>,
    /// The time of the server.
    pub now: Timestamp,
    /// True if nothing may change.
    pub dry_run: bool,
}

/// A change of the object that the answer depends on.
#[derive(Debug, Clone)]
pub enum ObjectChange {
    /// Replaces the object, as PUT does.
    Object(Json),
    /// Replaces its status, as PUT of `/status` does.
    Status(Json),
}

/// The body of an answer.
pub enum SubresourceBody {
    /// A document.
    Document(Json),
    /// Text for people, such as a log.
    Text(String),
    /// Text in pieces, which are sent as they come. An error breaks it off, and is for the log.
    Stream(BoxStream<'static, std::result::Result<Vec<u8>, String>>),
}

/// The answer of a program.
pub struct SubresourceAnswer {
    /// HTTP status: 200, 201 or 202.
    pub code: u16,
    /// A change to write before the answer is sent. If another client changed the object meanwhile,
    /// the request is answered anew from the changed object.
    pub change: Option<ObjectChange>,
    /// The body.
    pub body: SubresourceBody,
}

/// Types of the bodies of a subresource, for OpenAPI: schemas as definitions have them.
#[derive(Debug, Clone)]
pub struct SubresourceTypes {
    /// Name of the type of requests, and its schema.
    pub request: (String, Json),
    /// Name of the type of answers, and its schema.
    pub response: (String, Json),
}

/// A function that answers requests to a subresource.
pub trait SubresourceHandler: Send + Sync {
    /// Returns the types of its bodies; None if they are those of the resource.
    fn types(&self) -> Option<&SubresourceTypes> {
        None
    }

    /// Answers a request. It may run several times for one request, if others write the object.
    ///
    /// # Errors
    /// Returns the refusal for the client.
    fn call(&self, request: SubresourceRequest) -> BoxFuture<'_, Result<SubresourceAnswer>>;
}
