//! Requests of the HTTP API that a call makes as its caller.
//!
//! ```text
//! ApiRequest::create(path.collection(), &object).validate_only(true)
//!     └ Session::http ──> Json | Status      Session::watch ──> stream of events | Status
//! ```
//! Each passes authorization, admission, limits and audit as the same request over HTTP would. A
//! call that makes such requests must not be within `AdminService::enter` of the workspace.

use crate::{
    session::Session,
    status::{self, FieldNames},
};
use futures_util::{
    Stream, StreamExt,
    future::{BoxFuture, ready},
};
use http::{Method, Request, header};
use insula_api::{ClusterName, Json};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use std::pin::Pin;
use tonic::Status;

/// Media types of patches.
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";

/// The path of objects of a resource.
#[derive(Debug, Clone, Default)]
pub(crate) struct ObjectPath<'a> {
    /// API group; empty for the core group.
    pub(crate) group: &'a str,
    /// Version.
    pub(crate) version: &'a str,
    /// Plural resource.
    pub(crate) resource: &'a str,
    /// Namespace; empty for objects of the cluster, and for lists across namespaces.
    pub(crate) namespace: &'a str,
    /// Name; empty for a collection.
    pub(crate) name: &'a str,
    /// Subresource; empty for the object itself.
    pub(crate) subresource: &'a str,
}

impl ObjectPath<'_> {
    /// Returns the path in a logical cluster. Segments are encoded, so that a name cannot change
    /// the path.
    pub(crate) fn in_cluster(&self, cluster: &ClusterName) -> String {
        let mut path = format!("/clusters/{}", encoded(cluster.as_str()));
        let mut push = |segment: &str| {
            path.push('/');
            path.extend(encoded(segment));
        };
        match self.group.is_empty() {
            true => push("api"),
            false => {
                push("apis");
                push(self.group);
            }
        }
        push(self.version);
        if !self.namespace.is_empty() {
            push("namespaces");
            push(self.namespace);
        }
        for segment in [self.resource, self.name, self.subresource] {
            if !segment.is_empty() {
                push(segment);
            }
        }
        path
    }
}

/// Bytes that need encoding in some part of a URI.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b':');

fn encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, ENCODED)
}

/// A request of the HTTP API.
#[derive(Debug, Clone)]
pub(crate) struct ApiRequest {
    method: Method,
    /// Path and query.
    target: String,
    content_type: &'static str,
    body: Vec<u8>,
    /// Names of the call's fields in refusals.
    names: FieldNames,
}

impl ApiRequest {
    fn new(method: Method, path: String, content_type: &'static str, body: Option<&Json>) -> Self {
        ApiRequest {
            method,
            target: path,
            content_type,
            body: body.map(|body| body.to_string().into_bytes()).unwrap_or_default(),
            names: &[],
        }
    }

    /// Sets the names of the call's fields for the paths in refusals.
    #[must_use]
    pub(crate) fn names(self, names: FieldNames) -> Self {
        ApiRequest { names, ..self }
    }

    /// Reads an object or a collection.
    pub(crate) fn get(path: String) -> Self {
        Self::new(Method::GET, path, JSON, None)
    }

    /// Creates an object in a collection.
    pub(crate) fn create(path: String, object: &Json) -> Self {
        Self::new(Method::POST, path, JSON, Some(object))
    }

    /// Replaces an object.
    pub(crate) fn replace(path: String, object: &Json) -> Self {
        Self::new(Method::PUT, path, JSON, Some(object))
    }

    /// Merges a patch into an object (RFC 7386).
    pub(crate) fn merge(path: String, patch: &Json) -> Self {
        Self::new(Method::PATCH, path, MERGE, Some(patch))
    }

    /// Applies an object as a field manager. The query has `fieldManager` and `force`.
    pub(crate) fn apply(path: String, object: &Json) -> Self {
        Self::new(Method::PATCH, path, APPLY, Some(object))
    }

    /// Deletes an object, with DeleteOptions.
    pub(crate) fn delete(path: String, options: &Json) -> Self {
        Self::new(Method::DELETE, path, JSON, Some(options))
    }

    /// Adds a query parameter, unless its value is empty.
    #[must_use]
    pub(crate) fn query(mut self, key: &str, value: &str) -> Self {
        if !value.is_empty() {
            let joint = if self.target.contains('?') { '&' } else { '?' };
            self.target.push(joint);
            self.target += key;
            self.target.push('=');
            self.target.extend(encoded(value));
        }
        self
    }

