//! `ObjectService`: objects of any kind, by requests of the HTTP API.

mod target;

use self::target::{Address, Target, check_manager, group_version};
use crate::{
    api_request::{ApiRequest, WatchEvent},
    fields,
    pages::Page,
    requests::Once,
    session::{AdminService, Session},
    status::{self, FieldNames},
};
use futures_util::StreamExt;
use insula_api::{FieldSelector, Json, LabelSelector, Revision, Verb};
use insula_proto::admin::v1::{
    ApplyObjectRequest, ApplyObjectResponse, ChangeType, DeleteObjectRequest, DeleteObjectResponse, GetObjectRequest,
    GetObjectResponse, ListObjectsRequest, ListObjectsResponse, Propagation, WatchObjectsRequest, WatchObjectsResponse,
    object_service_server::ObjectService,
};
use serde_json::json;
use std::pin::Pin;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

/// Annotation of the bookmark after the initial state of a watch.
const INITIAL_END: &str = "k8s.io/initial-events-end";
/// Fields of an apply.
const APPLY_FIELDS: FieldNames = &[("fieldManager", "field_manager"), ("", "object")];

#[tonic::async_trait]
impl ObjectService for AdminService {
    async fn get_object(&self, request: Request<GetObjectRequest>) -> Result<Response<GetObjectResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let wanted = (Verb::Get, &*request.namespace, &*request.name);
        let target = Target::of_type(&session, request.r#type, wanted).await?;
        let path = target.object(address(&request.namespace, &request.name))?;
        let object = target.request(&session, ApiRequest::get(path)).await?;
        Ok(Response::new(GetObjectResponse {
            header: session.header_of(&object),
            etag: fields::etag_of(&object),
            object: Some(fields::structure(&object)?),
        }))
    }

    async fn list_objects(
        &self,
        request: Request<ListObjectsRequest>,
    ) -> Result<Response<ListObjectsResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let wanted = (Verb::List, &*request.namespace, "");
        let target = Target::of_type(&session, request.r#type.clone(), wanted).await?;
        list(&session, &target, &request).await.map(Response::new)
    }

    async fn apply_object(
        &self,
        request: Request<ApplyObjectRequest>,
    ) -> Result<Response<ApplyObjectResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let (target, object) = applied(&session, &request).await?;
        let once = Once {
            request_id: &request.request_id,
            validate_only: request.validate_only,
        };
        let answer = self.once(&session, once, &request, apply(&session, &target, object, &request));
        answer.await.map(Response::new)
    }

    async fn delete_object(
        &self,
        request: Request<DeleteObjectRequest>,
    ) -> Result<Response<DeleteObjectResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let wanted = (Verb::Delete, &*request.namespace, &*request.name);
        let target = Target::of_type(&session, request.r#type.clone(), wanted).await?;
        let once = Once {
            request_id: &request.request_id,
            validate_only: request.validate_only,
        };
        let answer = self.once(&session, once, &request, delete(&session, &target, &request));
        answer.await.map(Response::new)
    }

    type WatchObjectsStream = Pin<Box<dyn Stream<Item = Result<WatchObjectsResponse, Status>> + Send>>;

    async fn watch_objects(
        &self,
        request: Request<WatchObjectsRequest>,
    ) -> Result<Response<Self::WatchObjectsStream>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let wanted = (Verb::Watch, &*request.namespace, "");
        let target = Target::of_type(&session, request.r#type, wanted).await?;
        let watch = ApiRequest::get(target.collection(&request.namespace)?);
        let watch = selected(watch, &request.label_selector, &request.field_selector)?;
        let events = session.watch(from_revision(watch, request.revision)).await;
        let events = events.map_err(|refusal| target.explained(refusal))?;
        let answer = move |event: Result<WatchEvent, Status>| {
            let event = event?;
            let kind = change_type(&event);
            let has_object = !matches!(kind, ChangeType::Bookmark | ChangeType::Synced);
            Ok(WatchObjectsResponse {
                header: session.header_at(revision_of(&event.object)),
                r#type: kind.into(),
                object: has_object.then(|| fields::structure(&event.object)).transpose()?,
            })
        };
        Ok(Response::new(Box::pin(events.map(answer))))
    }
}

