//! Requests for objects that a call makes as its caller.
//!
//! ```text
//! ApiRequest::create(path.in_cluster(&cluster), &object).validate_only(true)
//!     └ Session::run ──> Json | Status      Session::watch ──> stream of events | Status
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
use insula_api::{ClusterName, Json};
use insula_apiserver::call::{Action, CallPath, Done, ObjectRequest, Page, PageRequest, WatchRequest};
use insula_pipeline as pipeline;
use insula_registry::{DeleteOptions, Preconditions};
use std::pin::Pin;
use tonic::Status;

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
    /// Returns the path in a logical cluster.
    pub(crate) fn in_cluster(&self, cluster: &ClusterName) -> CallPath {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        CallPath {
            cluster: cluster.clone(),
            objects: pipeline::ObjectPath {
                group: self.group.to_owned(),
                version: self.version.to_owned(),
                resource: self.resource.to_owned(),
                namespace: given(self.namespace),
                name: given(self.name),
                subresource: given(self.subresource),
                ..pipeline::ObjectPath::default()
            },
        }
    }
}

/// Returns the options of a deletion of an object in a state: that of a UID, and of a
/// resourceVersion.
pub(crate) fn deletion(uid: Option<&str>, revision: Option<&str>) -> DeleteOptions {
    DeleteOptions {
        preconditions: Preconditions {
            uid: uid.map(str::to_owned),
            revision: revision.map(str::to_owned),
        },
        ..DeleteOptions::default()
    }
}

/// A request for an object, with the names of the call's fields in refusals.
#[derive(Debug, Clone)]
pub(crate) struct ApiRequest {
    request: ObjectRequest,
    names: FieldNames,
}

impl ApiRequest {
    /// Makes a request.
    pub(crate) fn new(path: CallPath, action: Action) -> Self {
        let request = ObjectRequest {
            path,
            action,
            dry_run: false,
        };
        ApiRequest { request, names: &[] }
    }

    /// Sets the names of the call's fields for the paths in refusals.
    #[must_use]
    pub(crate) fn names(self, names: FieldNames) -> Self {
        ApiRequest { names, ..self }
    }

    /// Reads an object.
    pub(crate) fn get(path: CallPath) -> Self {
        Self::new(path, Action::Get)
    }

    /// Creates an object in a collection.
    pub(crate) fn create(path: CallPath, object: &Json) -> Self {
        Self::new(path, Action::Create(object.clone()))
    }

    /// Replaces an object.
    pub(crate) fn replace(path: CallPath, object: &Json) -> Self {
        Self::new(path, Action::Replace(object.clone()))
    }

    /// Merges a patch into an object (RFC 7386).
    pub(crate) fn merge(path: CallPath, patch: &Json) -> Self {
        Self::new(path, Action::Merge(patch.clone()))
    }

    /// Deletes an object.
    pub(crate) fn delete(path: CallPath, how: DeleteOptions) -> Self {
        Self::new(path, Action::Delete(how))
    }

    /// Makes the write a dry run if the call only validates.
    #[must_use]
    pub(crate) fn validate_only(mut self, validate_only: bool) -> Self {
        self.request.dry_run = validate_only;
        self
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
    /// The refusal, with its details.
    pub(crate) fn run(&self, request: ApiRequest) -> BoxFuture<'_, Result<Json, Status>> {
        Box::pin(async move { Ok(self.done(request).await?.object) })
    }

    /// Makes a request as the caller, whose answer says whether the object is gone.
    ///
    /// # Errors
    /// The refusal, with its details.
    pub(crate) fn done(&self, request: ApiRequest) -> BoxFuture<'_, Result<Done, Status>> {
        Box::pin(async move {
            let done = self.api.run_for(&self.caller, &request.request).await;
            done.map_err(|unserved| status::of_unserved(&unserved, request.names))
        })
    }

    /// Reads a page of a collection as the caller.
    ///
    /// # Errors
    /// The refusal, with its details.
    pub(crate) async fn page(&self, request: &PageRequest, names: FieldNames) -> Result<Page, Status> {
        let page = self.api.list_for(&self.caller, request).await;
        page.map_err(|unserved| status::of_unserved(&unserved, names))
    }

    /// Reads the resources of a group in a version as the caller.
    ///
    /// # Errors
    /// The refusal, with its details.
    pub(crate) async fn discover(&self, path: &CallPath) -> Result<Json, Status> {
        let found = self.api.discover_for(&self.caller, path).await;
        found.map_err(|unserved| status::of_unserved(&unserved, &[]))
    }

    /// Watches a collection as the caller.
    ///
    /// # Errors
    /// The refusal, with its details.
    pub(crate) async fn watch(&self, request: &WatchRequest, names: FieldNames) -> Result<WatchEvents, Status> {
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
    fn errors_end_a_watch_with_their_status() {
        let added = event(br#"{"type":"ADDED","object":{"a":1}}"#).expect("an event");
        assert_eq!(added.expect("no error").kind, "ADDED");
        let gone = br#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}"#;
        let gone = event(gone).expect("an event").expect_err("an error");
        assert_eq!((gone.code(), gone.message()), (tonic::Code::OutOfRange, "too old"));
        assert!(event(b"").is_none());
    }
}