    /// Makes the write a dry run if the call only validates.
    #[must_use]
    pub(crate) fn validate_only(self, validate_only: bool) -> Self {
        self.query("dryRun", if validate_only { "All" } else { "" })
    }

    fn into_http(self) -> Result<Request<Vec<u8>>, Status> {
        let request = Request::builder()
            .method(self.method)
            .uri(self.target)
            .header(header::ACCEPT, JSON)
            .header(header::CONTENT_TYPE, self.content_type)
            .body(self.body);
        // Segments and values are encoded; only their length can be wrong.
        request.map_err(|error| Status::invalid_argument(format!("the request cannot be made: {error}")))
    }
}

/// An event of a watch.
#[derive(Debug, Clone)]
pub(crate) struct WatchEvent {
    /// `ADDED`, `MODIFIED`, `DELETED` or `BOOKMARK`.
    pub(crate) kind: String,
    /// The object.
    pub(crate) object: Json,
}

/// Events of a watch. Ends with a status when the watch fails, and without one when the server
/// ends it.
pub(crate) type WatchEvents = Pin<Box<dyn Stream<Item = Result<WatchEvent, Status>> + Send>>;

impl Session {
    /// Makes a request as the caller, and returns the object of the answer.
    ///
    /// # Errors
    /// The refusal of the HTTP API, with its details.
    pub(crate) fn http(&self, request: ApiRequest) -> BoxFuture<'_, Result<Json, Status>> {
        Box::pin(async move {
            let names = request.names;
            let served = self.api.serve_for(&self.caller, request.into_http()?).await;
            let served = served.map_err(|unserved| status::of_unserved(&unserved, names))?;
            let object = serde_json::from_slice(&served);
            object.map_err(|error| Status::internal(format!("an answer is no JSON: {error}")))
        })
    }

    /// Watches a collection as the caller. The request is a [`ApiRequest::get`] of it.
    ///
    /// # Errors
    /// The refusal of the HTTP API, with its details.
    pub(crate) async fn watch(&self, request: ApiRequest) -> Result<WatchEvents, Status> {
        let names = request.names;
        let request = request.query("watch", "true").into_http()?;
        let lines = self.api.watch_for(&self.caller, request).await;
        let lines = lines.map_err(|unserved| status::of_unserved(&unserved, names))?;
        let events = lines.filter_map(|line| ready(event(&line)));
        // Nothing follows a failure.
        let mut failed = false;
        Ok(Box::pin(events.take_while(move |event| {
            let goes_on = !failed;
            failed |= event.is_err();
            ready(goes_on)
        })))
    }
}

/// Reads a line of a watch; `None` for an empty one.
fn event(line: &[u8]) -> Option<Result<WatchEvent, Status>> {
    if line.is_empty() {
        return None;
    }
    let Ok(Json::Object(mut event)) = serde_json::from_slice(line) else {
        return Some(Err(Status::internal("an event of a watch is no object")));
    };
    let object = event.remove("object").unwrap_or_default();
    Some(match event["type"].as_str() {
        Some("ERROR") => Err(status::of_event(&object)),
        kind => Ok(WatchEvent {
            kind: kind.unwrap_or_default().to_owned(),
            object,
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_change_the_path() {
        let cluster = ClusterName::root();
        let path = ObjectPath {
            group: "example.io",
            version: "v1",
            resource: "widgets",
            namespace: "a/../b",
            name: "x?y=1#%2f",
            subresource: "status",
        };
        assert_eq!(
            path.in_cluster(&cluster),
            "/clusters/root/apis/example.io/v1/namespaces/a%2F..%2Fb/widgets/x%3Fy%3D1%23%252f/status"
        );
        let core = ObjectPath {
            version: "v1",
            resource: "configmaps",
            ..ObjectPath::default()
        };
        assert_eq!(core.in_cluster(&cluster), "/clusters/root/api/v1/configmaps");
    }

    #[test]
    fn empty_parameters_are_left_out() {
        let request = ApiRequest::get("/a".to_owned())
            .query("labelSelector", "a in (b,c)")
            .query("continue", "")
            .validate_only(true);
        assert_eq!(request.target, "/a?labelSelector=a%20in%20%28b%2Cc%29&dryRun=All");
    }

    #[test]
    fn errors_end_a_watch_with_their_status() {
        let added = event(br#"{"type":"ADDED","object":{"a":1}}"#).expect("an event");
        assert_eq!(added.expect("no error").kind, "ADDED");
        let gone = br#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}"#;
        let gone = event(gone).expect("an event").expect_err("an error");
        assert_eq!((gone.code(), gone.message()), (tonic::Code::OutOfRange, "too old"));
        assert!(event(b"").is_none());
    }
}
