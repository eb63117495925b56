//! `ObjectService`: objects of any kind, by requests as the caller.

mod target;

use self::target::{Address, Target, check_manager, group_version};
use crate::{
    api_request::{ApiRequest, WatchEvent, deletion},
    fields,
    pages::Page,
    requests::Once,
    session::{AdminService, Session},
    status::{self, FieldNames},
};
use futures_util::StreamExt;
use insula_api::{FieldSelector, Json, LabelSelector, Revision, Verb};
use insula_apiserver::call::{Action, PageRequest, WatchRequest};
use insula_apply::OnConflict;
use insula_proto::admin::v1::{
    self, ApplyObjectRequest, ApplyObjectResponse, ChangeType, DeleteObjectRequest, DeleteObjectResponse,
    GetObjectRequest, GetObjectResponse, ListObjectsRequest, ListObjectsResponse, WatchObjectsRequest,
    WatchObjectsResponse, object_service_server::ObjectService,
};
use insula_registry::{DeleteOptions, Propagation};
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
        let object = target.request(&session, ApiRequest::get(path)).await?.object;
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
        let names = check_selectors(&request.label_selector, &request.field_selector)?;
        let watch = WatchRequest {
            path: target.collection(&request.namespace)?,
            labels: request.label_selector,
            fields: request.field_selector,
            after: after(request.revision),
        };
        let events = session.watch(&watch, names).await;
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

/// Returns the revision after which a watch begins; 0 stands for the state and all that follows.
pub(super) fn after(revision: u64) -> Option<u64> {
    Some(revision).filter(|revision| *revision != 0)
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

/// Checks the selectors of a request, and returns the names of its fields in refusals.
fn check_selectors(labels: &str, fields: &str) -> Result<FieldNames, Status> {
    LabelSelector::parse(labels).map_err(|error| status::invalid("label_selector", error))?;
    FieldSelector::parse(fields).map_err(|error| status::invalid("field_selector", error))?;
    // Fields by which a resource cannot be selected are refused where objects are read.
    Ok(if fields.is_empty() {
        &[]
    } else {
        &[("", "field_selector")]
    })
}

async fn list(session: &Session, target: &Target, request: &ListObjectsRequest) -> Result<ListObjectsResponse, Status> {
    let path = target.collection(&request.namespace)?;
    let filter = [&*path.to_string(), &request.label_selector, &request.field_selector];
    let page = Page::read(session, &filter, request.page_size, &request.page_token)?;
    let names = check_selectors(&request.label_selector, &request.field_selector)?;
    let wanted = PageRequest {
        path,
        labels: request.label_selector.clone(),
        fields: request.field_selector.clone(),
        limit: page.size,
        token: page.after.as_ref().map(|(_, position)| position.clone()),
    };
    let list = session.page(&wanted, names).await;
    let list = list.map_err(|refusal| target.explained(refusal))?;
    let next = list.next.map(|next| page.next(list.revision, &next));
    Ok(ListObjectsResponse {
        header: session.header_at(list.revision),
        objects: list.items.iter().map(fields::structure).collect::<Result<_, _>>()?,
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
    let action = Action::Apply {
        config: object,
        manager: request.field_manager.clone(),
        on_conflict: if request.force {
            OnConflict::Force
        } else {
            OnConflict::Refuse
        },
    };
    let apply = ApiRequest::new(path, action)
        .names(APPLY_FIELDS)
        .validate_only(request.validate_only);
    let applied = target.request(session, apply).await?.object;
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
    let uid = Some(&*request.uid).filter(|uid| !uid.is_empty());
    let how = DeleteOptions {
        propagation: match v1::Propagation::try_from(request.propagation) {
            Ok(v1::Propagation::Unspecified) => None,
            Ok(v1::Propagation::Background) => Some(Propagation::Background),
            Ok(v1::Propagation::Foreground) => Some(Propagation::Foreground),
            Ok(v1::Propagation::Orphan) => Some(Propagation::Orphan),
            Err(_) => return Err(status::invalid("propagation", status::UNKNOWN_VALUE)),
        },
        ..deletion(uid, fields::etag(&request.etag)?)
    };
    let path = target.object(address(&request.namespace, &request.name))?;
    let delete = ApiRequest::delete(path, how).validate_only(request.validate_only);
    let deleted = target.request(session, delete).await?;
    Ok(DeleteObjectResponse {
        header: session.header_of(&deleted.object),
        gone: deleted.gone,
        object: (!deleted.gone)
            .then(|| fields::structure(&deleted.object))
            .transpose()?,
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