/// Returns a watch after a revision; 0 stands for the state and all that follows.
pub(super) fn from_revision(watch: ApiRequest, revision: u64) -> ApiRequest {
    let watch = watch.query("allowWatchBookmarks", "true");
    match revision {
        0 => watch
            .query("sendInitialEvents", "true")
            .query("resourceVersionMatch", "NotOlderThan"),
        revision => watch.query("resourceVersion", &revision.to_string()),
    }
}

/// Returns the kind of an event.
pub(super) fn change_type(event: &WatchEvent) -> ChangeType {
    match event.kind.as_str() {
        "ADDED" => ChangeType::Added,
        "MODIFIED" => ChangeType::Modified,
        "DELETED" => ChangeType::Deleted,
        "BOOKMARK" if event.object["metadata"]["annotations"][INITIAL_END] == "true" => ChangeType::Synced,
        "BOOKMARK" => ChangeType::Bookmark,
        _ => ChangeType::Unspecified,
    }
}

/// Returns the revision of an object or a list.
pub(super) fn revision_of(object: &Json) -> Revision {
    let revision = object["metadata"]["resourceVersion"].as_str();
    Revision(revision.and_then(|revision| revision.parse().ok()).unwrap_or_default())
}

/// Returns the address of an object whose fields are those of most requests.
fn address<'a>(namespace: &'a str, name: &'a str) -> Address<'a> {
    Address {
        namespace: ("namespace", namespace),
        name: ("name", name),
    }
}

/// Adds the selectors of a request.
fn selected(request: ApiRequest, labels: &str, fields: &str) -> Result<ApiRequest, Status> {
    LabelSelector::parse(labels).map_err(|error| status::invalid("label_selector", error))?;
    FieldSelector::parse(fields).map_err(|error| status::invalid("field_selector", error))?;
    // Fields by which a resource cannot be selected are refused by the HTTP API.
    let names: FieldNames = if fields.is_empty() {
        &[]
    } else {
        &[("", "field_selector")]
    };
    let request = request.query("labelSelector", labels).query("fieldSelector", fields);
    Ok(request.names(names))
}

async fn list(session: &Session, target: &Target, request: &ListObjectsRequest) -> Result<ListObjectsResponse, Status> {
    let collection = target.collection(&request.namespace)?;
    let filter = [&*collection, &request.label_selector, &request.field_selector];
    let page = Page::read(session, &filter, request.page_size, &request.page_token)?;
    let position = page.after.as_ref().map(|(_, position)| position.as_str());
    let list = ApiRequest::get(collection.clone())
        .query("limit", &page.size.to_string())
        .query("continue", position.unwrap_or_default());
    let list = selected(list, &request.label_selector, &request.field_selector)?;
    let list = target.request(session, list).await?;
    let revision = revision_of(&list);
    let next = list["metadata"]["continue"].as_str().filter(|next| !next.is_empty());
    let next = next.map(|next| page.next(revision, next));
    // Items of built-in lists have neither apiVersion nor kind, as in Kubernetes.
    let kind = list["kind"].as_str().and_then(|kind| kind.strip_suffix("List"));
    let item = |item: &Json| {
        let mut item = item.clone();
        for (key, value) in [("apiVersion", list["apiVersion"].as_str()), ("kind", kind)] {
            if item[key].is_null() {
                item[key] = json!(value);
            }
        }
        fields::structure(&item)
    };
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(ListObjectsResponse {
        header: session.header_at(revision),
        objects: items.iter().map(item).collect::<Result<_, _>>()?,
        next_page_token: next.unwrap_or_default(),
    })
}

/// Reads the object of an apply, and finds its resource.
async fn applied(session: &Session, request: &ApplyObjectRequest) -> Result<(Target, Json), Status> {
    let object = fields::object("object", request.object.clone())?;
    let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if kind.is_empty() {
        return Err(status::invalid("object.kind", "is required"));
    }
    let api_version = group_version("object.apiVersion", &api_version)?;
    check_manager(&request.field_manager)?;
    if !object["metadata"]["managedFields"].is_null() {
        let problem = "must be absent: the server keeps them by field_manager";
        return Err(status::invalid("object.metadata.managedFields", problem));
    }
    fields::etag(&request.etag)?;
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        return Err(status::invalid("object.metadata.name", "is required"));
    }
    let workspace = ("workspace", &*request.workspace);
    let target = match &*request.resource {
        "" => Target::of_kind(session, workspace, api_version, ("object.kind", &kind)).await?,
        resource => {
            let resource = ("resource", resource);
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            let wanted = (Verb::Patch, namespace, name);
            let target = Target::of_resource(session, workspace, api_version, resource, wanted)?;
            target.check_kind("object.kind", &kind)?;
            target
        }
    };
    Ok((target, object))
}

async fn apply(
    session: &Session,
    target: &Target,
    mut object: Json,
    request: &ApplyObjectRequest,
) -> Result<ApplyObjectResponse, Status> {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text("namespace"), text("name"));
    let path = target.object(Address {
        namespace: ("object.metadata.namespace", &namespace),
        name: ("object.metadata.name", &name),
    })?;
    if let Some(etag) = fields::etag(&request.etag)? {
        // Without a UID, an apply with a resourceVersion would create what is deleted meanwhile.
        let uid = target.uid_at(session, (&namespace, &name), etag).await?;
        object["metadata"]["resourceVersion"] = json!(etag);
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(uid);
        }
    }
    let apply = ApiRequest::apply(path, &object)
        .names(APPLY_FIELDS)
        .query("fieldManager", &request.field_manager)
        .query("fieldValidation", "Strict")
        .query("force", if request.force { "true" } else { "" })
        .validate_only(request.validate_only);
    let applied = target.request(session, apply).await?;
    Ok(ApplyObjectResponse {
        header: session.header_of(&applied),
        etag: fields::etag_of(&applied),
        object: Some(fields::structure(&applied)?),
    })
}

async fn delete(
    session: &Session,
    target: &Target,
    request: &DeleteObjectRequest,
) -> Result<DeleteObjectResponse, Status> {
    let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
    if let Some(etag) = fields::etag(&request.etag)? {
        options["preconditions"]["resourceVersion"] = json!(etag);
    }
    if !request.uid.is_empty() {
        options["preconditions"]["uid"] = json!(request.uid);
    }
    options["propagationPolicy"] = match Propagation::try_from(request.propagation) {
        Ok(Propagation::Unspecified) => Json::Null,
        Ok(Propagation::Background) => json!("Background"),
        Ok(Propagation::Foreground) => json!("Foreground"),
        Ok(Propagation::Orphan) => json!("Orphan"),
        Err(_) => return Err(status::invalid("propagation", status::UNKNOWN_VALUE)),
    };
    let path = target.object(address(&request.namespace, &request.name))?;
    let delete = ApiRequest::delete(path, &options).validate_only(request.validate_only);
    let deleted = target.request(session, delete).await?;
    let gone = deleted["kind"] == "Status" && deleted["apiVersion"] == "v1";
    Ok(DeleteObjectResponse {
        header: session.header_of(&deleted),
        gone,
        object: (!gone).then(|| fields::structure(&deleted)).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bookmark_after_the_initial_state_is_told_apart() {
        let event = |kind: &str, object: Json| {
            change_type(&WatchEvent {
                kind: kind.to_owned(),
                object,
            })
        };
        let end = json!({"metadata": {"annotations": {"k8s.io/initial-events-end": "true"}}});
        assert_eq!(event("BOOKMARK", end.clone()), ChangeType::Synced);
        assert_eq!(event("BOOKMARK", json!({})), ChangeType::Bookmark);
        assert_eq!(event("ADDED", end), ChangeType::Added);
    }
}
